//! The commands that a command runs: programs that run what their arguments name.

use super::wrappers::{
    DECLARING, EVALUATING, FED, GIT_VALUES, NAMED, OPTIONS_OF, OTHER_SHELLS, Opt, RUN_VARIABLES, Runs,
    SETTING, SHELLS, Wrapper, is_changing,
};
use super::{Command, Reader, Word, base};
use alara_sandbox::git;

/// Most words that may each begin a command.
const ANYWHERE: usize = 64;

impl Reader {
    /// Reads a command, and the commands that it runs.
    pub(super) fn command(&mut self, words: &[Word]) {
        // After `coproc`, the parser takes assignments for words.
        // After `time`, bash takes `--` for the end of its options.
        let set = |word: &&Word| matches!(word, Word::Text(text) if is_assignment(text) || text == "--");
        let words = &words[words.iter().take_while(set).count()..];
        let Some(program) = words.first() else { return };
        self.commands.push(Command {
            words: words.to_vec(),
            inner: self.inner > 0,
            guessed: self.guessed,
            inline: false,
        });
        let Word::Text(program) = program else { return };
        let name = base(program);
        let shell = unversioned(name);
        self.computes |= EVALUATING.contains(&name);
        if SETTING.contains(&name) {
            self.sets(name, &words[1..]);
        }
        match name {
            _ if SHELLS.contains(&shell) => self.within(|reader| reader.shell(shell, &words[1..])),
            // They have other grammars.
            _ if OTHER_SHELLS.contains(&shell) => self.unknown(),
            "alias" => self.within(|reader| reader.aliases(&words[1..])),
            "find" | "fd" | "fdfind" => self.within(|reader| reader.found(&words[1..])),
            "hash" => self.within(|reader| reader.hash(&words[1..])),
            // Without a file it only lists builtins, or disables one.
            "enable" if !has_letter(&words[1..], 'f') => {}
            _ if FED.contains(&name) => self.unknown(),
            _ => {
                if name == "git" {
                    self.git(&words[1..]);
                }
                self.given(name, &words[1..]);
                for (names, row) in NAMED.iter().filter(|(names, _)| names[0] == name) {
                    if let Some(at) = after(&words[1..], &names[1..]) {
                        self.within(|reader| reader.wrapped(row, &words[at + 1..]));
                    }
                }
            }
        }
    }

    /// Reads the arguments of a program that runs what they name.
    ///
    /// The table tells where the command begins.
    /// Tables have errors, and options differ between versions: each earlier word, which should be
    /// a value or an operand, may begin the command too, and after an unknown option any word may.
    fn wrapped(&mut self, row: &Wrapper, words: &[Word]) {
        let (mut at, mut operands, mut found) = (0, row.operands, false);
        let replaced = if row.runs == Runs::Appended { replaced(words) } else { Vec::new() };
        let (mut before, mut is_known) = (Vec::new(), true);
        let command = loop {
            let Some(word) = words.get(at) else { break None };
            at += 1;
            let text = match word {
                Word::Text(text) => text,
                // No command follows, and these are not options.
                Word::Files if row.operands >= 99 => continue,
                // Such a word may be an option, with or without a value.
                _ => return self.unknown(),
            };
            if text == "--" && row.operands < 99 {
                operands = operands.min(words.len() - at);
                before.extend(at..at + operands);
                break words.get(at + operands..);
            }
            // Names follow.
            if text == "--" && !row.shell {
                break None;
            }
            if text.starts_with('-') || (text.starts_with('+') && row.runs == Runs::Anywhere) {
                match row.option(text) {
                    Opt::Flag => {}
                    Opt::Unknown => is_known = false,
                    Opt::Value if matches!(words.get(at), Some(Word::Any | Word::Files)) => {
                        return self.unknown();
                    }
                    Opt::Value => {
                        before.push(at);
                        at += 1;
                    }
                    Opt::Stop => return,
                    Opt::Text(value) => {
                        found = true;
                        match value {
                            Some(value) => self.text(Some(&Word::Text(value))),
                            None => {
                                self.text(words.get(at));
                                at += 1;
                            }
                        }
                    }
                }
            } else if operands > 0 {
                before.push(at - 1);
                operands -= 1;
            } else if !is_assignment(text) || matches!(row.runs, Runs::Joined | Runs::First) {
                break Some(&words[at - 1..]);
            }
        };
        if row.operands < 99 {
            let outer = std::mem::replace(&mut self.guessed, true);
            for at in before.into_iter().filter(|_| row.runs != Runs::Anywhere) {
                if let Some(words @ [Word::Text(_), ..]) = words.get(at..) {
                    self.runs(row.runs, words, &replaced);
                }
            }
            if !is_known {
                self.anywhere(row.runs, words, &replaced);
            }
            self.guessed = outer;
        }
        match command.filter(|command| !command.is_empty()) {
            None if row.shell && !found => self.unknown(),
            None => {}
            Some(command) => self.runs(row.runs, command, &replaced),
        }
    }

    /// Reads words of which any may begin the command.
    fn anywhere(&mut self, runs: Runs, words: &[Word], replaced: &[String]) {
        if words.len() > ANYWHERE {
            return self.unknown();
        }
        let is_script = |text: &str| text.contains(char::is_whitespace);
        for (at, word) in words.iter().enumerate() {
            if let Word::Text(text) = word {
                let value = text.split_once('=').filter(|(name, _)| name.starts_with("--"));
                let script = value.map_or(text.as_str(), |(_, value)| value);
                if is_script(script) {
                    self.text(Some(&Word::Text(script.to_owned())));
                }
            }
            match runs {
                Runs::Anywhere => self.deeper(|reader| reader.command(&words[at..])),
                runs => self.runs(runs, &words[at..], replaced),
            }
        }
    }

    /// Reads the words that a wrapper runs.
    fn runs(&mut self, runs: Runs, words: &[Word], replaced: &[String]) {
        match runs {
            Runs::Command => self.deeper(|reader| reader.command(words)),
            Runs::Appended => {
                let fill = |word: &Word| match word {
                    Word::Text(text) if replaced.iter().any(|mark| text.contains(mark)) => Word::One,
                    word => word.clone(),
                };
                let words: Vec<Word> = words.iter().map(fill).chain([Word::Any]).collect();
                self.deeper(|reader| reader.command(&words));
            }
            Runs::Joined => self.joined(words),
            Runs::First => self.text(words.first()),
            Runs::Anywhere => self.anywhere(runs, words, replaced),
        }
    }

    /// Reads a script in an argument.
    fn text(&mut self, word: Option<&Word>) {
        match word {
            Some(Word::Text(text)) if text == "-" => {}
            Some(Word::Text(text)) => self.deeper(|reader| reader.script(text)),
            Some(_) => self.unknown(),
            None => {}
        }
    }

    /// Reads arguments that together form a script.
    fn joined(&mut self, words: &[Word]) {
        let texts: Option<Vec<&str>> = words
            .iter()
            .map(|word| if let Word::Text(text) = word { Some(text.as_str()) } else { None })
            .collect();
        match texts {
            // `{}` is unknown here; values follow `:::`.
            Some(texts) if !is_placeholder(texts[0]) => {
                let values = texts.iter().position(|text| text.starts_with(":::")).unwrap_or(texts.len());
                let script = texts[..values].join(" ");
                self.deeper(|reader| reader.script(&script));
                if values < texts.len() {
                    let words: Vec<Word> = words[..values].iter().cloned().chain([Word::Any]).collect();
                    self.deeper(|reader| reader.command(&words));
                }
            }
            _ => self.unknown(),
        }
    }

    /// Reads the arguments of a shell.
    fn shell(&mut self, name: &str, words: &[Word]) {
        let (mut at, mut text) = (0, false);
        while let Some(word) = words.get(at) {
            let Word::Text(option) = word else { return self.unknown() };
            match option.as_str() {
                "--version" | "--help" => return,
                "--" | "-" => {
                    at += 1;
                    break;
                }
                "--rcfile" | "--init-file" => return self.unknown(),
                _ if option.starts_with("--") => text |= option == "--command",
                _ if option.starts_with(['-', '+']) => {
                    text |= option.starts_with('-') && option.contains('c');
                    at += usize::from(option.contains(['o', 'O']));
                }
                _ => break,
            }
            at += 1;
        }
        match words.get(at) {
            Some(word) if text => {
                // Commands for a shell without bash's extensions.
                let is_other = |text: &String| {
                    let text = text.replace("$((", "");
                    ["[[", "((", "&>", "<(", ">(", "function"].iter().any(|sign| text.contains(sign))
                };
                if !name.ends_with("bash") && matches!(word, Word::Text(text) if is_other(text)) {
                    self.unknown();
                }
                self.text(Some(word));
            }
            // A file with a script, or its input.
            _ => self.unknown(),
        }
    }

    /// `alias NAME=TEXT`.
    fn aliases(&mut self, words: &[Word]) {
        for word in words {
            match word {
                Word::Text(text) => {
                    if let Some((_, text)) = text.split_once('=') {
                        self.script(text);
                    }
                }
                _ => self.unknown(),
            }
        }
    }

    /// `find … -exec COMMAND ;`, `fd … -x COMMAND`.
    fn found(&mut self, words: &[Word]) {
        const OPTIONS: [&str; 8] =
            ["-exec", "-execdir", "-ok", "-okdir", "-x", "--exec", "-X", "--exec-batch"];
        let ends = |word: &Word| matches!(word, Word::Text(text) if text == ";" || text == "+");
        for (at, word) in words.iter().enumerate() {
            match word {
                Word::Text(text) if OPTIONS.contains(&text.as_str()) => {
                    let rest = &words[at + 1..];
                    let end = rest.iter().position(ends).unwrap_or(rest.len());
                    self.runs(Runs::Appended, &rest[..end], &["{".to_owned()]);
                }
                // It may be the option, the command and its end.
                Word::Any => self.unknown(),
                // It may be such an option, whose command has an end.
                Word::One | Word::Files
                    if words[at + 1..].iter().any(|word| ends(word) || !is_text(word)) =>
                {
                    self.unknown();
                }
                _ => {}
            }
        }
    }

    /// Reads a builtin that sets the variables that its arguments name.
    /// Some variables change the meaning of a name (`BASH_CMDS`, `BASH_ALIASES`), and a reference
    /// (`declare -n`) may become another name of one.
    fn sets(&mut self, name: &str, words: &[Word]) {
        let refers = matches!(name, "declare" | "local" | "typeset");
        // Options with a value that is not a variable's name, and options with one that is.
        let (values, names) = match name {
            "read" => ("dinNptu", "a"),
            "mapfile" | "readarray" => ("dnOsuCc", ""),
            "printf" => ("", "v"),
            _ => ("", ""),
        };
        let (mut is_value, mut is_named) = (false, false);
        for (at, word) in words.iter().enumerate() {
            let follows = std::mem::take(&mut is_value);
            let named = std::mem::take(&mut is_named);
            let Word::Text(text) = word else {
                // Assignments in a declaration are read from the word as written.
                let is_name = match name {
                    "printf" => at == 0 || named,
                    name => !DECLARING.contains(&name) && !follows,
                };
                if is_name {
                    return self.unknown();
                }
                continue;
            };
            match text.strip_prefix('-').filter(|_| !follows) {
                Some(letters) => {
                    if refers && letters.contains('n') {
                        return self.unknown();
                    }
                    let takes = letters.find(|c| values.contains(c) || names.contains(c));
                    let rest = takes.map_or("", |at| &letters[at + 1..]);
                    is_named = takes.is_some_and(|at| rest.is_empty() && names.contains(&letters[at..]));
                    is_value = takes.is_some() && rest.is_empty() && !is_named;
                    if is_special(rest) {
                        return self.unknown();
                    }
                }
                // The other arguments are printed.
                None if name == "printf" && !named => return,
                None if is_special(text) && !follows => return self.unknown(),
                None => {}
            }
        }
    }

    /// `hash -p FILE NAME` makes a name run a file.
    fn hash(&mut self, words: &[Word]) {
        if has_letter(words, 'p') {
            self.unknown();
        }
    }

    /// Reads git's settings that make it run something.
    fn git(&mut self, words: &[Word]) {
        let is_alias =
            |word: &Word| matches!(word, Word::Text(text) if text.to_lowercase().starts_with("alias."));
        let is_running = |word: &Word| {
            let starts = ["--upload-p", "--receive-p", "--exec=", "--open-files", "ext::", "-O"];
            matches!(word, Word::Text(text) if starts.iter().any(|start| text.starts_with(start)))
        };
        if words.iter().any(|word| is_alias(word) || is_running(word)) {
            self.unknown();
        }
        // It may be an option.
        if words.first().is_some_and(|word| !is_text(word)) {
            self.unknown();
        }
        let mut at = 0;
        while let Some(Word::Text(option)) = words.get(at).filter(|word| is_option(word)) {
            let harmless = |word: &Word| matches!(word, Word::Text(text) if git::is_harmless(text));
            if option.starts_with("--config-env")
                || (option == "-c" && !words.get(at + 1).is_some_and(harmless))
            {
                self.unknown();
            }
            at += if GIT_VALUES.contains(&option.as_str()) { 2 } else { 1 };
        }
    }
}

/// A program's name without its version: `python` for `python3.12`.
pub(crate) fn unversioned(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'))
}

/// Whether a text begins with a placeholder of `parallel`.
fn is_placeholder(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    first.starts_with(":::") || (first.contains('{') && first.contains('}'))
}

pub fn is_text(word: &Word) -> bool {
    matches!(word, Word::Text(_))
}

fn is_option(word: &Word) -> bool {
    matches!(word, Word::Text(text) if text.starts_with('-'))
}

/// The index of the first word after these, among the arguments: after `run` in `-C x bisect run`.
pub fn after(words: &[Word], names: &[&str]) -> Option<usize> {
    names.iter().try_fold(0, |at, name| {
        let found =
            words.get(at..)?.iter().position(|word| matches!(word, Word::Text(text) if text == name))?;
        Some(at + found + 1)
    })
}

/// The placeholders that `xargs` replaces.
fn replaced(words: &[Word]) -> Vec<String> {
    let mut marks = vec!["{}".to_owned()];
    for (at, word) in words.iter().enumerate() {
        let Word::Text(text) = word else { continue };
        let attached = ["--replace=", "-I", "-J", "-i"].iter().find_map(|option| text.strip_prefix(option));
        match (attached, words.get(at + 1)) {
            (Some(""), Some(Word::Text(next))) => marks.push(next.clone()),
            (Some(mark), _) if !mark.is_empty() => marks.push(mark.to_owned()),
            _ => {}
        }
    }
    marks
}

/// `NAME=VALUE`.
fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Whether setting this variable changes which program runs.
pub(crate) fn is_special(text: &str) -> bool {
    let name = text.split(['=', '+']).next().unwrap_or_default();
    is_changing(name) || RUN_VARIABLES.contains(&name) || OPTIONS_OF.iter().any(|(listed, _)| *listed == name)
}

/// Whether the words contain, or may contain, an option of one letter.
fn has_letter(words: &[Word], letter: char) -> bool {
    words.iter().any(|word| match word {
        Word::Text(text) => text.starts_with('-') && !text.starts_with("--") && text.contains(letter),
        _ => true,
    })
}
