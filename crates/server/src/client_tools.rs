//! An NPC over the client's tools: one turn of its model, under its list and its rules.
//!
//! Calls go back to the client, which runs them and sends the results with its next request.
//! A call that a gate of the NPC stands against does not: the model learns why, and takes another
//! turn before anything of that one leaves but its words.

use std::collections::VecDeque;
use std::sync::Arc;

use alara_engine::{Engine, Event, Finish, Message, Request, Segment, ToolChoice, Usage};
use alara_harness::client::ClientTools;
use alara_harness::team::Skills;
use alara_harness::{ChatModel, Events, ModelError, Npc, Team, agent};

use crate::inner::InnerRequest;
use crate::refusal::Refusal;

/// How often the model may answer anew in one request after its calls were refused; the last time
/// without any.
const AGAIN: usize = 3;

/// What an NPC may call of a client's tools.
pub struct Gate {
    team: Arc<Team>,
    tools: ClientTools,
}

/// Makes the request one of `npc`, which brings its system prompt and its limits.
/// What it may not call of the client's tools is left out, so that no grammar admits it, and told
/// as ignored.
/// `agreed`: a person has said yes beforehand wherever a rule says to ask.
///
/// # Errors
/// A tool must be called that it may not call, or nobody knows what the NPC may do.
pub fn prepare(asked: &mut InnerRequest, team: &Arc<Team>, npc: &Npc, agreed: bool) -> Result<Gate, Refusal> {
    npc.may_run().map_err(|error| Refusal::from(&error))?;
    let InnerRequest { request, ignored, .. } = asked;
    request.system = prompt(team, npc, std::mem::take(&mut request.system));
    let limits = npc.limits;
    request.max_tokens = Some(request.max_tokens.unwrap_or(usize::MAX).min(limits.turn_tokens));
    request.reasoning_tokens = request.reasoning_tokens.into_iter().chain(limits.reasoning_tokens).min();
    let tools = ClientTools::new(team, npc, std::mem::take(&mut request.tools), agreed);
    request.tools = tools.offered().to_vec();
    let withheld: Vec<String> =
        tools.withheld().iter().map(|(name, why)| format!("tool {name} ({why})")).collect();
    let choice = &request.tool_choice;
    if choice.must_call() && !request.tools.iter().any(|tool| choice.permits(&tool.name)) {
        let message = format!("{} may not call what must be called: {}", npc.name, withheld.join("; "));
        return Err(Refusal::invalid("tool_choice", message));
    }
    ignored.extend(withheld);
    Ok(Gate { team: team.clone(), tools })
}

/// The system prompt of an NPC without jinxes of its own, before what the client's says.
/// So skills that it would look up with one are not told.
fn prompt(team: &Team, npc: &Npc, more: Vec<Segment>) -> Vec<Segment> {
    let skills = Skills { catalog: Vec::new(), ..npc.skills.clone() };
    let mut system = agent::system(team, &Npc { jinxes: Vec::new(), skills, ..npc.clone() });
    system.extend(more);
    system
}

/// A model whose calls pass a gate.
///
/// Every call that a client is to run for an NPC passes here, and nowhere else.
/// Whatever more is to see or refuse such calls belongs here.
pub struct GatedModel<'a> {
    /// The model.
    pub model: Arc<dyn ChatModel + 'a>,
    /// The gate.
    pub gate: Gate,
}

impl GatedModel<'_> {
    /// A turn whose calls the NPC's list and the team's rules permit.
    fn permitted(&self, request: Request) -> Result<Events<'_>, ModelError> {
        let Gate { team, tools } = &self.gate;
        let events = self.model.chat(request)?.map(|event| {
            let event = event?;
            if let Event::ToolCall(call) = &event {
                tools.permit(team, call).map_err(ModelError::new)?;
            }
            Ok(event)
        });
        Ok(Box::new(events))
    }
}

impl ChatModel for GatedModel<'_> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        if !self.gate.tools.is_gated() {
            return self.permitted(request);
        }
        Ok(Box::new(Turns::new(self, request)?))
    }

    fn local(&self) -> Option<&Engine> {
        self.model.local()
    }

    fn inner(&self) -> Option<&dyn ChatModel> {
        Some(&*self.model)
    }
}

/// A turn under gates, and those that the model takes after calls that were refused, as one.
struct Turns<'a> {
    model: &'a GatedModel<'a>,
    /// What the turn under way was asked.
    request: Request,
    events: Events<'a>,
    /// What it has said, with its reasoning and its calls.
    turn: Message,
    /// From its first call on, what the client gets once all of them may be made.
    held: Vec<Event>,
    /// What the client gets next.
    ready: VecDeque<Event>,
    /// Whether an earlier turn has said something.
    has_said: bool,
    again: usize,
    usage: Usage,
}

impl Iterator for Turns<'_> {
    type Item = Result<Event, ModelError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let taken = match self.events.next()? {
                Ok(Event::Done { finish, usage }) => self.end(finish, usage),
                // It is said only that it goes on.
                Ok(Event::Prefill { .. }) => {
                    self.ready.push_back(Event::Text { text: String::new() });
                    Ok(())
                }
                Ok(event) => {
                    self.take(event);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                self.events = Box::new(std::iter::empty());
                return Some(Err(error));
            }
        }
    }
}

impl<'a> Turns<'a> {
    fn new(model: &'a GatedModel<'a>, request: Request) -> Result<Self, ModelError> {
        Ok(Turns {
            model,
            events: model.permitted(request.clone())?,
            request,
            turn: Message::assistant("", Vec::new()),
            held: Vec::new(),
            ready: VecDeque::new(),
            has_said: false,
            again: AGAIN,
            usage: Usage::default(),
        })
    }

    fn take(&mut self, event: Event) {
        match &event {
            Event::Text { text } => {
                if !text.is_empty() && std::mem::take(&mut self.has_said) {
                    self.ready.push_back(Event::Text { text: "\n\n".into() });
                }
                self.turn.content += text;
            }
            Event::Reasoning { text } => *self.turn.reasoning_content.get_or_insert_default() += text,
            Event::ToolCall(call) => self.turn.tool_calls.push(call.clone()),
            _ => {}
        }
        let is_told = matches!(event, Event::Text { .. } | Event::Reasoning { .. });
        // The tokens of a piece come before it.
        let only_tokens = self.held.iter().all(|held| matches!(held, Event::Logprobs { .. }));
        if is_told && only_tokens {
            self.ready.extend(self.held.drain(..));
            self.ready.push_back(event);
        } else {
            self.held.push(event);
            // Whoever leaves is noticed meanwhile.
            self.ready.push_back(Event::Text { text: String::new() });
        }
    }

    /// Ends a turn, or has the model take another one.
    fn end(&mut self, finish: Finish, usage: Usage) -> Result<(), ModelError> {
        self.request.max_tokens =
            self.request.max_tokens.map(|most| most.saturating_sub(usage.completion_tokens));
        self.usage += usage;
        let refused = self.model.gate.tools.hold(&self.request.messages, &self.turn.tool_calls);
        let Some(refused) = refused else {
            self.ready.extend(self.held.drain(..));
            self.ready.push_back(Event::Done { finish, usage: std::mem::take(&mut self.usage) });
            return Ok(());
        };
        self.held.clear();
        if self.request.max_tokens == Some(0) {
            let usage = std::mem::take(&mut self.usage);
            self.ready.push_back(Event::Done { finish: Finish::Length, usage });
            return Ok(());
        }
        self.again = match self.again {
            0 => return Err(ModelError::new(refused.denied)),
            1 if self.request.tool_choice.must_call() => return Err(ModelError::new(refused.denied)),
            again => again - 1,
        };
        if self.again == 0 {
            self.request.tool_choice = ToolChoice::None;
        }
        let turn = std::mem::replace(&mut self.turn, Message::assistant("", Vec::new()));
        self.has_said |= !turn.content.is_empty();
        let results = turn.tool_calls.iter().zip(refused.results);
        let results: Vec<Message> =
            results.map(|(call, result)| Message::tool_result(call, result)).collect();
        self.request.messages.push(turn);
        self.request.messages.extend(results);
        self.events = self.model.permitted(self.request.clone())?;
        Ok(())
    }
}

#[cfg(test)]
#[path = "client_tools_tests.rs"]
mod tests;
