//! Where git looks for hooks and settings, by git's own answer.
//! Settings may name any folder for hooks and any file for more settings, and files that git runs;
//! they may be the user's own and the machine's too.
//!
//! Git is asked about the repository around the work directory when a session begins, and about
//! one that lies in it when something in there is changed; again once a file has changed that the
//! answer is made of.
//! Where the repository itself lies is asked once.
//! To read settings runs nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use alara_engine::file;

use super::checkout::{Checkout, Found};
use super::repository::{Taken, is_top};
use super::tree::{Tree, text};
use crate::git;
use crate::sandbox::change::Kind;
use crate::sandbox::environment;

/// How long git may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most bytes of an answer.
const ANSWER: u64 = 1 << 20;
/// Of how many repositories git is asked at most; of more only the settings themselves are read.
const REPOSITORIES: usize = 64;
/// Settings that name files which git reads and does not run.
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

/// What git obeys in a work directory by its settings; paths are relative to that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Files of settings, and files that settings let git run.
    pub files: BTreeSet<PathBuf>,
    /// Folders of hooks.
    pub folders: BTreeSet<PathBuf>,
}

impl Places {
    /// Whether git obeys the file at a path now.
    pub fn have(&self, path: &Path, kind: Kind) -> bool {
        let is_sample = path.to_str().is_some_and(super::repository::is_sample);
        self.files.contains(path)
            || (!is_sample && self.folders.iter().any(|folder| path.starts_with(folder)))
            // A link on the way leads to others of the name.
            || (kind == Kind::Link && self.files.iter().chain(&self.folders).any(|place| place.starts_with(path)))
    }

    fn add(&mut self, other: &Places) {
        self.files.extend(other.files.iter().cloned());
        self.folders.extend(other.folders.iter().cloned());
    }
}

/// What tells whether a file is still the one that was read.
type Stamp = Option<(u64, i64, i64)>;

/// What git said about one repository.
#[derive(Debug)]
struct Answer {
    places: Places,
    /// Where the repository lies; `None` = git did not say.
    found: Option<Found>,
    /// What it is made of.
    from: Vec<(PathBuf, Stamp)>,
}

/// What git has been asked about a work directory.
#[derive(Debug)]
pub struct Asked {
    work: PathBuf,
    answers: Mutex<HashMap<PathBuf, Answer>>,
}

impl Asked {
    /// About `work`, a canonical path.
    pub fn about(work: &Path) -> Self {
        Asked { work: work.to_owned(), answers: Mutex::default() }
    }

    /// What belongs to the work tree around the work directory, also elsewhere.
    pub fn checkout(&self) -> Option<Checkout> {
        let is_top = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
        let top = self.work.ancestors().find(is_top)?;
        self.places(top);
        let found = self.found(top)?;
        // A home directory is no project.
        let is_own = found.top == top && !environment::homes().iter().any(|home| home.starts_with(top));
        let is_repository = |folder: &Path| {
            let path = folder.to_str();
            path.is_some_and(|path| self.git(folder, &["rev-parse", "--resolve-git-dir", path]).is_some())
        };
        is_own.then(|| Checkout::of(found, is_repository)).flatten()
    }

    /// What git obeys by the settings of the repositories around the work directory.
    pub fn around(&self) -> Places {
        let tops = self.work.ancestors().filter(|folder| folder.join(".git").symlink_metadata().is_ok());
        let mut places = Places::default();
        // The work directory may be a part of a repository's own folder.
        for folder in tops.chain([self.work.as_path()]).collect::<BTreeSet<_>>() {
            places.add(&self.places(folder));
            for linked in self.found(folder).map(|found| linked(&found.common)).unwrap_or_default() {
                places.add(&self.places(&linked));
            }
        }
        places
    }

    /// Where the repository around `folder` lies, as far as git was asked.
    fn found(&self, folder: &Path) -> Option<Found> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).get(folder)?.found.clone()
    }

    /// What git obeys, also by the settings of the repositories that `changed` paths lie in.
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

    /// What git obeys by the settings of the repository that `folder` is, or is in.
    fn places(&self, folder: &Path) -> Places {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answers.get(folder)
            && answer.from.iter().all(|(path, then)| stamp(path) == *then)
        {
            return answer.places.clone();
        }
        let answer = self.ask(folder).unwrap_or_else(|| {
            let inner = folder.strip_prefix(&self.work);
            let read = |path: &Path| file::read_text(&self.work.join(path), file::TEXT).ok();
            let places = inner.map_or_else(|_| Places::default(), |inner| self.read(inner, &read));
            let from = [".git", ".git/config"].map(|name| folder.join(name));
            Answer { places, found: None, from: stamps(from) }
        });
        let places = answer.places.clone();
        answers.insert(folder.to_owned(), answer);
        places
    }

    /// Without git: what the settings of the repository in `folder` themselves name.
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
            // Without a work tree this is an error, but git printed the others before.
            "--show-toplevel",
        ];
        let found = self.git(folder, &parts)?;
        let mut lines = found.lines().map(PathBuf::from);
        let (own, common, hooks) = (lines.next()?, lines.next()?, lines.next()?);
        let top = lines.next();
        // An older git repeats the option that it does not know.
        if ![&own, &common, &hooks].iter().all(|path| path.is_absolute()) {
            return None;
        }
        let start = top.as_deref().unwrap_or(&own);
        let settings = self.git(folder, &["config", "--list", "--show-origin", "--includes", "-z"])?;
        let mut places = Places::default();
        // By the branch some settings hold and others don't.
        let parts = [(&own, "HEAD"), (&own, "commondir"), (&own, "config.worktree"), (&common, "config")];
        let parts = parts.map(|(folder, name)| folder.join(name));
        let mut from: BTreeSet<PathBuf> = parts.into_iter().chain([folder.join(".git")]).collect();
        // The contents of these are checked elsewhere, but not the targets if they are links.
        let judged = [common.join("config"), own.join("config.worktree")];
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
            let target = self.named(&mut places, &name.to_lowercase(), value, &parent, start);
            from.extend(target);
            places.files.extend(self.inside(&origin).into_iter().filter(|path| !is_judged(path)));
            from.insert(origin);
        }
        places.folders.extend(self.inside(&hooks));
        let found = real(start).zip(real(&own).zip(real(&common)));
        let found = found.map(|(top, (own, common))| Found { top, own, common, named });
        Some(Answer { places, found, from: stamps(from) })
    }

    /// Adds what a setting names; gives the file of more settings that it names, if it does.
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
        // An alias is run by its name, as a script is.
        let runs_nothing = READ.contains(&name)
            || name.starts_with("alias.")
            || git::is_harmless(&format!("{name}={value}"));
        if !runs_nothing {
            let ends = |c: char| c.is_whitespace() || "\"'`;|&()<>!=$".contains(c);
            let words = value.split(ends).filter(|word| !word.is_empty()).enumerate();
            // A program without any of these is looked for elsewhere; what follows may be a file.
            for (_, word) in words.filter(|(index, word)| *index > 0 || word.contains(['/', '.'])) {
                let path = from_home(word, top);
                if !path.is_dir() {
                    places.files.extend(self.inside(&path));
                }
            }
        }
        None
    }

    /// Where a path leads in the work directory: by its text, and through links.
    fn inside(&self, path: &Path) -> BTreeSet<PathBuf> {
        let plain = environment::normalized(path);
        let real = environment::resolved(&plain);
        let both = [Some(plain), real].into_iter().flatten();
        both.filter_map(|path| path.strip_prefix(&self.work).ok().map(Path::to_owned)).collect()
    }

    /// Git's output; `None` if git is missing or fails.
    /// It is the user's, with their settings, and not one of the work directory.
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

/// The own folders of what belongs to a repository: other work trees, submodules and theirs.
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

/// A path of a setting: from the home directory, or from a folder.
fn from_home(path: &str, folder: &Path) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => folder.join(path),
    }
}

/// Of a folder only which one it is.
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
