//! What an `llm` step does: a conversation inside of a conversation.

use serde_json::Value;

use super::{Agent, Given, Outcome, offer, system};
use crate::error::Error;
use crate::jinx::{Llm, ToolResult, Tools};
use crate::session::Caller;
use crate::team::Npc;

/// An NPC of the caller's team (or a sub-team's first, or the caller) answers `prompt`, in a conversation
/// of its own named `place`, with those of its tools that the step permits. `npc` is the name that the step gives.
///
/// # Errors
/// The model or the sandbox failed, or the trace can't be written.
pub fn answer(
    caller: &Caller,
    step: &Llm,
    npc: Option<&str>,
    prompt: &str,
    place: &str,
) -> Result<ToolResult, Error> {
    let nobody = Npc { model: caller.team.model.clone(), ..Npc::default() };
    let (team, npc) = match npc {
        None => (caller.team, caller.npc.unwrap_or(&nobody)),
        Some(name) => match caller.team.member(name) {
            Some(found) => found,
            None => {
                let known = caller.npc.map(|npc| offer(caller.team, npc).members).unwrap_or_default();
                let known = known.join(", ");
                return Ok(ToolResult::failed(format!("there is no member `{name}` (members: {known})")));
            }
        },
    };
    let deepest = caller.npc.unwrap_or(npc).limits.depth;
    if caller.depth >= deepest {
        let error = format!(
            "`{}` can't be asked: {deepest} conversations inside of each other are the limit",
            npc.name
        );
        return Ok(ToolResult::failed(error));
    }
    let tools: Vec<String> = match &step.tools {
        Tools::None => Vec::new(),
        Tools::All => npc.jinxes.clone(),
        Tools::Some(names) => npc.jinxes.iter().filter(|name| names.contains(name)).cloned().collect(),
    };
    let with_system = step.system.unwrap_or(step.npc.is_some() || !tools.is_empty());
    let given = Given {
        system: if with_system { system(team, npc) } else { Vec::new() },
        schema: step.schema.clone(),
        scope: caller.scope_of(place),
        depth: caller.depth + 1,
        tools,
    };
    let mut agent = Agent::start(caller.session, caller.trace, team, npc, given)?;
    agent.deadline = caller.deadline;
    Ok(match agent.run(prompt)? {
        Outcome::Answer { text } if step.schema.is_some() => match serde_json::from_str::<Value>(&text) {
            Ok(value) => ToolResult::succeeded(value),
            Err(error) => ToolResult::failed(format!("the answer is no JSON: {error}")),
        },
        Outcome::Answer { text } => ToolResult::succeeded(text.trim()),
        other => ToolResult::failed(other.reason()),
    })
}
