//! Endpoints of llama.cpp's server that other APIs lack, in its format
//! (<https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md>).

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::body;
use crate::dispatch::{Shared, blocking, with_engine, with_model, with_prompt};
use crate::openai::chat;
use crate::refusal::Refusal;
use crate::response::{Ignored, json_of};

/// Maximum size of a returned text in bytes.
const TEXT: usize = 64 << 20;

/// Returns the routes.
pub fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/health", get(health))
        .route("/v1/health", get(health))
        .route("/metrics", get(metrics))
        .route("/props", get(props))
        .route("/slots", get(slots))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/tokenizer_info", get(tokenizer_info))
        .route("/apply-template", post(apply_template))
}

/// Whether a path is a health check, which needs no token and may be frequent.
pub fn is_health(path: &str) -> bool {
    matches!(path, "/health" | "/v1/health")
}

async fn health() -> Response {
    json_of(&json!({"status": "ok"}))
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let looking = shared.clone();
    let loaded = blocking(move || Ok(looking.workplace.models().loaded())).await.unwrap_or_default();
    let mut response = Response::new(Body::from(shared.metrics.text(shared.slots.load(), &loaded)));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn props(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refusal> {
    let name = queried(&uri, "model");
    let about = with_model(&shared, name.as_deref(), |model, _| {
        let local = model.local().map(|engine| {
            let text =
                |id: Option<u32>| id.and_then(|id| engine.tokenizer().token_text(id)).map(str::to_owned);
            (engine.template().to_owned(), text(engine.tokenizer().bos()), text(engine.tokenizer().eos()))
        });
        Ok((model.context(), model.sampling(), local))
    });
    let (context, sampling, local) = about.await?;
    let (template, bos, eos) = local.unwrap_or_default();
    let name = name.filter(|name| shared.find(name).is_some()).unwrap_or_else(|| shared.default.name.clone());
    Ok(json_of(&json!({
        "default_generation_settings": {"n_ctx": context, "params": sampling},
        "total_slots": shared.slots.parallel(), "model_alias": name,
        "chat_template": template, "bos_token": bos, "eos_token": eos,
        "build_info": concat!("alara ", env!("CARGO_PKG_VERSION")), "is_sleeping": false,
    })))
}

/// Returns the number of working slots; any slot takes any request.
async fn slots(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refusal> {
    let name = queried(&uri, "model");
    let context = with_model(&shared, name.as_deref(), |model, _| Ok(model.context())).await?;
    let working = shared.slots.load().working;
    let slot = |id: usize| json!({"id": id, "n_ctx": context, "is_processing": id < working});
    Ok(json_of(&(0..shared.slots.parallel()).map(slot).collect()))
}

/// Tokenizes a text: `content` in requests of llama.cpp's clients, `prompt` in those of vLLM's
/// (<https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html>).
async fn tokenize(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let mut fields = body::fields(&shared, request).await?;
    let name = fields.text("model")?;
    let prompt = if fields.has("content") { None } else { fields.text("prompt")? };
    let field = if prompt.is_some() { "prompt" } else { "content" };
    // Add the tokens that begin a prompt, unless the client disables that.
    let (flag, default) =
        if prompt.is_some() { ("add_special_tokens", true) } else { ("add_special", false) };
    let whole = fields.flag(flag)?.unwrap_or(default);
    let (text, begun) = match prompt {
        Some(text) => (text, true),
        None => (fields.needed("content")?, false),
    };
    let special = fields.flag("parse_special")?.unwrap_or(true);
    let pieces = fields.flag("with_pieces")?.unwrap_or(false);
    let texts = fields.flag("return_token_strs")?.unwrap_or(false);
    let ignored = fields.ignored();
    let told = with_engine(&shared, name.as_deref(), move |engine, until| {
        let tokenizer = engine.tokenizer().until(until);
        let tokens = match (whole, begun) {
            (true, true) => tokenizer.encode_prompt(&text, &[]),
            (true, false) => tokenizer.encode_whole(&text, special),
            (false, _) => tokenizer.encode(&text, special),
        };
        let tokens = tokens.map_err(|error| Refusal::untokenized(field, &error.into()))?;
        let piece = |&id: &u32| {
            let bytes = tokenizer.token_bytes(id);
            let piece = std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), Value::from);
            json!({"id": id, "piece": piece})
        };
        let mut told = json!({"count": tokens.len(), "max_model_len": engine.context()});
        if texts {
            told["token_strs"] = tokens.iter().map(|&id| tokenizer.token_text(id)).collect();
        }
        told["tokens"] = if pieces { tokens.iter().map(piece).collect() } else { json!(tokens) };
        Ok(told)
    });
    self::json_with_ignored(&told.await?, ignored)
}

/// Returns a vocabulary's special tokens and chat template, named as in Hugging Face's
/// `tokenizer_config.json`; vLLM sends them to clients that tokenize by `/tokenize`.
async fn tokenizer_info(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refusal> {
    let name = queried(&uri, "model");
    let about = with_engine(&shared, name.as_deref(), |engine, _| {
        let tokenizer = engine.tokenizer();
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id));
        Ok(json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": text(tokenizer.bos()), "eos_token": text(tokenizer.eos()), "pad_token": null,
            "add_bos_token": tokenizer.add_bos(), "add_eos_token": false,
            "model_max_length": engine.context(), "vocab_size": tokenizer.len(),
            "chat_template": Some(engine.template()).filter(|template| !template.is_empty()),
        }))
    });
    Ok(json_of(&about.await?))
}

async fn detokenize(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let mut fields = body::fields(&shared, request).await?;
    let wrong = || Refusal::invalid("tokens", "`tokens` must be an array of the vocabulary's tokens");
    let name = fields.text("model")?;
    let tokens = fields.list("tokens")?.ok_or_else(wrong)?;
    let tokens = tokens.iter().map(|token| token.as_u64().and_then(|token| u32::try_from(token).ok()));
    let tokens: Vec<u32> = tokens.collect::<Option<_>>().ok_or_else(wrong)?;
    let ignored = fields.ignored();
    let text = with_engine(&shared, name.as_deref(), move |engine, _| {
        let tokenizer = engine.tokenizer();
        let known = tokens.iter().all(|&token| (token as usize) < tokenizer.len());
        let bytes: usize = tokens.iter().map(|&token| tokenizer.token_bytes(token).len()).sum();
        match () {
            () if !known => Err(wrong()),
            () if bytes > TEXT => {
                let message = format!("the text of `tokens` has {bytes} bytes; the most is {TEXT}");
                Err(Refusal::invalid("tokens", message))
            }
            () => Ok(tokenizer.decode(&tokens, true)),
        }
    });
    let text = text.await?;
    // vLLM's clients expect a prompt.
    json_with_ignored(&json!({"content": text, "prompt": text}), ignored)
}

/// Returns the prompt of a chat.
async fn apply_template(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let (mut asked, _) = chat::read(body::fields(&shared, request).await?)?;
    let ignored = std::mem::take(&mut asked.ignored);
    let prompt = with_prompt(&shared, asked, |engine, request| {
        engine.prompt(request).map_err(|error| Refusal::untokenized("messages", &error))
    });
    json_with_ignored(&json!({"prompt": prompt.await?}), ignored)
}

/// Returns a query parameter of a URL.
fn queried(uri: &Uri, name: &str) -> Option<String> {
    let values = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = values.into_iter().find(|(key, _)| *key == name)?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|value| !value.is_empty())
}

fn json_with_ignored(body: &Value, ignored: Vec<String>) -> Result<Response, Refusal> {
    let mut response = json_of(body);
    response.extensions_mut().insert(Ignored(ignored));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let check = |uri: &str, expected: Option<&str>| {
            assert_eq!(queried(&uri.parse().unwrap(), "model").as_deref(), expected, "{uri}");
        };
        check("/props", None);
        check("/props?model=a.gguf", Some("a.gguf"));
        check("/props?x=1&model=a%2Fb+c%C3%A9&model=d", Some("a/b c\u{e9}"));
        check("/props?model=", None);
        check("/props?models=a", None);
        check("/props?model=%2", None);
        check("/props?model=%ff", None);
    }
}
