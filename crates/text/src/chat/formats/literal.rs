//! Literals as models write them: JSON, Python and Gemma's variant, all read by one parser.
//!
//! Strings are in double quotes, single quotes, three of them or between `<|"|>`; `true` and
//! `True`, `null` and `None` are the same; keys may be bare.

use serde_json::{Map, Number, Value};

/// Marks both ends of a string in Gemma's variant.
pub(super) const QUOTE: &str = "<|\"|>";
/// Python's marks of a string over several lines, which is taken verbatim.
const TRIPLE: [&str; 2] = ["\"\"\"", "'''"];
/// How deep values may nest.
const DEPTH: usize = 128;

/// The value that the whole text represents, ignoring surrounding whitespace.
pub(crate) fn value(text: &str) -> Option<Value> {
    let mut reader = LiteralReader { rest: text, depth: DEPTH };
    let value = reader.value().ok()?;
    reader.space();
    reader.rest.is_empty().then_some(value)
}

/// Whether the text is the beginning of a JSON value in brackets or quotes, but not all of it.
pub(super) fn unfinished(text: &str) -> bool {
    let mut reader = LiteralReader { rest: text, depth: DEPTH };
    text.trim_start().starts_with(['{', '[', '"']) && matches!(reader.value(), Err(Failure::Unfinished))
}

/// Why the beginning of a text could not be read.
#[derive(Debug, PartialEq)]
pub(super) enum Failure {
    /// The text may still become valid if more of it comes.
    Unfinished,
    /// It can't become what was expected.
    Wrong,
}

/// Reads the object `{…}` at the beginning of `text`; also returns its length.
pub(super) fn object(text: &str) -> Result<(Map<String, Value>, usize), Failure> {
    let mut reader = LiteralReader { rest: text, depth: DEPTH };
    let object = reader.items('{', '}', ':')?;
    Ok((object, text.len() - reader.rest.len()))
}

/// Reads Python's keyword arguments up to the closing parenthesis; also returns their length,
/// without the parenthesis.
pub(super) fn keywords(text: &str) -> Result<(Map<String, Value>, usize), Failure> {
    let mut reader = LiteralReader { rest: text, depth: DEPTH };
    let arguments = reader.items_until(')', '=')?;
    Ok((arguments, text.len() - reader.rest.len() - 1))
}

/// Reads one value at the beginning of `text`; also returns its length.
pub(super) fn prefix(text: &str) -> Result<(Value, usize), Failure> {
    let mut reader = LiteralReader { rest: text, depth: DEPTH };
    let value = reader.value()?;
    Ok((value, text.len() - reader.rest.len()))
}

struct LiteralReader<'a> {
    rest: &'a str,
    depth: usize,
}

type Read<T> = Result<T, Failure>;

impl<'a> LiteralReader<'a> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn peek(&self) -> Read<char> {
        self.rest.chars().next().ok_or(Failure::Unfinished)
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes the text; a mere beginning of it is unfinished, not wrong.
    fn take_all(&mut self, text: &str) -> Read<()> {
        match self.take(text) {
            true => Ok(()),
            false if text.starts_with(self.rest) => Err(Failure::Unfinished),
            false => Err(Failure::Wrong),
        }
    }

    fn value(&mut self) -> Read<Value> {
        self.space();
        self.depth = self.depth.checked_sub(1).ok_or(Failure::Wrong)?;
        let value = match self.peek()? {
            '{' => Value::Object(self.items('{', '}', ':')?),
            '[' => Value::Array(self.list()?),
            '"' | '\'' | '<' => Value::String(self.string()?),
            character if character.is_ascii_digit() || "-+.".contains(character) => self.number()?,
            _ => self.word()?,
        };
        self.depth += 1;
        Ok(value)
    }

    fn word(&mut self) -> Read<Value> {
        let letters = self.rest.find(|character: char| !character.is_alphanumeric() && character != '_');
        let (word, rest) = self.rest.split_at(letters.unwrap_or(self.rest.len()));
        let value = match word {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "None" => Value::Null,
            _ if letters.is_none() => return Err(Failure::Unfinished),
            _ => return Err(Failure::Wrong),
        };
        self.rest = rest;
        Ok(value)
    }

    fn number(&mut self) -> Read<Value> {
        let end =
            self.rest.find(|character: char| !character.is_ascii_digit() && !"+-.eE".contains(character));
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let number: Number = serde_json::from_str(digits).map_err(|_| match end {
            None => Failure::Unfinished,
            Some(_) => Failure::Wrong,
        })?;
        self.rest = rest;
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Read<String> {
        if self.peek()? == '<' {
            self.take_all(QUOTE)?;
            let (text, rest) = self.rest.split_once(QUOTE).ok_or(Failure::Unfinished)?;
            self.rest = rest;
            return Ok(text.to_owned());
        }
        for quotes in TRIPLE {
            if let Some(rest) = self.rest.strip_prefix(quotes) {
                let (text, rest) = rest.split_once(quotes).ok_or(Failure::Unfinished)?;
                self.rest = rest;
                return Ok(text.to_owned());
            }
        }
        let quote = self.peek()?;
        let mut text = String::new();
        let mut characters = self.rest[1..].chars();
        loop {
            match characters.next().ok_or(Failure::Unfinished)? {
                '\\' => escape(&mut characters, &mut text)?,
                character if character == quote => break,
                character => text.push(character),
            }
        }
        self.rest = characters.as_str();
        Ok(text)
    }

    fn list(&mut self) -> Read<Vec<Value>> {
        self.take_all("[")?;
        let mut list = Vec::new();
        loop {
            self.space();
            if self.take("]") {
                return Ok(list);
            }
            list.push(self.value()?);
            self.space();
            if !self.take(",") && self.peek()? != ']' {
                return Err(Failure::Wrong);
            }
        }
    }

    fn items(&mut self, open: char, close: char, between: char) -> Read<Map<String, Value>> {
        self.take_all(open.encode_utf8(&mut [0; 4]))?;
        self.items_until(close, between)
    }

    fn items_until(&mut self, close: char, between: char) -> Read<Map<String, Value>> {
        let (mut close_text, mut between_text) = ([0; 4], [0; 4]);
        let (close_text, between_text) =
            (close.encode_utf8(&mut close_text), between.encode_utf8(&mut between_text));
        let mut items = Map::new();
        loop {
            self.space();
            if self.take(close_text) {
                return Ok(items);
            }
            let key = self.key()?;
            self.space();
            self.take_all(between_text)?;
            items.insert(key, self.value()?);
            self.space();
            if !self.take(",") && self.peek()? != close {
                return Err(Failure::Wrong);
            }
        }
    }

    fn key(&mut self) -> Read<String> {
        if matches!(self.peek()?, '"' | '\'' | '<') {
            return self.string();
        }
        let bare = |character: char| character.is_alphanumeric() || "_-.$@/".contains(character);
        let end = self.rest.find(|character| !bare(character)).ok_or(Failure::Unfinished)?;
        let (key, rest) = self.rest.split_at(end);
        self.rest = rest;
        if key.is_empty() { Err(Failure::Wrong) } else { Ok(key.to_owned()) }
    }
}

/// Reads the character after a backslash.
fn escape(characters: &mut std::str::Chars, text: &mut String) -> Read<()> {
    let character = characters.next().ok_or(Failure::Unfinished)?;
    let meant = match character {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        '0' => '\0',
        'u' => {
            let high = unit(characters)?;
            if (0xd800..0xdc00).contains(&high) {
                let pair = characters.next() == Some('\\') && characters.next() == Some('u');
                let low = if pair { unit(characters)? } else { return Err(Failure::Wrong) };
                char::decode_utf16([high, low]).next().and_then(Result::ok).ok_or(Failure::Wrong)?
            } else {
                char::from_u32(u32::from(high)).ok_or(Failure::Wrong)?
            }
        }
        '\\' | '/' | '"' | '\'' => character,
        // Python keeps an unknown escape as it is.
        _ => {
            text.push('\\');
            character
        }
    };
    text.push(meant);
    Ok(())
}

fn unit(characters: &mut std::str::Chars) -> Read<u16> {
    let digits = characters.as_str().get(..4).ok_or(Failure::Unfinished)?;
    let unit = u16::from_str_radix(digits, 16).map_err(|_| Failure::Wrong)?;
    *characters = characters.as_str()[4..].chars();
    Ok(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_what_models_write() {
        let check = |text: &str, expected: Value| assert_eq!(value(text), Some(expected), "{text}");
        check("12", json!(12));
        check(" -1.5e3 ", json!(-1500.0));
        check("True", json!(true));
        check("[1, 'a', \"b\", None,]", json!([1, "a", "b", null]));
        check(r#"{"a": {'b': "\n\u00e9\ud83d\ude00"}}"#, json!({"a": {"b": "\né😀"}}));
        check(
            "{city:<|\"|>a \"b\" {c}<|\"|>,n:1,l:[<|\"|>x<|\"|>]}",
            json!({"city": "a \"b\" {c}", "n": 1, "l": ["x"]}),
        );
        for wrong in ["", "tru", "1 2", "[1", "{a}", "'a", "hello", "[1 2]", "\"\\ud83d\""] {
            assert_eq!(value(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tells_unfinished_from_wrong() {
        let text = r#"city="a)b", n=[1, {"x": True}]) rest"#;
        let (arguments, length) = keywords(text).unwrap();
        assert_eq!(Value::Object(arguments), json!({"city": "a)b", "n": [1, {"x": true}]}));
        assert_eq!(&text[length..], ") rest");
        for end in 0..length {
            assert_eq!(keywords(&text[..end]), Err(Failure::Unfinished), "{}", &text[..end]);
        }
        assert_eq!(keywords("a b"), Err(Failure::Wrong));
        assert_eq!(object("x"), Err(Failure::Wrong));
    }

    #[test]
    fn depth_is_bounded() {
        assert_eq!(value(&"[".repeat(100_000)), None);
    }
}
