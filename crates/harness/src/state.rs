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
use crate::sandbox::{enforced, homes, launcher};
use crate::team::{READ, Search, Team};
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

/// The folders that say what agents may do, or what is computed: alara's own.
pub fn own() -> Vec<PathBuf> {
    let config = config_home().map(|config| config.join("alara"));
    [directory(), config, cache("")].into_iter().flatten().collect()
}

/// What a work directory is that is more than a project's, in words, and what agents that work in
/// it can't change; `None`: it is no such directory.
pub fn more_than_a_project(work: &Path) -> Option<(&'static str, &'static str)> {
    // What is wrong with it is told where it is used.
    let work = work.canonicalize().ok()?;
    let homes = homes();
    let is_own = || own().iter().any(|own| own.canonicalize().is_ok_and(|own| work.starts_with(own)));
    if work.parent().is_none() {
        Some((
            "the root of the file system",
            "what other users have, and what in your home directory begins with a dot",
        ))
    } else if homes.contains(&work) {
        Some(("your home directory", "what begins with a dot"))
    } else if homes.iter().any(|home| home.starts_with(&work)) {
        Some(("a folder around your home directory", "what begins with a dot in that"))
    } else {
        is_own().then_some(("in a folder of alara's own, which says what agents may do", "nothing"))
    }
}

/// What an agent must not change, as [`Policy`](crate::Policy) has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// What is there.
    pub protected: Vec<PathBuf>,
    /// Patterns of what must not come there.
    pub refused: Vec<String>,
}

impl Kept {
    /// Of an agent of `team` that works in `work`, whose prefixes are kept in `prefix_cache`.
    /// That is what its team is read from, the user's answers and settings, and the prefix cache.
    /// What of it lies in the work directory and is not there yet is made: only what is there can
    /// be protected.
    /// In a home directory it is all that begins with a dot.
    ///
    /// # Errors
    /// It can't be made, or can't be protected on this machine.
    pub fn of(team: &Team, work: &Path, prefix_cache: Option<PathBuf>) -> Result<Kept, Error> {
        let mut kept = Kept::default();
        // What is wrong with it is told where it is used.
        let Ok(work) = work.canonicalize() else { return Ok(kept) };
        for folder in own().into_iter().chain(prefix_cache) {
            kept.add_own(folder, &work)?;
        }
        for home in homes() {
            kept.add_home(&home, &work);
        }
        kept.add_team(team, &work);
        Ok(kept)
    }

    /// A folder of alara's.
    fn add_own(&mut self, folder: PathBuf, work: &Path) -> Result<(), Error> {
        if is_within(&folder, work) {
            private(&folder).map_err(|source| Error::Directory {
                what: "folder of the user's answers and settings",
                path: folder.clone(),
                source,
            })?;
            if launcher().is_some() && !enforced().mounts {
                return Err(Error::Unprotected { path: folder, why: "it has no mount namespaces for users" });
            }
        }
        self.add_links(&folder, work);
        self.protected.push(folder);
        Ok(())
    }

    /// A link can be replaced, whatever it leads to.
    fn add_links(&mut self, path: &Path, work: &Path) {
        let links = path.ancestors().filter(|part| part.is_symlink());
        let real = |link: &Path| Some(link.parent()?.canonicalize().ok()?.join(link.file_name()?));
        for link in links.filter_map(real) {
            if let Some(relative) = link.strip_prefix(work).ok().and_then(Path::to_str) {
                self.refused.push(globset::escape(relative));
            }
        }
    }

    fn add_home(&mut self, home: &Path, work: &Path) {
        let Some(relative) = home.strip_prefix(work).ok().and_then(Path::to_str) else { return };
        let relative = if relative.is_empty() { String::new() } else { globset::escape(relative) + "/" };
        self.refused.extend([format!("{relative}.*"), format!("{relative}.*/**")]);
        let has_dot =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let entries = home.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        // The work directory of somebody who works in one of them is not protected from them.
        self.protected.extend(entries.filter(has_dot));
    }

    fn add_team(&mut self, team: &Team, work: &Path) {
        self.protected.extend(team.places(work));
        let Some(directory) = &team.directory else { return };
        self.add_links(directory, work);
        if directory.canonicalize().is_ok_and(|directory| work.starts_with(directory)) {
            self.refused.extend(READ.map(str::to_owned));
        } else {
            self.protected.push(directory.clone());
        }
    }
}

/// Whether a path lies in the directory `work`, also if it is not there yet.
fn is_within(path: &Path, work: &Path) -> bool {
    let there = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    there.is_some_and(|(part, real)| {
        path.strip_prefix(part).is_ok_and(|rest| real.join(rest).starts_with(work))
    })
}

/// Makes a folder that only its owner may enter, and those around it.
fn private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
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
