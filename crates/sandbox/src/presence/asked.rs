//! Asks git where it looks for hooks and settings.
//! Settings may name any folder for hooks, any file for more settings, and files that git runs;
//! they may also be the user's own and the machine's.
//!
//! Git is asked about the repository around the work directory when a session begins, and about one
//! inside it when a file in there changes; again once a file changes on which the answer depends.
//! The location of the repository itself is asked once.
//! Reading settings runs nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::checkout::{Checkout, Found};
use super::repository::{Taken, is_top};
use super::tree::{Tree, text, text_of};
use crate::change::Kind;
use crate::environment;
use crate::git;

/// How long git may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most bytes of an answer.
const ANSWER: u64 = 1 << 20;
/// Most repositories to ask git about; of others, only the settings files are read.
const REPOSITORIES: usize = 64;
/// Settings that name files which git reads and doesn't run.
const READ: [&str; 8] = [
    "blame.ignorerevsfile",
    "commit.template",
    "core.attributesfile",
    "core.excludesfile",
    "core.hookspath",
    "core.worktree",
    "gpg.ssh.allowedsignersfile",
    "mailmap.file",
];

/// What git obeys in a work directory because of its settings; paths are relative to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Files of settings, and files that git runs because of settings.
    pub files: BTreeSet<PathBuf>,
    /// Folders of hooks.
    pub folders: BTreeSet<PathBuf>,
    /// Relative paths in the user's own settings, which apply in every repository.
    pub anywhere: BTreeSet<PathBuf>,
    /// Targets of links that tools obey, each with its tool.
    pub linked: BTreeMap<PathBuf, &'static str>,
}

impl Places {
    /// Whether git obeys the file at a path now.
    pub fn have(&self, path: &Path, kind: Kind) -> bool {
        let is_sample = path.to_str().is_some_and(super::repository::is_sample);
        self.files.contains(path)
            || (!is_sample && self.folders.iter().any(|folder| path.starts_with(folder)))
            || self.anywhere.iter().any(|place| path.ancestors().any(|path| path.ends_with(place)))
            // A link on the way leads to other paths of that name.
            || (kind == Kind::Link && self.files.iter().chain(&self.folders).any(|place| place.starts_with(path)))
    }

    /// The tool that obeys a path because a path that it reads is a link to it.
    pub fn linked(&self, path: &Path) -> Option<&'static str> {
        self.linked.iter().find(|(place, _)| path.starts_with(place)).map(|(_, tool)| *tool)
    }

    fn add(&mut self, other: &Places) {
        self.files.extend(other.files.iter().cloned());
        self.folders.extend(other.folders.iter().cloned());
        self.anywhere.extend(other.anywhere.iter().cloned());
    }
}

/// Identifies a version of a file that was read.
type Stamp = Option<(u64, i64, i64)>;

/// Git's answer about one repository.
#[derive(Debug)]
struct Answer {
    places: Places,
    /// Where the repository is; `None` if git gave no answer.
    found: Option<Found>,
    /// The files that the answer depends on.
    from: Vec<(PathBuf, Stamp)>,
}

/// Git's answers about a work directory.
#[derive(Debug)]
pub struct Asked {
    work: PathBuf,
    answers: Mutex<HashMap<PathBuf, Answer>>,
}

impl Asked {
    /// The answers about `work`, a canonical path.
    pub fn about(work: &Path) -> Self {
        Asked { work: work.to_owned(), answers: Mutex::default() }
    }

    /// The files that belong to the work tree around the work directory, also elsewhere.
    pub fn checkout(&self) -> Option<Checkout> {
        let is_top = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
        let top = self.work.ancestors().find(is_top)?;
        self.places(top);
        let found = self.found(top)?;
        // A home directory is not a project.
        let is_own = found.top == top && !environment::homes().iter().any(|home| home.starts_with(top));
        let is_repository = |folder: &Path| {
            let path = folder.to_str();
            path.is_some_and(|path| self.git(folder, &["rev-parse", "--resolve-git-dir", path]).is_some())
        };
        is_own.then(|| Checkout::of(found, is_repository)).flatten()
    }

    /// What git obeys because of the settings of the repositories around the work directory.
    pub fn around(&self) -> Places {
        let tops = self.work.ancestors().filter(|folder| folder.join(".git").symlink_metadata().is_ok());
        let mut places = Places { linked: super::linked(&self.work), ..Places::default() };
        // The work directory may be inside a repository's own folder.
        for folder in tops.chain([self.work.as_path()]).collect::<BTreeSet<_>>() {
            places.add(&self.places(folder));
            for linked in self.found(folder).map(|found| linked(&found.common)).unwrap_or_default() {
                places.add(&self.places(&linked));
            }
        }
        places
    }

    /// Where the repository around `folder` is, if git was asked.
    fn found(&self, folder: &Path) -> Option<Found> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).get(folder)?.found.clone()
    }

    /// What git obeys, including because of the settings of the repositories that contain `changed`
    /// paths.
    pub fn within<'p>(&self, before: &dyn Tree, changed: impl Iterator<Item = &'p Path>) -> Places {
        let mut places = self.around();
        let mut seen = HashSet::new();
        for folder in changed.flat_map(|path| path.ancestors().skip(1)) {
            if folder.as_os_str().is_empty() || !seen.insert(folder) || is_top(before, folder) == Taken::No {
                continue;
            }
            let known = self.answers.lock().unwrap_or_else(PoisonError::into_inner).len();
            if known < REPOSITORIES || self.is_known(folder) {
                places.add(&self.places(&self.work.join(folder)));
            } else {
                places.add(&self.read(folder, &|path| text(before, path)));
            }
        }
        places
    }

    fn is_known(&self, folder: &Path) -> bool {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.contains_key(&self.work.join(folder))
    }

    /// What git obeys because of the settings of the repository at or around `folder`.
    fn places(&self, folder: &Path) -> Places {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answers.get(folder)
            && answer.from.iter().all(|(path, then)| stamp(path) == *then)
        {
            return answer.places.clone();
        }
        let answer = self.ask(folder).unwrap_or_else(|| {
            let inner = folder.strip_prefix(&self.work);
            let read = |path: &Path| text_of(&self.work.join(path));
            let mut places = inner.map_or_else(|_| Places::default(), |inner| self.read(inner, &read));
            let mut from = BTreeSet::from([".git", ".git/config"].map(|name| folder.join(name)));
            // The user's own settings apply even without a repository.
            if let Some(settings) = self.settings(folder, folder, None) {
                places.add(&settings.places);
                from.extend(settings.from);
            }
            Answer { places, found: None, from: stamps(from) }
        });
        let places = answer.places.clone();
        answers.insert(folder.to_owned(), answer);
        places
    }

    /// The paths that the settings files of the repository in `folder` name, without asking git.
    fn read(&self, folder: &Path, text: &dyn Fn(&Path) -> Option<String>) -> Places {
        let mut places = Places::default();
        let settings = text(&folder.join(".git/config")).as_deref().and_then(git::settings);
        let (top, own) = (self.work.join(folder), self.work.join(folder).join(".git"));
        for setting in settings.into_iter().flatten() {
            let (name, value) = setting.split_once('=').unwrap_or((&setting, ""));
            let value = value.trim_matches('"');
            self.named(&mut places, &name.to_lowercase(), value, &own, &top);
            if name.eq_ignore_ascii_case("core.hookspath") {
                places.folders.extend(self.inside(&from_home(value, &top)));
            }
        }
        places
    }

    fn ask(&self, folder: &Path) -> Option<Answer> {
        let parts = [
            "rev-parse",
            "--path-format=absolute",
            "--git-dir",
            "--git-common-dir",
            "--git-path",
            "hooks",
            // Without a work tree this is an error, but git prints the other answers first.
            "--show-toplevel",
        ];
        let found = self.git(folder, &parts)?;
        let mut lines = found.lines().map(PathBuf::from);
        let (own, common, hooks) = (lines.next()?, lines.next()?, lines.next()?);
        let top = lines.next();
        // An older git repeats an option that it doesn't know.
        if ![&own, &common, &hooks].iter().all(|path| path.is_absolute()) {
            return None;
        }
        let start = top.as_deref().unwrap_or(&own);
        let Settings { mut places, mut from, named } = self.settings(folder, start, Some((&own, &common)))?;
        // The branch decides whether some settings apply.
        let parts = [(&own, "HEAD"), (&own, "commondir"), (&own, "config.worktree"), (&common, "config")];
        from.extend(parts.map(|(folder, name)| folder.join(name)));
        from.insert(folder.join(".git"));
        places.folders.extend(self.inside(&hooks));
        for hook in hooks.read_dir().into_iter().flatten().flatten() {
            let is_link = hook.file_type().is_ok_and(|kind| kind.is_symlink());
            let leads = super::leads(&hook.path()).filter(|_| is_link);
            places.files.extend(leads.iter().flat_map(|leads| self.inside(leads)));
        }
        let real = |path: &Path| path.canonicalize().ok();
        let found = real(start).zip(real(&own).zip(real(&common)));
        let found = found.map(|(top, (own, common))| Found { top, own, common, named });
        Some(Answer { places, found, from: stamps(from) })
    }

    /// The paths that git's settings name in `folder`, if git runs programs in `start`.
    /// `own` is the repository's folder and the folder that its work trees share, if there is one.
    fn settings(&self, folder: &Path, start: &Path, own: Option<(&Path, &Path)>) -> Option<Settings> {
        let settings = self.git(folder, &["config", "--list", "--show-origin", "--includes", "-z"])?;
        let mut places = Places::default();
        let mut from = BTreeSet::new();
        // Their contents are checked elsewhere, but not the targets if they are links.
        let judged = own.map(|(own, common)| [common.join("config"), own.join("config.worktree")]);
        let judged: Vec<PathBuf> = judged.into_iter().flatten().collect();
        let is_judged = |path: &PathBuf| judged.contains(&self.work.join(path));
        let real = |path: &Path| path.canonicalize().ok();
        let mut named = false;
        let mut fields = settings.split('\0');
        while let (Some(origin), Some(setting)) = (fields.next(), fields.next()) {
            let Some(origin) = origin.strip_prefix("file:").map(|path| start.join(path)) else { continue };
            let (name, value) = setting.split_once('\n').unwrap_or((setting, ""));
            let parent = origin.parent().unwrap_or(&origin).to_owned();
            let is_own = || judged.iter().any(|own| real(own).is_some() && real(own) == real(&origin));
            named |= name.eq_ignore_ascii_case("core.worktree") && is_own();
            if !is_own() {
                places.anywhere.extend(relative(&name.to_lowercase(), value));
            }
            let target = self.named(&mut places, &name.to_lowercase(), value, &parent, start);
            from.extend(target);
            places.files.extend(self.inside(&origin).into_iter().filter(|path| !is_judged(path)));
            from.insert(origin);
        }
        Some(Settings { places, from, named })
    }

    /// Adds the paths that a setting names; returns the file of more settings, if it names one.
    /// `parent` is the folder of the settings file, `top` where git runs programs.
    fn named(
        &self,
        places: &mut Places,
        name: &str,
        value: &str,
        parent: &Path,
        top: &Path,
    ) -> Option<PathBuf> {
        let includes = name == "include.path" || (name.starts_with("includeif.") && name.ends_with(".path"));
        if includes {
            let target = from_home(value, parent);
            places.files.extend(self.inside(&target));
            return Some(target);
        }
        if name.ends_with("templatedir") {
            places.folders.extend(self.inside(&from_home(value, top)));
        }
        if runs_something(name, value) {
            let is_file = |path: &PathBuf| !path.is_dir();
            let named = files_of(value, top).into_iter().filter(is_file);
            places.files.extend(named.flat_map(|path| self.inside(&path)));
        }
        None
    }

    /// The targets of a path in the work directory: textually, and through links.
    fn inside(&self, path: &Path) -> BTreeSet<PathBuf> {
        let plain = environment::normalized(path);
        let real = environment::resolved(&plain);
        let both = [Some(plain), real].into_iter().flatten();
        both.filter_map(|path| path.strip_prefix(&self.work).ok().map(Path::to_owned)).collect()
    }

    /// Git's output; `None` if git is missing or fails.
    /// This is the user's git, with their settings, and not one in the work directory.
    fn git(&self, folder: &Path, arguments: &[&str]) -> Option<String> {
        let path = environment::fixed(&environment::path(), &[&self.work], &[]);
        let program =
            std::env::split_paths(&path).map(|entry| entry.join("git")).find(|git| git.is_file())?;
        let mut command = Command::new(program);
        command.arg("--no-pager").arg("-C").arg(folder).args(arguments).env_clear();
        for name in ["HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "SYSTEMROOT"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.env("PATH", path).env("LC_ALL", "C").env("GIT_OPTIONAL_LOCKS", "0");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let stdout = child.stdout.take()?;
        let (sender, answered) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = stdout.take(ANSWER).read_to_end(&mut bytes);
            // The receiver is gone if it took too long.
            let _ = sender.send(read.map(|_| bytes));
        });
        let answer = answered.recv_timeout(PATIENCE);
        // It has ended, or waits for something other than a file.
        let _ = child.kill();
        let _ = child.wait();
        let text = String::from_utf8(answer.ok()?.ok()?).ok()?;
        (!text.is_empty()).then_some(text)
    }
}

struct Settings {
    places: Places,
    /// The files that they come from.
    from: BTreeSet<PathBuf>,
    /// Whether the repository's own settings name its work tree.
    named: bool,
}

/// Whether git may run the value of a setting.
/// An alias is run by its name, as a script is.
fn runs_something(name: &str, value: &str) -> bool {
    !READ.contains(&name) && !name.starts_with("alias.") && !git::is_harmless(&format!("{name}={value}"))
}

/// The words of a command in a setting.
fn words(value: &str) -> Vec<&str> {
    let ends = |c: char| c.is_whitespace() || "\"'`;|&()<>!=${}".contains(c);
    value.split(ends).filter(|word| !word.is_empty()).collect()
}

/// Relative paths in a setting that applies in every repository: of hooks and of programs.
fn relative(name: &str, value: &str) -> Vec<PathBuf> {
    let is_relative = |path: &&str| path.contains('/') && !path.starts_with(['/', '~']);
    let normal = |path: &str| environment::normalized(Path::new(path));
    match name {
        "core.hookspath" if !value.starts_with(['/', '~']) => vec![normal(value)],
        name if runs_something(name, value) => {
            words(value).into_iter().filter(is_relative).map(normal).collect()
        }
        _ => Vec::new(),
    }
}

/// The files that a command in a setting may run or read; it runs in the folder `top`.
fn files_of(value: &str, top: &Path) -> Vec<PathBuf> {
    let words = words(value);
    // A program without any of these is looked up elsewhere; its arguments may be files.
    let files = words.iter().enumerate().filter(|(index, word)| *index > 0 || word.contains(['/', '.']));
    let mut found: Vec<PathBuf> = files.map(|(_, word)| from_home(word, top)).collect();
    // The text before a slash may be an expansion, or a folder that the command enters.
    found.extend(words.iter().filter_map(|word| word.split_once('/')).map(|(_, rest)| top.join(rest)));
    let folders: Vec<PathBuf> = found.iter().filter(|path| path.is_dir()).cloned().collect();
    let relative = words.iter().filter(|word| !word.starts_with(['/', '~', '-']));
    found.extend(relative.flat_map(|word| folders.iter().map(move |folder| folder.join(word))));
    // Modules and programs that are looked up there by name.
    for pair in words.windows(2) {
        match pair[0] {
            "-m" | "import" | "from" => {
                let module = pair[1].replace('.', "/");
                let names = ["{}.py", "{}/__init__.py", "{}/__main__.py"];
                found.extend(names.map(|name| top.join(name.replace("{}", &module))));
            }
            "npx" | "pnpx" | "bunx" | "exec" => found.push(top.join("node_modules/.bin").join(pair[1])),
            _ => {}
        }
    }
    found
}

/// The own folders of a repository's other work trees and submodules, and of theirs.
fn linked(common: &Path) -> Vec<PathBuf> {
    let below = |folder: &Path| {
        let entries = folder.read_dir().into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
        folders.sort();
        folders
    };
    let mut found = below(&common.join("worktrees"));
    // The names of submodules may be paths.
    let mut left = below(&common.join("modules"));
    while let Some(folder) = left.pop().filter(|_| found.len() + left.len() < REPOSITORIES) {
        if folder.join("HEAD").exists() {
            left.extend(below(&folder.join("modules")));
            found.push(folder);
        } else {
            left.extend(below(&folder));
        }
    }
    found.truncate(REPOSITORIES / 2);
    found
}

/// A path in a setting: relative to the home directory, or to a folder.
fn from_home(path: &str, folder: &Path) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => folder.join(path),
    }
}

/// For a folder, only its identity counts.
#[cfg(unix)]
fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let found = path.metadata().ok()?;
    let changed = if found.is_dir() { (0, 0) } else { (found.ctime(), found.ctime_nsec()) };
    Some((found.ino(), changed.0, changed.1))
}

#[cfg(not(unix))]
fn stamp(path: &Path) -> Stamp {
    let found = path.metadata().ok()?;
    let since = found.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some((found.len(), i64::try_from(since.as_secs()).ok()?, i64::from(since.subsec_nanos())))
}

fn stamps(paths: impl IntoIterator<Item = PathBuf>) -> Vec<(PathBuf, Stamp)> {
    paths.into_iter().map(|path| (path.clone(), stamp(&path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_hold_in_every_repository() {
        let check = |name: &str, value: &str, expected: &[&str]| {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(relative(name, value), expected, "{name}={value}");
        };
        check("core.hookspath", "dev/hooks", &["dev/hooks"]);
        check("core.hookspath", "./hooks/", &["hooks"]);
        check("core.hookspath", "/opt/hooks", &[]);
        check("core.hookspath", "~/hooks", &[]);
        check("core.fsmonitor", "tools/fsm --all", &["tools/fsm"]);
        check("core.fsmonitor", "true", &[]);
        check("core.autocrlf", "a/b", &[]);
        let places = Places { anywhere: [PathBuf::from("dev/hooks")].into(), ..Places::default() };
        let has = |path: &str| places.have(Path::new(path), Kind::File);
        assert!(has("dev/hooks/pre-commit") && has("n/dev/hooks/pre-commit"));
        assert!(!has("dev/hooked/pre-commit") && !has("hooks/pre-commit"));
    }

    #[test]
    fn files_of_commands_in_settings() {
        let top = Path::new("/top");
        let check = |value: &str, expected: &str| {
            assert!(files_of(value, top).contains(&PathBuf::from(expected)), "{value}: {expected}");
        };
        check("tools/c.sh", "/top/tools/c.sh");
        check("sh tools/c.sh", "/top/tools/c.sh");
        check("$PWD/tools/c.sh", "/top/tools/c.sh");
        check("\"$(git rev-parse --show-toplevel)\"/tools/c.sh %f", "/top/tools/c.sh");
        check("\"/usr/bin/python3\" -m nbstripout", "/top/nbstripout.py");
        check("python3 -m a.b", "/top/a/b/__main__.py");
        check("python3 -c 'import yaml; yaml.x()'", "/top/yaml.py");
        check("npx fmt", "/top/node_modules/.bin/fmt");
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tools")).unwrap();
        assert!(files_of("cd tools && ./c.sh", folder.path()).contains(&folder.path().join("tools/./c.sh")));
    }
}
