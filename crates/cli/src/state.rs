//! What alara keeps between runs: traces, their index, former contents of files, the history of
//! what was typed, answers about permissions.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use alara_harness::Trace;
use alara_harness::error::chain;
use alara_harness::undo::Journal;

use crate::ui;

/// The user's state directory for alara, `$XDG_STATE_HOME/alara` or `~/.local/state/alara`; `None`
/// if there is no home.
pub fn directory() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(std::env::home_dir()?.join(".local/state")))?;
    Some(state.join("alara"))
}

/// Where traces lie.
pub fn traces() -> Option<PathBuf> {
    directory().map(|state| state.join("traces"))
}

/// The file of answers about permissions.
pub fn permissions() -> Option<PathBuf> {
    directory().map(|state| state.join("permissions.json"))
}

/// Where the journals lie of what sessions changed.
pub fn undo() -> Option<PathBuf> {
    directory().map(|state| state.join("undo"))
}

/// A journal of what is changed in a work directory; the first has the name of the first trace.
pub fn journal() -> Option<Journal> {
    static NAMED: AtomicBool = AtomicBool::new(false);
    undo().map(|undo| Journal::new(undo.join(name(&NAMED))))
}

/// A new trace in the state directory, as far as there is one and its disk takes it.
pub fn trace() -> Trace {
    static NAMED: AtomicBool = AtomicBool::new(false);
    let Some(traces) = traces() else { return Trace::in_memory() };
    let created = Trace::create(&traces.join(format!("{}.jsonl", name(&NAMED))));
    created.map(Trace::optional).unwrap_or_else(|error| {
        ui::note(&format!("warning: no trace is written: {}", chain(&error)));
        Trace::in_memory()
    })
}

/// A name that nothing of its kind has; the first of each kind have the same.
fn name(named: &AtomicBool) -> String {
    static FIRST: OnceLock<String> = OnceLock::new();
    let new = || format!("{}-{}", moment(), std::process::id());
    if named.swap(true, Ordering::Relaxed) { new() } else { FIRST.get_or_init(new).clone() }
}

/// Milliseconds since 1970, each once in a process.
fn moment() -> u128 {
    static LAST: Mutex<u128> = Mutex::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last = since.as_millis().max(*last + 1);
    *last
}
