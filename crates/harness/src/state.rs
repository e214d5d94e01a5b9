//! What alara keeps for the user between runs, and where: traces, former contents of files, answers
//! about permissions, what can be computed again.
//!
//! The environment tells where the user's folders are: `XDG_STATE_HOME`, `XDG_CONFIG_HOME`,
//! `XDG_CACHE_HOME`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use crate::error::Error;
use crate::team::Search;
use crate::trace::Trace;
use crate::undo::Journal;

/// A folder that the variable `name` says, else the one of this name in the user's home; `None` if
/// there is no home.
fn user_folder(variable: &str, name: &str) -> Option<PathBuf> {
    let said = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    said.or_else(|| Some(std::env::home_dir()?.join(name)))
}

/// Where the user's programs are configured, `$XDG_CONFIG_HOME` or `~/.config`; `None` if there is
/// no home.
pub fn config_home() -> Option<PathBuf> {
    user_folder("XDG_CONFIG_HOME", ".config")
}

/// Where teams are looked for.
pub fn search() -> Search {
    Search { config_home: config_home(), home: std::env::home_dir(), ..Search::default() }
}

/// The user's state directory for alara, `$XDG_STATE_HOME/alara` or `~/.local/state/alara`; `None`
/// if there is no home.
pub fn directory() -> Option<PathBuf> {
    Some(user_folder("XDG_STATE_HOME", ".local/state")?.join("alara"))
}

/// The folder `name` for what can be computed again, below `$XDG_CACHE_HOME/alara` or
/// `~/.cache/alara`; `None` if there is no home.
pub fn cache(name: &str) -> Option<PathBuf> {
    Some(user_folder("XDG_CACHE_HOME", ".cache")?.join("alara").join(name))
}

/// Where computed static prefixes are cached, unless the user says otherwise.
pub fn prefixes() -> Option<PathBuf> {
    cache("prefix")
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

/// A new trace in the state directory, in memory if there is none.
///
/// # Errors
/// Its disk doesn't take it.
pub fn trace() -> Result<Trace, Error> {
    static NAMED: AtomicBool = AtomicBool::new(false);
    let Some(traces) = traces() else { return Ok(Trace::in_memory()) };
    Trace::create(&traces.join(format!("{}.jsonl", name(&NAMED)))).map(Trace::optional)
}

/// What an agent that works in `work` must not change, since it says what the agent may do.
/// That is its team, the user's answers and settings, and the prefix cache.
/// Of a team around the work directory, only its own files.
pub fn protected(team: Option<&Path>, work: &Path, prefix_cache: Option<PathBuf>) -> Vec<PathBuf> {
    let config = config_home().map(|config| config.join("alara"));
    let own = [directory(), config, prefixes(), prefix_cache];
    let mut protected: Vec<PathBuf> = own.into_iter().flatten().collect();
    let Some(team) = team else { return protected };
    let around = |team: PathBuf| work.canonicalize().is_ok_and(|work| work.starts_with(team));
    if !team.canonicalize().is_ok_and(around) {
        protected.push(team.to_owned());
        return protected;
    }
    let own = |path: &PathBuf| {
        let named = path.file_name().is_some_and(|name| {
            ["permissions.yaml", "agents.md", "jinxes", "jinxs", "agents"].iter().any(|own| name == *own)
        });
        named || path.extension().is_some_and(|extension| extension == "ctx" || extension == "npc")
    };
    let entries = team.read_dir().into_iter().flatten().flatten();
    protected.extend(entries.map(|entry| entry.path()).filter(own));
    protected
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
