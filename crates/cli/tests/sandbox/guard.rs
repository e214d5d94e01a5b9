//! The guard for files in a work directory: programs that remove something, and the user's
//! confirmation.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use alara_harness::sandbox::{
    Change, Enforced, Error, Guarded, Guarding, Policy, Risk, Sandbox, Script, losses,
};
use alara_harness::undo::By;

use super::needs;

/// A guarded work directory with files.
pub struct GuardedDir {
    pub root: tempfile::TempDir,
    pub sandbox: Sandbox,
}

/// The author of commits.
const OWNER: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a \
    GIT_COMMITTER_EMAIL=a@example.org";

/// The result of a guarded program: its exit status, whether its work was reverted, and the
/// questions.
pub type Came = (Option<i32>, bool, Vec<String>);

impl GuardedDir {
    pub fn new() -> Self {
        let root = tempfile::tempdir_in("/var/tmp").or_else(|_| tempfile::tempdir()).unwrap();
        let work = root.path().join("work");
        std::fs::create_dir_all(work.join("docs/deep")).unwrap();
        for name in ["hi", "test.py", "docs/a", "docs/deep/b"] {
            std::fs::write(work.join(name), format!("this is {name}\n")).unwrap();
        }
        std::os::unix::fs::symlink("hi", work.join("link")).unwrap();
        let sandbox = Sandbox::new(&work, Policy { guard: true, ..Policy::default() }).unwrap();
        GuardedDir { root, sandbox }
    }

    /// Sets up a folder by `code`, as its owner, with a subfolder as the work directory.
    pub fn made(code: &str, folder: &str) -> Self {
        Self::made_in(GuardedDir::new().root, code, folder)
    }

    /// Like [`made`](Self::made), in a folder of this root, which is empty or has the files of
    /// [`new`](Self::new).
    pub fn made_in(root: tempfile::TempDir, code: &str, folder: &str) -> Self {
        let work = root.path().join("work");
        std::fs::create_dir_all(&work).unwrap();
        let code = format!("set -e; {OWNER}; {code}");
        let made =
            std::process::Command::new("bash").args(["-c", &code]).current_dir(&work).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let sandbox = Sandbox::new(&work.join(folder), Policy { guard: true, ..Policy::default() }).unwrap();
        GuardedDir { root, sandbox }
    }

    pub fn work(&self) -> std::path::PathBuf {
        self.root.path().join("work")
    }

    /// Runs a program with a user who answers `yes` or no.
    pub fn bash(&self, code: &str, yes: bool) -> Came {
        let program = ["bash", "-c", code];
        let timeout = Duration::from_secs(60);
        let script = Script::new(&program, timeout);
        let mut asked = Vec::new();
        let ran = self.sandbox.run_guarded::<Error>(&script, false, false, By::default(), &mut |risk| {
            match risk {
                Risk::Losses(changes, _) => asked.extend(losses(changes)),
                Risk::Refused(changes) => asked.extend(changes.iter().map(ToString::to_string)),
                risk => panic!("{risk:?}"),
            }
            Ok(yes)
        });
        match ran.unwrap() {
            Guarded::Ran(output) => (output.exit, false, asked),
            Guarded::Undone(output) => (output.exit, true, asked),
            Guarded::Refused => panic!("{code} did not run"),
        }
    }
}

/// Returns every path below a directory with its contents: a file's text, a link's target.
fn content(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let text = if kind.is_symlink() {
                format!("-> {}", std::fs::read_link(&path).unwrap().display())
            } else if kind.is_dir() {
                left.push(path.clone());
                "/".to_owned()
            } else {
                String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned()
            };
            found.insert(path.strip_prefix(root).unwrap().display().to_string(), text);
        }
    }
    found
}

/// Whether layers are available here; prints a note if not.
pub fn layered(test: &str) -> bool {
    needs(test, |found: &Enforced| found.mounts && found.landlock > 0).is_some()
        && match GuardedDir::new().sandbox.guarding() {
            Some(Guarding::Layer) => true,
            other => {
                eprintln!("SKIPPED: {test}: a work directory is guarded by {other:?}");
                false
            }
        }
}

#[test]
fn nothing_that_was_there_is_lost_without_a_yes() {
    if !layered("nothing_that_was_there_is_lost_without_a_yes") {
        return;
    }
    let check = |code: &str, expected: &[&str]| {
        let dir = GuardedDir::new();
        let before = content(&dir.work());
        let (exit, undone, asked) = dir.bash(code, false);
        assert_eq!(
            (exit, undone, asked.as_slice()),
            (Some(0), true, &expected.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..]),
            "{code}"
        );
        assert_eq!(content(&dir.work()), before, "{code}");
        // After a yes, the result is the same as without a guard.
        let dir = GuardedDir::new();
        let (_, undone, _) = dir.bash(code, true);
        let guarded = content(&dir.work());
        let plain = GuardedDir::new();
        let open = Sandbox::new(&plain.work(), Policy::default()).unwrap();
        let program = ["bash", "-c", code];
        let timeout = Duration::from_secs(60);
        let script = Script::new(&program, timeout);
        open.run(&script).unwrap();
        assert!(!undone, "{code}");
        assert_eq!(guarded, content(&plain.work()), "{code}");
        assert!(guarded != before, "{code}");
    };
    check("rm -f hi", &["removes hi"]);
    check("rm -rf docs", &["removes docs/ with 2 files"]);
    check(
        "rm -rf docs; mkdir docs; echo new > docs/c",
        &["removes docs/a", "removes docs/deep/ with 1 file"],
    );
    check("rm -rf docs; echo file > docs", &["overwrites docs"]);
    check("rm hi; mkdir hi; echo x > hi/x", &["overwrites hi"]);
    check("echo new > test.py", &["overwrites test.py"]);
    check(": > test.py", &["overwrites test.py"]);
    check("sed -i s/this/that/ docs/a", &["overwrites docs/a"]);
    check("mv hi bye", &["moves hi to bye"]);
    check("mv hi docs/a", &["overwrites docs/a", "removes hi"]);
    check("mv docs/a docs/deep/c; echo new > other", &["moves docs/a to docs/deep/c"]);
    check("mv docs papers", &["removes docs/ with 2 files"]);
    check("ln -sfn docs link", &["overwrites link"]);
    check("rm hi; ln -s test.py hi", &["overwrites hi"]);
    check("echo new > link", &["overwrites hi"]);
    check(
        "rm -rf ./* .[!.]*",
        &["removes docs/ with 2 files", "removes hi", "removes link", "removes test.py"],
    );
    check("python3 -c 'open(\"hi\", \"r+\").truncate(3)'", &["overwrites hi"]);
    check("rm hi; exit 0", &["removes hi"]);
}

#[test]
fn what_loses_nothing_needs_no_question() {
    if !layered("what_loses_nothing_needs_no_question") {
        return;
    }
    let check = |code: &str, changed: &[(&str, &str)]| {
        let dir = GuardedDir::new();
        let mut expected = content(&dir.work());
        expected.extend(changed.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
        assert_eq!(dir.bash(code, false), (Some(0), false, vec![]), "{code}");
        assert_eq!(content(&dir.work()), expected, "{code}");
    };
    check("cat hi docs/a", &[]);
    check("echo new > new", &[("new", "new\n")]);
    check("mkdir -p x/y; echo new > x/y/z", &[("x", "/"), ("x/y", "/"), ("x/y/z", "new\n")]);
    check("echo new > docs/c", &[("docs/c", "new\n")]);
    check("echo more >> hi", &[("hi", "this is hi\nmore\n")]);
    check("ln -s hi other", &[("other", "-> hi")]);
    check("touch hi; chmod 600 test.py", &[]);
    check("echo 'this is hi' > hi", &[]);
    check("mkfifo pipe; rm pipe; echo x > t; rm t", &[]);
    // Nothing is written outside the work directory, wherever a link points.
    let dir = GuardedDir::new();
    std::fs::create_dir(dir.root.path().join("outside")).unwrap();
    std::os::unix::fs::symlink("../outside", dir.work().join("way")).unwrap();
    assert_ne!(dir.bash("echo x > way/x", true).0, Some(0));
    assert_eq!(content(&dir.root.path().join("outside")), BTreeMap::new());
}

#[test]
fn what_programs_made_is_theirs_until_somebody_else_changes_it() {
    if !layered("what_programs_made_is_theirs_until_somebody_else_changes_it") {
        return;
    }
    let dir = GuardedDir::new();
    let free = |code: &str| assert_eq!(dir.bash(code, false), (Some(0), false, vec![]), "{code}");
    free("echo one > a; mkdir d; echo two > d/b; ln -s a l");
    free("echo three > a; mv d/b d/c; ln -sfn d l; sed -i s/three/3/ a");
    // Rewritten without any change.
    free("ln -sfn d l; cp a a2; touch -d @1000 a2; mv a2 a");
    free("ln -sfn e l; echo 4 > a");
    free("rm -r a l d/c");
    free("echo again > a; echo 1 > d/1");
    free("rm -r d");
    // The file has been changed by somebody else.
    std::fs::write(dir.work().join("a"), "mine now").unwrap();
    assert_eq!(dir.bash("rm a", false), (Some(0), true, vec!["removes a".to_owned()]));
    assert_eq!(std::fs::read_to_string(dir.work().join("a")).unwrap(), "mine now");
    free("mkdir e; echo e > e/e");
    std::fs::write(dir.work().join("e/mine"), "mine").unwrap();
    assert_eq!(dir.bash("rm -r e", false).2, ["removes e/ with 2 files"]);
    // Confirming a change doesn't make the file the program's own.
    assert_eq!(dir.bash("echo x > hi", true).2, ["overwrites hi"]);
    assert_eq!(dir.bash("rm hi", false).2, ["removes hi"]);
    // Until everything is permitted.
    dir.sandbox.permit();
    free("rm -rf ./*");
    assert_eq!(content(&dir.work()), BTreeMap::new());
}

#[test]
fn permissions_times_and_attributes_are_taken_over() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    if !layered("permissions_times_and_attributes_are_taken_over") {
        return;
    }
    let dir = GuardedDir::new();
    let code = "mkdir -m 750 d; echo x > d/x; chmod 640 d/x; touch -d @1000 d/x d; chmod 755 test.py; mkfifo p; \
                mkdir -m 500 closed; touch -d @2000 hi";
    assert_eq!(dir.bash(code, false), (Some(0), false, vec![]));
    let found = |path: &str| {
        let found = dir.work().join(path).symlink_metadata().unwrap();
        (found.permissions().mode() & 0o7777, found.mtime())
    };
    assert_eq!(found("d"), (0o750, 1000));
    assert_eq!(found("d/x"), (0o640, 1000));
    assert_eq!(found("test.py").0, 0o755);
    assert_eq!(found("hi").1, 2000);
    assert_eq!(found("closed").0, 0o500);
    assert_eq!(dir.bash("[ -p p ] && [ -x test.py ]", false).0, Some(0));
}

/// A layer's files take no more disk space than the originals.
#[test]
fn holes_and_names_of_one_file_are_taken_over_as_such() {
    use std::os::unix::fs::MetadataExt;
    if !layered("holes_and_names_of_one_file_are_taken_over_as_such") {
        return;
    }
    let dir = GuardedDir::new();
    let code = "truncate -s 200M s; printf end | dd of=t bs=1 seek=100M status=none; echo all > f; \
                ln f g; ln f docs/h; ln test.py i";
    assert_eq!(dir.bash(code, false), (Some(0), false, vec![]));
    let found = |name: &str| dir.work().join(name).metadata().unwrap();
    assert_eq!((found("s").len(), found("t").len()), (200 << 20, (100 << 20) + 3));
    assert!(found("s").blocks() * 512 < 1 << 20, "{}", found("s").blocks());
    assert!(found("t").blocks() * 512 < 1 << 20, "{}", found("t").blocks());
    assert!(std::fs::read(dir.work().join("t")).unwrap().ends_with(b"\0end"));
    assert_eq!((found("f").ino(), found("f").ino()), (found("g").ino(), found("docs/h").ino()));
    assert_eq!(std::fs::read_to_string(dir.work().join("docs/h")).unwrap(), "all\n");
    assert_eq!(std::fs::read_to_string(dir.work().join("i")).unwrap(), "this is test.py\n");
    // They still count as the program's.
    assert_eq!(dir.bash("rm f; echo more >> g", false), (Some(0), false, vec![]));
}

#[test]
fn folders_that_lie_too_deep_are_undone() {
    if !layered("folders_that_lie_too_deep_are_undone") {
        return;
    }
    let dir = GuardedDir::new();
    let before = content(&dir.work());
    let code = "python3 -c 'import os\nfor _ in range(3000): os.mkdir(\"a\"); os.chdir(\"a\")'";
    let code = code.replace("\\n", "\n");
    let told = ["lays folders deeper than 256 in a".to_owned()];
    assert_eq!(dir.bash(&code, true), (Some(0), true, told.to_vec()));
    assert_eq!(content(&dir.work()), before);
    // These don't end anything that others have started either.
    let made = std::process::Command::new("bash").args(["-c", &code]).current_dir(dir.work()).status();
    assert!(made.unwrap().success());
    assert_eq!(dir.bash("rm -rf a", true), (Some(0), true, told.to_vec()));
    let gone = std::process::Command::new("rm").args(["-rf", "a"]).current_dir(dir.work()).status();
    assert!(gone.unwrap().success());
}

#[test]
fn others_get_no_rights_without_a_yes() {
    use std::os::unix::fs::PermissionsExt;
    if !layered("others_get_no_rights_without_a_yes") {
        return;
    }
    let dir = GuardedDir::new();
    let set = |path: &str, mode| {
        std::fs::set_permissions(dir.work().join(path), PermissionsExt::from_mode(mode)).unwrap();
    };
    let mode = |path: &str| dir.work().join(path).metadata().unwrap().permissions().mode() & 0o7777;
    for (path, mode) in [(".", 0o755), ("hi", 0o644), ("docs", 0o755), ("docs/a", 0o644)] {
        set(path, mode);
    }
    let asked = |code: &str, expected: &[&str]| {
        assert_eq!(
            dir.bash(code, false),
            (Some(0), true, expected.iter().map(|s| (*s).to_owned()).collect())
        );
        assert_eq!((mode("hi"), mode("docs"), mode("docs/a")), (0o644, 0o755, 0o644), "{code}");
    };
    asked("chmod 666 hi", &["lets others write hi"]);
    asked("chmod 664 hi; echo more >> hi", &["lets others write hi"]);
    asked("chmod 777 docs", &["lets others write docs"]);
    asked("echo x > hi; chmod 666 hi", &["overwrites hi, which others may write then"]);
    // A general permission for losses doesn't cover this.
    dir.sandbox.permit();
    asked("chmod o+w docs/a", &["lets others write docs/a"]);
    // The work directory keeps its own permissions, and removed files are removed.
    for own in ["777", "000"] {
        let code = format!("echo {own} > new; chmod {own} .");
        assert_eq!(dir.bash(&code, false), (Some(0), false, vec![]), "{code}");
        assert_eq!(
            (mode("."), std::fs::read_to_string(dir.work().join("new")).unwrap()),
            (0o755, format!("{own}\n"))
        );
    }
    assert_eq!(dir.bash("chmod 600 hi; chmod 755 test.py", false), (Some(0), false, vec![]));
    assert_eq!((mode("hi"), mode("test.py")), (0o600, 0o755));
    assert_eq!(dir.bash("chmod 666 hi", true).2, ["lets others write hi"]);
    assert_eq!(mode("hi"), 0o666);
}

/// On a directory, the setgid bit has another meaning, and is common there.
#[test]
fn a_work_directory_of_a_group_is_worked_in() {
    use std::os::unix::fs::PermissionsExt;
    if !layered("a_work_directory_of_a_group_is_worked_in") {
        return;
    }
    let dir = GuardedDir::new();
    std::fs::set_permissions(dir.work(), PermissionsExt::from_mode(0o2775)).unwrap();
    let code = "mkdir d && chmod 2755 d && cp -a d e && chmod 755 docs && \
                echo x > f && chmod 2755 f && mkfifo p && chmod 2755 p && ! chmod 4755 f 2>/dev/null";
    assert_eq!(dir.bash(code, false), (Some(0), false, vec![]));
    let mode = |path: &str| dir.work().join(path).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("."), mode("d"), mode("e")), (0o2775, 0o2755, 0o2755));
    let asked = dir.bash("git init -q --shared=group r", true);
    assert_eq!(asked, (Some(0), false, vec!["creates r/.git/config, which git obeys".to_owned()]));
    // A file never runs as another user.
    assert_eq!((mode("f"), mode("p")), (0o755, 0o755));
}

/// An incomplete file has a name that can't be guessed and taken in advance.
#[test]
fn names_of_unfinished_files_are_not_guessed() {
    if !layered("names_of_unfinished_files_are_not_guessed") {
        return;
    }
    let dir = GuardedDir::new();
    let code = format!("mkdir .alara-{}-{{0..500}}.new; echo x > new", std::process::id());
    assert_eq!(dir.bash(&code, false), (Some(0), false, vec![]));
    assert_eq!(std::fs::read_to_string(dir.work().join("new")).unwrap(), "x\n");
}

#[test]
fn programs_take_turns_and_leave_no_unfinished_file() {
    if !layered("programs_take_turns_and_leave_no_unfinished_file") {
        return;
    }
    let dir = GuardedDir::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let dir = &dir;
            scope.spawn(move || {
                for turn in 0..4 {
                    let code = format!("echo {thread} >> count; echo x > n{thread}-{turn}; rm -f hi");
                    let (exit, undone, _) = dir.bash(&code, thread == 0);
                    assert_eq!(exit, Some(0));
                    // Once it is gone, there is nothing more to lose.
                    assert!(!undone || thread != 0);
                }
            });
        }
    });
    let found = content(&dir.work());
    assert!(!found.contains_key("hi"));
    // Each one that wasn't reverted has written everything.
    let files = found.keys().filter(|name| name.starts_with('n')).count();
    assert_eq!(found["count"].lines().count(), files);
    assert!(files >= 4, "{found:?}");
    assert!(found.keys().all(|name| !name.starts_with(".alara")), "{found:?}");
    let GuardedDir { root, sandbox } = dir;
    drop(sandbox);
    drop(root);
}

#[test]
fn what_is_unknown_is_asked_about_before_it_runs() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("hi"), "hi").unwrap();
    // Without isolation there are no layers.
    let isolation = alara_harness::sandbox::Isolation::Off;
    let sandbox = Sandbox::new(root.path(), Policy { guard: true, isolation, ..Policy::default() }).unwrap();
    assert_eq!(sandbox.guarding(), Some(Guarding::Ask));
    let mut asked = 0;
    let mut run = |program: &[&str], reads, yes| {
        let timeout = Duration::from_secs(60);
        let script = Script::new(program, timeout);
        let ran = sandbox.run_guarded::<Error>(&script, false, reads, By::default(), &mut |risk| {
            assert!(matches!(risk, Risk::Unknown));
            asked += 1;
            Ok(yes)
        });
        let ran = matches!(ran.unwrap(), Guarded::Ran(_));
        (ran, std::mem::take(&mut asked))
    };
    assert_eq!(run(&["rm", "hi"], false, false), (false, 1));
    assert!(root.path().join("hi").exists());
    assert_eq!(run(&["cat", "hi"], true, false), (true, 0));
    assert_eq!(run(&["rm", "hi"], false, true), (true, 1));
    assert!(!root.path().join("hi").exists());
    // An empty directory has nothing to lose, so it needs no guard.
    let sandbox = Sandbox::new(root.path(), Policy { guard: true, isolation, ..Policy::default() }).unwrap();
    assert_eq!(sandbox.guarding(), None);
}

#[test]
fn an_interrupted_program_takes_nothing_away() {
    if !layered("an_interrupted_program_takes_nothing_away") {
        return;
    }
    let dir = GuardedDir::new();
    let before = content(&dir.work());
    let program = ["bash", "-c", "rm hi; sleep 30"];
    let timeout = Duration::from_secs(60);
    let script = Script::new(&program, timeout);
    let cancel = dir.sandbox.cancel_flag().clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let mut ask = |_: Risk| -> Result<bool, Error> { panic!("nobody is asked") };
    let ran = dir.sandbox.run_guarded::<Error>(&script, false, false, By::default(), &mut ask).unwrap();
    assert!(matches!(ran, Guarded::Undone(output) if output.cancelled));
    assert_eq!(content(&dir.work()), before);
}

/// Makes the work directory a git repository with a commit, as its owner would.
pub fn git(work: &Path) {
    let code = "git init -q -b main . && git add hi && \
        git -c user.name=a -c user.email=a@example.org commit -qm one && \
        mkdir -p .git/hooks && printf '#!/bin/sh\ntrue\n' > .git/hooks/pre-push && chmod 644 .git/hooks/pre-push";
    let made = std::process::Command::new("bash").args(["-c", code]).current_dir(work).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn what_tools_of_the_user_obey_needs_a_yes() {
    if !layered("what_tools_of_the_user_obey_needs_a_yes") {
        return;
    }
    let check = |code: &str, expected: &[&str]| {
        let dir = GuardedDir::new();
        git(&dir.work());
        // A general permission for losses doesn't cover this.
        for permitted in [false, true] {
            if permitted {
                dir.sandbox.permit();
            }
            let before = content(&dir.work());
            let (exit, undone, asked) = dir.bash(code, false);
            assert_eq!((exit, undone), (Some(0), true), "{code} {asked:?}");
            assert_eq!(asked, expected, "{code}");
            assert_eq!(content(&dir.work()), before, "{code}");
        }
        let (_, undone, asked) = dir.bash(code, true);
        assert_eq!(
            (undone, asked.as_slice()),
            (false, &expected.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..])
        );
    };
    check("echo x > .git/hooks/post-commit", &["creates .git/hooks/post-commit, which git obeys"]);
    check("git config core.fsmonitor ./x", &["changes .git/config, which git obeys"]);
    check("git config core.hooksPath x", &["changes .git/config, which git obeys"]);
    check("git config alias.st '!./x'", &["changes .git/config, which git obeys"]);
    check("printf '[include]\\n path = x\\n' >> .git/config", &["changes .git/config, which git obeys"]);
    check("echo ../x > .git/commondir", &["creates .git/commondir, which git obeys"]);
    check("chmod +x .git/hooks/pre-push", &["changes .git/hooks/pre-push, which git obeys"]);
    check("echo x > .envrc", &["creates .envrc, which direnv obeys"]);
    check(
        "mkdir .vscode && echo {} > .vscode/tasks.json",
        &["creates .vscode/tasks.json, which an editor obeys"],
    );
    check(
        "mkdir x && echo {} > x/tasks.json && mv x .vscode",
        &["creates .vscode/tasks.json, which an editor obeys"],
    );
    check("ln -s docs .vscode", &["creates .vscode, which an editor obeys"]);
    check("echo x=y > docs/.npmrc", &["creates docs/.npmrc, which npm obeys"]);
    check(
        "mkdir -p venv/lib && echo import os > venv/lib/x.pth",
        &["creates venv/lib/x.pth, which python obeys"],
    );
    check("echo 'gitdir: x' > docs/.git", &["creates docs/.git, which git obeys"]);
    check("git init -q --bare x && git -C x config core.fsmonitor y", &["creates x/config, which git obeys"]);
}

#[test]
fn a_new_virtual_environment_needs_no_question() {
    if !layered("a_new_virtual_environment_needs_no_question") {
        return;
    }
    let dir = GuardedDir::new();
    let code = "python3 -m venv --without-pip v && echo import os > v/lib/x.pth";
    assert_eq!(dir.bash(code, false), (Some(0), false, vec![]));
    // An environment in use may be somebody's, and an existing folder doesn't become a new one.
    for code in ["echo import os > v/lib/y.pth", "echo > docs/pyvenv.cfg; echo import os > docs/y.pth"] {
        let (_, undone, asked) = dir.bash(code, false);
        let last = asked.last().unwrap();
        assert!(undone && last.ends_with("y.pth, which python obeys"), "{asked:?}");
    }
}

#[test]
fn a_service_finds_what_tools_obey_read_only() {
    if !layered("a_service_finds_what_tools_obey_read_only") {
        return;
    }
    let dir = GuardedDir::new();
    git(&dir.work());
    let program = [
        "bash",
        "-c",
        "echo x > new; echo x > .git/hooks/post-commit; git config alias.x y; cat new; read x",
    ];
    let script = Script::new(&program, Duration::from_secs(60));
    let (service, mut pipes) = dir.sandbox.serve(&script).unwrap();
    let mut line = [0; 2];
    std::io::Read::read_exact(&mut pipes.stdout, &mut line).unwrap();
    drop(pipes);
    drop(service);
    assert_eq!(&line, b"x\n");
    let found = content(&dir.work());
    assert!(found.contains_key("new") && !found.contains_key(".git/hooks/post-commit"));
    assert!(!found[".git/config"].contains("alias"));
}

/// Whether the list of changes is accurate, for code that relies on it.
#[test]
fn changes_tell_what_was_and_what_is() {
    if !layered("changes_tell_what_was_and_what_is") {
        return;
    }
    let dir = GuardedDir::new();
    let program = ["bash", "-c", "rm hi; echo more >> test.py; echo new > new"];
    let timeout = Duration::from_secs(60);
    let script = Script::new(&program, timeout);
    let mut shown: Vec<Change> = Vec::new();
    let mut ask = |risk: Risk| {
        if let Risk::Losses(changes, _) = risk {
            shown = changes.to_vec();
        }
        Ok(false)
    };
    dir.sandbox.run_guarded::<Error>(&script, false, false, By::default(), &mut ask).unwrap();
    let words: Vec<String> = shown.iter().map(ToString::to_string).collect();
    assert_eq!(words, ["removes hi", "creates new", "changes test.py"]);
}
