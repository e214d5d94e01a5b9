//! The one place where tools run: it checks permissions, and nothing runs that hasn't passed the
//! check.
//!
//! An NPC's list of jinxes is its permission set, in the decoder's grammar and here.
//! A model inside a jinx never gets more.

use std::time::Instant;

use alara_engine::{Tool, ToolCall, violation};
use alara_policy::decision::{Decision, Judgement, LIST};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::hidden::{self, CALL, UNLOCK};
use crate::jinx::Jinx;
use crate::model::arguments;
use crate::permission::{self, Answer, BEFOREHAND, Question};
use crate::phases::{Machine, PLAN};
use crate::prompt::offer;
use crate::run::review::Planned;
use crate::run::session::{Caller, Ruled, Session};
use crate::run::steps::run;
use crate::run::{gates, hooks, remedies, review};
use crate::team::Team;
use crate::trace::{PERSON, Record};
use crate::types::{Effect, KEPT_BYTES, Limits, ToolResult, Verdict};

/// What a model may call at this point of its conversation.
#[derive(Default)]
pub struct Offered<'a> {
    /// The tools of its prompt.
    pub tools: &'a [String],
    /// The hidden tools of the NPC.
    pub hidden: &'a [Tool],
    /// Those of them that it has unlocked.
    pub unlocked: &'a [String],
    /// The phase of its conversation, if it has phases.
    pub phase: Option<&'a Machine<'a>>,
}

impl<'a> Offered<'a> {
    /// These tools and nothing else, without phases.
    pub fn of(tools: &'a [String]) -> Self {
        Offered { tools, ..Offered::default() }
    }
}

/// Why a call ends before it is made.
enum Stop {
    /// It is refused, malformed, or left out by a dry run; with its result.
    NotMade(Box<ToolResult>),
    /// The caller can't do better.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

impl Stop {
    fn with(result: ToolResult) -> Self {
        Stop::NotMade(Box::new(result))
    }

    fn why(reason: impl Into<String>) -> Self {
        Stop::with(ToolResult::failed(reason))
    }

    /// The result of a call that was made or not.
    fn settle(result: Result<ToolResult, Stop>) -> Result<ToolResult, Error> {
        match result {
            Ok(result) => Ok(result),
            Err(Stop::NotMade(result)) => Ok(*result),
            Err(Stop::Failed(error)) => Err(error),
        }
    }
}

/// Runs a call that a model made, if it is permitted.
/// A call that is refused, malformed or fails returns a result that explains this.
///
/// # Errors
/// The sandbox or a model failed: the caller can't do better.
pub fn execute(caller: &Caller, offered: &Offered, call: &ToolCall) -> Result<ToolResult, Error> {
    Stop::settle(call_of_model(caller, offered, call))
}

fn call_of_model(caller: &Caller, offered: &Offered, call: &ToolCall) -> Result<ToolResult, Stop> {
    let Offered { tools, hidden, unlocked, phase } = offered;
    let is_unlocked = |name: &str| unlocked.iter().any(|unlocked| unlocked == name);
    let inner = hidden::named(call).filter(|inner| is_unlocked(inner));
    permitted(caller, &call.name, &Decision::by_phase(&call.name, inner, *phase))?;
    match phase.and_then(|machine| machine.phases().queue.as_ref()) {
        Some(queue) if call.name == PLAN => return Ok(queue.plan(&call.arguments)),
        _ if call.name == UNLOCK && !hidden.is_empty() => return Ok(hidden::unlock(hidden, &call.arguments)),
        _ => {}
    }
    let inner = match call.name == CALL && !hidden.is_empty() {
        true => Some(unlocked_call(caller, unlocked, call)?),
        false => None,
    };
    if inner.is_none() && is_unlocked(&call.name) {
        permitted(caller, &call.name, &Decision::denied(LIST, hidden::by_call(&call.name)))?;
    }
    let (call, list) = inner.as_ref().map_or((call, *tools), |inner| (inner, *unlocked));
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    permitted(caller, &call.name, &Decision::by_list(&call.name, &list))?;
    let jinx = caller.jinx(&call.name);
    let jinx = jinx.ok_or_else(|| Stop::why(format!("there is no jinx `{}`", call.name)))?;
    if let Some(flaw) = arguments::flaw(&call.arguments) {
        let names: Vec<&str> = jinx.inputs.iter().map(|input| input.name.as_str()).collect();
        let takes = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let name = &call.name;
        return Err(Stop::why(format!(
            "not run: the arguments of `{name}` are no JSON object: {flaw}; it takes: {takes}"
        )));
    }
    let mut result = Stop::settle(dispatch(caller, jinx, &call.arguments, &call.id))?;
    remedies::tell(&mut result);
    Ok(result.kept(KEPT_BYTES))
}

/// The call of an unlocked tool that a model made with [`CALL`].
/// The result of another one doesn't reveal whether a locked tool exists.
fn unlocked_call(caller: &Caller, unlocked: &[String], call: &ToolCall) -> Result<ToolCall, Stop> {
    if let Some(flaw) = arguments::flaw(&call.arguments) {
        return Err(Stop::why(format!("not run: the arguments of `{CALL}` are no JSON object: {flaw}")));
    }
    let inner = hidden::inner(call).map_err(Stop::why)?;
    if !unlocked.contains(&inner.name) {
        permitted(caller, CALL, &Decision::denied("what is unlocked", hidden::locked(&inner.name)))?;
    }
    Ok(inner)
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
    let result = Stop::settle(dispatch(caller, jinx, arguments, place))?;
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

/// The way of every call: from its arguments to its result.
fn dispatch(
    caller: &Caller,
    jinx: &Jinx,
    arguments: &Map<String, Value>,
    place: &str,
) -> Result<ToolResult, Stop> {
    let arguments = checked(caller, jinx, arguments)?;
    // The check of where a path leads includes the changes of jobs so far.
    caller.session.jobs.settle(caller.session);
    let verdict = decided(caller, jinx, &arguments, Person::IsAsked)?;
    // Gates learn from a call that a hook or a person stopped, too: in a replay, where neither is
    // asked again, it looks like one that failed.
    let result = Stop::settle(make(caller, jinx, arguments.clone(), verdict, place))?;
    gates::observe(caller, jinx, &arguments, &result)?;
    Ok(result)
}

/// The arguments with defaults filled in, if they fit the jinx.
fn checked(caller: &Caller, jinx: &Jinx, arguments: &Map<String, Value>) -> Result<Map<String, Value>, Stop> {
    let arguments = jinx.arguments(arguments, &offer(caller.team, caller.npc)).map_err(Stop::why)?;
    // A server's schema may be stricter than the grammar that the model writes under.
    let violation = jinx.remote.as_ref().and_then(|remote| violation(&remote.parameters, &arguments));
    match violation {
        None => Ok(arguments),
        Some(violation) => {
            let name = &jinx.name;
            Err(Stop::why(format!("the arguments don't fit the schema of `{name}`: {violation}")))
        }
    }
}

/// Makes a permitted call, unless a hook or a review stops it.
fn make(
    caller: &Caller,
    jinx: &Jinx,
    arguments: Map<String, Value>,
    mut verdict: Option<Verdict>,
    place: &str,
) -> Result<ToolResult, Stop> {
    let scope = caller.scope_of(place);
    if let Some((result, told)) = caller.session.mocks.take(&scope) {
        caller.trace.learn(&told);
        return Ok(result);
    }
    let caller = Caller { scope: &scope, ..*caller };
    permitted(&caller, &jinx.name, &hooks::before(&caller, jinx, &arguments)?)?;
    let Planned { arguments, edited, note } = review::plan(&caller, jinx, arguments)?.map_err(Stop::with)?;
    if edited {
        verdict = decided(&caller, jinx, &arguments, Person::HasAnswered)?;
    }
    permitted(&caller, &jinx.name, &by_variables(&caller, jinx, &arguments)?)?;
    let ruled = Ruled { jinx, arguments: &arguments, verdict };
    let caller = Caller { ruled: caller.npc.is_some().then_some(&ruled), ..caller };
    let mut result = match &jinx.remote {
        Some(remote) => {
            // Programs repeat this check right before they start.
            if let Some(why) = caller.overruled()? {
                return Err(Stop::why(format!("not run: {why}")));
            }
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
        Some(jinx) => Stop::settle(dispatch(&caller, jinx, &call.arguments, &call.id))?,
        None => ToolResult::failed(format!("there is no jinx `{}`", call.name)),
    };
    let (text, seconds) = (result.text(Limits::default().tool_output_bytes), begun.elapsed().as_secs_f64());
    session.trace.push(
        PERSON,
        Record::ToolResult { call: call.clone(), result: result.clone().kept(KEPT_BYTES), text, seconds },
    )?;
    Ok(result)
}

/// Whether a person still has to answer about a call.
#[derive(Clone, Copy, PartialEq)]
enum Person {
    IsAsked,
    /// By editing the call, the person has answered.
    HasAnswered,
}

/// Checks a call against gates and rules, and asks a person where a rule requires it.
/// Returns the verdict of the rules before a person was asked; `None` if no rule covers it.
/// A person's own call needs no permission.
fn decided(
    caller: &Caller,
    jinx: &Jinx,
    arguments: &Map<String, Value>,
    person: Person,
) -> Result<Option<Verdict>, Stop> {
    let Some(npc) = caller.npc else { return Ok(None) };
    let ruling = std::cell::OnceCell::new();
    let mut decision = gates::decide(caller, npc, jinx, arguments).and(|| {
        let ruling = ruling.get_or_init(|| caller.verdict(jinx, arguments));
        Decision::by_rules(&jinx.name, ruling.clone())
    });
    let ruled = ruling.into_inner().flatten().map(|ruling| ruling.verdict);
    let Some(by) = decision.asks().map(str::to_owned) else {
        permitted(caller, &jinx.name, &decision)?;
        return Ok(ruled);
    };
    // A dry run only shows the call, so it needs no permission.
    if caller.session.dry_run {
        permitted(caller, &jinx.name, &decision)?;
        return Err(Stop::with(review::left_out()));
    }
    // The answer takes the place of the rule that asks.
    decision.judgements.pop();
    if person == Person::HasAnswered {
        permitted(caller, &jinx.name, &decision)?;
        return Ok(ruled);
    }
    let about = permission::pattern(jinx, arguments);
    let doubtful = decision.doubtful;
    let question = Question { npc: &npc.name, jinx, arguments, variables: &[], risk: None, doubtful, about };
    let answer = ask(caller, &question)?.unwrap_or_else(|| {
        let why = match caller.session.agrees() {
            true => format!("{by}; {BEFOREHAND}"),
            false => format!("{by}, which says to ask, and nobody is there to be asked"),
        };
        Judgement { verdict: Verdict::Deny, by: why }
    });
    let decision = decision.and(|| Decision::answered(&jinx.name, answer));
    permitted(caller, &jinx.name, &decision)?;
    Ok(ruled)
}

/// Records a decision about a call.
///
/// # Errors
/// It denies the call, or the trace can't be written.
fn permitted(caller: &Caller, tool: &str, decision: &Decision) -> Result<(), Stop> {
    for Judgement { verdict, by } in &decision.judgements {
        let record = Record::Permission { jinx: tool.to_owned(), verdict: *verdict, by: by.clone() };
        caller.trace.push(caller.scope, record)?;
    }
    decision.refusal.clone().map_or(Ok(()), |refusal| Err(Stop::with(refusal)))
}

/// Checks a call against the environment variables that the user grants to this jinx, in the
/// current version of its file.
/// A team's files can't grant this: the sandbox can't see where a program sends a key.
fn by_variables(caller: &Caller, jinx: &Jinx, arguments: &Map<String, Value>) -> Result<Decision, Error> {
    let (session, team) = (caller.session, caller.team);
    let Some(npc) = caller.npc.filter(|_| !jinx.trusted) else { return Ok(Decision::default()) };
    let set = jinx.env.iter().map(String::as_str).filter(|name| std::env::var_os(name).is_some());
    let variables: Vec<&str> = set.collect();
    if variables.is_empty() {
        return Ok(Decision::default());
    }
    let names = variables.join(", ");
    let about = permission::variables(team, jinx, &variables);
    let remembered = session.permissions.answer(&permission::holder(team), &about);
    let answered = match remembered {
        Some((verdict, by)) => Some(Judgement { verdict, by }),
        None => {
            let question = Question {
                npc: &npc.name,
                jinx,
                arguments,
                variables: &variables,
                risk: None,
                doubtful: false,
                about,
            };
            ask(caller, &question)?
        }
    };
    let Judgement { verdict, by } = answered.unwrap_or_else(|| Judgement {
        verdict: Verdict::Deny,
        by: "the rule that a person is asked for such, and there was no one to ask".to_owned(),
    });
    let error =
        format!("`{}` is not run: it would get {names} of the environment, denied by {by}", jinx.name);
    let by = format!("{by} about {names}");
    Ok(match verdict {
        Verdict::Deny => Decision::denied(by, error),
        Verdict::Allow | Verdict::Ask => Decision::judged(verdict, by),
    })
}

/// The person's answer, and the record of who answered; `None` if there is no person to ask.
fn ask(caller: &Caller, question: &Question) -> Result<Option<Judgement>, Error> {
    let Some(answer) = caller.session.ask(question) else { return Ok(None) };
    caller.session.remember(&permission::holder(caller.team), &question.about, answer);
    let verdict = match answer {
        Answer::Yes | Answer::Session | Answer::Always => Verdict::Allow,
        Answer::No | Answer::Never => Verdict::Deny,
    };
    Ok(Some(Judgement { verdict, by: "an answer".to_owned() }))
}
