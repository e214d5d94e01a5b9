//! Git repositories in a guarded work directory: what becomes one, and the places that git's
//! settings point to.

use std::path::Path;
use std::process::Command;

use super::guard::{GuardedDir, layered};

/// Runs git as the user would, later and outside; returns whether anything ran that wrote `ran`.
fn runs_something(folder: &Path, arguments: &[&str]) -> bool {
    let ran = folder.join("ran");
    let mut git = Command::new("git");
    git.args(["-c", "safe.bareRepository=all", "-c", "safe.directory=*"]).args(arguments);
    git.current_dir(folder).output().unwrap();
    ran.exists()
}

/// Runs each of the steps without confirming anything, and returns the questions.
fn steps(dir: &GuardedDir, steps: &[&str]) -> Vec<String> {
    steps.iter().flat_map(|code| dir.bash(code, false).2).collect()
}

const ALIAS: &str = "printf '[core]\\n bare = true\\n[alias]\\n st = !touch ran\\n' > x/config";
const HEAD: &str = "echo 'ref: refs/heads/main' > x/HEAD";
const PARTS: &str = "mkdir -p x/objects x/refs/heads";

#[test]
fn a_repository_made_in_steps_takes_a_yes() {
    if !layered("a_repository_made_in_steps_takes_a_yes") {
        return;
    }
    let hook = "mkdir -p x/hooks; printf '#!/bin/sh\\ntouch ran\\n' > x/hooks/post-index-change; \
                chmod +x x/hooks/post-index-change";
    let link = "mkdir y; cp -r x/hooks/. y 2>/dev/null; ln -s ../y x/hooks";
    for order in [
        &[PARTS, ALIAS, HEAD][..],
        &[PARTS, HEAD, ALIAS],
        &["mkdir x", ALIAS, HEAD, PARTS],
        &["mkdir x", HEAD, ALIAS, "mkdir x/objects", "mkdir x/refs"],
        &["mkdir x", ALIAS, HEAD, "mkdir x/refs", "ln -s ../docs x/objects"],
        &["mkdir x", ALIAS, HEAD, "mkdir y y/objects y/refs", "echo ../y > x/commondir"],
        &[PARTS, ALIAS, "echo no > x/HEAD", "rm x/HEAD", HEAD],
        &[PARTS, hook, HEAD],
        &[PARTS, HEAD, hook],
        &["mkdir x", link, PARTS, HEAD],
        // As parts of another folder, which is moved.
        &[
            "mkdir y; cd y; mkdir -p x/objects x/refs",
            "echo 'ref: refs/heads/main' > y/HEAD",
            "printf '[alias]\\n st = !touch ran\\n' > y/config",
            "mv y/x/* y",
        ],
    ] {
        let dir = GuardedDir::new();
        let asked = steps(&dir, order);
        let obeyed = asked.iter().all(|change| change.ends_with(", which git obeys"));
        assert!(!asked.is_empty() && obeyed, "{order:?}: {asked:?}");
        for folder in ["x", "y"].map(|name| dir.work().join(name)).iter().filter(|folder| folder.is_dir()) {
            assert!(!runs_something(folder, &["st"]), "{order:?}");
        }
    }
    // A repository that runs nothing needs no confirmation, however it is made.
    let dir = GuardedDir::new();
    let plain = "printf '[core]\\n bare = true\\n' > x/config";
    assert_eq!(
        steps(&dir, &[PARTS, plain, HEAD, "git -C x config core.filemode false"]),
        Vec::<String>::new()
    );
}

#[test]
fn what_git_takes_for_a_head_is_one() {
    if !layered("what_git_takes_for_a_head_is_one") {
        return;
    }
    for head in [
        "ln -s refs/heads/main x/HEAD",
        "(echo 'ref: refs/heads/main'; head -c 70000 /dev/zero) > x/HEAD",
        "printf 'ref: refs/heads/\\377\\n' > x/HEAD",
        "echo 0123456789012345678901234567890123456789 > x/HEAD",
        "echo 'ref:refs/heads/main' > x/HEAD; chmod 000 x/HEAD",
    ] {
        for order in [[PARTS, head, ALIAS], [PARTS, ALIAS, head]] {
            let dir = GuardedDir::new();
            let asked = steps(&dir, &order);
            assert!(asked.len() == 1 && asked[0].ends_with(", which git obeys"), "{order:?}: {asked:?}");
            assert!(!runs_something(&dir.work().join("x"), &["st"]), "{order:?}");
        }
    }
}

/// Unreadable parts of a program's settings don't count as unchanged.
#[test]
fn settings_are_looked_at_as_they_would_be() {
    if !layered("settings_are_looked_at_as_they_would_be") {
        return;
    }
    let add = "printf '[alias]\\n st = !touch ran\\n' >> .git/config";
    for code in [
        format!("{add}; printf '# \\377\\n' >> .git/config"),
        format!("{add}; printf '# %070000d\\n' 0 >> .git/config"),
    ] {
        let dir = GuardedDir::made("git init -q .", "");
        assert_eq!(steps(&dir, &[&code]), ["changes .git/config, which git obeys"], "{code}");
        assert!(!runs_something(&dir.work(), &["st"]), "{code}");
    }
    let dir = GuardedDir::made("git init -q .", "");
    let code = "cp .git/config c; cat c > .git/new; ln -sf ../c .git/config";
    assert_eq!(steps(&dir, &[code]), ["overwrites .git/config, which git obeys"]);
}

/// A hook of the repository around the work directory needs a confirmation wherever the settings
/// place it.
#[test]
fn hooks_and_settings_are_guarded_where_git_looks() {
    if !layered("hooks_and_settings_are_guarded_where_git_looks") {
        return;
    }
    let commit = "git add hi; git commit -qm one";
    let check = |made: &str, folder: &str, code: &str, expected: &[&str]| {
        let dir = GuardedDir::made(&format!("git init -q .; {commit}; {made}"), folder);
        let asked = steps(&dir, &[code]);
        let expected: Vec<String> = expected.iter().map(|path| format!("{path}, which git obeys")).collect();
        assert_eq!(asked, expected, "{made}: {code}");
    };
    let hooks = "git config core.hooksPath";
    check(
        &format!("{hooks} tools/h"),
        "",
        "mkdir -p tools/h; echo x > tools/h/pre-commit",
        &["creates tools/h/pre-commit"],
    );
    check(
        &format!("{hooks} $PWD/docs/h"),
        "docs",
        "mkdir h; echo x > h/pre-commit",
        &["creates h/pre-commit"],
    );
    check(&format!("{hooks} docs/h"), "docs", "mkdir h; echo x > h/pre-commit", &["creates h/pre-commit"]);
    check(
        &format!("{hooks} ./docs/../docs/h/"),
        "docs",
        "mkdir h; echo x > h/pre-commit",
        &["creates h/pre-commit"],
    );
    check(
        "mkdir h; rm -r .git/hooks; ln -s ../h .git/hooks",
        "",
        "echo x > h/pre-commit",
        &["creates h/pre-commit"],
    );
    check(
        &format!("{hooks} h; mkdir h; echo x > h/pre-commit"),
        "",
        "chmod +x h/pre-commit",
        &["changes h/pre-commit"],
    );
    check("git config include.path ../more", "", "echo '[alias] x = !y' > more", &["creates more"]);
    check(
        "git config include.path ../more; printf '[include]\\npath = docs/most\\n' > more",
        "docs",
        "echo x > most",
        &["creates most"],
    );
    check(
        "git config includeIf.onbranch:other.path ../docs/more",
        "docs",
        "echo x > more",
        &["creates more"],
    );
    check("mv .git/config c; ln -s ../c .git/config", "", "printf '[alias]\\nx=!y\\n' >> c", &["changes c"]);
    check(
        "git config core.fsmonitor 'tools/watch --all'",
        "",
        "mkdir tools; echo x > tools/watch",
        &["creates tools/watch"],
    );
    check("git config core.pager 'sh pager'", "", "echo x > pager", &["creates pager"]);
    check(
        "git config filter.a.clean 'python3 tool.py %f'; echo > tool.py",
        "",
        "echo more >> tool.py",
        &["changes tool.py"],
    );
    // A work tree elsewhere, one in the work directory, and a part of another repository.
    check(
        &format!("{hooks} h; git worktree add -q w"),
        "w",
        "mkdir h; echo x > h/pre-commit",
        &["creates h/pre-commit"],
    );
    check(
        &format!("{hooks} h; git worktree add -q docs/w"),
        "docs",
        "mkdir w/h; echo x > w/h/pre-commit",
        &["creates w/h/pre-commit"],
    );
    check(
        "git config extensions.worktreeConfig true; git worktree add -q w; \
        git -C w config --worktree core.hooksPath h",
        "",
        "mkdir w/h; echo x > w/h/pre-commit",
        &["creates w/h/pre-commit"],
    );
    let sub = "git -c protocol.file.allow=always submodule --quiet add $PWD sub";
    check(
        &format!("{sub}; git -C sub config core.hooksPath h"),
        "",
        "mkdir sub/h; echo x > sub/h/pre-commit",
        &["creates sub/h/pre-commit"],
    );
    check(
        &format!("{sub}; git -C sub config include.path $PWD/docs/more"),
        "docs",
        "echo x > more",
        &["creates more"],
    );
    check(
        "git worktree add -q w; git config core.hooksPath $PWD/w/h",
        "w",
        "mkdir h; echo x > h/pre-commit",
        &["creates h/pre-commit"],
    );
    check(
        "git init -q sub; git -C sub config core.hooksPath h",
        "",
        "mkdir sub/h; echo x > sub/h/pre-commit",
        &["creates sub/h/pre-commit"],
    );
    // The work directory is inside a repository's own folder.
    check("", ".git/hooks", "echo x > pre-commit", &["creates pre-commit"]);
    check("", ".git", "printf '[alias]\\nx = !y\\n' >> config", &["changes config"]);
    // Files that git reads but doesn't run, and places where it doesn't look.
    for code in ["mkdir -p other/h; echo x > other/h/pre-commit", "echo x > docs/h", "echo more >> hi"] {
        check(&format!("{hooks} h; git config blame.ignoreRevsFile docs/revs"), "", code, &[]);
    }
}

/// A user's confirmation remains valid.
/// Writing to the target of the user's link means writing a file that the tool obeys.
#[test]
fn where_links_of_the_user_lead_is_guarded() {
    if !layered("where_links_of_the_user_lead_is_guarded") {
        return;
    }
    let check = |made: &str, code: &str, expected: &[&str]| {
        let dir = GuardedDir::made(&format!("git init -q .; mkdir -p cfg scripts; {made}"), "");
        assert_eq!(steps(&dir, &[code]), expected, "{made}: {code}");
    };
    let hook = "ln -s ../../scripts/check .git/hooks/pre-commit";
    check(
        &format!("echo true > scripts/check; {hook}"),
        "echo id >> scripts/check",
        &["changes scripts/check, which git obeys"],
    );
    check(hook, "echo id > scripts/check", &["creates scripts/check, which git obeys"]);
    check(hook, "echo id > scripts/other", &[]);
    check(
        "git config core.hooksPath cfg; ln -s $PWD/scripts/check cfg/pre-commit",
        "echo id > scripts/check",
        &["creates scripts/check, which git obeys"],
    );
    for (link, target, tool) in [
        (".envrc", "cfg/envrc", "direnv"),
        (".pre-commit-config.yaml", "cfg/p.yaml", "pre-commit"),
        (".npmrc", "cfg/npmrc", "npm"),
    ] {
        let made = format!("ln -s {target} {link}");
        check(&made, &format!("echo x > {target}"), &[&format!("creates {target}, which {tool} obeys")]);
    }
    check(
        "mkdir cfg/vscode; ln -s cfg/vscode .vscode",
        "echo '{}' > cfg/vscode/tasks.json",
        &["creates cfg/vscode/tasks.json, which an editor obeys"],
    );
    check(
        "mkdir .vscode; ln -s ../cfg/t.json .vscode/tasks.json",
        "echo '{}' > cfg/t.json",
        &["creates cfg/t.json, which an editor obeys"],
    );
}

/// State from which a stopped rebase continues, and settings whose values git runs.
#[test]
fn strategies_are_programs() {
    if !layered("strategies_are_programs") {
        return;
    }
    let check = |code: &str, expected: &str| {
        let dir = GuardedDir::made("git init -q .; mkdir .git/rebase-merge .git/sequencer", "");
        assert_eq!(steps(&dir, &[code]), [format!("{expected}, which git obeys")], "{code}");
    };
    check("printf x/y > .git/rebase-merge/strategy", "creates .git/rebase-merge/strategy");
    check("printf '[options]\\n\\tstrategy = x/y\\n' > .git/sequencer/opts", "creates .git/sequencer/opts");
    check("git config pull.twohead x/y", "changes .git/config");
}

#[test]
fn git_is_asked_once_more_after_its_settings_have_changed() {
    if !layered("git_is_asked_once_more_after_its_settings_have_changed") {
        return;
    }
    let dir = GuardedDir::made("git init -q .", "");
    assert_eq!(steps(&dir, &["mkdir h; echo x > h/pre-commit"]), Vec::<String>::new());
    let changes = vec!["changes .git/config, which git obeys".to_owned()];
    assert_eq!(dir.bash("git config core.hooksPath h", true).2, changes);
    assert_eq!(steps(&dir, &["echo x > h/pre-push"]), ["creates h/pre-push, which git obeys"]);
    // Other settings apply, depending on the branch.
    let code = "git init -q .; git add hi; git commit -qm one; git branch other; \
                git config includeIf.onbranch:other.path ../more; printf '[core]\nhooksPath = h\n' > more";
    let dir = GuardedDir::made(code, "");
    let hook = "mkdir -p h; echo x >> h/pre-commit";
    assert_eq!(steps(&dir, &[hook]), Vec::<String>::new());
    let switched = Command::new("git").args(["checkout", "-q", "other"]).current_dir(dir.work()).status();
    assert!(switched.unwrap().success());
    assert_eq!(steps(&dir, &[hook]), ["changes h/pre-commit, which git obeys"]);
}
