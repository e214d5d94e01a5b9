//! Which commands a script of bash runs, as far as its text tells.
//!
//! The grammar is a parser's ([`rable`]).
//! What it finds is walked: lists, functions, substitutions, and through programs that run their
//! arguments ([`wrappers`]).
//! What can't be told is a command whose words are not known, so that whoever asks about one has to
//! count with it: an expansion in the place of a program, a shell that reads a file or its input, a
//! text that no parser understands.
//!
//! A program is what its name says, and not what it does: `./build` or `python3 x.py` may run
//! anything, and is one command here.

mod word;
mod wrappers;

use rable::{Node, NodeKind};

use word::Decoded;
pub use word::Word;
pub use wrappers::GIT_VALUES;
use wrappers::{CHANGING_VARIABLES, EVALUATING, FED, NAMED, Opt, RUN_VARIABLES, Runs, SHELLS, Wrapper};

/// Most bytes of a script that is read.
const BYTES: usize = 64 << 10;
/// Most lists, brackets, words and programs in each other.
const DEPTH: usize = 200;
/// Most of them together.
const STEPS: usize = 5000;
/// Most words any of which may begin a command.
const ANYWHERE: usize = 64;
/// Most brackets and compound commands in each other, before the parser is asked: it nests calls.
const NESTING: usize = 40;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments.
    pub words: Vec<Word>,
    /// Whether a program runs it that the text names, or another text.
    pub inner: bool,
}

/// All commands that a script may run, whatever its conditions.
pub fn read(script: &str) -> Vec<Command> {
    let mut reader = Reader::default();
    reader.script(script);
    // bash runs what stands in a subscript that it computes with, wherever it has it from.
    if reader.computes && reader.subscripts {
        reader.unknown();
    }
    reader.commands
}

/// A program's name without its folder.
pub fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

#[derive(Default)]
struct Reader {
    commands: Vec<Command>,
    /// How many scripts and programs what is read is inside of.
    depth: usize,
    /// How many have been read.
    steps: usize,
    /// How many of them are not the text's own commands.
    inner: usize,
    /// The script that is read.
    source: String,
    /// Whether bash computes with values.
    computes: bool,
    /// Whether a text has a subscript in which a command stands.
    subscripts: bool,
}

impl Reader {
    /// Something may be run that is not known.
    fn unknown(&mut self) {
        let command = Command { words: vec![Word::Any], inner: self.inner > 0 };
        if self.commands.last() != Some(&command) {
            self.commands.push(command);
        }
    }

    /// Goes one level deeper, or says that it is too deep.
    fn deeper(&mut self, read: impl FnOnce(&mut Self)) {
        self.steps += 1;
        if self.depth >= DEPTH || self.steps > STEPS {
            return self.unknown();
        }
        self.depth += 1;
        read(self);
        self.depth -= 1;
    }

    /// As [`deeper`](Self::deeper), in something that a program of the text runs.
    fn within(&mut self, read: impl FnOnce(&mut Self)) {
        self.inner += 1;
        self.deeper(read);
        self.inner -= 1;
    }

    fn script(&mut self, script: &str) {
        if script.len() > BYTES || nesting(script) > NESTING {
            return self.unknown();
        }
        match rable::parse(script, false) {
            Ok(nodes) => self.deeper(|reader| {
                let outer = std::mem::replace(&mut reader.source, script.to_owned());
                nodes.iter().for_each(|node| reader.node(node));
                reader.source = outer;
            }),
            // bash runs the lines before the one that it does not understand.
            Err(_) => self.unknown(),
        }
    }

    /// A text that is expanded as a word is.
    fn expanded(&mut self, text: &str) {
        if !["$(", "`", "<(", ">(", "${"].iter().any(|sign| text.contains(sign)) {
            return;
        }
        // Quotes and comments mean something else where it stands.
        if ["'", "\\", "#", "<<", "@P"].iter().any(|sign| text.contains(sign)) {
            return self.unknown();
        }
        self.deeper(|reader| reader.script(&format!(": {text}")));
    }

    fn all(&mut self, nodes: &[Node]) {
        nodes.iter().for_each(|node| self.node(node));
    }

    fn node(&mut self, node: &Node) {
        self.deeper(|reader| reader.node_here(node));
    }

    fn node_here(&mut self, node: &Node) {
        match &node.kind {
            NodeKind::Command { assignments, words, redirects } => {
                assignments.iter().for_each(|node| drop(self.word(node)));
                let words: Vec<Word> = words.iter().map(|node| self.word(node)).collect();
                self.all(redirects);
                self.command(&words);
            }
            NodeKind::Pipeline { commands, .. } => self.all(commands),
            NodeKind::List { items } => items.iter().for_each(|item| self.node(&item.command)),
            NodeKind::If { condition, then_body, else_body, redirects } => {
                self.node(condition);
                self.node(then_body);
                if let Some(body) = else_body {
                    self.node(body);
                }
                self.all(redirects);
            }
            NodeKind::While { condition, body, redirects }
            | NodeKind::Until { condition, body, redirects } => {
                self.node(condition);
                self.node(body);
                self.all(redirects);
            }
            NodeKind::For { words, body, redirects, .. }
            | NodeKind::Select { words, body, redirects, .. } => {
                words.iter().flatten().for_each(|node| drop(self.word(node)));
                self.node(body);
                self.all(redirects);
            }
            NodeKind::ForArith { init, cond, incr, body, redirects } => {
                self.computes = true;
                [init, cond, incr].into_iter().for_each(|text| self.expanded(text));
                self.node(body);
                self.all(redirects);
            }
            NodeKind::Case { word, patterns, redirects } => {
                self.word(word);
                for clause in patterns {
                    clause.patterns.iter().for_each(|node| drop(self.word(node)));
                    if let Some(body) = &clause.body {
                        self.node(body);
                    }
                }
                self.all(redirects);
            }
            NodeKind::Function { body, .. } | NodeKind::Coproc { command: body, .. } => self.node(body),
            NodeKind::Subshell { body, redirects } | NodeKind::BraceGroup { body, redirects } => {
                self.node(body);
                self.all(redirects);
            }
            NodeKind::Negation { pipeline } | NodeKind::Time { pipeline, .. } => self.node(pipeline),
            NodeKind::ConditionalExpr { body, redirects } => {
                self.computes = true;
                self.condition(body);
                self.plain_redirects(redirects);
            }
            NodeKind::ArithmeticCommand { raw_content, redirects, .. } => {
                self.computes = true;
                self.expanded(raw_content);
                self.plain_redirects(redirects);
            }
            NodeKind::Redirect { target, .. } => drop(self.word(target)),
            NodeKind::HereDoc { delimiter, content, strip_tabs, quoted, .. } => {
                self.document(delimiter, content, *strip_tabs, *quoted);
            }
            NodeKind::Empty | NodeKind::Comment { .. } => {}
            _ => self.unknown(),
        }
    }

    /// Redirections of what the parser does not read the here-documents of.
    fn plain_redirects(&mut self, redirects: &[Node]) {
        for redirect in redirects {
            match &redirect.kind {
                NodeKind::Redirect { .. } => self.node(redirect),
                _ => self.unknown(),
            }
        }
    }

    fn condition(&mut self, node: &Node) {
        match &node.kind {
            NodeKind::UnaryTest { operand, .. } | NodeKind::CondNot { operand } => self.condition(operand),
            NodeKind::CondParen { inner } => self.condition(inner),
            NodeKind::BinaryTest { left, right, .. }
            | NodeKind::CondAnd { left, right }
            | NodeKind::CondOr { left, right } => {
                self.condition(left);
                self.condition(right);
            }
            NodeKind::CondTerm { value, .. } => self.expanded(value),
            NodeKind::Word { .. } => drop(self.word(node)),
            _ => self.unknown(),
        }
    }

    /// A here-document.
    /// The parser and bash may not see its end in the same line: then nothing is known.
    fn document(&mut self, delimiter: &str, content: &str, tabs: bool, quoted: bool) {
        let ends = |line: &str| {
            let end = if tabs { line.trim_start_matches('\t') } else { line };
            line.trim().starts_with(delimiter) && end != delimiter
        };
        let unclear = delimiter.is_empty() || self.source.lines().any(ends);
        let runs = !quoted && (content.is_empty() || content.contains("$(") || content.contains('`'));
        if unclear || runs || content.contains("@P}") {
            self.unknown();
        }
    }

    /// A word, with the commands in it.
    fn word(&mut self, node: &Node) -> Word {
        let NodeKind::Word { value, parts, .. } = &node.kind else {
            self.unknown();
            return Word::Any;
        };
        let decoded = Decoded::of(value, parts);
        self.computes |= decoded.computes;
        if decoded.hidden {
            self.unknown();
        }
        decoded.nodes.iter().for_each(|node| self.node(node));
        decoded.scripts.iter().for_each(|script| self.script(script));
        decoded.words.iter().for_each(|text| self.expanded(text));
        let word = decoded.word();
        self.value(value, &word);
        word
    }

    /// What it means that a word sets a variable, if it does.
    fn value(&mut self, raw: &str, word: &Word) {
        if let Word::Text(text) = word {
            self.subscripts |= text.contains('[') && (text.contains("$(") || text.contains('`'));
        }
        let text = if let Word::Text(text) = word { text.as_str() } else { raw };
        let Some((name, value)) = text.split_once('=') else { return };
        let name = name.trim_end_matches('+');
        let is_it = |listed: &&str| match listed.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *listed,
        };
        if CHANGING_VARIABLES.iter().any(is_it) {
            self.unknown();
        } else if RUN_VARIABLES.contains(&name) {
            match word {
                Word::Text(_) => self.within(|reader| reader.script(value)),
                Word::One | Word::Any => self.unknown(),
            }
        }
    }

    /// A command, and what it runs in turn.
    fn command(&mut self, words: &[Word]) {
        let Some(program) = words.first() else { return };
        self.commands.push(Command { words: words.to_vec(), inner: self.inner > 0 });
        let Word::Text(program) = program else { return };
        let name = base(program);
        let shell = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
        self.computes |= EVALUATING.contains(&name);
        match name {
            _ if SHELLS.contains(&shell) => self.within(|reader| reader.shell(&words[1..])),
            "alias" => self.within(|reader| reader.aliases(&words[1..])),
            "find" | "fd" | "fdfind" => self.within(|reader| reader.found(&words[1..])),
            "hash" => self.within(|reader| reader.hash(&words[1..])),
            // Without a file it only lists, or turns one off.
            "enable" if !has_letter(&words[1..], 'f') => {}
            _ if FED.contains(&name) => self.unknown(),
            _ => {
                if name == "git" {
                    self.git(&words[1..]);
                }
                for (names, row) in NAMED.iter().filter(|(names, _)| names[0] == name) {
                    if let Some(at) = after(words, &names[1..]) {
                        self.within(|reader| reader.wrapped(row, &words[at..]));
                    }
                }
            }
        }
    }

    /// The arguments of a program that runs what they name.
    fn wrapped(&mut self, row: &Wrapper, words: &[Word]) {
        let (mut at, mut operands, mut found) = (0, row.operands, false);
        let replaced = if row.runs == Runs::Appended { replaced(words) } else { Vec::new() };
        let command = loop {
            let Some(word) = words.get(at) else { break None };
            at += 1;
            // Such a word may be an option, with a value or without.
            let Word::Text(text) = word else { return self.unknown() };
            if text == "--" && row.operands < 99 {
                operands = operands.min(words.len() - at);
                break words.get(at + operands..);
            }
            if text.starts_with('-') || (text.starts_with('+') && row.runs == Runs::Anywhere) {
                match row.option(text) {
                    Opt::Flag => {}
                    Opt::Value if words.get(at) == Some(&Word::Any) => return self.unknown(),
                    Opt::Value => at += 1,
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
                operands -= 1;
            } else if !is_assignment(text) {
                break Some(&words[at - 1..]);
            }
        };
        match command.filter(|command| !command.is_empty()) {
            None if row.shell && !found => self.unknown(),
            None => {}
            Some(command) => self.runs(row.runs, command, &replaced),
        }
    }

    /// The words that a wrapper runs.
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
            Runs::Anywhere if words.len() > ANYWHERE => self.unknown(),
            Runs::Anywhere => {
                for (at, word) in words.iter().enumerate() {
                    if matches!(word, Word::Text(text) if text.contains(char::is_whitespace)) {
                        self.text(Some(word));
                    }
                    self.deeper(|reader| reader.command(&words[at..]));
                }
            }
        }
    }

    /// A script that is an argument.
    fn text(&mut self, word: Option<&Word>) {
        match word {
            Some(Word::Text(text)) if text == "-" => {}
            Some(Word::Text(text)) => self.deeper(|reader| reader.script(text)),
            Some(Word::One | Word::Any) => self.unknown(),
            None => {}
        }
    }

    /// Arguments that together are a script.
    fn joined(&mut self, words: &[Word]) {
        let texts: Option<Vec<&str>> = words
            .iter()
            .map(|word| if let Word::Text(text) = word { Some(text.as_str()) } else { None })
            .collect();
        match texts {
            // `{}` is what is not named here; after `:::` stand values.
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

    /// The arguments of a shell.
    fn shell(&mut self, words: &[Word]) {
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
            Some(word) if text => self.text(Some(word)),
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
                Word::One | Word::Any => self.unknown(),
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
                // It may be such an option, whose command has an end.
                Word::One | Word::Any if words[at + 1..].iter().any(|word| ends(word) || !is_text(word)) => {
                    self.unknown();
                }
                _ => {}
            }
        }
    }

    /// `hash -p FILE NAME` lets a name stand for a file.
    fn hash(&mut self, words: &[Word]) {
        if has_letter(words, 'p') {
            self.unknown();
        }
    }

    /// Settings of git by which it runs something.
    fn git(&mut self, words: &[Word]) {
        let is_alias =
            |word: &Word| matches!(word, Word::Text(text) if text.to_lowercase().starts_with("alias."));
        if words.iter().any(is_alias) {
            self.unknown();
        }
        let mut at = 0;
        while let Some(Word::Text(option)) = words.get(at).filter(|word| is_option(word)) {
            let harmless = |word: &Word| matches!(word, Word::Text(text) if crate::git::is_harmless(text));
            if option.starts_with("--config-env")
                || (option == "-c" && !words.get(at + 1).is_some_and(harmless))
            {
                self.unknown();
            }
            at += if GIT_VALUES.contains(&option.as_str()) { 2 } else { 1 };
        }
    }
}

/// Whether a text begins with what `parallel` fills in.
fn is_placeholder(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    first.starts_with(":::") || (first.contains('{') && first.contains('}'))
}

fn is_text(word: &Word) -> bool {
    matches!(word, Word::Text(_))
}

fn is_option(word: &Word) -> bool {
    matches!(word, Word::Text(text) if text.starts_with('-'))
}

/// Where the words after a name of several words begin: `run` in `git -C x bisect run`.
fn after(words: &[Word], names: &[&str]) -> Option<usize> {
    names.iter().try_fold(1, |at, name| {
        let found =
            words.get(at..)?.iter().position(|word| matches!(word, Word::Text(text) if text == name))?;
        Some(at + found + 1)
    })
}

/// The marks that `xargs` fills in for.
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

/// Whether an option of one letter is among the words, or may be.
fn has_letter(words: &[Word], letter: char) -> bool {
    words.iter().any(|word| match word {
        Word::Text(text) => text.starts_with('-') && !text.starts_with("--") && text.contains(letter),
        Word::One | Word::Any => true,
    })
}

/// How deep brackets and compound commands are in each other, as if there were no quotes.
fn nesting(script: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    for part in script.split(['\n', ';', '|', '&']) {
        // Words that begin or end a compound command stand first, or after one another.
        for word in part.split_whitespace() {
            match word {
                "if" | "while" | "until" | "for" | "case" | "select" | "!" | "time" | "coproc"
                | "function" => open += 1,
                "fi" | "done" | "esac" => open = open.saturating_sub(1),
                "then" | "do" | "else" | "elif" | "{" | "(" => {}
                _ => break,
            }
        }
        for c in part.chars() {
            match c {
                '(' | '{' => open += 1,
                ')' | '}' => open = open.saturating_sub(1),
                _ => {}
            }
            deepest = deepest.max(open);
        }
        deepest = deepest.max(open);
    }
    deepest
}
