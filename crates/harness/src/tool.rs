//! The one place where tools execute: the permission check stands here, and nothing runs that did not pass it.

use std::time::Instant;

use alara_engine::ToolCall;

use crate::error::Error;
use crate::jinx::{ToolResult, run};
use crate::model::ChatModel;
use crate::sandbox::Sandbox;
use crate::team::{Npc, Team};

/// Where a call runs, and until when.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Runs the steps' programs.
    pub sandbox: &'a Sandbox,
    /// Answers the `llm` steps.
    pub model: Option<&'a dyn ChatModel>,
    /// When the call must be over.
    pub deadline: Option<Instant>,
}

/// Runs a call if `npc` may make it. A call that is refused, malformed or fails gives a result that says so.
///
/// # Errors
/// The sandbox or a model failed: nothing that the caller could do better.
pub fn execute(team: &Team, npc: &Npc, call: &ToolCall, place: &Place) -> Result<ToolResult, Error> {
    let permitted = npc.jinxes.contains(&call.name).then(|| team.jinx(&call.name)).flatten();
    let Some(jinx) = permitted else {
        let list = npc.jinxes.join(", ");
        return Ok(ToolResult::failed(format!("`{}` is not permitted; the tools are: {list}", call.name)));
    };
    match jinx.arguments(&call.arguments) {
        Ok(arguments) => run(jinx, arguments, place),
        Err(reason) => Ok(ToolResult::failed(reason)),
    }
}
