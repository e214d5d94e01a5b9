//! Sources of input lines: a line editor at a terminal, or a pipe.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use anyhow::Context as _;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};

use super::{line, settings};
use crate::screen::{one_line, printable};
use crate::state;

/// The prefix before options.
const SET: &str = "/set ";

/// One input.
pub enum Input {
    /// A line, or several that were continued.
    Line(String),
    /// The user cancelled the line.
    Interrupted,
    /// The end of the input.
    End,
}

/// A source of lines.
pub enum Lines {
    /// A terminal.
    Editor(Box<Editor<Names, DefaultHistory>>, Option<PathBuf>),
    /// Anything else, without editing or a prompt.
    Pipe,
}

/// Names for completion.
#[derive(Default)]
pub struct Names {
    /// Commands and jinxes, without the slash.
    pub commands: Vec<String>,
    /// NPCs, without the @.
    pub npcs: Vec<String>,
}

impl Lines {
    /// Reads lines from standard input.
    pub fn new() -> anyhow::Result<Self> {
        if !std::io::stdin().is_terminal() {
            return Ok(Lines::Pipe);
        }
        let config = Config::builder().auto_add_history(false).build();
        let mut editor = Editor::with_config(config).context("can't use the terminal")?;
        editor.set_helper(Some(Names::default()));
        let history = state::directory().map(|state| state.join("history"));
        if let Some(history) = &history {
            // The history file doesn't exist on the first run.
            let _ = history.parent().map(std::fs::create_dir_all);
            let _ = editor.load_history(history);
        }
        Ok(Lines::Editor(Box::new(editor), history))
    }

    /// Whether the input is a terminal.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Lines::Editor(..))
    }

    /// Reads the next line.
    /// At a terminal, shows `prompt` and completes `names`.
    pub fn next(&mut self, prompt: &str, names: impl FnOnce() -> Names) -> anyhow::Result<Input> {
        match self {
            Lines::Editor(editor, history) => {
                editor.set_helper(Some(names()));
                let line = match editor.readline(printable(prompt).as_ref()) {
                    Ok(line) => line,
                    Err(ReadlineError::Interrupted) => return Ok(Input::Interrupted),
                    Err(ReadlineError::Eof) => return Ok(Input::End),
                    Err(error) => return Err(error).context("can't read from the terminal"),
                };
                if !line.trim().is_empty() {
                    // Continue even if the history can't be saved.
                    let _ = editor.add_history_entry(line.as_str());
                    let _ = history.as_ref().map(|history| editor.append_history(history));
                }
                Ok(Input::Line(line::joined(&line)))
            }
            Lines::Pipe => pipe(),
        }
    }
}

/// The error for a line that can't be read.
const UNREADABLE: &str =
    "can't read the next line\nhint: chat takes UTF-8 text; any other file is named in a message";

fn pipe() -> anyhow::Result<Input> {
    let mut text = String::new();
    loop {
        let bytes = std::io::stdin().lock().read_line(&mut text).context(UNREADABLE)?;
        let line = text.trim_end_matches(['\n', '\r']);
        match bytes {
            0 if line.is_empty() => return Ok(Input::End),
            0 => return Ok(Input::Line(line::joined(line))),
            _ if line::is_open(line) => {}
            _ => return Ok(Input::Line(line::joined(line))),
        }
    }
}

impl Helper for Names {}
impl Highlighter for Names {}

impl Hinter for Names {
    type Hint = String;
}

impl Validator for Names {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(match line::is_open(context.input()) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Names {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..at];
        if let Some(start) = typed.strip_prefix(SET)
            && !start.contains(char::is_whitespace)
        {
            let fitting = settings::names().filter(|name| name.starts_with(start));
            let pair = |name: &str| Pair { replacement: format!("{name} "), display: name.to_owned() };
            return Ok((SET.len(), fitting.map(pair).collect()));
        }
        let names = match typed.chars().next() {
            _ if typed.contains(char::is_whitespace) => None,
            Some('/') => Some(('/', &self.commands)),
            Some('@') => Some(('@', &self.npcs)),
            _ => None,
        };
        let Some((mark, names)) = names else {
            return files(line, at);
        };
        let fitting = names.iter().map(|name| format!("{mark}{name}")).filter(|name| name.starts_with(typed));
        let pairs: Vec<Pair> =
            fitting.map(|name| Pair { replacement: format!("{name} "), display: name }).collect();
        match pairs.is_empty() {
            true => files(line, at),
            false => Ok((0, pairs)),
        }
    }
}

/// Completes file names; omits any name that could manipulate the terminal, since it would do so
/// within the line.
fn files(line: &str, at: usize) -> rustyline::Result<(usize, Vec<Pair>)> {
    let (start, mut pairs) = FilenameCompleter::new().complete_path(line, at)?;
    pairs.retain(|pair| [&pair.display, &pair.replacement].into_iter().all(|text| one_line(text) == *text));
    Ok((start, pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_where_they_stand() {
        let names = Names {
            commands: vec!["model".into(), "npcs".into(), "my_jinx".into()],
            npcs: vec!["critic".into()],
        };
        let history = DefaultHistory::new();
        let check = |line: &str, expected: &[&str]| {
            let (_, pairs) = names.complete(line, line.len(), &Context::new(&history)).unwrap();
            let found: Vec<&str> = pairs.iter().map(|pair| pair.replacement.as_str()).collect();
            assert_eq!(found, expected, "{line}");
        };
        check("/m", &["/model ", "/my_jinx "]);
        check("@", &["@critic "]);
        check("/set te", &["temperature "]);
        check("/set top", &["top_p ", "top_k "]);
        check("/set no_such_option", &[]);
        check("look at no_such_file_he", &[]);
        let folder = tempfile::tempdir().unwrap();
        for name in ["odd_\u{1b}[2J", "odd_\u{202e}", "odd_\n", "odd_one"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let typed = format!("look at {}/odd", folder.path().display());
        check(&typed, &[&format!("{}/odd_one", folder.path().display())]);
    }
}
