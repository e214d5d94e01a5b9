//! Files that tools of the user run, or take commands from, only because they lie there: data.
//! What a program writes there would run outside of the sandbox when the user next says
//! `git status`, opens an editor or enters the directory.
//!
//! What a user runs by its name is not here: a makefile, a test, a script.
//!
//! A program of an agent writes such a file only after a person has agreed.

mod asked;
mod checkout;
mod repository;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::Deserialize;

pub use asked::{Asked, Places};
pub use checkout::Checkout;
pub use tree::{States, Tree};

use super::change::Kind;
use super::environment;

/// A tool of the user, and the files that it obeys because they lie there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Obeying {
    /// Who it is, as in "which git obeys".
    pub tool: String,
    /// Globs of paths, at any depth of a work directory.
    pub files: Vec<String>,
}

/// The tools that are known to obey files.
pub fn obeying() -> &'static [Obeying] {
    static TOOLS: LazyLock<Vec<Obeying>> =
        // The table is in the binary, and a test reads it.
        LazyLock::new(|| serde_saphyr::from_str(include_str!("tools.yaml")).unwrap_or_default());
    &TOOLS
}

/// Each pattern, with its tool.
fn patterns() -> impl Iterator<Item = (&'static str, &'static str)> {
    obeying().iter().flat_map(|row| row.files.iter().map(|file| (file.as_str(), row.tool.as_str())))
}

/// Most files of the table among which links are looked for.
const LINKS: usize = 2000;
/// Exceptions: paths that match a pattern of the table but are harmless.
const HARMLESS: [&str; 1] = ["**/.git/**/*.sample"];

/// The table, ready to be looked up.
struct Table {
    files: GlobSet,
    /// For each pattern of `files`, its tool.
    tools: Vec<&'static str>,
    /// The folders on the way to the files.
    folders: GlobSet,
    /// For each pattern of `folders`, the row that it is from.
    rows: Vec<usize>,
    harmless: GlobSet,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let parents = patterns().enumerate().flat_map(|(row, (pattern, _))| {
        let ends = pattern.match_indices('/').map(move |(at, _)| (row, &pattern[..at]));
        ends.filter(|(_, folder)| *folder != "**" && !folder.ends_with("/**"))
    });
    let (rows, folders): (Vec<usize>, Vec<&str>) = parents.unzip();
    Table {
        files: set(patterns().map(|(pattern, _)| format!("**/{pattern}"))),
        tools: patterns().map(|(_, tool)| tool).collect(),
        folders: set(folders.into_iter().map(|pattern| format!("**/{pattern}"))),
        rows,
        harmless: set(HARMLESS.iter().map(ToString::to_string)),
    }
});

/// Patterns that are looked up in paths, as they are written, with `/` between folders.
pub fn set(patterns: impl Iterator<Item = String>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let mut glob = GlobBuilder::new(&pattern);
        let glob = glob.literal_separator(true).case_insensitive(true).empty_alternates(true).build();
        // Every pattern is one of a table's, or a path of which nothing is a pattern.
        if let Ok(glob) = glob {
            set.add(glob);
        }
    }
    set.build().unwrap_or_default()
}

/// Which tool of the user will obey what a program has put at `path`, if any does.
/// `places` is what git obeys by its settings.
pub fn obeyed(path: &Path, kind: Kind, states: &States, places: &Places) -> Option<&'static str> {
    let makes_one = repository::makes_one(path, states);
    if kind == Kind::Directory || makes_one {
        return makes_one.then_some("git");
    }
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let by_git = || (repository::obeys(path, kind, states) || places.have(path, kind)).then_some("git");
    if let Some(tool) = places.linked(path) {
        return Some(tool);
    }
    // A file instead of the directory names another one.
    if name == ".git" {
        return Some("git");
    }
    if is_listed(path)
        && let Some(row) = TABLE.files.matches(path).first()
    {
        let tool = TABLE.tools[*row];
        let harmless = match tool {
            "git" if matches!(name.as_str(), "config" | "config.worktree") => {
                repository::are_harmless(path, states.now, Some(states.before))
            }
            "python" => in_new_environment(path, states),
            _ => false,
        };
        return if harmless { by_git() } else { Some(tool) };
    }
    // A link to a folder in which such files lie.
    if kind == Kind::Link
        && let Some(found) = TABLE.folders.matches(path).first()
    {
        return Some(TABLE.tools[TABLE.rows[*found]]);
    }
    by_git()
}

/// Which tool other than git obeys a path of a repository's own folder, whatever that is called.
pub fn obeyed_in_git(path: &Path) -> Option<&'static str> {
    let rows = TABLE.files.matches(Path::new(".git").join(path));
    rows.iter().map(|row| TABLE.tools[*row]).find(|tool| *tool != "git")
}

/// Whether a path is in the table, whatever is in the file.
pub fn is_listed(path: &Path) -> bool {
    TABLE.files.is_match(path) && !TABLE.harmless.is_match(path)
}

/// Whether a path lies in a virtual environment that is new as a whole.
/// No other Python looks there.
fn in_new_environment(path: &Path, states: &States) -> bool {
    let mut folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    folders.any(|folder| {
        states.now.kind(&folder.join("pyvenv.cfg")) == Some(Kind::File)
            && states.before.kind(folder).is_none()
    })
}

/// What of the table is there in a work directory, and what git obeys by its settings, so that it
/// can be kept from being written.
pub fn existing(work: &Path) -> Vec<PathBuf> {
    let Places { files, folders, linked, .. } = Asked::about(work).around();
    let all = listed(work).into_iter().chain(files).chain(folders).chain(linked.into_keys());
    let real = all.filter_map(|path| work.join(path).canonicalize().ok());
    real.filter(|path| path.starts_with(work) && path != work).collect()
}

/// Where links of a work directory lead that tools obey, each with its tool: who writes there
/// writes what they obey.
fn linked(work: &Path) -> BTreeMap<PathBuf, &'static str> {
    let (mut found, mut left, mut steps) = (BTreeMap::new(), listed(work), 0);
    while let Some(path) = left.pop().filter(|_| steps < LINKS) {
        steps += 1;
        let rows = TABLE.files.matches(&path).into_iter().chain(TABLE.files.matches(path.join("any")));
        let place = work.join(&path);
        let leads = leads(&place).filter(|leads| *leads != place);
        let inside = leads.and_then(|leads| leads.strip_prefix(work).ok().map(Path::to_owned));
        if let (Some(inside), Some(row)) = (inside, rows.into_iter().next()) {
            found.insert(inside, TABLE.tools[row]);
        } else if place.is_dir() {
            let entries = place.read_dir().into_iter().flatten().flatten();
            left.extend(entries.map(|entry| path.join(entry.file_name())));
        }
    }
    found
}

/// Where a path leads, through links; also through the last one if nothing is there.
fn leads(path: &Path) -> Option<PathBuf> {
    let named = || Some(environment::normalized(&path.parent()?.join(path.read_link().ok()?)));
    path.canonicalize().ok().or_else(named)
}

/// The paths of the table that are there in a work directory.
/// Only what lies at its top, with the folders whose every file is obeyed.
fn listed(work: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = left.pop() {
        for entry in work.join(&folder).read_dir().into_iter().flatten().flatten() {
            let path = folder.join(entry.file_name());
            let is_folder = work.join(&path).is_dir();
            // Any file of it.
            let whole = is_folder && TABLE.files.is_match(path.join("any"));
            if whole || (!is_folder && is_listed(&path)) {
                found.push(path);
            } else if is_folder && TABLE.folders.is_match(&path) {
                left.push(path);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
