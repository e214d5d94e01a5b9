//! Files that are not complete yet, recognised by their names.

use std::hash::{BuildHasher, RandomState};

/// The name for an incomplete file in a work directory: one that no file has, and that can't be
/// guessed to put something else there.
pub fn new_half() -> String {
    // Each state has different, secret keys.
    format!(".alara-{}-{:016x}.new", std::process::id(), RandomState::new().hash_one(0))
}

/// Whether a file of this name was left incomplete by a process that was killed.
pub fn is_half(name: &str) -> bool {
    let middle = name.strip_prefix(".alara-").and_then(|rest| rest.strip_suffix(".new"));
    let Some((pid, number)) = middle.and_then(|middle| middle.split_once('-')) else { return false };
    let Ok(pid) = pid.parse::<i32>() else { return false };
    number.bytes().all(|digit| digit.is_ascii_hexdigit()) && !is_alive(pid)
}

#[cfg(unix)]
fn is_alive(pid: i32) -> bool {
    use rustix::io::Errno;
    let pid = rustix::process::Pid::from_raw(pid);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

#[cfg(not(unix))]
fn is_alive(_pid: i32) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_those_of_dead_processes() {
        let check = |name: &str, expected| assert_eq!(is_half(name), expected, "{name}");
        check(".alara-2147483647-0.new", true);
        check(&new_half().replace(&format!("-{}-", std::process::id()), "-2147483647-"), true);
        check(&new_half(), false);
        check(".alara-2147483647-x.new", false);
        check(".alara-me-0.new", false);
        check("alara-2147483647-0.new", false);
        assert_ne!(new_half(), new_half());
    }
}
