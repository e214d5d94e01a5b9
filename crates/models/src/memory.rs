//! Memory that is available to this process.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the bytes available without swapping: those of the system, or of the control group if
/// that has fewer.
/// `None` if the system doesn't report it.
/// The page cache counts as free, since it can be evicted.
pub fn available() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemAvailable:"));
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| in_groups(&text));
    system.into_iter().chain(group).min()
}

/// Returns the machine's total memory in bytes, used or not, or the control group's limit if that
/// is lower.
/// `None` if the system doesn't report it.
pub fn total() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemTotal:"));
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = group.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    system.into_iter().chain(group).min()
}

/// Returns a field of `/proc/meminfo`, in bytes.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the kernel's memory limit, in bytes, of the control groups around this process; `None`
/// without a limit.
pub fn group_limit() -> Option<u64> {
    let limit = |(folder, [limit, _]): (PathBuf, [&str; 2])| {
        fs::read_to_string(folder.join(limit)).ok()?.trim().parse::<u64>().ok()
    };
    // Version 1 of control groups represents "no limit" by a number that is never reached.
    groups(&fs::read_to_string("/proc/self/cgroup").ok()?)
        .filter_map(limit)
        .filter(|limit| *limit < 1 << 60)
        .min()
}

/// Returns the least memory left in any control group around this process.
fn in_groups(text: &str) -> Option<u64> {
    let left = groups(text).filter_map(|(folder, [limit, used])| {
        let read = |name| fs::read_to_string(folder.join(name)).ok();
        group_left(&read(limit)?, &read(used)?, &read("memory.stat").unwrap_or_default())
    });
    left.min()
}

/// Returns the folders of the memory control groups in a text of `/proc/self/cgroup`, including
/// parent groups, and the names of the files for limit and usage.
fn groups(text: &str) -> impl Iterator<Item = (PathBuf, [&'static str; 2])> {
    let named = text.lines().filter_map(|line| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        // Version 2 has a single hierarchy, without controller names.
        let (root, names) = match controllers {
            "" => ("/sys/fs/cgroup", ["memory.max", "memory.current"]),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.usage_in_bytes"])
            }
            _ => return None,
        };
        Some((root, path.trim_start_matches('/'), names))
    });
    named.flat_map(|(root, path, names)| {
        Path::new(path).ancestors().map(move |group| (Path::new(root).join(group), names))
    })
}

/// Returns the memory left in a group, given its limit, its usage, and the page cache within that.
fn group_left(limit: &str, used: &str, stat: &str) -> Option<u64> {
    let limit: u64 = limit.trim().parse().ok()?;
    let used: u64 = used.trim().parse().ok()?;
    let files = stat.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        matches!(name, "active_file" | "inactive_file").then(|| bytes.trim().parse::<u64>().ok())?
    });
    Some(limit.saturating_sub(used.saturating_sub(files.sum())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says() {
        let text = "MemTotal:  9 kB\nMemAvailable:   2048 kB\nBuffers: 1 kB\n";
        assert_eq!(field(text, "MemAvailable:"), Some(2 << 20));
        assert_eq!(field(text, "MemTotal:"), Some(9 << 10));
        assert_eq!(field("MemTotal: 9 kB\n", "MemAvailable:"), None);
    }

    #[test]
    fn what_a_control_group_leaves() {
        let check = |limit, used, stat, expected| assert_eq!(group_left(limit, used, stat), expected);
        check("max\n", "5\n", "", None);
        check("100\n", "60\n", "", Some(40));
        check("100\n", "60\n", "anon 30\nactive_file 10\ninactive_file 20\nshmem 5\n", Some(70));
        check("100\n", "160\n", "", Some(0));
        check("100\n", "oops\n", "", None);
    }
}
