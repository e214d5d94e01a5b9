//! Files that the user's tools run, or take commands from, only because of their path: data.
//! A program that writes one could run code outside the sandbox when the user next runs `git
//! status`, opens an editor or enters the directory.
//!
//! Files that a user runs by name are not covered: a makefile, a test, a script.
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

/// A tool of the user, and the files that it obeys because of their path.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Obeying {
    /// The name of the tool, as in "which git obeys".
    pub tool: String,
    /// Globs of paths, at any depth of a work directory.
    pub files: Vec<String>,
}

/// The known tools that obey files.
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

/// Most files of the table to check for links.
const LINKS: usize = 2000;
/// Exceptions: paths that match a pattern of the table but are harmless.
const HARMLESS: [&str; 1] = ["**/.git/**/*.sample"];

/// The table, ready to be looked up.
struct Table {
    files: GlobSet,
    /// The tool of each pattern of `files`.
    tools: Vec<&'static str>,
    /// The folders on the way to the files.
    folders: GlobSet,
    /// The row of each pattern of `folders`.
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

/// A set of patterns that match paths literally, with `/` between folders.
pub fn set(patterns: impl Iterator<Item = String>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let mut glob = GlobBuilder::new(&pattern);
        let glob = glob.literal_separator(true).case_insensitive(true).empty_alternates(true).build();
        // Every pattern is from a table, or an escaped path.
        if let Ok(glob) = glob {
            set.add(glob);
        }
    }
    set.build().unwrap_or_default()
}

/// The user's tool that will obey the program's change of `path`, if there is one.
/// `places` is what git obeys because of its settings.
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
    // A file instead of the directory names another directory.
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
    // A link to a folder that contains such files.
    if kind == Kind::Link
        && let Some(found) = TABLE.folders.matches(path).first()
    {
        return Some(TABLE.tools[TABLE.rows[*found]]);
    }
    by_git()
}

/// The tool other than git that obeys a path of a repository's own folder, whatever its name.
pub fn obeyed_in_git(path: &Path) -> Option<&'static str> {
    let rows = TABLE.files.matches(Path::new(".git").join(path));
    rows.iter().map(|row| TABLE.tools[*row]).find(|tool| *tool != "git")
}

/// Whether a path is in the table, regardless of its content.
pub fn is_listed(path: &Path) -> bool {
    TABLE.files.is_match(path) && !TABLE.harmless.is_match(path)
}

/// Whether a path is in an entirely new virtual environment.
/// No other Python looks there.
fn in_new_environment(path: &Path, states: &States) -> bool {
    let mut folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    folders.any(|folder| {
        states.now.kind(&folder.join("pyvenv.cfg")) == Some(Kind::File)
            && states.before.kind(folder).is_none()
    })
}

/// The paths of the table that exist in a work directory, and what git obeys because of its
/// settings, so that they can be made read-only.
pub fn existing(work: &Path) -> Vec<PathBuf> {
    let Places { files, folders, linked, .. } = Asked::about(work).around();
    let all = listed(work).into_iter().chain(files).chain(folders).chain(linked.into_keys());
    let real = all.filter_map(|path| work.join(path).canonicalize().ok());
    real.filter(|path| path.starts_with(work) && path != work).collect()
}

/// The targets of links in a work directory that tools obey, each with its tool: a write to the
/// target changes what they obey.
fn linked(work: &Path) -> BTreeMap<PathBuf, &'static str> {
    let (mut found, mut left, mut steps) = (BTreeMap::new(), listed(work), 0);
    while let Some(path) = left.pop().filter(|_| steps < LINKS) {
        steps += 1;
        let rows = TABLE.files.matches(&path).into_iter().chain(TABLE.files.matches(path.join("any")));
        let place = work.join(&path);
        let leads = leads(&place).filter(|leads| *leads != place);
        let inside = leads.and_then(|leads| leads.strip_prefix(work).ok().map(Path::to_owned));
        // The work directory as a whole isn't obeyed.
        let inside = inside.filter(|inside| !inside.as_os_str().is_empty());
        if let (Some(inside), Some(row)) = (inside, rows.into_iter().next()) {
            found.insert(inside, TABLE.tools[row]);
        } else if place.is_dir() {
            let entries = place.read_dir().into_iter().flatten().flatten();
            let may_lead = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| !kind.is_file());
            left.extend(entries.filter(may_lead).map(|entry| path.join(entry.file_name())));
        }
    }
    found
}

/// The target of a path through links, even if the last target doesn't exist.
fn leads(path: &Path) -> Option<PathBuf> {
    let named = || Some(environment::normalized(&path.parent()?.join(path.read_link().ok()?)));
    path.canonicalize().ok().or_else(named)
}

/// The paths of the table that exist in a work directory.
/// Only those at its top, and the folders in which every file is obeyed.
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
