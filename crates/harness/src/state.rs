//! What alara keeps for the user between runs, and where: traces, former contents of files, answers
//! about permissions, what can be computed again.
//!
//! The environment tells where the user's folders are: `XDG_STATE_HOME`, `XDG_CONFIG_HOME`,
//! `XDG_CACHE_HOME`.
//!
//! Steps never write to these folders, nor to the files that a team is read from.
//! The folders are made before the first step, since only what exists can be protected.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use crate::error::Error;
use crate::sandbox::{self, below, enforced, homes, launcher, resolved};
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
    let in_home = homes.iter().find_map(|home| below(&work, home));
    if own().iter().any(|own| below(&work, own).is_some()) {
        Some(("in a folder of alara's own, which says what agents may do", "nothing"))
    } else if work.parent().is_none() {
        Some((
            "the root of the file system",
            "what other users have, and what in your home directory begins with a dot",
        ))
    } else if let Some(path) = in_home {
        match path.iter().next() {
            None => Some(("your home directory", "what begins with a dot")),
            Some(first) if is_dotted(first) => {
                Some(("in a folder of your home directory where programs keep what they obey", "nothing"))
            }
            Some(_) => None,
        }
    } else {
        let around = homes.iter().any(|home| below(home, &work).is_some());
        around.then_some(("a folder around your home directory", "what begins with a dot in that"))
    }
}

fn is_dotted(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
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
        if let Some(within) = place(&folder, work) {
            private(&folder).map_err(|source| sandbox::Error::Directory {
                what: "folder of the user's answers and settings",
                path: folder.clone(),
                source,
            })?;
            if launcher().is_some() && !enforced().mounts {
                let why = "it has no mount namespaces for users";
                return Err(sandbox::Error::Unprotected { path: folder, why }.into());
            }
            self.protected.push(work.join(within));
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
        let Some(within) = below(home, work) else { return };
        let Some(relative) = within.to_str() else { return };
        let relative = if relative.is_empty() { String::new() } else { globset::escape(relative) + "/" };
        self.refused.extend([format!("{relative}.*"), format!("{relative}.*/**")]);
        let entries = work.join(within).read_dir().into_iter().flatten().flatten();
        self.protected
            .extend(entries.filter(|entry| is_dotted(&entry.file_name())).map(|entry| entry.path()));
    }

    fn add_team(&mut self, team: &Team, work: &Path) {
        let places = team.places(work);
        // A folder that is read as a whole, around the work directory.
        let is_read = |place: &PathBuf| place.is_dir() && below(work, place).is_some();
        if places.iter().any(is_read) {
            self.refused.push("**".to_owned());
        }
        self.protected.extend(places);
        for absent in team.watch.absent.iter().filter_map(|path| place(path, work)) {
            if let Some(relative) = absent.to_str() {
                let relative = globset::escape(relative);
                self.refused.extend([format!("{relative}/**"), relative]);
            }
        }
        let Some(directory) = &team.directory else { return };
        self.add_links(directory, work);
        let Some(within) = directory.canonicalize().ok().and_then(|directory| below(work, &directory)) else {
            self.protected.push(directory.clone());
            return;
        };
        let is_own = |part: &std::ffi::OsStr| ["jinxes", "jinxs", "agents"].iter().any(|own| part == *own);
        match within.iter().any(is_own) {
            true => self.refused.push("**".to_owned()),
            false => self.refused.extend(READ.map(str::to_owned)),
        }
    }
}

/// Where a path lies in the directory `work`, also if it is not there yet.
fn place(path: &Path, work: &Path) -> Option<PathBuf> {
    let path = resolved(path)?;
    let there = path.ancestors().find(|part| part.exists())?;
    Some(below(there, work)?.join(path.strip_prefix(there).ok()?))
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
