//! The agent loop: ask the model, run its calls, show it the results, until it answers or a limit
//! ends the run.
//!
//! The loop keeps no state of its own: each request is folded from the trace.
//! It must not know how a tool runs.
//!
//! In a prompt the static parts come first, and those that a team shares before those of one NPC.
//! Anything that changes before them would make the prefix cache miss.

mod answer;
mod closing;
mod compaction;
mod named_files;
mod policies;
mod repeated;
mod setup;
mod shown;
mod turn;
mod written;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use alara_engine::{Event, Finish, Message, Role, Segment, Tool, ToolCall, Usage};
use serde_json::Value;

use crate::error::{Error, chain};
use crate::hidden::{self, CALL};
use crate::jinx::{Jinx, Tools};
use crate::model::ChatModel;
use crate::phases::{PLAN, Queue};
use crate::prompt::{CONTEXT, offer, system};
use crate::run::gates;
use crate::run::mcp::Offered;
use crate::run::session::{Caller, Notice, Session};
use crate::team::{Npc, Team};
use crate::trace::{self, Record, Start, Trace};
use crate::types::{Outcome, ToolResult};
pub use answer::answer;
use policies::learn;
use repeated::Repeated;
use setup::Setup;
pub use setup::opening;

/// An NPC of a team, working in a conversation.
pub struct Agent<'a, 's: 'a> {
    session: &'a Session<'s>,
    team: &'a Team,
    npc: &'a Npc,
    model: Arc<dyn ChatModel + 'a>,
    tools: Vec<String>,
    offered: Vec<Jinx>,
    trace: &'a Trace,
    scope: String,
    depth: usize,
    /// Whether the agent runs for a hook.
    hook: bool,
    /// The records of this conversation only.
    records: Vec<Arc<Record>>,
    deadline: Option<Instant>,
    /// Most turns of a run, if fewer than the NPC's limit.
    turns: Option<usize>,
    /// The guarantees missing from the tools' schemas that have been reported already.
    loosened: Vec<String>,
    /// The text of the latest turn of the run that had text.
    said: String,
    /// The files that the task names and that were missing when it began.
    awaited: Vec<String>,
    /// The limit that ended the latest run, although the model then answered.
    stopped: Option<Outcome>,
}

/// What an agent gets in addition to its NPC.
#[derive(Default)]
struct Given {
    /// Which of the NPC's tools it may use.
    tools: Tools,
    system: Vec<Segment>,
    schema: Option<Value>,
    scope: String,
    depth: usize,
    hook: bool,
}

impl Given {
    /// The tools of the NPC's servers; the servers are started only if the agent might use them.
    fn servers(&self, session: &Session, team: &Team, npc: &Npc) -> Offered {
        let is_known = |name: &String| team.jinx(name).is_some() || hidden::is_built_in(name);
        let known = |names: &[String]| names.iter().all(is_known);
        match &self.tools {
            Tools::None => Offered::default(),
            Tools::Some(names) if known(names) => Offered::default(),
            _ => session.mcp.offered(session, team, npc),
        }
    }
}

impl<'a, 's> Agent<'a, 's> {
    /// Creates an agent without messages.
    /// With `schema`, its answers are JSON that is valid for it.
    /// This writes the first record of the session's trace.
    ///
    /// # Errors
    /// The model isn't available, or the trace can't be written.
    pub fn new(
        session: &'a Session<'s>,
        team: &'a Team,
        npc: &'a Npc,
        schema: Option<Value>,
    ) -> Result<Self, Error> {
        let system = prompt(session, team, npc);
        let given = Given { tools: Tools::All, system, schema, ..Given::default() };
        Agent::start(session, &session.trace, team, npc, given, Vec::new())
    }

    /// Creates an agent in the conversation `scope` of the session's trace.
    /// `records` are the events of that conversation so far; without any, the conversation begins.
    /// If the team, the NPC or the model has changed since, the agent continues with the current
    /// one.
    /// The schema of the answers stays.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn resume(
        session: &'a Session<'s>,
        team: &'a Team,
        npc: &'a Npc,
        scope: &str,
        records: Vec<Arc<Record>>,
    ) -> Result<Self, Error> {
        let schema = last_start(&records).and_then(|start| start.schema.clone());
        let scope = scope.to_owned();
        let system = prompt(session, team, npc);
        let given = Given { tools: Tools::All, system, scope, schema, ..Given::default() };
        let mut agent = Agent::start(session, &session.trace, team, npc, given, records)?;
        agent.learn_of_interrupted()?;
        Ok(agent)
    }

    fn start(
        session: &'a Session<'s>,
        trace: &'a Trace,
        team: &'a Team,
        npc: &'a Npc,
        given: Given,
        mut records: Vec<Arc<Record>>,
    ) -> Result<Self, Error> {
        npc.may_run()?;
        session.gates.add(team);
        let model = session.models.model(&npc.model).map_err(Error::Model)?;
        let offer = offer(team, Some(npc));
        let Offered { jinxes: offered, served } = given.servers(session, team, npc);
        let setup = Setup::of(npc, &*model, session.calls);
        let named = setup.jinxes().iter().filter_map(|name| team.jinx(name)).chain(&offered);
        let permits =
            |jinx: &Jinx| given.tools.permits(&jinx.name) || (jinx.hidden && given.tools.permits(CALL));
        let named: Vec<&Jinx> = named.filter(|jinx| permits(jinx)).collect();
        // An agent without tools calls nothing, so phases and gates don't concern it.
        let bound = given.tools != Tools::None;
        let phases = npc.phases.clone().filter(|_| bound);
        let gates = npc.gate.gates.iter().filter(|_| bound).map(|gate| gates::key(gate)).collect();
        let queue = phases.as_ref().and_then(|phases| phases.queue.as_ref());
        let fits = |tool: &Tool| match setup.format.and_then(|format| format.refusal(tool)) {
            None => true,
            Some(reason) => {
                session.notify(&Notice::Warning(&format!(
                    "{} goes without `{}`: {reason}",
                    npc.name, tool.name
                )));
                false
            }
        };
        let (hidden, named): (Vec<&Jinx>, Vec<&Jinx>) = named.into_iter().partition(|jinx| jinx.hidden);
        let mut hidden: Vec<Tool> = hidden.into_iter().map(|jinx| jinx.tool(&offer)).collect();
        if !hidden.is_empty() && !hidden::tools().iter().all(fits) {
            hidden.clear();
        }
        let built_in = |name: &str| {
            (queue.is_some() && name == PLAN) || (!hidden.is_empty() && hidden::is_built_in(name))
        };
        let named = named.into_iter().filter(|jinx| !built_in(&jinx.name)).map(|jinx| jinx.tool(&offer));
        let mut tools: Vec<Tool> = named.filter(fits).collect();
        tools.extend(hidden::tools().into_iter().filter(|_| !hidden.is_empty()));
        let permitted = tools.iter().map(|tool| tool.name.clone()).collect();
        tools.extend(queue.map(Queue::tool));
        let used = session.models.used(&npc.model);
        let files = &session.context_files;
        let with_files = files.segment().is_some_and(|segment| given.system.contains(&segment));
        let start = Start {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            team: team.name.clone(),
            directory: team.directory.as_deref().and_then(real),
            team_named: team.directory.is_some() && !team.found,
            npc: npc.name.clone(),
            model: model.name().to_owned(),
            asked: used.model.filter(|asked| npc.model.model.as_ref() != Some(asked)),
            parameters: model.parameters(),
            context: model.context(),
            work: session.sandbox.work().to_owned(),
            sandbox: session.sandbox.enforced().to_string(),
            limits: setup.limits(),
            system: given.system,
            directive: npc.directed.then(|| npc.directive.clone()),
            context_files: if with_files { files.files.clone() } else { Vec::new() },
            dry_run: session.dry_run,
            examples: setup.examples(&tools),
            tools,
            hidden,
            mcp: served,
            sampling: session.sampling.over(&setup.sampling),
            thinking: session.thinking,
            plain_results: setup.plain_results(),
            tool_format: setup.other.map(|format| format.name.to_owned()),
            calls: setup.calls,
            schema: given.schema,
            phases,
            gates,
            ledger_hidden: npc.ledger_hidden,
        };
        learn(trace, &mut records);
        if last_start(&records).is_none_or(|last| *last != start) {
            records.push(trace.push(&given.scope, Record::Start(Box::new(start)))?);
        }
        let Given { scope, depth, hook, .. } = given;
        let (deadline, turns, loosened, said, awaited) = (None, None, Vec::new(), String::new(), Vec::new());
        let stopped = None;
        Ok(Agent {
            session,
            team,
            npc,
            model,
            tools: permitted,
            offered,
            trace,
            scope,
            depth,
            hook,
            records,
            deadline,
            turns,
            loosened,
            said,
            awaited,
            stopped,
        })
    }

    /// Adds earlier messages from elsewhere, the oldest first: those of the user and of the NPC.
    ///
    /// # Errors
    /// The trace can't be written.
    pub fn after(mut self, earlier: impl IntoIterator<Item = Message>) -> Result<Self, Error> {
        for message in earlier {
            if message.role != Role::Assistant {
                self.push(Record::User { text: message.content })?;
                continue;
            }
            let outcome = Outcome::Answer { text: message.content.clone() };
            self.push(Record::Assistant { message, finish: Finish::Stop, usage: Usage::default() })?;
            self.push(Record::End { outcome })?;
        }
        Ok(self)
    }

    /// Ends every later run at `deadline` at the latest.
    /// The NPC's own limit counts from the start of each run.
    #[must_use]
    pub fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Ends every later run after at most `turns` turns of the model.
    /// The NPC's own limit applies too.
    pub fn limit_turns(&mut self, turns: usize) {
        self.turns = Some(turns);
    }

    /// The records of this conversation so far.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().map(|record| &**record)
    }

    /// The records, for [`resume`](Self::resume).
    pub fn into_records(self) -> Vec<Arc<Record>> {
        self.records
    }

    /// The limit that ended the latest run, if its outcome is an answer that the model gave only
    /// because it was asked for one then.
    pub fn stopped(&self) -> Option<&Outcome> {
        self.stopped.as_ref()
    }

    /// The usage of this conversation's turns so far.
    pub fn usage(&self) -> Usage {
        trace::usage(self.records())
    }

    fn push(&mut self, record: Record) -> Result<(), Error> {
        let moves =
            matches!(record, Record::User { .. } | Record::Assistant { .. } | Record::ToolResult { .. });
        self.records.push(self.trace.push(&self.scope, record)?);
        if moves { self.note_phase() } else { Ok(()) }
    }

    fn caller(&self, deadline: Option<Instant>) -> Caller<'_, 's> {
        Caller {
            session: self.session,
            team: self.team,
            npc: Some(self.npc),
            offered: &self.offered,
            trace: self.trace,
            scope: &self.scope,
            depth: self.depth,
            deadline,
            finishing: false,
            hook: self.hook,
            ruled: None,
        }
    }

    /// Sends `task` to the model and works until it answers or a limit ends the run.
    /// A further call continues the same conversation with another message.
    /// The sandbox's cancel flag stops it.
    ///
    /// # Errors
    /// The model or the sandbox failed, or the trace can't be written.
    pub fn run(&mut self, task: &str) -> Result<Outcome, Error> {
        self.said.clear();
        self.stopped = None;
        self.awaited = named_files::absent(task, self.session.sandbox.work());
        self.push(Record::User { text: task.to_owned() })?;
        let own = self.npc.limits.seconds.map(Duration::from_secs);
        let own = own.and_then(|time| Instant::now().checked_add(time));
        let deadline = self.deadline.into_iter().chain(own).min();
        let outcome = self.turns(deadline);
        let recorded = match &outcome {
            Ok(outcome) => outcome.clone(),
            Err(error) => Outcome::Failed { error: chain(error) },
        };
        self.push(Record::End { outcome: recorded })?;
        outcome
    }

    fn turns(&mut self, deadline: Option<Instant>) -> Result<Outcome, Error> {
        let mut repeated = Repeated::default();
        let mut cut_before = None;
        let limits = self.npc.limits;
        let most = limits.turns.min(self.turns.unwrap_or(usize::MAX));
        for turn in 1..=most {
            self.session.notify(&Notice::Turn { npc: &self.npc.name, depth: self.depth, turn });
            self.fit(deadline)?;
            let expected = self.expected_call();
            let (message, finish) = match (self.ask_or_shorten(deadline), cut_before.take()) {
                (Ok(Ok(turn)), _) => turn,
                (Ok(Err(stopped)), _) => return Ok(stopped),
                // The text that was cut off may be something that the template can't print.
                (Err(Error::Model(_)), Some(cut)) => return Ok(cut),
                (Err(error), _) => return Err(error),
            };
            let cut = match finish {
                Finish::Length => Some(Outcome::Length),
                Finish::Repetition => Some(Outcome::Repetition { call: None }),
                Finish::Stop | Finish::ToolCalls => None,
            };
            let calls_nothing = message.tool_calls.is_empty();
            if cut.is_some() && calls_nothing && turn < most && self.hint_of_cut(finish)? {
                cut_before = cut;
                continue;
            }
            if let Some(outcome) = cut {
                let outcome = self.leave(&message.tool_calls, outcome)?;
                return Ok(self.closed(outcome, deadline));
            }
            if message.tool_calls.is_empty() {
                if let Some((phase, tools)) = expected {
                    if turn < most && self.hint_of_phase(&phase, &tools)? {
                        continue;
                    }
                    let error = format!(
                        "the phase `{phase}` expects a call of one of: {tools}; the model wrote a text"
                    );
                    return Ok(Outcome::Failed { error });
                }
                if turn < most && self.hint(&message, most - turn)? {
                    continue;
                }
                if repeated::circles(&message.content) {
                    return Ok(self.closed(Outcome::Repetition { call: None }, deadline));
                }
                return Ok(self.answered(message.content));
            }
            let calls = self.without_thoughts(message.tool_calls);
            let mut calls = calls.as_slice();
            let beyond = calls.len().saturating_sub(limits.turn_calls);
            while let Some((call, rest)) = calls.split_first() {
                if let Some(stopped) = self.caller(deadline).stopped() {
                    return self.leave(calls, stopped);
                }
                if calls.len() <= beyond {
                    let most = format!("not run: a turn may make at most {} calls", limits.turn_calls);
                    self.refuse(calls, &most)?;
                    break;
                }
                calls = rest;
                let (result, times) = match self.execute(call, &mut repeated, deadline) {
                    Ok(executed) => executed,
                    Err(error) => {
                        // The conversation can continue only if each call has an answer.
                        let failed = Outcome::Failed { error: chain(&error) };
                        return self.leave(calls, failed).and(Err(error));
                    }
                };
                if result.last {
                    let text = result.output_text().into_owned();
                    return self.leave(calls, Outcome::Answer { text });
                }
                if times >= limits.repeated_calls.max(2) {
                    let repeats = Outcome::Repetition { call: Some(call.name.clone()) };
                    let outcome = self.leave(calls, repeats)?;
                    return Ok(self.closed(outcome, deadline));
                }
            }
            if let Some(stopped) = self.caller(deadline).stopped() {
                return Ok(stopped);
            }
        }
        Ok(self.closed(Outcome::TurnLimit { turns: most }, deadline))
    }

    /// The calls without the arguments for thoughts; the observer gets those thoughts.
    fn without_thoughts(&self, mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
        let Some(start) = last_start(&self.records) else { return calls };
        for call in &mut calls {
            if let Some(text) = start.calls.take_thought(call, &start.tools) {
                let event = Event::Reasoning { text };
                self.session.notify(&Notice::Event { depth: self.depth, event: &event });
            }
        }
        calls
    }

    /// Runs a call.
    /// Also returns how often it has had this result in a row.
    fn execute(
        &mut self,
        call: &ToolCall,
        repeated: &mut Repeated,
        deadline: Option<Instant>,
    ) -> Result<(ToolResult, usize), Error> {
        self.push(Record::ToolCall { call: call.clone() })?;
        let depth = self.depth;
        self.session.notify(&Notice::Call { depth, call });
        let (begun, before) = (Instant::now(), self.trace.len());
        let result = match self.result(call, deadline) {
            Ok(result) => result,
            Err(error) => {
                self.answer(call, ToolResult::failed(chain(&error)), "", begun.elapsed())?;
                return Err(error);
            }
        };
        learn(self.trace, &mut self.records);
        let took = begun.elapsed();
        self.session.notify(&Notice::Result { depth, call, result: &result, took });
        let times = repeated.note(call, &result);
        self.answer(call, result.clone(), &repeated::note(times), took)?;
        if self.compaction_is_asked_for(before) {
            self.shorten(0, deadline)?;
        }
        Ok((result, times))
    }

    /// Records a call's result, with a note to the model if there is one.
    fn answer(
        &mut self,
        call: &ToolCall,
        result: ToolResult,
        note: &str,
        took: Duration,
    ) -> Result<(), Error> {
        // One result never takes more than a quarter of the window, at about three bytes per token.
        let most = self.window().map_or(usize::MAX, |window| window * 3 / 4);
        let limit = self.npc.limits.tool_output_bytes.min(most);
        let text = match last_start(&self.records).is_some_and(|start| start.plain_results) {
            true => result.plain_text_with(note, limit),
            false => result.text_with(note, limit),
        };
        let seconds = took.as_secs_f64();
        self.push(Record::ToolResult { call: call.clone(), result, text, seconds })
    }

    /// Ends the run with `calls` answered but not run, so that the conversation can continue.
    fn leave(&mut self, calls: &[ToolCall], outcome: Outcome) -> Result<Outcome, Error> {
        let reason = match &outcome {
            Outcome::Repetition { call: Some(_) } => "not run: the same call was made several times in a row",
            Outcome::Repetition { call: None } => "not run: the turn repeats itself",
            Outcome::Cancelled => "not run: cancelled",
            Outcome::Length => "not run: the turn was cut off",
            Outcome::Failed { .. } => "not run: the call before it could not be run at all",
            Outcome::Answer { .. } => "not run: another call of the turn ended the run",
            _ => "not run: the time is up",
        };
        self.refuse(calls, reason)?;
        Ok(outcome)
    }

    fn refuse(&mut self, calls: &[ToolCall], reason: &str) -> Result<(), Error> {
        calls.iter().try_for_each(|call| self.answer(call, ToolResult::failed(reason), "", Duration::ZERO))
    }
}

/// The real path of a directory, with links resolved.
fn real(directory: &Path) -> Option<PathBuf> {
    directory.canonicalize().or_else(|_| std::path::absolute(directory)).ok()
}

/// The settings in effect: those of the conversation's latest start.
fn last_start(records: &[Arc<Record>]) -> Option<&Start> {
    records.iter().rev().find_map(|record| match &**record {
        Record::Start(start) => Some(&**start),
        _ => None,
    })
}

/// The static system prompt of an NPC in a session.
/// The work directory's context files and the documents that the NPC needs follow the segments that
/// the whole team shares.
fn prompt(session: &Session, team: &Team, npc: &Npc) -> Vec<Segment> {
    let mut segments = system(team, npc);
    let shared = segments.iter().take_while(|segment| segment.name == CONTEXT).count();
    let given = session.context_files.segment().into_iter().chain(session.documents.iter().cloned());
    segments.splice(shared..shared, given);
    segments
}

#[cfg(test)]
mod phases_tests;
#[cfg(test)]
mod tests;
