//! The one place where tools execute: the permission check stands here, and nothing runs that did not pass it.

use std::time::Instant;

use alara_engine::ToolCall;
use serde_json::{Map, Value};

use crate::agent::offer;
use crate::error::Error;
use crate::jinx::Verdict;
use crate::jinx::{Jinx, ToolResult, run};
use crate::permission::{Answer, Question};
use crate::session::{Caller, Session};
use crate::team::{Limits, Team};
use crate::trace::{PERSON, Record};

/// Runs a call that a model made, if it is one of its `tools`. A call that is refused, malformed or fails gives a result that says so.
///
/// # Errors
/// The sandbox or a model failed: nothing that the caller could do better.
pub fn execute(caller: &Caller, tools: &[String], call: &ToolCall) -> Result<ToolResult, Error> {
    let permitted = tools.contains(&call.name).then(|| caller.team.jinx(&call.name)).flatten();
    let Some(jinx) = permitted else {
        let by = "the list".to_owned();
        let record = Record::Permission { jinx: call.name.clone(), verdict: Verdict::Deny, by };
        caller.trace.push(caller.scope, record)?;
        let list = tools.join(", ");
        return Ok(ToolResult::failed(format!("`{}` is not permitted; the tools are: {list}", call.name)));
    };
    self::call(caller, jinx, &call.arguments, &call.id)
}

/// Runs a jinx, for a model's call, a step or a person, if the rules permit it. `place` names the call in the trace.
///
/// # Errors
/// As [`execute`].
pub fn call(
    caller: &Caller,
    jinx: &Jinx,
    arguments: &Map<String, Value>,
    place: &str,
) -> Result<ToolResult, Error> {
    let offer = caller.npc.map(|npc| offer(caller.team, npc)).unwrap_or_default();
    let arguments = match jinx.arguments(arguments, &offer) {
        Ok(arguments) => arguments,
        Err(reason) => return Ok(ToolResult::failed(reason)),
    };
    if let Some(refused) = refused(caller, jinx, &arguments)? {
        return Ok(refused);
    }
    let scope = if caller.scope.is_empty() { place.to_owned() } else { format!("{}/{place}", caller.scope) };
    if let Some(result) = caller.session.stand_ins.get(&scope) {
        return Ok(result.clone());
    }
    run(jinx, arguments, &Caller { scope: &scope, ..*caller })
}

/// Runs a call that the person makes beside all conversations, and records it.
///
/// # Errors
/// As [`execute`].
pub fn person(session: &Session, team: &Team, call: &ToolCall) -> Result<ToolResult, Error> {
    session.trace.push(PERSON, Record::ToolCall { call: call.clone() })?;
    let begun = Instant::now();
    let caller = Caller { scope: PERSON, ..Caller::person(session, team) };
    let result = match team.jinx(&call.name) {
        Some(jinx) => self::call(&caller, jinx, &call.arguments, &call.id)?,
        None => ToolResult::failed(format!("there is no jinx `{}`", call.name)),
    };
    let (text, seconds) = (result.text(Limits::default().tool_output_bytes), begun.elapsed().as_secs_f64());
    session
        .trace
        .push(PERSON, Record::ToolResult { call: call.clone(), result: result.clone(), text, seconds })?;
    Ok(result)
}

fn refused(
    caller: &Caller,
    jinx: &Jinx,
    arguments: &Map<String, Value>,
) -> Result<Option<ToolResult>, Error> {
    let session = caller.session;
    let Some((verdict, by)) = session.permissions.verdict(&caller.team.rules, jinx, arguments) else {
        return Ok(None);
    };
    let (verdict, by) = match verdict {
        Verdict::Ask => match session.ask(&Question { npc: caller.name(), jinx, arguments }) {
            Some(Answer::Yes | Answer::Session | Answer::Always) => (Verdict::Allow, "an answer".to_owned()),
            Some(Answer::No | Answer::Never) => (Verdict::Deny, "an answer".to_owned()),
            None => (Verdict::Deny, format!("{by}; nobody is there to be asked")),
        },
        verdict => (verdict, by),
    };
    let record = Record::Permission { jinx: jinx.name.clone(), verdict, by: by.clone() };
    caller.trace.push(caller.scope, record)?;
    Ok((verdict == Verdict::Deny)
        .then(|| ToolResult::failed(format!("`{}` is not permitted by {by}", jinx.name))))
}
