//! Serves an NPC as a model: it works as an agent, with its own tools, and its answer is the
//! response.
//!
//! Each request has a conversation, a store and a trace of its own.

use std::sync::Arc;

use alara_engine::{Finish, Message, Request, Role};
use alara_harness::permission::Question;
use alara_harness::run::hooks;
use alara_harness::trace::Record;
use alara_harness::{
    Agent, ChatModel, Events, ModelError, ModelSource, ModelSpec, Notice, Npc, Outcome, Session, Team, agent,
};
use serde_json::{Value, json};

use crate::Workplace;
use crate::answer::{End, Piece};
use crate::inner::InnerRequest;
use crate::live::Live;
use crate::questions::Questions;
use crate::refusal::Refusal;
use crate::slots::Listener;

/// A conversation with an NPC.
#[derive(Debug, PartialEq)]
pub struct Conversation {
    /// The client's system messages, appended to the NPC's own directive.
    system: String,
    /// Earlier messages, alternating between user and NPC.
    before: Vec<Message>,
    /// The current message to the NPC.
    task: String,
}

impl Conversation {
    /// Extracts the conversation from a request.
    ///
    /// # Errors
    /// It contains more than text: the NPC can't have called tools that were called elsewhere.
    pub fn of(request: &Request) -> Result<Self, Refusal> {
        let system: Vec<&str> = request.system.iter().map(|segment| segment.text.as_str()).collect();
        let mut before: Vec<Message> = Vec::new();
        for message in &request.messages {
            if message.role == Role::Tool || !message.tool_calls.is_empty() {
                let why =
                    "an NPC runs its tools itself: calls and results of others can't be among the `messages`";
                return Err(Refusal::invalid("messages", why));
            }
            match before.last_mut() {
                Some(last) if last.role == message.role => {
                    last.content += &format!("\n\n{}", message.content);
                }
                _ => before.push(message.clone()),
            }
        }
        match before.pop() {
            Some(last) if last.role == Role::User && !last.content.trim().is_empty() => {
                Ok(Conversation { system: system.join("\n\n"), before, task: last.content })
            }
            _ => Err(Refusal::invalid(
                "messages",
                "the last of the `messages` must be the user's, and say something",
            )),
        }
    }
}

/// Has the NPC `name` of `team` answer the conversation, as an agent.
/// Sends questions for a person to the client via `questions`, if the client wants that.
///
/// # Errors
/// The agent can't begin, fails, or ends without an answer.
pub fn work(
    workplace: &dyn Workplace,
    team: &Team,
    name: &str,
    conversation: Conversation,
    asked: &InnerRequest,
    questions: &Questions,
    listener: &Listener,
) -> Result<(), Refusal> {
    let request = &asked.request;
    let mut npc = directed(team, name, &conversation)?;
    npc.limits.turn_tokens = npc.limits.turn_tokens.min(request.max_tokens.unwrap_or(usize::MAX));
    let events = asked.events && asked.stream;
    let live = Live::new(listener, events || npc.jinxes.is_empty() && npc.servers.is_empty(), events);
    let sandbox = workplace.sandbox(team).map_err(|error| Refusal::from(&error))?;
    let sandbox = sandbox.with_cancel(listener.cancel.clone());
    let models = Salted { models: workplace.models(), salt: &request.salt };
    let session = Session::new(&models, &sandbox).observed(|notice: &Notice| live.notice(notice));
    let session = workplace.equip(session).map_err(|error| Refusal::from(&error))?;
    let mut session = session.sampled(asked.draws.clone());
    let asks = asked.ask && asked.stream;
    if asks {
        questions.admit(&asked.key)?;
        session = session.asking(|question: &Question| questions.ask(question, workplace, listener));
        // A question may precede the first turn: about a hook's call or the start of a server.
        listener.send(Ok(Piece::Begun));
    }
    hooks::start(&session, team, &npc).map_err(|error| Refusal::from(&error))?;
    let agent = Agent::new(&session, team, &npc, request.schema.clone());
    let agent = agent.and_then(|agent| agent.after(conversation.before));
    let mut agent = agent.map_err(|error| Refusal::from(&error))?;
    if !asks {
        listener.send(Ok(Piece::Begun));
    }
    let outcome = agent.run(&conversation.task);
    let ended = outcome.as_ref().map_or("failed", Outcome::tag);
    hooks::end(&session, team, &npc, ended).map_err(|error| Refusal::from(&error))?;
    let outcome = outcome.map_err(|error| Refusal::from(&error))?;
    let mut report = report(&session, &agent, name);
    let (text, finish) = match &outcome {
        Outcome::Answer { text } => (text.as_str(), Finish::Stop),
        Outcome::Length => (agent.text_so_far(), Finish::Length),
        // Any text so far is a truncated answer.
        other if !agent.text_so_far().trim().is_empty() => {
            report["finish"] = other.tag().into();
            (agent.text_so_far(), Finish::Length)
        }
        other => return Err(without_answer(other)),
    };
    live.answer(text);
    let alara = Some(report);
    listener.send(Ok(Piece::End(Box::new(End { finish, usage: session.trace.usage(), alara }))));
    Ok(())
}

/// Returns the first request to the model of the NPC `name`, without the tools of MCP servers,
/// which are unknown before these are started.
///
/// # Errors
/// There is no such NPC, or the conversation contains more than text.
pub fn first_turn(
    team: &Team,
    name: &str,
    request: &Request,
    model: &dyn ChatModel,
) -> Result<Request, Refusal> {
    let mut conversation = Conversation::of(request)?;
    let npc = directed(team, name, &conversation)?;
    conversation.before.push(Message::user(conversation.task));
    Ok(agent::opening(team, &npc, model, conversation.before, request.schema.clone()))
}

/// Returns the NPC, with the client's system messages appended to its directive.
fn directed(team: &Team, name: &str, conversation: &Conversation) -> Result<Npc, Refusal> {
    let mut npc = team.npc(Some(name)).map_err(|error| Refusal::from(&error))?.clone();
    if !conversation.system.is_empty() {
        npc.directive = format!("{}\n\n{}", npc.directive.trim_end(), conversation.system);
    }
    Ok(npc)
}

/// Models whose prompts share keys and values only with prompts of the same salt, whichever member
/// of a team sends them.
struct Salted<'a> {
    models: &'a dyn ModelSource,
    salt: &'a str,
}

impl ModelSource for Salted<'_> {
    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        Ok(Arc::new(SaltedModel { model: self.models.model(spec)?, salt: self.salt }))
    }

    // The model caches no vectors.
    fn embedding(&self, name: &str) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        self.models.embedding(name)
    }
}

struct SaltedModel<'a> {
    model: Arc<dyn ChatModel + 'a>,
    salt: &'a str,
}

impl ChatModel for SaltedModel<'_> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        self.model.chat(Request { salt: self.salt.to_owned(), ..request })
    }

    fn inner(&self) -> Option<&dyn ChatModel> {
        Some(&*self.model)
    }
}

/// Explains why there is no answer.
/// None of these problems would go away by itself, and the agent has already acted, so a client
/// must not retry.
fn without_answer(outcome: &Outcome) -> Refusal {
    let code = match outcome {
        Outcome::TurnLimit { .. } => "turn_limit",
        Outcome::Deadline => "deadline",
        Outcome::Cancelled => "cancelled",
        Outcome::Repetition { .. } => "repetition",
        Outcome::Answer { .. } | Outcome::Length | Outcome::Failed { .. } => "failed",
    };
    Refusal::new(422, "agent_error", outcome.reason()).coded(code)
}

/// Reports what the agent did: its calls, and the name of its trace.
fn report(session: &Session, agent: &Agent, name: &str) -> Value {
    let calls = agent.records().filter_map(|record| match record {
        Record::ToolResult { call, result, .. } => Some(json!({"name": call.name, "ok": result.ok})),
        _ => None,
    });
    let calls: Vec<Value> = calls.collect();
    // The name is enough for `alara trace show`; the directory is private.
    let trace = session.trace.path().and_then(|path| path.file_stem()).map(|name| name.to_string_lossy());
    json!({"npc": name, "calls": calls, "trace": trace})
}

#[cfg(test)]
mod tests {
    use alara_engine::{Segment, ToolCall};

    use super::*;

    #[test]
    fn conversations() {
        let segment = |text: &str| Segment { name: "system".into(), text: text.into() };
        let said = |text: &str| Message::assistant(text, Vec::new());
        let of = |messages: Vec<Message>| {
            let system = vec![segment("Be brief."), segment("Be kind.")];
            Conversation::of(&Request { system, messages, ..Request::default() })
        };
        let user = |text: &str| Message::user(text);
        let found = of(vec![user("a"), user("b"), said("c"), user("d")]).unwrap();
        let before = vec![user("a\n\nb"), said("c")];
        assert_eq!(found, Conversation { system: "Be brief.\n\nBe kind.".into(), before, task: "d".into() });
        let call = ToolCall { id: "1".into(), name: "f".into(), arguments: serde_json::Map::new() };
        let check = |messages: Vec<Message>, expected: &str| {
            let message = of(messages).unwrap_err().message;
            assert!(message.contains(expected), "{message}");
        };
        check(vec![], "the last of the `messages`");
        check(vec![user("a"), said("b")], "the last of the `messages`");
        check(vec![user(" ")], "the last of the `messages`");
        check(
            vec![user("a"), Message::assistant("", vec![call.clone()]), user("b")],
            "runs its tools itself",
        );
        check(vec![Message::tool_result(&call, "x"), user("b")], "runs its tools itself");
    }
}
