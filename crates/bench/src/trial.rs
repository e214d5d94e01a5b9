//! One task from its setup to its end: attempts, each followed by the verification, whose words are the feedback.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use alara_engine::Request;
use alara_harness::agent::{Agent, Outcome};
use alara_harness::error::chain;
use alara_harness::model::{ChatModel, Events, ModelError, Scripted, Single};
use alara_harness::sandbox::{Policy, Sandbox, Script};
use alara_harness::session::Session;
use alara_harness::team::Npc;
use alara_harness::trace::{Record, Trace, usage};
use sha2::{Digest, Sha256};

use crate::place::Place;
use crate::record::{Attempt, Cost, Finished, Verdict};
use crate::runner::{Options, Progress, Solver};
use crate::task::Solution;
use crate::{Error, Task};

/// Longest time of the setup.
const SETUP: Duration = Duration::from_secs(60);
/// Longest time of a verification, which does not count as the task's.
const VERIFY: Duration = Duration::from_secs(30);
/// Most bytes of a verification's words that the agent gets to read.
const FEEDBACK_BYTES: usize = 2000;
/// Most bytes that are kept of what a script prints.
const OUTPUT_BYTES: usize = 16 * 1024;
/// Git's identity and default branch; what it writes need not outlive the machine. `HOME` is the task's own, so nobody's own settings come in.
const GIT_CONFIG: &str = "[user]\n\tname = alara\n\temail = alara@example.invalid\n[init]\n\tdefaultBranch = main\n[core]\n\tfsync = none\n";

/// Something that is not the agent's fault, as a person should read it.
struct Infrastructure(String);

impl<E: std::error::Error> From<E> for Infrastructure {
    fn from(error: E) -> Self {
        Infrastructure(chain(&error))
    }
}

/// How a script of the task ended, and what it said.
enum Check {
    Passed,
    Failed(String),
}

/// What a solver did in one attempt.
#[derive(Default)]
struct Did {
    /// What stopped it before it thought itself ready; empty if nothing did.
    note: String,
    cost: Cost,
    ttft: Option<f64>,
    /// Whether a further attempt would be the same in vain.
    give_up: bool,
}

/// Works on the task once, given what to say to the agent.
type Work<'a> = Box<dyn FnMut(&str) -> Result<Did, Infrastructure> + 'a>;

/// Runs `task` in `place`. `missing` names programs that this machine lacks; the conversation is written to `trace`;
/// `record` gets each attempt at its end. `None` if the run was cancelled meanwhile.
///
/// # Errors
/// Those of `record`. Whatever else goes wrong is a verdict.
pub fn run(
    task: &Task,
    solver: &Solver,
    options: &Options,
    place: Result<Place, Error>,
    missing: &[&str],
    trace: &Path,
    mut record: impl FnMut(Attempt) -> Result<(), Error>,
) -> Result<Option<Finished>, Error> {
    let begun = Instant::now();
    let deadline = begun + task.timeout.map_or(options.timeout, |seconds| Duration::from_secs(seconds.get()));
    let cancelled = || options.cancel.load(Ordering::Relaxed);
    let finished = |verdict, reason, attempts| {
        Ok(Some(Finished::new(task, verdict, reason, attempts, begun.elapsed().as_secs_f64())))
    };
    let ready = place.map_err(Infrastructure::from).and_then(|place| {
        let npc = equip(task, solver)?;
        let sandbox = prepare(task, options, &place, missing)?;
        Ok((place, npc, sandbox))
    });
    let (place, npc, sandbox) = match ready {
        Ok(ready) => ready,
        Err(_) if cancelled() => return Ok(None),
        Err(Infrastructure(reason)) => return finished(Verdict::Error, reason, 0),
    };
    let gold = task.gold.as_ref().map(Solution::turns).unwrap_or_default();
    let gold = Scripted::new((0..options.attempts).flat_map(|_| gold.clone()));
    let drawn = Drawn { model: solver.model.unwrap_or(&gold), draw: Mutex::default() };
    let source = Single(&drawn);
    let session = match session(&source, solver, &sandbox, trace) {
        Ok(session) => session,
        Err(Infrastructure(reason)) => return finished(Verdict::Error, reason, 0),
    };
    let mut work = match worker(solver, &npc, &session, deadline) {
        Ok(work) => work,
        Err(Infrastructure(reason)) => return finished(Verdict::Error, reason, 0),
    };
    let mut message = task.instruction.trim().to_owned();
    let mut number = 0;
    loop {
        number += 1;
        (options.observer)(Progress::Attempt { task, number });
        let started = Instant::now();
        let seed = seed(options.seed, &task.id, number);
        let temperature = if number > 1 { options.retry_temperature } else { 0.0 };
        *drawn.draw.lock().unwrap_or_else(PoisonError::into_inner) = Draw { seed, temperature };
        let done = work(&message);
        if cancelled() {
            return Ok(None);
        }
        // Whatever stopped the solver: what counts is what lies there now.
        let checked = script(&sandbox, &task.verify, VERIFY).map(|check| match check {
            Check::Passed => delegated(task, solver, &session.trace),
            failed => failed,
        });
        if cancelled() {
            return Ok(None);
        }
        let broken = place.probe_disk().err().map(|error| format!("the disk can't be written: {error}"));
        let (did, broken) = match done {
            Ok(did) => (did, broken),
            Err(Infrastructure(reason)) => (Did::default(), Some(reason)),
        };
        let (verdict, reason) = match (checked, broken) {
            (Ok(Check::Passed), _) => (Verdict::Solved, String::new()),
            (Ok(Check::Failed(_)), Some(reason)) | (Err(Infrastructure(reason)), _) => {
                (Verdict::Error, reason)
            }
            (Ok(Check::Failed(said)), None) => {
                message = feedback(&said);
                let said = cut(&said, FEEDBACK_BYTES).to_owned();
                (
                    Verdict::Failed,
                    [did.note, said]
                        .into_iter()
                        .filter(|part| !part.is_empty())
                        .collect::<Vec<_>>()
                        .join("; "),
                )
            }
        };
        let (folder, file) = (trace.parent().and_then(Path::file_name), trace.file_name());
        record(Attempt {
            task: task.id.clone(),
            attempt: number,
            seed,
            verdict,
            reason: reason.clone(),
            seconds: started.elapsed().as_secs_f64(),
            cost: did.cost,
            ttft: did.ttft,
            tokens_per_second: did.cost.tokens_per_second(),
            trace: folder.zip(file).map_or_else(String::new, |(folder, file)| {
                Path::new(folder).join(file).to_string_lossy().into_owned()
            }),
        })?;
        let over = did.give_up || number >= options.attempts || Instant::now() >= deadline;
        if verdict != Verdict::Failed || over {
            return finished(verdict, reason, number);
        }
    }
}

/// The message that continues the conversation after a check that failed and printed `said`.
pub fn feedback(said: &str) -> String {
    match cut(said.trim(), FEEDBACK_BYTES).trim_end() {
        "" => "The check failed.\nTry again.".to_owned(),
        said => format!("The check failed: {said}\nTry again."),
    }
}

/// The seed of an attempt: the first 8 bytes, big-endian, of a SHA-256 over the run's seed, the task and the number.
pub fn seed(run: u64, task: &str, number: u32) -> u64 {
    let hash = Sha256::digest(format!("{run}\n{task}\n{number}"));
    hash.iter().take(8).fold(0, |seed, &byte| seed << 8 | u64::from(byte))
}

/// The longest part of `text` from its start that has at most `limit` bytes and splits no character.
fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// The agent's NPC, with the jinxes of the task beside its own. That the team lacks whom or what the task needs is not the agent's fault.
fn equip(task: &Task, solver: &Solver) -> Result<Npc, Infrastructure> {
    let team = solver.team;
    if let Some(name) = task.jinxes.iter().find(|name| team.jinx(name).is_none()) {
        return Err(Infrastructure(format!("the team {} has no jinx `{name}`", team.name)));
    }
    if let Some(name) = task.delegates.iter().find(|name| team.member(name).is_none()) {
        return Err(Infrastructure(format!("the team {} has no member `{name}`", team.name)));
    }
    let mut npc = solver.npc.clone();
    let new = task.jinxes.iter().filter(|name| !solver.npc.jinxes.contains(name));
    npc.jinxes.extend(new.cloned());
    Ok(npc)
}

/// Whether each member that the task names has worked: in a conversation that was begun for it, one of its calls succeeded.
fn delegated(task: &Task, solver: &Solver, trace: &Trace) -> Check {
    let entries = trace.entries();
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
        Some(name) => Check::Failed(format!("The result is right, but {name} has not worked on it.")),
        None => Check::Passed,
    }
}

/// The sandbox of a task, with the setup done.
fn prepare(
    task: &Task,
    options: &Options,
    place: &Place,
    missing: &[&str],
) -> Result<Sandbox, Infrastructure> {
    if let Some(name) = task.programs().into_iter().find(|name| missing.contains(name)) {
        return Err(Infrastructure(format!("{name} is not installed")));
    }
    std::fs::write(place.home.join(".gitconfig"), GIT_CONFIG)?;
    let policy = Policy {
        network: false,
        home: Some(place.home.clone()),
        private_tmp: Some(place.tmp.clone()),
        isolation: options.isolation,
        ..Policy::default()
    };
    let sandbox = match Sandbox::new(&place.work, policy.clone()) {
        // A task that does not name `/tmp` gets by without a private one.
        Err(alara_harness::Error::PrivateTmp { .. }) if !task.uses_tmp() => {
            Sandbox::new(&place.work, Policy { private_tmp: None, ..policy })?
        }
        other => other?,
    };
    let sandbox = sandbox.with_cancel(options.cancel.clone());
    match script(&sandbox, &task.setup, SETUP)? {
        Check::Passed => Ok(sandbox),
        Check::Failed(said) => Err(Infrastructure(format!("the setup failed: {said}"))),
    }
}

/// Runs bash that must come to an end, whatever the agent did. What it said is what it printed on stdout, or else on stderr.
fn script(sandbox: &Sandbox, text: &str, timeout: Duration) -> Result<Check, Infrastructure> {
    let output = sandbox.run(&Script {
        program: &["bash", "-c", text],
        env: &[],
        stdin: None,
        timeout,
        network: false,
        output_limit: OUTPUT_BYTES,
    })?;
    if output.timed_out {
        let seconds = timeout.as_secs();
        return Err(Infrastructure(format!("a script of the task did not end within {seconds} seconds")));
    }
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(match output.exit {
        Some(0) => Check::Passed,
        _ if words(&output.stdout).is_empty() => Check::Failed(words(&output.stderr)),
        _ => Check::Failed(words(&output.stdout)),
    })
}

/// What the agent's attempts share; their conversation goes to `trace`.
fn session<'a>(
    source: &'a Single<'a>,
    solver: &Solver,
    sandbox: &'a Sandbox,
    trace: &Path,
) -> Result<Session<'a>, Infrastructure> {
    // An unfinished conversation of a run that was killed.
    match std::fs::remove_file(trace) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    Ok(Session::new(source, sandbox).sampled(solver.sampling.clone()).traced(Trace::create(trace)?))
}

fn worker<'a, 's: 'a>(
    solver: &'a Solver,
    npc: &'a Npc,
    session: &'a Session<'s>,
    deadline: Instant,
) -> Result<Work<'a>, Infrastructure> {
    let mut agent = Agent::new(session, solver.team, npc, None)?.until(deadline);
    Ok(Box::new(move |message| {
        let before = session.trace.entries().len();
        let outcome = agent.run(message);
        let entries = session.trace.entries();
        let mut did = cost(entries[before..].iter().map(|entry| &*entry.record));
        did.note = match outcome {
            Ok(Outcome::Answer { .. } | Outcome::Cancelled) => String::new(),
            Ok(Outcome::TurnLimit { turns }) => format!("it used all {turns} turns"),
            Ok(Outcome::Length) => "a turn reached the limit on tokens".to_owned(),
            Ok(Outcome::Deadline) => "the time was up".to_owned(),
            Ok(Outcome::Repetition { call: Some(call) }) => format!("it called {call} again and again"),
            Ok(Outcome::Repetition { call: None }) => "it went round in circles".to_owned(),
            Ok(Outcome::Failed { error }) => error,
            // A model that has worked so far and does not go on: most likely the conversation outgrew its context.
            Err(alara_harness::Error::Model(error)) if error.is_outage() => {
                return Err(alara_harness::Error::Model(error).into());
            }
            Err(error @ alara_harness::Error::Model(_))
                if agent.records().any(|record| matches!(record, Record::Assistant { .. })) =>
            {
                did.give_up = true;
                Infrastructure::from(error).0
            }
            Err(error) => return Err(error.into()),
        };
        Ok(did)
    }))
}

/// What the records of one attempt cost.
fn cost<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> Did {
    let used = usage(records.clone());
    let mut spoken = records
        .filter_map(|record| match record {
            Record::Assistant { message, .. } => Some(message.tool_calls.len() as u64),
            _ => None,
        })
        .peekable();
    let ttft = spoken.peek().map(|_| used.time_to_first_token.as_secs_f64());
    let cost = Cost {
        tool_calls: spoken.sum(),
        tokens_in: used.prompt_tokens as u64,
        tokens_cached: used.cached_tokens as u64,
        tokens_out: used.completion_tokens as u64,
        decode_seconds: used.decode_time.as_secs_f64(),
    };
    Did { cost, ttft, ..Did::default() }
}

/// A model whose draws follow the attempt that is under way.
struct Drawn<'a> {
    model: &'a dyn ChatModel,
    draw: Mutex<Draw>,
}

/// How an attempt differs from the run's sampling.
#[derive(Clone, Copy, Default)]
struct Draw {
    seed: u64,
    /// The temperature is at least this.
    temperature: f32,
}

impl ChatModel for Drawn<'_> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn chat(&self, mut request: Request) -> Result<Events<'_>, ModelError> {
        let Draw { seed, temperature } = *self.draw.lock().unwrap_or_else(PoisonError::into_inner);
        request.sampling.seed = seed;
        request.sampling.temperature = request.sampling.temperature.max(temperature);
        self.model.chat(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feedback_has_its_fixed_form() {
        let check = |said: &str, expected: &str| assert_eq!(feedback(said), expected);
        check("", "The check failed.\nTry again.");
        check(" \n", "The check failed.\nTry again.");
        check("There is no file a.\n", "The check failed: There is no file a.\nTry again.");
        check(&"é".repeat(1500), &format!("The check failed: {}\nTry again.", "é".repeat(1000)));
        check(
            &format!("x{}", "é".repeat(1500)),
            &format!("The check failed: x{}\nTry again.", "é".repeat(999)),
        );
    }

    #[test]
    fn seeds_differ_by_run_task_and_attempt() {
        let seeds = [seed(0, "a", 1), seed(1, "a", 1), seed(0, "b", 1), seed(0, "a", 2), seed(0, "a1", 1)];
        for (index, one) in seeds.iter().enumerate() {
            assert!(seeds[..index].iter().all(|other| other != one));
        }
        assert_eq!(seeds[0], seed(0, "a", 1));
    }
}
