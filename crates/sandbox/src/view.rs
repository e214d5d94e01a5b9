//! The files that a program can't see.
//! They are the home directory except for what the program needs, credentials, and the sockets of
//! services that would act for it outside.
//!
//! This is a list, not a proof: other files that the user can read stay readable for the program.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::environment::homes;

/// The hidden paths; all canonical.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Covered by an empty directory or file.
    pub hidden: Vec<PathBuf>,
    /// Visible although they are below a covered path.
    pub shown: Vec<PathBuf>,
    /// Covered after that, if they are still visible.
    pub secrets: Vec<PathBuf>,
}

/// Directories in a home directory that many programs share; each program's files are one level
/// deeper.
const SHARED: [&str; 6] = [".local", ".local/share", ".local/state", ".config", ".cache", "Library"];

/// Where tools on `PATH` keep their programs, outside the directory that is on `PATH`.
const TOOLS: [&str; 7] = [
    ".rustup/toolchains",
    ".local/lib",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv",
];

/// Paths of credentials and of input history, below a home directory that stays visible.
/// It does if the work directory contains it, or if a tool needs the files around them.
const CREDENTIALS: [&str; 33] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".git-credentials",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".password-store",
    ".local/share/keyrings",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".local/share/fish/fish_history",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".irb_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".pgpass",
    ".my.cnf",
    ".lesshst",
    ".viminfo",
];

/// Directories with sockets of services that start programs outside the isolation: a terminal
/// multiplexer's, an editor's, a database's.
/// Also files that only the superuser should read.
/// A directory that is the work directory itself stays visible.
const PLACES: [&str; 11] = [
    "/run",
    "/tmp",
    "/var/tmp",
    "/tmp/.X11-unix",
    "/tmp/.ICE-unix",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/ssl/private",
];

/// Variables that name such a socket, or its directory.
const NAMED_BY: [&str; 3] = ["SSH_AUTH_SOCK", "TMUX", "XDG_RUNTIME_DIR"];

/// The files that programs need below a covered path: how to resolve network names.
/// The file only: a resolver service would also resolve names for programs without the network.
const RESOLVER: &str = "/etc/resolv.conf";

/// The view of programs that need the directories `needed`, and may read `readable`.
pub fn view(needed: &[&Path], readable: &[PathBuf]) -> View {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let written: Vec<PathBuf> = std::env::split_paths(&path).filter(|entry| entry.is_dir()).collect();
    let path: Vec<PathBuf> = written.iter().filter_map(|entry| entry.canonicalize().ok()).collect();
    let mut view = places(needed);
    let homes = homes();
    for home in &homes {
        view.add_home(home, needed, &path);
    }
    view.hidden.sort();
    // A path below another one is hidden with it.
    view.hidden.dedup_by(|inner, outer| inner.starts_with(outer));
    let readable = readable.iter().filter_map(|path| path.canonicalize().ok());
    let around = needed.iter().filter_map(|path| repository(path, &homes));
    let resolver = Path::new(RESOLVER).canonicalize().ok();
    view.shown.extend(around.chain(readable).chain(resolver));
    // Some systems have links to their programs there.
    view.shown.extend(written.into_iter().chain(path));
    // A path inside a needed one is visible with it, and with the layer over it.
    view.shown.retain(|path| !needed.iter().any(|needed| path.starts_with(needed)));
    view.shown.extend(needed.iter().map(|path| (*path).to_owned()));
    view.shown.retain(|path| view.hidden.iter().any(|hidden| path != hidden && path.starts_with(hidden)));
    // Outer paths before inner ones.
    view.shown.sort();
    view.shown.dedup();
    view
}

impl View {
    fn add_home(&mut self, home: &Path, needed: &[&Path], path: &[PathBuf]) {
        let free = |place: &PathBuf| !needed.iter().any(|needed| needed.starts_with(place));
        self.secrets
            .extend(CREDENTIALS.iter().filter_map(|name| home.join(name).canonicalize().ok()).filter(free));
        // A home that contains the system's programs, or is in the work directory, can't be hidden.
        let contains = |part: &Path| home.starts_with(part);
        if home.parent().is_none()
            || path.iter().any(|entry| contains(entry))
            || needed.iter().any(|part| contains(part))
        {
            return;
        }
        self.shown.extend(path.iter().filter_map(|entry| tool(home, entry)));
        self.shown.extend(TOOLS.iter().map(|name| home.join(name)).filter(|path| path.is_dir()));
        self.hidden.push(home.to_owned());
    }
}

/// The directory below `home` that the programs in `entry` of `PATH` need: the first one that is
/// not shared.
fn tool(home: &Path, entry: &Path) -> Option<PathBuf> {
    let mut found = PathBuf::new();
    for part in entry.strip_prefix(home).ok()?.components() {
        found.push(part);
        if !SHARED.iter().any(|shared| found == Path::new(shared)) {
            return Some(home.join(found));
        }
    }
    None
}

/// The git repository that a directory is, or is in.
/// One that is a home directory, or contains one, would expose everything in it.
fn repository(directory: &Path, homes: &[PathBuf]) -> Option<PathBuf> {
    let mut around = directory.ancestors();
    let found = around.find(|place| place.join(".git").exists())?;
    (!homes.iter().any(|home| home.starts_with(found))).then(|| found.to_owned())
}

fn places(needed: &[&Path]) -> View {
    let named = NAMED_BY.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        // `TMUX` continues after a comma.
        Path::new(value.split(',').next()?).canonicalize().ok()
    });
    let fixed = PLACES.iter().filter_map(|place| Path::new(place).canonicalize().ok());
    let hidden = fixed.chain(named).filter(|place| !needed.contains(&place.as_path())).collect();
    View { hidden, ..View::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_keep_the_first_directory_of_their_own() {
        let check = |entry: &str, expected: Option<&str>| {
            let found = tool(Path::new("/home/me"), Path::new(entry));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{entry}");
        };
        check("/home/me/.pyenv/shims", Some("/home/me/.pyenv"));
        check("/home/me/.local/bin", Some("/home/me/.local/bin"));
        check("/home/me/.local/share/uv/bin", Some("/home/me/.local/share/uv"));
        check("/home/me/bin", Some("/home/me/bin"));
        check("/home/me", None);
        check("/home/me/.local", None);
        check("/usr/bin", None);
    }

    #[test]
    fn a_home_is_hidden_but_for_what_is_needed() {
        let check = |work: &str, path: &[&str], expected: Option<&[&str]>| {
            let mut view = View::default();
            let path: Vec<PathBuf> = path.iter().map(PathBuf::from).collect();
            view.add_home(Path::new("/home/me"), &[Path::new(work)], &path);
            let hidden = !view.hidden.is_empty();
            let shown: Vec<PathBuf> = expected.unwrap_or_default().iter().map(PathBuf::from).collect();
            assert_eq!((hidden, view.shown), (expected.is_some(), shown), "{work} {path:?}");
        };
        check("/home/me/project", &["/usr/bin", "/home/me/bin"], Some(&["/home/me/bin"]));
        check("/work", &["/usr/bin"], Some(&[]));
        // The work directory is the home directory, or contains it; it is on `PATH`.
        check("/home/me", &["/usr/bin"], None);
        check("/home", &["/usr/bin"], None);
        check("/work", &["/home/me"], None);
    }

    #[test]
    fn the_repository_around_the_work_directory_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::create_dir(root.path().join(".git")).unwrap();
        assert_eq!(repository(&inner, &[]).as_deref(), Some(root.path()));
        assert_eq!(repository(&inner, &[inner.join("home")]), None);
        assert_eq!(repository(&inner, &[root.path().to_owned()]), None);
    }

    #[test]
    fn what_is_needed_is_not_hidden() {
        let below = view(&[Path::new("/tmp/a/work")], &[]);
        assert!(
            below.hidden.contains(&"/tmp".into()) && below.shown.contains(&"/tmp/a/work".into()),
            "{below:?}"
        );
        let inner = view(&[Path::new("/tmp")], &[PathBuf::from("/tmp")]);
        assert!(!inner.shown.iter().any(|path| path.starts_with("/tmp")), "{inner:?}");
        let itself = view(&[Path::new("/tmp")], &[]);
        assert!(!itself.hidden.contains(&"/tmp".into()), "{itself:?}");
    }
}
