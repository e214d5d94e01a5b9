//! Reads the resource usage of processes from `/proc`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use nix::unistd::{SysconfVar, sysconf};

/// The bytes that a socket may buffer, which are in no process's memory (`net.core.wmem_default`,
/// and the overhead of one message).
pub const SOCKET: u64 = 256 << 10;
/// The usage of one process, or of all of them; memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    pub threads: u64,
    /// Open files.
    pub files: u64,
    /// Private pages, including those on the swap device, and all page tables.
    pub private: u64,
    /// Pages of shared memory.
    pub shared: u64,
    pub spent: Spent,
}

/// Usage that can't be given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// CPU time of the process and of the children that it has waited for.
    pub cpu: Duration,
    /// Bytes written to disks, counted likewise.
    pub written: u64,
}

impl Spent {
    /// Adds both fields of `other`.
    pub fn add(&mut self, other: Spent) {
        self.cpu += other.cpu;
        self.written += other.written;
    }

    /// The excess over another value, for each field.
    pub fn beyond(self, other: Spent) -> Spent {
        Spent { cpu: self.cpu.saturating_sub(other.cpu), written: self.written.saturating_sub(other.written) }
    }
}

impl Use {
    pub fn add(&mut self, other: &Use) {
        self.threads += other.threads;
        self.private += other.private;
        self.shared += other.shared;
        self.files += other.files;
        self.spent.add(other.spent);
    }

    /// The usage of the process with this id.
    pub fn read(number: u32, stat: &Stat) -> Use {
        let spent = Spent { cpu: stat.cpu, written: 0 };
        let mut used = Use { threads: stat.threads, spent, ..Use::default() };
        let folder = stat.folder(number);
        if let Some(status) = text(&folder.join("status")) {
            used.private = kib(&status, "RssAnon:") + kib(&status, "VmSwap:") + kib(&status, "VmPTE:");
            used.shared = kib(&status, "RssShmem:");
        }
        used.files = open_files(&folder.join("fd"));
        if let Some(io) = read(number, "io") {
            used.spent.written =
                value(&io, "write_bytes:").saturating_sub(value(&io, "cancelled_write_bytes:"));
        }
        used
    }

    /// Its memory, with each page divided by the number of processes that share it.
    pub fn proportional(number: u32, stat: &Stat) -> Option<Use> {
        let folder = stat.folder(number);
        let rollup = text(&folder.join("smaps_rollup")).filter(|text| text.contains("Pss_Anon:"))?;
        let tables = text(&folder.join("status")).map_or(0, |status| kib(&status, "VmPTE:"));
        let private = kib(&rollup, "Pss_Anon:") + kib(&rollup, "SwapPss:") + tables;
        Some(Use { private, shared: kib(&rollup, "Pss_Shmem:"), ..Use::default() })
    }
}

/// The number of open files in a folder of `/proc`.
fn open_files(folder: &Path) -> u64 {
    // Linux 6.2 reports their number as the size.
    let known = fs::metadata(folder).map_or(0, |found| found.size());
    if known > 0 { known } else { fs::read_dir(folder).map_or(0, |entries| entries.count() as u64) }
}

/// Bytes that the sockets of processes may buffer, each counted once.
pub fn in_sockets(members: &[(u32, Stat)]) -> u64 {
    let mut sockets: HashSet<PathBuf> = HashSet::new();
    for (number, stat) in members {
        let files = fs::read_dir(stat.folder(*number).join("fd")).into_iter().flatten().flatten();
        let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        sockets
            .extend(targets.filter(|target| target.as_os_str().as_encoded_bytes().starts_with(b"socket:")));
    }
    sockets.len() as u64 * SOCKET
}

/// Bytes of deleted files that processes have open or mapped.
pub fn nameless_files(members: &[u32]) -> u64 {
    let mut found: HashMap<(u64, u64), u64> = HashMap::new();
    for number in members {
        let Some(folder) = Stat::read(*number).map(|stat| stat.folder(*number)) else { continue };
        for file in fs::read_dir(folder.join("fd")).into_iter().flatten().flatten() {
            let Ok(file) = fs::metadata(file.path()) else { continue };
            if file.is_file() && file.nlink() == 0 {
                found.insert((file.dev(), file.ino()), file.blocks() * 512);
            }
        }
    }
    found.values().sum()
}

/// The part of `/proc/N/stat` that the watch needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub parent: u32,
    pub group: u32,
    /// Running threads; none for a zombie.
    pub threads: u64,
    pub cpu: Duration,
    /// Its start time in ticks, which tells it from a later process with the same id.
    pub begun: u64,
    /// Whether its first thread has ended.
    headless: bool,
}

impl Stat {
    /// Reads the state of a process; `None` if it has ended.
    pub fn read(number: u32) -> Option<Stat> {
        Stat::parse(&read(number, "stat")?)
    }

    /// See proc_pid_stat(5); the name in the second field may contain anything.
    fn parse(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |at: usize| -> Option<u64> { fields.get(at - 3)?.parse().ok() };
        let ticks: u64 = [14, 15, 16, 17].into_iter().filter_map(number).sum();
        let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100).max(1) as u64;
        let headless = fields[0] == "Z";
        Some(Stat {
            parent: number(4)? as u32,
            group: number(5)? as u32,
            // The first thread counts until all have ended.
            threads: number(20)?.saturating_sub(u64::from(headless)),
            cpu: Duration::from_millis(ticks * 1000 / per_second),
            begun: number(22)?,
            headless,
        })
    }

    /// The folder that shows its memory and files: that of its first thread, or of another one that
    /// still runs.
    fn folder(&self, number: u32) -> PathBuf {
        let process = Path::new("/proc").join(number.to_string());
        if !self.headless {
            return process;
        }
        let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
        let runs = |folder: &PathBuf| {
            text(&folder.join("stat")).and_then(|text| Stat::parse(&text)).is_some_and(|stat| !stat.headless)
        };
        threads.map(|entry| entry.path()).find(runs).unwrap_or(process)
    }
}

/// Bytes in shared memory, whether or not a process has them mapped.
pub fn stored() -> u64 {
    // The types of these fields differ between systems.
    #[allow(clippy::unnecessary_cast)]
    let files = statvfs("/dev/shm")
        .map_or(0, |store| (store.blocks() - store.blocks_free()) as u64 * store.fragment_size() as u64);
    let sum = |table: &str, column: usize| -> u64 {
        let table = fs::read_to_string(Path::new("/proc/sysvipc").join(table)).unwrap_or_default();
        table.lines().filter_map(|line| line.split_whitespace().nth(column)?.parse::<u64>().ok()).sum()
    };
    // Resident and swapped bytes; bytes of unread messages.
    files + sum("shm", 14) + sum("shm", 15) + sum("msg", 3)
}

/// Bytes of shared memory on the whole machine.
pub fn shared_of_all() -> u64 {
    fs::read_to_string("/proc/meminfo").map_or(0, |text| kib(&text, "Shmem:"))
}

/// Whether a process has nameless memory that it shares with its children.
/// Pages that it has given back still exist there.
pub fn shares_nameless(number: u32, stat: &Stat) -> bool {
    let maps = text(&stat.folder(number).join("maps")).unwrap_or_default();
    maps.lines().any(|line| {
        line.ends_with("/dev/zero (deleted)")
            && line.split(' ').nth(1).is_some_and(|flags| flags.ends_with('s'))
    })
}

/// Reads a file of a process's `/proc` folder.
pub fn read(number: u32, name: &str) -> Option<String> {
    text(&Path::new("/proc").join(number.to_string()).join(name))
}

fn text(path: &Path) -> Option<String> {
    // A process may give itself any name, in any encoding.
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// The number after a name at the start of a line; 0 if there is none.
fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn kib(text: &str, name: &str) -> u64 {
    value(text, name) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_process_uses() {
        let stat = |text: &str| Stat::parse(text);
        let line =
            "7 (a) b) (c) S 3 7 7 0 -1 4194304 1 2 3 4 100 20 3 1 20 0 5 0 99 1000 9 18446744073709551615";
        let cpu = Duration::from_millis(1240);
        let found = Stat { parent: 3, group: 7, threads: 5, cpu, begun: 99, headless: false };
        assert_eq!(stat(line), Some(found));
        let headless = line.replace(" S ", " Z ");
        assert_eq!(stat(&headless), Some(Stat { threads: 4, headless: true, ..found }));
        assert_eq!(stat("7 (x) S 3"), None);
        let own = std::process::id();
        let stat = Stat::read(own).unwrap();
        assert!(Use::read(own, &stat).private > 0);
        assert!(Use::proportional(own, &stat).is_some_and(|own| own.private > 0));
        assert!(!shares_nameless(own, &stat) && shared_of_all() < 1 << 50);
    }
}
