//! Watches the resource usage of a program's processes together, and kills them all when they
//! exceed a limit.
//!
//! Kernel limits apply to each process, or not to the superuser; this module reads sums from
//! `/proc`.
//! The watch runs in the launcher, outside the isolation, where the program can neither see nor
//! signal it.
//! Without a process namespace, nothing else bounds the number of processes.
//! On a busy machine, a fork bomb may have started thousands before the watch sees and kills it.

use std::collections::HashMap;
use std::fs;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::contract::bytes;
use super::usage::{SOCKET, Spent, Stat, Use, in_sockets, read, shared_of_all, shares_nameless, stored};

/// The shortest time between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest time between two looks: a look may take long if there are many processes, which may
/// be on purpose.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Most files that all processes together may have open, each counted as often as it is open.
const OPEN_FILES: u64 = 16384;
/// The part of the memory that open files could hold, if all were sockets, before sockets are
/// counted.
const SOCKETS_SHARE: u64 = 8;
/// How long to chase processes that start others as fast as they are killed.
const GIVE_UP: Duration = Duration::from_secs(2);
/// How many times, and after what pauses, to look at processes that outlive their program before
/// they are reported: some of them are just about to exit.
const LAST_LOOKS: u32 = 5;
const LAST_PAUSE: Duration = Duration::from_millis(20);
/// Most characters of a command line in a report.
const COMMAND: usize = 100;
/// A look may take this part of a CPU's time.
const SHARE: u32 = 20;

/// A limit on all processes of a program together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Processes,
    Memory,
    Cpu,
    Written,
    Files,
}

/// The signals with which the launcher ends itself to report a limit to its parent: a channel that
/// no program can reach.
const SIGNALS: [(Limit, Signal); 5] = [
    (Limit::Processes, Signal::SIGUSR1),
    (Limit::Memory, Signal::SIGUSR2),
    (Limit::Cpu, Signal::SIGXCPU),
    (Limit::Written, Signal::SIGXFSZ),
    (Limit::Files, Signal::SIGVTALRM),
];

impl Limit {
    pub fn signal(self) -> Signal {
        SIGNALS.iter().find(|(limit, _)| *limit == self).map_or(Signal::SIGKILL, |(_, signal)| *signal)
    }

    /// The limit that a launcher reports by its own end.
    pub fn of(status: std::process::ExitStatus) -> Option<Limit> {
        std::os::unix::process::ExitStatusExt::signal(&status).and_then(Limit::told_by)
    }

    fn told_by(signal: i32) -> Option<Limit> {
        SIGNALS.iter().find(|(_, number)| *number as i32 == signal).map(|(limit, _)| *limit)
    }
}

/// The most that the processes of a program may use together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Limits {
    pub processes: u64,
    pub memory_bytes: u64,
    pub cpu: Duration,
    pub written_bytes: u64,
}

impl Limits {
    /// How a program exceeded the limit.
    pub fn broken(&self, limit: Limit) -> String {
        match limit {
            Limit::Processes => format!("killed: more than {} processes", self.processes),
            Limit::Memory => format!("killed: more than {} of memory", bytes(self.memory_bytes)),
            Limit::Cpu => format!("killed: more than {} s of processor time", self.cpu.as_secs_f64()),
            Limit::Files => format!("killed: more than {OPEN_FILES} open files"),
            Limit::Written => format!("killed: more than {} written to disk", bytes(self.written_bytes)),
        }
    }
}

/// The processes whose usage counts.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    /// Everything in the program's own `/proc`, which replaces the one on this device once it is
    /// mounted.
    Namespace { before: u64 },
    /// The descendants of this process, on a machine with this many other processes.
    Descendants { others: u64 },
}

impl Scope {
    /// The scope for a program with or without its own `/proc`, which isn't mounted yet.
    pub fn new(own_proc: bool) -> Scope {
        match own_proc {
            true => Scope::Namespace { before: device() },
            false => Scope::Descendants { others: numbers().len() as u64 },
        }
    }

    /// The ids of the processes, as `/proc` numbers them.
    pub fn members(self) -> Vec<u32> {
        match self {
            Scope::Namespace { before } if device() == before => Vec::new(),
            Scope::Namespace { .. } => numbers(),
            Scope::Descendants { .. } => descendants(std::process::id()),
        }
    }

    /// Whether there may be more processes than this, checked as fast as they can be started.
    fn crowded(self, processes: u64) -> bool {
        matches!(self, Scope::Descendants { others } if numbers().len() as u64 > others + processes)
    }
}

fn device() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc").map_or(0, |metadata| metadata.dev())
}

fn numbers() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn descendants(root: u32) -> Vec<u32> {
    // A zombie has no threads and no children.
    let parent =
        |number: u32| Stat::read(number).filter(|stat| stat.threads > 0).map(|stat| (number, stat.parent));
    let mut rest: Vec<(u32, u32)> = numbers().into_iter().filter_map(parent).collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let (children, others) = rest.into_iter().partition::<Vec<_>, _>(|(_, of)| *of == parent);
        found.extend(children.into_iter().map(|(number, _)| number));
        rest = others;
        next += 1;
    }
    found.split_off(1)
}

/// The command lines of this process's descendants that still run although their program has ended.
pub fn left() -> Vec<String> {
    outlive(|| descendants(std::process::id()))
}

/// The command lines of a process group.
pub fn left_of_group(group: u32) -> Vec<String> {
    let runs = |number: &u32| Stat::read(*number).is_some_and(|stat| stat.group == group && stat.threads > 0);
    outlive(|| numbers().into_iter().filter(runs).collect())
}

fn outlive(members: impl Fn() -> Vec<u32>) -> Vec<String> {
    for _ in 0..LAST_LOOKS {
        if members().is_empty() {
            return Vec::new();
        }
        std::thread::sleep(LAST_PAUSE);
    }
    members().into_iter().filter_map(command).collect()
}

/// The command line of a process as one line.
fn command(number: u32) -> Option<String> {
    let line = read(number, "cmdline")?;
    let words = line.split(|c: char| c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    let cut = line.char_indices().nth(COMMAND).map(|(at, _)| format!("{}…", &line[..at]));
    (!line.is_empty()).then(|| cut.unwrap_or(line))
}

/// Kills every descendant of this process, including those that start meanwhile.
pub fn kill_descendants(group: Pid) {
    let begun = Instant::now();
    loop {
        // The group at once, since it can't outrun that by starting more; then those that have left
        // the group.
        // Errors mean that no process is left.
        let _ = killpg(group, Signal::SIGKILL);
        let alive: Vec<u32> = descendants(std::process::id());
        if alive.is_empty() || begun.elapsed() > GIVE_UP {
            return;
        }
        for number in alive {
            let _ = kill(Pid::from_raw(number as i32), Signal::SIGKILL);
        }
    }
}

/// Watches a program repeatedly, by the id of its process group.
/// Calls `end` when the program has exceeded a limit.
pub fn watch(
    scope: Scope,
    limits: &Limits,
    group: &OnceLock<Pid>,
    broken: &Mutex<Option<Limit>>,
    end: impl Fn(),
) {
    let mut watch =
        Watch { scope, limits, shared: shared_of_all(), last: HashMap::new(), lost: Spent::default() };
    let mut pause = PAUSE;
    loop {
        std::thread::sleep(pause);
        let Some(group) = group.get() else { continue };
        let begun = own_time();
        // Counting descendants takes longer than starting some, so they are stopped meanwhile.
        let crowded = scope.crowded(limits.processes) && killpg(*group, Signal::SIGSTOP).is_ok();
        if let Some(limit) = watch.look() {
            *broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(limit);
            return end();
        }
        if crowded {
            let _ = killpg(*group, Signal::SIGCONT);
        }
        // Not by the wall clock: on busy CPUs, as under a fork bomb, a look takes long and must
        // come sooner.
        pause = (own_time().saturating_sub(begun) * SHARE).clamp(PAUSE, LONGEST_PAUSE);
    }
}

/// CPU time of the current thread.
fn own_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Duration::ZERO };
    Duration::from_micros((usage.user_time() + usage.system_time()).num_microseconds() as u64)
}

/// The watch's knowledge of a program between two looks.
struct Watch<'a> {
    scope: Scope,
    limits: &'a Limits,
    /// Bytes of shared memory on the machine before the program ran.
    shared: u64,
    /// The CPU time and bytes that each process had spent.
    last: HashMap<(u32, u64), Spent>,
    /// The sum for processes that are gone and that no parent has waited for.
    lost: Spent,
}

impl Watch<'_> {
    fn look(&mut self) -> Option<Limit> {
        let (limits, members) = (self.limits, self.scope.members());
        // One of them is the launcher's own.
        if members.len() as u64 > limits.processes + 1 {
            return Some(Limit::Processes);
        }
        // A process that has ended meanwhile uses nothing.
        let members: Vec<(u32, Stat)> =
            members.into_iter().filter_map(|member| Some((member, Stat::read(member)?))).collect();
        let used: Vec<Use> = members.iter().map(|(member, stat)| Use::read(*member, stat)).collect();
        let mut total = Use::default();
        used.iter().for_each(|used| total.add(used));
        self.keep_account(
            members.iter().zip(&used).map(|((member, stat), used)| ((*member, stat.begun), used.spent)),
        );
        total.spent.add(self.lost);
        if total.threads > limits.processes + 1 {
            return Some(Limit::Processes);
        }
        if total.spent.cpu > limits.cpu {
            return Some(Limit::Cpu);
        }
        if total.spent.written > limits.written_bytes {
            return Some(Limit::Written);
        }
        if total.files > OPEN_FILES {
            return Some(Limit::Files);
        }
        let may_hold = total.files * SOCKET * SOCKETS_SHARE > limits.memory_bytes;
        let in_sockets = if may_hold { in_sockets(&members) } else { 0 };
        let stored = if matches!(self.scope, Scope::Namespace { .. }) { stored() } else { 0 };
        if in_sockets + total.private + total.shared.max(stored) > limits.memory_bytes {
            // Pages that several processes share were counted for each.
            let mut exact = Use::default();
            for ((member, stat), used) in members.iter().zip(&used) {
                exact.add(&Use::proportional(*member, stat).unwrap_or(*used));
            }
            if in_sockets + exact.private + exact.shared.max(stored) > limits.memory_bytes {
                return Some(Limit::Memory);
            }
        }
        // A process may unmap nameless shared memory, which then belongs to no process.
        // The growth on the machine may come from others; it is the program's if any of its
        // processes shares memory.
        let nameless = shared_of_all().saturating_sub(self.shared) > limits.memory_bytes
            && members.iter().any(|(member, stat)| shares_nameless(*member, stat));
        nameless.then_some(Limit::Memory)
    }

    /// Records what the processes have spent.
    /// The spending of a process that is gone moves to the parent that waited for it, or is lost.
    fn keep_account(&mut self, now: impl Iterator<Item = ((u32, u64), Spent)>) {
        let (mut gained, mut gone) = (Spent::default(), Spent::default());
        let now: HashMap<(u32, u64), Spent> = now.collect();
        for (process, before) in &self.last {
            match now.get(process) {
                Some(spent) => gained.add(spent.beyond(*before)),
                None => gone.add(*before),
            }
        }
        self.lost.add(gone.beyond(gained));
        self.last = now;
    }
}

/// Whether processes can be watched on this machine.
pub fn works() -> bool {
    let own = std::process::id();
    Stat::read(own).is_some_and(|stat| stat.threads > 0 && Use::read(own, &stat).private > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_waited_for_is_not_forgotten() {
        let spent = |written| Spent { cpu: Duration::from_secs(written), written };
        let limits = Limits { processes: 9, memory_bytes: 9, cpu: Duration::ZERO, written_bytes: 9 };
        let mut watch = Watch {
            scope: Scope::Descendants { others: 0 },
            limits: &limits,
            shared: 0,
            last: HashMap::new(),
            lost: Spent::default(),
        };
        let mut check = |now: &[(u32, u64)], lost| {
            watch.keep_account(now.iter().map(|(process, written)| ((*process, 1), spent(*written))));
            assert_eq!(watch.lost, spent(lost), "{now:?}");
        };
        check(&[(1, 0), (2, 5)], 0);
        // The parent has waited for it.
        check(&[(1, 6)], 0);
        check(&[(1, 6), (3, 4)], 0);
        check(&[(1, 6)], 4);
        check(&[(1, 7), (4, 4), (5, 4)], 4);
        check(&[(1, 8)], 11);
    }

    #[test]
    fn finds_children_and_grandchildren() {
        let mut shell = std::process::Command::new("bash")
            .args(["-c", "sleep 5 & wait 2> /dev/null"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let sleeps = || descendants(shell.id()).len() == 1;
        let begun = Instant::now();
        while !sleeps() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(sleeps() && descendants(std::process::id()).contains(&shell.id()));
        for child in descendants(shell.id()) {
            kill(Pid::from_raw(child as i32), Signal::SIGKILL).unwrap();
        }
        shell.wait().unwrap();
    }

    #[test]
    fn limits_in_words() {
        let limits = Limits {
            processes: 256,
            memory_bytes: 2 << 30,
            cpu: Duration::from_secs(60),
            written_bytes: 8 << 30,
        };
        let check = |limit: Limit, expected: &str| {
            assert_eq!(limits.broken(limit), expected);
            assert_eq!(Limit::told_by(limit.signal() as i32), Some(limit));
        };
        check(Limit::Processes, "killed: more than 256 processes");
        check(Limit::Memory, "killed: more than 2 GiB of memory");
        check(Limit::Cpu, "killed: more than 60 s of processor time");
        check(Limit::Written, "killed: more than 8 GiB written to disk");
        assert_eq!(Limit::told_by(9), None);
    }
}
