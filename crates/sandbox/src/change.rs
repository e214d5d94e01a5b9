//! A program's changes to paths of the work directory, in words that a person can confirm or
//! refuse.

use std::fmt;
use std::path::{Path, PathBuf};

/// How many changes are listed individually.
const TOLD: usize = 8;
/// The depth at which files are still inspected: each folder takes open files and stack space.
const DEPTH: usize = 256;

/// Whether a path is too deep to inspect or change.
pub fn is_deep(path: &Path) -> bool {
    path.iter().nth(DEPTH).is_some()
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// A path that a program has changed, with its kinds before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path, relative to the work directory; absolute if it is in a git folder elsewhere.
    pub path: PathBuf,
    /// The kind before; `None` if nothing was there.
    pub before: Option<Kind>,
    /// The kind now; `None` if nothing is there.
    pub after: Option<Kind>,
    /// How many files are gone with it, itself included.
    pub files: usize,
    /// Where a file that is gone can be found now, with the same content.
    pub moved: Option<PathBuf>,
    /// Whether programs of this sandbox made the old entry, and no one else has touched it since.
    pub own: bool,
    /// Whether the change removes something that isn't [`own`](Self::own).
    pub loses: bool,
    /// Whether users who couldn't write the entry before now can.
    pub opens: bool,
    /// The user's tool that obeys the new entry only because of its path: a git hook, an editor
    /// setting.
    pub obeyed_by: Option<&'static str>,
}

impl Change {
    /// Whether the change needs a confirmation.
    pub fn needs_a_yes(&self) -> bool {
        self.loses || self.reaches_others()
    }

    /// The change with its path prefixed by `folder`.
    pub(super) fn named(&self, folder: &Path) -> Self {
        let named = |path: &PathBuf| folder.join(path);
        Change { path: named(&self.path), moved: self.moved.as_ref().map(named), ..self.clone() }
    }

    /// Whether the change affects others: the user's tools, or other users of the machine.
    /// A confirmation of losses doesn't cover that.
    pub fn reaches_others(&self) -> bool {
        self.opens || self.obeyed_by.is_some()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if is_deep(&self.path) {
            let top: PathBuf = self.path.iter().take(1).collect();
            return write!(f, "lays folders deeper than {DEPTH} in {}", top.display());
        }
        let path = self.path.display();
        match (self.before, self.after) {
            (None, _) => write!(f, "creates {path}"),
            (Some(_), None) => match &self.moved {
                Some(place) => write!(f, "moves {path} to {}", place.display()),
                None if self.before == Some(Kind::Directory) => {
                    let s = if self.files == 1 { "" } else { "s" };
                    write!(f, "removes {path}/ with {} file{s}", self.files)
                }
                None => write!(f, "removes {path}"),
            },
            (Some(_), Some(_)) if self.loses => write!(f, "overwrites {path}"),
            (Some(_), Some(_)) if self.opens && self.obeyed_by.is_none() => {
                return write!(f, "lets others write {path}");
            }
            (Some(_), Some(_)) => write!(f, "changes {path}"),
        }?;
        if self.opens {
            f.write_str(", which others may write then")?;
        }
        self.obeyed_by.map_or(Ok(()), |tool| write!(f, ", which {tool} obeys"))
    }
}

/// The changes that need a confirmation, each as a phrase; of many, the first ones and how many
/// more there are.
/// Those that affect others come first.
pub fn losses(changes: &[Change]) -> Vec<String> {
    let mut lost: Vec<&Change> = changes.iter().filter(|change| change.needs_a_yes()).collect();
    lost.sort_by_key(|change| !change.reaches_others());
    phrases(lost.iter().map(ToString::to_string).collect())
}

/// The first of many phrases, and how many more there are.
pub fn phrases(mut all: Vec<String>) -> Vec<String> {
    if all.len() > TOLD {
        let more = all.len() - TOLD;
        all.truncate(TOLD);
        all.push(format!("and {more} more"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_in_words() {
        let change = Change {
            path: "a".into(),
            before: Some(Kind::File),
            after: None,
            files: 1,
            moved: None,
            own: false,
            loses: true,
            opens: false,
            obeyed_by: None,
        };
        let check = |change: &Change, expected: &str| assert_eq!(change.to_string(), expected);
        check(&change, "removes a");
        check(&Change { moved: Some("d/b".into()), ..change.clone() }, "moves a to d/b");
        check(&Change { after: Some(Kind::Link), ..change.clone() }, "overwrites a");
        check(&Change { after: Some(Kind::File), loses: false, ..change.clone() }, "changes a");
        let open = Change { after: Some(Kind::File), loses: false, opens: true, ..change.clone() };
        check(&open, "lets others write a");
        check(&Change { loses: true, ..open.clone() }, "overwrites a, which others may write then");
        assert!(open.needs_a_yes());
        check(
            &Change { before: Some(Kind::Directory), files: 2, ..change.clone() },
            "removes a/ with 2 files",
        );
        check(&Change { before: None, after: Some(Kind::File), ..change.clone() }, "creates a");
        check(
            &Change { before: None, after: Some(Kind::File), obeyed_by: Some("git"), ..change.clone() },
            "creates a, which git obeys",
        );
        let lines = losses(&vec![change; 10]);
        assert_eq!((lines.len(), lines[8].as_str()), (9, "and 2 more"));
    }
}
