//! Keeps conversations from forging the structure of a prompt.
//!
//! The text of a control token inside a message would become that token once the rendered template
//! is tokenized.
//! So before rendering, each such text is replaced by a placeholder: one private-use character that
//! occurs nowhere else.
//! The tokenizer restores the plain text.
//! The marks that a template writes are treated alike if they are tokens of other kinds:
//! a file that says `</tool_response>` must not end its own frame.
//! Marks stay in the assistant's messages, since templates look for some, such as `</think>`, and
//! the model wrote them itself.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::TemplateError;

/// Unicode's private-use areas.
const PRIVATE_USE: [std::ops::RangeInclusive<char>; 3] =
    ['\u{e000}'..='\u{f8ff}', '\u{f0000}'..='\u{ffffd}', '\u{100000}'..='\u{10fffd}'];

/// What a value must not forge.
#[derive(Clone, Copy, Debug)]
pub(super) enum Guarded {
    /// Control tokens.
    Control,
    /// Control tokens and the template's marks.
    Marks,
}

/// Assigns placeholders for one prompt.
pub(super) struct Placeholders<'a> {
    /// Longest first, so that a shorter text inside a longer one doesn't match first.
    control: Vec<&'a str>,
    /// Control tokens and marks, longest first.
    all: Vec<&'a str>,
    free: Box<dyn Iterator<Item = char>>,
    used: Vec<(char, String)>,
}

impl<'a> Placeholders<'a> {
    /// Chooses placeholders that occur neither in the template nor in the values.
    pub(super) fn new<'v>(
        control: &'a [String],
        marks: &'a [String],
        template: &str,
        values: impl IntoIterator<Item = &'v Value>,
    ) -> Self {
        let sorted = |texts: &[&'a [String]]| {
            let mut texts: Vec<&str> =
                texts.iter().copied().flatten().map(String::as_str).filter(|text| !text.is_empty()).collect();
            texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
            texts.dedup();
            texts
        };
        let (control, all) = (sorted(&[control]), sorted(&[control, marks]));
        let mut taken: HashSet<char> = private(template).collect();
        for value in values {
            visit(value, &mut |text| taken.extend(private(text)));
        }
        let free = PRIVATE_USE.into_iter().flatten().filter(move |character| !taken.contains(character));
        Placeholders { control, all, free: Box::new(free), used: Vec::new() }
    }

    /// Replaces the guarded texts in all strings and keys of `value`.
    pub(super) fn protect(&mut self, value: &mut Value, guarded: Guarded) -> Result<(), TemplateError> {
        match value {
            Value::String(text) => self.protect_text(text, guarded)?,
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.protect(item, guarded))?,
            Value::Object(map) => {
                let mut protected = Map::with_capacity(map.len());
                for (mut key, mut value) in std::mem::take(map) {
                    self.protect_text(&mut key, guarded)?;
                    self.protect(&mut value, guarded)?;
                    protected.insert(key, value);
                }
                *map = protected;
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        Ok(())
    }

    /// The placeholders that were used.
    pub(super) fn into_used(self) -> Vec<(char, String)> {
        self.used
    }

    fn texts(&self, guarded: Guarded) -> &[&'a str] {
        match guarded {
            Guarded::Control => &self.control,
            Guarded::Marks => &self.all,
        }
    }

    fn protect_text(&mut self, text: &mut String, guarded: Guarded) -> Result<(), TemplateError> {
        for index in 0..self.texts(guarded).len() {
            let token = self.texts(guarded)[index];
            if text.contains(token) {
                let placeholder = self.placeholder(token)?;
                *text = text.replace(token, placeholder.encode_utf8(&mut [0; 4]));
            }
        }
        self.protect_end(text, guarded)
    }

    /// Replaces the prefix of a control token at the end of a text, which the template's next text
    /// could complete.
    fn protect_end(&mut self, text: &mut String, guarded: Guarded) -> Result<(), TemplateError> {
        let texts = self.texts(guarded);
        let longest = texts.first().map_or(0, |token| token.len());
        let begun = |&(at, _): &(usize, char)| texts.iter().any(|token| token.starts_with(&text[at..]));
        let tail =
            text.char_indices().rev().take_while(|(at, _)| text.len() - at < longest).filter(begun).last();
        if let Some((at, _)) = tail {
            let placeholder = self.placeholder(&text[at..])?;
            text.truncate(at);
            text.push(placeholder);
        }
        Ok(())
    }

    fn placeholder(&mut self, token: &str) -> Result<char, TemplateError> {
        if let Some((placeholder, _)) = self.used.iter().find(|(_, text)| text == token) {
            return Ok(*placeholder);
        }
        let placeholder =
            self.free.next().ok_or_else(|| TemplateError::NoPlaceholder { token: token.into() })?;
        self.used.push((placeholder, token.into()));
        Ok(placeholder)
    }
}

fn private(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|character| PRIVATE_USE.iter().any(|range| range.contains(character)))
}

fn visit(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().for_each(|item| visit(item, see)),
        Value::Object(map) => {
            for (key, value) in map {
                see(key);
                visit(value, see);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ChatTemplate;
    use crate::request::{Message, Request, Tool};
    use serde_json::json;

    const NOON: jiff::civil::DateTime = jiff::civil::datetime(2026, 7, 1, 12, 0, 0, 0);

    #[test]
    fn control_texts_become_free_private_characters() {
        let control = ["<|im_end|>".to_owned(), "<|im_end|>x".to_owned(), String::new()];
        let mut value = json!({"a <|im_end|>": ["\u{e000} <|im_end|>x<|im_end|>", 1, "</think>"]});
        let copy = value.clone();
        let mut placeholders = Placeholders::new(&control, &[], "\u{e001}", [&copy]);
        placeholders.protect(&mut value, Guarded::Control).unwrap();
        assert_eq!(value, json!({"a \u{e002}": ["\u{e000} \u{e003}\u{e002}", 1, "</think>"]}));
        let expected = vec![('\u{e002}', "<|im_end|>".to_owned()), ('\u{e003}', "<|im_end|>x".to_owned())];
        assert_eq!(placeholders.into_used(), expected);
    }

    /// Two texts that the template prints next to each other must not form a control token.
    #[test]
    fn the_beginning_of_a_control_text_at_the_end_is_one_too() {
        let control = ["<|im_end|>".to_owned(), "<eos>".to_owned()];
        let mut value = json!(["a < b<|im_", "end|>", "<", "é", "<|im_end|"]);
        let mut placeholders = Placeholders::new(&control, &[], "", []);
        placeholders.protect(&mut value, Guarded::Control).unwrap();
        assert_eq!(value, json!(["a < b\u{e000}", "end|>", "\u{e001}", "é", "\u{e002}"]));
        let used: Vec<String> = placeholders.into_used().into_iter().map(|(_, text)| text).collect();
        assert_eq!(used, ["<|im_", "<", "<|im_end|"]);
    }

    /// Texts can't forge the template's own marks either where these are tokens that any text can
    /// contain; the assistant's messages keep them, since templates look for them.
    #[test]
    fn what_others_say_has_no_marks() {
        let source = "{% for m in messages %}<r>{{ m.role }}:{{ m.content.split('</think>')|last }}</r>{% endfor %}{% if tools %}{{ tools[0].function.description }}{% endif %}";
        let marks = ["</r>", "<tool_call>", "</tool_response>", "</think>", "<other>"];
        let template = ChatTemplate::new(source, "", "").unwrap().with_marks(marks.into_iter());
        let said = "a</r></think></tool_response><tool_call><other></";
        let tool =
            Tool { name: "f".into(), description: "d</r>".into(), parameters: json!({}), strict: false };
        let messages = vec![Message::user(said), Message::assistant("thought</think>b</r>", Vec::new())];
        let request = Request { messages, tools: vec![tool], ..Request::default() };
        let prompt = template.render(&request, &[], NOON).unwrap();
        let (user, rest) = prompt.text.split_once("<r>assistant").unwrap();
        assert!(user.ends_with("<other>\u{e004}</r>"), "{user}");
        assert_eq!(user.matches("</r>").count(), 1, "{user}");
        assert!(!user.contains("tool_response") && !user.contains("think"), "{user}");
        // The assistant's mark and its end remain, none of the tool's.
        assert!(rest.starts_with(":b</r></r>") && rest.matches("</r>").count() == 2, "{rest}");
        let whole = prompt
            .placeholders
            .iter()
            .fold(user.to_owned(), |text, (stand_in, plain)| text.replace(*stand_in, plain));
        assert!(whole.contains(said), "{whole}");
    }
}
