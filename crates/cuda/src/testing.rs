//! Shared helpers of the kernels' tests.

/// Numbers between -1 and 1, determined by the seed.
#[cfg(twin)]
pub(crate) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Fails if `y` has an error of more than `tolerance`, relative to the exact value where that
/// exceeds 1.
#[cfg(twin)]
#[track_caller]
pub(crate) fn assert_close(y: &[f32], exact: &[f32], tolerance: f32, what: &str) {
    assert_eq!(y.len(), exact.len(), "{what}");
    for (i, (&y, &exact)) in y.iter().zip(exact).enumerate() {
        assert!((y - exact).abs() <= tolerance * exact.abs().max(1.0), "{what}: number {i}: {y} for {exact}");
    }
}

#[cfg(not(twin))]
#[test]
fn the_twin_needs_a_compiler() {
    println!("skipped: without a C++ compiler on Linux there is no twin, and no kernel is tested");
}

#[cfg(twin)]
pub(crate) use on_devices::*;

#[cfg(twin)]
mod on_devices {
    use crate::twin::{Host, Twin};
    use crate::{Device, Launch, Result};

    /// A device for tests.
    #[derive(Debug)]
    pub(crate) enum Tested {
        /// The CPU.
        Twin(Twin),
        /// A GPU, with a wait after each launch.
        #[cfg(feature = "cuda")]
        Gpu(&'static crate::Gpu),
    }

    /// The GPU, if this build supports it and this machine has one, otherwise the twin in both
    /// orders of blocks and threads.
    pub(crate) fn devices() -> Vec<Tested> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = gpu() {
            return vec![Tested::Gpu(gpu)];
        }
        [false, true].map(|descending| Tested::Twin(Twin { descending })).into()
    }

    /// Any one of the devices.
    pub(crate) fn device() -> Tested {
        devices().swap_remove(0)
    }

    /// The GPU that tests run on.
    #[cfg(feature = "cuda")]
    pub(crate) fn gpu() -> Option<&'static crate::Gpu> {
        static FOUND: std::sync::LazyLock<Option<std::sync::Arc<crate::Gpu>>> =
            std::sync::LazyLock::new(|| {
                let device = candle_core::Device::new_cuda(0)
                    .inspect_err(|error| println!("on the twin: no GPU can be used ({error})"))
                    .ok()?;
                Some(crate::Gpu::of(device.as_cuda_device().ok()?).expect("the driver takes the kernels"))
            });
        FOUND.as_deref()
    }

    impl Device for Tested {
        type Memory = Host;

        fn alloc(&self, bytes: usize) -> Result<Host> {
            Twin::default().alloc(bytes)
        }

        fn upload(&self, numbers: &[u32]) -> Result<Host> {
            Twin::default().upload(numbers)
        }

        fn launch(&self, launch: &Launch) -> Result<()> {
            match self {
                Tested::Twin(twin) => twin.launch(launch),
                #[cfg(feature = "cuda")]
                Tested::Gpu(gpu) => gpu.launch(launch).and_then(|()| gpu.wait()),
            }
        }
    }

    /// Floats as memory.
    pub(crate) fn floats(numbers: &[f32]) -> Host {
        Host::of(&numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
    }

    /// Integers as memory.
    pub(crate) fn words(numbers: &[u32]) -> Host {
        Host::of(&numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
    }

    /// Memory as floats.
    pub(crate) fn to_floats(host: &Host) -> Vec<f32> {
        host.bytes().as_chunks::<4>().0.iter().map(|&x| f32::from_le_bytes(x)).collect()
    }

    /// Memory as integers.
    pub(crate) fn to_words(host: &Host) -> Vec<u32> {
        host.bytes().as_chunks::<4>().0.iter().map(|&x| u32::from_le_bytes(x)).collect()
    }
}
