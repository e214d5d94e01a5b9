//! A GPU, by candle's driver bindings: its memory is candle's, and its launches stand in the same
//! stream as candle's own.
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

/// The kernels for every compute capability that is compiled for, and as PTX for later ones.
static KERNELS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin"));

/// A parameter as the driver reads it: as many words as the kernel's has.
#[repr(C)]
struct Words([u64; WORDS]);

// SAFETY: plain words; that they are laid out as the kernel's own struct is held by the twin, which
// compares lengths.
unsafe impl DeviceRepr for Words {}

/// Runs kernels on one CUDA device.
#[derive(Debug)]
pub struct Gpu {
    device: CudaDevice,
    module: Arc<CudaModule>,
    /// By name; looked up when first launched.
    functions: Mutex<HashMap<String, CudaFunction>>,
}

impl Gpu {
    /// The kernels on `device`, loaded once for as long as somebody has them.
    ///
    /// Work on it is in the calling thread's stream, as candle's is.
    /// What another thread began has to be waited for first, as at the end of loading.
    ///
    /// # Errors
    /// If the driver does not take them: too old a driver, or too old a GPU.
    pub fn of(device: &CudaDevice) -> Result<Arc<Gpu>> {
        static LOADED: OnceLock<Mutex<HashMap<DeviceId, Weak<Gpu>>>> = OnceLock::new();
        let mut loaded = LOADED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = loaded.get(&device.id()).and_then(Weak::upgrade) {
            return Ok(gpu);
        }
        // SAFETY: one thread at a time works with the device, in one stream, so there is nothing to
        // keep apart by events.
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

/// Memory of a GPU, of candle's pool.
#[derive(Debug)]
pub struct OnGpu(CudaSlice<u32>);

impl Memory for OnGpu {
    fn address(&self) -> u64 {
        // All work is in one stream: nobody needs to wait for the guard.
        self.0.device_ptr(self.0.stream()).0
    }
}

impl Device for Gpu {
    type Memory = OnGpu;

    fn alloc(&self, bytes: usize) -> Result<OnGpu> {
        let words = 4 * bytes.div_ceil(16).max(1);
        // SAFETY: kernels write before they read; what is not written is never read.
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
        // SAFETY: the kernel takes one parameter, laid out as `params`.
        // The arrays in it are memory that the caller still has when the launch is in the stream.
        // Memory is freed in the same stream.
        unsafe { call.launch(config) }.map(|_| ()).map_err(|error| refused(launch, &error))
    }
}

/// candle's errors may have a backtrace below.
fn first_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// What tests need beyond: memory that they read themselves, and launches that are done when they
/// come back.
#[cfg(all(test, twin))]
impl Gpu {
    /// Memory that CPU and GPU see under one address; null where there is none.
    pub(crate) fn shared_memory(&self, bytes: usize) -> *mut u8 {
        use candle_core::cuda_backend::cudarc::driver::{result, sys};
        self.device.cuda_stream().context().bind_to_thread().expect("the GPU that was found");
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: it asks the driver, whose context is this thread's.
        unsafe { result::malloc_host(bytes, flags) }
            .map_or(std::ptr::null_mut(), <*mut std::ffi::c_void>::cast)
    }

    /// Ends what [`Gpu::shared_memory`] gave.
    pub(crate) fn give_back_shared(&self, at: *mut u8) {
        use candle_core::cuda_backend::cudarc::driver::result;
        // SAFETY: it came from there, and no kernel runs now.
        unsafe { result::free_host(at.cast()) }.expect("memory that was got");
    }

    /// Waits until all that this thread has launched is done.
    ///
    /// # Errors
    /// If one of them failed.
    pub(crate) fn wait(&self) -> Result<()> {
        self.device
            .cuda_stream()
            .synchronize()
            .map_err(|error| Error::Launch { kernel: "the last kernel".into(), message: error.to_string() })
    }
}
