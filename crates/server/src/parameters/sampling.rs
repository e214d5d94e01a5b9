//! Sampling parameters, under the names of OpenAI, vLLM and llama.cpp.

use alara_engine::{Biased, Sampling, SamplingOverrides, Values};
use serde_json::Value;

use crate::fields::Fields;
use crate::inner::random;
use crate::refusal::Refusal;

/// Narrower values than a sampler's, as OpenAI's API has them.
const OPENAI: [(&str, Values); 3] = [
    ("temperature", Values::Number(0.0, 2.0)),
    ("presence_penalty", Values::Number(-2.0, 2.0)),
    ("frequency_penalty", Values::Number(-2.0, 2.0)),
];

/// Parses the sampling parameters.
///
/// # Errors
/// A value is invalid.
pub fn read(fields: &mut Fields) -> Result<SamplingOverrides, Refusal> {
    let own = SamplingOverrides {
        logit_bias: logit_bias(fields)?,
        dry_sequence_breakers: breakers(fields)?,
        top_k: fields.limit("top_k", 0)?,
        seed: Some(seed(fields)?),
        ..SamplingOverrides::default()
    };
    let mut found = own.clone();
    for parameter in Sampling::PARAMETERS.iter().filter(|parameter| own.get(parameter.name).is_none()) {
        let narrower = OPENAI.iter().find(|(name, _)| *name == parameter.name);
        let values = narrower.map_or(parameter.values, |(_, values)| *values);
        for name in parameter.names() {
            let Some(value) = fields.take(name) else { continue };
            let before = found.get(parameter.name);
            let read = values.read::<Value>(&value).and_then(|_| found.set(parameter.name, Some(&value)));
            read.map_err(|_| fields.refuse(name, &format!("must be {values}")))?;
            if before.is_some() && before != found.get(parameter.name) {
                return Err(fields.refuse(name, &format!("and `{}` differ", parameter.name)));
            }
        }
    }
    Ok(found)
}

/// Returns the seed: a random one if it is absent or -1, as in llama.cpp and Ollama.
/// A client that wants reproducible output sets it.
fn seed(fields: &mut Fields) -> Result<u64, Refusal> {
    let Some(seed) = fields.take("seed") else { return Ok(random()) };
    let signed = seed.as_i64();
    match seed.as_u64().or(signed.map(i64::cast_unsigned)) {
        _ if signed == Some(-1) => Ok(random()),
        seed => seed.ok_or_else(|| fields.refuse("seed", "must be a whole number")),
    }
}

/// Returns the texts at which DRY restarts: a list, or a list as JSON text.
fn breakers(fields: &mut Fields) -> Result<Option<Vec<String>>, Refusal> {
    let name = "dry_sequence_breakers";
    let list = match fields.take(name) {
        None => return Ok(None),
        Some(Value::String(text)) => serde_json::from_str(&text).ok(),
        Some(list) => serde_json::from_value(list).ok(),
    };
    let list: Vec<String> = list.ok_or_else(|| fields.refuse(name, "must be a list of texts"))?;
    if list.len() > Sampling::MOST_BREAKERS {
        let (all, most) = (list.len(), Sampling::MOST_BREAKERS);
        return Err(fields.refuse(name, &format!("has {all} texts; the most is {most}")));
    }
    Ok(Some(list))
}

/// Parses biases from OpenAI's map of tokens, or llama.cpp's list of pairs, where `false` forbids a
/// token and a text means its tokens.
fn logit_bias(fields: &mut Fields) -> Result<Option<Vec<(Biased, f32)>>, Refusal> {
    let pairs: Vec<(Value, Value)> = match fields.take("logit_bias") {
        None => return Ok(None),
        Some(Value::Object(map)) => map.into_iter().map(|(key, bias)| (Value::String(key), bias)).collect(),
        Some(Value::Array(list)) => {
            let pair = |value: Value| match value {
                Value::Array(pair) => <[Value; 2]>::try_from(pair).ok().map(Into::into),
                _ => None,
            };
            list.into_iter().map(pair).collect::<Option<_>>().ok_or_else(|| wrong_bias(fields))?
        }
        Some(_) => return Err(wrong_bias(fields)),
    };
    let read = |(of, bias): (Value, Value)| {
        let of = match of {
            Value::String(text) => text.parse().map_or(Biased::Text(text), Biased::Token),
            of => Biased::Token(u32::try_from(of.as_u64()?).ok()?),
        };
        let bias = match bias {
            Value::Bool(false) => Sampling::BANNED,
            bias => bias.as_f64()? as f32,
        };
        Some((of, bias))
    };
    let biases = pairs.into_iter().map(read).collect::<Option<Vec<_>>>();
    biases.map(Some).ok_or_else(|| wrong_bias(fields))
}

fn wrong_bias(fields: &Fields) -> Refusal {
    fields.refuse("logit_bias", "must map tokens to numbers, or be a list of pairs of these")
}
