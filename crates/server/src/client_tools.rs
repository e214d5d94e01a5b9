//! Lets an NPC use the client's tools: one turn of its model, under its list of tools and its
//! rules.
//!
//! Calls go back to the client, which runs them and sends the results with its next request.
//! A call that a gate of the NPC refuses isn't sent: the model gets the reason, and takes another
//! turn before anything but the text of the current one is sent.

use std::collections::VecDeque;
use std::sync::Arc;

use alara_engine::{Engine, Event, Finish, Message, Request, Segment, ToolChoice, Usage};
use alara_harness::client::ClientTools;
use alara_harness::team::Skills;
use alara_harness::{ChatModel, Events, ModelError, Npc, Team, prompt};

use crate::inner::InnerRequest;
use crate::refusal::Refusal;

/// How often the model may try again in one request after refused calls; the last time it can't
/// call any tools.
const AGAIN: usize = 3;

/// Decides which of a client's tools an NPC may call.
pub struct Gate {
    team: Arc<Team>,
    tools: ClientTools,
}

/// Turns the request into one of `npc`, with its system prompt and its limits.
/// Tools of the client that it may not call are omitted, so that no grammar admits them, and
/// reported as ignored.
/// `agreed` means that a person has confirmed in advance whatever a rule asks about.
///
/// # Errors
/// The request requires a tool that the NPC may not call, or the NPC's permissions can't be
/// determined.
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

/// Returns the system prompt of an NPC without jinxes of its own, followed by the client's.
/// Omits skills, which it would need a jinx to look up.
fn prompt(team: &Team, npc: &Npc, more: Vec<Segment>) -> Vec<Segment> {
    let skills = Skills { catalog: Vec::new(), ..npc.skills.clone() };
    let mut system = prompt::system(team, &Npc { jinxes: Vec::new(), skills, ..npc.clone() });
    system.extend(more);
    system
}

/// A model whose calls pass through a gate.
///
/// Every call that a client runs for an NPC passes through here and nowhere else.
/// Any further inspection or refusal of such calls belongs here.
pub struct GatedModel<'a> {
    /// The model.
    pub model: Arc<dyn ChatModel + 'a>,
    /// The gate.
    pub gate: Gate,
}

impl GatedModel<'_> {
    /// Runs a turn whose calls are permitted by the NPC's list and the team's rules.
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

/// A turn under gates, together with the turns that the model takes after refused calls.
struct Turns<'a> {
    model: &'a GatedModel<'a>,
    /// The request of the current turn.
    request: Request,
    events: Events<'a>,
    /// The text of the current turn, with its reasoning and calls.
    turn: Message,
    /// The client's events from the first call on, held back until all calls are permitted.
    held: Vec<Event>,
    /// The next events for the client.
    ready: VecDeque<Event>,
    /// Whether an earlier turn produced text.
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
                // Report only that the work goes on.
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
        // A piece's tokens come before it.
        let only_tokens = self.held.iter().all(|held| matches!(held, Event::Logprobs { .. }));
        if is_told && only_tokens {
            self.ready.extend(self.held.drain(..));
            self.ready.push_back(event);
        } else {
            self.held.push(event);
            // Sending it detects that the client has left.
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
