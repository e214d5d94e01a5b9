//! The files of a team as texts, from a directory or from the binary, and what is said about places in them.

use std::fmt;
use std::path::{Path, PathBuf};

use include_dir::{Dir, DirEntry};

use super::stock;
use crate::error::Error;

/// A text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where it is; a built-in one has a path relative to the repository.
    pub path: PathBuf,
    pub text: String,
}

/// Something odd at a place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1; 0 = the file as a whole.
    pub line: usize,
    /// What is odd, and what may have been meant.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

impl Source {
    /// Reads a file.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Ok(Source { path: path.to_owned(), text })
    }

    /// The file's name without its ending.
    pub fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The first line where `key` stands as a key, as well as a plain look can tell.
    pub fn diagnostic(&self, key: &str, message: String) -> Diagnostic {
        let has = |line: &str| {
            let starts = line.match_indices(key).map(|(at, _)| at);
            starts.into_iter().any(|at| {
                let (before, after) = (&line[..at], &line[at + key.len()..]);
                after.trim_start().starts_with(':')
                    && before.chars().next_back().is_none_or(|last| matches!(last, ' ' | '{' | ','))
            })
        };
        let line = self.text.lines().position(has).map_or(0, |index| index + 1);
        Diagnostic { path: self.path.clone(), line, message }
    }
}

/// A team's files by kind, each kind in the order of the paths.
#[derive(Clone, Debug, Default)]
pub struct Files {
    pub ctx: Vec<Source>,
    pub npc: Vec<Source>,
    pub jinx: Vec<Source>,
}

impl Files {
    /// The files of a team directory: `.ctx` and `.npc` at the top, `.jinx` anywhere below `jinxes` (or `jinxs`).
    pub fn from_directory(directory: &Path) -> Result<Self, Error> {
        let mut files = Files::default();
        let error = |source| Error::Read { path: directory.to_owned(), source };
        if !directory.is_dir() {
            return Err(Error::NoTeam { path: directory.to_owned() });
        }
        let entries = directory.read_dir().map_err(error)?;
        let mut paths =
            entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(error)?;
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default();
            if path.is_dir() && (name == "jinxes" || name == "jinxs") {
                files.add_jinxes(&path)?;
            } else if path.extension().is_some_and(|ending| ending == "ctx") {
                files.ctx.push(Source::from_file(&path)?);
            } else if path.extension().is_some_and(|ending| ending == "npc") {
                files.npc.push(Source::from_file(&path)?);
            }
        }
        Ok(files)
    }

    fn add_jinxes(&mut self, directory: &Path) -> Result<(), Error> {
        let error = |source| Error::Read { path: directory.to_owned(), source };
        let entries = directory.read_dir().map_err(error)?;
        let mut paths =
            entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(error)?;
        paths.sort();
        for path in paths {
            // A link to a directory could lead around in circles.
            if path.is_dir() && !path.is_symlink() {
                self.add_jinxes(&path)?;
            } else if path.extension().is_some_and(|ending| ending == "jinx") {
                self.jinx.push(Source::from_file(&path)?);
            }
        }
        Ok(())
    }

    /// The built-in jinxes.
    pub fn stock_jinxes() -> Self {
        let mut files = Files::default();
        files.add_embedded(&stock::JINXES, Path::new("jinxes"));
        files
    }

    /// A built-in team.
    pub fn stock_team(name: &str) -> Option<Self> {
        let mut files = Files::default();
        files.add_embedded(stock::TEAMS.get_dir(name)?, Path::new("teams"));
        Some(files)
    }

    fn add_embedded(&mut self, directory: &Dir, root: &Path) {
        for entry in directory.entries() {
            match entry {
                DirEntry::Dir(directory) => self.add_embedded(directory, root),
                DirEntry::File(file) => {
                    let text = file.contents_utf8().unwrap_or_default().to_owned();
                    let kind = match file.path().extension().and_then(|ending| ending.to_str()) {
                        Some("ctx") => &mut self.ctx,
                        Some("npc") => &mut self.npc,
                        Some("jinx") => &mut self.jinx,
                        _ => continue,
                    };
                    kind.push(Source { path: root.join(file.path()), text });
                }
            }
        }
    }
}
