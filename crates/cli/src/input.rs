//! Reads standard input as part of a task.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::ui;

/// The argument that means standard input.
pub const DASH: &str = "-";
/// Maximum input size in bytes: more than any model can read for a task.
const MOST: u64 = 1 << 20;
/// How long to wait for input that wasn't requested.
/// Programs are often started with a pipe that never receives any data.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reads the text of standard input; `None` if there is none: it is a terminal, a device, closed or
/// empty.
/// Waits for its end if the input was `asked` for, or if data arrives soon.
///
/// # Errors
/// The input isn't text, or is too long; or it was requested and is a terminal or empty.
pub fn read(asked: bool) -> anyhow::Result<Option<String>> {
    if asked && std::io::stdin().is_terminal() {
        bail!(
            "`{DASH}` stands for standard input, and that is this terminal\nhint: alara run {DASH} < FILE, or a pipe"
        );
    }
    if !asked && !may_have_input() {
        return Ok(None);
    }
    let (sender, read) = channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut bytes = vec![0; 8192];
        // The first data, or the end of input, shows that the other end is active.
        let first = input.read(&mut bytes);
        bytes.truncate(*first.as_ref().unwrap_or(&0));
        // The receiver is gone if this came too late.
        let _ = sender.send(first.map(|_| Vec::new()));
        let _ = sender.send(input.take(MOST).read_to_end(&mut bytes).map(|_| bytes));
    });
    let failed = || "can't read standard input";
    let begun = if asked {
        read.recv().map_err(|_| RecvTimeoutError::Disconnected)
    } else {
        read.recv_timeout(PATIENCE)
    };
    match begun {
        Ok(begun) => begun.with_context(failed)?,
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            ui::note(&format!(
                "nothing came through standard input for {seconds} s, so it is left out; `{DASH}` in the task waits for it, < /dev/null says \
                 that there is none"
            ));
            return Ok(None);
        }
    };
    let bytes = read.recv().with_context(failed)?.with_context(failed)?;
    if bytes.len() as u64 > MOST {
        bail!(
            "standard input has more than {}\nhint: put it into a file, and name the file in the task",
            ui::bytes(MOST)
        );
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    let text = text.context(
        "standard input is no text (UTF-8)\nhint: put it into a file, and name the file in the task",
    )?;
    match text.trim().is_empty() {
        true if asked => bail!("`{DASH}` stands for standard input, and nothing came there"),
        true => Ok(None),
        false => Ok(Some(text)),
    }
}

/// Whether standard input is a file, a pipe or a socket, which may contain data.
#[cfg(unix)]
fn may_have_input() -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileTypeExt;
    let kind = std::io::stdin().as_fd().try_clone_to_owned().and_then(|own| File::from(own).metadata());
    kind.is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_file() || kind.is_fifo() || kind.is_socket()
    })
}

#[cfg(not(unix))]
fn may_have_input() -> bool {
    !std::io::stdin().is_terminal()
}

/// Appends the text of standard input to a task, in a fence that doesn't occur in it.
/// Without a task, the text is the task.
pub fn joined(task: &str, input: Option<&str>) -> String {
    match (task.trim(), input) {
        ("", Some(input)) => input.to_owned(),
        (_, None) => task.to_owned(),
        (_, Some(input)) => with_block(task, "Standard input", input),
    }
}

/// Appends a text to a message, below a title and in a fence that doesn't occur in it.
pub fn with_block(message: &str, title: &str, text: &str) -> String {
    let fence = (3..).map(|length| "`".repeat(length)).find(|fence| !text.contains(fence.as_str()));
    let fence = fence.unwrap_or_default();
    let text = text.trim_end_matches(['\n', '\r']);
    format!("{message}\n\n{title}:\n{fence}\n{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_stands_behind_the_task() {
        let check = |task, input, expected: &str| assert_eq!(joined(task, input), expected);
        check("count", Some("a\nb\n"), "count\n\nStandard input:\n```\na\nb\n```");
        check("count", Some("```\nb"), "count\n\nStandard input:\n````\n```\nb\n````");
        check("", Some("do it\n"), "do it\n");
        check("count", None, "count");
    }
}
