//! Where a model goes: its device is found, and how much of it fits there is decided.

use crate::architecture::Architecture;
use crate::backend::KvType;
use crate::cache::Room;
use crate::device::{Device, Gpu, Problem};
use crate::gguf::Gguf;
use crate::memory::{Footprint, Parts, shown};
use crate::placement::{Placement, Refusal};
use crate::{Error, Result};

/// Where a model is to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Who computes. Default: the CPU.
    pub device: Device,
    /// How many layers go on the GPU, counted from the last one; more than there are means all. `None`, the default: as many as fit.
    pub layers: Option<usize>,
    /// Most bytes that the model may take of the GPU's memory. `None`, the default: what is free.
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

impl Ground {
    /// What the host holds of a model with these parts.
    pub fn host(&self, parts: &Parts) -> Footprint {
        match self {
            Ground::Gpu(_, placement) => placement.host,
            Ground::Host | Ground::Oracle => parts.whole,
        }
    }

    /// What a person should know of it.
    pub fn note(&self, device: Device) -> Option<String> {
        let Ground::Gpu(gpu, Placement { layers, of, gpu: held, .. }) = self else { return None };
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
        Error::Placement { file: self.gguf.name().into(), refusal, context: self.context }
    }
}

impl Offload {
    /// On the CPU.
    pub fn cpu() -> Self {
        Offload::default()
    }

    /// What would go on the device, of which nothing is used where [`Offload::memory`] tells its size: so a GPU can be asked for that is
    /// not here. The bytes that can be had there, and what comes of them; `None`: the CPU computes.
    ///
    /// # Errors
    /// The device can't be used.
    #[allow(clippy::type_complexity)]
    pub fn plan(&self, parts: &Parts) -> Result<Option<(u64, std::result::Result<Placement, Refusal>)>> {
        let budget = match (self.device, self.memory) {
            (Device::Cpu | Device::Candle, _) => None,
            (Device::Cuda(_) | Device::Metal, Some(memory)) => Some(memory),
            (device, most) => device.open()?.map(|gpu| most.unwrap_or(u64::MAX).min(gpu.free)),
        };
        Ok(budget.map(|budget| (budget, parts.place(budget, self.layers))))
    }

    /// Finds the device, and what of `model` goes there. With [`Device::Auto`] the CPU computes where there is no GPU, or none of it fits.
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
                    match model.parts()?.place(budget, self.layers) {
                        Ok(placement) => Ground::Gpu(gpu, placement),
                        Err(_) if self.device == Device::Auto && self.layers.is_none() => Ground::Host,
                        Err(refusal) => return Err(model.refused(refusal)),
                    }
                }
            },
        };
        match (&ground, self.layers) {
            (Ground::Host, Some(layers)) if layers > 0 => Err(self.device.unusable(Problem::NoLayers)),
            _ => Ok(ground),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

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
