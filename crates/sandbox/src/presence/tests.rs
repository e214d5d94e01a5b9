//! Tests which files are obeyed, over trees in memory.

use std::collections::HashMap;
use std::ffi::OsString;

use super::*;

/// Files with their texts; a text that begins with `-> ` is a link.
#[derive(Clone, Default)]
struct Files(HashMap<String, String>);

impl Files {
    fn of(files: &[(&str, &str)]) -> Self {
        Files(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    fn with(&self, files: &[(&str, &str)]) -> Self {
        Files(self.0.clone().into_iter().chain(Files::of(files).0).collect())
    }
}

impl Tree for Files {
    fn kind(&self, path: &Path) -> Option<Kind> {
        match self.0.get(path.to_str()?) {
            Some(text) if text.starts_with("-> ") => Some(Kind::Link),
            Some(_) => Some(Kind::File),
            None => self.0.keys().any(|name| Path::new(name).starts_with(path)).then_some(Kind::Directory),
        }
    }

    fn bytes(&self, path: &Path, most: u64) -> Option<Vec<u8>> {
        let text = self.0.get(path.to_str()?).filter(|text| !text.starts_with("-> "))?;
        Some(text.bytes().take(usize::try_from(most).unwrap()).collect())
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.0.get(path.to_str()?)?.strip_prefix("-> ").map(PathBuf::from)
    }

    fn names(&self, path: &Path) -> Vec<OsString> {
        let below = self.0.keys().filter_map(|name| Path::new(name).strip_prefix(path).ok());
        let mut names: Vec<OsString> =
            below.filter_map(|inner| Some(inner.iter().next()?.to_owned())).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Whether tools obey a change of `path` from `before` to `now`.
fn between(before: &Files, now: &Files, path: &str, kind: Kind, places: &Places) -> Option<&'static str> {
    let is_changed = |path: &Path| {
        let text = |files: &Files| files.0.get(path.to_str().unwrap()).cloned();
        text(before) != text(now)
    };
    obeyed(Path::new(path), kind, &States { before, now, is_changed: &is_changed }, places)
}

/// The paths of a program's changes that need a confirmation.
fn asked(before: &Files, now: &Files) -> Vec<String> {
    let is_new = |path: &&str| before.0.get(*path) != now.0.get(*path);
    let mut paths: Vec<&str> = now.0.keys().map(String::as_str).filter(is_new).collect();
    paths.sort();
    // New folders are changes too.
    let mut folders: Vec<&Path> = paths.iter().flat_map(|path| Path::new(path).ancestors().skip(1)).collect();
    folders.retain(|folder| !folder.as_os_str().is_empty() && before.kind(folder).is_none());
    folders.sort();
    folders.dedup();
    let all = paths.iter().copied().chain(folders.iter().filter_map(|path| path.to_str()));
    let kind = |path: &str| now.kind(Path::new(path)).unwrap();
    let is_asked = |path: &&str| between(before, now, path, kind(path), &Places::default()).is_some();
    all.filter(is_asked).map(str::to_owned).collect()
}

fn tool(path: &str) -> Option<&'static str> {
    between(&Files::default(), &Files::default(), path, Kind::File, &Places::default())
}

/// Settings that make git run something.
const EVIL: &str = "[alias]\n\tst = !rm x\n";

#[test]
fn what_tools_obey_is_found_at_any_depth() {
    assert_eq!((TABLE.files.len(), TABLE.tools.len()), (patterns().count(), patterns().count()));
    assert!(patterns().count() > 250, "the table can't be read");
    for (path, expected) in [
        (".git/hooks/post-commit", Some("git")),
        (".GIT/hooks/post-commit", Some("git")),
        (".git/config", Some("git")),
        ("sub/.git/hooks/pre-push", Some("git")),
        (".git/modules/a/b/hooks/pre-push", Some("git")),
        ("sub/.git", Some("git")),
        (".envrc", Some("direnv")),
        ("a/b/.envrc", Some("direnv")),
        (".vscode/tasks.json", Some("an editor")),
        (".npmrc", Some("npm")),
        ("venv/lib/python3/site-packages/x.pth", Some("python")),
        (".bashrc", Some("a shell")),
        (".zshenv", Some("a shell")),
        (".git/rebase-merge/git-rebase-todo", Some("git")),
        (".git/worktrees/a/rebase-merge/git-rebase-todo", Some("git")),
        (".git/sequencer/todo", Some("git")),
        (".git/objects/info/alternates", Some("git")),
        (".git/modules/a/objects/info/alternates", Some("git")),
        (".hg/hgrc", Some("mercurial")),
        ("a/.helix/languages.toml", Some("an editor")),
        (".renviron", Some("R")),
        (".iex.exs", Some("iex")),
        ("latexmkrc", Some("latexmk")),
        (".latexmkrc", Some("latexmk")),
        ("opencode.json", Some("an agent")),
        (".pdbrc", Some("python")),
        ("lefthook-local.yml", Some("lefthook")),
        (".lefthook.json", Some("lefthook")),
        ("a/lefthook.toml", Some("lefthook")),
        (".config/lefthook.yaml", Some("lefthook")),
        ("mise.local.toml", Some("mise")),
        (".mise.prod.toml", Some("mise")),
        (".RData", Some("R")),
        (".jj/repo/config.toml", Some("jujutsu")),
        (".erlang", Some("erlang")),
        ("tools/bazel", Some("bazel")),
        (".byebugrc", Some("ruby")),
        (".rdbgrc", Some("ruby")),
        (".perldb", Some("perl")),
        (".codex/hooks.json", Some("an agent")),
        (".kiro/settings/mcp.json", Some("an agent")),
        (".roo/mcp.json", Some("an agent")),
        (".lazy.lua", Some("an editor")),
        ("compose.override.yaml", Some("docker")),
        ("pyvenv.cfg", Some("python")),
        ("mise.toml.bak", None),
        ("Makefile", None),
        ("compose.yaml", None),
        (".kiro/specs/a.md", None),
        (".github/workflows/test.yml", None),
        (".git/hooks/pre-commit.sample", None),
        (".git/HEAD", None),
        (".git/refs/heads/hooks/a", None),
        (".git/info/exclude", None),
        ("config", None),
        ("hooks/use.ts", None),
        ("src/main.rs", None),
        (".gitignore", None),
    ] {
        assert_eq!(tool(path), expected, "{path}");
    }
    let at = |path, kind| between(&Files::default(), &Files::default(), path, kind, &Places::default());
    assert_eq!(at(".git", Kind::Directory), None);
    for path in [".vscode", ".git/hooks", "a/.cargo"] {
        assert!(at(path, Kind::Link).is_some(), "{path}");
    }
}

#[test]
fn settings_of_git_that_run_nothing_need_no_question() {
    const OLD: &str = "[core]\n\tbare = false\n\tfsmonitor = mine\n";
    let check = |now: &str, expected| {
        let (before, now) = (Files::of(&[(".git/config", OLD)]), Files::of(&[(".git/config", now)]));
        let found = between(&before, &now, ".git/config", Kind::File, &Places::default());
        assert_eq!(found, expected, "{now:?}", now = now.0);
    };
    check("[core]\n\tbare = false\n\tfsmonitor = mine\n[branch \"a\"]\n\tmerge = refs/heads/a\n", None);
    check("[core]\n\tbare = false\n", None);
    check("[core]\n\tfsmonitor = theirs\n", Some("git"));
    check("[alias]\n\tst = !rm x\n", Some("git"));
    check("not understood", Some("git"));
    check(&format!("{OLD}# {}\n", "x".repeat(64 << 10)), Some("git"));
}

/// All that makes a folder a repository, with settings that run nothing.
const PLAIN: [(&str, &str); 4] = [
    ("x/HEAD", "ref: refs/heads/main\n"),
    ("x/config", "[core]\n\tbare = true\n"),
    ("x/objects/info/a", ""),
    ("x/refs/heads/a", ""),
];

#[test]
fn a_repository_has_any_name() {
    let nothing = Files::default();
    let plain = Files::of(&PLAIN);
    assert_eq!(asked(&nothing, &plain.with(&[("x/hooks/a.sample", "")])), Vec::<String>::new());
    for (path, text) in [
        ("x/config", EVIL),
        ("x/config", "-> ../y"),
        ("x/config.worktree", EVIL),
        ("x/commondir", "../y"),
        ("x/hooks/pre-commit", ""),
        ("x/hooks", "-> ../y"),
        ("x/rebase-merge/git-rebase-todo", ""),
        ("x/sequencer/todo", ""),
    ] {
        // In a new repository, and in an existing one.
        for before in [&nothing, &plain] {
            assert_eq!(asked(before, &plain.with(&[(path, text)])), [path], "{text}");
        }
    }
}

/// In whichever order the pieces come, git obeys nothing without a confirmation.
#[test]
fn a_repository_that_is_made_piece_by_piece_takes_a_yes() {
    let harmful: [&[(&str, &str)]; 6] = [
        &[("x/config", EVIL)],
        &[("x/config.worktree", EVIL)],
        &[("x/hooks/post-update", "rm x\n")],
        &[("x/hooks", "-> ../y")],
        &[("x/commondir", "../y")],
        &[("x/rebase-merge/git-rebase-todo", "exec rm x")],
    ];
    for harm in harmful {
        let whole = Files::of(&PLAIN[..1]).with(&PLAIN[2..]).with(harm);
        let mut pieces: Vec<(String, String)> = whole.0.into_iter().collect();
        pieces.sort();
        let count = pieces.len();
        // An order of the pieces for each first piece.
        for first in 0..count {
            for turned in [false, true] {
                let mut order: Vec<_> = pieces.iter().cycle().skip(first).take(count).collect();
                if turned {
                    order[1..].reverse();
                }
                let (mut before, mut questions) = (Files::default(), Vec::new());
                for (path, text) in &order {
                    let now = before.with(&[(path, text)]);
                    questions.extend(asked(&before, &now));
                    before = now;
                }
                assert_eq!(questions.len(), 1, "{order:?}: {questions:?}");
            }
        }
    }
}

#[test]
fn a_new_virtual_environment_is_obeyed_by_itself() {
    let path = "x/v/lib/python3/site-packages/a.pth";
    let now = Files::of(&[("x/v/pyvenv.cfg", ""), (path, "")]);
    let check = |before: &[(&str, &str)], expected| {
        let found = between(&Files::of(before), &now, path, Kind::File, &Places::default());
        assert_eq!(found, expected, "{before:?}");
    };
    check(&[], None);
    check(&[("x/other", "")], None);
    // An environment in use, or a folder made to look like one.
    check(&[("x/v/pyvenv.cfg", "")], Some("python"));
    check(&[("x/v/lib/python3/site-packages/b.py", "")], Some("python"));
}

#[test]
fn every_row_of_the_table_finds_a_file() {
    for (pattern, tool) in patterns() {
        // One of the paths of the pattern, without globs.
        let first = |text: &str| text.split(',').next().unwrap_or_default().to_owned();
        let mut path = pattern.replace("**", "a").replace('*', "");
        while let (Some(from), Some(to)) = (path.find('{'), path.find('}')) {
            path = format!("{}{}{}", &path[..from], first(&path[from + 1..to]), &path[to + 1..]);
        }
        let path =
            if path.starts_with('.') && !pattern.starts_with('*') { path } else { format!("x/{path}") };
        let found = TABLE.files.matches(&path);
        let tools: Vec<&str> = found.iter().map(|row| TABLE.tools[*row]).collect();
        assert!(tools.contains(&tool), "{pattern}: {path} is obeyed by {tools:?}");
    }
}

#[test]
fn what_is_there_is_found_at_the_top() {
    let root = tempfile::tempdir().unwrap();
    let work = root.path().canonicalize().unwrap();
    for file in
        [".git/hooks/a", ".git/HEAD", ".git/config", "lefthook-local.yml", ".cargo/config.toml", "a/.envrc"]
    {
        std::fs::create_dir_all(work.join(file).parent().unwrap()).unwrap();
        std::fs::write(work.join(file), "").unwrap();
    }
    let mut found = existing(&work);
    found.sort();
    let expected = [".cargo/config.toml", ".git/config", ".git/hooks", "lefthook-local.yml"];
    assert_eq!(found, expected.map(|path| work.join(path)));
}

#[test]
fn what_settings_name_is_obeyed() {
    let places =
        Places { files: ["a/more".into()].into(), folders: ["dev/hooks".into()].into(), ..Places::default() };
    let nothing = Files::default();
    for (path, kind, expected) in [
        ("a/more", Kind::File, Some("git")),
        ("dev/hooks/pre-commit", Kind::File, Some("git")),
        ("dev/hooks/lib/a.sh", Kind::File, Some("git")),
        ("dev", Kind::Link, Some("git")),
        ("a", Kind::Link, Some("git")),
        ("dev/hooks/pre-commit.sample", Kind::File, None),
        ("dev/hooks", Kind::Directory, None),
        ("dev/other", Kind::File, None),
        ("a/more2", Kind::File, None),
    ] {
        assert_eq!(between(&nothing, &nothing, path, kind, &places), expected, "{path}");
    }
}
