//! Embeddings, whatever the wire format: what is asked, and who makes them.

use std::sync::Arc;

use alara_engine::{EmbedInput, Embeddings, Error as EngineError, Usage};
use alara_harness::ModelError;
use serde_json::Value;

use crate::dispatch::{Shared, in_slot};
use crate::fields::Fields;
use crate::refusal::{Refusal, TooLong};

/// Most inputs of a request, as with OpenAI.
const INPUTS: usize = 2048;
/// How many inputs are computed before it is looked whether the client is still there.
const PART: usize = 32;

/// What somebody asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The model.
    pub model: Option<String>,
    /// What is to be embedded.
    pub inputs: Vec<EmbedInput>,
    /// The field in which that stands.
    pub field: &'static str,
    /// Whether inputs that are too long are cut.
    pub truncate: bool,
    /// How many numbers a vector is to have: the model's own, or the request is refused.
    pub dimensions: Option<usize>,
}

/// Takes the inputs in a field: a text, tokens, or a list of either.
///
/// # Errors
/// There are none, too many, or others.
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

/// Makes them; says under which name of the model.
///
/// # Errors
/// There is no such model, it makes none, or an input is refused.
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
                .map_err(|error| refused(field, error))?;
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

fn refused(field: &str, error: EngineError) -> Refusal {
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

/// A number as JSON has it, with no more digits than tell it from its neighbours in f32.
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
