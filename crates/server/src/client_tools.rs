//! An NPC over the client's tools: one turn of its model, under its list and its rules.
//!
//! Calls go back to the client, which runs them and sends the results with its next request.

use std::sync::Arc;

use alara_engine::{Engine, Event, Format, Request, Sampling, Segment};
use alara_harness::client::ClientTools;
use alara_harness::team::Skills;
use alara_harness::{ChatModel, Events, ModelError, Npc, Team, agent};

use crate::inner::InnerRequest;
use crate::refusal::Refusal;

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
/// A tool must be called that it may not call.
pub fn prepare(asked: &mut InnerRequest, team: &Arc<Team>, npc: &Npc, agreed: bool) -> Result<Gate, Refusal> {
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

impl ChatModel for GatedModel<'_> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
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

    fn context(&self) -> Option<usize> {
        self.model.context()
    }

    fn format(&self) -> Option<&'static Format> {
        self.model.format()
    }

    fn sampling(&self) -> Sampling {
        self.model.sampling()
    }

    fn local(&self) -> Option<&Engine> {
        self.model.local()
    }
}

#[cfg(test)]
#[path = "client_tools_tests.rs"]
mod tests;
