//! A GPU, accessed through candle's driver bindings: its memory is candle's, and launches share
//! candle's stream.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use candle_core::cuda_backend::cudarc::driver::{
    CudaFunction, CudaModule, CudaSlice, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg,
};
use candle_core::cuda_backend::cudarc::nvrtc::Ptx;
use candle_core::cuda_backend::{CudaDevice, DeviceId};

use crate::launch::WORDS;
use crate::{Device, Error, Launch, Memory, Result};

/// The kernels for every compiled compute capability, and as PTX for later ones.
static KERNELS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin"));

/// A parameter as the driver reads it, with as many words as the kernel's parameter.
#[repr(C)]
struct Words([u64; WORDS]);

// SAFETY: plain words; the twin checks that they match the layout of the kernel's own struct by
// comparing lengths.
unsafe impl DeviceRepr for Words {}

/// Runs kernels on one CUDA device.
#[derive(Debug)]
pub struct Gpu {
    device: CudaDevice,
    module: Arc<CudaModule>,
    /// Functions by name; looked up at the first launch.
    functions: Mutex<HashMap<String, CudaFunction>>,
}

impl Gpu {
    /// The kernels on `device`, loaded once and kept as long as they are in use.
    ///
    /// Work runs in the calling thread's stream, like candle's.
    /// Work started by another thread has to be waited for first, as at the end of loading.
    ///
    /// # Errors
    /// If the driver rejects them because the driver or the GPU is too old.
    pub fn of(device: &CudaDevice) -> Result<Arc<Gpu>> {
        static LOADED: OnceLock<Mutex<HashMap<DeviceId, Weak<Gpu>>>> = OnceLock::new();
        let mut loaded = LOADED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = loaded.get(&device.id()).and_then(Weak::upgrade) {
            return Ok(gpu);
        }
        // SAFETY: one thread at a time uses the device, in one stream, so no events are needed for
        // synchronization.
        unsafe { device.disable_event_tracking() };
        let image = Ptx::from_binary(KERNELS.to_vec());
        let module = device.cuda_stream().context().load_module(image).map_err(|error| Error::Launch {
            kernel: "all kernels".into(),
            message: format!("the driver does not load them ({error})"),
        })?;
        let gpu = Arc::new(Gpu { device: device.clone(), module, functions: Mutex::default() });
        loaded.retain(|_, gpu| gpu.strong_count() > 0);
        loaded.insert(device.id(), Arc::downgrade(&gpu));
        Ok(gpu)
    }

    fn function(&self, launch: &Launch) -> Result<CudaFunction> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&launch.kernel) {
            return Ok(function.clone());
        }
        let function = self.module.load_function(&launch.kernel).map_err(|error| refused(launch, &error))?;
        functions.insert(launch.kernel.clone(), function.clone());
        Ok(function)
    }
}

fn refused(launch: &Launch, error: &dyn std::fmt::Display) -> Error {
    Error::Launch { kernel: launch.kernel.clone(), message: error.to_string() }
}

/// Memory of a GPU, from candle's pool.
#[derive(Debug)]
pub struct OnGpu(CudaSlice<u32>);

impl Memory for OnGpu {
    fn address(&self) -> u64 {
        // All work is in one stream, so the guard isn't needed.
        self.0.device_ptr(self.0.stream()).0
    }
}

impl Device for Gpu {
    type Memory = OnGpu;

    fn alloc(&self, bytes: usize) -> Result<OnGpu> {
        let words = 4 * bytes.div_ceil(16).max(1);
        // SAFETY: kernels write before they read; memory that isn't written is never read.
        let slice = unsafe { self.device.alloc::<u32>(words) };
        slice.map(OnGpu).map_err(|error| Error::Memory { bytes, message: first_line(&error) })
    }

    fn upload(&self, numbers: &[u32]) -> Result<OnGpu> {
        if numbers.is_empty() {
            return self.alloc(0);
        }
        let slice = self.device.clone_htod(numbers);
        slice
            .map(OnGpu)
            .map_err(|error| Error::Memory { bytes: 4 * numbers.len(), message: first_line(&error) })
    }

    fn launch(&self, launch: &Launch) -> Result<()> {
        if let Some(message) = launch.excess() {
            return Err(refused(launch, &message));
        }
        let words = launch.params.words();
        let mut params = Words([0; WORDS]);
        params.0[..words.len()].copy_from_slice(words);
        let [x, y, z] = launch.grid;
        let config = LaunchConfig {
            grid_dim: (x, y, z),
            block_dim: (launch.threads, 1, 1),
            shared_mem_bytes: launch.shared,
        };
        let function = self.function(launch)?;
        let stream = self.device.cuda_stream();
        let mut call = stream.launch_builder(&function);
        call.arg(&params);
        // SAFETY: the kernel takes one parameter with the layout of `params`.
        // The caller keeps the memory of its arrays until the launch is in the stream.
        // Memory is freed in the same stream.
        unsafe { call.launch(config) }.map(|_| ()).map_err(|error| refused(launch, &error))
    }
}

/// The first line of an error, since candle's errors may include a backtrace.
fn first_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Additions for tests: memory that they can read, and launches that have finished when they
/// return.
#[cfg(all(test, twin))]
impl Gpu {
    /// Memory that CPU and GPU access at the same address; null if there is none.
    pub(crate) fn shared_memory(&self, bytes: usize) -> *mut u8 {
        use candle_core::cuda_backend::cudarc::driver::{result, sys};
        self.device.cuda_stream().context().bind_to_thread().expect("the GPU that was found");
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: calls the driver, whose context is current on this thread.
        unsafe { result::malloc_host(bytes, flags) }
            .map_or(std::ptr::null_mut(), <*mut std::ffi::c_void>::cast)
    }

    /// Frees memory of [`Gpu::shared_memory`].
    pub(crate) fn give_back_shared(&self, at: *mut u8) {
        use candle_core::cuda_backend::cudarc::driver::result;
        // SAFETY: it came from there, and no kernel is running.
        unsafe { result::free_host(at.cast()) }.expect("memory that was got");
    }

    /// Waits until everything launched by this thread has finished.
    ///
    /// # Errors
    /// If any of it failed.
    pub(crate) fn wait(&self) -> Result<()> {
        self.device
            .cuda_stream()
            .synchronize()
            .map_err(|error| Error::Launch { kernel: "the last kernel".into(), message: error.to_string() })
    }
}
