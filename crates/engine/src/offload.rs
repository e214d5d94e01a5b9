//! Where a model goes: its device is found, and how much of it fits there is decided.

use alara_text::gguf::Gguf;

use crate::architecture::Architecture;
use crate::backend::KvType;
use crate::cache::CacheConfig;
use crate::device::{Device, Gpu, Handle};
use crate::error::DeviceProblem;
use crate::memory::{MemoryBreakdown, MemoryEstimate, shown};
use crate::placement::{Placement, Refusal};
use crate::{Error, Result};

/// Where a model is to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Who computes.
    /// Default: the CPU.
    pub device: Device,
    /// How many layers go on the GPU, counted from the last one; more than there are means all.
    /// `None`, the default: as many as fit.
    pub layers: Option<usize>,
    /// Most bytes that the model may take of the GPU's memory.
    /// `None`, the default: what is free.
    pub memory: Option<u64>,
}

/// The device that computes a model, once it is found.
#[derive(Debug)]
pub(crate) enum ResolvedDevice {
    /// The CPU.
    Cpu,
    /// candle on the CPU, to compare with.
    Candle(Handle),
    /// A GPU, for a part of it or all.
    Gpu(Gpu, Placement),
}

/// What computes a model, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSummary {
    /// Never [`Device::Auto`].
    pub device: Device,
    /// What its maker calls a GPU; empty without one.
    pub gpu: String,
    /// Layers on the GPU.
    pub layers: usize,
}

impl ResolvedDevice {
    /// What computes.
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

    /// What the host holds of a model with these parts, and `beside` bytes more of what is evicted
    /// on a GPU.
    pub fn host(&self, breakdown: &MemoryBreakdown, beside: u64) -> MemoryEstimate {
        match self {
            ResolvedDevice::Gpu(_, Placement { host, .. }) => {
                MemoryEstimate { working: host.working.saturating_add(beside), ..*host }
            }
            ResolvedDevice::Cpu | ResolvedDevice::Candle(_) => breakdown.whole,
        }
    }

    /// What a person should know of it.
    pub fn note(&self) -> Option<String> {
        let ResolvedDevice::Gpu(gpu, Placement { layers, of, gpu: held, .. }) = self else { return None };
        let device = gpu.device;
        let rest = if layers < of { ", the rest on the CPU" } else { "" };
        let held = shown(held.total());
        Some(format!("{layers} of {of} layers on {} ({device}), which takes {held} there{rest}", gpu.name))
    }
}

/// The model, its cache, and its context: what a decision is about.
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

    fn refused(&self, refusal: Refusal) -> Error {
        Error::Placement { file: self.gguf.name().into(), reason: refusal.message(self.context) }
    }
}

/// What `device` would hold: where attention has its own kernels there are no scores.
fn on(device: Device, breakdown: MemoryBreakdown) -> MemoryBreakdown {
    match device {
        Device::Cuda(_) => MemoryBreakdown { scores: 0, ..breakdown },
        _ => breakdown,
    }
}

impl Offload {
    /// On the CPU.
    pub fn cpu() -> Self {
        Offload::default()
    }

    /// What would go on the device.
    /// It is not opened where [`Offload::memory`] gives its size, so a GPU can be asked for that is
    /// not here.
    /// The bytes that can be had there, and what comes of them; `None`: the CPU computes.
    ///
    /// # Errors
    /// The device can't be used.
    #[allow(clippy::type_complexity)]
    pub fn plan(
        &self,
        breakdown: &MemoryBreakdown,
    ) -> Result<Option<(u64, std::result::Result<Placement, Refusal>)>> {
        let Some(gpu) = self.budget()? else { return Ok(None) };
        Ok(Some((gpu.1, self.place(gpu, breakdown))))
    }

    /// The GPU and the bytes that can be had there; `None`: the CPU computes.
    ///
    /// # Errors
    /// The device can't be used.
    pub(crate) fn budget(&self) -> Result<Option<(Device, u64)>> {
        Ok(match (self.device, self.memory) {
            (Device::Cpu | Device::Candle, _) => None,
            (Device::Cuda(_) | Device::Metal, Some(memory)) => Some((self.device, memory)),
            (device, most) => device.open()?.map(|gpu| (gpu.device, most.unwrap_or(u64::MAX).min(gpu.free))),
        })
    }

    /// What goes on the GPU that [`Offload::budget`] gives.
    pub(crate) fn place(
        &self,
        (device, budget): (Device, u64),
        breakdown: &MemoryBreakdown,
    ) -> std::result::Result<Placement, Refusal> {
        on(device, breakdown.clone()).place(budget, self.layers)
    }

    /// Finds the device, and what of `model` goes there.
    /// With [`Device::Auto`] the CPU computes where there is no GPU, or none of it fits.
    ///
    /// # Errors
    /// The device can't be used, or the layers that were asked for don't fit.
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
                        Err(refusal) => return Err(model.refused(refusal)),
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
