use std::fs;
use std::path::Path;

use super::*;

/// The author of changes in these tests.
const CODER: By = By { text: "coder: shell", trace: None, scope: "" };

/// A work directory, and the journals of sessions that work in it.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Place { root: tempfile::tempdir().unwrap() };
        fs::create_dir_all(place.work().join("docs")).unwrap();
        place.write("a", "one\n");
        place.write("docs/b", "two\n");
        place
    }

    fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.work().join(path), text).unwrap();
    }

    fn journal(&self, id: &str) -> Journal {
        Journal::new(self.root.path().join("undo").join(id))
    }

    fn recorded(&self, id: &str) -> Recorded {
        Recorded::read(&self.root.path().join("undo").join(id)).unwrap()
    }

    /// Every path with its text, or `/`.
    fn content(&self) -> Vec<(String, String)> {
        fn add(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                let name = path.strip_prefix(root).unwrap().display().to_string();
                if entry.file_type().unwrap().is_dir() {
                    found.push((name, "/".to_owned()));
                    add(root, &path, found);
                } else if entry.file_type().unwrap().is_symlink() {
                    found.push((name, fs::read_link(&path).unwrap().display().to_string()));
                } else {
                    found.push((name, String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()));
                }
            }
        }
        let mut found = Vec::new();
        add(&self.work(), &self.work(), &mut found);
        found.sort();
        found
    }

    /// Lets a session of this name run a program with unknown changes.
    fn does(&self, id: &str, program: impl FnOnce()) {
        let journal = self.journal(id);
        let before = journal.look(&self.work(), CODER);
        program();
        journal.looked(before);
        assert_eq!(journal.problem(), None);
    }

    fn back(&self, id: &str, by: &str, force: bool) -> Result<Vec<Changed>, Refused> {
        take_back(&self.recorded(id), &self.work(), &self.journal(by), force).unwrap()
    }
}

/// Many kinds of changes to a work directory.
fn havoc(place: &Place) {
    let work = place.work();
    place.write("a", "changed\n");
    fs::remove_dir_all(work.join("docs")).unwrap();
    fs::create_dir_all(work.join("new/deep")).unwrap();
    place.write("new/deep/c", "three");
    #[cfg(unix)]
    std::os::unix::fs::symlink("a", work.join("docs")).unwrap();
}

#[test]
fn what_a_session_changed_is_taken_back_and_that_too() {
    let place = Place::new();
    let before = place.content();
    place.does("1", || havoc(&place));
    let after = place.content();
    assert_ne!(before, after);
    let words: Vec<String> = net(&place.recorded("1"), &place.work())
        .iter()
        .map(|change| format!("{} {}", change.verb(), change.path.display()))
        .collect();
    let docs = if cfg!(unix) { "changed docs" } else { "removed docs" };
    assert_eq!(
        words,
        ["changed a", docs, "removed docs/b", "created new", "created new/deep", "created new/deep/c"]
    );
    assert_eq!(place.back("1", "2", false).unwrap().len(), 6);
    assert_eq!(place.content(), before);
    // A second undo has nothing to do.
    assert_eq!(place.back("1", "3", false), Ok(Vec::new()));
    // An undo is a session too.
    assert_eq!(place.recorded("2").entries[0].by, "alara undo 1");
    place.back("2", "4", false).unwrap();
    assert_eq!(place.content(), after);
}

#[test]
fn announced_changes_are_taken_back_without_a_look_at_the_rest() {
    let place = Place::new();
    let before = place.content();
    let journal = place.journal("1");
    let paths = ["a", "docs", "docs/b", "new", "new/deep", "new/deep/c"].map(Path::new);
    let kept = journal.before(&place.work(), paths.into_iter(), CODER);
    havoc(&place);
    journal.after(kept);
    place.back("1", "2", false).unwrap();
    assert_eq!(place.content(), before);
}

#[test]
fn what_somebody_changed_since_is_not_taken_back_unless_forced() {
    let place = Place::new();
    place.does("1", || place.write("a", "by the session\n"));
    place.write("a", "by me\n");
    place.write("mine", "mine\n");
    let refused = Refused { changed: vec!["a".into()], lost: vec![] };
    assert_eq!(place.back("1", "2", false), Err(refused));
    assert_eq!(fs::read(place.work().join("a")).unwrap(), b"by me\n");
    place.back("1", "2", true).unwrap();
    assert_eq!(fs::read(place.work().join("a")).unwrap(), b"one\n");
    assert_eq!(fs::read(place.work().join("mine")).unwrap(), b"mine\n");
    // My own later changes aren't lost either.
    place.back("2", "3", false).unwrap();
    assert_eq!(fs::read(place.work().join("a")).unwrap(), b"by me\n");
}

#[test]
fn what_is_too_long_is_told_and_not_lost() {
    let place = Place::new();
    let long = vec![b'x'; FILE_BYTES as usize + 1];
    fs::write(place.work().join("long"), &long).unwrap();
    place.does("1", || {
        place.write("a", "changed\n");
        place.write("long", "short\n");
    });
    let refused = Refused { changed: vec![], lost: vec!["long".into()] };
    assert_eq!(place.back("1", "2", false), Err(refused));
    place.back("1", "2", true).unwrap();
    assert_eq!(fs::read(place.work().join("a")).unwrap(), b"one\n");
    assert_eq!(fs::read(place.work().join("long")).unwrap(), b"short\n");
}

#[cfg(unix)]
#[test]
fn bytes_modes_and_odd_names_come_back() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let name = place.work().join(std::ffi::OsStr::from_bytes(b"caf\xe9 100%\n"));
    fs::write(&name, b"\xff\0\r\n").unwrap();
    fs::set_permissions(&name, PermissionsExt::from_mode(0o640)).unwrap();
    place.does("1", || fs::remove_file(&name).unwrap());
    assert!(!name.exists());
    place.back("1", "2", false).unwrap();
    assert_eq!(fs::read(&name).unwrap(), b"\xff\0\r\n");
    assert_eq!(name.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
}

#[cfg(unix)]
#[test]
fn nothing_is_written_through_a_link() {
    let place = Place::new();
    place.does("1", || fs::remove_file(place.work().join("docs/b")).unwrap());
    let outside = place.root.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir(place.work().join("docs")).unwrap();
    std::os::unix::fs::symlink(&outside, place.work().join("docs")).unwrap();
    let error = take_back(&place.recorded("1"), &place.work(), &place.journal("2"), true).unwrap_err();
    assert!(error.to_string().ends_with("what it lies in is no directory any more"), "{error}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_session_that_changes_nothing_leaves_nothing() {
    let place = Place::new();
    place.does("1", || {});
    assert!(!place.root.path().join("undo/1").exists());
    assert_eq!(sessions(&place.root.path().join("undo")).unwrap().len(), 0);
    // Only the needed contents are kept.
    place.does("2", || place.write("a", "changed\n"));
    assert_eq!(fs::read_dir(place.root.path().join("undo/2/kept")).unwrap().count(), 1);
    assert_eq!(sessions(&place.root.path().join("undo")).unwrap().len(), 1);
}

#[test]
fn what_others_change_in_between_is_not_the_sessions() {
    let place = Place::new();
    let journal = place.journal("1");
    let before = journal.look(&place.work(), CODER);
    place.write("a", "by the session\n");
    journal.looked(before);
    place.write("docs/b", "by me\n");
    let before = journal.look(&place.work(), CODER);
    place.write("docs/b", "by me, and more\n");
    journal.looked(before);
    drop(journal);
    place.back("1", "2", false).unwrap();
    assert_eq!(fs::read(place.work().join("a")).unwrap(), b"one\n");
    assert_eq!(fs::read(place.work().join("docs/b")).unwrap(), b"by me\n");
}

#[test]
fn what_was_cut_off_is_known_by_what_was_there_before() {
    let place = Place::new();
    let before = place.content();
    let journal = place.journal("1");
    let look = journal.look(&place.work(), CODER);
    place.write("a", "done\n");
    journal.looked(look);
    place.write("docs/b", "by me\n");
    let between = place.content();
    let _cut = journal.look(&place.work(), CODER);
    havoc(&place);
    // A killed process drops nothing.
    std::mem::forget(journal);
    let mut session = place.recorded("1");
    assert_eq!(session.entries.len(), 2);
    let last = session.entries.remove(1);
    assert!(last.begun && last.uncovered.is_none());
    let cut = Recorded { entries: vec![last], ..place.recorded("1") };
    take_back(&cut, &place.work(), &place.journal("2"), false).unwrap().unwrap();
    assert_eq!(place.content(), between);
    assert_ne!(place.content(), before);
}

#[cfg(unix)]
#[test]
fn what_was_killed_before_it_changed_something_is_not_kept_for_ever() {
    let place = Place::new();
    for name in ["old", "young"] {
        let journal = place.journal(name);
        drop(journal.look(&place.work(), CODER));
        std::mem::forget(journal);
    }
    let undo = place.root.path().join("undo");
    let before = SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
    fs::File::open(undo.join("old")).unwrap().set_modified(before).unwrap();
    place.does("1", || place.write("a", "changed\n"));
    assert!(!undo.join("old").exists() && undo.join("young").exists() && undo.join("1").exists());
}
