//! `POST /v1/embeddings` (<https://platform.openai.com/docs/api-reference/embeddings>).

use std::sync::Arc;

use alara_engine::Embeddings;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};

use crate::body;
use crate::dispatch::Shared;
use crate::embeddings::{Asked, embed, inputs, number};
use crate::fields::Fields;
use crate::refusal::Refusal;
use crate::response::{Ignored, json_of};

/// Answers a request.
pub async fn post(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let mut fields = body::fields(&shared, request).await?;
    let (asked, base64) = read(&mut fields)?;
    let ignored = fields.ignored();
    let (model, made) = embed(&shared, asked).await?;
    let mut response = json_of(&written(&model, &made, base64));
    response.extensions_mut().insert(Ignored(ignored));
    Ok(response)
}

/// Parses a request; also returns whether to encode vectors in base64.
fn read(fields: &mut Fields) -> Result<(Asked, bool), Refusal> {
    fields.ignore(&["user"]);
    let base64 = match fields.text("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(fields.refuse("encoding_format", "must be float or base64")),
    };
    let asked = Asked {
        model: fields.text("model")?.filter(|name| !name.is_empty()),
        inputs: inputs(fields, "input")?,
        field: "input",
        truncate: false,
        dimensions: fields.count("dimensions", 1)?,
    };
    Ok((asked, base64))
}

fn written(model: &str, made: &Embeddings, base64: bool) -> Value {
    let vector = |vector: &Vec<f32>| match base64 {
        true => in_base64(&vector.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>()).into(),
        false => vector.iter().map(|&x| number(x)).collect::<Value>(),
    };
    let data =
        made.vectors.iter().enumerate().map(
            |(index, numbers)| json!({"object": "embedding", "index": index, "embedding": vector(numbers)}),
        );
    json!({
        "object": "list", "data": data.collect::<Value>(), "model": model,
        "usage": {"prompt_tokens": made.tokens, "total_tokens": made.tokens},
    })
}

/// Source: RFC 4648, section 4.
fn in_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= three.len() { char::from(DIGITS[value as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_base64() {
        // Test vectors of RFC 4648, section 10.
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(in_base64(bytes.as_bytes()), expected);
        }
        assert_eq!(in_base64(&[0xff, 0xfe, 0xfb]), "//77");
    }

    #[test]
    fn what_is_read_and_written() {
        let read = |body: &Value| read(&mut Fields::read(body.to_string().as_bytes()).unwrap());
        let (asked, base64) = read(&json!({"model": "m", "input": "a", "dimensions": 2})).unwrap();
        assert_eq!((asked.model.as_deref(), asked.dimensions, base64), (Some("m"), Some(2), false));
        assert!(read(&json!({"input": "a", "encoding_format": "base64"})).unwrap().1);
        let refusal = read(&json!({"input": "a", "encoding_format": "int8"})).unwrap_err();
        assert!(refusal.message.contains("`encoding_format`"), "{refusal:?}");
        let made = Embeddings { vectors: vec![vec![1.0, -0.5]], tokens: 3 };
        let body = written("m", &made, false);
        assert_eq!(body["data"], json!([{"object": "embedding", "index": 0, "embedding": [1.0, -0.5]}]));
        assert_eq!(body["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
        assert_eq!(written("m", &made, true)["data"][0]["embedding"], "AACAPwAAAL8=");
    }
}
