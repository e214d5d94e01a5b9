//! Control flow: which steps run, in which order and scope, and what happens if one fails.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::work::{Work, earlier};
use crate::error::Error;
use crate::jinx::template::{self, Scope, evaluate, fill, holds};
use crate::jinx::{Action, Jinx, Step, Steps, Timeout};
use crate::run::session::{Caller, Notice};
use crate::trace::{Record, Trace};
use crate::types::ToolResult;

/// How long a `finally` may take after a run was stopped.
const FINISH: Duration = Duration::from_secs(5);
/// The longest time that an expression may give a step, in seconds.
const DAY: f64 = 86_400.0;
/// How often a pause checks whether it must end.
const GLANCE: Duration = Duration::from_millis(10);

/// Why the later steps don't run.
pub(super) enum Stop {
    /// The jinx returns.
    Return(Value),
    /// A step failed.
    Failed(Box<Failure>),
    /// The sandbox, the model or the trace failed.
    Error(Error),
}

pub(super) struct Failure {
    step: String,
    pub(super) result: ToolResult,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Error(error)
    }
}

impl Stop {
    fn failed(step: &Step, result: ToolResult) -> Self {
        let step =
            if step.name.is_empty() { format!("line {}", step.location.line) } else { step.name.clone() };
        Stop::Failed(Box::new(Failure { step, result }))
    }

    /// The failure of a step whose values can't be evaluated.
    pub(super) fn wrong(step: &Step, reason: &str) -> Self {
        if reason.starts_with(template::NO_SECTION) {
            return Stop::failed(step, ToolResult::failed(reason));
        }
        let which = match (step.name.as_str(), step.location.line) {
            ("", 0) => "a step".to_owned(),
            ("", line) => format!("the step in line {line}"),
            (name, _) => format!("step `{name}`"),
        };
        Stop::failed(step, ToolResult::failed(format!("{which}: {reason}")))
    }

    /// Returns a failure that may be caught.
    fn caught(self) -> Result<Box<Failure>, Stop> {
        match self {
            Stop::Failed(failure) => Ok(failure),
            other => Err(other),
        }
    }
}

/// A jinx that is running, or a parallel part of it.
pub(super) struct Execution<'a> {
    pub(super) jinx: &'a Jinx,
    pub(super) scope: Scope,
    /// The latest result.
    pub(super) result: Option<ToolResult>,
    /// The iterations of the enclosing loops, for the names of places: `[2][1]`.
    pub(super) iteration: String,
    /// How often each place was used.
    pub(super) places: HashMap<String, usize>,
    /// Whether a step ran a `final` jinx, or asked to end the work.
    pub(super) last: bool,
    /// How many bytes of the latest result are missing.
    pub(super) missing: u64,
}

impl<'a> Execution<'a> {
    pub(super) fn new(jinx: &'a Jinx, scope: Scope) -> Self {
        Execution {
            jinx,
            scope,
            result: None,
            iteration: String::new(),
            places: HashMap::new(),
            last: false,
            missing: 0,
        }
    }

    /// The trace of a parallel branch; `None` for the run's own trace.
    pub(super) fn branch<'t>(&self, caller: &Caller<'t, '_>) -> Option<&'t Trace> {
        (!std::ptr::eq(caller.trace, &caller.session.trace)).then_some(caller.trace)
    }

    /// A name for a step's action that is unique in this run: `work`, `work[3]` in a loop, `work#2`
    /// if it runs again.
    pub(super) fn place(&mut self, name: &str) -> String {
        let place = format!("{name}{}", self.iteration);
        let count = self.places.entry(place.clone()).or_default();
        *count += 1;
        if *count == 1 { place } else { format!("{place}#{count}") }
    }

    pub(super) fn steps(&mut self, steps: &[Step], caller: &Caller) -> Result<(), Stop> {
        for (at, step) in steps.iter().enumerate() {
            self.step(step, caller)?;
            // Later steps would take a part for the whole.
            if self.missing > 0 && at + 1 < steps.len() {
                let told = format!(
                    "{} bytes of what it printed are missing, so that nothing can follow: let it print less, or write it to a file",
                    self.missing
                );
                return Err(Stop::wrong(step, &told));
            }
        }
        Ok(())
    }

    /// Runs one step, with its retries.
    pub(super) fn step(&mut self, step: &Step, caller: &Caller) -> Result<(), Stop> {
        let mut left = step.retry.map_or(0, |retry| retry.max);
        let mut pause = step.retry.map_or(0.0, |retry| retry.backoff);
        loop {
            if let Some(stopped) = caller.stopped() {
                return Err(Stop::failed(step, ToolResult::failed(stopped.reason())));
            }
            let store = caller.session.store.read(caller.team, caller.name());
            self.scope.know("store", &Value::Object(store));
            let limit = self.limit(step).map_err(|reason| Stop::wrong(step, &reason))?;
            // The sandbox limits the time of a program.
            let own = limit.filter(|_| !matches!(step.action, Action::Bash { .. } | Action::Python { .. }));
            let limited = Caller { deadline: earlier(caller.deadline, own), ..*caller };
            match self.act(step, limit, &limited, caller) {
                Err(stop) if left > 0 && caller.stopped().is_none() => drop(stop.caught()?),
                ended => return ended,
            }
            sleep(pause, caller);
            (left, pause) = (left - 1, pause * 2.0);
        }
    }

    /// The time limit that a step itself sets.
    fn limit(&self, step: &Step) -> Result<Option<Duration>, String> {
        let expression = match &step.timeout {
            Some(Timeout::Given(expression)) => expression,
            Some(Timeout::Fixed(limit)) => return Ok(Some(*limit)),
            None => return Ok(None),
        };
        let value = evaluate(expression, &self.scope)?;
        let seconds = value.as_f64().filter(|seconds| *seconds > 0.0 && *seconds <= DAY);
        match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            Some(limit) => Ok(Some(limit)),
            None => Err(format!("`timeout` is a number of seconds above 0, at most a day, not {value}")),
        }
    }

    /// Runs a step's action; `unlimited` handles its time limit.
    fn act(
        &mut self,
        step: &Step,
        limit: Option<Duration>,
        caller: &Caller,
        unlimited: &Caller,
    ) -> Result<(), Stop> {
        let wrong = |reason: String| Stop::wrong(step, &reason);
        match &step.action {
            Action::When { when, then, otherwise } => {
                let chosen = if holds(when, &self.scope).map_err(wrong)? { then } else { otherwise };
                self.steps(chosen, caller)
            }
            Action::For { parallel: true, .. } => self.side_by_side(step, caller),
            Action::For { variable, items, until, steps, .. } => {
                let items = list(items, &self.scope).map_err(wrong)?;
                let mut results = Vec::new();
                let (around, before) = (self.iteration.clone(), self.result.take());
                for (index, item) in items.iter().enumerate() {
                    self.scope.enter();
                    self.iterate(&around, variable, item, index, items.len());
                    let ended = self.steps(steps, caller).and_then(|()| self.over(until.as_deref(), step));
                    self.scope.leave();
                    self.iteration.clone_from(&around);
                    results.push(self.result.take());
                    match ended {
                        Ok(false) => {}
                        Ok(true) => break,
                        Err(stop) => {
                            self.result = before;
                            return Err(stop);
                        }
                    }
                }
                self.result = before;
                self.gather(step, steps, results);
                Ok(())
            }
            Action::Try { steps, catch, finally } => {
                let ended = self.steps(steps, caller);
                self.attempted(ended, catch, finally, unlimited)
            }
            Action::Set { set } => self.set(set, caller)?.map_err(wrong),
            Action::Emit { emit } => {
                let response = fill(emit, &self.scope).map_err(wrong)?;
                if !response.is_object() {
                    return Err(wrong(format!(
                        "a response is a mapping with `type` and `content`, not {response}"
                    )));
                }
                caller.trace.push(caller.scope, Record::Emit { response: response.clone() })?;
                if self.branch(caller).is_none() {
                    caller.session.notify(&Notice::Emit(&response));
                }
                Ok(())
            }
            Action::Return { value } => Err(Stop::Return(fill(value, &self.scope).map_err(wrong)?)),
            Action::Bash { .. }
            | Action::Python { .. }
            | Action::Text { .. }
            | Action::Llm(_)
            | Action::Jobs { .. }
            | Action::Search(_)
            | Action::Call { .. } => {
                let Some(work) = Work::of(step, self, caller).map_err(wrong)? else { return Ok(()) };
                let result = work.run(step, limit, self, caller)?;
                self.finish(step, result)
            }
        }
    }

    /// Binds the result of a step, or stops at its failure.
    fn finish(&mut self, step: &Step, result: ToolResult) -> Result<(), Stop> {
        if !result.ok {
            return Err(Stop::failed(step, result));
        }
        if !step.name.is_empty() {
            self.scope.bind(&step.name, &result.output);
        }
        self.scope.bind("output", &result.output);
        self.last |= result.last;
        // A job that is still running is not expected to have all its output.
        let goes_on = matches!(step.action, Action::Jobs { .. } | Action::Bash { background: Some(_), .. });
        self.missing = if goes_on { 0 } else { result.dropped_bytes };
        self.result = Some(result);
        Ok(())
    }

    /// Begins an iteration of a loop.
    pub(super) fn iterate(
        &mut self,
        around: &str,
        variable: &str,
        item: &Value,
        index: usize,
        length: usize,
    ) {
        self.iteration = format!("{around}[{}]", index + 1);
        self.scope.bind(variable, item);
        let place = json!({
            "index": index + 1,
            "first": index == 0,
            "last": index + 1 == length,
            "length": length,
        });
        self.scope.bind("loop", &place);
    }

    /// Whether the loop ends after this iteration.
    pub(super) fn over(&self, until: Option<&str>, step: &Step) -> Result<bool, Stop> {
        let Some(until) = until else { return Ok(false) };
        holds(until, &self.scope).map_err(|reason| Stop::wrong(step, &reason))
    }

    /// Binds the results of a loop's iterations as a list.
    pub(super) fn gather(&mut self, step: &Step, steps: &Steps, results: Vec<Option<ToolResult>>) {
        if step.name.is_empty() && !steps.iter().any(has_result) {
            return;
        }
        let outputs =
            results.into_iter().map(|result| result.map(|result| result.output).unwrap_or_default());
        let result = ToolResult::succeeded(Value::Array(outputs.collect()));
        if !step.name.is_empty() {
            self.scope.bind(&step.name, &result.output);
        }
        self.scope.bind("output", &result.output);
        self.result = Some(result);
    }

    /// Runs the `catch` and `finally` steps of a `try`.
    /// A failure is caught, unless there is only `finally`.
    fn attempted(
        &mut self,
        mut ended: Result<(), Stop>,
        catch: &Steps,
        finally: &Steps,
        caller: &Caller,
    ) -> Result<(), Stop> {
        if let Err(stop) = ended {
            ended = match stop.caught() {
                Ok(failure) if catch.is_empty() && !finally.is_empty() => Err(Stop::Failed(failure)),
                Ok(failure) => {
                    let Failure { step, result } = *failure;
                    let error = json!({
                        "message": result.complaint(),
                        "step": step,
                        "stderr": result.stderr,
                        "exit": result.exit,
                    });
                    let hidden = self.scope.value("error");
                    self.scope.bind("error", &error);
                    let ended = self.steps(catch, caller);
                    self.scope.forget("error");
                    if let Some(hidden) = hidden
                        && self.scope.value("error").as_ref() != Some(&hidden)
                    {
                        self.scope.bind("error", &hidden);
                    }
                    ended
                }
                Err(stop) => Err(stop),
            };
        }
        // A `finally` doesn't change the result.
        let result = self.result.take();
        match caller.stopped() {
            // It runs even after a stop, for a short time.
            Some(_) if !caller.finishing => {
                let deadline = Instant::now().checked_add(FINISH);
                self.steps(finally, &Caller { finishing: true, deadline, ..*caller })?;
            }
            _ => self.steps(finally, caller)?,
        }
        self.result = result;
        if let Some(result) = &self.result {
            self.scope.bind("output", &result.output);
        }
        ended
    }

    /// Sets variables; the inner error explains an invalid one.
    fn set(&mut self, set: &Map<String, Value>, caller: &Caller) -> Result<Result<(), String>, Stop> {
        for (path, template) in set {
            let done = fill(template, &self.scope).and_then(|value| match path.strip_prefix("store.") {
                Some(path) => self.store(path, value, caller),
                None => self.scope.set(path, value),
            });
            if done.is_err() {
                return Ok(done);
            }
        }
        Ok(Ok(()))
    }

    /// Writes into the team's store.
    fn store(&mut self, path: &str, value: Value, caller: &Caller) -> Result<(), String> {
        let (store, team, name) = (&caller.session.store, caller.team, caller.name());
        let (key, rest) = path.split_once('.').unwrap_or((path, ""));
        let value = if rest.is_empty() {
            value
        } else {
            let mut whole = store.read(team, name).get(key).cloned().unwrap_or_default();
            template::put(&mut whole, rest, value)
                .map_err(|reason| format!("`store.{path}` can't be set: {reason}"))?;
            whole
        };
        store.write(team, name, key, value)?;
        self.scope.know("store", &Value::Object(store.read(team, name)));
        Ok(())
    }
}

/// The items of a loop: those of a list, or the keys of a mapping.
pub(super) fn list(items: &str, scope: &Scope) -> Result<Vec<Value>, String> {
    match evaluate(items, scope)? {
        Value::Array(items) => Ok(items),
        Value::Object(map) => Ok(map.into_iter().map(|(key, _)| Value::from(key)).collect()),
        _ => Err(format!("`{items}` is no list")),
    }
}

fn has_result(step: &Step) -> bool {
    let any = |steps: &Steps| steps.iter().any(has_result);
    match &step.action {
        Action::Bash { .. }
        | Action::Python { .. }
        | Action::Text { .. }
        | Action::Llm(_)
        | Action::Jobs { .. }
        | Action::Search(_)
        | Action::Call { .. } => true,
        Action::When { then, otherwise, .. } => any(then) || any(otherwise),
        Action::For { steps, .. } => !step.name.is_empty() || any(steps),
        Action::Try { steps, catch, .. } => any(steps) || any(catch),
        Action::Set { .. } | Action::Emit { .. } | Action::Return { .. } => false,
    }
}

/// Waits this many seconds, or until the work must stop.
fn sleep(seconds: f64, caller: &Caller) {
    let (begun, time) = (Instant::now(), Duration::try_from_secs_f64(seconds).unwrap_or_default());
    while caller.stopped().is_none() {
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(GLANCE));
    }
}
