//! Files that tools of the user run, or take commands from, only because they lie there: data.
//! What a program writes there would run outside of the sandbox when the user next says
//! `git status`, opens an editor or enters the directory.
//!
//! What a user runs by its name is not here: a makefile, a test, a script.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::change::Kind;
use crate::git;

/// Which paths of a work directory, at any depth, which tool obeys.
/// Capitals make no difference.
/// A row may be added for any such file.
static OBEYED: [(&str, &str); 82] = [
    (".git/config", "git"),
    (".git/config.worktree", "git"),
    (".git/commondir", "git"),
    (".git/hooks/**", "git"),
    (".git/modules/**/config", "git"),
    (".git/modules/**/hooks/*", "git"),
    (".git/worktrees/*/commondir", "git"),
    (".git/worktrees/*/config.worktree", "git"),
    (".git/**/git-rebase-todo", "git"),
    (".git/**/sequencer/todo", "git"),
    (".gitconfig", "git"),
    (".config/git/**", "git"),
    (".hg/hgrc", "mercurial"),
    (".husky/**", "git"),
    (".githooks/**", "git"),
    (".pre-commit-config.yaml", "pre-commit"),
    ("lefthook.yml", "lefthook"),
    (".lefthook.yml", "lefthook"),
    (".overcommit.yml", "overcommit"),
    (".envrc", "direnv"),
    ("mise.toml", "mise"),
    (".mise.toml", "mise"),
    (".mise/**", "mise"),
    (".vscode/**", "an editor"),
    ("*.code-workspace", "an editor"),
    (".idea/**", "an editor"),
    (".zed/**", "an editor"),
    (".fleet/**", "an editor"),
    (".devcontainer/**", "an editor"),
    (".devcontainer.json", "an editor"),
    (".dir-locals.el", "an editor"),
    (".dir-locals-2.el", "an editor"),
    (".helix/**", "an editor"),
    (".exrc", "an editor"),
    (".vimrc", "an editor"),
    (".nvimrc", "an editor"),
    (".nvim.lua", "an editor"),
    (".claude/settings*.json", "an agent"),
    (".claude/hooks/**", "an agent"),
    (".cursor/**", "an agent"),
    (".gemini/settings.json", "an agent"),
    (".codex/config.toml", "an agent"),
    (".mcp.json", "an agent"),
    (".aider.conf.yml", "an agent"),
    ("opencode.json", "an agent"),
    ("opencode.jsonc", "an agent"),
    (".npmrc", "npm"),
    (".pnpmfile.cjs", "pnpm"),
    (".yarnrc", "yarn"),
    (".yarnrc.yml", "yarn"),
    ("bunfig.toml", "bun"),
    ("*.pth", "python"),
    ("sitecustomize.py", "python"),
    ("usercustomize.py", "python"),
    (".pdbrc", "python"),
    (".cargo/config", "cargo"),
    (".cargo/config.toml", "cargo"),
    ("rust-toolchain", "cargo"),
    ("rust-toolchain.toml", "cargo"),
    (".mvn/**", "maven"),
    (".bazelrc", "bazel"),
    (".bundle/config", "bundler"),
    (".irbrc", "ruby"),
    (".pryrc", "ruby"),
    (".Rprofile", "R"),
    (".Renviron", "R"),
    (".ghci", "ghci"),
    (".iex.exs", "iex"),
    (".ocamlinit", "ocaml"),
    (".octaverc", "octave"),
    (".latexmkrc", "latexmk"),
    ("latexmkrc", "latexmk"),
    (".gdbinit", "gdb"),
    (".lldbinit", "lldb"),
    (".bash{rc,_profile,_login,_logout}", "a shell"),
    (".{profile,inputrc,cshrc,tcshrc,login,logout}", "a shell"),
    (".z{shrc,shenv,profile,login,logout}", "a shell"),
    (".config/fish/**", "a shell"),
    (".config/autostart/**", "the desktop"),
    (".config/systemd/**", "systemd"),
    (".ssh/**", "ssh"),
    (".tmux.conf", "tmux"),
];

/// Paths that match a pattern of the table all the same.
const HARMLESS: [&str; 1] = ["**/.git/**/*.sample"];

/// The table, ready to be looked up.
struct Table {
    files: GlobSet,
    /// The folders on the way to the files.
    folders: GlobSet,
    /// For each pattern of `folders`, the row that it is from.
    rows: Vec<usize>,
    harmless: GlobSet,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let parents = OBEYED.iter().enumerate().flat_map(|(row, (pattern, _))| {
        let ends = pattern.match_indices('/').map(move |(at, _)| (row, &pattern[..at]));
        ends.filter(|(_, folder)| *folder != "**" && !folder.ends_with("/**"))
    });
    let (rows, folders): (Vec<usize>, Vec<&str>) = parents.unzip();
    Table {
        files: set(OBEYED.iter().map(|(pattern, _)| format!("**/{pattern}"))),
        folders: set(folders.into_iter().map(|pattern| format!("**/{pattern}"))),
        rows,
        harmless: set(HARMLESS.iter().map(ToString::to_string)),
    }
});

/// Patterns that are looked up in paths, as they are written, with `/` between folders.
pub fn set(patterns: impl Iterator<Item = String>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(&pattern).literal_separator(true).case_insensitive(true).build();
        // Every pattern is one of a table's, or a path of which nothing is a pattern.
        if let Ok(glob) = glob {
            set.add(glob);
        }
    }
    set.build().unwrap_or_default()
}

/// What is at a path, before or after.
/// Given a path relative to the work directory, the text of a small file is told.
pub trait Read {
    /// The text of the file that is there now.
    fn now(&self, path: &Path) -> Option<String>;
    /// The text of the file that was there.
    fn before(&self, path: &Path) -> Option<String>;
    /// Whether there was anything.
    fn was(&self, path: &Path) -> bool;
}

/// Which tool of the user will obey what a program has put at `path`, if any does.
pub fn obeyed(path: &Path, kind: Kind, files: &impl Read) -> Option<&'static str> {
    if kind == Kind::Directory {
        return None;
    }
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let of_git = matches!(name.as_str(), "config" | "config.worktree");
    // A file instead of the directory names another one.
    if name == ".git" {
        return Some("git");
    }
    if is_listed(path)
        && let Some(row) = TABLE.files.matches(path).first()
    {
        let tool = OBEYED[*row].1;
        let harmless = match tool {
            "git" => of_git && are_harmless(path, files),
            "python" => in_new_environment(path, files),
            _ => false,
        };
        return (!harmless).then_some(tool);
    }
    // A link to a folder in which such files lie.
    if kind == Kind::Link
        && let Some(found) = TABLE.folders.matches(path).first()
    {
        return Some(OBEYED[TABLE.rows[*found]].1);
    }
    let by_git =
        in_repository(path, &name, files) || hooks(files).is_some_and(|hooks| path.starts_with(hooks));
    by_git.then_some("git")
}

/// Whether a path is in the table, whatever is in the file.
pub fn is_listed(path: &Path) -> bool {
    TABLE.files.is_match(path) && !TABLE.harmless.is_match(path)
}

/// Whether git obeys a file of a repository that is not called `.git`: one without a work tree may
/// have any name.
fn in_repository(path: &Path, name: &str, files: &impl Read) -> bool {
    let Some(folder) = path.parent() else { return false };
    let is_there = |name: &str| files.now(&folder.join(name)).is_some();
    match name {
        "config" => is_there("HEAD") && !are_harmless(path, files),
        "commondir" | "config.worktree" => is_there("HEAD"),
        // With this file a folder becomes a repository.
        "head" if !folder.ends_with(".git") && files.before(path).is_none() => {
            is_there("commondir") || (is_there("config") && !are_harmless(&folder.join("config"), files))
        }
        _ if folder.ends_with("hooks") && !name.ends_with(".sample") => {
            folder.parent().is_some_and(|folder| files.now(&folder.join("HEAD")).is_some())
        }
        _ => false,
    }
}

/// Whether a path lies in a virtual environment that is new as a whole.
/// No other Python looks there.
fn in_new_environment(path: &Path, files: &impl Read) -> bool {
    let mut folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    folders.any(|folder| files.now(&folder.join("pyvenv.cfg")).is_some() && !files.was(folder))
}

/// Whether git runs nothing by what a file of settings says now and did not say before.
fn are_harmless(path: &Path, files: &impl Read) -> bool {
    let before = files.before(path).as_deref().and_then(git::settings).unwrap_or_default();
    let now = files.now(path).as_deref().and_then(git::settings);
    now.is_some_and(|now| now.iter().all(|setting| before.contains(setting) || git::is_harmless(setting)))
}

/// The folder in which the work directory's repository has its hooks, if that is another one.
fn hooks(files: &impl Read) -> Option<PathBuf> {
    let settings = git::settings(&files.before(Path::new(".git/config"))?)?;
    let of_hooks = |setting: &String| {
        let (name, value) = setting.split_once('=')?;
        name.eq_ignore_ascii_case("core.hookspath").then(|| PathBuf::from(value.trim_start_matches("./")))
    };
    settings.iter().find_map(of_hooks)
}

/// What of the table is there in a work directory, so that it can be kept from being written.
/// Only what lies at its top, with the folders whose every file is obeyed.
pub fn existing(work: &Path) -> Vec<PathBuf> {
    let plain = OBEYED.iter().filter_map(|(pattern, _)| {
        let path = pattern.trim_end_matches("/**");
        (!path.contains(['*', '{'])).then(|| work.join(path))
    });
    let real = plain.filter_map(|path| path.canonicalize().ok());
    real.filter(|path| path.starts_with(work)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Texts of files, before and now.
    #[derive(Default)]
    struct Files(HashMap<&'static str, &'static str>, HashMap<&'static str, &'static str>);

    impl Read for Files {
        fn now(&self, path: &Path) -> Option<String> {
            self.1.get(path.to_str()?).map(ToString::to_string)
        }

        fn before(&self, path: &Path) -> Option<String> {
            self.0.get(path.to_str()?).map(ToString::to_string)
        }

        fn was(&self, path: &Path) -> bool {
            self.0.keys().any(|name| Path::new(name).starts_with(path))
        }
    }

    fn tool(path: &str) -> Option<&'static str> {
        obeyed(Path::new(path), Kind::File, &Files::default())
    }

    #[test]
    fn what_tools_obey_is_found_at_any_depth() {
        assert_eq!(TABLE.files.len(), OBEYED.len());
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
            (".hg/hgrc", Some("mercurial")),
            ("a/.helix/languages.toml", Some("an editor")),
            (".renviron", Some("R")),
            (".iex.exs", Some("iex")),
            ("latexmkrc", Some("latexmk")),
            (".latexmkrc", Some("latexmk")),
            ("opencode.json", Some("an agent")),
            (".pdbrc", Some("python")),
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
        assert_eq!(obeyed(Path::new(".git"), Kind::Directory, &Files::default()), None);
        for path in [".vscode", ".git/hooks", "a/.cargo"] {
            assert!(obeyed(Path::new(path), Kind::Link, &Files::default()).is_some(), "{path}");
        }
    }

    #[test]
    fn settings_of_git_that_run_nothing_need_no_question() {
        const OLD: &str = "[core]\n\tbare = false\n\tfsmonitor = mine\n";
        let check = |now: &'static str, expected| {
            let path = ".git/config";
            let files = Files(HashMap::from([(path, OLD)]), HashMap::from([(path, now)]));
            assert_eq!(obeyed(Path::new(path), Kind::File, &files), expected, "{now}");
        };
        check("[core]\n\tbare = false\n\tfsmonitor = mine\n[branch \"a\"]\n\tmerge = refs/heads/a\n", None);
        check("[core]\n\tbare = false\n", None);
        check("[core]\n\tfsmonitor = theirs\n", Some("git"));
        check("[alias]\n\tst = !rm x\n", Some("git"));
        check("not understood", Some("git"));
    }

    #[test]
    fn a_repository_has_any_name() {
        let evil = HashMap::from([("x/HEAD", "ref"), ("x/config", "[core]\n\tfsmonitor = rm\n")]);
        let files = Files(HashMap::new(), evil);
        for path in ["x/config", "x/HEAD", "x/hooks/pre-commit"] {
            assert_eq!(obeyed(Path::new(path), Kind::File, &files), Some("git"), "{path}");
        }
        let made = HashMap::from([("x/HEAD", "ref"), ("x/config", "[core]\n\tbare = true\n")]);
        let files = Files(HashMap::new(), made);
        for path in ["x/config", "x/HEAD", "x/hooks/pre-commit.sample", "x/objects/a"] {
            assert_eq!(obeyed(Path::new(path), Kind::File, &files), None, "{path}");
        }
    }

    #[test]
    fn a_new_virtual_environment_is_obeyed_by_itself() {
        let path = Path::new("x/v/lib/python3/site-packages/a.pth");
        let now = || HashMap::from([("x/v/pyvenv.cfg", ""), ("x/v/lib/python3/site-packages/a.pth", "")]);
        let check = |before: &[(&'static str, &'static str)], expected| {
            let files = Files(before.iter().copied().collect(), now());
            assert_eq!(obeyed(path, Kind::File, &files), expected, "{before:?}");
        };
        check(&[], None);
        check(&[("x/other", "")], None);
        // One that somebody uses already, or a folder that is made to look like one.
        check(&[("x/v/pyvenv.cfg", "")], Some("python"));
        check(&[("x/v/lib/python3/site-packages/b.py", "")], Some("python"));
    }

    #[test]
    fn the_folder_of_hooks_may_be_another_one() {
        let files =
            Files(HashMap::from([(".git/config", "[core]\n\thooksPath = tools/hooks\n")]), HashMap::new());
        assert_eq!(obeyed(Path::new("tools/hooks/pre-commit"), Kind::File, &files), Some("git"));
        assert_eq!(obeyed(Path::new("tools/other"), Kind::File, &files), None);
    }
}
