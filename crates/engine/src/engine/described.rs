//! The call formats that prompts describe, for requests that ask for one other than the model's.

use std::sync::OnceLock;

use alara_text::chat::ChatTemplate;
use alara_text::chat::formats::Format;

use super::Engine;
use crate::{Error, Result};

/// A format and the template that describes it, created on first use.
pub(super) type Described = (&'static Format, OnceLock<ChatTemplate>);

/// All formats that prompts can describe.
pub(super) fn described() -> Vec<Described> {
    let all = Format::all().iter().filter(|format| format.described());
    all.map(|format| (*format, OnceLock::new())).collect()
}

impl Engine {
    /// The template for calls in a described format.
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
