//! Example texts: by format, by pattern, otherwise what a property of that name usually holds.

use std::iter::Peekable;
use std::ops::Range;
use std::str::Chars;

use serde_json::Value;

use super::{Keywords, count};

/// Formats of JSON Schema, section 7.3 of its validation vocabulary, and similar ones.
const FORMATS: [(&str, &str); 17] = [
    ("date-time", "2026-01-31T12:00:00Z"),
    ("date", "2026-01-31"),
    ("time", "12:00:00Z"),
    ("duration", "P1D"),
    ("email", "name@example.org"),
    ("idn-email", "name@example.org"),
    ("hostname", "example.org"),
    ("idn-hostname", "example.org"),
    ("ipv4", "192.0.2.1"),
    ("ipv6", "2001:db8::1"),
    ("uri", "https://example.org/"),
    ("url", "https://example.org/"),
    ("iri", "https://example.org/"),
    ("uri-reference", "/path"),
    ("uuid", "123e4567-e89b-42d3-a456-426614174000"),
    ("json-pointer", "/key"),
    ("regex", "[a-z]+"),
];

/// A text for `schema`, the schema of the property `name`.
pub(super) fn example(schema: &Keywords, name: &str) -> String {
    let least = count(schema, "minLength").unwrap_or(0);
    let most = count(schema, "maxLength").unwrap_or(usize::MAX);
    let word = |key: &str| schema.get(key).and_then(Value::as_str);
    let format = word("format").and_then(|format| FORMATS.iter().find(|(name, _)| *name == format));
    if let Some((_, text)) = format {
        return (*text).to_owned();
    }
    if let Some(text) = word("pattern").and_then(|pattern| matching(pattern, least..most.saturating_add(1))) {
        return text;
    }
    let text = usual(name);
    // Longer than any text of the table or with a minimum length.
    let enough = text.chars().count().max(least.min(LONGEST));
    text.chars().chain(" ".chars()).cycle().take(enough.min(most)).collect()
}

/// What a property of this name usually holds: by the whole name, otherwise by the last of its
/// known words.
/// Never the name itself, which small models would copy as the value.
fn usual(name: &str) -> &'static str {
    let known = |word: &str| {
        let fits =
            |names: &[&str]| names.contains(&word) || names.iter().any(|name| format!("{name}s") == word);
        VALUES.iter().find(|(names, _)| fits(names)).map(|(_, value)| *value)
    };
    let words = words(name);
    let value = known(&words.concat()).or_else(|| words.iter().rev().find_map(|word| known(word)));
    match value.unwrap_or("blue") {
        value if value == name => "green",
        value => value,
    }
}

/// The words of a name, in lower case: `dateFrom` and `date_from` both have two.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for character in name.chars() {
        if !character.is_alphanumeric() || character.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Values by common parameter names.
const VALUES: [(&[&str], &str); 32] = [
    (&["command", "cmd"], "ls -l"),
    (&["code", "script", "program"], "print(6 * 7)"),
    (&["path", "file", "filename", "source", "src", "input", "target"], "notes.txt"),
    (&["destination", "dest", "output"], "copy.txt"),
    (&["directory", "dir", "folder", "root", "cwd"], "documents"),
    (&["text", "content", "contents", "body", "message", "msg"], "Hello there"),
    (&["answer", "reply", "result", "summary"], "There are 12 of them."),
    (&["thought", "reason", "reasoning"], "First I look what is there."),
    (&["query", "q", "search", "keywords"], "rain in Paris"),
    (&["question"], "How many are there?"),
    (&["task", "instruction", "prompt", "goal", "request"], "Count the words of notes.txt"),
    (&["url", "uri", "link", "address", "endpoint"], "https://example.org/"),
    (&["email", "mail", "recipient", "to", "sender", "from"], "ada@example.org"),
    (&["name", "user", "username", "author", "owner", "person"], "Ada"),
    (&["title", "subject", "heading", "topic"], "Monthly report"),
    (&["city", "location", "place", "town", "where"], "Paris"),
    (&["country"], "France"),
    (&["street"], "12 Main Street"),
    (&["language", "lang", "locale"], "en"),
    (&["currency"], "EUR"),
    (&["unit"], "celsius"),
    (&["date", "day", "start", "end", "since", "until", "deadline"], "2026-01-31"),
    (&["time", "hour", "when"], "12:00"),
    (&["timezone", "tz", "zone"], "Europe/Paris"),
    (&["pattern", "regex", "regexp", "glob"], "error"),
    (&["old", "find", "before"], "cat"),
    (&["new", "replace", "replacement", "after"], "dog"),
    (&["id", "uid", "uuid", "number", "reference", "ref"], "a1b2c3"),
    (&["key", "field", "column", "property"], "color"),
    (&["tag", "label", "category", "type", "kind", "group"], "work"),
    (&["sql"], "SELECT count(*) FROM orders"),
    (&["repo", "repository", "project", "package"], "example/demo"),
];

/// The longest text produced for a minimum length, and the longest pattern examined.
const LONGEST: usize = 256;

/// A text that matches the regular expression `pattern` and whose length is in `lengths`.
/// `None` if the pattern uses more than sequences, alternatives, classes, groups and repetitions.
pub(super) fn matching(pattern: &str, lengths: Range<usize>) -> Option<String> {
    if pattern.len() > LONGEST {
        return None;
    }
    let mut rest = pattern.chars().peekable();
    let node = alternatives(&mut rest)?;
    if rest.next().is_some() {
        return None;
    }
    (0..=lengths.start.min(LONGEST)).find_map(|more| {
        let mut text = String::new();
        node.write(more, &mut text);
        lengths.contains(&text.chars().count()).then_some(text)
    })
}

enum Expression {
    One(char),
    All(Vec<Expression>),
    /// Repeats the expression at least and at most this many times.
    Times(Box<Expression>, usize, usize),
}

impl Expression {
    /// Appends a matching text, with up to `more` repetitions beyond the minimum.
    fn write(&self, more: usize, out: &mut String) {
        match self {
            Expression::One(character) => out.push(*character),
            Expression::All(nodes) => nodes.iter().for_each(|node| node.write(more, out)),
            Expression::Times(node, least, most) => {
                let times = least.saturating_add(more).min(*most).min(LONGEST);
                // Repetitions of repetitions multiply.
                for _ in 0..times {
                    if out.len() > LONGEST {
                        break;
                    }
                    node.write(0, out);
                }
            }
        }
    }
}

type Rest<'a> = Peekable<Chars<'a>>;

/// Parses alternatives up to a closing parenthesis or the end, and keeps the first.
fn alternatives(rest: &mut Rest) -> Option<Expression> {
    let first = sequence(rest)?;
    while rest.next_if_eq(&'|').is_some() {
        sequence(rest)?;
    }
    Some(first)
}

fn sequence(rest: &mut Rest) -> Option<Expression> {
    let mut nodes = Vec::new();
    while let Some(next) = rest.next_if(|next| !"|)".contains(*next)) {
        let node = match next {
            '^' | '$' => continue,
            '(' => group(rest)?,
            '[' => Expression::One(class(rest)?),
            '.' => Expression::One('a'),
            '\\' => match escaped(rest)? {
                Escape::Boundary => continue,
                Escape::One(character) => Expression::One(character),
            },
            character => Expression::One(character),
        };
        nodes.push(repeated(node, rest)?);
    }
    Some(Expression::All(nodes))
}

fn group(rest: &mut Rest) -> Option<Expression> {
    if rest.next_if_eq(&'?').is_some() {
        // Anything else is a lookaround or a named group.
        rest.next_if_eq(&':')?;
    }
    let node = alternatives(rest)?;
    rest.next_if_eq(&')')?;
    Some(node)
}

fn repeated(node: Expression, rest: &mut Rest) -> Option<Expression> {
    let (least, most) = match rest.peek() {
        Some('?') => (0, 1),
        Some('*') => (0, usize::MAX),
        Some('+') => (1, usize::MAX),
        Some('{') => {
            rest.next();
            let mut bounds = String::new();
            loop {
                match rest.peek()? {
                    '}' => break,
                    next => bounds.push(*next),
                }
                rest.next();
            }
            match bounds.split_once(',') {
                None => (bounds.parse().ok()?, bounds.parse().ok()?),
                Some((least, "")) => (least.parse().ok()?, usize::MAX),
                Some((least, most)) => (least.parse().ok()?, most.parse().ok()?),
            }
        }
        _ => return Some(node),
    };
    rest.next();
    // Lazy or not, the same texts match.
    rest.next_if_eq(&'?');
    Some(Expression::Times(Box::new(node), least, most))
}

enum Escape {
    Boundary,
    One(char),
}

fn escaped(rest: &mut Rest) -> Option<Escape> {
    let code = |rest: &mut Rest, digits: usize| {
        let code: String = rest.by_ref().take(digits).collect();
        u32::from_str_radix(&code, 16).ok().and_then(char::from_u32)
    };
    Some(Escape::One(match rest.next()? {
        'b' | 'B' | 'A' | 'z' | 'Z' => return Some(Escape::Boundary),
        'd' => '1',
        'w' | 'D' | 'S' => 'a',
        's' => ' ',
        'W' => '-',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'x' => code(rest, 2)?,
        'u' => code(rest, 4)?,
        'p' | 'P' | 'k' | '0'..='9' => return None,
        character => character,
    }))
}

/// A character of the class whose bracket has been opened; prefers letters and digits.
fn class(rest: &mut Rest) -> Option<char> {
    let negated = rest.next_if_eq(&'^').is_some();
    let mut ranges: Vec<(char, char)> = Vec::new();
    let mut first = true;
    loop {
        let begins = std::mem::replace(&mut first, false);
        let low = match rest.next()? {
            ']' if !begins => break,
            '\\' => match (rest.peek().copied(), escaped(rest)?) {
                (Some('d'), _) => {
                    ranges.push(('0', '9'));
                    continue;
                }
                (Some('w'), _) => {
                    ranges.extend([('a', 'z'), ('A', 'Z'), ('0', '9'), ('_', '_')]);
                    continue;
                }
                (_, Escape::One(character)) => character,
                (_, Escape::Boundary) => return None,
            },
            character => character,
        };
        let mut ahead = rest.clone();
        ahead.next();
        let high = match (rest.peek(), ahead.peek()) {
            (Some('-'), Some(high)) if *high != ']' && *high != '\\' => {
                let high = *high;
                rest.nth(1);
                high
            }
            _ => low,
        };
        ranges.push((low, high));
    }
    let contains = |character: &char| ranges.iter().any(|(low, high)| (low..=high).contains(&character));
    let common = "aA10bB_- .".chars().find(|character| contains(character) != negated);
    common.or_else(|| ranges.first().map(|(low, _)| *low).filter(|_| !negated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_match_patterns() {
        let check = |pattern: &str, lengths: Range<usize>, expected: Option<&str>| {
            assert_eq!(matching(pattern, lengths).as_deref(), expected, "{pattern}");
        };
        check("^[A-Z]{2}$", 0..99, Some("AA"));
        check(r"^\+?[0-9]{3,12}$", 5..6, Some("+1111"));
        check("^(foo|bar(-[0-9]+)?)$", 0..9, Some("foo"));
        check("^(?:(?:ab)+c)?d$", 0..9, Some("d"));
        check(r"^a\^\$\.\[\]?b$", 0..9, Some("a^$.[b"));
        check("^[^a-zA-Z]x$", 0..9, Some("1x"));
        check(r"^[\w|-|.]+@[\w]+\.[A-Za-z]{2,4}$", 0..99, Some("a@a.aa"));
        check("^[]a]-[a-]$", 0..9, Some("a-a"));
        check("[a-z]+", 4..9, Some("aaaa"));
        check("^(?=.*x)$", 0..9, None);
        check("^a$", 5..9, None);
        check("(", 0..9, None);
        check("a{2", 0..9, None);
        check("^x{99999999999}$", 0..9, None);
    }

    #[test]
    fn texts_have_their_format_and_length() {
        let check = |schema: Value, expected: &str| {
            assert_eq!(example(schema.as_object().unwrap(), "path"), expected);
        };
        use serde_json::json;
        check(json!({}), "notes.txt");
        check(json!({"maxLength": 2}), "no");
        check(json!({"minLength": 12}), "notes.txt no");
        check(json!({"format": "date"}), "2026-01-31");
        check(json!({"format": "color"}), "notes.txt");
    }
}
