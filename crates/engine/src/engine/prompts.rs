//! Shows prompts token by token, to inspect what a model reads; the weights aren't needed.

use alara_text::chat::formats::Format;
use alara_text::gguf::Gguf;
use alara_text::request::Request;
use alara_text::tokenizer::TokenKind;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::segments::Renderer;
use super::{Engine, Options};
use crate::offload::Offload;
use crate::{Error, Result};

/// A token of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptToken {
    /// The token's id.
    pub id: u32,
    /// Its bytes in text, which may be part of a character, or its name.
    pub bytes: Vec<u8>,
    /// Whether it is a special token inserted by the template or the tokenizer: equal text in a
    /// message consists of ordinary tokens.
    pub special: bool,
}

impl Engine {
    /// The tokens of the answer that `request` contains, as they appear in the prompts of later
    /// turns; empty without one.
    ///
    /// # Errors
    /// As [`Engine::prompt_tokens`].
    pub fn answer_tokens(&self, request: &Request) -> Result<Vec<u32>> {
        let Some(answer) = &request.answer else { return Ok(Vec::new()) };
        self.renderer(request)?.answer(&self.completed(request), answer, &self.prompt_tokens(request)?)
    }

    /// The renderer of prompts; an encoder has none.
    pub(super) fn renderer<'r>(&'r self, request: &'r Request) -> Result<Renderer<'r>> {
        if self.encoder {
            return Err(Error::Encoder { model: self.name.clone() });
        }
        let (template, format) = match &request.tool_format {
            Some(name) if self.format.is_none_or(|format| format.name != name) => self.described(name)?,
            _ => (&self.template, self.format.unwrap_or(Format::generic())),
        };
        let now = Timestamp::now().to_zoned(TimeZone::UTC).datetime();
        let (tokenizer, control, until) = (&*self.tokenizer, &*self.control, &request.until);
        Ok(Renderer { template, format, tokenizer, control, now, until })
    }

    /// The rendered prompt for `request`, token by token.
    ///
    /// # Errors
    /// As [`Engine::prompt_tokens`].
    pub fn prompt_pieces(&self, request: &Request) -> Result<Vec<PromptToken>> {
        Ok(self.pieces(self.prompt_tokens(request)?))
    }

    fn pieces(&self, tokens: Vec<u32>) -> Vec<PromptToken> {
        let piece = |id| PromptToken {
            id,
            bytes: self.tokenizer.token_bytes(id).to_vec(),
            special: !matches!(self.tokenizer.kind(id), TokenKind::Normal | TokenKind::Byte),
        };
        tokens.into_iter().map(piece).collect()
    }
}

/// Renders the prompts of a model with its vocabulary, chat template and tool format.
/// Doesn't load the weights.
pub struct Prompts(Engine);

impl Prompts {
    /// Prepares rendering for the model in `gguf`.
    /// Uses the options that affect an [`Engine`]'s prompts.
    ///
    /// # Errors
    /// If the architecture, tokenizer or template is missing, unknown or invalid.
    pub fn load(gguf: &Gguf, options: &Options) -> Result<Self> {
        let options = Options { offload: Offload::cpu(), memory: None, ..options.clone() };
        // The thread does nothing.
        let engine = Engine::load_by(gguf, &options, |_, _| Ok((std::thread::spawn(|| {}), false)))?;
        Ok(Prompts(engine))
    }

    /// The rendered prompt for `request` at the time `now` (UTC), token by token.
    ///
    /// # Errors
    /// As [`Engine::prompt_tokens`].
    pub fn pieces(&self, request: &Request, now: DateTime) -> Result<Vec<PromptToken>> {
        let renderer = Renderer { now, ..self.0.renderer(request)? };
        let (_, tokens) = renderer.prompt(&self.0.completed(request))?;
        Ok(self.0.pieces(tokens))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use alara_text::request::{Message, Segment};

    #[test]
    fn without_weights_a_prompt_is_the_same() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/alara-tiny.gguf");
        let gguf = Gguf::open(&file).unwrap();
        let engine = Engine::load(&gguf, &Options::default()).unwrap();
        let request = Request {
            system: vec![Segment { name: "directive".into(), text: "Be brief.".into() }],
            messages: vec![Message::user("What does <|im_end|> mean, and é?")],
            ..Request::default()
        };
        let now = jiff::civil::date(2026, 7, 1).at(12, 0, 0, 0);
        let pieces = Prompts::load(&gguf, &Options::default()).unwrap().pieces(&request, now).unwrap();
        assert_eq!(pieces, engine.prompt_pieces(&request).unwrap());
        let ids: Vec<u32> = pieces.iter().map(|piece| piece.id).collect();
        assert_eq!(ids, engine.prompt_tokens(&request).unwrap());
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.clone()).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), engine.prompt(&request).unwrap());
        // One in a message is text.
        let ends = pieces.iter().filter(|piece| piece.special && piece.bytes == b"<|im_end|>");
        assert_eq!(ends.count(), 2);
    }

    #[test]
    fn a_prompt_has_the_time_of_its_turn() {
        let case =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch/qwen3-exact/model.gguf");
        let template = "{{ strftime_now('%Y') }}: {{ messages[0].content }}";
        let options = Options { chat_template: Some(template.to_owned()), ..Options::default() };
        let prompts = Prompts::load(&Gguf::open(&case).unwrap(), &options).unwrap();
        let request = Request { messages: vec![Message::user("hi")], ..Request::default() };
        let pieces = prompts.pieces(&request, jiff::civil::date(1999, 7, 1).at(12, 0, 0, 0)).unwrap();
        let bytes: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.bytes).collect();
        assert_eq!(String::from_utf8_lossy(&bytes), "1999: hi");
    }
}
