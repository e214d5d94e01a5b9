//! Measures the cost of each op of the native backend, and the machine's limits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use alara_kernels::{Cpu, Isa, ThreadPool};

/// The cost of one kind of op.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Number of calls.
    pub calls: u64,
    /// Total time.
    pub time: Duration,
    /// Bytes of weights, keys, values and state read and written, without activations.
    pub bytes: u64,
    /// Integer multiplications and additions of weights and activations.
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

/// The peak rates of the machine with `threads` threads and `isa`: bytes read and operations on
/// 8-bit integers, each per second.
/// Takes about a second and 256 MiB.
pub fn limits(threads: usize, isa: Isa) -> (f64, f64) {
    let cpu = Cpu::new(isa, ThreadPool::new(threads));
    (alara_kernels::read_bandwidth(&cpu), alara_kernels::integer_peak(&cpu))
}

/// The cost of each op by name.
/// Clones share one record.
#[derive(Clone, Debug, Default)]
pub struct Profile(Arc<Mutex<BTreeMap<String, Spent>>>);

impl Profile {
    /// The cost since the last call, by op.
    pub fn take(&self) -> BTreeMap<String, Spent> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Times one op until dropped; `None` without a profile.
#[derive(Debug)]
pub(super) struct Timer(Option<(Profile, String, Spent, Instant)>);

impl Timer {
    /// Starts timing an op called `name`.
    pub fn start(profile: Option<&Profile>, name: &str) -> Self {
        let spent = Spent { calls: 1, ..Spent::default() };
        Timer(profile.map(|profile| (profile.clone(), name.to_owned(), spent, Instant::now())))
    }

    /// Returns the timer with the op's cost: the format of the weights that it reads, or empty, the
    /// bytes that it reads and writes, and its number of operations.
    pub fn with(mut self, cost: impl FnOnce() -> (String, usize, usize)) -> Self {
        if let Some((_, name, spent, _)) = &mut self.0 {
            let (format, bytes, operations) = cost();
            *name = format!("{name} {format}").trim_end().to_owned();
            (spent.bytes, spent.operations) = (bytes as u64, operations as u64);
        }
        self
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some((profile, name, mut spent, begun)) = self.0.take() {
            spent.time = begun.elapsed();
            *profile.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += spent;
        }
    }
}
