//! Runs one task from setup to end: attempts, each followed by the verification, and the steps
//! between them.
//!
//! An error of the environment never counts as a failed task: a missing program tells nothing about
//! the model.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use alara_engine::{Request, Sampling};
use alara_harness::agent::Agent;
use alara_harness::model::{ChatModel, Events, ModelError, ModelSource, ModelSpec, Scripted};
use alara_harness::run::refusals;
use alara_harness::session::Session;
use alara_harness::team::Npc;
use alara_harness::trace::{Entry, Record, Trace};
use alara_harness::{Outcome, Sandbox};
use sha2::{Digest, Sha256};

use crate::converse::Talk;
use crate::dialogue::calls::USER;
use crate::dialogue::{Measures, User};
use crate::options::{Options, Progress, Solver};
use crate::policy::{FEEDBACK_BYTES, Retry, cut};
use crate::record::{Attempt, Cost, Finished, Named, TurnRecord, Verdict};
use crate::scripts::{Infrastructure, ScriptOutcome, prepare, set_up, verify};
use crate::task_dir::TaskDir;
use crate::{Error, Task};

/// Deadline for a task whose time limit no clock can represent.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The model under test, the one that plays the user, and the embedding model.
struct Models<'a> {
    model: &'a AttemptModel<'a>,
    /// `None` if the model under test plays the user too.
    user: Option<&'a AttemptModel<'a>>,
    embedder: Option<&'a dyn ChatModel>,
}

impl ModelSource for Models<'_> {
    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        let user = self.user.filter(|_| *spec == ModelSpec::named(USER));
        Ok(Arc::new(user.unwrap_or(self.model)))
    }

    fn embedding(&self, name: &str) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        let absent = || ModelError::new(format!("the embedding model {name} is not loaded"));
        Ok(Arc::new(self.embedder.ok_or_else(absent)?))
    }
}

/// An agent's work in one attempt.
#[derive(Default)]
struct AttemptLog {
    /// What stopped it before it considered itself done; empty if nothing did.
    note: String,
    messages: Vec<TurnRecord>,
    /// Number of refused calls, by what refused them.
    refusals: BTreeMap<String, u64>,
    /// Whether another attempt would fail in the same way.
    give_up: bool,
}

/// Works on the task once, given the next message to the agent.
type Worker<'a> = Box<dyn FnMut(&str) -> Result<AttemptLog, Infrastructure> + 'a>;

/// What ends a task other than a verdict on its last attempt.
enum Stop {
    /// The environment is at fault.
    Broken(Infrastructure),
    /// An attempt can't be recorded.
    Unrecorded(Error),
    Cancelled,
}

impl From<Infrastructure> for Stop {
    fn from(broken: Infrastructure) -> Self {
        Stop::Broken(broken)
    }
}

/// Runs `task` in `dir`.
/// Writes its conversations to the folder `traces`; passes each attempt to `record` at its end.
/// `None` if the run was cancelled meanwhile.
///
/// # Errors
/// Those of `record`.
/// Any other problem becomes a verdict.
pub fn run(
    task: &Task,
    solver: &Solver,
    options: &Options,
    dir: Result<TaskDir, Error>,
    traces: &Path,
    record: impl FnMut(Attempt) -> Result<(), Error>,
) -> Result<Option<Finished>, Error> {
    let begun = Instant::now();
    let limit = task.timeout.map_or(options.timeout, |seconds| Duration::from_secs(seconds.get()));
    let rule = options.policy.of(&task.category);
    let mut attempts = Attempts {
        task,
        solver,
        options,
        retry: rule.retry,
        // Messages to a user can't be taken back, so a dialogue is repeated by trials.
        most: if task.dialogue.is_some() { 1 } else { rule.attempts.get() },
        deadline: begun.checked_add(limit).unwrap_or(begun + YEAR),
        number: 0,
        record,
    };
    let ended = attempts.all(dir, traces);
    let (verdict, reason) = match attempts.go_on().and(ended) {
        Ok(ended) => ended,
        Err(Stop::Broken(Infrastructure(reason))) => (Verdict::Error, reason),
        Err(Stop::Unrecorded(error)) => return Err(error),
        Err(Stop::Cancelled) => return Ok(None),
    };
    Ok(Some(Finished::new(task, verdict, reason, attempts.number, begun.elapsed().as_secs_f64())))
}

/// The attempts of a task.
struct Attempts<'a, R> {
    task: &'a Task,
    solver: &'a Solver<'a>,
    options: &'a Options<'a>,
    retry: Retry,
    /// Maximum number of attempts.
    most: u32,
    deadline: Instant,
    /// Number of the current attempt, from 1.
    number: u32,
    /// Receives each attempt at its end.
    record: R,
}

/// Where a task is worked on.
struct Place<'a> {
    sandbox: &'a Sandbox,
    dir: &'a TaskDir,
    /// The dialogue, if the task is one.
    talk: Option<&'a Talk<'a>>,
}

/// An attempt's result.
struct Judged {
    verdict: Verdict,
    reason: String,
    /// Output of a failed verification.
    output: String,
    /// Whether another attempt would fail in the same way.
    give_up: bool,
}

impl<R: FnMut(Attempt) -> Result<(), Error>> Attempts<'_, R> {
    /// Makes attempts until one of them isn't failed, or the last one is over.
    /// Returns its verdict and the reason.
    fn all(&mut self, dir: Result<TaskDir, Error>, traces: &Path) -> Result<(Verdict, String), Stop> {
        let Attempts { task, solver, options, .. } = *self;
        let dir = dir.map_err(Infrastructure::from)?;
        let npc = equip(task, solver)?;
        remove_traces(traces, &task.id).map_err(Infrastructure::from)?;
        let sandbox = prepare(task, options.isolation, &options.programs, &options.cancel, &dir)?;
        let script = Scripted::new((0..self.most).flat_map(|_| solver.player.turns(task)));
        let model = solver.player.model().unwrap_or(&script);
        let sampling = Mutex::default();
        let attempt_model = AttemptModel { model, thinking: solver.thinking, sampling: &sampling };
        let user = solver.user.map(|model| AttemptModel { model, thinking: None, sampling: &sampling });
        let source = Models { model: &attempt_model, user: user.as_ref(), embedder: solver.embedder };
        let talk = task.dialogue.as_deref();
        let talk = talk.map(|dialogue| Talk::prepare(dialogue, task, solver, &source, &sandbox, &dir));
        let talk = talk.transpose()?;
        let place = Place { sandbox: &sandbox, dir: &dir, talk: talk.as_ref() };
        let instruction = task.instruction.trim();
        let mut message = instruction.to_owned();
        // Each round is a conversation.
        loop {
            let path = traces.join(trace_name(&task.id, self.number + 1));
            let trace = Trace::create(&path).map_err(Infrastructure::from)?;
            let session = Session::new(&source, &sandbox).sampled(solver.sampling.clone());
            let mut session = session.calling(solver.calls).traced(trace);
            session.knowledge = solver.knowledge.clone();
            session.documents = talk.as_ref().map(|talk| talk.documents.clone()).unwrap_or_default();
            let mut work = worker(solver, &npc, &session, place.talk, self.deadline)?;
            // Each round is an attempt.
            loop {
                self.number += 1;
                *sampling.lock().unwrap_or_else(PoisonError::into_inner) = self.sampling();
                let judged = self.attempt(&mut work, &message, &session, &place, &path)?;
                let stuck = judged.give_up && self.retry != Retry::Fresh;
                let over = stuck || self.number >= self.most || Instant::now() >= self.deadline;
                if judged.verdict != Verdict::Failed || over {
                    return Ok((judged.verdict, judged.reason));
                }
                message = self.retry.message(instruction, &judged.output, &session.trace.entries());
                if self.retry == Retry::Feedback {
                    continue;
                }
                dir.clear().map_err(Infrastructure::from)?;
                set_up(task, &sandbox, &dir)?;
                if self.retry == Retry::Fresh {
                    break;
                }
            }
        }
    }

    /// # Errors
    /// The run is cancelled.
    fn go_on(&self) -> Result<(), Stop> {
        if self.options.cancel.load(Ordering::Relaxed) { Err(Stop::Cancelled) } else { Ok(()) }
    }

    /// Returns how the current attempt's sampling differs from the run's.
    fn sampling(&self) -> AttemptSampling {
        AttemptSampling {
            seed: seed(self.options.seed, &self.task.id, self.number),
            temperature: if self.number > 1 { self.options.retry_temperature } else { 0.0 },
        }
    }

    /// Makes the current attempt, judges and records it.
    fn attempt(
        &mut self,
        work: &mut Worker,
        message: &str,
        session: &Session,
        place: &Place,
        trace: &Path,
    ) -> Result<Judged, Stop> {
        (self.options.observer)(Progress::Attempt { task: self.task, number: self.number });
        let started = Instant::now();
        let before = session.trace.len();
        let done = work(message);
        self.go_on()?;
        // Whatever stopped the solver, the current state of the files counts.
        let (checked, measures) = self.check(place, session, before);
        self.go_on()?;
        let (log, broken) = match done {
            Ok(log) => (log, place.dir.probe_disk().err().map(|e| format!("the disk can't be written: {e}"))),
            Err(Infrastructure(reason)) => (AttemptLog::default(), Some(reason)),
        };
        let judged = judge(&log, checked, broken);
        let cost = Cost::of(&log.messages);
        let attempt = Attempt {
            task: self.task.id.clone(),
            attempt: self.number,
            seed: self.sampling().seed,
            verdict: judged.verdict,
            reason: judged.reason.clone(),
            seconds: started.elapsed().as_secs_f64(),
            cost,
            ttft: log.messages.first().map(|message| message.ttft),
            tokens_per_second: cost.tokens_per_second(),
            trace: relative(trace),
            refusals: log.refusals,
            dialogue: measures,
            messages: log.messages,
        };
        (self.record)(attempt).map_err(Stop::Unrecorded)?;
        Ok(judged)
    }

    /// Verifies the result of an attempt that begins after the first `before` entries.
    /// Also returns what a dialogue is measured by.
    fn check(
        &self,
        place: &Place,
        session: &Session,
        before: usize,
    ) -> (Result<ScriptOutcome, Infrastructure>, Option<Box<Measures>>) {
        let entries = session.trace.entries();
        let (checked, measures) = match place.talk {
            Some(talk) => {
                let (judged, measures) = talk.judge(&entries);
                (Ok(judged), Some(Box::new(measures)))
            }
            None => (verify(self.task, place.sandbox, place.dir), None),
        };
        // If the files are reset, the team's work counts from there too.
        let since = if self.retry == Retry::Feedback { 0 } else { before };
        let checked = checked.map(|check| match check {
            ScriptOutcome::Passed => delegated(self.task, self.solver, &entries[since..]),
            failed => failed,
        });
        (checked, measures)
    }
}

/// Judges an attempt by its verification, and by the `broken` part of the environment.
fn judge(log: &AttemptLog, checked: Result<ScriptOutcome, Infrastructure>, broken: Option<String>) -> Judged {
    let (verdict, reason, output) = match (checked, broken) {
        (Ok(ScriptOutcome::Passed), _) => (Verdict::Solved, String::new(), String::new()),
        (Ok(ScriptOutcome::Failed(_)), Some(reason)) | (Err(Infrastructure(reason)), _) => {
            (Verdict::Error, reason, String::new())
        }
        (Ok(ScriptOutcome::Failed(output)), None) => {
            let parts = [log.note.as_str(), cut(&output, FEEDBACK_BYTES)];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            (Verdict::Failed, parts.join("; "), output)
        }
    };
    Judged { verdict, reason, output, give_up: log.give_up }
}

/// Returns the seed of an attempt: the first 8 bytes, big-endian, of a SHA-256 over the run's seed,
/// the task and the attempt's number.
pub fn seed(run: u64, task: &str, number: u32) -> u64 {
    let hash = Sha256::digest(format!("{run}\n{task}\n{number}"));
    hash.iter().take(8).fold(0, |seed, &byte| seed << 8 | u64::from(byte))
}

/// Returns the file name of the conversation that begins with this attempt.
fn trace_name(id: &str, attempt: u32) -> String {
    if attempt == 1 { format!("{id}.jsonl") } else { format!("{id}@{attempt}.jsonl") }
}

/// Removes the conversations of a task left by a killed run.
fn remove_traces(traces: &Path, id: &str) -> std::io::Result<()> {
    let Ok(entries) = traces.read_dir() else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let rest = name.strip_prefix(id).unwrap_or_default();
        if rest.starts_with('@') || rest == ".jsonl" {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Returns a trace's path as recorded in the run file next to its folder.
fn relative(trace: &Path) -> String {
    let names = trace.parent().and_then(Path::file_name).zip(trace.file_name());
    names.map_or_else(String::new, |(folder, file)| {
        Path::new(folder).join(file).to_string_lossy().into_owned()
    })
}

/// Returns the agent's NPC with the task's jinxes added.
/// If the team lacks a member or a tool that the task needs, the agent isn't at fault.
fn equip(task: &Task, solver: &Solver) -> Result<Npc, Infrastructure> {
    let team = solver.team;
    if let Some(name) = task.jinxes.iter().find(|name| team.jinx(name).is_none()) {
        return Err(Infrastructure(format!("the team {} has no jinx `{name}`", team.name)));
    }
    if let Some(name) = task.delegates.iter().find(|name| team.member(name).is_none()) {
        return Err(Infrastructure(format!("the team {} has no member `{name}`", team.name)));
    }
    let user = task.dialogue.as_ref().map(|dialogue| &dialogue.user);
    if let Some(User::Npc(persona)) = user
        && team.npc(Some(&persona.npc)).is_err()
    {
        return Err(Infrastructure(format!(
            "the team {} has no NPC `{}` to play the user",
            team.name, persona.npc
        )));
    }
    let mut npc = solver.npc.clone();
    let new = task.jinxes.iter().filter(|name| !solver.npc.jinxes.contains(name));
    npc.jinxes.extend(new.cloned());
    Ok(npc)
}

/// Checks that each member named by the task has worked: one of its calls succeeded in a
/// conversation begun for it.
fn delegated(task: &Task, solver: &Solver, entries: &[Entry]) -> ScriptOutcome {
    let has_worked = |name: &str| {
        let meant = |record: &Record| match record {
            Record::Start(start) if start.team == solver.team.name => start.npc == name,
            Record::Start(start) => start.team == name,
            _ => false,
        };
        let begun = entries.iter().filter(|entry| !entry.scope.is_empty() && meant(&entry.record));
        let done = |scope: &str| {
            entries.iter().any(|entry| {
                entry.scope == scope
                    && matches!(&*entry.record, Record::ToolResult { result, .. } if result.ok)
            })
        };
        begun.into_iter().any(|entry| done(&entry.scope))
    };
    match task.delegates.iter().find(|name| !has_worked(name)) {
        Some(name) => ScriptOutcome::Failed(format!("The result is right, but {name} has not worked on it.")),
        None => ScriptOutcome::Passed,
    }
}

/// Returns the worker for the task in the conversation of `session`.
fn worker<'a, 's: 'a>(
    solver: &'a Solver,
    npc: &'a Npc,
    session: &'a Session<'s>,
    talk: Option<&'a Talk<'a>>,
    deadline: Instant,
) -> Result<Worker<'a>, Infrastructure> {
    let mut agent = Agent::new(session, solver.team, npc, None)?.until(deadline);
    Ok(Box::new(move |message| {
        let before = session.trace.entries().len();
        let outcome = match talk {
            None => agent.run(message),
            Some(talk) => talk.hold(session, &mut agent),
        };
        let entries = session.trace.entries();
        let mut log = log(&entries, before, &solver.named);
        log.note = match outcome {
            Ok(Outcome::Answer { .. } | Outcome::Cancelled) => String::new(),
            Ok(Outcome::TurnLimit { turns }) => format!("it used all {turns} turns"),
            Ok(Outcome::Length) => "a turn reached the limit on tokens".to_owned(),
            Ok(Outcome::Deadline) => "the time was up".to_owned(),
            Ok(Outcome::Repetition { call: Some(call) }) => format!("it called {call} again and again"),
            Ok(Outcome::Repetition { call: None }) => "it repeated itself".to_owned(),
            Ok(Outcome::Failed { error }) => error,
            // The model has worked so far and fails to continue: most likely the conversation
            // exceeded its context.
            Err(alara_harness::Error::Model(error)) if error.is_outage() => {
                return Err(alara_harness::Error::Model(error).into());
            }
            Err(error @ alara_harness::Error::Model(_))
                if agent.records().any(|record| matches!(record, Record::Assistant { .. })) =>
            {
                log.give_up = true;
                Infrastructure::from(error).0
            }
            Err(error) => return Err(error.into()),
        };
        Ok(log)
    }))
}

/// Collects the models' turns in an attempt, which begins after the first `before` entries, and the
/// refusals of its calls.
/// Each turn has its NPC, its cost, and the model of its conversation at that time.
fn log(entries: &[Entry], before: usize, named: &Named) -> AttemptLog {
    let mut messages = Vec::new();
    for (index, entry) in entries.iter().enumerate().skip(before) {
        let Record::Assistant { message, usage, .. } = &*entry.record else { continue };
        let start = entries[..index].iter().rev().find_map(|earlier| match &*earlier.record {
            Record::Start(start) if earlier.scope == entry.scope => Some(start),
            _ => None,
        });
        let (npc, model) = start.map_or(("", ""), |start| (&start.npc, &start.model));
        let hash = if model == named.name { named.hash.clone() } else { String::new() };
        messages.push(TurnRecord {
            npc: npc.to_owned(),
            model: Named { name: model.to_owned(), hash },
            tool_calls: message.tool_calls.len() as u64,
            tokens_in: usage.prompt_tokens as u64,
            tokens_cached: usage.cached_tokens as u64,
            tokens_out: usage.completion_tokens as u64,
            ttft: usage.time_to_first_token.as_secs_f64(),
            decode_seconds: usage.decode_time.as_secs_f64(),
            tokens_drafted: usage.drafts.drafted as u64,
            tokens_accepted: usage.drafts.accepted as u64,
        });
    }
    let refusals = refusals(entries[before..].iter().map(|entry| &*entry.record));
    AttemptLog { messages, refusals, ..AttemptLog::default() }
}

/// A model that samples with the seed and temperature of the current attempt.
struct AttemptModel<'a> {
    model: &'a dyn ChatModel,
    thinking: Option<bool>,
    sampling: &'a Mutex<AttemptSampling>,
}

/// How an attempt's sampling differs from the run's.
#[derive(Clone, Copy, Default)]
struct AttemptSampling {
    seed: u64,
    /// Minimum temperature.
    temperature: f32,
}

impl ChatModel for AttemptModel<'_> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn chat(&self, mut request: Request) -> Result<Events<'_>, ModelError> {
        let AttemptSampling { seed, temperature } =
            *self.sampling.lock().unwrap_or_else(PoisonError::into_inner);
        request.sampling.seed = seed;
        request.sampling.temperature = request.sampling.temperature.max(temperature);
        request.thinking = self.thinking.or(request.thinking);
        self.model.chat(request)
    }

    fn inner(&self) -> Option<&dyn ChatModel> {
        Some(self.model)
    }

    // A run sets all sampling parameters itself.
    fn sampling(&self) -> Sampling {
        Sampling::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_by_run_task_and_attempt() {
        let seeds = [seed(0, "a", 1), seed(1, "a", 1), seed(0, "b", 1), seed(0, "a", 2), seed(0, "a1", 1)];
        for (index, one) in seeds.iter().enumerate() {
            assert!(seeds[..index].iter().all(|other| other != one));
        }
        assert_eq!(seeds[0], seed(0, "a", 1));
    }

    #[test]
    fn only_the_traces_of_the_task_go() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a-1.jsonl", "a-1@2.jsonl", "a-1.b.jsonl", "a-10.jsonl"];
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), "").unwrap());
        remove_traces(folder.path(), "a-1").unwrap();
        let left = names.map(|name| folder.path().join(name).exists());
        assert_eq!(left, [false, false, true, true]);
    }
}
