//! What each op of the native backend takes, and what the machine does at most.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use alara_kernels::{Cpu, Isa, ThreadPool};

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
    let cpu = Cpu::new(isa, ThreadPool::new(threads));
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
}

/// The clock of one op, which stops when this is dropped; `None` without a profile.
#[derive(Debug)]
pub(super) struct Timer(Option<(Profile, String, Spent, Instant)>);

impl Timer {
    /// Starts the clock of an op called `name`.
    pub fn start(profile: Option<&Profile>, name: &str) -> Self {
        let spent = Spent { calls: 1, ..Spent::default() };
        Timer(profile.map(|profile| (profile.clone(), name.to_owned(), spent, Instant::now())))
    }

    /// The same with the cost of the op: the format of the weights that it reads, or nothing, the
    /// bytes that it reads and writes, and its operations.
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
