//! How many threads compute unless the caller says otherwise.

#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::thread::available_parallelism;

/// Fewer cores than this don't keep the memory busy by a thread each.
#[cfg(target_os = "linux")]
const FEW: usize = 4;

/// Threads that compute unless the caller says otherwise: one for each core that this process may
/// use.
/// Fast cores and efficient ones count alike, because a thread takes its next task whenever it is
/// done with the last.
/// The second thread of a core would take turns with the first one's arithmetic, so both are used
/// only where there are few cores.
pub fn default_threads() -> usize {
    let cpus = available_parallelism().map_or(1, std::num::NonZero::get);
    #[cfg(target_os = "linux")]
    if let Some(cores) = cores() {
        return sensible(cpus, cores);
    }
    cpus
}

/// `cpus` are those that run at once by any quota.
#[cfg(target_os = "linux")]
fn sensible(cpus: usize, cores: usize) -> usize {
    if cores < FEW { cpus } else { cpus.min(cores) }
}

/// The cores among the CPUs that this process may use; `None` where the system doesn't tell.
#[cfg(target_os = "linux")]
fn cores() -> Option<usize> {
    use nix::sched::{CpuSet, sched_getaffinity};
    let allowed = sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok()?;
    let cpus = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    // CPUs of a core have the same list of siblings.
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
