//! What each op of the native backend takes, and what the machine does at most.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use alara_kernels::{Cpu, Isa, Threads};

/// What one kind of op took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// How often it was done.
    pub calls: u64,
    /// How long, in all.
    pub time: Duration,
    /// Bytes of weights, keys, values and state that it had to read and write; activations don't
    /// count.
    pub bytes: u64,
    /// Multiplications and additions of weights' and activations' integers.
    pub operations: u64,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Spent) {
        self.calls += other.calls;
        self.time += other.time;
        self.bytes += other.bytes;
        self.operations += other.operations;
    }
}

/// What the machine does at most with `threads` threads and `isa`: bytes read and operations on
/// 8-bit integers, each a second.
/// Takes about a second and 256 MiB.
pub fn limits(threads: usize, isa: Isa) -> (f64, f64) {
    let cpu = Cpu::new(isa, Threads::new(threads));
    (alara_kernels::read_bandwidth(&cpu), alara_kernels::integer_peak(&cpu))
}

/// What each op took, by name.
/// Clones share one record.
#[derive(Clone, Debug, Default)]
pub struct Profile(Arc<Mutex<BTreeMap<String, Spent>>>);

impl Profile {
    /// What was spent since this was last asked, by op.
    pub fn take(&self) -> BTreeMap<String, Spent> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts the clock of an op called `name`.
    pub(super) fn start(&self, name: &str) -> Timer {
        Timer {
            profile: self.clone(),
            name: name.to_owned(),
            spent: Spent { calls: 1, ..Spent::default() },
            begun: Instant::now(),
        }
    }
}

/// The clock of one op, which stops when this is dropped.
#[derive(Debug)]
pub(super) struct Timer {
    profile: Profile,
    name: String,
    spent: Spent,
    begun: Instant,
}

impl Timer {
    /// Says how weights are stored that the op reads.
    pub fn format(&mut self, format: &str) {
        self.name = format!("{} {format}", self.name);
    }

    /// Adds what the op has to read and write, and to compute.
    pub fn cost(&mut self, bytes: usize, operations: usize) {
        self.spent.bytes += bytes as u64;
        self.spent.operations += operations as u64;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.spent.time = self.begun.elapsed();
        let mut record = self.profile.0.lock().unwrap_or_else(PoisonError::into_inner);
        *record.entry(std::mem::take(&mut self.name)).or_default() += self.spent;
    }
}
