//! Options for the device that computes.

use alara_engine::{Device, Offload};

use crate::cache;

/// Options for the device that computes.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Device to compute on: auto (a GPU for the layers that fit, if this build supports one and it
    /// is present), cpu, cuda, cuda:N or metal
    #[arg(long, default_value_t = Device::Auto, value_name = "DEVICE")]
    device: Device,
    /// How many layers, counted from the last one, go on the GPU: as many as fit, or N
    #[arg(long, default_value = "auto", value_name = "auto|N", value_parser = layers)]
    gpu_layers: Layers,
    /// Maximum GPU memory for the model in GB [default: all that is free]
    #[arg(long, value_name = "GB", value_parser = cache::gigabytes)]
    gpu_memory: Option<u64>,
}

/// Number of layers; `None` for as many as fit.
#[derive(Clone, Copy, Debug)]
struct Layers(Option<usize>);

fn layers(text: &str) -> Result<Layers, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(Layers(None)),
        (_, Ok(layers)) => Ok(Layers(Some(layers))),
        _ => Err("`auto` or a number is wanted".to_owned()),
    }
}

impl Args {
    /// Returns the settings for the engine.
    pub fn offload(&self) -> Offload {
        Offload { device: self.device, layers: self.gpu_layers.0, memory: self.gpu_memory }
    }

    /// Returns the settings for the header of a run: `None` for the CPU, as in runs from before
    /// this option existed.
    pub fn record(&self) -> Option<String> {
        let layers = self.gpu_layers.0.map_or_else(String::new, |layers| format!(", {layers} layers"));
        (!self.is_cpu()).then(|| format!("{}{layers}", self.device))
    }

    /// Whether to compute only on the CPU.
    pub fn is_cpu(&self) -> bool {
        let gpus = cfg!(any(feature = "cuda", feature = "metal"));
        self.device == Device::Cpu || self.device == Device::Auto && !gpus
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        device: Args,
    }

    #[test]
    fn what_is_typed_is_meant() {
        let check = |line: &[&str], device, layers, memory, record: Option<&str>| {
            let args = Line::try_parse_from([&["alara"], line].concat()).unwrap().device;
            assert_eq!(args.offload(), Offload { device, layers, memory }, "{line:?}");
            if !cfg!(any(feature = "cuda", feature = "metal")) {
                assert_eq!(args.record().as_deref(), record, "{line:?}");
            }
        };
        check(&[], Device::Auto, None, None, None);
        check(&["--device", "cpu"], Device::Cpu, None, None, None);
        check(&["--device", "cuda:1"], Device::Cuda(1), None, None, Some("cuda:1"));
        let line = ["--device", "cuda", "--gpu-layers", "20", "--gpu-memory", "8GB"];
        check(&line, Device::Cuda(0), Some(20), Some(8_000_000_000), Some("cuda:0, 20 layers"));
        check(&["--gpu-layers", "auto"], Device::Auto, None, None, None);
        for line in [["--device", "gpu"], ["--gpu-layers", "some"], ["--gpu-memory", "much"]] {
            assert!(Line::try_parse_from([&["alara"], &line[..]].concat()).is_err(), "{line:?}");
        }
    }
}
