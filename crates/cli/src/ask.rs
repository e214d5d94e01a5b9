//! Asks the user to confirm calls where a rule says `ask`, and changes to files before they are
//! written.

use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use alara_harness::permission::{Answer, Question};
use alara_harness::sandbox::{Proposal, ProposedFile, Risk, losses, overwritten};
use anyhow::{Context, bail};
use rustyline::DefaultEditor;
use serde_json::Value;

use crate::screen::{in_full, one_line, printable, squeezed};
use crate::{diff, ui};

/// Maximum number of diff lines to show.
const SHOWN: usize = 400;
/// Whether the user has turned to something else.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Whether a user can be asked: questions and answers both go through a terminal.
pub fn is_possible() -> bool {
    !LEFT.load(Ordering::Relaxed) && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Never asks from now on, even at a terminal: requests must not wait for an answer there.
pub fn nobody() {
    LEFT.store(true, Ordering::Relaxed);
}

/// Asks whether to allow a call, or to let it use something of the user's.
pub fn person(question: &Question) -> Answer {
    // Show it in full: nobody should approve what they haven't seen.
    let wants = if question.risk.is_some() { "calls" } else { "wants to call" };
    let mut told = vec![format!("{} {wants} {}:", one_line(question.npc), one_line(&question.jinx.name))];
    // A diff is more useful than the texts it was made from.
    let is_shown = matches!(question.risk, Some(Risk::Writes(proposal)) if !proposal.files().is_empty());
    for (name, value) in question.arguments.iter().take(if is_shown { 1 } else { usize::MAX }) {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        told.extend(in_full(name, &value, ui::columns()));
    }
    show(&told);
    if let Some(risk) = question.risk {
        return about_risk(risk);
    }
    if !question.variables.is_empty() {
        // The jinx's file names the variable, and its team may come from a stranger.
        let (file, names) = (question.jinx.path.display().to_string(), question.variables.join(", "));
        let network = if question.jinx.network { " and the network" } else { "" };
        let (file, names) = (one_line(&file), one_line(&names));
        ui::note(&format!("{file}: its programs get {names} of your environment{network}"));
        ui::note("(s, a and never hold for these variables until the file changes)");
    } else if question.about != question.jinx.name {
        ui::note("(s, a and never hold for exactly this first argument)");
    }
    answer("allow? y: once, s: this session, a: always, n: no, never: ")
}

/// Shows the details of a question, and warns about lines that have scrolled off the screen.
fn show(lines: &[String]) {
    lines.iter().for_each(|line| ui::note(line));
    if ui::rows().is_some_and(|rows| lines.len() + 3 > rows) {
        ui::note(&format!("(these are {} lines, which begin above what is seen here)", lines.len()));
    }
}

/// Asks about something risky that a program did, or may do.
fn about_risk(risk: Risk) -> Answer {
    match risk {
        Risk::Losses(changes, proposal) => {
            let mut told: Vec<String> =
                losses(changes).iter().map(|what| format!("  it {}", one_line(what))).collect();
            let (diff, more) = diff_of(&overwritten(changes, proposal));
            told.extend(diff);
            show(&told);
            if more > 0 {
                ui::note(&format!("… {more} more lines"));
            }
            answer("do it? y: yes, s: yes, and whatever comes in this session, n: no, nothing is changed: ")
        }
        Risk::Writes(proposal) => about_writes(proposal),
        Risk::Refused(_) => Answer::No,
        Risk::Unknown => {
            ui::note(
                "this machine can't tell what it will change; it may remove or overwrite files of the work directory",
            );
            answer("run it? y: yes, s: yes, and whatever comes in this session, n: no: ")
        }
    }
}

/// Returns the first lines of a diff of all files, and how many more there are.
fn diff_of(files: &[ProposedFile]) -> (Vec<String>, usize) {
    let styled = ui::is_styled(&std::io::stderr());
    let diff: Vec<String> = files.iter().flat_map(|file| diff::shown(&diff::unified(file), styled)).collect();
    let shown = diff.iter().take(SHOWN).map(|line| squeezed(line).to_string()).collect();
    (shown, diff.len().saturating_sub(SHOWN))
}

/// Shows the files about to be written, and asks until the user decides.
fn about_writes(proposal: &dyn Proposal) -> Answer {
    let mut told: Vec<String> =
        proposal.others().iter().map(|what| format!("  it {}", one_line(what))).collect();
    let (diff, more) = diff_of(&proposal.files());
    told.extend(diff);
    show(&told);
    let edits = !proposal.texts().is_empty();
    if more > 0 {
        let all = if edits { "; e shows all of them" } else { "" };
        ui::note(&format!("… {more} more lines{all}"));
    }
    let edit = if edits { ", e: edit it first" } else { "" };
    let words = format!("do it? y: yes, s: yes, and whatever comes in this session{edit}, n: no: ");
    loop {
        let read = |line: &str| match line.trim().to_lowercase().as_str() {
            "e" | "edit" if edits => Some(None),
            _ => read(line).map(Some),
        };
        match asked(&words, read) {
            Some(Some(answer)) => return answer,
            Some(None) => match edit_texts(proposal) {
                Ok(true) => return Answer::Yes,
                Ok(false) => ui::note("nothing was edited"),
                Err(error) => ui::note(&format!("error: {}", ui::told(&error))),
            },
            None => return Answer::No,
        }
    }
}

/// Opens the files about to be written in the user's editor.
/// Returns whether the user edited them.
fn edit_texts(proposal: &dyn Proposal) -> anyhow::Result<bool> {
    if ["VISUAL", "EDITOR"].iter().all(|name| std::env::var_os(name).is_none_or(|value| value.is_empty())) {
        bail!("no editor is known: set VISUAL or EDITOR before alara starts");
    }
    let folder = tempfile::tempdir().context("can't make a directory for what is to be edited")?;
    let texts = proposal.texts();
    let file = |path: &Path| folder.path().join(path);
    for (path, text) in &texts {
        let file = file(path);
        std::fs::create_dir_all(file.parent().unwrap_or(folder.path()))?;
        std::fs::write(&file, text).with_context(|| format!("can't write {}", file.display()))?;
    }
    // An editor may come with options; pass the file as an argument, never as part of the shell
    // text.
    let mut editor = Command::new("sh");
    editor
        .args(["-c", r#"exec ${VISUAL:-$EDITOR} "$@""#, "sh"])
        .args(texts.iter().map(|(path, _)| file(path)));
    // Stdout may be redirected, and the editor needs the terminal.
    let status = editor.stdout(Stdio::from(std::io::stderr())).status().context("can't start the editor")?;
    if !status.success() {
        bail!("the editor ended with {status}, and nothing of what it saved counts");
    }
    let mut edited = false;
    for (path, text) in &texts {
        let now = std::fs::read_to_string(file(path))
            .with_context(|| format!("can't read what was saved of {}", path.display()))?;
        if now != *text {
            proposal.edit(path, &now).map_err(anyhow::Error::msg)?;
            edited = true;
        }
    }
    Ok(edited)
}

/// Asks for a line of text; `None` if there was no answer.
pub fn text(words: &str) -> Option<String> {
    DefaultEditor::new().ok()?.readline(printable(words).as_ref()).ok()
}

/// Asks until there is an answer.
/// An interrupt or the end of the input counts as no.
pub fn answer(words: &str) -> Answer {
    asked(words, read).unwrap_or(Answer::No)
}

/// Asks until `read` accepts the answer; `None` if there was none.
fn asked<T>(words: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut editor = DefaultEditor::new().ok()?;
    loop {
        match editor.readline(printable(words).as_ref()).map(|line| read(&line)) {
            Ok(None) => {}
            answer => return answer.ok().flatten(),
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
