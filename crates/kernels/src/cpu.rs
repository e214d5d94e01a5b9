//! The execution environment of kernels.

use crate::{Isa, ThreadPool};

/// An instruction set and the threads that compute together.
#[derive(Debug)]
pub struct Cpu {
    /// The instruction set of all kernels.
    /// Results don't depend on it.
    pub isa: Isa,
    /// The threads that share the tasks of a kernel.
    /// Results don't depend on their number.
    pub threads: ThreadPool,
}

impl Cpu {
    /// A CPU with this instruction set and these threads.
    pub fn new(isa: Isa, threads: ThreadPool) -> Self {
        Cpu { isa, threads }
    }
}
