//! Commits in a guarded repository: git's own bookkeeping doesn't count as a loss, and anything
//! that git would run needs a confirmation.

use super::guard::{GuardedDir, git, layered};

#[test]
fn commits_still_work_where_hooks_are_guarded() {
    if !layered("commits_still_work_where_hooks_are_guarded") {
        return;
    }
    let dir = GuardedDir::new();
    git(&dir.work());
    for code in [
        "git add test.py && git -c user.name=a -c user.email=a@example.org commit -qm two",
        "git checkout -q -b next && echo more >> hi && git stash -q 2>/dev/null; git checkout -q -- .",
        "git config user.name me && git config user.email me@example.org && git commit -q --allow-empty -m three",
        "git remote add origin https://example.org/a.git && git branch -q --set-upstream-to=main",
        "git checkout -q main && git merge -q next && git tag one",
        "git init -q sub && git -C sub commit -q --allow-empty -m one --author 'a <a@example.org>' 2>/dev/null; true",
        "git clone -q --no-hardlinks . copy",
    ] {
        let (exit, undone, asked) = dir.bash(code, true);
        assert_eq!((exit, undone), (Some(0), false), "{code}");
        assert!(asked.iter().all(|what| !what.contains("obeys")), "{code}: {asked:?}");
    }
    let log = std::process::Command::new("git")
        .args(["log", "--oneline"])
        .current_dir(dir.work())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&log.stdout).lines().count(), 3);
}

#[test]
fn a_commit_loses_nothing() {
    if !layered("a_commit_loses_nothing") {
        return;
    }
    let dir = GuardedDir::new();
    git(&dir.work());
    // The second branch has no log.
    let code = "git branch kept && git branch bare && rm .git/logs/refs/heads/bare";
    let made = std::process::Command::new("bash").args(["-c", code]).current_dir(dir.work()).status();
    assert!(made.unwrap().success());
    let me = "-c user.name=a -c user.email=a@example.org";
    for code in [
        format!("git add test.py && git {me} commit -qm two"),
        "git checkout -q -b next".to_owned(),
        format!("echo more >> hi && git {me} commit -qam three"),
        "git checkout -q main -- && git checkout -q --detach && git checkout -q main".to_owned(),
    ] {
        // Files in the work directory itself are another matter.
        let (exit, _, asked) = dir.bash(&code, true);
        assert_eq!(exit, Some(0), "{code}");
        assert!(asked.iter().all(|what| !what.contains(".git/")), "{code}: {asked:?}");
    }
    for (code, lost) in [
        ("git branch -qD kept", "removes .git/refs/heads/kept"),
        ("echo x > .git/refs/heads/kept", "overwrites .git/refs/heads/kept"),
        ("git rev-parse main > .git/refs/heads/bare", "overwrites .git/refs/heads/bare"),
        ("echo x > .git/HEAD", "overwrites .git/HEAD"),
        ("echo x > .git/index", "overwrites .git/index"),
        ("echo x > .git/logs/HEAD", "overwrites .git/logs/HEAD"),
    ] {
        let (_, undone, asked) = dir.bash(code, false);
        assert!(undone && asked.iter().any(|what| what == lost), "{code}: {asked:?}");
    }
}
