//! One launch of a kernel, and who runs it.

use crate::Result;
use crate::params::Params;

/// A kernel's call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel's name.
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// ThreadPool in a block; whole warps.
    pub threads: u32,
    /// Bytes of shared memory that a block asks for.
    pub shared: u32,
    /// Its parameter.
    pub params: Params,
}

/// Bytes of shared memory that every device gives to a block by default.
/// All launches stay within, for what a block may have at most differs.
/// It is 64 KiB at 7.5, 99 KiB at 8.6, 8.9 and 12.0, and 227 KiB at 9.0.
pub const SHARED: u32 = 48 << 10;

/// The most words of a parameter: more than any kernel has.
pub(crate) const WORDS: usize = 64;

/// Warps are of 32 lanes.
pub const WARP: u32 = 32;

/// The most blocks in each direction.
/// Source: CUDA C++ Programming Guide, technical specifications per compute capability, the same
/// from 7.5 to 12.0.
pub const GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];

impl Launch {
    /// `None` if any device of compute capability 7.5 to 12.0 takes it, else what it asks too much
    /// of.
    pub fn excess(&self) -> Option<String> {
        let Launch { kernel, grid, threads, shared, params } = self;
        let over = |at: usize| grid[at] == 0 || grid[at] > GRID[at];
        if (0..3).any(over) {
            return Some(format!("{kernel}: a grid of {grid:?}"));
        }
        if *threads == 0 || *threads > 1024 || !threads.is_multiple_of(WARP) {
            return Some(format!("{kernel}: {threads} threads in a block"));
        }
        if params.words().len() > WORDS {
            return Some(format!("{kernel}: a parameter of {} words", params.words().len()));
        }
        (*shared > SHARED).then(|| format!("{kernel}: {shared} bytes of shared memory"))
    }
}

/// Memory of a device; given back when dropped.
pub trait Memory {
    /// Of the first byte; a multiple of 16.
    fn address(&self) -> u64;
}

/// Who runs kernels, in the order of their launches: a GPU, or the twin.
pub trait Device {
    /// What it allocates.
    type Memory: Memory;

    /// Room for `bytes`, rounded up to a multiple of 16, with anything in it.
    ///
    /// # Errors
    /// If there is not so much.
    fn alloc(&self, bytes: usize) -> Result<Self::Memory>;

    /// A copy of `numbers`.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn upload(&self, numbers: &[u32]) -> Result<Self::Memory>;

    /// Runs a kernel.
    /// The next one sees what it wrote.
    ///
    /// # Errors
    /// If the device refuses it.
    fn launch(&self, launch: &Launch) -> Result<()>;
}
