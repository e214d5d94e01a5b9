//! JSON as Python prints it.
//!
//! Chat templates were written for Python's `json.dumps`, and the prompts that models were trained
//! on have its separators and number formats.
//! Prompts and generated calls use the same printer, so that they can be compared byte by byte.
//! Knows nothing of templates or calls.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter};

use crate::jinja::float;

/// Options of `json.dumps`; the default matches Hugging Face's `tojson`.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    /// Text of one level of indentation; `None` = everything on one line.
    pub indent: Option<String>,
    /// Between items; `None` = `", "`, or `","` where each item has its own line.
    pub item_separator: Option<String>,
    /// Between a key and its value.
    pub key_separator: String,
    /// Whether characters beyond ASCII are written as `\uXXXX`.
    pub ascii: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style { indent: None, item_separator: None, key_separator: ": ".into(), ascii: false }
    }
}

/// `value` on one line with the separators `", "` and `": "`.
pub fn dumps(value: &impl Serialize) -> serde_json::Result<String> {
    dumps_styled(value, &Style::default())
}

/// Renders `value` in the given style.
/// Fails on map keys that are not strings and on values that JSON can't represent.
pub(crate) fn dumps_styled(value: &impl Serialize, style: &Style) -> serde_json::Result<String> {
    let mut text = Vec::new();
    let printer = Printer { style, level: 0, has_items: false };
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, printer))?;
    String::from_utf8(text).map_err(|error| serde::ser::Error::custom(error.to_string()))
}

struct Printer<'a> {
    style: &'a Style,
    level: usize,
    has_items: bool,
}

impl Printer<'_> {
    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.level += 1;
        self.has_items = false;
        out.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.level -= 1;
        if self.has_items {
            self.line(out)?;
        }
        self.has_items = true;
        out.write_all(bracket)
    }

    fn item<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.has_items = true;
        if !first {
            let default = if self.style.indent.is_some() { "," } else { ", " };
            out.write_all(self.style.item_separator.as_deref().unwrap_or(default).as_bytes())?;
        }
        self.line(out)
    }

    fn line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        let Some(indent) = &self.style.indent else { return Ok(()) };
        out.write_all(b"\n")?;
        (0..self.level).try_for_each(|_| out.write_all(indent.as_bytes()))
    }
}

impl Formatter for Printer<'_> {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.style.key_separator.as_bytes())
    }

    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        out.write_all(float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        if !self.style.ascii || text.is_ascii() {
            return out.write_all(text.as_bytes());
        }
        for unit in text.encode_utf16() {
            match u8::try_from(unit) {
                Ok(byte) if byte.is_ascii() => out.write_all(&[byte])?,
                _ => write!(out, "\\u{unit:04x}")?,
            }
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, out: &mut W, escape: CharEscape) -> io::Result<()> {
        use CharEscape::{
            AsciiControl, Backspace, CarriageReturn, FormFeed, LineFeed, Quote, ReverseSolidus, Solidus, Tab,
        };
        match escape {
            Quote => out.write_all(b"\\\""),
            ReverseSolidus => out.write_all(b"\\\\"),
            Solidus => out.write_all(b"/"),
            Backspace => out.write_all(b"\\b"),
            FormFeed => out.write_all(b"\\f"),
            LineFeed => out.write_all(b"\\n"),
            CarriageReturn => out.write_all(b"\\r"),
            Tab => out.write_all(b"\\t"),
            AsciiControl(byte) => write!(out, "\\u{byte:04x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn prints_as_python_does() {
        let check = |value: serde_json::Value, expected: &str| assert_eq!(dumps(&value).unwrap(), expected);
        check(json!({"a": [1, true, null], "b": {}}), r#"{"a": [1, true, null], "b": {}}"#);
        check(json!("<é & \"\\\n\u{1}\u{7f}\u{2028}>"), "\"<é & \\\"\\\\\\n\\u0001\u{7f}\u{2028}>\"");
        check(json!([]), "[]");
    }

    #[test]
    fn indents_and_escapes_on_request() {
        let style = Style { indent: Some("    ".into()), ..Style::default() };
        let text = dumps_styled(&json!({"a": [1, 2], "b": [], "c": {}}), &style).unwrap();
        assert_eq!(text, "{\n    \"a\": [\n        1,\n        2\n    ],\n    \"b\": [],\n    \"c\": {}\n}");
        let style = Style { ascii: true, ..Style::default() };
        assert_eq!(dumps_styled(&json!("aé😀"), &style).unwrap(), r#""a\u00e9\ud83d\ude00""#);
    }
}
