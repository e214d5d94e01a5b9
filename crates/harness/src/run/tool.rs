//! The one place where tools run: it checks permissions, and nothing runs that hasn't passed the
//! check.
//!
//! An NPC's list of jinxes is its permission set, in the decoder's grammar and here.
//! A model inside a jinx never gets more.

use std::time::Instant;

use alara_engine::{ToolCall, nearest, violation};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::hidden::{self, CALL};
use crate::jinx::Jinx;
use crate::model::arguments;
use crate::permission::{self, Answer, BEFOREHAND, Question, Ruling};
use crate::phases::Machine;
use crate::prompt::offer;
use crate::run::review::Planned;
use crate::run::session::{Caller, Ruled, Session};
use crate::run::steps::run;
use crate::run::{gates, hooks, refusals, remedies, review};
use crate::team::Team;
use crate::trace::{PERSON, Record};
use crate::types::{Effect, KEPT_BYTES, Limits, ToolResult, Verdict};

/// Runs a call that a model made, if it is one of its `tools`.
/// A call that is refused, malformed or fails returns a result that explains this.
///
/// # Errors
/// The sandbox or a model failed: the caller can't do better.
pub fn execute(caller: &Caller, tools: &[String], call: &ToolCall) -> Result<ToolResult, Error> {
    let permitted = tools.contains(&call.name).then(|| caller.jinx(&call.name)).flatten();
    let Some(jinx) = permitted else {
        audit(caller, &call.name, Verdict::Deny, refusals::LIST)?;
        // The tool that the model may have meant comes first.
        let mut list: Vec<&str> = tools.iter().map(String::as_str).collect();
        let near = nearest(&call.name, list.iter().copied());
        list.sort_by_key(|name| Some(*name) != near);
        let list = list.join(", ");
        return Ok(ToolResult::failed(format!("`{}` is not permitted; the tools are: {list}", call.name)));
    };
    if let Some(flaw) = arguments::flaw(&call.arguments) {
        let names: Vec<&str> = jinx.inputs.iter().map(|input| input.name.as_str()).collect();
        let takes = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let error = format!(
            "not run: the arguments of `{}` are no JSON object: {flaw}; it takes: {takes}",
            call.name
        );
        return Ok(ToolResult::failed(error));
    }
    let mut result = dispatch(caller, jinx, &call.arguments, &call.id)?;
    remedies::tell(&mut result);
    Ok(result.kept(KEPT_BYTES))
}

/// Runs the call of a hidden tool that a model made with [`CALL`], if the tool is `unlocked`.
/// From then on it is a call of that tool.
/// The result doesn't reveal whether a locked tool exists.
///
/// # Errors
/// As [`execute`].
pub fn execute_hidden(caller: &Caller, unlocked: &[String], call: &ToolCall) -> Result<ToolResult, Error> {
    if call.name != CALL {
        audit(caller, &call.name, Verdict::Deny, refusals::LIST)?;
        return Ok(ToolResult::failed(hidden::by_call(&call.name)));
    }
    if let Some(flaw) = arguments::flaw(&call.arguments) {
        return Ok(ToolResult::failed(format!(
            "not run: the arguments of `{CALL}` are no JSON object: {flaw}"
        )));
    }
    let inner = match hidden::inner(call) {
        Ok(inner) => inner,
        Err(reason) => return Ok(ToolResult::failed(reason)),
    };
    if !unlocked.contains(&inner.name) {
        audit(caller, CALL, Verdict::Deny, "what is unlocked")?;
        return Ok(ToolResult::failed(hidden::locked(&inner.name)));
    }
    execute(caller, unlocked, &inner)
}

/// Answers a call that the current phase of its conversation forbids.
///
/// # Errors
/// The trace can't be written.
pub fn out_of_phase(caller: &Caller, call: &ToolCall, machine: &Machine) -> Result<ToolResult, Error> {
    let phase = &machine.state().phase;
    audit(caller, &call.name, Verdict::Deny, &refusals::by_phase(phase))?;
    let now = match machine.open().as_slice() {
        [] => "nothing may be called now: answer with a text".to_owned(),
        open => format!("what may be called now: {}", open.join(", ")),
    };
    Ok(ToolResult::failed(format!("`{}` is not permitted in the phase `{phase}`; {now}", call.name)))
}

/// Runs a jinx for a step or a person.
/// A step's call was granted with the jinx that contains it, but rules apply to it too.
/// `place` names the call in the trace.
///
/// # Errors
/// As [`execute`].
pub fn call(
    caller: &Caller,
    jinx: &Jinx,
    arguments: &Map<String, Value>,
    place: &str,
) -> Result<ToolResult, Error> {
    let begun = Instant::now();
    let result = dispatch(caller, jinx, arguments, place)?;
    caller.trace.push(
        caller.scope,
        Record::Jinx {
            jinx: jinx.name.clone(),
            place: place.to_owned(),
            arguments: arguments.clone(),
            result: result.clone().kept(KEPT_BYTES),
            seconds: begun.elapsed().as_secs_f64(),
        },
    )?;
    Ok(result)
}

fn dispatch(
    caller: &Caller,
    jinx: &Jinx,
    arguments: &Map<String, Value>,
    place: &str,
) -> Result<ToolResult, Error> {
    let offer = offer(caller.team, caller.npc);
    let arguments = match jinx.arguments(arguments, &offer) {
        Ok(arguments) => arguments,
        Err(reason) => return Ok(ToolResult::failed(reason)),
    };
    // Its schema may be stricter than the grammar that the model writes under.
    let remote = jinx.remote.as_ref();
    if let Some(violation) = remote.and_then(|remote| violation(&remote.parameters, &arguments)) {
        let name = &jinx.name;
        return Ok(ToolResult::failed(format!(
            "the arguments don't fit the schema of `{name}`: {violation}"
        )));
    }
    // The check of where a path leads includes the changes of jobs so far.
    caller.session.jobs.settle(caller.session);
    if let Some(blocked) = gates::hold(caller, jinx, &arguments)? {
        return Ok(blocked);
    }
    let ruled = caller.npc.and_then(|_| caller.verdict(jinx, &arguments));
    let verdict = ruled.as_ref().map(|ruling| ruling.verdict);
    if let Some(refused) = refused(caller, jinx, &arguments, ruled)? {
        return Ok(refused);
    }
    let result = made(caller, jinx, arguments.clone(), verdict, place)?;
    gates::observe(caller, jinx, &arguments, &result)?;
    Ok(result)
}

/// Makes a permitted call, unless a hook or a review stops it.
fn made(
    caller: &Caller,
    jinx: &Jinx,
    arguments: Map<String, Value>,
    mut verdict: Option<Verdict>,
    place: &str,
) -> Result<ToolResult, Error> {
    let scope = caller.scope_of(place);
    if let Some((result, told)) = caller.session.mocks.take(&scope) {
        caller.trace.learn(&told);
        return Ok(result);
    }
    let caller = Caller { scope: &scope, ..*caller };
    if let Some(refused) = hooks::before(&caller, jinx, &arguments)? {
        return Ok(refused);
    }
    let Planned { arguments, edited, note } = match review::plan(&caller, jinx, arguments)? {
        Ok(planned) => planned,
        Err(not_made) => return Ok(not_made),
    };
    // The same rules apply to a call that a person edited.
    if edited {
        if let Some(blocked) = gates::hold(&caller, jinx, &arguments)? {
            return Ok(blocked);
        }
        verdict = match caller.npc.and_then(|_| caller.verdict(jinx, &arguments)) {
            Some(Ruling { verdict: Verdict::Deny, by, .. }) => {
                audit(&caller, &jinx.name, Verdict::Deny, &by)?;
                return Ok(denied(jinx, &by));
            }
            // By editing the call, the person has answered.
            ruled => ruled.map(|ruling| ruling.verdict),
        };
    }
    if let Some(withheld) = withheld(&caller, jinx, &arguments)? {
        return Ok(withheld);
    }
    let ruled = Ruled { jinx, arguments: &arguments, verdict };
    let caller = Caller { ruled: caller.npc.is_some().then_some(&ruled), ..caller };
    // Programs repeat this check right before they start.
    if jinx.remote.is_some()
        && let Some(why) = caller.overruled()?
    {
        return Ok(ToolResult::failed(format!("not run: {why}")));
    }
    let mut result = match &jinx.remote {
        Some(remote) => {
            let result = caller.session.mcp.call(jinx, remote, &arguments, &caller);
            if result.ok && jinx.effect == Effect::Write {
                caller.trace.push(caller.scope, Record::Changed { files: 0 })?;
            }
            result
        }
        None => run(jinx, arguments.clone(), &caller)?,
    };
    result.add_note(&note);
    result.edited = edited.then(|| arguments.clone());
    hooks::after(&caller, jinx, &arguments, &mut result)?;
    Ok(result)
}

/// Runs a call that the person makes outside all conversations, and records it.
/// `offered` are the jinxes of MCP servers, in addition to the team's.
///
/// # Errors
/// As [`execute`].
pub fn person(
    session: &Session,
    team: &Team,
    offered: &[Jinx],
    call: &ToolCall,
) -> Result<ToolResult, Error> {
    session.trace.push(PERSON, Record::ToolCall { call: call.clone() })?;
    let begun = Instant::now();
    let caller = Caller { scope: PERSON, offered, ..Caller::person(session, team) };
    let result = match caller.jinx(&call.name) {
        Some(jinx) => dispatch(&caller, jinx, &call.arguments, &call.id)?,
        None => ToolResult::failed(format!("there is no jinx `{}`", call.name)),
    };
    let (text, seconds) = (result.text(Limits::default().tool_output_bytes), begun.elapsed().as_secs_f64());
    session.trace.push(
        PERSON,
        Record::ToolResult { call: call.clone(), result: result.clone().kept(KEPT_BYTES), text, seconds },
    )?;
    Ok(result)
}

/// Applies the rules to a call; the result is the refusal, if there is one.
/// A person's own call needs no permission.
fn refused(
    caller: &Caller,
    jinx: &Jinx,
    arguments: &Map<String, Value>,
    ruled: Option<Ruling>,
) -> Result<Option<ToolResult>, Error> {
    let (Some(npc), Some(Ruling { mut verdict, doubtful, mut by })) = (caller.npc, ruled) else {
        return Ok(None);
    };
    // A dry run only shows the call, so it needs no permission.
    if verdict == Verdict::Ask && !caller.session.dry_run {
        let about = permission::pattern(jinx, arguments);
        let question =
            Question { npc: &npc.name, jinx, arguments, variables: &[], risk: None, doubtful, about };
        (verdict, by) = ask(caller, &question)?.unwrap_or_else(|| {
            let why = match caller.session.agrees() {
                true => format!("{by}; {BEFOREHAND}"),
                false => format!("{by}, which says to ask, and nobody is there to be asked"),
            };
            (Verdict::Deny, why)
        });
    }
    audit(caller, &jinx.name, verdict, &by)?;
    Ok(match verdict {
        Verdict::Allow => None,
        Verdict::Ask => Some(review::not_made()),
        Verdict::Deny => Some(denied(jinx, &by)),
    })
}

fn denied(jinx: &Jinx, by: &str) -> ToolResult {
    ToolResult::failed(format!("`{}` is not permitted by {by}", jinx.name))
}

/// Checks a call against the environment variables that the user grants to this jinx, in the
/// current version of its file.
/// The result is the refusal.
/// A team's files can't grant this: the sandbox can't see where a program sends a key.
fn withheld(
    caller: &Caller,
    jinx: &Jinx,
    arguments: &Map<String, Value>,
) -> Result<Option<ToolResult>, Error> {
    let (session, team) = (caller.session, caller.team);
    let Some(npc) = caller.npc.filter(|_| !jinx.trusted) else { return Ok(None) };
    let set = jinx.env.iter().map(String::as_str).filter(|name| std::env::var_os(name).is_some());
    let variables: Vec<&str> = set.collect();
    if variables.is_empty() {
        return Ok(None);
    }
    let names = variables.join(", ");
    let about = permission::variables(team, jinx, &variables);
    let answered = match session.permissions.answer(&permission::holder(team), &about) {
        Some(answered) => Some(answered),
        None => ask(
            caller,
            &Question {
                npc: &npc.name,
                jinx,
                arguments,
                variables: &variables,
                risk: None,
                doubtful: false,
                about,
            },
        )?,
    };
    let nobody = || {
        (Verdict::Deny, "the rule that a person is asked for such, and there was no one to ask".to_owned())
    };
    let (verdict, by) = answered.unwrap_or_else(nobody);
    audit(caller, &jinx.name, verdict, &format!("{by} about {names}"))?;
    let error =
        format!("`{}` is not run: it would get {names} of the environment, denied by {by}", jinx.name);
    Ok((verdict == Verdict::Deny).then(|| ToolResult::failed(error)))
}

/// The person's answer, and the record of who answered; `None` if there is no person to ask.
fn ask(caller: &Caller, question: &Question) -> Result<Option<(Verdict, String)>, Error> {
    let Some(answer) = caller.session.ask(question) else { return Ok(None) };
    caller.session.remember(&permission::holder(caller.team), &question.about, answer);
    let verdict = match answer {
        Answer::Yes | Answer::Session | Answer::Always => Verdict::Allow,
        Answer::No | Answer::Never => Verdict::Deny,
    };
    Ok(Some((verdict, "an answer".to_owned())))
}

fn audit(caller: &Caller, jinx: &str, verdict: Verdict, by: &str) -> Result<(), Error> {
    let record = Record::Permission { jinx: jinx.to_owned(), verdict, by: by.to_owned() };
    caller.trace.push(caller.scope, record).map(drop)
}
