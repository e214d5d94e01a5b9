//! Launches of kernels, and the devices that run them.

use crate::Result;
use crate::params::Params;

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel's name.
    pub kernel: String,
    /// Number of blocks.
    pub grid: [u32; 3],
    /// Threads per block; whole warps.
    pub threads: u32,
    /// Bytes of shared memory per block.
    pub shared: u32,
    /// Its parameter.
    pub params: Params,
}

/// Bytes of shared memory that every device gives a block by default.
/// All launches stay within this limit, since the maximum per block varies.
/// The maximum is 64 KiB at 7.5, 99 KiB at 8.6, 8.9 and 12.0, and 227 KiB at 9.0.
pub const SHARED: u32 = 48 << 10;

/// The most words of a parameter: more than any kernel's.
pub(crate) const WORDS: usize = 64;

/// Lanes per warp.
pub const WARP: u32 = 32;

/// The most blocks in each direction.
/// Source: CUDA C++ Programming Guide, technical specifications per compute capability, equal from
/// 7.5 to 12.0.
pub const GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];

impl Launch {
    /// `None` if every device of compute capability 7.5 to 12.0 accepts the launch, otherwise the
    /// exceeded limit.
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

/// Memory of a device, freed on drop.
pub trait Memory {
    /// Address of the first byte; a multiple of 16.
    fn address(&self) -> u64;
}

/// Runs kernels in launch order: a GPU, or the twin.
pub trait Device {
    /// The memory that it allocates.
    type Memory: Memory;

    /// Allocates `bytes`, rounded up to a multiple of 16, uninitialized.
    ///
    /// # Errors
    /// If there isn't enough memory.
    fn alloc(&self, bytes: usize) -> Result<Self::Memory>;

    /// Uploads `numbers`.
    ///
    /// # Errors
    /// If there isn't enough memory.
    fn upload(&self, numbers: &[u32]) -> Result<Self::Memory>;

    /// Runs a kernel.
    /// The next kernel sees its writes.
    ///
    /// # Errors
    /// If the device rejects the launch.
    fn launch(&self, launch: &Launch) -> Result<()>;
}
