//! Where a model goes: its device is found, and how much of it fits there is decided.

use crate::architecture::Architecture;
use crate::backend::KvType;
use crate::cache::Room;
use crate::device::{Device, Gpu};
use crate::error::DeviceProblem;
use crate::gguf::Gguf;
use crate::memory::{Footprint, Parts, shown};
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

/// What a model stands on.
#[derive(Debug)]
pub(crate) enum Ground {
    /// The CPU.
    Host,
    /// candle on the CPU.
    Oracle,
    /// A GPU, for a part of it or all.
    Gpu(Gpu, Placement),
}

/// What computes a model, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Never [`Device::Auto`].
    pub device: Device,
    /// What its maker calls a GPU; empty without one.
    pub gpu: String,
    /// Layers on the GPU.
    pub layers: usize,
}

impl Ground {
    /// What computes.
    pub fn place(&self) -> Place {
        match self {
            Ground::Host => Place { device: Device::Cpu, gpu: String::new(), layers: 0 },
            Ground::Oracle => Place { device: Device::Candle, gpu: String::new(), layers: 0 },
            Ground::Gpu(gpu, placement) => {
                Place { device: gpu.device(), gpu: gpu.name.clone(), layers: placement.layers }
            }
        }
    }

    /// What the host holds of a model with these parts, and `beside` bytes more of what a GPU gives
    /// up.
    pub fn host(&self, parts: &Parts, beside: u64) -> Footprint {
        match self {
            Ground::Gpu(_, Placement { host, .. }) => {
                Footprint { working: host.working.saturating_add(beside), ..*host }
            }
            Ground::Host | Ground::Oracle => parts.whole,
        }
    }

    /// What a person should know of it.
    pub fn note(&self) -> Option<String> {
        let Ground::Gpu(gpu, Placement { layers, of, gpu: held, .. }) = self else { return None };
        let device = gpu.device();
        let rest = if layers < of { ", the rest on the CPU" } else { "" };
        let held = shown(held.total());
        Some(format!("{layers} of {of} layers on {} ({device}), which takes {held} there{rest}", gpu.name))
    }
}

/// The model, its room, and its context: what a decision is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model<'a> {
    pub gguf: &'a Gguf,
    pub architecture: &'a Architecture,
    pub room: &'a Room,
    pub kv: KvType,
    pub context: usize,
}

impl Model<'_> {
    pub fn parts(&self) -> Result<Parts> {
        Parts::in_room(self.gguf, self.architecture, self.room, self.kv)
    }

    fn refused(&self, refusal: Refusal) -> Error {
        Error::Placement { file: self.gguf.name().into(), reason: refusal.told(self.context) }
    }
}

/// What `device` would hold: where attention has its own kernels there are no scores.
fn on(device: Device, parts: Parts) -> Parts {
    match device {
        Device::Cuda(_) => Parts { scores: 0, ..parts },
        _ => parts,
    }
}

impl Offload {
    /// On the CPU.
    pub fn cpu() -> Self {
        Offload::default()
    }

    /// What would go on the device, of which nothing is used where [`Offload::memory`] tells its
    /// size: so a GPU can be asked for that is not here.
    /// The bytes that can be had there, and what comes of them; `None`: the CPU computes.
    ///
    /// # Errors
    /// The device can't be used.
    #[allow(clippy::type_complexity)]
    pub fn plan(&self, parts: &Parts) -> Result<Option<(u64, std::result::Result<Placement, Refusal>)>> {
        let found = match (self.device, self.memory) {
            (Device::Cpu | Device::Candle, _) => None,
            (Device::Cuda(_) | Device::Metal, Some(memory)) => Some((self.device, memory)),
            (device, most) => {
                device.open()?.map(|gpu| (gpu.device(), most.unwrap_or(u64::MAX).min(gpu.free)))
            }
        };
        let place = |(device, budget)| (budget, on(device, parts.clone()).place(budget, self.layers));
        Ok(found.map(place))
    }

    /// Finds the device, and what of `model` goes there.
    /// With [`Device::Auto`] the CPU computes where there is no GPU, or none of it fits.
    ///
    /// # Errors
    /// The device can't be used, or the layers that were asked for don't fit.
    pub(crate) fn open(&self, model: &Model) -> Result<Ground> {
        let ground = match self.device {
            Device::Candle => Ground::Oracle,
            Device::Cpu => Ground::Host,
            _ if self.layers == Some(0) => Ground::Host,
            _ => match self.device.open()? {
                None => Ground::Host,
                Some(gpu) => {
                    let budget = self.memory.map_or(gpu.free, |most| most.min(gpu.free));
                    match on(gpu.device(), model.parts()?).place(budget, self.layers) {
                        Ok(placement) => Ground::Gpu(gpu, placement),
                        Err(_) if self.device == Device::Auto && self.layers.is_none() => Ground::Host,
                        Err(refusal) => return Err(model.refused(refusal)),
                    }
                }
            },
        };
        match (&ground, self.layers) {
            (Ground::Host, Some(layers)) if layers > 0 => Err(self.device.unusable(DeviceProblem::NoLayers)),
            _ => Ok(ground),
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
        let parts = Parts::of(&Gguf::open(&path).unwrap(), 256, KvType::F16).unwrap();
        let takes = |device| {
            let plan = Offload { device, layers: None, memory: Some(1 << 40) }.plan(&parts).unwrap();
            plan.unwrap().1.unwrap().gpu.working
        };
        assert!(parts.scores > 0);
        assert_eq!(takes(Device::Metal) - takes(Device::Cuda(0)), parts.scores);
    }

    #[test]
    fn without_a_gpu_the_cpu_computes_unless_layers_were_asked_for() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch/qwen3-exact/model.gguf");
        let gguf = Gguf::open(&path).unwrap();
        let architecture = Architecture::of(&gguf).unwrap();
        let room = Room::new(64, 1, 64, None);
        let model =
            Model { gguf: &gguf, architecture: &architecture, room: &room, kv: KvType::F16, context: 64 };
        let check = |device, layers| match (Offload { device, layers, memory: None }).open(&model) {
            Ok(Ground::Host) => "host".to_owned(),
            Ok(Ground::Oracle) => "oracle".to_owned(),
            Ok(Ground::Gpu(..)) => "gpu".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(check(Device::Cpu, None), "host");
        assert_eq!(check(Device::Cpu, Some(0)), "host");
        assert_eq!(check(Device::Candle, None), "oracle");
        let told = "cpu can't be used: it has no layers of a GPU (--gpu-layers); leave that out, or name a GPU (--device)";
        assert_eq!(check(Device::Cpu, Some(3)), told);
        if !cfg!(any(feature = "cuda", feature = "metal")) {
            assert_eq!(check(Device::Auto, None), "host");
            assert!(check(Device::Auto, Some(2)).starts_with("auto can't be used: it has no"));
            assert!(check(Device::Cuda(0), None).starts_with("cuda:0 can't be used: this build computes on"));
        }
    }
}
