//! Limits on a grammar that are checked before llguidance reads it, which can't be interrupted.
//!
//! Its cost can be estimated from the text: llguidance compares each mention of a lexeme with all
//! lexemes, follows rules on the stack, and expands each character of an expression.
//! A text within these limits takes a fraction of a second.

use std::collections::{HashMap, HashSet};

/// Size limit of a generated grammar, in bytes.
pub(super) const LONGEST: usize = 4 << 20;
/// Size limit of a client's grammar, in bytes.
const GIVEN: usize = 1 << 20;
/// Limit of mentions of lexemes in rules times lexemes: for example 6,000 mentioned once each.
const COMPARISONS: usize = 40_000_000;
/// Size limit of all expressions in a client's grammar, in bytes; a class such as `\w` counts for
/// several hundred, since it has some hundred ranges.
const EXPRESSIONS: usize = 1 << 18;
const CLASS: usize = 100;
/// Parts of a grammar that may be left out or repeated: what follows each of many may come at any
/// of them, so that the work grows by the square.
const QUANTIFIERS: usize = 2000;
/// How deep rules may nest.
const DEPTH: usize = 400;

/// Checks that llguidance can process a Lark grammar quickly.
///
/// # Errors
/// The exceeded limit.
pub(super) fn check(lark: &str) -> Result<(), String> {
    if lark.len() > LONGEST {
        return Err(format!("it is longer than {} MiB", LONGEST >> 20));
    }
    Measure::of(lark).check()
}

/// Checks the limits for a client's grammar.
///
/// # Errors
/// As [`check`].
pub(super) fn check_given(lark: &str) -> Result<(), String> {
    check_size(lark)?;
    let measure = Measure::of(lark);
    if measure.expressions > EXPRESSIONS {
        let has = measure.expressions;
        return Err(format!(
            "its regular expressions have {has} bytes, each class such as \\w counted as {CLASS}; the most is \
             {EXPRESSIONS}"
        ));
    }
    if measure.quantifiers > QUANTIFIERS {
        return Err(format!(
            "{} of its parts may be left out or repeated (`?`, `*`, `+`); the most is {QUANTIFIERS}",
            measure.quantifiers
        ));
    }
    measure.check()
}

/// Checks the size limit for a client's grammar.
///
/// # Errors
/// If the text is too long.
pub(super) fn check_size(text: &str) -> Result<(), String> {
    match text.len() > GIVEN {
        true => Err(format!("it has {} bytes; the most is {} MiB", text.len(), GIVEN >> 20)),
        false => Ok(()),
    }
}

/// The size of a Lark grammar.
#[derive(Debug, Default, PartialEq)]
struct Measure {
    /// Number of lexemes, and of their mentions in rules.
    lexemes: usize,
    mentions: usize,
    /// Bytes of expressions, weighted by the cost of compiling them.
    expressions: usize,
    /// Parts that may be left out or repeated.
    quantifiers: usize,
    /// Nesting depth of rules.
    depth: usize,
}

/// A token of Lark's syntax.
enum Piece<'t> {
    Text(&'t str),
    Expression(&'t str),
    /// Text with a syntax of its own follows: a schema, or the text of an expression.
    Embedded,
    Name(&'t str),
    Colon,
    Line,
    Quantifier,
    Other,
}

impl Measure {
    fn of<'t>(lark: &'t str) -> Measure {
        let mut measure = Measure::default();
        let (mut lexemes, mut mentioned) = (HashSet::new(), HashMap::<&str, Vec<&str>>::new());
        // The name that a line begins with, and the name being defined.
        let (mut first, mut defined) = (None, "");
        let (mut at_begin, mut embedded) = (true, false);
        for piece in pieces(lark).chain([Piece::Line]) {
            let begins = at_begin;
            // `?` may stand before a name that is defined.
            at_begin = matches!(piece, Piece::Line) || (begins && matches!(piece, Piece::Quantifier));
            let mut mention = |lexeme: &'t str| {
                measure.mentions += 1;
                lexemes.insert(lexeme);
            };
            let name = match piece {
                Piece::Name(name) if begins => {
                    first = Some(name);
                    None
                }
                Piece::Name(name) => Some(name),
                // The line defined nothing.
                Piece::Line => first.take(),
                _ => None,
            };
            if let Some(name) = name {
                mentioned.entry(defined).or_default().push(name);
                if is_terminal(name) && !is_terminal(defined) {
                    mention(name);
                }
            }
            match piece {
                Piece::Text(text) | Piece::Expression(text) if !is_terminal(defined) => mention(text),
                Piece::Embedded => embedded = true,
                Piece::Colon => defined = first.take().unwrap_or(defined),
                _ => {}
            }
            match piece {
                Piece::Expression(text) => {
                    measure.expressions += weight(text);
                    measure.quantifiers += quantifiers(text);
                }
                Piece::Text(text) if embedded => measure.expressions += weight(text),
                Piece::Quantifier if !begins => measure.quantifiers += 1,
                _ => {}
            }
        }
        measure.lexemes = lexemes.len();
        measure.depth = depth(&mentioned);
        measure
    }

    fn check(&self) -> Result<(), String> {
        let Measure { lexemes, mentions, depth, .. } = self;
        if lexemes.saturating_mul(*mentions) > COMPARISONS {
            return Err(format!(
                "its rules mention {lexemes} different texts and expressions {mentions} times, which is too much; \
                 put texts that stand side by side into one rule with an upper-case name"
            ));
        }
        if *depth > DEPTH {
            return Err(format!("its rules mention each other {depth} deep; the most is {DEPTH}"));
        }
        Ok(())
    }
}

/// The bytes of an expression, with classes of many ranges weighted higher.
fn weight(expression: &str) -> usize {
    let pairs = expression.as_bytes().windows(2);
    let classes = pairs.filter(|pair| pair[0] == b'\\' && b"wWpPdDsSbB".contains(&pair[1]));
    expression.len() + CLASS * classes.count()
}

/// How many parts of an expression may be left out or repeated.
fn quantifiers(expression: &str) -> usize {
    let (mut count, mut before) = (0, '(');
    for letter in expression.chars() {
        // What follows `(` is a flag, and what follows a quantifier says how greedy that is.
        count += usize::from("?*+".contains(letter) && !"(?*+\\".contains(before));
        before = if before == '\\' { ' ' } else { letter };
    }
    count
}

fn is_terminal(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|first: char| first.is_ascii_uppercase())
}

/// How deep llguidance recurses into names, following its order.
fn depth(mentioned: &HashMap<&str, Vec<&str>>) -> usize {
    let mut seen = HashSet::from(["start"]);
    // The path to the current name, each entry with the names still to be followed.
    let mut way = vec![mentioned.get("start").map(|names| names.iter()).unwrap_or_default()];
    let mut deepest = 1;
    while let Some(names) = way.last_mut() {
        match names.next() {
            Some(&name) if seen.insert(name) => {
                way.push(mentioned.get(name).map(|names| names.iter()).unwrap_or_default());
                deepest = deepest.max(way.len());
            }
            Some(_) => {}
            None => drop(way.pop()),
        }
    }
    deepest
}

/// The pieces of a text as llguidance's lexer splits it; other text is skipped.
fn pieces(lark: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &lark[at..];
            let letter = rest.chars().next()?;
            let (length, piece) = match letter {
                '\n' => (1, Some(Piece::Line)),
                '#' => (rest.find('\n').unwrap_or(rest.len()), None),
                '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), None),
                '/' => {
                    let length = literal(rest, letter);
                    (length, Some(Piece::Expression(&rest[..length])))
                }
                '"' => {
                    let length = literal(rest, letter);
                    (length, Some(Piece::Text(&rest[..length])))
                }
                // A token by name or id.
                '<' => {
                    let length = rest[1..].find(|c: char| c.is_whitespace() || "<>".contains(c));
                    let end = length.map_or(rest.len(), |length| length + 1);
                    let length = if rest[end..].starts_with('>') { end + 1 } else { 1 };
                    (length, Some(Piece::Other))
                }
                ':' if rest.starts_with("::") => (2, None),
                ':' => (1, Some(Piece::Colon)),
                '%' => {
                    let length = 1 + name(&rest[1..]);
                    let embedded = matches!(&rest[..length], "%json" | "%regex");
                    (length, Some(if embedded { Piece::Embedded } else { Piece::Other }))
                }
                '@' => (1 + name(&rest[1..]), Some(Piece::Other)),
                c if c.is_ascii_alphabetic() || c == '_' => {
                    let length = name(rest);
                    (length, Some(Piece::Name(&rest[..length])))
                }
                // At the begin of a line it stands before a name that is defined.
                '?' | '*' | '+' => (1, Some(Piece::Quantifier)),
                '!' => (1, None),
                c if c.is_whitespace() => (c.len_utf8(), None),
                c => (c.len_utf8(), Some(Piece::Other)),
            };
            at += length;
            if let Some(piece) = piece {
                return Some(piece);
            }
        }
    })
}

fn name(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c)).unwrap_or(text.len())
}

/// Length of a literal that ends with its first character, skipping escapes.
fn literal(text: &str, end: char) -> usize {
    let mut escaped = true;
    for (at, letter) in text.char_indices() {
        if letter == end && !escaped {
            return at + 1;
        }
        // Skip the opening character.
        escaped = letter == '\\' && !escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_grammar_has() {
        let check = |lark: &str, lexemes: usize, mentions: usize, expressions: usize, depth: usize| {
            let measure = Measure { quantifiers: 0, ..Measure::of(lark) };
            assert_eq!(measure, Measure { lexemes, mentions, expressions, quantifiers: 0, depth }, "{lark}");
        };
        check("start: \"a\" | \"b\" | \"a\"", 2, 3, 0, 1);
        check("start: A b\nA: \"x\" | /y\\/z/ | \"w\"\nb: A+ \"x\"", 2, 3, 6, 2);
        check("start: (\nA\n| B)", 2, 2, 0, 2);
        check("start: /\\w\\d/ %regex {\"substring_chars\": \"abc\"}", 3, 3, 6 + 200 + 17 + 5, 1);
        // Non-literals: comments, tokens with a quote, escapes.
        check("start: <\"> \"a\" # \"b\"\n// \"c\" /d/\n", 1, 1, 0, 1);
        check("start: </> \"a\" \"\\\"b\" <#> \"c\"", 3, 3, 0, 1);
        check("start: b\nb[suffix=\"x\"]: /y/\n?c: start", 2, 2, 3, 2);
        check("start: a\na: b | c\nb: c\nc: start\n  | \"x\"", 1, 1, 0, 4);
        check("start: \"a\" \"unfinished", 2, 2, 0, 1);
    }

    #[test]
    fn parts_that_may_be_left_out() {
        let check = |lark: &str, expected| assert_eq!(Measure::of(lark).quantifiers, expected, "{lark}");
        check("start: /a?b*c+/", 3);
        check("start: /(?i:a)??\\?\\*/", 1);
        check("start: \"a\"? b* (c | \"?\")+", 3);
        check("?start: \"a\"\n?b: \"c\"", 0);
    }

    #[test]
    fn what_takes_llguidance_long_is_refused() {
        let refused = |lark: &str, expected: &str| {
            let message = check_given(lark).unwrap_err();
            assert!(message.contains(expected), "{message}");
        };
        let texts: Vec<String> = (0..10_000).map(|index| format!("\"v{index}\"")).collect();
        refused(&format!("start: {}", texts.join(" | ")), "10000 different texts");
        assert_eq!(check_given(&format!("start: A\nA: {}", texts.join(" | "))), Ok(()));
        let chain: Vec<String> = (0..1000).map(|index| format!("r{index}: r{}", index + 1)).collect();
        refused(&format!("start: r0\n{}\nr1000: \"a\"", chain.join("\n")), "1002 deep");
        refused(&format!("start: /{}/", "\\w".repeat(3_000)), "306002 bytes");
        refused(&format!("start: %regex {{\"substring_chars\": \"{}\"}}", "ab".repeat(200_000)), "400");
        refused(&"x".repeat(GIVEN + 1), "1 MiB");
        refused(&format!("start: /{}{}/", "a?".repeat(20_000), "a".repeat(20_000)), "20000 of its parts");
        refused(&format!("start: {}", "\"a\"? ".repeat(3_000)), "3000 of its parts");
    }
}
