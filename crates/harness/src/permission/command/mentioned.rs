//! The names that a script mentions anywhere: not every program's use of its arguments is known, so
//! a denied program's name in a text may be run.

use std::collections::BTreeSet;

use super::{Command, Word, base};

/// Programs that run nothing that their arguments or their input name.
const PLAIN: [&str; 66] = [
    "[",
    "basename",
    "cal",
    "cat",
    "cd",
    "chgrp",
    "chmod",
    "chown",
    "cksum",
    "cmp",
    "comm",
    "cp",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "expand",
    "expr",
    "false",
    "fgrep",
    "file",
    "fmt",
    "fold",
    "free",
    "grep",
    "head",
    "hostname",
    "id",
    "join",
    "jq",
    "link",
    "ln",
    "ls",
    "md5sum",
    "mkdir",
    "mktemp",
    "mv",
    "nl",
    "od",
    "paste",
    "printf",
    "pwd",
    "readlink",
    "realpath",
    "rm",
    "rmdir",
    "seq",
    "sha256sum",
    "sleep",
    "stat",
    "tac",
    "tail",
    "tee",
    "test",
    "touch",
    "tr",
    "true",
    "uname",
    "uniq",
    "wc",
    "which",
    "whoami",
];
/// git commands of that kind, with the user's own settings.
const GIT: [&str; 16] = [
    "add", "blame", "branch", "checkout", "commit", "diff", "init", "log", "mv", "reset", "restore", "rm",
    "show", "status", "switch", "tag",
];

/// The names in a script's words and assignments.
#[derive(Debug, Default)]
pub(super) struct Mentioned {
    words: BTreeSet<String>,
    assigned: BTreeSet<String>,
}

impl Mentioned {
    /// Notes the names in a word, or in a whole text.
    pub fn note(&mut self, text: &str) {
        self.words.extend(names(text));
    }

    /// Notes the names in a variable's value.
    pub fn note_assigned(&mut self, text: &str) {
        self.assigned.extend(names(text));
    }

    /// The names that may be run, for a script with these commands.
    pub fn that_may_run(self, commands: &[Command]) -> BTreeSet<String> {
        let Mentioned { mut words, assigned } = self;
        if commands.iter().all(is_plain) {
            words.clear();
        }
        words.extend(assigned);
        words
    }
}

/// The names in a text, without quotes, backslashes and folders.
fn names(text: &str) -> impl Iterator<Item = String> {
    let bare: String = text.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
    let is_part = |c: char| c.is_alphanumeric() || "_-.+/[".contains(c);
    let found: Vec<String> = bare
        .split(|c| !is_part(c))
        .map(|word| base(word).to_lowercase())
        .filter(|word| !word.is_empty())
        .collect();
    found.into_iter()
}

fn is_plain(command: &Command) -> bool {
    let text = |at: usize| match command.words.get(at) {
        Some(Word::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    match text(0).map(base) {
        Some("git") => text(1).is_some_and(|command| GIT.contains(&command)),
        Some(program) => PLAIN.contains(&program),
        None => false,
    }
}
