//! The default number of threads.

#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::thread::available_parallelism;

/// With fewer cores than this, one thread per core doesn't saturate the memory bandwidth.
#[cfg(target_os = "linux")]
const FEW: usize = 4;

/// The default number of threads: one for each core that this process may use.
/// Fast and efficient cores count alike, because a thread takes its next task whenever it finishes
/// the previous one.
/// The second thread of a core competes for the first one's arithmetic units, so both are used only
/// on machines with few cores.
pub fn default_threads() -> usize {
    let cpus = available_parallelism().map_or(1, std::num::NonZero::get);
    #[cfg(target_os = "linux")]
    if let Some(cores) = cores() {
        return sensible(cpus, cores);
    }
    cpus
}

/// `cpus` is the number of CPUs that may run at once, according to any quota.
#[cfg(target_os = "linux")]
fn sensible(cpus: usize, cores: usize) -> usize {
    if cores < FEW { cpus } else { cpus.min(cores) }
}

/// The number of cores of the CPUs that this process may use; `None` if the system doesn't report
/// it.
#[cfg(target_os = "linux")]
fn cores() -> Option<usize> {
    use nix::sched::{CpuSet, sched_getaffinity};
    let allowed = sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok()?;
    let cpus = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    // CPUs of the same core have the same list of siblings.
    let siblings = cpus.map(|cpu| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
    });
    Some(siblings.collect::<Result<BTreeSet<String>, _>>().ok()?.len()).filter(|&cores| cores > 0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_core_has_one_thread_unless_there_are_few() {
        // Eight fast cores with two threads each, sixteen efficient ones with one.
        assert_eq!(sensible(32, 24), 24);
        assert_eq!(sensible(4, 2), 4);
        // A quota of two CPUs on a large machine.
        assert_eq!(sensible(2, 32), 2);
        assert!((1..=available_parallelism().unwrap().get()).contains(&default_threads()));
    }
}
