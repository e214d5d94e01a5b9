//! Repeats a trace without a model: its replies come from the trace, everything else is done again.
//!
//! This shows whether the same team still does the same.
//! It compares the team's texts, tools and rules, and the results of its jinxes, if they run.
//! It doesn't compare times, paths and versions.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use alara_engine::{Event, Finish, Message, Request, Usage};
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;
use crate::jinx::Jinx;
use crate::mcp::START;
use crate::model::{ChatModel, Events, ModelError, Tuning};
use crate::permission::{Answer, BEFOREHAND, Question};
use crate::run::agent::Agent;
use crate::run::session::Session;
use crate::run::{hooks, tool};
use crate::team::{Npc, Team};
use crate::trace::{self, Entry, PERSON, Record};
use crate::types::{Outcome, Verdict};

/// The prefix of [`Error::Model`] before a model's own error.
const MODEL_FAILED: &str = "the model can't answer: ";

/// A model that repeats the replies of a trace: conversation by conversation, turn by turn.
/// It identifies a conversation by its system prompt and its first message.
pub struct Replay {
    name: String,
    context: Option<usize>,
    parameters: Option<u64>,
    format_chosen: bool,
    tuning: Tuning,
    /// The messages before a conversation.
    examples: Vec<Vec<Message>>,
    replies: Mutex<HashMap<String, VecDeque<Reply>>>,
}

/// The events of a turn, or the model's error instead.
type Reply = Result<Vec<Event>, String>;

impl Replay {
    /// The model of the trace that consists of `entries`.
    pub fn new(entries: &[Entry]) -> Self {
        let mut replay = Replay {
            name: String::new(),
            context: None,
            parameters: None,
            format_chosen: false,
            tuning: Tuning::default(),
            examples: Vec::new(),
            replies: Mutex::default(),
        };
        for entry in entries {
            if let Record::Start(start) = &*entry.record
                && !start.examples.is_empty()
                && !replay.examples.contains(&start.examples)
            {
                replay.examples.push(start.examples.clone());
            }
        }
        let mut scopes: HashMap<&str, Vec<&Record>> = HashMap::new();
        for entry in entries {
            let records = scopes.entry(&entry.scope).or_default();
            let reply = match &*entry.record {
                Record::Assistant { message, finish, usage } => {
                    Some(Ok(events(message, *finish, usage.clone())))
                }
                Record::End { outcome: Outcome::Failed { error } } => {
                    error.strip_prefix(MODEL_FAILED).map(|error| Err(error.to_owned()))
                }
                Record::Start(start) if replay.name.is_empty() => {
                    replay.name.clone_from(&start.model);
                    replay.context = start.context;
                    replay.parameters = start.parameters;
                    replay.format_chosen = start.tool_format.is_none();
                    replay.tuning.tool_format.clone_from(&start.tool_format);
                    None
                }
                _ => None,
            };
            if let Some(reply) = reply {
                let key = replay.key(&trace::request(records.iter().copied()));
                let replies = replay.replies.get_mut().unwrap_or_else(PoisonError::into_inner);
                replies.entry(key).or_default().push_back(reply);
            }
            records.push(&entry.record);
        }
        replay
    }

    /// The key that identifies a conversation.
    fn key(&self, request: &Request) -> String {
        let system: Vec<&str> = request.system.iter().map(|segment| segment.text.as_str()).collect();
        let own = self.examples.iter().find_map(|examples| request.messages.strip_prefix(&examples[..]));
        let first = own.unwrap_or(&request.messages).first().map(|message| message.content.as_str());
        serde_json::to_string(&(system, first)).unwrap_or_default()
    }
}

fn events(message: &Message, finish: Finish, usage: Usage) -> Vec<Event> {
    let reasoning = message.reasoning_content.iter().map(|text| Event::Reasoning { text: text.clone() });
    let text = Some(&message.content).filter(|text| !text.is_empty());
    let text = text.map(|text| Event::Text { text: text.clone() });
    let calls = message.tool_calls.iter().cloned().map(Event::ToolCall);
    reasoning.chain(text).chain(calls).chain([Event::Done { finish, usage }]).collect()
}

impl ChatModel for Replay {
    fn name(&self) -> &str {
        &self.name
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        match replies.get_mut(&self.key(&request)).and_then(VecDeque::pop_front) {
            Some(Ok(events)) => Ok(Box::new(events.into_iter().map(Ok))),
            Some(Err(error)) => Err(ModelError::new(error)),
            None => Err(ModelError::new("the trace has no further turn of such a conversation")),
        }
    }

    fn context(&self) -> Option<usize> {
        self.context
    }

    fn parameters(&self) -> Option<u64> {
        self.parameters
    }

    fn format_is_chosen(&self) -> bool {
        self.format_chosen
    }

    fn tuning(&self) -> Tuning {
        self.tuning.clone()
    }
}

/// Whether the traced run had `--yes`, and no person to confirm what that doesn't cover.
/// Then each question that was answered had that answer.
pub fn agreed(entries: &[Entry]) -> bool {
    let withheld =
        |record: &Record| matches!(record, Record::Permission { by, .. } if by.ends_with(BEFOREHAND));
    entries.iter().any(|entry| withheld(&entry.record))
}

/// Returns the answers that a person gave in a trace, for [`Session::asking`]; `None` if there was
/// no question.
pub fn answers(entries: &[Entry]) -> Option<impl Fn(&Question) -> Answer + Sync + Send + use<>> {
    // By jinx, and whether the question was about environment variables.
    let mut given: HashMap<(String, bool), VecDeque<Answer>> = HashMap::new();
    let mut started = BTreeSet::new();
    for entry in entries {
        let (jinx, verdict, by) = match &*entry.record {
            Record::Permission { jinx, verdict, by } => (jinx, verdict, by),
            // There was one question for each server.
            Record::Start(start) => {
                let new = start.mcp.iter().filter(|served| started.insert(served.start.clone()));
                let answers = new.map(|served| if served.by.is_empty() { Answer::No } else { Answer::Yes });
                given.entry((START.to_owned(), false)).or_default().extend(answers);
                continue;
            }
            _ => continue,
        };
        let answers = given.entry((jinx.clone(), by.contains(" about "))).or_default();
        match (by.as_str(), answers.back_mut()) {
            // So the previous answer was meant to last.
            ("an answer in this session", Some(last)) => {
                *last = if *verdict == Verdict::Allow { Answer::Session } else { Answer::Never };
            }
            (by, _) if is_an_answer(by) => {
                answers.push_back(if *verdict == Verdict::Allow { Answer::Yes } else { Answer::No });
            }
            _ => {}
        }
    }
    let asked = given.values().any(|answers| !answers.is_empty());
    let given = Mutex::new(given);
    asked.then_some(move |question: &Question| {
        let mut given = given.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (question.jinx.name.clone(), !question.variables.is_empty());
        given.get_mut(&key).and_then(VecDeque::pop_front).unwrap_or(Answer::No)
    })
}

/// Whether a person decided a call, then or before.
fn is_an_answer(by: &str) -> bool {
    by.starts_with("an answer") || by.starts_with("an earlier answer")
}

/// Repeats in `session` the messages and jinxes of the user of a trace.
///
/// # Errors
/// An NPC no longer exists, or the sandbox failed.
/// A missing reply in the trace is no error: the replayed trace shows it.
pub fn run(session: &Session, team: &Team, entries: &[Entry]) -> Result<(), Error> {
    let mut conversations: HashMap<&str, (&str, Vec<Arc<Record>>)> = HashMap::new();
    let mut schema = None;
    for entry in entries {
        let scope = entry.scope.as_str();
        match &*entry.record {
            Record::Start(start) if entry.is_the_users() => {
                conversations.entry(scope).or_insert((&start.npc, Vec::new())).0 = &start.npc;
                schema.clone_from(&start.schema);
            }
            Record::User { text } if entry.is_the_users() => {
                let (name, records) = conversations.entry(scope).or_insert((&team.forenpc, Vec::new()));
                let (team, npc) = match member(team, scope.strip_prefix('@').unwrap_or(name)) {
                    Some(member) => member,
                    None => (team, team.npc(Some(name))?),
                };
                // Only the conversation that a run begins with has a schema.
                let mut agent = match schema.take() {
                    Some(schema) if scope.is_empty() && records.is_empty() => {
                        Agent::new(session, team, npc, Some(schema))?
                    }
                    _ => Agent::resume(session, team, npc, scope, std::mem::take(records))?,
                };
                match agent.run(text) {
                    Ok(_) | Err(Error::Model(_)) => *records = agent.into_records(),
                    Err(error) => return Err(error),
                }
            }
            Record::Retract if entry.is_the_users() => {
                let record = session.trace.push(scope, Record::Retract)?;
                conversations.entry(scope).or_insert((&team.forenpc, Vec::new())).1.push(record);
            }
            // A jinx within a conversation is the call of a step in it, except hooks of the
            // session.
            Record::Jinx { place, arguments, .. } if entry.is_the_users() => {
                if let Ok(npc) = team.npc(conversations.get("").map(|(name, _)| *name)) {
                    hooks::again(session, team, npc, place, arguments)?;
                }
            }
            Record::ToolCall { call } if scope == PERSON => {
                let offered = match team.jinx(&call.name) {
                    Some(_) => Vec::new(),
                    None => offered(session, team),
                };
                tool::person(session, team, &offered, call)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The tools that the MCP servers of a team offer to any of its NPCs.
fn offered(session: &Session, team: &Team) -> Vec<Jinx> {
    let npcs = team.npcs.iter().filter(|npc| !npc.servers.is_empty());
    npcs.flat_map(|npc| session.mcp.offered(session, team, npc).jinxes).collect()
}

/// The member of this name, in the team or in one below.
fn member<'a>(team: &'a Team, name: &str) -> Option<(&'a Team, &'a Npc)> {
    team.member(name).or_else(|| team.teams.iter().find_map(|team| member(team, name)))
}

/// The first difference between two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// How many records are equal.
    pub same: usize,
    /// The path to the first value that differs within the records; empty if one run ended.
    pub at: String,
    /// The record of the original run; `None` if it was over.
    pub recorded: Option<Value>,
    /// The record of the replayed run; `None` if it was over.
    pub replayed: Option<Value>,
}

/// Whether a record is compared with that of another run.
/// Changes of files aren't: a replay may run nothing, and not every machine sees them.
pub fn is_compared(entry: &Entry) -> bool {
    !matches!(*entry.record, Record::Changed { .. })
}

/// Compares two runs.
/// Also returns how many records of the original one were compared.
/// The comparison ends where a run was killed, was cancelled or ran out of time.
pub fn difference(recorded: &[Entry], replayed: &[Entry]) -> (usize, Option<Difference>) {
    let [recorded, replayed] = [recorded, replayed].map(|run| run.iter().filter(|entry| is_compared(entry)));
    let (recorded, replayed): (Vec<&Entry>, Vec<&Entry>) = (recorded.collect(), replayed.collect());
    let stopped = recorded.iter().position(|entry| {
        let ends = matches!(*entry.record, Record::End { outcome: Outcome::Cancelled | Outcome::Deadline });
        ends && entry.is_the_users()
    });
    let not_run = |entry: &&&Entry| match &*entry.record {
        Record::ToolResult { result, .. } => result.error.starts_with("not run: "),
        _ => false,
    };
    let compared = match stopped {
        Some(end) => end - recorded[..end].iter().rev().take_while(not_run).count(),
        None => recorded.len(),
    };
    let partial = stopped.is_some() || was_killed(&recorded);
    let length = if partial { compared } else { compared.max(replayed.len()) };
    for index in 0..length {
        let [left, right] = [&recorded, &replayed].map(|run| run.get(index).map(|entry| comparable(entry)));
        if left != right {
            let at = match (&left, &right) {
                (Some(left), Some(right)) => parting(left, right).unwrap_or_default(),
                _ => String::new(),
            };
            let difference = Difference { same: index, at, recorded: left, replayed: right };
            return (compared, Some(difference));
        }
    }
    (compared, None)
}

/// Whether the user's last message or jinx has no end.
fn was_killed(entries: &[&Entry]) -> bool {
    entries.iter().fold(false, |open, entry| match &*entry.record {
        Record::User { .. } if entry.is_the_users() => true,
        Record::End { .. } if entry.is_the_users() => false,
        Record::ToolCall { .. } if entry.scope == PERSON => true,
        Record::ToolResult { .. } if entry.scope == PERSON => false,
        _ => open,
    })
}

/// An entry in the form for comparisons.
fn comparable(entry: &Entry) -> Value {
    let mut value = trace::normalised(entry);
    match (&*entry.record, value.as_object_mut()) {
        (Record::Start(_), Some(start)) => {
            ["version", "directory", "team_named", "sandbox", "asked"]
                .iter()
                .for_each(|key| drop(start.shift_remove(*key)));
        }
        // A replay asks about each call.
        (Record::Permission { by, .. }, Some(permission)) if is_an_answer(by) => {
            permission.insert("by".to_owned(), "an answer".into());
        }
        _ => {}
    }
    value
}

/// The path to the first value in which two values differ, as `key/0/key`.
fn parting(left: &Value, right: &Value) -> Option<String> {
    let below = |key: String, left: &Value, right: &Value| {
        let rest = parting(left, right)?;
        Some(if rest.is_empty() { key } else { format!("{key}/{rest}") })
    };
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            let value = |map: &serde_json::Map<String, Value>, key: &String| {
                map.get(key).cloned().unwrap_or_default()
            };
            keys.into_iter().find_map(|key| below(key.clone(), &value(a, key), &value(b, key)))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(index, (a, b))| below(index.to_string(), a, b))
        }
        _ => (left != right).then(String::new),
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
