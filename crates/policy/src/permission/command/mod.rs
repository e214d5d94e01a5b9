//! Finds the commands that a bash script runs, as far as its text tells.
//!
//! The grammar comes from a parser ([`rable`]).
//! This module walks its result: lists, functions, substitutions, and programs that run their
//! arguments ([`mod@wrappers`]).
//! A command that can't be determined has unknown words, so that a rule has to allow for any
//! command.
//! That is an expansion in the place of a program, a shell that reads a file or its input, a text
//! that the parser rejects, or program text for an interpreter ([`inline`]).
//!
//! A program is identified by its name, not by what it does: `./build` or `python3 x.py` may run
//! anything, and is one command here.

mod inline;
mod interpreters;
mod mentioned;
mod programs;
mod texts;
mod word;
mod wrappers;

use std::collections::BTreeSet;

use rable::{Node, NodeKind};

use mentioned::Mentioned;
use word::Decoded;
pub use word::Word;
pub(crate) use wrappers::GIT_VALUES;
use wrappers::{DECLARING, OPTIONS_OF, RUN_VARIABLES, is_changing};

/// Most bytes of a script to read.
const BYTES: usize = 64 << 10;
/// Most nested lists, brackets, words and programs.
const DEPTH: usize = 200;
/// Most of them in total.
const STEPS: usize = 5000;
/// Most nested brackets and compound commands; checked before parsing, since the parser recurses.
const NESTING: usize = 40;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments.
    pub words: Vec<Word>,
    /// Whether another program runs it, whose arguments or text name it.
    pub inner: bool,
    /// Whether it is only possible: an option's value before the command that a wrapper runs.
    pub guessed: bool,
    /// Whether it is unknown because a program in another language, given as text, may run it.
    pub inline: bool,
}

/// The commands that a script may run.
#[derive(Debug)]
pub struct Script {
    /// Its commands, whatever its conditions.
    pub commands: Vec<Command>,
    /// Lower-case names in its texts that a program may run.
    pub mentioned: BTreeSet<String>,
}

/// Reads the commands of a script.
pub fn read(script: &str) -> Script {
    let mut reader = Reader::default();
    reader.script(script);
    // bash runs commands in a subscript that it evaluates, wherever the subscript comes from.
    if reader.computes && reader.subscripts {
        reader.unknown();
    }
    let Reader { commands, mentioned, .. } = reader;
    let mentioned = mentioned.that_may_run(&commands);
    Script { commands, mentioned }
}

/// The programs that are known to run a command from their arguments; some with a subcommand (`git
/// bisect run`).
pub fn wrappers() -> Vec<&'static str> {
    wrappers::WRAPPERS.iter().flat_map(|row| row.names.split('|')).collect()
}

/// A program's name without its folder.
pub fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

#[derive(Default)]
struct Reader {
    commands: Vec<Command>,
    /// The number of scripts and programs around the current text.
    depth: usize,
    /// The number of them read so far.
    steps: usize,
    /// The number of enclosing programs that run the current command.
    inner: usize,
    /// Whether the current command is only possible.
    guessed: bool,
    /// The script that is read.
    source: String,
    /// Whether bash does arithmetic with values.
    computes: bool,
    /// Whether a text has a subscript that contains a command.
    subscripts: bool,
    mentioned: Mentioned,
}

impl Reader {
    /// Notes that an unknown command may run.
    fn unknown(&mut self) {
        self.anything(false);
    }

    /// Notes that a program in another language is given as text and may run anything.
    fn inline(&mut self) {
        self.anything(true);
    }

    fn anything(&mut self, inline: bool) {
        let command =
            Command { words: vec![Word::Any], inner: self.inner > 0, guessed: self.guessed, inline };
        if self.commands.last() != Some(&command) {
            self.commands.push(command);
        }
    }

    /// Reads one level deeper, or notes an unknown command if that is too deep.
    fn deeper(&mut self, read: impl FnOnce(&mut Self)) {
        self.steps += 1;
        if self.depth >= DEPTH || self.steps > STEPS {
            return self.unknown();
        }
        self.depth += 1;
        read(self);
        self.depth -= 1;
    }

    /// As [`deeper`](Self::deeper), for text that a program of the script runs.
    fn within(&mut self, read: impl FnOnce(&mut Self)) {
        self.inner += 1;
        self.deeper(read);
        self.inner -= 1;
    }

    fn script(&mut self, script: &str) {
        // However they are set, a name then means another program.
        if ["BASH_CMDS", "BASH_ALIASES"].iter().any(|name| script.contains(name)) {
            self.unknown();
        }
        if script.len() > BYTES || nesting(script) > NESTING || comments_in_arithmetic(script) {
            return self.unknown();
        }
        match rable::parse(script, false) {
            Ok(nodes) => self.deeper(|reader| {
                let outer = std::mem::replace(&mut reader.source, script.to_owned());
                nodes.iter().for_each(|node| reader.node(node));
                reader.source = outer;
            }),
            // bash runs the lines before the one that it can't parse.
            Err(_) => self.unknown(),
        }
    }

    /// Reads a text that is expanded like a word.
    fn expanded(&mut self, text: &str) {
        if !["$(", "`", "<(", ">(", "${"].iter().any(|sign| text.contains(sign)) {
            return;
        }
        // Quotes and comments have another meaning there.
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
                for node in assignments {
                    let word = self.word(node);
                    if let NodeKind::Word { value, .. } = &node.kind {
                        self.mentioned.note_assigned(value);
                    }
                    if let Word::Text(text) = word {
                        self.mentioned.note_assigned(&text);
                    }
                }
                let nodes = words;
                let words: Vec<Word> = nodes.iter().map(|node| self.word(node)).collect();
                self.declared(nodes, &words);
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
            NodeKind::For { var, words, body, redirects }
            | NodeKind::Select { var, words, body, redirects } => {
                if programs::is_special(var) {
                    self.unknown();
                }
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
            NodeKind::Function { name, body } => {
                // Its name decides.
                if name == word::COUNTS {
                    self.unknown();
                }
                self.node(body);
            }
            NodeKind::Coproc { command, .. } => self.node(command),
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

    /// Reads redirections whose here-documents the parser doesn't read.
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
            // For bash a bracket ends with the word, for the parser perhaps not.
            NodeKind::CondTerm { value, .. }
                if value.contains('[') && value.contains(char::is_whitespace) =>
            {
                self.unknown();
            }
            NodeKind::CondTerm { value, .. } => self.expanded(value),
            NodeKind::Word { .. } => drop(self.word(node)),
            _ => self.unknown(),
        }
    }

    /// Reads a here-document.
    /// The parser and bash may see its end in different lines: then nothing is known.
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
        self.mentioned.note(content);
    }

    /// Reads a word and the commands in it.
    fn word(&mut self, node: &Node) -> Word {
        let NodeKind::Word { value, parts, .. } = &node.kind else {
            self.unknown();
            return Word::Any;
        };
        let decoded = Decoded::of(value, parts);
        self.computes |= decoded.computes;
        // The parser inserts an empty word where it expects one and there is none.
        if decoded.hidden || value.is_empty() {
            self.unknown();
        }
        decoded.nodes.iter().for_each(|node| self.node(node));
        decoded.scripts.iter().for_each(|script| self.script(script));
        decoded.words.iter().for_each(|text| self.expanded(text));
        let word = decoded.word();
        self.mentioned.note(value);
        if let Word::Text(text) = &word {
            self.mentioned.note(text);
        }
        self.value(value, &word);
        word
    }

    /// Notes an unknown name in a declaration: it may be any variable.
    fn declared(&mut self, nodes: &[Node], words: &[Word]) {
        let is_declaring = |word: &Word| matches!(word, Word::Text(text) if DECLARING.contains(&base(text)));
        let Some(at) = words.iter().position(is_declaring) else { return };
        let is_named = |raw: &str| {
            let name = raw.split(['=', '[', '+']).next().unwrap_or_default();
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let is_open = |(node, word): (&Node, &Word)| match (&node.kind, word) {
            (_, Word::Text(_)) => false,
            (NodeKind::Word { value, .. }, _) => !is_named(value),
            _ => true,
        };
        if nodes.iter().zip(words).skip(at + 1).any(is_open) {
            self.unknown();
        }
    }

    /// Notes the effect of a word that sets a variable.
    fn value(&mut self, raw: &str, word: &Word) {
        if let Word::Text(text) = word {
            self.subscripts |= text.contains('[') && (text.contains("$(") || text.contains('`'));
        }
        let text = if let Word::Text(text) = word { text.as_str() } else { raw };
        let Some((name, value)) = text.split_once('=') else { return };
        let name = name.trim_end_matches('+');
        if is_changing(name) {
            self.unknown();
        } else if let Some((_, program)) = OPTIONS_OF.iter().find(|(listed, _)| *listed == name) {
            // Letters without a dash may be options too.
            match word {
                Word::Text(_) if value.is_empty() => {}
                Word::Text(_) if value.starts_with('-') => {
                    let words = value.split_whitespace().chain(["x"]);
                    let words: Vec<Word> = words.map(|word| Word::Text(word.to_owned())).collect();
                    self.given(program, &words);
                }
                _ => self.unknown(),
            }
        } else if RUN_VARIABLES.contains(&name) {
            match word {
                Word::Text(_) => self.within(|reader| reader.script(value)),
                _ => self.unknown(),
            }
        }
    }
}

/// The nesting depth of brackets and compound commands, ignoring quotes.
fn nesting(script: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    for part in script.split(['\n', ';', '|', '&']) {
        // Words that begin or end a compound command come first, or directly after each other.
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

/// Whether a `#` occurs in arithmetic, where it begins a comment for the parser but not for bash.
fn comments_in_arithmetic(script: &str) -> bool {
    script.match_indices("((").any(|(at, _)| {
        let inner = script[at..].split("))").next().unwrap_or_default();
        [" #", "\t#", "\n#"].iter().any(|sign| inner.contains(sign))
    })
}
