//! `AGENTS.md`: a directory's instructions for the agents that work in it.
//!
//! The file of the work directory counts, and those of its parents up to the repository's root, the
//! directory with `.git`.
//! This module finds and reads them.
//! It must not decide whether they may be read: a person does.

use std::path::{Path, PathBuf};

use alara_engine::Segment;

use crate::error::Error;
use crate::source::Source;
use crate::team::File;
use crate::trace::{ContextFile, Start};
use crate::types::{Location, sha256};

/// The name of the files.
pub const NAME: &str = "AGENTS.md";
/// Most bytes of all of them together: they are in every prompt.
pub const BYTES: usize = 32 << 10;
/// The segment's name.
const SEGMENT: &str = "context_files";

/// The context files of a work directory, with their contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextFiles {
    /// The repository's root, or the work directory if there is no repository.
    pub root: PathBuf,
    /// The files that aren't empty, the outermost first.
    pub files: Vec<ContextFile>,
    text: String,
}

impl ContextFiles {
    /// Reads the context files of the work directory `work`.
    /// Only plain files below the root are read, wherever links lead.
    ///
    /// # Errors
    /// One of them can't be read or isn't text, or they are longer than [`BYTES`] together.
    /// Then none of them counts: half of the instructions may mislead.
    pub fn read(work: &Path) -> Result<Self, Error> {
        let read = |source| alara_team::Error::Read { path: work.to_owned(), source };
        let work = work.canonicalize().map_err(read)?;
        let root = work.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&work);
        let mut found = ContextFiles { root: root.to_owned(), ..ContextFiles::default() };
        let folders: Vec<&Path> = work.ancestors().take_while(|folder| folder.starts_with(root)).collect();
        let (mut texts, mut bytes) = (Vec::new(), 0);
        for folder in folders.into_iter().rev() {
            let path = folder.join(NAME);
            if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
                continue;
            }
            let mut problems = Vec::new();
            let source = File::on_disk(path.clone(), root.to_owned()).read(&mut problems);
            let unread = || Source { path: path.clone(), text: String::new() };
            let Some(source) = source else {
                let problem = problems.pop();
                let problem =
                    problem.unwrap_or_else(|| unread().error(Location::default(), "it can't be read"));
                return Err(alara_team::Error::Invalid(problem).into());
            };
            bytes += source.text.len();
            if bytes > BYTES {
                let message =
                    format!("with this file {NAME} has {bytes} bytes, at most {BYTES} are read: shorten it");
                return Err(alara_team::Error::Invalid(unread().error(Location::default(), message)).into());
            }
            let text = source.text.trim_start_matches('\u{feff}').trim();
            if text.is_empty() {
                continue;
            }
            let shown = path.strip_prefix(root).unwrap_or(&path).to_owned();
            texts.push(format!("<instructions file=\"{}\">\n{text}\n</instructions>", shown.display()));
            found.files.push(ContextFile {
                path: shown,
                bytes: source.text.len(),
                sha256: sha256(source.text.as_bytes()),
            });
        }
        if texts.len() > 1 {
            texts.insert(0, "Where these instructions differ, the later ones count.".to_owned());
        }
        found.text = texts.join("\n\n");
        Ok(found)
    }

    /// The files that a recorded conversation began with.
    pub fn recorded(start: &Start) -> Self {
        let segment = start.system.iter().find(|segment| segment.name == SEGMENT);
        let text = segment.map(|segment| segment.text.clone()).unwrap_or_default();
        ContextFiles { root: PathBuf::new(), files: start.context_files.clone(), text }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// All of them as one part of a system prompt; `None` if there are none.
    pub fn segment(&self) -> Option<Segment> {
        (!self.text.is_empty()).then(|| Segment { name: SEGMENT.to_owned(), text: self.text.clone() })
    }

    /// The SHA-256 of their contents, in hexadecimal: it changes when any of them does.
    pub fn fingerprint(&self) -> String {
        sha256(&serde_json::to_vec(&self.files).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with these files.
    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    fn text(dir: &tempfile::TempDir, work: &str) -> String {
        let found = ContextFiles::read(&dir.path().join(work)).unwrap();
        found.segment().map(|segment| segment.text).unwrap_or_default()
    }

    #[test]
    fn files_up_to_the_repositorys_root_are_read_outermost_first() {
        let files = [
            ("AGENTS.md", "far out"),
            ("repo/.git", "gitdir: elsewhere"),
            ("repo/AGENTS.md", "\u{feff}outer\r\n"),
            ("repo/a/AGENTS.md", " \n"),
            ("repo/a/b/AGENTS.md", "inner\n"),
            ("repo/c/AGENTS.md", "beside"),
        ];
        let dir = directory(&files);
        assert_eq!(
            text(&dir, "repo/a/b"),
            "Where these instructions differ, the later ones count.\n\n\
             <instructions file=\"AGENTS.md\">\nouter\n</instructions>\n\n\
             <instructions file=\"a/b/AGENTS.md\">\ninner\n</instructions>"
        );
        let found = ContextFiles::read(&dir.path().join("repo/a/b")).unwrap();
        assert_eq!(found.files[1].path, Path::new("a/b/AGENTS.md"));
        assert_eq!((found.files[1].bytes, found.files[1].sha256.len()), (6, 64));
        // Without a repository, only the file of the directory itself.
        std::fs::remove_file(dir.path().join("repo/.git")).unwrap();
        assert_eq!(text(&dir, "repo/a/b"), "<instructions file=\"AGENTS.md\">\ninner\n</instructions>");
        assert_eq!(text(&dir, "repo/a"), "");
    }

    #[test]
    fn a_changed_file_is_another_one() {
        let dir = directory(&[("AGENTS.md", "one")]);
        let fingerprint = || ContextFiles::read(dir.path()).unwrap().fingerprint();
        let before = fingerprint();
        assert_eq!(fingerprint(), before);
        std::fs::write(dir.path().join("AGENTS.md"), "two").unwrap();
        assert_ne!(fingerprint(), before);
    }

    #[test]
    fn what_can_not_be_read_is_an_error() {
        let check = |files: &[(&str, &str)], expected: &str| {
            let dir = directory(files);
            let error = ContextFiles::read(&dir.path().join("r")).unwrap_err().to_string();
            assert!(error.contains("AGENTS.md: ") && error.contains(expected), "{error}");
        };
        let long = "x".repeat(BYTES);
        check(&[("r/AGENTS.md", &format!("{long}x"))], "32769 bytes, at most 32768 are read");
        check(&[("r/AGENTS.md/x", "")], "it is no regular file");
        let both = [(".git/x", ""), ("AGENTS.md", "x"), ("r/AGENTS.md", &*long)];
        check(&both, "32769 bytes");
        let dir = directory(&[]);
        std::fs::write(dir.path().join("AGENTS.md"), [b'a', 0xff]).unwrap();
        let error = ContextFiles::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("it can't be read: "), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_out_is_not_followed() {
        let dir =
            directory(&[("secret.md", "secret"), ("r/.git/x", ""), ("r/inner.md", "inner"), ("r/a/x", "")]);
        let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, dir.path().join(from)).unwrap();
        link("../inner.md", "r/a/AGENTS.md");
        assert!(text(&dir, "r/a").contains("inner"));
        link("../secret.md", "r/AGENTS.md");
        let error = ContextFiles::read(&dir.path().join("r/a")).unwrap_err().to_string();
        assert!(error.contains("this link leads out of"), "{error}");
    }
}
