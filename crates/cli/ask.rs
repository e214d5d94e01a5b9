//! Asks the person whether a call may be made, where a rule says `ask`.

use std::io::{BufRead, IsTerminal};

use alara_harness::permission::{Answer, Question};
use rustyline::DefaultEditor;

use crate::progress::arguments_line;
use crate::ui;

/// Whether a person is there: both what is asked and what is answered go through a terminal.
pub fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks until there is an answer. An interrupt or the end of the input is a no.
pub fn person(question: &Question) -> Answer {
    let what = arguments_line(&question.jinx.name, question.arguments);
    ui::note(&format!("{} wants to call {what}", question.npc));
    let mut editor = is_possible().then(DefaultEditor::new).and_then(Result::ok);
    let prompt = "allow? y: once, s: this session, a: always, n: no, never: ";
    loop {
        let line = match &mut editor {
            Some(editor) => editor.readline(prompt).ok(),
            None => {
                ui::note(prompt);
                let mut line = String::new();
                let read = std::io::stdin().lock().read_line(&mut line);
                read.is_ok_and(|bytes| bytes > 0).then_some(line)
            }
        };
        let Some(line) = line else { return Answer::No };
        if let Some(answer) = answer(&line) {
            return answer;
        }
    }
}

fn answer(line: &str) -> Option<Answer> {
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
        let check = |line: &str, expected| assert_eq!(answer(line), expected, "{line}");
        check("y\n", Some(Answer::Yes));
        check(" Session ", Some(Answer::Session));
        check("a", Some(Answer::Always));
        check("n", Some(Answer::No));
        check("never", Some(Answer::Never));
        check("", None);
        check("ne", None);
    }
}
