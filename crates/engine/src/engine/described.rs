//! The formats of calls that prompts describe, for requests that ask for another than the model's.

use std::sync::OnceLock;

use alara_text::chat::ChatTemplate;
use alara_text::chat::formats::Format;

use super::Engine;
use crate::{Error, Result};

/// A format and the template that describes it, which is made when it is first asked for.
pub(super) type Described = (&'static Format, OnceLock<ChatTemplate>);

/// All of them.
pub(super) fn described() -> Vec<Described> {
    let all = Format::all().iter().filter(|format| format.described());
    all.map(|format| (*format, OnceLock::new())).collect()
}

impl Engine {
    /// The template with calls in a format that the prompt describes.
    pub(super) fn described(&self, name: &str) -> Result<(&ChatTemplate, &'static Format)> {
        let found = self.described.iter().find(|(format, _)| format.name == name);
        let Some((format, template)) = found else {
            let names: Vec<&str> = self.described.iter().map(|(format, _)| format.name).collect();
            let reason =
                format!("tool_format is `{name}`, but the prompt describes only {}", names.join(", "));
            return Err(Error::InvalidRequest { reason });
        };
        let template = template.get_or_init(|| {
            let marks: Vec<&str> = self.tokenizer.marks().collect();
            self.template.clone().with_calls(format).with_marks(marks.iter().copied())
        });
        Ok((template, format))
    }
}
