//! The names that a script mentions anywhere: not every program's use of its arguments is known, so
//! a denied program's name in a text may be run.

use std::collections::BTreeSet;

use super::{Command, GIT_VALUES, Word, base};

/// Programs that run nothing that their arguments or their input name, or whose commands are read
/// as such.
const PLAIN: &str = "[ basename bash builtin cal cargo cat cd chgrp chmod chown cksum cmp comm command cp cut dash \
    date df diff dirname doas du echo egrep env eval exec expand expr false fd fgrep file find fmt fold free go grep \
    head hostname id ionice join jq link ln ls make md5sum mkdir mktemp mv nice nl nohup npm od paste pnpm printf pwd \
    pytest readlink realpath rm rmdir seq setpriv setsid sh sha256sum sleep stat stdbuf sudo tac tail tee test time \
    timeout touch tr true type uname uniq wc which whoami xargs";
/// git commands of that kind, with the user's own settings.
const GIT: &str =
    "add blame branch checkout commit diff init log mv reset restore rm show stash status switch tag";

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
    pub(crate) fn note_assigned(&mut self, text: &str) {
        self.assigned.extend(names(text));
    }

    /// The names that may be run, for a script with these commands.
    pub(crate) fn that_may_run(self, commands: &[Command]) -> BTreeSet<String> {
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
    if command.guessed {
        return true;
    }
    let text = |word: &Word| match word {
        Word::Text(text) => Some(text.clone()),
        _ => None,
    };
    let Some((program, arguments)) = command.words.split_first() else { return false };
    let Some(program) = text(program) else { return false };
    let listed = |list: &str, name: &str| list.split_whitespace().any(|listed| listed == name);
    match base(&program) {
        "git" => subcommand(arguments).is_some_and(|command| listed(GIT, &command)),
        // It may name a program that compresses.
        "sort" => arguments.iter().filter_map(text).all(|argument| !argument.starts_with("--c")),
        program => listed(PLAIN, program),
    }
}

/// The command of git, behind options such as `-C DIR`.
fn subcommand(arguments: &[Word]) -> Option<String> {
    let mut at = 0;
    while let Some(Word::Text(text)) = arguments.get(at) {
        if !text.starts_with('-') {
            return Some(text.clone());
        }
        // By a setting git may run something.
        if text.starts_with("-c") || text.starts_with("--config") || text.starts_with("--exec") {
            return None;
        }
        at += if GIT_VALUES.contains(&text.as_str()) { 2 } else { 1 };
    }
    None
}
