//! The checks between a call and its effects: a dry run doesn't make the call, and a person may
//! want to review it first.
//!
//! Where programs write to a layer, the person sees the changes (`run/guarded.rs`).
//! Elsewhere, and for tools of servers, only the call itself is known: this module shows its plan.
//!
//! With `--ask` nothing is written that a person has not seen or edited.
//! A dry run changes nothing.

use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::error::Error;
use crate::jinx::{Action, Jinx, Offer, Steps};
use crate::permission::Question;
use crate::prompt::offer;
use crate::run::guarded::{decided, refusal};
use crate::run::session::{Caller, Notice, Session};
use crate::run::steps::run;
use crate::sandbox::{Guarding, Policy, Proposal, ProposedFile, Risk, Sandbox};
use crate::trace::Record;
use crate::types::{Effect, ToolResult, Verdict};

/// The result that a model reads for a call that a dry run doesn't make.
const DRY: &str = "this is a dry run: the call was not made, and nothing has changed";
/// Most bytes of a file whose new contents are shown.
const BYTES: u64 = 1 << 20;

/// A call that may be made.
pub struct Planned {
    /// Its arguments, possibly edited by a person.
    pub arguments: Map<String, Value>,
    /// Whether a person edited them.
    pub edited: bool,
    /// The note about that for the model.
    pub note: String,
}

/// The result of a call that a dry run leaves out.
pub fn left_out() -> ToolResult {
    ToolResult { dry_run: true, ..ToolResult::succeeded(DRY) }
}

/// Asks about a call, if it needs a review before it is made.
/// The inner error is the result of a call that isn't made.
///
/// # Errors
/// The trace can't be written.
pub fn plan(
    caller: &Caller,
    jinx: &Jinx,
    arguments: Map<String, Value>,
) -> Result<Result<Planned, ToolResult>, Error> {
    let (session, note) = (caller.session, String::new());
    let unwatched = jinx.remote.is_some() || !is_watched(session.sandbox);
    // A server's claims about its tool are not proof.
    let trusted = jinx.remote.is_none() || !session.dry_run;
    if trusted && !may_change(jinx, unwatched) {
        return Ok(Ok(Planned { arguments, edited: false, note }));
    }
    if session.dry_run {
        return Ok(Err(left_out()));
    }
    let Some(npc) = caller.npc.filter(|_| unwatched && session.sandbox.reviews()) else {
        return Ok(Ok(Planned { arguments, edited: false, note }));
    };
    let plan = CallPlan {
        jinx,
        offer: offer(caller.team, caller.npc),
        file: preview(caller, jinx, &arguments),
        arguments: arguments.clone(),
        edited: Mutex::default(),
    };
    let risk = Some(Risk::Writes(&plan));
    let question = Question {
        npc: &npc.name,
        jinx,
        arguments: &arguments,
        variables: &[],
        risk,
        doubtful: false,
        about: String::new(),
    };
    let answer = session.ask(&question);
    let (verdict, by) = decided(answer, session.sandbox);
    let edited = plan.edited.into_inner().unwrap_or_else(PoisonError::into_inner);
    let changed = if edited.is_some() { ", with other arguments" } else { "" };
    let by = format!("the review of its plan, {by}{changed}");
    caller.trace.push(caller.scope, Record::Permission { jinx: jinx.name.clone(), verdict, by })?;
    if verdict == Verdict::Deny {
        session.notify(&Notice::Unchanged { what: "may change something", nobody: answer.is_none() });
        return Ok(Err(ToolResult::failed(format!("not run: {}", refusal(answer)))));
    }
    Ok(Ok(match edited {
        Some(arguments) => {
            let note = format!(
                "the user changed the arguments before the call was made: {}",
                Value::Object(arguments.clone())
            );
            Planned { arguments, edited: true, note }
        }
        None => Planned { arguments, edited: false, note },
    }))
}

/// Whether programs can't change anything without a later review.
fn is_watched(sandbox: &Sandbox) -> bool {
    sandbox.is_read_only() || (sandbox.reviews() && sandbox.guarding() == Some(Guarding::Layer))
}

/// Whether a call may change something itself, and not by calls of other jinxes.
/// Where its effects can't be seen, alara believes only a trusted jinx that it changes nothing.
pub(crate) fn may_change(jinx: &Jinx, unwatched: bool) -> bool {
    if jinx.remote.is_some() {
        return jinx.effect == Effect::Write;
    }
    has_programs(&jinx.steps) && (jinx.effect == Effect::Write || (unwatched && !jinx.trusted))
}

fn has_programs(steps: &Steps) -> bool {
    steps.iter().any(|step| match &step.action {
        Action::Bash { .. } | Action::Python { .. } => true,
        Action::When { then, otherwise, .. } => has_programs(then) || has_programs(otherwise),
        Action::For { steps, .. } => has_programs(steps),
        Action::Try { steps, catch, finally } => {
            has_programs(steps) || has_programs(catch) || has_programs(finally)
        }
        _ => false,
    })
}

/// The file that a stock tool's call would write, found by making the call on a copy.
fn preview(caller: &Caller, jinx: &Jinx, arguments: &Map<String, Value>) -> Option<ProposedFile> {
    let named = arguments.get("path").and_then(Value::as_str).filter(|_| jinx.trusted)?;
    let path = PathBuf::from(named);
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let read = |file: &Path| match file.symlink_metadata() {
        Ok(found) if found.is_file() && found.len() <= BYTES => Some(Some(std::fs::read(file).ok()?)),
        Ok(_) => None,
        Err(_) => Some(None),
    };
    let sandbox = caller.session.sandbox;
    let before = read(&sandbox.work().join(&path)).filter(|_| is_below)?;
    let work = tempfile::tempdir().ok()?;
    let copy = work.path().join(&path);
    if let Some(bytes) = &before {
        std::fs::create_dir_all(copy.parent()?).ok()?;
        std::fs::write(&copy, bytes).ok()?;
    }
    let policy = Policy { isolation: sandbox.isolation(), ..Policy::default() };
    let alone = Sandbox::new(work.path(), policy).ok()?;
    let session = Session::new(caller.session.models, &alone);
    let result = run(jinx, arguments.clone(), &Caller::person(&session, caller.team)).ok()?;
    let after = read(&copy)?;
    (result.ok && after != before).then_some(ProposedFile { path, before, after })
}

/// A call that is about to be made.
#[derive(Debug)]
struct CallPlan<'a> {
    jinx: &'a Jinx,
    offer: Offer,
    file: Option<ProposedFile>,
    arguments: Map<String, Value>,
    edited: Mutex<Option<Map<String, Value>>>,
}

impl Proposal for CallPlan<'_> {
    fn files(&self) -> Vec<ProposedFile> {
        self.file.iter().cloned().collect()
    }

    fn others(&self) -> Vec<String> {
        Vec::new()
    }

    fn texts(&self) -> Vec<(PathBuf, String)> {
        let text = serde_json::to_string_pretty(&self.arguments).unwrap_or_default();
        vec![("arguments.json".into(), format!("{text}\n"))]
    }

    fn edit(&self, _path: &Path, text: &str) -> Result<(), String> {
        let given: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| format!("this is no JSON object: {error}"))?;
        let arguments = self.jinx.arguments(&given, &self.offer)?;
        *self.edited.lock().unwrap_or_else(PoisonError::into_inner) = Some(arguments);
        Ok(())
    }

    fn edited(&self) -> Vec<PathBuf> {
        let edited = self.edited.lock().unwrap_or_else(PoisonError::into_inner);
        edited.iter().map(|_| "arguments.json".into()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Reply, Scripted, Single};
    use crate::permission::Answer;
    use crate::run::agent::Agent;
    use crate::run::session::Session;
    use crate::sandbox::{Isolation, Policy};
    use crate::team::Team;

    /// What a person saw, the results that the model read, and the contents of the file `a`
    /// afterwards.
    struct Ran {
        shown: Vec<String>,
        read: Vec<String>,
        content: Option<String>,
    }

    /// Makes calls of an NPC where programs have no layer; each gets the next of `answers`, which
    /// may edit the call's arguments first.
    fn ran(calls: &[(&str, Value)], answers: &[(Answer, Option<&str>)], dry_run: bool) -> Ran {
        let work = tempfile::tempdir().unwrap();
        std::fs::write(work.path().join("a"), "one\ntwo\n").unwrap();
        let policy = Policy { isolation: Isolation::Off, guard: true, review: true, ..Policy::default() };
        let sandbox = Sandbox::new(work.path(), policy).unwrap();
        let team = Team::stock("alara").unwrap();
        let replies = calls.iter().map(|(name, arguments)| Reply::call(name, arguments.clone()));
        let script = Scripted::new(replies.chain([Reply::text("Done.")]).collect::<Vec<_>>());
        let source = Single(&script);
        let shown = Mutex::new(Vec::new());
        let mut session = Session::new(&source, &sandbox).asking(|question: &Question| {
            let Some(Risk::Writes(proposal)) = question.risk else { panic!("{question:?}") };
            let text = |side: &Option<Vec<u8>>| {
                side.as_ref().map_or("-".into(), |bytes| String::from_utf8_lossy(bytes).into_owned())
            };
            let files = proposal.files();
            let file = files.first().map(|file| format!("{} -> {}", text(&file.before), text(&file.after)));
            let mut shown = shown.lock().unwrap();
            let (answer, edit) = answers[shown.len()];
            shown.push(file.unwrap_or_else(|| proposal.texts()[0].1.clone()));
            if let Some(text) = edit {
                let edited = proposal.edit(Path::new("arguments.json"), text);
                shown.extend(edited.err());
            }
            answer
        });
        session.dry_run = dry_run;
        let npc = team.npc(Some("coder")).unwrap();
        Agent::new(&session, &team, npc, None).unwrap().run("do it").unwrap();
        drop(session);
        let last = script.requests().pop().unwrap();
        let read = last.messages.iter().filter(|message| message.name.is_some());
        Ran {
            read: read.map(|message| message.content.clone()).collect(),
            shown: shown.into_inner().unwrap(),
            content: std::fs::read_to_string(work.path().join("a")).ok(),
        }
    }

    fn write(content: &str) -> (&'static str, Value) {
        ("write_file", json!({"path": "a", "content": content}))
    }

    #[test]
    fn where_no_layer_is_the_plan_of_a_call_is_shown_before_it_is_made() {
        let edit = ("edit_file", json!({"path": "a", "find": "two", "replace": "2"}));
        let ran = ran(&[write("new"), edit], &[(Answer::No, None), (Answer::Yes, None)], false);
        assert_eq!(ran.shown, ["one\ntwo\n -> new\n", "one\ntwo\n -> one\n2\n"]);
        assert_eq!(ran.content.as_deref(), Some("one\n2\n"));
        assert_eq!(ran.read[0], r#"{"ok":false,"exit":null,"error":"not run: the user does not allow it"}"#);
        assert_eq!(ran.read[1], r#"{"ok":true,"output":"changed a"}"#);
    }

    #[test]
    fn a_command_is_shown_by_its_text_and_what_reads_is_not_asked_about() {
        let calls = [("shell", json!({"command": "rm a"})), ("read_file", json!({"path": "a"}))];
        let ran = ran(&calls, &[(Answer::No, None)], false);
        assert_eq!(ran.shown.len(), 1);
        assert!(ran.shown[0].contains(r#""command": "rm a""#), "{}", ran.shown[0]);
        assert!(ran.read[1].contains("one"), "{}", ran.read[1]);
    }

    #[test]
    fn yes_for_the_session_asks_no_more() {
        let ran = ran(&[write("1"), write("2")], &[(Answer::Session, None)], false);
        assert_eq!((ran.shown.len(), ran.content.as_deref()), (1, Some("2\n")));
    }

    #[test]
    fn a_call_is_made_with_the_arguments_that_a_person_edited() {
        let edited = r#"{"path": "a", "content": "mine"}"#;
        let ran = ran(&[write("1")], &[(Answer::Yes, Some(edited))], false);
        assert_eq!(ran.content.as_deref(), Some("mine\n"));
        assert!(ran.read[0].contains("the user changed the arguments before"), "{}", ran.read[0]);
    }

    #[test]
    fn edited_arguments_are_checked() {
        for (text, problem) in [("{", "no JSON object"), (r#"{"path": 1}"#, "`path` must be of type string")]
        {
            let ran = ran(&[write("1")], &[(Answer::No, Some(text))], false);
            assert!(ran.shown[1].contains(problem), "{}", ran.shown[1]);
            assert_eq!(ran.content.as_deref(), Some("one\ntwo\n"));
        }
    }

    #[test]
    fn a_dry_run_makes_no_call_that_changes_something() {
        let calls = [write("1"), ("shell", json!({"command": "rm a"})), ("read_file", json!({"path": "a"}))];
        let ran = ran(&calls, &[], true);
        assert_eq!((ran.shown.len(), ran.content.as_deref()), (0, Some("one\ntwo\n")));
        assert!(ran.read[..2].iter().all(|read| read.contains(DRY)), "{:?}", ran.read);
        assert!(ran.read[2].contains("two"), "{:?}", ran.read);
    }
}
