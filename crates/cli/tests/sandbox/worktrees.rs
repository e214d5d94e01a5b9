//! Git in work directories whose repository is elsewhere, where programs see nothing else: linked
//! work trees, submodules, separate git folders, and clones that share objects.

use std::path::{Path, PathBuf};
use std::time::Duration;

use alara_harness::sandbox::{Policy, Sandbox, Script, homes};
use alara_harness::undo::{Journal, Recorded, net, take_back};

use super::guard::{GuardedDir, layered};

const ONE: &str = "echo hi > hi; git add hi; git commit -qm one; git branch kept";

/// Returns how to create each in an empty folder, and where the work tree is.
fn made() -> [(String, &'static str); 6] {
    let separate = format!("git init -q --separate-git-dir store w; cd w; {ONE}");
    [
        (format!("git init -q w; cd w; {ONE}"), "w"),
        (format!("git init -q main; cd main; {ONE}; git worktree add -q ../w"), "w"),
        (
            format!(
                "git init -q inner; cd inner; {ONE}; cd ..; git init -q main; cd main; \
                git -c protocol.file.allow=always submodule --quiet add ../inner w; git commit -qm two; \
                git -C w branch kept"
            ),
            "main/w",
        ),
        (separate.clone(), "w"),
        (format!("{separate}; git worktree add -q ../v"), "v"),
        (
            format!(
                "git init -q main; cd main; {ONE}; cd ..; git clone -q --shared main middle; \
                git clone -q --shared middle w; git -C w branch kept"
            ),
            "w",
        ),
    ]
}

/// Returns folders in which programs see only visible paths; a home directory may not exist there.
fn places() -> Vec<PathBuf> {
    [PathBuf::from("/var/tmp"), std::env::temp_dir()].into_iter().chain(homes()).collect()
}

fn each(check: impl Fn(&GuardedDir, &str)) {
    for place in places() {
        for (code, folder) in made() {
            let Ok(root) = tempfile::tempdir_in(&place) else { continue };
            check(&GuardedDir::made_in(root, &code, folder), &format!("{}: {code}", place.display()));
        }
    }
}

/// Returns git's output in the work directory, outside the sandbox.
fn owner(dir: &GuardedDir, arguments: &[&str]) -> String {
    let mut git = std::process::Command::new("git");
    let output = git.args(arguments).current_dir(dir.sandbox.work()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

const READS: &str =
    "git status --porcelain && git log --oneline && git diff && git diff HEAD && git show -s && git branch";

const COMMITS: &str =
    "echo more >> hi; git add hi; git -c user.name=a -c user.email=a@example.org commit -qm more";

#[test]
fn git_reads_and_commits_where_the_repository_lies_elsewhere() {
    if !layered("git_reads_and_commits_where_the_repository_lies_elsewhere") {
        return;
    }
    each(|dir, code| {
        assert_eq!(dir.bash(READS, false), (Some(0), false, vec![]), "{code}");
        assert_eq!(dir.bash(COMMITS, false), (Some(0), false, vec![]), "{code}");
        assert_eq!(owner(dir, &["log", "--format=%s"]), "more\none", "{code}");
        assert_eq!(owner(dir, &["status", "--porcelain"]), "", "{code}");
        assert_eq!(dir.bash("git checkout -q -b next && git checkout -q -", false), (Some(0), false, vec![]));
        assert_eq!(dir.bash(READS, false).0, Some(0), "{code}");
    });
}

/// Changes that need a confirmation in an ordinary repository also need it here.
#[test]
fn what_takes_a_yes_in_a_repository_takes_one_elsewhere() {
    if !layered("what_takes_a_yes_in_a_repository_takes_one_elsewhere") {
        return;
    }
    let asks = [
        ("mkdir -p $C/hooks; echo x > $C/hooks/pre-commit", "creates", "hooks/pre-commit, which git obeys"),
        ("git config alias.st '!touch ran'", "changes", "config, which git obeys"),
        ("echo ../../../x > $C/objects/info/alternates", "", "objects/info/alternates, which git obeys"),
        ("echo x > $C/lazygit.yml", "creates", "lazygit.yml, which lazygit obeys"),
        ("git branch -qD kept", "removes", "refs/heads/kept"),
        ("echo x > $C/refs/heads/kept", "overwrites", "refs/heads/kept"),
        ("echo x > $(git rev-parse --git-dir)/index", "overwrites", "index"),
        ("echo x > $(git rev-parse --git-dir)/HEAD", "overwrites", "HEAD"),
    ];
    for (code, folder) in made() {
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        let dir = GuardedDir::made_in(root, &code, folder);
        let before = owner(&dir, &["for-each-ref"]);
        for (step, verb, ending) in asks {
            let (_, undone, asked) = dir.bash(&format!("C=$(git rev-parse --git-common-dir); {step}"), false);
            let is_told = asked.iter().any(|what| what.starts_with(verb) && what.ends_with(ending));
            assert!(undone && is_told, "{code}: {step}: {asked:?}");
        }
        assert_eq!(owner(&dir, &["for-each-ref"]), before, "{code}");
        assert_eq!(owner(&dir, &["status", "--porcelain"]), "", "{code}");
        assert!(!dir.bash("git config alias.st '!touch ran'", true).1, "{code}");
        assert_eq!(owner(&dir, &["config", "alias.st"]), "!touch ran", "{code}");
    }
    // The index of another work tree isn't this one's.
    let (code, folder) = &made()[1];
    let dir = GuardedDir::made_in(tempfile::tempdir_in("/var/tmp").unwrap(), code, folder);
    let (_, undone, asked) =
        dir.bash("cp $(git rev-parse --git-dir)/index i; cat i i > ../main/.git/index", false);
    assert!(undone && asked.iter().any(|what| what.ends_with("main/.git/index")), "{asked:?}");
}

/// Borrowed objects can be read, but not written.
#[test]
fn other_folders_of_a_repository_are_not_shown_or_not_written() {
    if !layered("other_folders_of_a_repository_are_not_shown_or_not_written") {
        return;
    }
    let (code, folder) = &made()[5];
    let dir = GuardedDir::made_in(tempfile::tempdir_in("/var/tmp").unwrap(), code, folder);
    assert_eq!(dir.bash("ls ../main/.git/objects ../middle/.git/objects", false).0, Some(0));
    for step in ["ls ../main/hi", "cat ../main/.git/config", "touch ../main/.git/objects/x"] {
        assert_ne!(dir.bash(step, true).0, Some(0), "{step}");
    }
}

/// Keys and another repository next to a work directory.
const KEYS: &str = "mkdir keys; echo secret > keys/id; git init -q other; echo > other/.git/secret";

#[test]
fn a_step_that_points_git_elsewhere_sees_nothing_there() {
    if !layered("a_step_that_points_git_elsewhere_sees_nothing_there") {
        return;
    }
    let new = || tempfile::tempdir_in("/var/tmp").unwrap();
    let again = |dir: &GuardedDir| {
        Sandbox::new(dir.sandbox.work(), Policy { guard: true, ..Policy::default() }).unwrap()
    };
    let sees = |sandbox: &Sandbox, path: &str| {
        let program = ["cat", path];
        sandbox.run(&Script::new(&program, Duration::from_secs(60))).unwrap().exit == Some(0)
    };
    // Files that the owner's own files point to aren't a repository.
    for code in [
        "mkdir w; echo 'gitdir: ../keys' > w/.git",
        "mkdir w; ln -s ../keys w/.git",
        "git init -q w; echo ../../../keys > w/.git/objects/info/alternates",
        "git init -q w; echo ../../keys > w/.git/commondir",
        "git init -q w; mv w/.git d; cp -r d/. keys; rm keys/HEAD; echo 'gitdir: ../keys' > w/.git",
        // Only one of the two sides names the other.
        "git -C other -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m one; \
        git -C other worktree add -q ../v; mkdir w; cp v/.git w; mv keys/id other/.git/id",
    ] {
        let dir = GuardedDir::made_in(new(), &format!("{KEYS}; {code}"), "w");
        assert!(!sees(&dir.sandbox, "../keys/id") && !sees(&dir.sandbox, "../other/.git/secret"), "{code}");
    }
    for (made, step) in [
        ("mkdir w; echo x > w/x", "echo 'gitdir: ../keys' > .git"),
        ("mkdir w; echo x > w/x", "echo 'gitdir: ../other/.git' > .git"),
        ("mkdir w; echo x > w/x", "ln -s ../other/.git .git"),
        ("git init -q w", "echo ../../../other/.git/objects > .git/objects/info/alternates"),
        ("git init -q w", "echo ../../../keys > .git/objects/info/alternates"),
        ("git init -q w", "echo ../../other/.git > .git/commondir"),
    ] {
        let dir = GuardedDir::made_in(new(), &format!("{KEYS}; {made}"), "w");
        let (_, undone, asked) = dir.bash(step, false);
        assert!(undone && asked.iter().all(|what| what.ends_with("which git obeys")), "{step}: {asked:?}");
        assert!(!sees(&again(&dir), "../other/.git/config"), "{step}");
        // Even a yes makes nothing visible in the same session, and never anything that isn't a
        // repository's.
        assert!(!dir.bash(step, true).1, "{step}");
        for path in ["../keys/id", "../other/.git/secret"] {
            assert!(!sees(&dir.sandbox, path), "{step}: {path}");
        }
        assert!(!sees(&again(&dir), "../keys/id"), "{step}");
    }
}

/// Without a layer nobody has confirmed a `.git`, so the repository must name the work tree.
#[test]
fn without_a_guard_only_what_names_the_work_tree_is_shown() {
    if !layered("without_a_guard_only_what_names_the_work_tree_is_shown") {
        return;
    }
    for ((code, folder), expected) in made().iter().zip([true, true, true, false, true, false]) {
        let dir = GuardedDir::made_in(tempfile::tempdir_in("/var/tmp").unwrap(), code, folder);
        let sandbox = Sandbox::new(dir.sandbox.work(), Policy::default()).unwrap();
        let program = ["git", "log"];
        let output = sandbox.run(&Script::new(&program, Duration::from_secs(60))).unwrap();
        assert_eq!(output.exit == Some(0), expected, "{code}: {output:?}");
    }
}

#[test]
fn a_commit_elsewhere_is_taken_back() {
    if !layered("a_commit_elsewhere_is_taken_back") {
        return;
    }
    for (code, folder) in made() {
        let journal = tempfile::tempdir().unwrap();
        let folder_of = |name: &str| {
            let path = journal.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        let GuardedDir { root, sandbox } = GuardedDir::made_in(root, &code, folder);
        let session = folder_of("session");
        let dir = GuardedDir { root, sandbox: sandbox.with_journal(Journal::new(session.clone())) };
        assert_eq!(dir.bash(COMMITS, false).0, Some(0), "{code}");
        let recorded = Recorded::read(&session).unwrap();
        let mut works: Vec<&Path> = recorded.entries.iter().map(|entry| entry.work.as_path()).collect();
        works.sort_unstable();
        works.dedup();
        let undo = Journal::new(folder_of("undo"));
        for work in works {
            assert!(!net(&recorded, work).is_empty(), "{code}");
            take_back(&recorded, work, &undo, false).unwrap().unwrap();
        }
        assert_eq!(owner(&dir, &["log", "--format=%s"]), "one", "{code}");
        assert_eq!(owner(&dir, &["status", "--porcelain"]), "", "{code}");
    }
}
