//! Asks before programs of an NPC delete or overwrite files in a guarded work directory, and
//! explains a refusal.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use serde_json::{Map, Value};

use crate::error::Error;
use crate::jinx::Jinx;
use crate::jinx::template::Scope;
use crate::permission::{Answer, Question};
use crate::run::session::{Caller, Notice, Session};
use crate::sandbox::{Change, Guarded, Output, Risk, Sandbox, Script, losses, phrases};
use crate::trace::{Record, Trace};
use crate::types::{Effect, Verdict};
use crate::undo::By;

/// Most characters of a call's first argument that a journal records.
const FIRST: usize = 60;

/// The result of a guarded program.
#[derive(Default)]
pub struct Ran {
    /// The program's output; `None` if it didn't even run.
    pub output: Option<Output>,
    /// Why its effects were discarded, if they were.
    pub undone: Option<String>,
    /// How a person changed its effects; may be empty.
    pub note: String,
}

/// Answers the guard's questions about a program of an NPC.
#[derive(Clone)]
pub struct Guardian {
    npc: String,
    jinx: Jinx,
    arguments: Map<String, Value>,
    /// The conversation that the program belongs to.
    scope: String,
    /// The label of its changes in a journal: `coder: shell make all`.
    by: String,
    /// The reason for the latest refusal.
    pub why: String,
    /// How the person who agreed changed the effects; may be empty.
    pub note: String,
}

impl Guardian {
    /// The guardian of a program in a step of `jinx`; `None` for a person's own call, since the
    /// person knows what it does.
    pub fn of(jinx: &Jinx, scope: &Scope, caller: &Caller) -> Option<Self> {
        let npc = &caller.npc?.name;
        let value = |name: &String| Some((name.clone(), scope.value(name)?));
        Some(Guardian {
            npc: npc.clone(),
            jinx: jinx.clone(),
            arguments: jinx.inputs.iter().filter_map(|input| value(&input.name)).collect(),
            scope: caller.scope.to_owned(),
            by: format!("{npc}: {}", call_line(jinx, scope)),
            why: "the run was interrupted, or the directory has changed meanwhile".to_owned(),
            note: String::new(),
        })
    }

    /// The author, for a journal.
    pub fn by<'a>(&'a self, session: &'a Session) -> By<'a> {
        By { text: &self.by, trace: session.trace.path(), scope: &self.scope }
    }

    /// Asks a person, if there is one; `trace` records the answer.
    pub fn answer(&mut self, risk: Risk, session: &Session, trace: &Trace) -> Result<bool, Error> {
        let sandbox = session.sandbox;
        if let Risk::Refused(changes) = risk {
            return self.refuse(changes, session, trace);
        }
        // The call was shown before it was made, see `review`.
        if matches!(risk, Risk::Unknown) && sandbox.reviews() {
            return Ok(true);
        }
        let (npc, jinx, about) = (self.npc.as_str(), &self.jinx, String::new());
        let question = Question {
            npc,
            jinx,
            arguments: &self.arguments,
            variables: &[],
            risk: Some(risk),
            doubtful: false,
            about,
        };
        // After an interrupt, ask no further questions.
        let interrupted = sandbox.cancel_flag().load(Ordering::Relaxed);
        let answer = if interrupted { Some(Answer::No) } else { session.ask(&question) };
        let (verdict, by) = decided(answer, sandbox);
        let what = what(risk);
        let edited = if let Risk::Writes(proposal) = risk { proposal.edited() } else { Vec::new() };
        let edited = edited.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        let mut by = format!("the guard of the work directory, {by}: it {what}");
        if !edited.is_empty() && verdict == Verdict::Allow {
            by += &format!("; edited: {edited}");
            self.note = format!("the user edited this before it was written, so read it again: {edited}");
        }
        trace.push(&self.scope, Record::Permission { jinx: jinx.name.clone(), verdict, by })?;
        if verdict == Verdict::Deny {
            session.notify(&Notice::Unchanged { what: &what, nobody: answer.is_none() });
            let reason = refusal(answer);
            self.why = match risk {
                Risk::Losses(..) | Risk::Writes(_) => format!("it {what}, and {reason}"),
                Risk::Unknown | Risk::Refused(_) => reason.to_owned(),
            };
        }
        Ok(verdict == Verdict::Allow)
    }

    /// Reports that the changes were discarded because there was no person to ask.
    fn refuse(&mut self, changes: &[Change], session: &Session, trace: &Trace) -> Result<bool, Error> {
        let what = phrases(changes.iter().map(ToString::to_string).collect()).join(", ");
        let by = format!("the guard of the work directory: it {what}, which steps may not");
        trace.push(
            &self.scope,
            Record::Permission { jinx: self.jinx.name.clone(), verdict: Verdict::Deny, by },
        )?;
        session.notify(&Notice::Unchanged { what: &what, nobody: false });
        self.why = format!(
            "it {what}; that is what teams are read from here, or settings of the user's, or too deep, and no step may write it"
        );
        Ok(false)
    }
}

/// The verdict of an answer, and its reason; an answer for the session also permits later calls.
pub fn decided(answer: Option<Answer>, sandbox: &Sandbox) -> (Verdict, &'static str) {
    match answer {
        Some(Answer::Yes) => (Verdict::Allow, "by an answer"),
        Some(Answer::Session | Answer::Always) => {
            sandbox.permit();
            (Verdict::Allow, "by an answer for the session")
        }
        Some(Answer::No | Answer::Never) => (Verdict::Deny, "by an answer"),
        None => (Verdict::Deny, "since there was no one to ask"),
    }
}

/// The reason for a refusal: the answer was no, or there was none.
pub fn refusal(answer: Option<Answer>) -> &'static str {
    if answer.is_none() { "nobody is there to be asked" } else { "the user does not allow it" }
}

/// Runs a program of a step of `jinx`.
/// A person's own call is not guarded.
pub fn run(script: &Script, jinx: &Jinx, scope: &Scope, caller: &Caller) -> Result<Ran, Error> {
    let session = caller.session;
    session.jobs.settle(session);
    let ran = run_in_turn(script, jinx, scope, caller);
    session.jobs.refresh();
    ran
}

fn run_in_turn(script: &Script, jinx: &Jinx, scope: &Scope, caller: &Caller) -> Result<Ran, Error> {
    let (session, sandbox) = (caller.session, caller.session.sandbox);
    let Some(mut guardian) = Guardian::of(jinx, scope, caller) else {
        // A person's own call: no rule applies.
        let output = if caller.finishing { sandbox.finish(script) } else { sandbox.run(script) };
        return Ok(Ran { output: Some(output?), ..Ran::default() });
    };
    let own = guardian.clone();
    let mut ask = |risk: Risk| guardian.answer(risk, session, caller.trace);
    let overruled = RefCell::new(None);
    let may = || {
        *overruled.borrow_mut() = caller.overruled().transpose();
        overruled.borrow().is_none()
    };
    let (finishing, by) = (caller.finishing, own.by(session));
    let before = sandbox.changes();
    let ran = sandbox.run_guarded_if(&may, script, finishing, reads(jinx), by, &mut ask)?;
    tell_of_journal(session);
    match (before, &ran) {
        (Some(before), _) => record_changes(session, caller.trace, caller.scope, before)?,
        // Where changes can't be seen, the success of what may write counts as one.
        (None, Guarded::Ran(output)) if !reads(jinx) && output.exit == Some(0) => {
            caller.trace.push(caller.scope, Record::Changed { files: 0 })?;
        }
        (None, _) => {}
    }
    let Guardian { why, note, .. } = guardian;
    let why = overruled.into_inner().transpose()?.unwrap_or(why);
    let (output, undone) = match ran {
        Guarded::Ran(output) => (Some(output), None),
        Guarded::Undone(output) => (Some(output), Some(format!("undone, no file was changed: {why}"))),
        Guarded::Refused => (None, Some(format!("not run: {why}"))),
    };
    Ok(Ran { note: if undone.is_none() { note } else { String::new() }, output, undone })
}

/// Records that files have changed since the sandbox counted `before` changes.
pub(crate) fn record_changes(
    session: &Session,
    trace: &Trace,
    scope: &str,
    before: usize,
) -> Result<(), Error> {
    match session.sandbox.changes().map_or(0, |now| now - before) {
        0 => Ok(()),
        files => trace.push(scope, Record::Changed { files }).map(drop),
    }
}

/// Whether the programs of a jinx are known to change nothing.
pub fn reads(jinx: &Jinx) -> bool {
    jinx.trusted && jinx.effect != Effect::Write
}

/// Reports changes that can't be undone later.
pub(crate) fn tell_of_journal(session: &Session) {
    if let Some(problem) = session.sandbox.journal_problem() {
        let warning = format!("not all of what is changed can be taken back by `alara undo`: {problem}");
        session.notify(&Notice::Warning(&warning));
    }
}

/// A call in a line: `shell make all`.
pub fn call_line(jinx: &Jinx, scope: &Scope) -> String {
    let first = jinx.inputs.first().and_then(|input| scope.value(&input.name));
    let first =
        first.as_ref().and_then(Value::as_str).and_then(|text| text.lines().next()).unwrap_or_default();
    let cut = first.char_indices().nth(FIRST).map_or(first.len(), |(at, _)| at);
    format!("{} {}", jinx.name, &first[..cut]).trim_end().to_owned()
}

/// The effects of a program, as text for people.
fn what(risk: Risk) -> String {
    match risk {
        Risk::Losses(changes, _) | Risk::Refused(changes) => losses(changes).join(", "),
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
