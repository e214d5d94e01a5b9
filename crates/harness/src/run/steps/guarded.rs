//! Programs of an NPC in a guarded work directory: who is asked about what they take away, and what
//! is said if nobody says yes.

use std::sync::atomic::Ordering;

use serde_json::{Map, Value};

use crate::error::Error;
use crate::jinx::Jinx;
use crate::jinx::template::Scope;
use crate::permission::{Answer, Question};
use crate::run::session::{Caller, Notice};
use crate::sandbox::{Guarded, Output, Risk, Script, losses, phrases};
use crate::trace::Record;
use crate::types::{Effect, Verdict};

/// Most characters of a call's first argument that a journal has.
const FIRST: usize = 60;

/// What came of a program.
#[derive(Default)]
pub(super) struct Ran {
    /// What it did; `None`: it did not even run.
    pub output: Option<Output>,
    /// Why nothing of it is left, if so.
    pub undone: Option<String>,
    /// What a person did to it; may be empty.
    pub note: String,
}

/// Runs a program of a step of `jinx`.
/// What a person starts is not guarded: they know what they do.
pub(super) fn run(script: &Script, jinx: &Jinx, scope: &Scope, caller: &Caller) -> Result<Ran, Error> {
    let sandbox = caller.session.sandbox;
    let Some(npc) = caller.npc else {
        let output = if caller.finishing { sandbox.finish(script) } else { sandbox.run(script) };
        return output.map(|output| Ran { output: Some(output), ..Ran::default() });
    };
    let mut why = "the run was interrupted, or the directory has changed meanwhile".to_owned();
    let mut note = String::new();
    let mut ask = |risk: Risk| -> Result<bool, Error> {
        // The call was shown before it was made, see `review`.
        if matches!(risk, Risk::Unknown) && sandbox.reviews() {
            return Ok(true);
        }
        let arguments: Map<String, Value> = jinx
            .inputs
            .iter()
            .filter_map(|input| Some((input.name.clone(), scope.value(&input.name)?)))
            .collect();
        let (npc, about) = (npc.name.as_str(), String::new());
        let question = Question { npc, jinx, arguments: &arguments, variables: &[], risk: Some(risk), about };
        // Whoever interrupts is not asked what else may happen.
        let interrupted = sandbox.cancel_flag().load(Ordering::Relaxed);
        let answer = if interrupted { Some(Answer::No) } else { caller.session.ask(&question) };
        let (verdict, by) = match answer {
            Some(Answer::Yes) => (Verdict::Allow, "an answer"),
            Some(Answer::Session | Answer::Always) => {
                sandbox.permit();
                (Verdict::Allow, "an answer for the session")
            }
            Some(Answer::No | Answer::Never) => (Verdict::Deny, "an answer"),
            None => (Verdict::Deny, "that nobody is there to be asked"),
        };
        let what = what(risk);
        let edited = if let Risk::Writes(proposal) = risk { proposal.edited() } else { Vec::new() };
        let edited = edited.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        let mut by = format!("the guard of the work directory, by {by}: it {what}");
        if !edited.is_empty() && verdict == Verdict::Allow {
            by += &format!("; edited: {edited}");
            note = format!("the user edited this before it was written, so read it again: {edited}");
        }
        caller.trace.push(caller.scope, Record::Permission { jinx: jinx.name.clone(), verdict, by })?;
        if verdict == Verdict::Deny {
            let nobody = answer.is_none();
            caller.session.notify(&Notice::Unchanged { what: &what, nobody });
            let reason = if nobody { "nobody is there to be asked" } else { "the user does not allow it" };
            why = match risk {
                Risk::Losses(_) | Risk::Writes(_) => format!("it {what}, and {reason}"),
                Risk::Unknown => reason.to_owned(),
            };
        }
        Ok(verdict == Verdict::Allow)
    };
    let reads = jinx.trusted && jinx.effect != Effect::Write;
    let by = by(jinx, scope, &npc.name);
    let ran = sandbox.run_guarded(script, caller.finishing, reads, &by, &mut ask)?;
    if let Some(problem) = sandbox.journal_problem() {
        let warning = format!("not all of what is changed can be taken back by `alara undo`: {problem}");
        caller.session.notify(&Notice::Warning(&warning));
    }
    let (output, undone) = match ran {
        Guarded::Ran(output) => (Some(output), None),
        Guarded::Undone(output) => (Some(output), Some(format!("undone, no file was changed: {why}"))),
        Guarded::Refused => (None, Some(format!("not run: {why}"))),
    };
    Ok(Ran { note: if undone.is_none() { note } else { String::new() }, output, undone })
}

/// Who does something and with which call, in a line: `coder: shell make all`.
fn by(jinx: &Jinx, scope: &Scope, npc: &str) -> String {
    let first = jinx.inputs.first().and_then(|input| scope.value(&input.name));
    let first =
        first.as_ref().and_then(Value::as_str).and_then(|text| text.lines().next()).unwrap_or_default();
    let cut = first.char_indices().nth(FIRST).map_or(first.len(), |(at, _)| at);
    format!("{npc}: {} {}", jinx.name, &first[..cut]).trim_end().to_owned()
}

/// What a program does, for people.
fn what(risk: Risk) -> String {
    match risk {
        Risk::Losses(changes) => losses(changes).join(", "),
        Risk::Writes(proposal) => {
            let files = proposal.files().into_iter().map(|file| {
                let verb = match (&file.before, &file.after) {
                    (None, _) => "creates",
                    (_, None) => "removes",
                    _ => "changes",
                };
                format!("{verb} {}", file.path.display())
            });
            phrases(files.chain(proposal.others()).collect()).join(", ")
        }
        Risk::Unknown => "may change any file of the work directory".to_owned(),
    }
}
