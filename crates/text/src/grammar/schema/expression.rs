//! Parses ECMA-262 regular expressions into nodes and character classes.

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// Largest repeat count of an expression.
const MOST_REPEATS: u32 = 100_000;
const MOST_NESTED: usize = 32;
/// Longest expression, in bytes.
const LONGEST: usize = 16_384;

/// Parses a whole expression; the error names the unsupported part.
pub(super) fn read(source: &str) -> Result<Expression, String> {
    if source.len() > LONGEST {
        return Err(format!("the expression is longer than {LONGEST} bytes"));
    }
    let mut reader = ExpressionReader { rest: source.chars().peekable(), nested: 0 };
    let node = reader.alternatives()?;
    match reader.rest.next() {
        None => Ok(node),
        Some(_) => Err("a parenthesis is closed that was not opened".into()),
    }
}

#[derive(Debug)]
pub(super) enum Expression {
    Class(Class),
    Start,
    End,
    Sequence(Vec<Expression>),
    Alternatives(Vec<Expression>),
    Repeat(Box<Expression>, u32, Option<u32>),
}

/// A character, escaped for use in an expression or a class.
pub(super) fn escaped(character: char) -> String {
    if character.is_ascii_alphanumeric() {
        character.into()
    } else {
        format!("\\x{{{:x}}}", character as u32)
    }
}

/// A class of characters: ranges and Unicode properties.
#[derive(Debug, Default)]
pub(super) struct Class {
    negated: bool,
    ranges: Vec<(char, char)>,
    properties: String,
}

impl Class {
    fn new(ranges: &[(char, char)]) -> Self {
        Class { ranges: ranges.to_vec(), ..Class::default() }
    }

    /// Writes the class in llguidance's syntax.
    pub(super) fn write(&self) -> String {
        let mut text = String::from(if self.negated { "[^" } else { "[" });
        for &(first, last) in &self.ranges {
            text += &escaped(first);
            if first != last {
                let _ = write!(text, "-{}", escaped(last));
            }
        }
        text + &self.properties + "]"
    }

    /// All characters outside of sorted ranges.
    fn outside(ranges: &[(char, char)]) -> Vec<(char, char)> {
        let (mut outside, mut start) = (Vec::new(), Some('\0'));
        for &(first, last) in ranges {
            if let (Some(start), Some(end)) = (start, before(first)) {
                outside.push((start, end));
            }
            start = after(last);
        }
        outside.extend(start.map(|start| (start, char::MAX)));
        outside
    }
}

fn before(character: char) -> Option<char> {
    let code = character as u32;
    if code == 0xe000 { Some('\u{d7ff}') } else { char::from_u32(code.checked_sub(1)?) }
}

fn after(character: char) -> Option<char> {
    if character == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(character as u32 + 1) }
}

const DIGIT: &[(char, char)] = &[('0', '9')];
const WORD: &[(char, char)] = &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')];
const LINE_END: &[(char, char)] = &[('\n', '\n'), ('\r', '\r'), ('\u{2028}', '\u{2029}')];
const SPACE: &[(char, char)] = &[
    ('\t', '\r'),
    (' ', ' '),
    ('\u{a0}', '\u{a0}'),
    ('\u{1680}', '\u{1680}'),
    ('\u{2000}', '\u{200a}'),
    ('\u{2028}', '\u{2029}'),
    ('\u{202f}', '\u{202f}'),
    ('\u{205f}', '\u{205f}'),
    ('\u{3000}', '\u{3000}'),
    ('\u{feff}', '\u{feff}'),
];

impl Class {
    fn add(&mut self, other: Class) {
        self.ranges.extend(other.ranges);
        self.properties += &other.properties;
    }

    /// Whether the class contains every character, judged by its ranges.
    pub(super) fn is_any(&self) -> bool {
        let mut ranges = self.ranges.clone();
        ranges.sort_unstable();
        let mut next = Some('\0');
        for (first, last) in ranges {
            match next {
                Some(start) if first > start => break,
                Some(start) if last >= start => next = after(last),
                _ => {}
            }
        }
        match self.negated {
            true => self.ranges.is_empty() && self.properties.is_empty(),
            false => next.is_none(),
        }
    }

    /// The character, if the class has only one.
    pub(super) fn single(&self) -> Option<char> {
        match self.ranges[..] {
            [(first, last)] if first == last && self.properties.is_empty() && !self.negated => Some(first),
            _ => None,
        }
    }
}

/// Reads an expression of ECMA-262.
struct ExpressionReader<'a> {
    rest: Peekable<Chars<'a>>,
    nested: usize,
}

impl ExpressionReader<'_> {
    fn eat(&mut self, text: &str) -> bool {
        let mut ahead = self.rest.clone();
        let found = text.chars().all(|character| ahead.next() == Some(character));
        if found {
            self.rest = ahead;
        }
        found
    }

    fn alternatives(&mut self) -> Result<Expression, String> {
        self.nested += 1;
        if self.nested > MOST_NESTED {
            return Err("groups nest too deep".into());
        }
        let mut options = vec![self.sequence()?];
        while self.eat("|") {
            options.push(self.sequence()?);
        }
        self.nested -= 1;
        Ok(Expression::Alternatives(options))
    }

    fn sequence(&mut self) -> Result<Expression, String> {
        let mut nodes = Vec::new();
        while self.rest.peek().is_some_and(|&next| next != '|' && next != ')') {
            let node = self.atom()?;
            let node = match self.quantifier()? {
                None => node,
                Some(_) if matches!(node, Expression::Start | Expression::End) => {
                    return Err("an anchor is repeated".into());
                }
                Some((least, most)) => Expression::Repeat(Box::new(node), least, most),
            };
            nodes.push(node);
        }
        Ok(Expression::Sequence(nodes))
    }

    fn atom(&mut self) -> Result<Expression, String> {
        Ok(match self.rest.next().unwrap_or_default() {
            '^' => Expression::Start,
            '$' => Expression::End,
            '.' => Expression::Class(Class { negated: true, ..Class::new(LINE_END) }),
            '(' => self.group()?,
            '[' => Expression::Class(self.class()?),
            '\\' => Expression::Class(self.escape(false)?),
            '*' | '+' | '?' => return Err("there is nothing to repeat".into()),
            character => Expression::Class(Class::new(&[(character, character)])),
        })
    }

    fn group(&mut self) -> Result<Expression, String> {
        if self.eat("?") && !self.eat(":") {
            let named = (self.eat("P<") || self.eat("<")) && !matches!(self.rest.peek(), Some('=' | '!'));
            if !named {
                return Err("look-around and flags are not supported".into());
            }
            if !self.rest.by_ref().any(|character| character == '>') {
                return Err("the name of a group has no end".into());
            }
        }
        let node = self.alternatives()?;
        if self.eat(")") { Ok(node) } else { Err("a parenthesis is not closed".into()) }
    }

    fn quantifier(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let bounds = match self.rest.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => return self.counted(),
            _ => return Ok(None),
        };
        self.rest.next();
        self.greed().map(|()| Some(bounds))
    }

    /// `{2}`, `{2,}` or `{2,5}`; any other brace is literal.
    fn counted(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let mut ahead = self.rest.clone();
        ahead.next();
        let inside: String = ahead.by_ref().take_while(|&character| character != '}').collect();
        let digits = |text: &str| !text.is_empty() && text.chars().all(|digit| digit.is_ascii_digit());
        let (least, most) = inside.split_once(',').unwrap_or((&inside, &inside));
        if least.is_empty() && digits(most) {
            return Err("a repetition has no least number".into());
        }
        if !digits(least) || !(most.is_empty() || digits(most)) {
            return Ok(None);
        }
        let count = |text: &str| text.parse().ok().filter(|&count: &u32| count <= MOST_REPEATS);
        let (Some(least), most) = (count(least), (!most.is_empty()).then(|| count(most))) else {
            return Err("a repetition is too long".into());
        };
        if most.is_some_and(|most| most.is_none_or(|most| most < least)) {
            return Err("a repetition is too long or ends before it begins".into());
        }
        self.rest = ahead;
        self.greed().map(|()| Some((least, most.flatten())))
    }

    fn greed(&mut self) -> Result<(), String> {
        self.eat("?");
        match self.rest.peek() {
            Some('*' | '+' | '?') => Err("a repetition is repeated".into()),
            _ => Ok(()),
        }
    }

    /// Reads an escape, after the backslash.
    fn escape(&mut self, in_class: bool) -> Result<Class, String> {
        let escape = self.rest.next().ok_or("an escape is not finished")?;
        let one = |character: char| Ok(Class::new(&[(character, character)]));
        match escape {
            'd' => Ok(Class::new(DIGIT)),
            'w' => Ok(Class::new(WORD)),
            's' => Ok(Class::new(SPACE)),
            'D' => Ok(Class::new(&Class::outside(DIGIT))),
            'W' => Ok(Class::new(&Class::outside(WORD))),
            'S' => Ok(Class::new(&Class::outside(SPACE))),
            't' => one('\t'),
            'n' => one('\n'),
            'v' => one('\u{b}'),
            'f' => one('\u{c}'),
            'r' => one('\r'),
            'b' if in_class => one('\u{8}'),
            '0' if !self.rest.peek().is_some_and(char::is_ascii_digit) => one('\0'),
            'x' => {
                self.code(2).and_then(|code| char::from_u32(code).ok_or("no character".into())).and_then(one)
            }
            'u' => self.unicode().and_then(one),
            'p' | 'P' => self.property(escape),
            other if other.is_ascii_alphanumeric() => Err(format!("the escape \\{other} is not supported")),
            other => one(other),
        }
    }

    fn code(&mut self, digits: usize) -> Result<u32, String> {
        let text: String = self.rest.by_ref().take(digits).collect();
        let hex = text.len() == digits && text.chars().all(|digit| digit.is_ascii_hexdigit());
        let code = hex.then(|| u32::from_str_radix(&text, 16).ok()).flatten();
        code.ok_or_else(|| format!("an escape needs {digits} hexadecimal digits"))
    }

    /// Reads four hex digits, or a surrogate pair.
    fn unicode(&mut self) -> Result<char, String> {
        let code = self.code(4)?;
        if (0xd800..0xdc00).contains(&code) && self.eat("\\u") {
            let low = self.code(4)?;
            if (0xdc00..0xe000).contains(&low) {
                return char::from_u32(0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00))
                    .ok_or("no character".into());
            }
        }
        char::from_u32(code).ok_or("half of a surrogate pair is no character".into())
    }

    fn property(&mut self, escape: char) -> Result<Class, String> {
        if !self.eat("{") {
            return Err("a Unicode property has no name".into());
        }
        let name: String = self.rest.by_ref().take_while(|&character| character != '}').collect();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '=') {
            return Err("a Unicode property has no name".into());
        }
        Ok(Class { properties: format!("\\{escape}{{{name}}}"), ..Class::default() })
    }

    /// Reads a class, after the opening bracket.
    fn class(&mut self) -> Result<Class, String> {
        let mut class = Class { negated: self.eat("^"), ..Class::default() };
        if self.rest.peek() == Some(&']') {
            return Err("a class begins with a bracket; escape it".into());
        }
        loop {
            let Some(first) = self.item()? else { return Ok(class) };
            let mut ahead = self.rest.clone();
            let range = ahead.next() == Some('-') && ahead.peek().is_some_and(|&next| next != ']');
            if !range {
                class.add(first);
                continue;
            }
            self.rest.next();
            let last = self.item()?.ok_or("a class has no end")?;
            match (first.single(), last.single()) {
                (Some(first), Some(last)) if first <= last => class.ranges.push((first, last)),
                (Some(_), Some(_)) => return Err("a range ends before it begins".into()),
                // A hyphen next to a class is literal.
                _ => {
                    class.ranges.push(('-', '-'));
                    class.add(first);
                    class.add(last);
                }
            }
        }
    }

    /// The next item of a class; `None` at its end.
    fn item(&mut self) -> Result<Option<Class>, String> {
        match self.rest.next().ok_or("a class has no end")? {
            ']' => Ok(None),
            '\\' => self.escape(true).map(Some),
            character => Ok(Some(Class::new(&[(character, character)]))),
        }
    }
}
