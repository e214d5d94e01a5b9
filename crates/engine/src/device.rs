//! The device that computes, and the errors if it can't.
//!
//! Owns the names of devices, their discovery, and their errors.
//! [`crate::placement`] decides which parts of a model go there.
//! A build without the features `cuda`, `metal` and `candle` only knows the names.

use std::fmt;
use std::str::FromStr;

use crate::error::DeviceProblem;
use crate::{Error, Result};

/// A device to compute on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// A GPU for everything that fits, if this build supports one and this machine has one; the CPU
    /// for the rest.
    Auto,
    /// The NVIDIA GPU with this number, counted from 0.
    Cuda(usize),
    /// Apple's GPU.
    Metal,
    /// candle on the CPU, for comparison.
    Candle,
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cpu" => Ok(Device::Cpu),
            "auto" => Ok(Device::Auto),
            "cuda" => Ok(Device::Cuda(0)),
            "metal" => Ok(Device::Metal),
            "candle" => Ok(Device::Candle),
            other => match other.strip_prefix("cuda:").map(str::parse) {
                Some(Ok(index)) => Ok(Device::Cuda(index)),
                _ => Err(format!("`{other}` is none of auto, cpu, cuda, cuda:N, metal")),
            },
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Auto => f.write_str("auto"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
            Device::Metal => f.write_str("metal"),
            Device::Candle => f.write_str("candle"),
        }
    }
}

/// A hint for users who want to compute on NVIDIA GPUs.
#[cfg(not(feature = "cuda"))]
const CUDA_BUILD: &str = "the one that is called alara-cuda computes on NVIDIA's (docs/gpu.md)";

/// A hint for users who want to compute on Apple GPUs.
#[cfg(not(feature = "metal"))]
const METAL_BUILD: &str = "the one for macOS computes on Apple's (docs/gpu.md)";

/// Messages of the CUDA libraries, and their meanings.
/// Source: `CUresult` and `cublasStatus_t`, CUDA 13 driver API and cuBLAS.
#[cfg(any(feature = "candle", test))]
const ANSWERS: [(&str, DeviceProblem); 12] = [
    ("CUDA_ERROR_NO_DEVICE", DeviceProblem::None),
    ("CUDA_ERROR_STUB_LIBRARY", DeviceProblem::NoDriver),
    ("CUDA_ERROR_NOT_INITIALIZED", DeviceProblem::NoDriver),
    ("CUDA_ERROR_SYSTEM_NOT_READY", DeviceProblem::NoDriver),
    ("CUDA_ERROR_OPERATING_SYSTEM", DeviceProblem::NoDriver),
    ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", DeviceProblem::OldDriver),
    ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", DeviceProblem::OldDriver),
    ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", DeviceProblem::OldDriver),
    ("driver version is insufficient", DeviceProblem::OldDriver),
    ("CUDA_ERROR_NO_BINARY_FOR_GPU", DeviceProblem::OldGpu),
    ("CUDA_ERROR_INVALID_PTX", DeviceProblem::OldGpu),
    ("CUDA_ERROR_DEVICE_UNAVAILABLE", DeviceProblem::Busy),
];

/// Messages by which devices report full memory: CUDA's driver, cuBLAS, candle's Metal kernels.
#[cfg(any(feature = "candle", test))]
const FULL: [&str; 4] = [
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "out of memory",
    "create metal resource: Buffer",
];

/// Converts a device's message to the error of `operation`.
#[cfg(any(feature = "candle", test))]
pub fn failed(operation: &str, message: &str) -> Error {
    let says = |text: &&str| message.contains(*text);
    if FULL.iter().any(says) {
        return Error::DeviceMemory { operation: operation.into(), step: None };
    }
    match ANSWERS.iter().find(|(text, _)| says(text)) {
        Some((_, problem)) => Error::Device { device: "the GPU".into(), problem: problem.clone() },
        None => Error::Backend { operation: operation.into(), message: message.into() },
    }
}

/// A candle device.
#[cfg(feature = "candle")]
pub type Handle = candle_core::Device;

/// A build without candle has none.
#[cfg(not(feature = "candle"))]
#[derive(Clone, Debug)]
pub enum Handle {}

/// An available GPU.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// The device's name in options.
    pub device: Device,
    /// The candle device.
    pub handle: Handle,
    /// Free memory in bytes.
    pub free: u64,
    /// The vendor's name for it.
    pub name: String,
}

impl Device {
    /// Opens the device.
    /// `None` if the CPU computes.
    ///
    /// # Errors
    /// [`Error::Device`] if it was requested by name and can't be used.
    pub fn open(self) -> Result<Option<Gpu>> {
        match self {
            Device::Cpu | Device::Candle => Ok(None),
            Device::Auto => {
                Ok([Device::Cuda(0), Device::Metal].into_iter().find_map(|device| device.open().ok()?))
            }
            Device::Cuda(index) => cuda(index).map(Some).map_err(|problem| self.unusable(problem)),
            Device::Metal => metal().map(Some).map_err(|problem| self.unusable(problem)),
        }
    }

    /// candle on the CPU.
    ///
    /// # Errors
    /// [`Error::Device`] if this build lacks it.
    pub(crate) fn candle() -> Result<Handle> {
        #[cfg(feature = "candle")]
        return Ok(Handle::Cpu);
        #[cfg(not(feature = "candle"))]
        Err(Device::Candle.unusable(DeviceProblem::NotBuilt("one with the feature `candle` has it")))
    }

    /// The error for a device that can't be used.
    pub(crate) fn unusable(self, problem: DeviceProblem) -> Error {
        Error::Device { device: self.to_string(), problem }
    }
}

/// All GPUs that this build can compute on, or why one can't be used.
pub fn gpus() -> Vec<(Device, Result<Gpu>)> {
    let mut all = Vec::new();
    if cfg!(feature = "cuda") {
        let count = count().unwrap_or(0).max(1);
        all.extend((0..count).map(Device::Cuda));
    }
    if cfg!(feature = "metal") {
        all.push(Device::Metal);
    }
    let open = |device: Device| {
        device.open().and_then(|gpu| gpu.ok_or_else(|| device.unusable(DeviceProblem::None)))
    };
    all.into_iter().map(|device| (device, open(device))).collect()
}

/// Recognizes a problem by a library's message.
#[cfg(any(feature = "cuda", feature = "metal"))]
fn problem(error: &impl fmt::Display) -> DeviceProblem {
    match failed("", error.to_string().lines().next().unwrap_or_default()) {
        Error::Device { problem, .. } => problem,
        Error::Backend { message, .. } => DeviceProblem::Other(message),
        _ => DeviceProblem::Other("its memory is full".into()),
    }
}

#[cfg(feature = "cuda")]
fn count() -> Result<usize, DeviceProblem> {
    let count = candle_core::cuda::cudarc::driver::CudaContext::device_count();
    count.map(|count| count.max(0) as usize).map_err(|error| problem(&error))
}

#[cfg(not(feature = "cuda"))]
fn count() -> Result<usize, DeviceProblem> {
    Ok(0)
}

#[cfg(feature = "cuda")]
fn cuda(index: usize) -> Result<Gpu, DeviceProblem> {
    let count = count()?;
    if index >= count {
        return Err(if count == 0 { DeviceProblem::None } else { DeviceProblem::Index { count } });
    }
    let handle = Handle::new_cuda(index).map_err(|error| problem(&error))?;
    let cuda = handle.as_cuda_device().map_err(|error| problem(&error))?;
    // Check now, not in the first step, whether there are kernels for this GPU.
    alara_cuda::Gpu::of(cuda).map_err(|error| problem(&error))?;
    let context = cuda.cuda_stream().context().clone();
    let (free, _) = context.mem_get_info().map_err(|error| problem(&error))?;
    let name = context.name().map_err(|error| problem(&error))?;
    Ok(Gpu { device: Device::Cuda(index), handle, free: free as u64, name })
}

#[cfg(not(feature = "cuda"))]
fn cuda(_index: usize) -> Result<Gpu, DeviceProblem> {
    Err(DeviceProblem::NotBuilt(CUDA_BUILD))
}

#[cfg(feature = "metal")]
fn metal() -> Result<Gpu, DeviceProblem> {
    // candle indexes an empty list if there is no GPU, for example in a virtual machine.
    let opened = std::panic::catch_unwind(|| Handle::new_metal(0)).map_err(|_| DeviceProblem::None)?;
    let handle = opened.map_err(|error| problem(&error))?;
    let metal = handle.as_metal_device().map_err(|error| problem(&error))?.device();
    // The limit of memory in use at once, which is shared with the CPU.
    let free = metal.recommended_max_working_set_size().saturating_sub(metal.current_allocated_size());
    Ok(Gpu { free: free as u64, name: "Apple GPU".into(), device: Device::Metal, handle })
}

#[cfg(not(feature = "metal"))]
fn metal() -> Result<Gpu, DeviceProblem> {
    Err(DeviceProblem::NotBuilt(METAL_BUILD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for name in ["cpu", "auto", "cuda:0", "cuda:3", "metal", "candle"] {
            assert_eq!(name.parse::<Device>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        for name in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CPU"] {
            assert!(
                name.parse::<Device>().unwrap_err().starts_with(&format!("`{name}` is none of")),
                "{name}"
            );
        }
    }

    #[test]
    fn each_message_of_a_device_has_its_error() {
        let check = |message: &str, expected: &str| {
            assert_eq!(failed("attention", message).to_string(), expected);
        };
        let full = "the GPU's memory is full at: attention; put fewer layers there (--gpu-layers), take a smaller \
                    context (--ctx) or keep keys and values in eight bits (--kv q8_0)";
        check("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")", full);
        check("CublasError(CUBLAS_STATUS_ALLOC_FAILED)", full);
        check("Failed to create metal resource: Buffer", full);
        check(
            "DriverError(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, \"the provided PTX was compiled with an unsupported toolchain.\")",
            "the GPU can't be used: the NVIDIA driver is too old for this build: CUDA 13 takes version 580 or later (`nvidia-smi` \
             tells which one this is)",
        );
        check(
            "DriverError(CUDA_ERROR_NO_DEVICE, \"no CUDA-capable device is detected\")",
            "the GPU can't be used: this machine has none, or this process may not use it (in a container it must be handed in)",
        );
        check("shape mismatch in add", "attention: shape mismatch in add");
    }

    #[test]
    fn a_number_that_is_too_high_is_told_how_many_there_are() {
        let check = |count, expected: &str| {
            let error = Device::Cuda(7).unusable(DeviceProblem::Index { count });
            assert_eq!(error.to_string(), format!("cuda:7 can't be used: this machine has {expected}"));
        };
        check(1, "1 such device, cuda:0");
        check(2, "2 such devices, cuda:0 to cuda:1");
    }

    #[cfg(not(any(feature = "cuda", feature = "metal")))]
    #[test]
    fn a_build_without_gpus_says_which_one_has_them() {
        assert!(Device::Auto.open().unwrap().is_none(), "auto is the CPU");
        assert!(gpus().is_empty());
        assert_eq!(
            Device::Cuda(0).open().unwrap_err().to_string(),
            "cuda:0 can't be used: this build computes on the CPU alone; the one that is called alara-cuda computes on NVIDIA's \
             (docs/gpu.md)"
        );
        assert_eq!(
            Device::Metal.open().unwrap_err().to_string(),
            "metal can't be used: this build computes on the CPU alone; the one for macOS computes on Apple's (docs/gpu.md)"
        );
    }
}
