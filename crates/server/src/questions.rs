//! Questions that an NPC's run asks the person who follows its stream, and the answers.
//!
//! A question is sent in the stream with an id that only the stream's reader knows.
//! The run waits for an answer with that id, within the time limit of its request.
//!
//! No answer within that time is a no.

use std::collections::HashMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alara_harness::permission::{Answer, Question};
use alara_harness::sandbox::{Change, Proposal, ProposedFile, Risk, losses, overwritten, phrases};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::access::{digest, same};
use crate::answer::Piece;
use crate::inner::{self, id};
use crate::refusal::Refusal;
use crate::slots::Listener;
use crate::{Stage, Workplace};

/// How often a waiting run checks whether its client is still connected.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum number of displayed diff lines.
const SHOWN: usize = 400;

/// The waiting questions of all requests.
pub struct Questions {
    /// Destinations of the answers, by question id.
    waiting: Mutex<HashMap<String, SyncSender<Answer>>>,
    stage: watch::Receiver<Stage>,
    /// The key that a client must send to be asked; `None` if any client of the server is asked.
    key: Option<String>,
}

impl Questions {
    /// Starts without questions; `stage` is the stage of the server's shutdown.
    /// If `knows` is set, the server authenticates its clients, so any of them may be asked.
    pub fn new(stage: watch::Receiver<Stage>, knows: bool) -> Self {
        Questions { waiting: Mutex::default(), stage, key: (!knows).then(|| inner::id("")) }
    }

    /// Returns the key that a client must send to be asked, if there is one.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Checks whether a client with this key may be asked.
    ///
    /// # Errors
    /// It may not; the error explains why.
    pub fn admit(&self, key: &str) -> Result<(), Refusal> {
        if self.key.as_deref().is_none_or(|expected| same(digest(key), digest(expected))) {
            return Ok(());
        }
        let why = "`alara.ask` needs a token, a socket, or `alara.key` from the page's address";
        Err(Refusal::new(403, "permission_error", why))
    }

    /// Asks in the stream of `listener`, and waits for the answer.
    /// The answer is no if none arrives before the request's time limit, or the client leaves.
    /// A server that is stopping accepts no more answers, so the answer is no in that case as well.
    pub fn ask(&self, question: &Question, workplace: &dyn Workplace, listener: &Listener) -> Answer {
        if matches!(question.risk, Some(Risk::Refused(_))) {
            return Answer::No;
        }
        let (id, until) = (id("ask-"), listener.until());
        let (sender, answers) = sync_channel(1);
        self.waiting().insert(id.clone(), sender);
        let event = json!({"question": event(&id, question, workplace)});
        let mut answer = None;
        if listener.send(Ok(Piece::Alara(event))) {
            while answer.is_none() && !until.is_over() && *self.stage.borrow() == Stage::Serving {
                answer = answers.recv_timeout(LOOK).ok();
            }
        }
        self.waiting().remove(&id);
        answer.unwrap_or(Answer::No)
    }

    /// Answers the question with this id; false if no such question is waiting.
    pub fn answer(&self, id: &str, answer: Answer) -> bool {
        let waiting = self.waiting().remove(id);
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, SyncSender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses an answer.
/// Answers that are stored (always, never) can be given only at a terminal.
pub fn read_answer(word: &str) -> Option<Answer> {
    match word {
        "yes" => Some(Answer::Yes),
        "session" => Some(Answer::Session),
        "no" => Some(Answer::No),
        _ => None,
    }
}

/// The wording of a question.
struct Words {
    /// Details other than the call, one per line.
    lines: Vec<String>,
    /// The question.
    asks: &'static str,
    /// Labels of the answers yes, session and no.
    answers: [&'static str; 3],
}

/// Returns the event for a question, worded as at the terminal.
fn event(id: &str, question: &Question, workplace: &dyn Workplace) -> Value {
    let Words { lines, asks, answers } = words(question);
    let wants = if question.risk.is_some() { "calls" } else { "wants to call" };
    let files = match question.risk {
        Some(Risk::Writes(proposal)) => proposal.files(),
        Some(Risk::Losses(changes, proposal)) => overwritten(changes, proposal),
        _ => Vec::new(),
    };
    let diff: String = files.iter().filter_map(|file| workplace.diff(file)).collect();
    // A diff is more useful than the texts it was made from.
    let shown = if diff.is_empty() { usize::MAX } else { 1 };
    let shown = question.arguments.iter().take(shown);
    let arguments: Map<String, Value> = shown.map(|(name, value)| (name.clone(), value.clone())).collect();
    let answers = ["yes", "session", "no"].into_iter().zip(answers);
    let answers: Vec<Value> =
        answers.map(|(answer, label)| json!({"answer": answer, "label": label})).collect();
    json!({
        "id": id,
        "npc": question.npc,
        "name": question.jinx.name,
        "title": format!("{} {wants} {}:", question.npc, question.jinx.name),
        "arguments": arguments,
        "lines": lines,
        "diff": bounded(&diff),
        "asks": asks,
        "answers": answers,
        "holds": holds(question),
    })
}

fn words(question: &Question) -> Words {
    let it = |what: &[String]| -> Vec<String> { what.iter().map(|what| format!("it {what}")).collect() };
    match question.risk {
        None => Words {
            lines: about_call(question),
            asks: "allow?",
            answers: ["Yes, once", "Yes, in this chat", "No"],
        },
        Some(Risk::Losses(changes, _) | Risk::Refused(changes)) => Words {
            lines: it(&losses(changes)),
            asks: "do it?",
            answers: ["Yes", "Yes, and whatever comes in this chat", "No, nothing is changed"],
        },
        Some(Risk::Writes(proposal)) => Words {
            lines: it(&written(proposal)),
            asks: "do it?",
            answers: ["Yes", "Yes, and whatever comes in this answer", "No"],
        },
        Some(Risk::Unknown) => Words {
            lines: vec![
                "this machine can't tell what it will change; it may remove or overwrite files of the work directory"
                    .to_owned(),
            ],
            asks: "run it?",
            answers: ["Yes", "Yes, and whatever comes in this chat", "No"],
        },
    }
}

/// Returns the details of a call that a rule asks about, or that uses something of the user's.
fn about_call(question: &Question) -> Vec<String> {
    let Question { jinx, variables, about, .. } = question;
    if variables.is_empty() {
        let holds = "(an answer for this chat holds for exactly this first argument)".to_owned();
        return if *about == jinx.name { Vec::new() } else { vec![holds] };
    }
    // The directory of a file is private.
    let file = jinx.path.file_name().unwrap_or_default().display();
    let network = if jinx.network { " and the network" } else { "" };
    let names = variables.join(", ");
    vec![
        format!("{file}: its programs get {names} of your environment{network}"),
        "(an answer for this chat holds for these variables until the file changes)".to_owned(),
    ]
}

/// Describes each file that is about to be written, as a phrase.
fn written(proposal: &dyn Proposal) -> Vec<String> {
    let phrase = |file: &ProposedFile| {
        let verb = match (&file.before, &file.after) {
            (None, _) => "creates",
            (_, None) => "removes",
            _ => "changes",
        };
        format!("{verb} {}", file.path.display())
    };
    let files: Vec<String> = proposal.files().iter().map(phrase).collect();
    phrases(files.into_iter().chain(proposal.others()).collect())
}

/// Returns what an answer for the whole chat applies to: the client then answers the same question
/// by itself.
/// `None` if each case needs a new answer, as at the terminal for files that the user's tools obey.
fn holds(question: &Question) -> Option<String> {
    match question.risk {
        None => {
            // Jinxes with the same name may differ elsewhere.
            let file = question.jinx.path.display().to_string();
            let about = json!([question.npc, file, question.about]).to_string();
            let digest: [u8; 32] = Sha256::digest(about.as_bytes()).into();
            Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
        }
        Some(Risk::Losses(changes, _)) if !changes.iter().any(Change::reaches_others) => {
            Some("losses".into())
        }
        Some(Risk::Unknown) => Some("anything".into()),
        Some(_) => None,
    }
}

/// Returns the first lines of a diff, and how many more there are.
fn bounded(diff: &str) -> String {
    let lines: Vec<&str> = diff.lines().collect();
    let Some(more) = lines.len().checked_sub(SHOWN).filter(|more| *more > 0) else { return diff.to_owned() };
    format!("{}\n… {more} more lines\n", lines[..SHOWN].join("\n"))
}

#[cfg(test)]
mod tests {
    use alara_harness::sandbox::Kind;
    use alara_harness::{Jinx, ModelSource, Sandbox, Session, Team};

    use super::*;

    /// A workplace that only makes diffs.
    struct Place;

    impl Workplace for Place {
        fn models(&self) -> &dyn ModelSource {
            unreachable!("no model is asked")
        }

        fn team(&self) -> Option<Team> {
            None
        }

        fn sandbox(&self, _: &Team) -> Result<Sandbox, alara_harness::Error> {
            unreachable!("nothing runs")
        }

        fn equip<'a>(&self, session: Session<'a>) -> Result<Session<'a>, alara_harness::Error> {
            Ok(session)
        }

        fn diff(&self, file: &ProposedFile) -> Option<String> {
            Some(format!("+++ {}\n", file.path.display()))
        }
    }

    /// A file that is about to be written.
    #[derive(Debug)]
    struct Written;

    impl Proposal for Written {
        fn files(&self) -> Vec<ProposedFile> {
            vec![ProposedFile { path: "a".into(), before: None, after: Some(b"x".to_vec()) }]
        }

        fn others(&self) -> Vec<String> {
            vec!["removes b/ with 3 files".into()]
        }

        fn texts(&self) -> Vec<(std::path::PathBuf, String)> {
            Vec::new()
        }

        fn edit(&self, _: &std::path::Path, _: &str) -> Result<(), String> {
            Err("not here".into())
        }

        fn edited(&self) -> Vec<std::path::PathBuf> {
            Vec::new()
        }
    }

    fn change(obeyed_by: Option<&'static str>) -> Change {
        Change {
            path: "a".into(),
            before: Some(Kind::File),
            after: Some(Kind::File),
            files: 1,
            moved: None,
            own: false,
            loses: true,
            opens: false,
            obeyed_by,
        }
    }

    #[test]
    fn questions_read_as_at_the_terminal() {
        let path = "/home/me/team/jinxes/put.jinx".into();
        let jinx = Jinx { name: "put".into(), path, network: true, ..Jinx::default() };
        let mut arguments = Map::new();
        arguments.insert("path".into(), "a".into());
        arguments.insert("content".into(), "x".into());
        let question = |risk, about: &str, variables| Question {
            npc: "corca",
            jinx: &jinx,
            arguments: &arguments,
            variables,
            risk,
            doubtful: false,
            about: about.to_owned(),
        };
        let check = |question: &Question, title: &str, lines: &[&str], asks: &str, no: &str| {
            let event = event("ask-1", question, &Place);
            assert_eq!((&event["title"], &event["lines"]), (&json!(title), &json!(lines)), "{event}");
            assert_eq!(
                (&event["asks"], &event["answers"][2]["label"]),
                (&json!(asks), &json!(no)),
                "{event}"
            );
            event
        };
        let event = check(&question(None, "put", &[]), "corca wants to call put:", &[], "allow?", "No");
        assert_eq!(
            (&event["arguments"], &event["diff"]),
            (&json!({"path": "a", "content": "x"}), &json!(""))
        );
        let exact = "(an answer for this chat holds for exactly this first argument)";
        check(&question(None, "put a", &[]), "corca wants to call put:", &[exact], "allow?", "No");
        let lines = [
            "put.jinx: its programs get KEY of your environment and the network",
            "(an answer for this chat holds for these variables until the file changes)",
        ];
        check(&question(None, "/KEY", &["KEY"]), "corca wants to call put:", &lines, "allow?", "No");
        let losses = [change(None)];
        let losses = question(Some(Risk::Losses(&losses, &Written)), "", &[]);
        check(&losses, "corca calls put:", &["it overwrites a"], "do it?", "No, nothing is changed");
        let event = check(
            &question(Some(Risk::Writes(&Written)), "", &[]),
            "corca calls put:",
            &["it creates a", "it removes b/ with 3 files"],
            "do it?",
            "No",
        );
        assert_eq!((&event["arguments"], &event["diff"]), (&json!({"path": "a"}), &json!("+++ a\n")));
    }

    #[test]
    fn an_answer_for_the_chat_holds_for_what_is_the_same() {
        let arguments = Map::new();
        let jinx = |path: &str| Jinx { name: "put".into(), path: path.into(), ..Jinx::default() };
        let held = |risk, jinx: &Jinx, about: &str| {
            let about = about.to_owned();
            holds(&Question {
                npc: "corca",
                jinx,
                arguments: &arguments,
                variables: &[],
                risk,
                doubtful: false,
                about,
            })
        };
        let (one, other) = (jinx("a/put.jinx"), jinx("b/put.jinx"));
        assert_eq!(held(None, &one, "put a"), held(None, &one, "put a"));
        assert_ne!(held(None, &one, "put a"), held(None, &one, "put b"));
        assert_ne!(held(None, &one, "put a"), held(None, &other, "put a"));
        let (lost, obeyed) = ([change(None)], [change(None), change(Some("git"))]);
        assert_eq!(held(Some(Risk::Losses(&lost, &Written)), &one, "").as_deref(), Some("losses"));
        assert_eq!(held(Some(Risk::Losses(&obeyed, &Written)), &one, ""), None);
        assert_eq!(held(Some(Risk::Writes(&Written)), &one, ""), None);
    }

    #[test]
    fn long_diffs_are_cut_between_lines() {
        assert_eq!(bounded("+a\n"), "+a\n");
        let cut = bounded(&"+a\n".repeat(SHOWN + 2));
        assert!(cut.ends_with("+a\n… 2 more lines\n") && cut.lines().count() == SHOWN + 1, "{cut}");
    }
}
