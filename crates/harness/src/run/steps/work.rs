//! The action of a single step, after all its values are filled in.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value};

use super::flow::Execution;
use super::memo::{self, Key};
use super::program::Program;
use super::search::Asked;
use crate::error::Error;
use crate::jinx::check::{Known, reaches};
use crate::jinx::template::{Language, fill, fill_map, holds, single};
use crate::jinx::{Action, Jinx, Llm, Step, Tools};
use crate::model::ModelSpec;
use crate::run::jobs::{JobAction, Jobs};
use crate::run::session::Caller;
use crate::run::{agent, tool};
use crate::types::{Effect, ToolResult};

/// An action that has a result.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Work<'a> {
    /// A program.
    Program(Program),
    /// A text or any other value.
    Text(Value),
    /// An action on jobs.
    Ask { llm: &'a Llm, npc: Option<String>, prompt: String },
    /// Something about jobs.
    #[serde(skip)]
    Jobs { action: JobAction, job: Option<usize> },
    /// A search of documents.
    #[serde(skip)]
    Search(Asked),
    /// Another jinx.
    Call { jinx: &'a Jinx, arguments: Map<String, Value> },
}

impl<'a> Work<'a> {
    /// The action of a step; `None` for control flow.
    pub(super) fn of(
        step: &'a Step,
        run: &Execution,
        caller: &Caller<'a, '_>,
    ) -> Result<Option<Self>, String> {
        let scope = &run.scope;
        Ok(Some(match &step.action {
            Action::Bash { code, background } => {
                let mut program = Program::new(Language::Bash, code, &step.name, run.jinx, scope)?;
                program.background = background.as_deref().map_or(Ok(false), |when| holds(when, scope))?;
                Work::Program(program)
            }
            Action::Python { code } => {
                Work::Program(Program::new(Language::Python, code, &step.name, run.jinx, scope)?)
            }
            Action::Text { text } => Work::Text(match fill(text, scope)? {
                // A single expression keeps its value unchanged.
                Value::String(filled) if text.as_str().and_then(single).is_none() => {
                    Value::from(filled.trim_end_matches(['\n', '\r']))
                }
                other => other,
            }),
            Action::Llm(llm) => Work::Ask {
                npc: llm
                    .npc
                    .as_ref()
                    .map(|npc| fill(npc, scope))
                    .transpose()?
                    .map(plain)
                    .filter(|npc| !npc.is_empty()),
                prompt: plain(fill(&llm.prompt, scope)?).trim().to_owned(),
                llm,
            },
            Action::Call { jinx, with } => {
                let found =
                    caller.team.jinxes.iter().find(|other| other.name == *jinx || other.reference == *jinx);
                let found = found.ok_or_else(|| format!("there is no jinx `{jinx}`"))?;
                let mut arguments = fill_map(with, scope)?;
                // A missing input has its default.
                arguments.retain(|_, value| !value.is_null());
                Work::Call { jinx: found, arguments }
            }
            Action::Jobs { jobs, job } => {
                let name = plain(fill(jobs, scope)?);
                let action = JobAction::named(&name)
                    .ok_or_else(|| format!("`jobs` is `list`, `read` or `end`, not `{name}`"))?;
                let given = job.as_ref().map(|job| fill(job, scope)).transpose()?;
                Work::Jobs { action, job: given.as_ref().map(number).transpose()?.flatten() }
            }
            Action::Search(search) => Work::Search(Asked::of(search, scope)?),
            _ => return Ok(None),
        }))
    }

    /// Runs the action, or returns its cached result.
    /// `limit` is the step's own.
    pub(super) fn run(
        self,
        step: &Step,
        limit: Option<Duration>,
        run: &mut Execution,
        caller: &Caller,
    ) -> Result<ToolResult, Error> {
        let lifetime = step.cache.filter(|_| self.effect(run.jinx) != Effect::Write);
        let key = lifetime.and_then(|_| self.key(step, caller));
        let memo = &caller.session.memo;
        if let Some(found) = key.as_ref().and_then(|key| memo.find(run.branch(caller), key)) {
            return Ok(found);
        }
        let call = run.place(&step.name);
        let result = match self {
            Work::Text(value) => ToolResult::succeeded(value),
            Work::Program(program) => {
                let limit = limit.unwrap_or(run.jinx.timeout);
                let left = caller.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                program.run(left.map_or(limit, |left| left.min(limit)), run, caller)?
            }
            Work::Ask { llm, npc, prompt } => agent::answer(caller, llm, npc.as_deref(), &prompt, &call)?,
            Work::Jobs { action, job } => Jobs::act(action, job, caller)?,
            Work::Search(asked) => asked.run(caller),
            Work::Call { jinx, arguments } => tool::call(caller, jinx, &arguments, &call)?,
        };
        if let (Some(key), Some(lifetime), true) = (key, lifetime, result.ok) {
            memo.keep(run.branch(caller), key, result.clone(), lifetime);
        }
        Ok(result)
    }

    fn effect(&self, jinx: &Jinx) -> Effect {
        match self {
            Work::Program(Program { background: true, .. }) | Work::Jobs { .. } => Effect::Write,
            Work::Program(_) => jinx.effect,
            Work::Text(_) => Effect::None,
            Work::Search(_) => Effect::Read,
            Work::Ask { llm, .. } => {
                if llm.tools == Tools::None {
                    Effect::None
                } else {
                    jinx.effect
                }
            }
            Work::Call { jinx, .. } => jinx.effect,
        }
    }

    /// Everything that the result depends on.
    fn key(&self, step: &Step, caller: &Caller) -> Option<Key> {
        let known = Known::new(&caller.team.jinxes);
        let asks = reaches(step, &known, &|action| matches!(action, Action::Llm(_)));
        // The model in use, which may differ from the last one.
        let model = match self {
            _ if !asks => String::new(),
            Work::Ask { npc: Some(name), .. } => self::model(&caller.team.member(name)?.1.model, caller)?,
            _ => self::model(caller.npc.map_or(&caller.team.model, |npc| &npc.model), caller)?,
        };
        let store = caller.session.store.read(caller.team, caller.name());
        memo::key(&(caller.team.key(), caller.name(), model, store, self))
    }
}

/// The name of the model for `spec`; `None` if there is none.
fn model(spec: &ModelSpec, caller: &Caller) -> Option<String> {
    caller.session.models.model(spec).ok().map(|model| model.name().to_owned())
}

/// The number of a job; `None` for the latest job.
fn number(value: &Value) -> Result<Option<usize>, String> {
    let number = match value {
        Value::Null => return Ok(None),
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|number| usize::try_from(number).ok()),
    };
    number.map(Some).ok_or_else(|| format!("`job` is the number of a job, not {value}"))
}

/// A value as a text.
pub(super) fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The earlier of a deadline and this long from now.
pub(super) fn earlier(deadline: Option<Instant>, limit: Option<Duration>) -> Option<Instant> {
    let own = limit.and_then(|limit| Instant::now().checked_add(limit));
    deadline.into_iter().chain(own).min()
}
