//! The agent loop: ask the model, run what it calls, show it the results, until it answers or a limit ends it.
//!
//! The loop keeps no state of its own: each request is folded from the trace. It must not know how a tool runs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use alara_engine::{Event, Finish, Message, Request, Sampling, Segment, Tool, ToolCall, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::jinx::ToolResult;
use crate::model::ChatModel;
use crate::sandbox::Sandbox;
use crate::team::{Npc, Team};
use crate::tool;
use crate::trace::{self, Record, Start, Trace};

/// How often a model may make the same call in a row; the last of them is not run and ends the run.
const SAME_CALLS: usize = 3;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The model answered without a call.
    Answer {
        /// The answer.
        text: String,
    },
    /// The NPC's limit on turns.
    TurnLimit {
        /// The limit.
        turns: usize,
    },
    /// A turn reached the limit on tokens or the end of the context.
    Length,
    /// The wall-clock limit.
    Deadline,
    /// Someone cancelled.
    Cancelled,
    /// The model went round in circles.
    Repetition {
        /// The tool, if it made the same call several times in a row.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
    },
    /// The model or the sandbox failed.
    Failed {
        /// What went wrong.
        error: String,
    },
}

/// What happens during a run, for display.
#[derive(Debug)]
pub enum Notice<'a> {
    /// A turn begins; the first is 1.
    Turn(usize),
    /// The model says or calls something, or its turn is over.
    Event(&'a Event),
    /// A call begins.
    Call(&'a ToolCall),
    /// A call has ended, after so long.
    Result(&'a ToolCall, &'a ToolResult, Duration),
}

/// Who is told what happens.
pub type Observer<'a> = Box<dyn FnMut(Notice) + Send + 'a>;

/// One NPC of a team at work on one conversation.
pub struct Agent<'a> {
    team: &'a Team,
    npc: &'a Npc,
    model: &'a dyn ChatModel,
    sandbox: &'a Sandbox,
    trace: Trace,
    observer: Observer<'a>,
    deadline: Option<Instant>,
}

impl<'a> Agent<'a> {
    /// An agent that has not been told anything yet, and whose tokens are drawn by `sampling`. With `schema`, its answers are
    /// JSON that is valid for it. `trace` gets its first record.
    ///
    /// # Errors
    /// The trace can't be written.
    pub fn new(
        team: &'a Team,
        npc: &'a Npc,
        model: &'a dyn ChatModel,
        sandbox: &'a Sandbox,
        sampling: Sampling,
        schema: Option<Value>,
        mut trace: Trace,
    ) -> Result<Self, Error> {
        trace.push(Record::Start(Box::new(Start {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            team: team.name.clone(),
            npc: npc.name.clone(),
            model: model.name().to_owned(),
            work: sandbox.work().to_owned(),
            sandbox: sandbox.enforced().to_string(),
            limits: npc.limits,
            system: system(team, npc),
            tools: tools(team, npc),
            sampling,
            schema,
        })))?;
        Ok(Agent { team, npc, model, sandbox, trace, observer: Box::new(|_| {}), deadline: None })
    }

    /// Tells `observer` what happens.
    #[must_use]
    pub fn observed(mut self, observer: impl FnMut(Notice) + Send + 'a) -> Self {
        self.observer = Box::new(observer);
        self
    }

    /// Ends every later run at `deadline` at the latest. The NPC's own limit counts from the start of each run.
    #[must_use]
    pub fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Everything that has happened so far.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// What the turns so far cost together.
    pub fn usage(&self) -> Usage {
        trace::usage(self.trace.records())
    }

    /// Says `task` and works until the model answers or a limit ends it. Called again, it continues the same
    /// conversation with a further message. Cancelled by the sandbox's flag.
    ///
    /// # Errors
    /// The model or the sandbox failed, or the trace can't be written.
    pub fn run(&mut self, task: &str) -> Result<Outcome, Error> {
        self.trace.push(Record::User { text: task.to_owned() })?;
        let own = self.npc.limits.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let deadline = self.deadline.into_iter().chain(own).min();
        let outcome = self.turns(deadline);
        let recorded = match &outcome {
            Ok(outcome) => outcome.clone(),
            Err(error) => Outcome::Failed { error: chain(error) },
        };
        self.trace.push(Record::End { outcome: recorded })?;
        outcome
    }

    fn turns(&mut self, deadline: Option<Instant>) -> Result<Outcome, Error> {
        let mut last: Vec<ToolCall> = Vec::new();
        for turn in 1..=self.npc.limits.turns {
            (self.observer)(Notice::Turn(turn));
            let request = trace::request(self.trace.records());
            let (message, finish) = match self.ask(request, deadline)? {
                Ok(spoken) => spoken,
                Err(stopped) => return Ok(stopped),
            };
            let cut = match finish {
                Finish::Length => Some(Outcome::Length),
                Finish::Repetition => Some(Outcome::Repetition { call: None }),
                Finish::Stop | Finish::ToolCalls => None,
            };
            if let Some(outcome) = cut {
                return self.leave(&message.tool_calls, outcome);
            }
            if message.tool_calls.is_empty() {
                return Ok(Outcome::Answer { text: message.content });
            }
            let mut calls = message.tool_calls.as_slice();
            while let Some((call, rest)) = calls.split_first() {
                if let Some(stopped) = self.stopped(deadline) {
                    return self.leave(calls, stopped);
                }
                last.retain(|before| before.name == call.name && before.arguments == call.arguments);
                last.push(call.clone());
                if last.len() == SAME_CALLS {
                    return self.leave(calls, Outcome::Repetition { call: Some(call.name.clone()) });
                }
                self.execute(call, deadline)?;
                calls = rest;
            }
            if let Some(stopped) = self.stopped(deadline) {
                return Ok(stopped);
            }
        }
        Ok(Outcome::TurnLimit { turns: self.npc.limits.turns })
    }

    /// One turn of the model; the inner error is a reason to stop.
    fn ask(
        &mut self,
        request: Request,
        deadline: Option<Instant>,
    ) -> Result<Result<(Message, Finish), Outcome>, Error> {
        let mut message = Message::assistant("", Vec::new());
        let mut reasoning = String::new();
        let model = self.model;
        for event in model.chat(request).map_err(Error::Model)? {
            let event = event.map_err(Error::Model)?;
            (self.observer)(Notice::Event(&event));
            match event {
                Event::Text { text } => message.content += &text,
                Event::Reasoning { text } => reasoning += &text,
                Event::ToolCall(call) => message.tool_calls.push(call),
                // The first are told again as a whole; the other ends the turn by its length, and never runs.
                Event::ToolCallDelta { .. } | Event::Incomplete { .. } => {}
                Event::Done { finish, usage } => {
                    message.reasoning_content = (!reasoning.is_empty()).then_some(reasoning);
                    self.trace.push(Record::Assistant { message: message.clone(), finish, usage })?;
                    return Ok(Ok((message, finish)));
                }
            }
            if let Some(stopped) = self.stopped(deadline) {
                return Ok(Err(stopped));
            }
        }
        Err(Error::NoEnd)
    }

    fn execute(&mut self, call: &ToolCall, deadline: Option<Instant>) -> Result<(), Error> {
        self.trace.push(Record::ToolCall { call: call.clone() })?;
        (self.observer)(Notice::Call(call));
        let begun = Instant::now();
        let place = tool::Place { sandbox: self.sandbox, model: Some(self.model), deadline };
        let result = tool::execute(self.team, self.npc, call, &place)?;
        (self.observer)(Notice::Result(call, &result, begun.elapsed()));
        self.answer(call, result, begun.elapsed())
    }

    fn answer(&mut self, call: &ToolCall, result: ToolResult, took: Duration) -> Result<(), Error> {
        let text = result.text(self.npc.limits.tool_output_bytes);
        let seconds = took.as_secs_f64();
        self.trace.push(Record::ToolResult { call: call.clone(), result, text, seconds })
    }

    /// Ends with `calls` answered but not run, so that the conversation can go on.
    fn leave(&mut self, calls: &[ToolCall], outcome: Outcome) -> Result<Outcome, Error> {
        let reason = match &outcome {
            Outcome::Repetition { call: Some(_) } => "not run: the same call was made several times in a row",
            Outcome::Repetition { call: None } => "not run: the turn went round in circles",
            Outcome::Cancelled => "not run: cancelled",
            Outcome::Length => "not run: the turn was cut off",
            _ => "not run: the time is up",
        };
        for call in calls {
            self.answer(call, ToolResult::failed(reason), Duration::ZERO)?;
        }
        Ok(outcome)
    }

    fn stopped(&self, deadline: Option<Instant>) -> Option<Outcome> {
        if self.sandbox.cancel_flag().load(Ordering::Relaxed) {
            return Some(Outcome::Cancelled);
        }
        deadline.filter(|deadline| Instant::now() >= *deadline).map(|_| Outcome::Deadline)
    }
}

/// The static system text of an NPC: its directive, then the team's context.
pub fn system(team: &Team, npc: &Npc) -> Vec<Segment> {
    [("directive", &npc.directive), ("context", &team.context)]
        .into_iter()
        .filter(|(_, text)| !text.trim().is_empty())
        .map(|(name, text)| Segment { name: name.to_owned(), text: text.trim().to_owned() })
        .collect()
}

/// The tools of an NPC, in the order of its list.
pub fn tools(team: &Team, npc: &Npc) -> Vec<Tool> {
    npc.jinxes.iter().filter_map(|name| team.jinx(name)).map(crate::jinx::Jinx::tool).collect()
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
