//! Asks the person whether a call may be made, where a rule says `ask`.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use alara_harness::permission::{Answer, Question};
use alara_harness::sandbox::{Risk, losses};
use rustyline::DefaultEditor;
use serde_json::Value;

use crate::progress::printable;
use crate::ui;

/// Whether the person has turned to something else.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Whether a person is there: both what is asked and what is answered go through a terminal.
pub fn is_possible() -> bool {
    !LEFT.load(Ordering::Relaxed) && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// From now on nobody is asked, though there may be a terminal: what comes must not wait for an
/// answer there.
pub fn nobody() {
    LEFT.store(true, Ordering::Relaxed);
}

/// Asks whether a call may be made, or may have what is the user's.
pub fn person(question: &Question) -> Answer {
    // In full: whoever says yes must have seen to what.
    let wants = if question.risk.is_some() { "calls" } else { "wants to call" };
    ui::note(&format!("{} {wants} {}:", printable(question.npc), question.jinx.name));
    for (name, value) in question.arguments {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        ui::note(&format!("  {name}: {}", printable(&value).replace('\n', "\n    ")));
    }
    if let Some(risk) = question.risk {
        return about_risk(risk);
    }
    if !question.variables.is_empty() {
        // The jinx's file says it, the team it comes from may be a stranger's.
        let (file, names) = (question.jinx.path.display().to_string(), question.variables.join(", "));
        let network = if question.jinx.network { " and the network" } else { "" };
        ui::note(&format!("{}: its programs get {names} of your environment{network}", printable(&file)));
        ui::note("(s, a and never hold for these variables until the file changes)");
    } else if question.about != question.jinx.name {
        ui::note("(s, a and never hold for exactly this first argument)");
    }
    answer("allow? y: once, s: this session, a: always, n: no, never: ")
}

/// Asks whether what a program did, or may do, is to be done.
fn about_risk(risk: Risk) -> Answer {
    match risk {
        Risk::Losses(changes) => {
            losses(changes).iter().for_each(|what| ui::note(&format!("  it {}", printable(what))));
            answer("do it? y: yes, s: yes, and whatever comes in this session, n: no, nothing is changed: ")
        }
        Risk::Unknown => {
            ui::note(
                "this machine can't tell what it will change; it may remove or overwrite files of the work directory",
            );
            answer("run it? y: yes, s: yes, and whatever comes in this session, n: no: ")
        }
    }
}

/// Asks with these words until there is an answer.
/// An interrupt or the end of the input is a no.
pub fn answer(words: &str) -> Answer {
    let Ok(mut editor) = DefaultEditor::new() else { return Answer::No };
    loop {
        match editor.readline(words).map(|line| read(&line)) {
            Ok(Some(answer)) => return answer,
            Ok(None) => {}
            Err(_) => return Answer::No,
        }
    }
}

fn read(line: &str) -> Option<Answer> {
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" => Some(Answer::Yes),
        "s" | "session" => Some(Answer::Session),
        "a" | "always" => Some(Answer::Always),
        "n" | "no" => Some(Answer::No),
        "never" => Some(Answer::Never),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let check = |line: &str, expected| assert_eq!(read(line), expected, "{line}");
        check("y\n", Some(Answer::Yes));
        check(" Session ", Some(Answer::Session));
        check("a", Some(Answer::Always));
        check("n", Some(Answer::No));
        check("never", Some(Answer::Never));
        check("", None);
        check("ne", None);
    }
}
