//! Embeddings, independent of the wire format.

use std::sync::Arc;

use alara_engine::{EmbedInput, Embeddings, Error as EngineError, Usage};
use alara_harness::ModelError;
use serde_json::Value;

use crate::dispatch::{Shared, in_slot};
use crate::fields::Fields;
use crate::refusal::{Refusal, TooLong};

/// Maximum number of inputs per request, as with OpenAI.
const INPUTS: usize = 2048;
/// Number of inputs to compute between checks whether the client is still connected.
const PART: usize = 32;

/// A request for embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The model.
    pub model: Option<String>,
    /// The inputs to embed.
    pub inputs: Vec<EmbedInput>,
    /// The field that contains them.
    pub field: &'static str,
    /// Whether to truncate inputs that are too long.
    pub truncate: bool,
    /// Requested dimensions of a vector: the model's own, or the request is refused.
    pub dimensions: Option<usize>,
}

/// Takes the inputs in a field: a text, tokens, or a list of either.
///
/// # Errors
/// There are none, too many, or inputs of another type.
pub fn inputs(fields: &mut Fields, name: &str) -> Result<Vec<EmbedInput>, Refusal> {
    let kind = "must be a string, an array of strings, an array of tokens or an array of such arrays";
    let wrong = |fields: &Fields| fields.refuse(name, kind);
    let Some(value) = fields.take(name) else { return Err(fields.refuse(name, "is missing")) };
    let inputs: Option<Vec<EmbedInput>> = match &value {
        Value::Array(list) if list.iter().any(Value::is_number) => tokens(&value).map(|input| vec![input]),
        Value::Array(list) => list.iter().map(input).collect(),
        value => input(value).map(|input| vec![input]),
    };
    let inputs = inputs.ok_or_else(|| wrong(fields))?;
    let is_empty = |input: &EmbedInput| match input {
        EmbedInput::Text(text) => text.is_empty(),
        EmbedInput::Tokens(tokens) => tokens.is_empty(),
    };
    match inputs.iter().position(is_empty) {
        _ if inputs.is_empty() => Err(fields.refuse(name, "is empty")),
        _ if inputs.len() > INPUTS => {
            Err(fields.refuse(name, &format!("has {} inputs; a request may have {INPUTS}", inputs.len())))
        }
        Some(_) if !value.is_array() => Err(fields.refuse(name, "is empty")),
        Some(at) => Err(fields.refuse(&format!("{name}[{at}]"), "is empty")),
        None => Ok(inputs),
    }
}

fn input(value: &Value) -> Option<EmbedInput> {
    match value {
        Value::String(text) => Some(EmbedInput::Text(text.clone())),
        value => tokens(value),
    }
}

fn tokens(value: &Value) -> Option<EmbedInput> {
    let token = |token: &Value| token.as_u64().and_then(|token| u32::try_from(token).ok());
    value.as_array()?.iter().map(token).collect::<Option<_>>().map(EmbedInput::Tokens)
}

/// Computes the embeddings; also returns the model's name.
///
/// # Errors
/// There is no such model, it doesn't compute embeddings, or an input is refused.
pub async fn embed(shared: &Arc<Shared>, asked: Asked) -> Result<(String, Embeddings), Refusal> {
    let Asked { model, inputs, field, truncate, dimensions } = asked;
    in_slot(shared, model, move |model, listener| {
        let elsewhere =
            || Refusal::unable(format!("{} runs elsewhere; ask there for embeddings", model.name()));
        let engine = model.local().ok_or_else(elsewhere)?;
        let mut all = Embeddings::default();
        for part in inputs.chunks(PART) {
            if listener.is_left() {
                return Err(Refusal::silent());
            }
            let made = engine
                .embed_until(part, truncate, &listener.until())
                .map_err(|error| refusal_of(field, error))?;
            all.tokens += made.tokens;
            all.vectors.extend(made.vectors);
            let own = all.vectors.first().map_or(0, Vec::len);
            if let Some(other) = dimensions.filter(|asked| *asked != own) {
                let message = format!("`dimensions` is {other}, but {} makes vectors of {own}", model.name());
                return Err(Refusal::invalid("dimensions", message));
            }
        }
        let usage = Usage { prompt_tokens: all.tokens, ..Usage::default() };
        Ok((all, usage))
    })
    .await
}

fn refusal_of(field: &str, error: EngineError) -> Refusal {
    match error {
        EngineError::PromptTooLong { prompt, context, trained } => {
            Refusal::too_long(field, TooLong { prompt, context, trained })
        }
        error if error.is_over() => Refusal::late(),
        EngineError::InvalidRequest { .. }
        | EngineError::TokenOutOfRange { .. }
        | EngineError::Tokenizer(_) => Refusal::invalid(field, error.to_string()),
        error => Refusal::from(&ModelError::new(error)),
    }
}

/// Converts a number to JSON, with no more digits than needed to distinguish it from other f32
/// values.
pub fn number(number: f32) -> Value {
    number.to_string().parse::<f64>().unwrap_or_else(|_| number.into()).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_inputs_may_be() {
        let read = |input: Value| {
            let mut fields = Fields::read(json!({"input": input}).to_string().as_bytes()).unwrap();
            inputs(&mut fields, "input").map_err(|refusal| refusal.message)
        };
        let (text, ids) =
            (|text: &str| EmbedInput::Text(text.into()), |ids: &[u32]| EmbedInput::Tokens(ids.to_vec()));
        assert_eq!(read(json!("a")), Ok(vec![text("a")]));
        assert_eq!(read(json!(["a", "b"])), Ok(vec![text("a"), text("b")]));
        assert_eq!(read(json!([1, 2])), Ok(vec![ids(&[1, 2])]));
        assert_eq!(read(json!([[1], [2, 3]])), Ok(vec![ids(&[1]), ids(&[2, 3])]));
        let refused = |input: Value, expected: &str| {
            let message = read(input).unwrap_err();
            assert!(message.contains(expected), "{message}");
        };
        refused(json!(null), "`input` is missing");
        refused(json!(""), "`input` is empty");
        refused(json!([]), "`input` is empty");
        refused(json!(["a", ""]), "`input[1]` is empty");
        refused(json!([[1], []]), "`input[1]` is empty");
        refused(json!({"text": "a"}), "`input` must be a string");
        refused(json!([1, "a"]), "`input` must be a string");
        refused(json!([-1]), "`input` must be a string");
        refused(json!(vec!["a"; INPUTS + 1]), "a request may have 2048");
    }

    #[test]
    fn numbers_are_no_longer_than_they_are() {
        assert_eq!(number(0.1).to_string(), "0.1");
        assert_eq!(number(-1.5e-9).as_f64().map(|number| number as f32), Some(-1.5e-9));
    }
}
