//! Why a device can't be used, and what to do.

/// Why a device can't be used, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceProblem {
    /// This build doesn't support it.
    #[error("this build computes on {}; {}", built_for(), .0)]
    NotBuilt(&'static str),
    /// The machine has fewer devices.
    #[error("this machine has {count} such device{}", match count { 1 => ", cuda:0".to_owned(), 0 => "s".to_owned(), n => format!("s, cuda:0 to cuda:{}", n - 1) })]
    Index {
        /// Number of devices.
        count: usize,
    },
    /// The machine has no such device.
    #[error("this machine has none, or this process may not use it (in a container it must be handed in)")]
    None,
    /// The driver is missing or doesn't work.
    #[error(
        "the NVIDIA driver is missing or not running; install it, or start it anew after an update (`nvidia-smi` tells)"
    )]
    NoDriver,
    /// The driver is older than this build requires.
    #[error(
        "the NVIDIA driver is too old for this build: CUDA 13 takes version 580 or later (`nvidia-smi` tells which one this is)"
    )]
    OldDriver,
    /// This build has no kernels for it.
    #[error("this build has no code for this GPU: it takes a compute capability from 7.5 (Turing, 2018) on")]
    OldGpu,
    /// Layers were requested on a GPU, but the device isn't one.
    #[error("it has no layers of a GPU (--gpu-layers); leave that out, or name a GPU (--device)")]
    NoLayers,
    /// Another process uses it exclusively.
    #[error("another process has the GPU for itself")]
    Busy,
    /// The driver's message.
    #[error("{0}")]
    Other(String),
}

/// The devices that this build can compute on.
fn built_for() -> &'static str {
    match (cfg!(feature = "cuda"), cfg!(feature = "metal")) {
        (true, _) => "the CPU and on NVIDIA GPUs",
        (_, true) => "the CPU and on Apple's GPUs",
        _ => "the CPU alone",
    }
}
