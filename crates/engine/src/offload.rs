//! Opens a model's device, and decides which part of the model goes there.

use alara_text::gguf::Gguf;

use crate::architecture::Architecture;
use crate::backend::KvType;
use crate::cache::CacheConfig;
use crate::device::{Device, Gpu, Handle};
use crate::error::DeviceProblem;
use crate::memory::{MemoryBreakdown, MemoryEstimate, shown};
use crate::placement::{Placement, Refusal};
use crate::{Error, Result};

/// Options for the placement of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The device.
    /// Default: the CPU.
    pub device: Device,
    /// Number of layers on the GPU, counted from the last one; a larger number means all.
    /// `None`, the default: as many as fit.
    pub layers: Option<usize>,
    /// Most bytes of GPU memory that the model may take.
    /// `None`, the default: the free memory.
    pub memory: Option<u64>,
}

/// The device for a model, opened.
#[derive(Debug)]
pub(crate) enum ResolvedDevice {
    /// The CPU.
    Cpu,
    /// candle on the CPU, for comparison.
    Candle(Handle),
    /// A GPU, for some or all layers.
    Gpu(Gpu, Placement),
}

/// A summary of the device and its share of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSummary {
    /// Never [`Device::Auto`].
    pub device: Device,
    /// The vendor's name of the GPU; empty without one.
    pub gpu: String,
    /// Number of layers on the GPU.
    pub layers: usize,
}

impl ResolvedDevice {
    /// Summarizes the device.
    pub fn summary(&self) -> DeviceSummary {
        match self {
            ResolvedDevice::Cpu => DeviceSummary { device: Device::Cpu, gpu: String::new(), layers: 0 },
            ResolvedDevice::Candle(_) => {
                DeviceSummary { device: Device::Candle, gpu: String::new(), layers: 0 }
            }
            ResolvedDevice::Gpu(gpu, placement) => {
                DeviceSummary { device: gpu.device, gpu: gpu.name.clone(), layers: placement.layers }
            }
        }
    }

    /// The host memory of a model with these parts, including `beside` bytes for text evicted on a
    /// GPU.
    pub fn host(&self, breakdown: &MemoryBreakdown, beside: u64) -> MemoryEstimate {
        match self {
            ResolvedDevice::Gpu(_, Placement { host, .. }) => {
                MemoryEstimate { working: host.working.saturating_add(beside), ..*host }
            }
            ResolvedDevice::Cpu | ResolvedDevice::Candle(_) => breakdown.whole,
        }
    }

    /// A note for the user.
    pub fn note(&self) -> Option<String> {
        let ResolvedDevice::Gpu(gpu, Placement { layers, of, gpu: held, .. }) = self else { return None };
        let device = gpu.device;
        let rest = if layers < of { ", the rest on the CPU" } else { "" };
        let held = shown(held.total());
        Some(format!("{layers} of {of} layers on {} ({device}), which takes {held} there{rest}", gpu.name))
    }
}

/// The model, its cache, and its context: the inputs of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model<'a> {
    pub gguf: &'a Gguf,
    pub architecture: &'a Architecture,
    pub config: &'a CacheConfig,
    pub kv: KvType,
    pub context: usize,
}

impl Model<'_> {
    pub fn breakdown(&self) -> Result<MemoryBreakdown> {
        MemoryBreakdown::with_cache(self.gguf, self.architecture, self.config, self.kv)
    }

    fn placement_error(&self, refusal: Refusal) -> Error {
        Error::Placement { file: self.gguf.name().into(), reason: refusal.message(self.context) }
    }
}

/// The breakdown on `device`: scores don't count if it has its own attention kernels.
fn on(device: Device, breakdown: MemoryBreakdown) -> MemoryBreakdown {
    match device {
        Device::Cuda(_) => MemoryBreakdown { scores: 0, ..breakdown },
        _ => breakdown,
    }
}

impl Offload {
    /// Places the model on the CPU.
    pub fn cpu() -> Self {
        Offload::default()
    }

    /// Computes the placement without loading.
    /// Doesn't open the device if [`Offload::memory`] is set, so an absent GPU can be planned for.
    /// Returns the available bytes and the placement; `None` if the CPU computes.
    ///
    /// # Errors
    /// If the device can't be used.
    #[allow(clippy::type_complexity)]
    pub fn plan(
        &self,
        breakdown: &MemoryBreakdown,
    ) -> Result<Option<(u64, std::result::Result<Placement, Refusal>)>> {
        let Some(gpu) = self.budget()? else { return Ok(None) };
        Ok(Some((gpu.1, self.place(gpu, breakdown))))
    }

    /// The GPU and the bytes available there; `None` if the CPU computes.
    ///
    /// # Errors
    /// If the device can't be used.
    pub(crate) fn budget(&self) -> Result<Option<(Device, u64)>> {
        Ok(match (self.device, self.memory) {
            (Device::Cpu | Device::Candle, _) => None,
            (Device::Cuda(_) | Device::Metal, Some(memory)) => Some((self.device, memory)),
            (device, most) => device.open()?.map(|gpu| (gpu.device, most.unwrap_or(u64::MAX).min(gpu.free))),
        })
    }

    /// The placement on the GPU that [`Offload::budget`] returns.
    pub(crate) fn place(
        &self,
        (device, budget): (Device, u64),
        breakdown: &MemoryBreakdown,
    ) -> std::result::Result<Placement, Refusal> {
        on(device, breakdown.clone()).place(budget, self.layers)
    }

    /// Opens the device, and decides which part of `model` goes there.
    /// With [`Device::Auto`] the CPU computes if there is no GPU, or nothing fits on it.
    ///
    /// # Errors
    /// If the device can't be used, or the requested layers don't fit.
    pub(crate) fn open(&self, model: &Model) -> Result<ResolvedDevice> {
        let resolved = match self.device {
            Device::Candle => ResolvedDevice::Candle(Device::candle()?),
            Device::Cpu => ResolvedDevice::Cpu,
            _ if self.layers == Some(0) => ResolvedDevice::Cpu,
            _ => match self.device.open()? {
                None => ResolvedDevice::Cpu,
                Some(gpu) => {
                    let budget = self.memory.map_or(gpu.free, |most| most.min(gpu.free));
                    match on(gpu.device, model.breakdown()?).place(budget, self.layers) {
                        Ok(placement) => ResolvedDevice::Gpu(gpu, placement),
                        Err(_) if self.device == Device::Auto && self.layers.is_none() => ResolvedDevice::Cpu,
                        Err(refusal) => return Err(model.placement_error(refusal)),
                    }
                }
            },
        };
        match (&resolved, self.layers) {
            (ResolvedDevice::Cpu, Some(layers)) if layers > 0 => {
                Err(self.device.unusable(DeviceProblem::NoLayers))
            }
            _ => Ok(resolved),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_composed_attention_holds_scores() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch/qwen3-exact/model.gguf");
        let breakdown = MemoryBreakdown::of(&Gguf::open(&path).unwrap(), 256, KvType::F16).unwrap();
        let takes = |device| {
            let plan = Offload { device, layers: None, memory: Some(1 << 40) }.plan(&breakdown).unwrap();
            plan.unwrap().1.unwrap().gpu.working
        };
        assert!(breakdown.scores > 0);
        assert_eq!(takes(Device::Metal) - takes(Device::Cuda(0)), breakdown.scores);
    }

    #[test]
    fn without_a_gpu_the_cpu_computes_unless_layers_were_asked_for() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch/qwen3-exact/model.gguf");
        let gguf = Gguf::open(&path).unwrap();
        let architecture = Architecture::of(&gguf).unwrap();
        let config = CacheConfig::new(64, 1, 64, None);
        let model =
            Model { gguf: &gguf, architecture: &architecture, config: &config, kv: KvType::F16, context: 64 };
        let check = |device, layers| match (Offload { device, layers, memory: None }).open(&model) {
            Ok(ResolvedDevice::Cpu) => "host".to_owned(),
            Ok(ResolvedDevice::Candle(_)) => "oracle".to_owned(),
            Ok(ResolvedDevice::Gpu(..)) => "gpu".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(check(Device::Cpu, None), "host");
        assert_eq!(check(Device::Cpu, Some(0)), "host");
        assert_eq!(check(Device::Candle, None), "oracle");
        let message = "cpu can't be used: it has no layers of a GPU (--gpu-layers); leave that out, or name a GPU (--device)";
        assert_eq!(check(Device::Cpu, Some(3)), message);
        if !cfg!(any(feature = "cuda", feature = "metal")) {
            assert_eq!(check(Device::Auto, None), "host");
            assert!(check(Device::Auto, Some(2)).starts_with("auto can't be used: it has no"));
            assert!(check(Device::Cuda(0), None).starts_with("cuda:0 can't be used: this build computes on"));
        }
    }
}
