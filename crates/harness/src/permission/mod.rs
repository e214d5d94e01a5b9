//! Rules about calls that are on an NPC's list: allow, ask a person, deny.
//! Answers are remembered for the session, or in a file of their own; no team's file is ever
//! rewritten.
//!
//! A rule's pattern names a jinx (`shell`), or a jinx and the beginning of its first argument
//! (`shell:git push`).
//! Of the rules that fit a command the one with the longest pattern counts; among equals the one
//! said last, in this order: jinx, team.
//! Of several commands in one call the one counts that is permitted least.
//! An answer is about exactly what was asked, to the letter, and goes before rules.
//! This module must not know how a call is run.
//! Rules are the door, the sandbox is the wall.
//! A rule is about what a call names (`command`, `path`), and not about what a program does then.
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

use alara_engine::file;
use serde_json::{Map, Value};

use crate::error::Error;
use crate::jinx::Jinx;
use crate::sandbox::Risk;
use crate::team::{Rule, Team};
use crate::types::{Effect, Verdict, sha256};

/// Why a yes that was given beforehand does not permit a call.
pub(crate) const BEFOREHAND: &str =
    "a rule may deny this call, so a person must confirm it; --yes is not enough";

/// What a person is asked: whether a call may be made, or whether it may have what is the user's.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Who wants to make the call.
    pub npc: &'a str,
    /// The jinx.
    pub jinx: &'a Jinx,
    /// The arguments, complete.
    pub arguments: &'a Map<String, Value>,
    /// The user's environment variables that its programs would get.
    /// Empty: the question is about the call itself.
    pub variables: &'a [&'a str],
    /// What its programs would take away of what lies in the work directory, if that is the
    /// question.
    pub risk: Option<Risk<'a>>,
    /// Whether a rule that denies may cover the call, and its text does not tell.
    /// Then only a person permits it, and no yes that was given beforehand.
    pub doubtful: bool,
    /// What an answer for longer than this time is about: a pattern, or the jinx as it is now with
    /// these variables.
    pub about: String,
}

/// What holds for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// Whether it may be made.
    pub verdict: Verdict,
    /// Whether a person is asked because a rule that denies may cover it.
    pub doubtful: bool,
    /// The rule or the answer that it comes from.
    pub by: String,
}

impl Ruling {
    fn of(verdict: Verdict, by: String) -> Self {
        Ruling { verdict, doubtful: false, by }
    }

    /// The first of two that permits less, or as much.
    fn stricter(self, other: Ruling) -> Ruling {
        let order = |ruling: &Ruling| (ruling.verdict, ruling.doubtful);
        if order(&other) > order(&self) { other } else { self }
    }
}

/// What a person answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This time.
    Yes,
    /// From now on, until the program ends.
    Session,
    /// From now on; it is written down.
    Always,
    /// Not this time.
    No,
    /// Never; it is written down.
    Never,
}

/// Answers by whom they are given to (see [`holder`]) and what they are about.
/// That is a call (see [`pattern`]), or something that begins with `/`, which no jinx does.
type Answers = BTreeMap<String, BTreeMap<String, Verdict>>;

/// The rules that people have made: in this session, and those in a file.
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
    /// With the answers of a file, if it exists, which later answers are added to.
    ///
    /// # Errors
    /// The file can't be read, or is not what was once written.
    pub fn open(file: &Path) -> Result<Self, Error> {
        let answers = read(file)?;
        let remembered = Remembered { file: answers, session: Answers::new() };
        Ok(Permissions { answers: Mutex::new(remembered), file: Some(file.to_owned()) })
    }

    /// What holds for a call, and by what; `None` if no rule speaks of it.
    /// Programs of the call run in the directory `work`.
    /// Of the team's own rules the longest counts, and of those of the teams above; of these two
    /// the one that permits less.
    /// An answer goes before them, but one that permits never before a rule that denies: it may be
    /// about more than this call, or older than the rule.
    pub fn verdict(
        &self,
        team: &Team,
        jinx: &Jinx,
        arguments: &Map<String, Value>,
        work: &Path,
    ) -> Option<Ruling> {
        self.verdict_about(team, jinx, arguments, work, &pattern(jinx, arguments))
    }

    /// The same, where an answer is about `about`.
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
        let ruled = held(&rules, jinx, arguments, work);
        let denied = ruled.as_ref().is_some_and(|ruling| ruling.verdict == Verdict::Deny);
        match self.answer(&holder(team), about) {
            Some((Verdict::Allow, _)) if denied => ruled,
            answered => answered.map(|(verdict, by)| Ruling::of(verdict, by)).or(ruled),
        }
    }

    /// What a person has answered to `holder` about exactly this, and when.
    pub fn answer(&self, holder: &str, about: &str) -> Option<(Verdict, String)> {
        let remembered = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = |answers: &Answers| answers.get(holder)?.get(about).copied();
        let now =
            answered(&remembered.session).map(|verdict| (verdict, "an answer in this session".to_owned()));
        now.or_else(|| answered(&remembered.file).map(|verdict| (verdict, "an earlier answer".to_owned())))
    }

    /// Remembers an answer to `holder` about this, as far as it holds for longer than this time.
    ///
    /// # Errors
    /// The file can't be written, as on a full disk.
    /// The answer holds in this session nevertheless.
    pub fn remember(&self, holder: &str, about: &str, answer: Answer) -> Result<(), Error> {
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

/// Whom answers about a team are given to: its directory, or the name of a built-in one.
/// Jinxes of the same name may be something else elsewhere.
pub fn holder(team: &Team) -> String {
    let directory = team.directory.as_ref();
    // Where a relative path leads depends on where one stands.
    let directory = directory.map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    directory.map_or_else(|| team.name.clone(), |directory| directory.display().to_string())
}

/// What a yes to a team that was found is about: its files as they are now.
pub fn about_files(team: &Team) -> String {
    format!("/files {}", team.fingerprint())
}

/// Whom answers about keys are given to: whatever team it is, a key goes where the user said.
pub const KEYS: &str = "/keys";

/// What a yes to sending the key in `variable` to `host` is about.
pub fn about_key(variable: &str, host: &str) -> String {
    format!("/{variable} to {host}")
}

/// What an answer is about: for a jinx that may change something its very first argument to the
/// letter, otherwise the jinx.
/// That another program's tool only reads is that program's word, and widens no answer.
pub fn pattern(jinx: &Jinx, arguments: &Map<String, Value>) -> String {
    match first_argument(jinx, arguments) {
        Some(first) if jinx.effect == Effect::Write || jinx.remote.is_some() => {
            format!("{}:{first}", jinx.name)
        }
        _ => jinx.name.clone(),
    }
}

/// What an answer is about that lets a jinx have these variables of the environment.
/// That is the jinx as it is now, with the values that its steps get from the team's `.ctx`.
/// Another one once either has changed.
pub fn variables(team: &Team, jinx: &Jinx, names: &[&str]) -> String {
    let parts = serde_json::to_vec(&(jinx, &team.values)).unwrap_or_default();
    format!("/{} {} gets {}", jinx.name, sha256(&parts), names.join(", "))
}

/// What rules say of a call: of its first input.
/// Callers of another program's tool may choose which inputs they give: where the first one is
/// missing, all are judged and the strictest verdict counts.
/// A rule that allows a prefix applies to the first input only.
fn held(rules: &[&Rule], jinx: &Jinx, arguments: &Map<String, Value>, work: &Path) -> Option<Ruling> {
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

/// The argument that an answer applies to: the first input.
/// Where another program's tool is not given that one, all arguments.
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

fn read(path: &Path) -> Result<Answers, Error> {
    match file::read_text(path, file::TEXT) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|source| Error::Answers { path: path.to_owned(), source: source.into() }),
        // Below what is no folder there is no file either.
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            Ok(Answers::new())
        }
        Err(source) => Err(Error::Answers { path: path.to_owned(), source }),
    }
}

/// Writes to a temporary file that then takes the place: a full disk loses nothing.
fn write(file: &Path, answers: &Answers) -> Result<(), Error> {
    let error = |source| Error::Answer { path: file.to_owned(), source };
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(error)?;
    // Readable for its owner only.
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(error)?;
    let text = serde_json::to_string_pretty(answers).unwrap_or_default();
    new.write_all(format!("{text}\n").as_bytes()).map_err(error)?;
    new.as_file().sync_all().map_err(error)?;
    new.persist(file).map_err(|failed| error(failed.error))?;
    Ok(())
}
