//! Continues an earlier conversation.

use std::path::Path;

use alara_harness::Sandbox;
use alara_harness::resume::{Conversation, Resumed, resume};
use anyhow::bail;

use crate::progress::count;
use crate::{state, ui};

/// The message if the user gives none.
const GO_ON: &str = "Go on.";

/// Loads the conversations in the trace at `path`, and reports what happened to them.
/// `who` goes on with them: an NPC, its team and its model, in words.
///
/// # Errors
/// It isn't a trace, another process is using it, or an interrupted change can't be reverted.
pub fn take_up(path: &Path, sandbox: &Sandbox, who: &str) -> anyhow::Result<Resumed> {
    let root = state::undo();
    let mut resumed = resume(path, sandbox.work(), root.as_deref().zip(sandbox.journal()))?;
    resumed.trace = resumed.trace.optional();
    let id = path.file_stem().unwrap_or_default().to_string_lossy();
    ui::note(&format!("goes on with {id}: {who}"));
    if resumed.cut_off > 0 {
        let calls = count(resumed.cut_off, "call");
        ui::note(&format!("{calls} cut off; what is known of it stands in the result that the NPC reads"));
    }
    if let Some(changed) = resumed.changes() {
        ui::note(&format!("changed since then: {changed}"));
    }
    Ok(resumed)
}

/// Describes an NPC, its team and its model.
pub fn who(npc: &str, team: &str, model: &str) -> String {
    format!("{npc} of {team}, with {model}")
}

/// Returns the first message for an NPC: what it missed, and `task`.
///
/// # Errors
/// There is nothing to continue.
pub fn message(resumed: &Resumed, conversation: &Conversation, task: &str) -> anyhow::Result<String> {
    let task = match task.trim().is_empty() {
        false => task,
        true if conversation.start().is_none() => bail!("this NPC was not spoken to: say what it is to do"),
        true if conversation.is_answered() => {
            bail!("the last task was answered\nhint: say what is next, as in alara run --continue \"...\"")
        }
        true => GO_ON,
    };
    Ok(resumed.news().into_iter().chain([task.to_owned()]).collect::<Vec<_>>().join("\n\n"))
}
