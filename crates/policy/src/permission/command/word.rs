//! A bash word as the command gets it, as far as its text tells.

use rable::{Node, NodeKind};

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// A known text.
    Text(String),
    /// One unknown word: the value of a quoted variable.
    One,
    /// Any number of unknown words.
    Any,
    /// Any number of words that match a pattern, none of which is an option.
    Files,
}

/// A word, and the commands that bash runs to expand it.
#[derive(Debug, Default)]
pub struct Decoded<'a> {
    text: String,
    unknown: bool,
    several: bool,
    /// Whether it is unknown because of more than a pattern.
    split: bool,
    /// Whether it begins with a character with which no option begins.
    named: bool,
    /// Parsed command lists in it.
    pub nodes: Vec<&'a Node>,
    /// Texts of command lists that aren't parsed yet.
    pub scripts: Vec<String>,
    /// Texts that are expanded like words when they are used.
    pub words: Vec<String>,
    /// Whether it may contain commands that weren't found.
    pub hidden: bool,
    /// Whether bash does arithmetic in it.
    pub computes: bool,
}

/// The quoting around a character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    None,
    Single,
    Double,
}

impl<'a> Decoded<'a> {
    /// Reads the word that is written as `value` and has these parts.
    pub fn of(value: &str, parts: &'a [Node]) -> Self {
        let mut word = Decoded::default();
        let mut quotes = Quotes::None;
        for part in parts {
            word.part(part, &mut quotes, value);
        }
        if parts.is_empty() {
            word.literal(value, &mut quotes);
        }
        // `~` alone is a directory, whose last component may be any name.
        if value.starts_with('~') && !value.contains('/') {
            word.unknown = true;
        }
        word.hidden |= quotes != Quotes::None || value.split('`').skip(1).step_by(2).any(is_unclear);
        word
    }

    /// The word as the command gets it.
    pub fn word(&self) -> Word {
        match (self.several, self.unknown || self.hidden) {
            (true, _) if self.named && !self.split && !self.hidden => Word::Files,
            (true, _) => Word::Any,
            (false, true) => Word::One,
            (false, false) => Word::Text(self.text.clone()),
        }
    }

    /// Notes the texts of an expansion that are themselves expanded.
    fn operands(&mut self, operands: [&Option<String>; 2], quotes: Quotes) {
        for text in operands.into_iter().flatten() {
            // In double quotes these are plain characters, but not for the parser.
            self.hidden |= quotes == Quotes::Double && text.contains('\'');
            self.words.push(text.clone());
        }
    }

    fn expands(&mut self, quotes: Quotes) {
        self.unknown = true;
        self.split = true;
        self.several |= quotes == Quotes::None;
    }

    /// Notes a pattern, which the shell replaces by the matching paths.
    fn matches(&mut self) {
        self.named |= !self.unknown && self.text.starts_with(|c: char| !"-~+{".contains(c));
        self.unknown = true;
        self.several = true;
    }

    fn part(&mut self, part: &'a Node, quotes: &mut Quotes, value: &str) {
        match &part.kind {
            NodeKind::WordLiteral { value } => self.literal(value, quotes),
            NodeKind::AnsiCQuote { decoded, .. } => {
                // In bash, a NUL ends the text.
                self.unknown |= decoded.contains('\0') || *quotes != Quotes::None;
                self.text.push_str(decoded);
            }
            NodeKind::LocaleString { inner, .. } => self.literal(inner, &mut Quotes::Double),
            NodeKind::ParamExpansion { param, op, arg } => {
                self.expands(*quotes);
                self.several |=
                    param.starts_with(['@', '*']) || param.ends_with("[@]") || param.ends_with("[*]");
                self.parameter(param);
                // A value may be expanded like a prompt; that runs commands in it.
                self.hidden |= op.as_deref() == Some("@") && arg.as_deref() == Some("P");
                self.computes |= op.as_deref().is_some_and(|op| op.starts_with(':') && op.len() == 1);
                self.operands([op, arg], *quotes);
            }
            NodeKind::ParamIndirect { param, op, arg } => {
                self.expands(Quotes::None);
                self.parameter(param);
                self.computes = true;
                // It may set a variable of any name.
                self.hidden |= op.as_deref().is_some_and(|op| op.ends_with('='));
                self.operands([op, arg], *quotes);
            }
            NodeKind::ParamLength { param } => {
                self.expands(*quotes);
                self.parameter(param);
            }
            // A number.
            NodeKind::CommandSubstitution { command, .. } if counts(command) => self.text.push('1'),
            NodeKind::CommandSubstitution { command, .. } => {
                self.expands(*quotes);
                self.nodes.push(command);
            }
            NodeKind::ProcessSubstitution { command, .. } => {
                self.unknown = true;
                self.nodes.push(command);
            }
            NodeKind::BraceExpansion { content } => {
                self.expands(Quotes::None);
                self.words.push(content.clone());
            }
            NodeKind::ArithmeticExpansion { .. } => {
                self.expands(*quotes);
                self.computes = true;
                // Its parts don't have their texts: the word's own text must not nest anything.
                let plain = value.replace("$((", "");
                self.hidden |= ["$(", "`", "'", "<(", ">(", "@P"].iter().any(|sign| plain.contains(sign));
            }
            _ => self.hidden = true,
        }
    }

    /// Notes a parameter's name, with or without a subscript.
    fn parameter(&mut self, name: &str) {
        let (name, subscript) = name.split_once('[').map_or((name, None), |(name, rest)| (name, Some(rest)));
        let special = ["@", "*", "#", "?", "-", "$", "!"].contains(&name);
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        self.hidden |= !special && !plain;
        if let Some(subscript) = subscript {
            self.computes = true;
            self.words.push(subscript.trim_end_matches(']').to_owned());
        }
    }

    /// Reads text with quotes and backslashes.
    fn literal(&mut self, value: &str, quotes: &mut Quotes) {
        // A substitution that is nested too deep for the parser remains as plain text.
        for open in ["$(", "<(", ">("] {
            let inner = value.strip_prefix(open).and_then(|rest| rest.strip_suffix(')'));
            if let Some(inner) = inner.filter(|_| *quotes != Quotes::Single) {
                self.expands(*quotes);
                self.scripts.push(inner.to_owned());
                return;
            }
        }
        let mut rest = value.chars().peekable();
        while let Some(c) = rest.next() {
            match (*quotes, c) {
                (Quotes::Single, '\'') | (Quotes::Double, '"') => *quotes = Quotes::None,
                (Quotes::Single, _) => self.text.push(c),
                (Quotes::None, '\'') => *quotes = Quotes::Single,
                (Quotes::None, '"') => *quotes = Quotes::Double,
                (_, '\\') => match rest.next() {
                    // A line continuation.
                    Some('\n') => {}
                    Some(next) => {
                        if *quotes == Quotes::Double && !matches!(next, '$' | '`' | '"' | '\\') {
                            self.text.push('\\');
                        }
                        self.text.push(next);
                    }
                    None => self.text.push('\\'),
                },
                // Text that the parser made no part of: a sign alone, or an unknown construct.
                (_, '$') => {
                    match rest.peek() {
                        Some('(' | '{' | '[') => self.hidden = true,
                        Some(c) if c.is_ascii_alphanumeric() || "_@*#?-!$".contains(*c) => {
                            self.expands(*quotes);
                        }
                        _ => {}
                    }
                    self.text.push(c);
                }
                (_, '`') => self.hidden = true,
                (Quotes::Double, _) => self.text.push(c),
                // No word contains one: the parser took the end of a line for a word.
                (Quotes::None, '\n') => self.hidden = true,
                (Quotes::None, _) => {
                    let pattern = matches!(c, '*' | '?') || (c == '[' && value != "[");
                    // Braces are expanded, except for `{}`.
                    let brace = c == '{' && rest.peek().is_some_and(|next| *next != '}');
                    if brace || matches!(c, '(' | '<' | '>') {
                        self.expands(Quotes::None);
                    } else if pattern {
                        self.matches();
                    }
                    self.text.push(c);
                }
            }
        }
    }
}

/// The program that prints the number of processors.
pub(crate) const COUNTS: &str = "nproc";

/// Whether a command only prints that number.
fn counts(command: &Node) -> bool {
    let NodeKind::Command { assignments, words, redirects } = &command.kind else { return false };
    let is_it = |word: &Node| matches!(&word.kind, NodeKind::Word { value, .. } if value == COUNTS);
    assignments.is_empty() && redirects.is_empty() && words.len() == 1 && is_it(&words[0])
}

/// Whether bash may find the end of backticks, or of a quote in them, elsewhere than the parser:
/// bash looks for the next backtick, whatever comes before it.
fn is_unclear(inner: &str) -> bool {
    inner.contains(['\'', '"', '\\', '#', '(', '<'])
}
