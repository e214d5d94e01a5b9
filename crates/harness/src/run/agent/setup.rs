//! How an NPC works with a model: the settings in its file, the substitutes for small models, and
//! the settings that were measured to work best with the model.

use alara_engine::{Format, Message, Request, Sampling, Tool};
use serde_json::Value;

use crate::calls::Calls;
use crate::model::ChatModel;
use crate::prompt::{offer, system, tools_of};
use crate::team::{Npc, SmallModels, Team};

/// The settings of an NPC for one model.
pub(super) struct Setup<'a> {
    npc: &'a Npc,
    /// The substitutes for a small model.
    small: Option<&'a SmallModels>,
    /// The format of calls that replaces the model's own.
    pub other: Option<&'static Format>,
    /// The format of calls; `None` is that of the model's server.
    pub format: Option<&'static Format>,
    pub calls: Calls,
    pub sampling: Sampling,
}

impl<'a> Setup<'a> {
    /// `calls` is the user's setting.
    pub fn of(npc: &'a Npc, model: &dyn ChatModel, calls: Option<Calls>) -> Self {
        let small = npc.small_models.as_ref().filter(|small| small.holds(model.parameters()));
        let tuning = model.tuning();
        let other = tuning.tool_format.as_deref().or(small.and_then(|small| small.tool_format.as_deref()));
        let other = other.filter(|_| !model.format_is_chosen()).and_then(Format::from_name);
        let format = other.or(model.format());
        let calls = calls.unwrap_or_else(|| Calls::of(npc.calls.or(tuning.calls), format));
        let sampling = calls.sampling(model.sampling());
        let temperature = tuning.temperature.unwrap_or(sampling.temperature);
        Setup { npc, small, other, format, calls, sampling: Sampling { temperature, ..sampling } }
    }

    /// The jinxes that are its tools.
    pub fn jinxes(&self) -> &'a [String] {
        self.small.and_then(|small| small.jinxes.as_ref()).unwrap_or(&self.npc.jinxes)
    }

    /// The NPC's limits.
    pub fn limits(&self) -> crate::types::Limits {
        self.small.map_or(self.npc.limits, |small| small.limits(self.npc.limits))
    }

    /// Whether results are plain text.
    pub fn plain_results(&self) -> bool {
        self.small.is_some_and(|small| small.plain_results)
    }

    /// The messages before the conversation's own, for an agent with these `tools`.
    pub fn examples(&self, tools: &[Tool]) -> Vec<Message> {
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let limit = self.npc.limits.tool_output_bytes;
        self.small.map_or_else(Vec::new, |small| small.messages(&names, limit))
    }
}

/// The first request of an NPC to a model, without the additions of a work directory and MCP
/// servers.
pub fn opening(
    team: &Team,
    npc: &Npc,
    model: &dyn ChatModel,
    messages: Vec<Message>,
    schema: Option<Value>,
) -> Request {
    let setup = Setup::of(npc, model, None);
    let mut tools = tools_of(team, setup.jinxes(), &offer(team, Some(npc)));
    tools.retain(|tool| setup.format.is_none_or(|format| format.refusal(tool).is_none()));
    let mut request = Request {
        system: system(team, npc),
        messages: [setup.examples(&tools), messages].concat(),
        tools,
        schema,
        tool_format: setup.other.map(|format| format.name.to_owned()),
        ..Request::default()
    };
    setup.calls.ask(&mut request);
    request
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;
