//! Watches what the processes of one program use together, and ends them all when they break a
//! limit.
//!
//! Limits of the kernel hold for each process, or not for the superuser; sums are read from `/proc`
//! here.
//! The watch runs in the launcher, outside the isolation, where the program can neither see nor
//! signal it.
//! Without a namespace of processes nothing else bounds their number.
//! On a busy machine a fork bomb may have started thousands before it is seen and ended.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::statvfs::statvfs;
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

use super::contract::bytes;

/// The shortest time between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// How long to go after processes that start others as fast as they are killed.
const GIVE_UP: Duration = Duration::from_secs(2);
/// How often what outlives its program is looked at, and after what pauses, before it is told: some
/// of it is just about to end.
const LAST_LOOKS: u32 = 5;
const LAST_PAUSE: Duration = Duration::from_millis(20);
/// Most characters of a command line that are told.
const COMMAND: usize = 100;
/// A look may take this part of a processor's time.
const SHARE: u32 = 20;

/// A limit on all processes of a program together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Processes,
    Memory,
    Cpu,
    Written,
}

/// Which signal the launcher ends itself with to tell its parent about a limit: a channel that no
/// program can reach.
const SIGNALS: [(Limit, Signal); 4] = [
    (Limit::Processes, Signal::SIGUSR1),
    (Limit::Memory, Signal::SIGUSR2),
    (Limit::Cpu, Signal::SIGXCPU),
    (Limit::Written, Signal::SIGXFSZ),
];

impl Limit {
    pub fn signal(self) -> Signal {
        SIGNALS.iter().find(|(limit, _)| *limit == self).map_or(Signal::SIGKILL, |(_, signal)| *signal)
    }

    /// The one that a launcher tells by its own end.
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
    /// What a program did that broke the limit.
    pub fn broken(&self, limit: Limit) -> String {
        match limit {
            Limit::Processes => format!("killed: more than {} processes", self.processes),
            Limit::Memory => format!("killed: more than {} of memory", bytes(self.memory_bytes)),
            Limit::Cpu => format!("killed: more than {} s of processor time", self.cpu.as_secs_f64()),
            Limit::Written => format!("killed: more than {} written to disk", bytes(self.written_bytes)),
        }
    }
}

/// Whose use counts.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    /// Everything in a `/proc` of the program's own, which replaces the one on this device as soon
    /// as it is mounted.
    Namespace { before: u64 },
    /// The descendants of this process, on a machine with so many other processes.
    Descendants { others: u64 },
}

impl Scope {
    /// The scope for a program with or without a `/proc` of its own, which is not mounted yet.
    pub fn new(own_proc: bool) -> Scope {
        match own_proc {
            true => Scope::Namespace { before: device() },
            false => Scope::Descendants { others: numbers().len() as u64 },
        }
    }

    /// The numbers of the processes, in the numbering of `/proc`.
    fn members(self) -> Vec<u32> {
        match self {
            Scope::Namespace { before } if device() == before => Vec::new(),
            Scope::Namespace { .. } => numbers(),
            Scope::Descendants { .. } => descendants(std::process::id()),
        }
    }

    /// Whether there may be more processes than this, found out as fast as they can be started.
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
    // What has ended and was not waited for has no threads, and no children any more.
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

/// The descendants of this process that still run though their program has ended, by command line.
pub fn left() -> Vec<String> {
    outlive(|| descendants(std::process::id()))
}

/// Those of a group of processes.
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

/// The command line of a process in one line.
fn command(number: u32) -> Option<String> {
    let line = read(number, "cmdline")?;
    let words = line.split(|c: char| c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    let cut = line.char_indices().nth(COMMAND).map(|(at, _)| format!("{}…", &line[..at]));
    (!line.is_empty()).then(|| cut.unwrap_or(line))
}

/// Kills every descendant of this process, also those that are started meanwhile.
pub fn kill_descendants(group: Pid) {
    let begun = Instant::now();
    loop {
        // At once for the group, which can't outrun it by starting more; then those that have left
        // the group.
        // Errors mean that nobody is there.
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

/// Looks again and again at a program, by the number of the group that it was started in.
/// Calls `end` when it has broken a limit.
pub fn watch(
    scope: Scope,
    limits: &Limits,
    group: &OnceLock<Pid>,
    broken: &Mutex<Option<Limit>>,
    end: impl Fn(),
) {
    let mut pause = PAUSE;
    loop {
        std::thread::sleep(pause);
        let Some(group) = group.get() else { continue };
        let begun = own_time();
        // Counting descendants takes longer than starting some, so nothing is started meanwhile.
        let crowded = scope.crowded(limits.processes) && killpg(*group, Signal::SIGSTOP).is_ok();
        if let Some(limit) = look(scope, limits) {
            *broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(limit);
            return end();
        }
        if crowded {
            let _ = killpg(*group, Signal::SIGCONT);
        }
        // Not by the clock: where processors are busy, as a fork bomb makes them, a look takes long
        // and must come the sooner.
        pause = PAUSE.max(own_time().saturating_sub(begun) * SHARE);
    }
}

/// Processor time of the own thread.
fn own_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Duration::ZERO };
    Duration::from_micros((usage.user_time() + usage.system_time()).num_microseconds() as u64)
}

fn look(scope: Scope, limits: &Limits) -> Option<Limit> {
    let members = scope.members();
    // One of them is the launcher's own.
    if members.len() as u64 > limits.processes + 1 {
        return Some(Limit::Processes);
    }
    let mut total = Use::default();
    for &member in &members {
        // What has ended meanwhile uses nothing.
        if let Some(used) = Use::read(member) {
            total.add(&used);
        }
    }
    if total.threads > limits.processes + 1 {
        return Some(Limit::Processes);
    }
    if total.cpu > limits.cpu {
        return Some(Limit::Cpu);
    }
    if total.written > limits.written_bytes {
        return Some(Limit::Written);
    }
    let stored = if matches!(scope, Scope::Namespace { .. }) { stored() } else { 0 };
    if total.private + total.shared.max(stored) > limits.memory_bytes {
        // Pages that several processes share were counted for each.
        let mut exact = Use::default();
        for &member in &members {
            if let Some(used) = Use::proportional(member).or_else(|| Use::read(member)) {
                exact.add(&used);
            }
        }
        if exact.private + exact.shared.max(stored) > limits.memory_bytes {
            return Some(Limit::Memory);
        }
    }
    None
}

/// What one process, or all of them, use; memory in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Use {
    threads: u64,
    /// Pages of its own, those on the swap device too.
    private: u64,
    /// Pages of shared memory.
    shared: u64,
    /// Its own and that of the children it has waited for.
    cpu: Duration,
    written: u64,
}

impl Use {
    fn add(&mut self, other: &Use) {
        self.threads += other.threads;
        self.private += other.private;
        self.shared += other.shared;
        self.cpu += other.cpu;
        self.written += other.written;
    }

    fn read(number: u32) -> Option<Use> {
        let stat = Stat::read(number)?;
        let mut used = Use { threads: stat.threads, cpu: stat.cpu, ..Use::default() };
        if let Some(status) = read(number, "status") {
            used.private = kib(&status, "RssAnon:") + kib(&status, "VmSwap:");
            used.shared = kib(&status, "RssShmem:");
        }
        if let Some(io) = read(number, "io") {
            used.written = value(&io, "write_bytes:").saturating_sub(value(&io, "cancelled_write_bytes:"));
        }
        Some(used)
    }

    /// Its memory, each page divided by the number of processes that have it.
    fn proportional(number: u32) -> Option<Use> {
        let rollup = read(number, "smaps_rollup").filter(|text| text.contains("Pss_Anon:"))?;
        let private = kib(&rollup, "Pss_Anon:") + kib(&rollup, "SwapPss:");
        Some(Use { private, shared: kib(&rollup, "Pss_Shmem:"), ..Use::default() })
    }
}

/// The part of `/proc/N/stat` that we need.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    group: u32,
    threads: u64,
    cpu: Duration,
}

impl Stat {
    /// `None` if the process has ended.
    fn read(number: u32) -> Option<Stat> {
        Stat::parse(&read(number, "stat")?)
    }

    /// See proc_pid_stat(5); the name in the second field may contain anything.
    fn parse(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |at: usize| -> Option<u64> { fields.get(at - 3)?.parse().ok() };
        let ticks: u64 = [14, 15, 16, 17].into_iter().filter_map(number).sum();
        let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100).max(1) as u64;
        Some(Stat {
            parent: number(4)? as u32,
            group: number(5)? as u32,
            threads: if fields[0] == "Z" { 0 } else { number(20)? },
            cpu: Duration::from_millis(ticks * 1000 / per_second),
        })
    }
}

/// Bytes in the stores of shared memory, whether a process has them mapped or not.
fn stored() -> u64 {
    // Their types differ from system to system.
    #[allow(clippy::unnecessary_cast)]
    let files = statvfs("/dev/shm")
        .map_or(0, |store| (store.blocks() - store.blocks_free()) as u64 * store.fragment_size() as u64);
    let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    // The last two columns: resident and swapped bytes.
    let segment = |line: &str| -> u64 {
        line.split_whitespace().rev().take(2).filter_map(|bytes| bytes.parse::<u64>().ok()).sum()
    };
    files + segments.lines().skip(1).map(segment).sum::<u64>()
}

fn read(number: u32, name: &str) -> Option<String> {
    // A process may call itself anything, in any encoding.
    let bytes = fs::read(Path::new("/proc").join(number.to_string()).join(name)).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number after a name at the start of a line; 0 if it is not there.
fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn kib(text: &str, name: &str) -> u64 {
    value(text, name) * 1024
}

/// Whether processes can be watched on this machine.
pub fn works() -> bool {
    Use::read(std::process::id()).is_some_and(|own| own.threads > 0 && own.private > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_process_uses() {
        let stat = |text| Stat::parse(text);
        let line =
            "7 (a) b) (c) S 3 7 7 0 -1 4194304 1 2 3 4 100 20 3 1 20 0 5 0 99 1000 9 18446744073709551615";
        assert_eq!(
            stat(line),
            Some(Stat { parent: 3, group: 7, threads: 5, cpu: Duration::from_millis(1240) })
        );
        assert_eq!(stat("7 (x) S 3"), None);
        assert!(works());
        assert!(Use::proportional(std::process::id()).is_some_and(|own| own.private > 0));
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
