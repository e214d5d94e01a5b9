//! How much memory this process may still take.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that can be had without swapping: what the system has left, or the control group where
/// that is less.
/// `None` where the system does not say.
/// Pages of files count as free, since they can be evicted.
pub fn available() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemAvailable:"));
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| in_groups(&text));
    system.into_iter().chain(group).min()
}

/// Bytes that the machine has, whoever uses them now, or that the control group allows where that
/// is less.
/// `None` where the system does not say.
pub fn total() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemTotal:"));
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = group.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    system.into_iter().chain(group).min()
}

/// A field of `/proc/meminfo`, in bytes.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes that the control groups around this process allow it and all that it starts, by the
/// kernel; `None` where they say nothing.
pub fn group_limit() -> Option<u64> {
    let limit = |(folder, [limit, _]): (PathBuf, [&str; 2])| {
        fs::read_to_string(folder.join(limit)).ok()?.trim().parse::<u64>().ok()
    };
    // The first version of groups says no limit by a number that nothing reaches.
    groups(&fs::read_to_string("/proc/self/cgroup").ok()?)
        .filter_map(limit)
        .filter(|limit| *limit < 1 << 60)
        .min()
}

/// The least that any control group around this process has left.
fn in_groups(text: &str) -> Option<u64> {
    let left = groups(text).filter_map(|(folder, [limit, used])| {
        let read = |name| fs::read_to_string(folder.join(name)).ok();
        group_left(&read(limit)?, &read(used)?, &read("memory.stat").unwrap_or_default())
    });
    left.min()
}

/// The folders of the groups for memory that a text of `/proc/self/cgroup` names, with those around
/// them, and the files in which limit and use stand.
fn groups(text: &str) -> impl Iterator<Item = (PathBuf, [&'static str; 2])> {
    let named = text.lines().filter_map(|line| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        // The second version has one hierarchy, without names of controllers.
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

/// What a group has left, by its limit, what it uses, and what of that are pages of files.
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
