//! Rules about calls that are on an NPC's list: allow, ask a person, deny.
//! Answers are remembered for the session, or in a separate file; alara never rewrites a team's
//! files.
//!
//! A rule's pattern names a jinx (`shell`), or a jinx and the beginning of its first argument
//! (`shell:git push`).
//! Of the rules that match a command, the one with the longest pattern wins; among equals, the last
//! one, in this order: jinx, team.
//! Of several commands in one call, the strictest verdict wins.
//! An answer covers exactly the text that was asked about, and overrides rules.
//! This module must not know how a call is run.
//! Rules are the door, the sandbox is the wall.
//! A rule judges what a call names (`command`, `path`), and not what a program does then.
//!
//! Where a person can't be asked, or a rule can't be read, the answer is no.

mod command;
mod held;
mod path;
#[cfg(test)]
mod tests;

pub use command::wrappers;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use alara_text::file;
use serde_json::{Map, Value};

use crate::error::AnswersError;
use alara_sandbox::Risk;
use alara_team::jinx::Jinx;
use alara_team::team::{Rule, Team};
use alara_team::types::{Effect, Verdict, sha256};

/// Why a yes given beforehand doesn't permit a call.
pub const BEFOREHAND: &str = "a rule may deny this call, so a person must confirm it; --yes is not enough";

/// A question to a person: whether a call may be made, or whether it may use the user's keys.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The NPC that wants to make the call.
    pub npc: &'a str,
    /// The jinx.
    pub jinx: &'a Jinx,
    /// The arguments, with defaults filled in.
    pub arguments: &'a Map<String, Value>,
    /// The user's environment variables that its programs would get.
    /// Empty if the question is about the call itself.
    pub variables: &'a [&'a str],
    /// What its programs would remove or overwrite in the work directory, if that is the question.
    pub risk: Option<Risk<'a>>,
    /// Whether a deny rule may cover the call, and its text doesn't tell.
    /// Then only a person permits it, and no yes given beforehand.
    pub doubtful: bool,
    /// What a lasting answer covers: a pattern, or the current version of the jinx with these
    /// variables.
    pub about: String,
}

/// The verdict on a call, with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// Whether it may be made.
    pub verdict: Verdict,
    /// Whether the question is asked because a deny rule may cover the call.
    pub doubtful: bool,
    /// The rule or the answer that it comes from.
    pub by: String,
}

impl Ruling {
    fn of(verdict: Verdict, by: String) -> Self {
        Ruling { verdict, doubtful: false, by }
    }

    /// The stricter of two rulings; the first one if they are equal.
    fn stricter(self, other: Ruling) -> Ruling {
        let order = |ruling: &Ruling| (ruling.verdict, ruling.doubtful);
        if order(&other) > order(&self) { other } else { self }
    }
}

/// A person's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This time.
    Yes,
    /// From now on, until the program ends.
    Session,
    /// From now on; the answer is saved.
    Always,
    /// Not this time.
    No,
    /// Never; the answer is saved.
    Never,
}

/// Answers by holder (see [`holder`]) and by subject.
/// A subject is a call (see [`pattern`]), or a text that begins with `/`, which no jinx does.
type Answers = BTreeMap<String, BTreeMap<String, Verdict>>;

/// The answers that people gave: in this session, and in a file.
#[derive(Debug, Default)]
pub struct Permissions {
    answers: Mutex<Remembered>,
    file: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Remembered {
    file: Answers,
    session: Answers,
}

impl Permissions {
    /// Reads the answers in a file, if it exists; later answers are added to it.
    ///
    /// # Errors
    /// The file can't be read, or isn't in the format that alara writes.
    pub fn open(file: &Path) -> Result<Self, AnswersError> {
        let answers = read(file)?;
        let remembered = Remembered { file: answers, session: Answers::new() };
        Ok(Permissions { answers: Mutex::new(remembered), file: Some(file.to_owned()) })
    }

    /// The verdict on a call, and its source; `None` if no rule matches.
    /// Programs of the call run in the directory `work`.
    /// The longest of the team's own rules wins, and the longest of those from the teams above; the
    /// stricter of these two is the verdict.
    /// An answer overrides them, but one that permits never overrides a deny rule: it may cover
    /// more than this call, or be older than the rule.
    pub fn verdict(
        &self,
        team: &Team,
        jinx: &Jinx,
        arguments: &Map<String, Value>,
        work: &Path,
    ) -> Option<Ruling> {
        self.verdict_about(team, jinx, arguments, work, &pattern(jinx, arguments))
    }

    /// As [`verdict`](Self::verdict), for an answer about `about`.
    pub fn verdict_about(
        &self,
        team: &Team,
        jinx: &Jinx,
        arguments: &Map<String, Value>,
        work: &Path,
        about: &str,
    ) -> Option<Ruling> {
        let own = jinx.permission.map(|verdict| {
            let by = format!("`{}` itself", jinx.name);
            Rule { pattern: jinx.name.clone(), verdict, by, inherited: false }
        });
        let rules: Vec<&Rule> = own.iter().chain(&team.rules).collect();
        let ruled = judge(&rules, jinx, arguments, work);
        let denied = ruled.as_ref().is_some_and(|ruling| ruling.verdict == Verdict::Deny);
        match self.answer(&holder(team), about) {
            Some((Verdict::Allow, _)) if denied => ruled,
            answered => answered.map(|(verdict, by)| Ruling::of(verdict, by)).or(ruled),
        }
    }

    /// A person's answer to `holder` about exactly this, and how long it applies.
    pub fn answer(&self, holder: &str, about: &str) -> Option<(Verdict, String)> {
        let remembered = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = |answers: &Answers| answers.get(holder)?.get(about).copied();
        let now =
            answered(&remembered.session).map(|verdict| (verdict, "an answer in this session".to_owned()));
        now.or_else(|| answered(&remembered.file).map(|verdict| (verdict, "an earlier answer".to_owned())))
    }

    /// Remembers an answer to `holder` about this, if it applies for longer than this time.
    ///
    /// # Errors
    /// The file can't be written, as on a full disk.
    /// The answer applies in this session nevertheless.
    pub fn remember(&self, holder: &str, about: &str, answer: Answer) -> Result<(), AnswersError> {
        let verdict = match answer {
            Answer::Session | Answer::Always => Verdict::Allow,
            Answer::Never => Verdict::Deny,
            Answer::Yes | Answer::No => return Ok(()),
        };
        let mut remembered = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let insert = |answers: &mut Answers| {
            answers.entry(holder.to_owned()).or_default().insert(about.to_owned(), verdict);
        };
        insert(&mut remembered.session);
        if let Some(file) = self.file.as_deref().filter(|_| answer != Answer::Session) {
            // Another program may have added to it.
            remembered.file = read(file)?;
            insert(&mut remembered.file);
            write(file, &remembered.file)?;
        }
        Ok(())
    }
}

/// The holder of answers about a team: its directory, or the name of a built-in one.
/// Jinxes of the same name may differ elsewhere.
pub fn holder(team: &Team) -> String {
    let directory = team.directory.as_ref();
    // The target of a relative path depends on the current directory.
    let directory = directory.map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    directory.map_or_else(|| team.name.clone(), |directory| directory.display().to_string())
}

/// The subject of a yes to a team that was found: the current contents of its files.
pub fn about_files(team: &Team) -> String {
    format!("/files {}", team.fingerprint())
}

/// The holder of answers about keys: for any team, a key goes where the user said.
pub const KEYS: &str = "/keys";

/// The subject of a yes to sending the key in `variable` to `host`.
pub fn about_key(variable: &str, host: &str) -> String {
    format!("/{variable} to {host}")
}

/// The subject of an answer about a call: for a jinx that may change something, its exact first
/// argument, otherwise the jinx.
/// A remote tool's claim that it only reads doesn't widen an answer.
pub fn pattern(jinx: &Jinx, arguments: &Map<String, Value>) -> String {
    match first_argument(jinx, arguments) {
        Some(first) if jinx.effect == Effect::Write || jinx.remote.is_some() => {
            format!("{}:{first}", jinx.name)
        }
        _ => jinx.name.clone(),
    }
}

/// The subject of an answer that grants a jinx these environment variables.
/// That is the current version of the jinx, with the values that its steps get from the team's
/// `.ctx`.
/// It changes when either does.
pub fn variables(team: &Team, jinx: &Jinx, names: &[&str]) -> String {
    let parts = serde_json::to_vec(&(jinx, &team.values)).unwrap_or_default();
    format!("/{} {} gets {}", jinx.name, sha256(&parts), names.join(", "))
}

/// The verdict of the rules on a call, by its first input.
/// Callers of a remote tool may choose which inputs they give: if the first one is missing, all are
/// judged and the strictest verdict wins.
/// A rule that allows a prefix applies to the first input only.
fn judge(rules: &[&Rule], jinx: &Jinx, arguments: &Map<String, Value>, work: &Path) -> Option<Ruling> {
    let first = first(jinx, arguments);
    if first.is_some() || jinx.remote.is_none() || arguments.is_empty() {
        return held::verdict(rules, jinx, first, work);
    }
    let allows_beginning = |rule: &Rule| rule.verdict == Verdict::Allow && rule.pattern.contains(':');
    let rules: Vec<&Rule> = rules.iter().copied().filter(|rule| !allows_beginning(rule)).collect();
    let all = arguments.iter().map(|(name, value)| (name.as_str(), value));
    all.filter_map(|argument| held::verdict(&rules, jinx, Some(argument), work)).reduce(Ruling::stricter)
}

/// The first input that the jinx declares, if it is given, with its name.
fn first<'a>(jinx: &'a Jinx, arguments: &'a Map<String, Value>) -> Option<(&'a str, &'a Value)> {
    let name = &jinx.inputs.first()?.name;
    Some((name, arguments.get(name)?))
}

/// The argument that an answer covers: the first input.
/// If a remote tool doesn't get that one, all arguments.
fn first_argument(jinx: &Jinx, arguments: &Map<String, Value>) -> Option<String> {
    match first(jinx, arguments) {
        Some((_, Value::String(text))) => Some(text.clone()),
        Some((_, other)) => Some(other.to_string()),
        None if jinx.remote.is_some() && !arguments.is_empty() => {
            Some(Value::Object(arguments.clone()).to_string())
        }
        None => None,
    }
}

fn read(path: &Path) -> Result<Answers, AnswersError> {
    match file::read_text(path, file::TEXT) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|source| AnswersError::Read { path: path.to_owned(), source: source.into() }),
        // If a parent is not a folder, the file doesn't exist either.
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            Ok(Answers::new())
        }
        Err(source) => Err(AnswersError::Read { path: path.to_owned(), source }),
    }
}

/// Writes to a temporary file and renames it: a full disk loses nothing.
fn write(file: &Path, answers: &Answers) -> Result<(), AnswersError> {
    let error = |source| AnswersError::Write { path: file.to_owned(), source };
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(error)?;
    // Readable by its owner only.
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(error)?;
    let text = serde_json::to_string_pretty(answers).unwrap_or_default();
    new.write_all(format!("{text}\n").as_bytes()).map_err(error)?;
    new.as_file().sync_all().map_err(error)?;
    new.persist(file).map_err(|failed| error(failed.error))?;
    Ok(())
}
