//! Hooks of a team: its jinxes run before and after calls, and when a session begins and ends.
//!
//! Hooks are steps of the team, so no NPC needs to list them.
//! Rules and the guard of the work directory apply to them as to any step.
//! A hook never triggers another hook, nor does anything that it calls.
//!
//! A hook that can't be run refuses the call.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use alara_policy::decision::{self, Decision};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::jinx::{Jinx, Kind};
use crate::run::session::{Caller, Notice, Session};
use crate::run::tool;
use crate::team::{Hook, HookEvent, Npc, Team};
use crate::types::ToolResult;

/// Most bytes of a hook's message that a model reads.
const BYTES: usize = 4096;
/// How long a hook at the end may take after an interrupt.
const FINISH: Duration = Duration::from_secs(5);

/// Runs the hooks before a call.
/// A hook that fails, or can't run, denies the call.
///
/// # Errors
/// As [`tool::call`].
pub fn before(caller: &Caller, jinx: &Jinx, arguments: &Map<String, Value>) -> Result<Decision, Error> {
    for hook in hooks(caller, HookEvent::BeforeTool, jinx) {
        let facts = json!({"tool": jinx.name, "arguments": arguments});
        let result = run(caller, hook, facts)?;
        if !result.ok {
            let by = decision::hook(&hook.name);
            let why = format!("`{}` is refused by {by}: {}", jinx.name, message(&result));
            return Ok(Decision::denied(by, why));
        }
    }
    Ok(Decision::default())
}

/// Runs the hooks after a call.
/// Their messages go into the note of its result; the outcome doesn't change.
///
/// # Errors
/// As [`tool::call`].
pub fn after(
    caller: &Caller,
    jinx: &Jinx,
    arguments: &Map<String, Value>,
    result: &mut ToolResult,
) -> Result<(), Error> {
    for hook in hooks(caller, HookEvent::AfterTool, jinx) {
        let limit = caller.npc.map_or(BYTES, |npc| npc.limits.tool_output_bytes);
        let (output, complaint, _) = result.within(limit);
        let said = if result.ok { output } else { complaint };
        let facts = json!({
            "tool": jinx.name, "arguments": arguments, "result": said, "outcome": outcome(result.ok),
        });
        let ran = run(caller, hook, facts)?;
        let note = match message(&ran) {
            message if ran.ok && message.is_empty() => continue,
            message if ran.ok => format!("{}: {message}", hook.name),
            message => format!("the hook `{}` failed: {message}", hook.name),
        };
        result.add_note(&note);
    }
    Ok(())
}

/// Runs the hooks at the start of a session with this NPC.
///
/// # Errors
/// As [`tool::call`].
pub fn start(session: &Session, team: &Team, npc: &Npc) -> Result<(), Error> {
    let caller = Caller { npc: Some(npc), ..Caller::person(session, team) };
    tell(&caller, HookEvent::Start, &json!({}))
}

/// Runs the hooks at the end of a session, with its outcome as one word.
///
/// # Errors
/// As [`tool::call`].
pub fn end(session: &Session, team: &Team, npc: &Npc, outcome: &str) -> Result<(), Error> {
    let interrupted = session.sandbox.cancel_flag().load(Ordering::Relaxed);
    let deadline = interrupted.then(|| Instant::now() + FINISH);
    let caller = Caller { npc: Some(npc), finishing: true, deadline, ..Caller::person(session, team) };
    tell(&caller, HookEvent::End, &json!({"outcome": outcome}))
}

/// Replays the hook of a session that a trace records at `place`.
/// Does nothing if the team no longer has that hook.
///
/// # Errors
/// As [`tool::call`].
pub fn again(
    session: &Session,
    team: &Team,
    npc: &Npc,
    place: &str,
    arguments: &Map<String, Value>,
) -> Result<(), Error> {
    let caller = Caller { npc: Some(npc), hook: true, ..Caller::person(session, team) };
    let hook = team.hooks.iter().find(|hook| !hook.event.is_about_tools() && self::place(hook) == place);
    match hook.and_then(|hook| hook.jinx.as_ref()) {
        Some(jinx) => tool::call(&caller, jinx, arguments, place).map(drop),
        None => Ok(()),
    }
}

/// The hooks for a call, unless a person or a hook makes it.
fn hooks<'a>(caller: &Caller<'a, '_>, event: HookEvent, jinx: &Jinx) -> impl Iterator<Item = &'a Hook> {
    let all = if caller.hook || caller.npc.is_none() { &[][..] } else { &caller.team.hooks[..] };
    all.iter().filter(move |hook| hook.is_about(event, &jinx.name))
}

/// Runs the hooks of a session, and tells the observer which of them failed.
fn tell(caller: &Caller, event: HookEvent, facts: &Value) -> Result<(), Error> {
    for hook in caller.team.hooks.iter().filter(|hook| hook.event == event) {
        let result = run(caller, hook, facts.clone())?;
        if !result.ok {
            let (name, when) = (&hook.name, event.name());
            let text = format!("the hook `{name}` at the {when} of the session failed: {}", message(&result));
            caller.session.notify(&Notice::Warning(&text));
        }
    }
    Ok(())
}

/// Runs the jinx of a hook with those of the facts that it takes as inputs.
fn run(caller: &Caller, hook: &Hook, mut facts: Value) -> Result<ToolResult, Error> {
    let Some(jinx) = &hook.jinx else {
        return Ok(ToolResult::failed(format!("the team has no jinx `{}`", hook.name)));
    };
    facts["event"] = hook.event.name().into();
    facts["npc"] = caller.name().into();
    let given = jinx.inputs.iter().filter_map(|input| {
        let value = match facts.get(&input.name)? {
            value if input.kind == Kind::String && !value.is_string() => value.to_string().into(),
            value => value.clone(),
        };
        Some((input.name.clone(), value))
    });
    tool::call(&Caller { hook: true, ..*caller }, jinx, &given.collect(), &place(hook))
}

/// The name of a hook's run in the trace.
fn place(hook: &Hook) -> String {
    format!("{}.{}", hook.event.name(), hook.name)
}

fn outcome(ok: bool) -> &'static str {
    if ok { "ok" } else { "failed" }
}

/// The message of a hook: its output and its error.
fn message(result: &ToolResult) -> String {
    let (output, error, _) = result.within(BYTES);
    let said = [output.trim(), error.trim()];
    let said: Vec<&str> = said.into_iter().filter(|text| !text.is_empty()).collect();
    match said.as_slice() {
        // With a message, the exit status is redundant.
        [output, error] if error.starts_with("exit status") => (*output).to_owned(),
        said => said.join("\n"),
    }
}
