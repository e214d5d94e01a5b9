//! Sampling parameters, under the names of OpenAI, vLLM and llama.cpp.

use alara_engine::{Biased, Sampling, SamplingOverrides};
use serde_json::Value;

use crate::fields::Fields;
use crate::inner::random;
use crate::refusal::Refusal;

/// Parses the sampling parameters.
///
/// # Errors
/// A value is invalid.
pub fn read(fields: &mut Fields) -> Result<SamplingOverrides, Refusal> {
    /// Bound for numbers without a bound of their own.
    const ANY: f64 = 1e6;
    Ok(SamplingOverrides {
        logit_bias: logit_bias(fields)?,
        repetition_penalty: either(fields, ["repetition_penalty", "repeat_penalty"], |fields, name| {
            fields.number(name, 0.01, 10.0)
        })?,
        presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?,
        frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?,
        penalty_last_n: either(fields, ["penalty_last_n", "repeat_last_n"], last_n)?,
        dry_multiplier: fields.number("dry_multiplier", 0.0, ANY)?,
        dry_base: fields.number("dry_base", 0.0, ANY)?,
        dry_allowed_length: fields.count("dry_allowed_length", 0)?,
        dry_penalty_last_n: last_n(fields, "dry_penalty_last_n")?,
        dry_sequence_breakers: breakers(fields)?,
        temperature: fields.number("temperature", 0.0, 2.0)?,
        dynatemp_range: fields.number("dynatemp_range", 0.0, ANY)?,
        dynatemp_exponent: fields.number("dynatemp_exponent", 0.0, ANY)?,
        top_k: fields.limit("top_k", 0)?,
        typical_p: either(fields, ["typical_p", "typ_p"], |fields, name| fields.number(name, 0.0, 1.0))?,
        top_p: fields.number("top_p", 0.0, 1.0)?,
        min_p: fields.number("min_p", 0.0, 1.0)?,
        xtc_probability: fields.number("xtc_probability", 0.0, 1.0)?,
        xtc_threshold: fields.number("xtc_threshold", 0.0, 1.0)?,
        mirostat: mirostat(fields)?,
        mirostat_tau: fields.number("mirostat_tau", 0.0, ANY)?,
        mirostat_eta: fields.number("mirostat_eta", 0.0, ANY)?,
        seed: Some(match fields.take("seed") {
            // A client that wants reproducible output sets the seed; -1 means random, as in
            // llama.cpp and Ollama.
            None => random(),
            Some(seed) if seed.as_i64() == Some(-1) => random(),
            Some(seed) => seed
                .as_u64()
                .or_else(|| seed.as_i64().map(i64::cast_unsigned))
                .ok_or_else(|| fields.refuse("seed", "must be a whole number"))?,
        }),
    })
}

/// Applies `read` to a field that has two names.
fn either<T: PartialEq>(
    fields: &mut Fields,
    names: [&str; 2],
    read: impl Fn(&mut Fields, &str) -> Result<Option<T>, Refusal>,
) -> Result<Option<T>, Refusal> {
    let [one, other] = [read(fields, names[0])?, read(fields, names[1])?];
    if one.is_some() && other.is_some() && one != other {
        return Err(fields.refuse(names[1], &format!("and `{}` differ", names[0])));
    }
    Ok(one.or(other))
}

/// Returns how many of the latest tokens count; -1 means all, as in llama.cpp.
fn last_n(fields: &mut Fields, name: &str) -> Result<Option<usize>, Refusal> {
    match fields.get(name).and_then(Value::as_i64) {
        Some(-1) => {
            fields.take(name);
            Ok(Some(usize::MAX))
        }
        _ => fields.count(name, 0),
    }
}

fn mirostat(fields: &mut Fields) -> Result<Option<u8>, Refusal> {
    let version = either(fields, ["mirostat", "mirostat_mode"], |fields, name| fields.count(name, 0))?;
    match version {
        None => Ok(None),
        Some(version @ 0..=2) => Ok(Some(version as u8)),
        Some(_) => Err(fields.refuse("mirostat", "must be 0, 1 or 2")),
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
