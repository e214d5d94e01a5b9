//! Checks that a request is consistent, and fits the model.

use alara_text::chat::formats::Format;
use alara_text::grammar::Constraint;
use alara_text::request::Request;
use alara_text::tokenizer::Tokenizer;

use crate::{Error, Result};

/// Refuses a request that contradicts itself.
pub(super) fn consistent(request: &Request) -> Result<()> {
    let invalid = |reason: &str| Err(Error::InvalidRequest { reason: reason.into() });
    let shaped = request.schema.is_some() || request.grammar.is_some();
    if request.ignore_eos && (shaped || !request.tools.is_empty()) {
        return invalid(
            "ignore_eos can't be honoured with tools, a schema or a grammar: they say where an answer ends",
        );
    }
    if request.schema.is_some() && request.grammar.is_some() {
        return invalid("a schema and a grammar can't both shape the answer: give one of them");
    }
    Ok(())
}

/// Advances the constraint by the part of the answer that the prompt contains.
pub(super) fn begin_with(constraint: Option<&mut Constraint>, tokens: &[u32]) -> Result<()> {
    let Some(constraint) = constraint else { return Ok(()) };
    if !constraint.allows_all(tokens)? {
        let reason = "the message that is to be continued can't begin an answer with these tools, this schema or \
                      this grammar";
        return Err(Error::InvalidRequest { reason: reason.into() });
    }
    Ok(tokens.iter().try_for_each(|&token| constraint.accept(token))?)
}

/// Checks that the vocabulary has the tokens that calls in `format` need.
pub(super) fn check(format: &Format, tokenizer: &Tokenizer, model: &str) -> Result<()> {
    match format.missing_marker(&|text| tokenizer.id(text)) {
        Some(marker) => Err(Error::ToolFormat { model: model.into(), format: format.name, marker }),
        None => Ok(()),
    }
}
