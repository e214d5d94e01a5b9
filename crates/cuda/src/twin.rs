//! Runs the kernels on the CPU, thread by thread: slow and strict, for tests.
//! See `twin/emulate.h`.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use crate::{Array, Device, Error, Launch, Memory, Result};

unsafe extern "C" {
    fn alara_twin_run(
        name: *const c_char,
        params: *const c_void,
        bytes: usize,
        dims: *const c_uint,
        shared: c_uint,
        descending: c_int,
    ) -> *const c_char;
    fn alara_twin_kernel(nth: usize, bytes: *mut usize, threads: *mut usize) -> *const c_char;
}

/// A kernel's declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Size of its parameter in bytes.
    pub bytes: usize,
    /// The most threads per block that it is compiled for.
    pub threads: usize,
}

/// All kernels.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    (0..).map_while(|nth| {
        let (mut bytes, mut threads) = (0, 0);
        // SAFETY: it writes to the two references, and the name that it returns lives as long as
        // the program.
        let name = unsafe { alara_twin_kernel(nth, &mut bytes, &mut threads) };
        // SAFETY: the name is a static C string, see above.
        (!name.is_null())
            .then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
            .map(|name| Kernel { name, bytes, threads })
    })
}

/// Runs kernels on the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Twin {
    /// Whether blocks and threads run from last to first.
    /// Kernels' results must not depend on it.
    pub descending: bool,
}

/// CPU memory that kernels write; shared with a GPU, if a test uses one.
#[derive(Debug)]
pub struct Host {
    words: NonNull<u128>,
    len: usize,
}

impl Host {
    /// Memory for `len` bytes with all bits set: NaNs, and invalid indices.
    fn new(len: usize) -> Self {
        let words = NonNull::new(memory::get(len)).expect("memory for a test").cast::<u128>();
        // SAFETY: this much was allocated.
        unsafe { words.write_bytes(0xff, len.div_ceil(16)) };
        Host { words, len }
    }

    /// Memory with these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let host = Host::new(bytes.len());
        // SAFETY: the memory has that many bytes, and nothing else refers to it yet.
        unsafe { host.words.cast::<u8>().copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        host
    }

    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: that many bytes are initialized, and no kernel is running.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast::<u8>(), self.len) }.to_vec()
    }

    /// The memory as an array of numbers of `size` bytes.
    pub fn array(&self, size: usize) -> Array {
        Array { address: self.address(), len: (self.len / size) as u64 }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        memory::give_back(self.words.as_ptr().cast(), self.len);
    }
}

/// The source of [`Host`]'s memory: the allocator, or the driver of the GPU that tests run on,
/// whose memory both access at the same address.
mod memory {
    use std::alloc::{Layout, alloc, dealloc};

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len.next_multiple_of(16).max(16), 16).expect("a size that there is")
    }

    pub(super) fn get(len: usize) -> *mut u8 {
        #[cfg(all(test, feature = "cuda"))]
        if let Some(gpu) = crate::testing::gpu() {
            return gpu.shared_memory(layout(len).size());
        }
        // SAFETY: no layout is empty.
        unsafe { alloc(layout(len)) }
    }

    pub(super) fn give_back(at: *mut u8, len: usize) {
        #[cfg(all(test, feature = "cuda"))]
        if let Some(gpu) = crate::testing::gpu() {
            return gpu.give_back_shared(at);
        }
        // SAFETY: it was allocated with the same layout, and is freed once.
        unsafe { dealloc(at, layout(len)) }
    }
}

impl Memory for Host {
    fn address(&self) -> u64 {
        self.words.as_ptr().expose_provenance() as u64
    }
}

impl Device for Twin {
    type Memory = Host;

    fn alloc(&self, bytes: usize) -> Result<Host> {
        Ok(Host::new(bytes))
    }

    fn upload(&self, numbers: &[u32]) -> Result<Host> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Ok(Host::of(&bytes))
    }

    fn launch(&self, launch: &Launch) -> Result<()> {
        let error = |message| Error::Launch { kernel: launch.kernel.clone(), message };
        if let Some(message) = launch.excess() {
            return Err(error(message));
        }
        let name = CString::new(launch.kernel.as_str()).map_err(|nul| error(nul.to_string()))?;
        let words = launch.params.words();
        let [x, y, z] = launch.grid;
        let dims = [x, y, z, launch.threads, 1, 1];
        // SAFETY: the parameters have the kernel's length, which is checked.
        // The caller keeps the memory of its arrays, and every index into them is checked.
        let message = unsafe {
            alara_twin_run(
                name.as_ptr(),
                words.as_ptr().cast(),
                size_of_val(words),
                dims.as_ptr(),
                launch.shared,
                self.descending.into(),
            )
        };
        if message.is_null() {
            return Ok(());
        }
        // SAFETY: the string lives until this thread's next call.
        Err(error(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()))
    }
}
