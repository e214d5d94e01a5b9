//! The data that alara stores for the user between runs, and its paths: traces, former contents of
//! files, answers about permissions, caches.
//!
//! The environment sets the user's folders: `XDG_STATE_HOME`, `XDG_CONFIG_HOME`, `XDG_CACHE_HOME`.
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

/// The folder in the variable `variable`, otherwise `name` in the user's home; `None` without a
/// home.
fn user_folder(variable: &str, name: &str) -> Option<PathBuf> {
    let said = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    said.or_else(|| Some(std::env::home_dir()?.join(name)))
}

/// The user's configuration directory, `$XDG_CONFIG_HOME` or `~/.config`; `None` without a home.
pub fn config_home() -> Option<PathBuf> {
    user_folder("XDG_CONFIG_HOME", ".config")
}

/// Where to look for teams.
pub fn search() -> Search {
    Search { config_home: config_home(), home: std::env::home_dir(), ..Search::default() }
}

/// The user's state directory for alara, `$XDG_STATE_HOME/alara` or `~/.local/state/alara`; `None`
/// without a home.
pub fn directory() -> Option<PathBuf> {
    Some(user_folder("XDG_STATE_HOME", ".local/state")?.join("alara"))
}

/// The cache folder `name`, below `$XDG_CACHE_HOME/alara` or `~/.cache/alara`; `None` without a
/// home.
pub fn cache(name: &str) -> Option<PathBuf> {
    Some(user_folder("XDG_CACHE_HOME", ".cache")?.join("alara").join(name))
}

/// The default cache folder for computed static prefixes.
pub fn prefixes() -> Option<PathBuf> {
    cache("prefix")
}

/// The folder of traces.
pub fn traces() -> Option<PathBuf> {
    directory().map(|state| state.join("traces"))
}

/// The file of answers about permissions.
pub fn permissions() -> Option<PathBuf> {
    directory().map(|state| state.join("permissions.json"))
}

/// The folder with the journals of sessions' changes.
pub fn undo() -> Option<PathBuf> {
    directory().map(|state| state.join("undo"))
}

/// A journal of changes to a work directory; the first one has the name of the first trace.
pub fn journal() -> Option<Journal> {
    static NAMED: AtomicBool = AtomicBool::new(false);
    undo().map(|undo| Journal::new(undo.join(name(&NAMED))))
}

/// A new trace in the state directory, in memory if there is none.
///
/// # Errors
/// The file can't be created.
pub fn trace() -> Result<Trace, Error> {
    static NAMED: AtomicBool = AtomicBool::new(false);
    let Some(traces) = traces() else { return Ok(Trace::in_memory()) };
    Trace::create(&traces.join(format!("{}.jsonl", name(&NAMED)))).map(Trace::optional)
}

/// alara's own folders, which decide what agents may do, or hold computed data.
pub fn own() -> Vec<PathBuf> {
    let config = config_home().map(|config| config.join("alara"));
    [directory(), config, cache("")].into_iter().flatten().collect()
}

/// What makes a work directory more than a project, in words, and what agents that work in it can't
/// change; `None` if it isn't such a directory.
pub fn more_than_a_project(work: &Path) -> Option<(&'static str, &'static str)> {
    // An invalid path is reported where it is used.
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

/// The paths that an agent must not change, in the form of [`Policy`](crate::Policy).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Existing paths.
    pub protected: Vec<PathBuf>,
    /// Patterns of paths that must not be created.
    pub refused: Vec<String>,
}

impl Kept {
    /// The paths for an agent of `team` that works in `work`, whose prefixes are stored in
    /// `prefix_cache`.
    /// These are the files that its team is read from, the user's answers and settings, and the
    /// prefix cache.
    /// Missing ones in the work directory are created: only an existing path can be protected.
    /// In a home directory, these are all names that begin with a dot.
    ///
    /// # Errors
    /// A path can't be created, or can't be protected on this machine.
    pub fn of(team: &Team, work: &Path, prefix_cache: Option<PathBuf>) -> Result<Kept, Error> {
        let mut kept = Kept::default();
        // An invalid path is reported where it is used.
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

    /// Adds one of alara's folders.
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

    /// Adds links on the way, since a link can be replaced whatever its target is.
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
        // A folder whose contents are all read, around the work directory.
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

/// The path relative to the directory `work`, even if it doesn't exist yet.
fn place(path: &Path, work: &Path) -> Option<PathBuf> {
    let path = resolved(path)?;
    let there = path.ancestors().find(|part| part.exists())?;
    Some(below(there, work)?.join(path.strip_prefix(there).ok()?))
}

/// Creates a folder that only its owner may enter, and its parents.
fn private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// A unique name for its kind; the first ones of each kind are equal.
fn name(named: &AtomicBool) -> String {
    static FIRST: OnceLock<String> = OnceLock::new();
    let new = || format!("{}-{}", moment(), std::process::id());
    if named.swap(true, Ordering::Relaxed) { new() } else { FIRST.get_or_init(new).clone() }
}

/// Milliseconds since 1970, unique within the process.
fn moment() -> u128 {
    static LAST: Mutex<u128> = Mutex::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last = since.as_millis().max(*last + 1);
    *last
}
