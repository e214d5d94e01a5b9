//! A server that is a program: one message a line on its standard input and output; its standard
//! error is for people.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStderr, ChildStdout};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::rpc::{Link, MOST, Wire};
use crate::error::Error;
use crate::sandbox::{self, Sandbox, Script, Service};
use alara_team::mcp::printable;

/// Most bytes of the end of standard error to keep.
const LAST_WORDS: usize = 2048;
/// Most messages waiting until a program reads them.
const UNREAD: usize = 64;
/// How long to wait for a program's last output.
const GRACE: Duration = Duration::from_millis(500);

/// Starts a program in the sandbox.
///
/// # Errors
/// It can't be started.
pub fn start(
    words: &[String],
    env: &[(String, String)],
    network: bool,
    secrets: &[String],
    sandbox: &Sandbox,
) -> Result<(Arc<Link>, Service), Error> {
    let program: Vec<&str> = words.iter().map(String::as_str).collect();
    let script = Script {
        program: &program,
        env,
        stdin: None,
        timeout: Duration::MAX,
        network,
        keys: !secrets.is_empty(),
        output_limit: 0,
    };
    let (service, mut pipes) = sandbox.serve(&script)?;
    let (sender, lines) = sync_channel::<Vec<u8>>(UNREAD);
    let link = Link::new(Wire::Lines(Mutex::new(Some(sender))), secrets);
    let failed = |source| sandbox::Error::Spawn { program: words.join(" "), source };
    let thread = || std::thread::Builder::new().name("mcp".into());
    let write = move || {
        // If it doesn't read them, its output ends, or a request gets no answer.
        lines.into_iter().try_for_each(|line| pipes.stdin.write_all(&line).and_then(|()| pipes.stdin.flush()))
    };
    thread().spawn(write).map_err(failed)?;
    let last: Arc<Mutex<Vec<u8>>> = Arc::default();
    let (kept, stderr) = (last.clone(), pipes.stderr);
    let listener = thread().spawn(move || keep_last(stderr, &kept)).map_err(failed)?;
    let (heard, stdout) = (link.clone(), pipes.stdout);
    thread().spawn(move || listen(stdout, &heard, &listener, &last)).map_err(failed)?;
    Ok((link, service))
}

/// Processes messages until there are no more.
fn listen(stdout: ChildStdout, link: &Arc<Link>, listener: &JoinHandle<()>, words: &Mutex<Vec<u8>>) {
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    let most = MOST as u64;
    loop {
        line.clear();
        match reader.by_ref().take(most).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(length) if length >= MOST => return link.end("it sent a message that is too long"),
            Ok(_) => link.take(&String::from_utf8_lossy(&line)),
        }
        // A server that was given up is no longer read: then it must wait.
        if link.is_over() {
            return;
        }
    }
    for _ in 0..GRACE.as_millis() / 10 {
        if listener.is_finished() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let words = words.lock().unwrap_or_else(PoisonError::into_inner);
    let text = link.hidden(&String::from_utf8_lossy(&words));
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    link.end(
        &last.map_or_else(|| "it has ended".to_owned(), |last| format!("it has ended: {}", printable(last))),
    );
}

/// Reads to the end, and keeps the last bytes.
fn keep_last(mut stderr: ChildStderr, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stderr.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&buffer[..count]);
        let over = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..over);
    }
}
