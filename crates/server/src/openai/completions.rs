//! `POST /v1/completions` (<https://platform.openai.com/docs/api-reference/completions>): continues
//! a text without a chat template, or fills in text between two others if the model supports it.

use std::sync::Arc;

use alara_engine::{Engine, TokenLogprobs, Until};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{FINGERPRINT, finish_reason, usage};
use crate::answer::{Answer, End, Piece, Writer, event, now, timings};
use crate::dispatch::{Shared, answer, whole_answer, with_engine};
use crate::fields::Fields;
use crate::inner::{InnerRequest, id};
use crate::refusal::Refusal;
use crate::response::{Ignored, json_of};
use crate::{body, infill, parameters};

/// Default number of tokens of an answer, as in OpenAI's API.
const TOKENS: usize = 16;
/// Maximum number of alternatives per token; OpenAI allows 5.
const TOP: usize = 20;
/// Maximum number of prompts per request.
const PROMPTS: usize = 64;

/// A request: one answer for each prompt.
#[derive(Debug, PartialEq)]
struct Completions {
    asked: InnerRequest,
    prompts: Vec<Prompt>,
    /// The text after the requested one.
    suffix: Option<String>,
    /// Whether an answer begins with its prompt.
    echo: bool,
    include_usage: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

/// Answers a request.
pub async fn post(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let Completions { mut asked, prompts, suffix, echo, include_usage } =
        read(body::fields(&shared, request).await?)?;
    // Shared by all prompts.
    asked.deadline = Some(Instant::now() + shared.request_time);
    let mut begun = Vec::new();
    for prompt in prompts {
        let (text, ids) = match prompt {
            Prompt::Text(text) => (text, None),
            Prompt::Tokens(tokens) => {
                let ids = tokens.clone();
                let decoded = move |engine: &Engine, _: &Until| {
                    let tokenizer = engine.tokenizer();
                    match tokens.iter().all(|&token| (token as usize) < tokenizer.len()) {
                        true => Ok(tokenizer.decode(&tokens, true)),
                        false => {
                            Err(Refusal::invalid("prompt", "`prompt` has tokens outside of the vocabulary"))
                        }
                    }
                };
                (with_engine(&shared, asked.model.as_deref(), decoded).await?, Some(ids))
            }
        };
        begun.push(match &suffix {
            None => (text, ids),
            Some(suffix) => {
                let after = suffix.clone();
                let infilled = move |engine: &Engine, _: &Until| infill::prompt(engine, &text, &after, "");
                (with_engine(&shared, asked.model.as_deref(), infilled).await?, None)
            }
        });
    }
    let asked_with = |text: &str, ids: &Option<Vec<u32>>| {
        let mut asked = asked.clone();
        match ids {
            // Tokenizing the text of the tokens may give other tokens.
            Some(ids) => asked.request.prompt_ids = Some(ids.clone()),
            None => asked.request.prompt = Some(text.to_owned()),
        }
        asked
    };
    let writer = |model: &str, text: &str| Completion {
        id: id("cmpl-"),
        created: now(),
        model: model.to_owned(),
        echo: if echo { text.to_owned() } else { String::new() },
        notes_prompt: asked.request.prompt_logprobs.is_some(),
        include_usage,
        timings: asked.timings,
        index: 0,
        offset: 0,
        tokens: Vec::new(),
    };
    if let [(text, ids)] = begun.as_slice() {
        return answer(&shared, asked_with(text, ids), |model| Box::new(writer(model, text))).await;
    }
    let mut all = Value::Null;
    for (text, ids) in &begun {
        let model = asked.model.as_deref().unwrap_or(&shared.default.name);
        let mut body = whole_answer(&shared, asked_with(text, ids), &mut writer(model, text)).await?;
        if all.is_null() {
            all = body;
        } else {
            join(&mut all, &mut body);
        }
    }
    let mut response = json_of(&all);
    response.extensions_mut().insert(Ignored(asked.ignored));
    Ok(response)
}

/// Adds the answer to another prompt.
fn join(all: &mut Value, one: &mut Value) {
    if let (Value::Array(more), Some(choices)) = (one["choices"].take(), all["choices"].as_array_mut()) {
        for mut choice in more {
            choice["index"] = choices.len().into();
            choices.push(choice);
        }
    }
    for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        let sum = all["usage"][name].as_u64().unwrap_or(0) + one["usage"][name].as_u64().unwrap_or(0);
        all["usage"][name] = sum.into();
    }
}

fn read(mut fields: Fields) -> Result<Completions, Refusal> {
    let suffix = fields.text("suffix")?.filter(|suffix| !suffix.is_empty());
    let echo = fields.flag("echo")?.unwrap_or(false);
    let choices = parameters::choices(&mut fields)?;
    let logprobs = logprobs(&mut fields)?;
    // Clients request the prompt alone in this way.
    let nothing = echo && fields.get("max_tokens") == Some(&0.into());
    if nothing {
        fields.take("max_tokens");
    }
    let mut asked = parameters::read(&mut fields)?;
    if nothing {
        asked.request.max_tokens = Some(0);
    }
    asked.choices = choices;
    asked.request.logprobs = logprobs;
    asked.request.prompt_logprobs = logprobs.filter(|_| echo);
    let include_usage = parameters::stream_options(&mut fields, asked.stream)?;
    let prompts = prompts(&mut fields)?;
    if prompts.len() > 1 && asked.stream {
        return Err(fields.refuse("prompt", "must be a single one in a stream"));
    }
    parameters::response_format(&mut fields, &mut asked.request)?;
    parameters::check(&fields, &asked.request)?;
    asked.request.max_tokens.get_or_insert(TOKENS);
    asked.ignored = fields.ignored();
    Ok(Completions { asked, prompts, suffix, echo, include_usage })
}

/// Returns how many of the most likely alternatives to include per token; `None` for no tokens.
fn logprobs(fields: &mut Fields) -> Result<Option<usize>, Refusal> {
    // llama.cpp's clients send true for none.
    let top = match fields.get("logprobs") {
        Some(Value::Bool(wanted)) => {
            let top = wanted.then_some(0);
            fields.take("logprobs");
            top
        }
        _ => fields.count("logprobs", 0)?,
    };
    match top {
        Some(top) if top > TOP => Err(fields.refuse("logprobs", &format!("must be at most {TOP}"))),
        top => Ok(top),
    }
}

/// Parses a text, tokens, or a list of either.
fn prompts(fields: &mut Fields) -> Result<Vec<Prompt>, Refusal> {
    let wrong = |fields: &Fields| {
        fields.refuse(
            "prompt",
            &format!("must be a text, tokens, or up to {PROMPTS} of these, none of them empty"),
        )
    };
    let Some(value) = fields.take("prompt") else { return Err(fields.refuse("prompt", "is missing")) };
    let prompts = match &value {
        Value::Array(list) if list.first().is_some_and(Value::is_number) => vec![prompt(&value)],
        Value::Array(list) => list.iter().map(prompt).collect(),
        one => vec![prompt(one)],
    };
    let prompts: Option<Vec<Prompt>> = prompts.into_iter().collect();
    prompts.filter(|prompts| (1..=PROMPTS).contains(&prompts.len())).ok_or_else(|| wrong(fields))
}

fn prompt(value: &Value) -> Option<Prompt> {
    match value {
        Value::String(text) if !text.is_empty() => Some(Prompt::Text(text.clone())),
        Value::Array(list) if !list.is_empty() => {
            let tokens = list.iter().map(|token| token.as_u64().and_then(|token| token.try_into().ok()));
            Some(Prompt::Tokens(tokens.collect::<Option<_>>()?))
        }
        _ => None,
    }
}

/// Writes the response.
struct Completion {
    id: String,
    created: u64,
    model: String,
    /// Text before the answer.
    echo: String,
    /// Whether to include the prompt's tokens.
    notes_prompt: bool,
    include_usage: bool,
    timings: bool,
    /// Index of the current answer.
    index: usize,
    /// Number of characters of its text sent so far.
    offset: usize,
    /// Tokens of the next text.
    tokens: Vec<TokenLogprobs>,
}

impl Completion {
    /// Returns a part of the answer.
    /// `first` means that its tokens begin with the prompt's first, which has no probability.
    fn part(&self, text: &str, tokens: &[TokenLogprobs], first: bool, end: Option<&End>) -> Value {
        let finish = end.map(|end| finish_reason(end.finish));
        let mut choice =
            json!({"text": text, "index": self.index, "logprobs": null, "finish_reason": finish});
        if !tokens.is_empty() {
            choice["logprobs"] = legacy(text, tokens, self.offset, first);
        }
        if let Some(stop) = end.and_then(End::stop_text) {
            // As in vLLM.
            choice["stop_reason"] = stop.into();
        }
        let mut body = json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.model,
            "system_fingerprint": FINGERPRINT, "choices": [choice],
        });
        if let Some(alara) = end.and_then(|end| end.alara.clone()) {
            body["alara"] = alara;
        }
        if let (true, Some(end)) = (self.timings, end) {
            body["timings"] = timings(&end.usage);
        }
        body
    }

    fn body(&self, text: &str, tokens: &[TokenLogprobs], end: Option<&End>) -> Value {
        self.part(text, tokens, false, end)
    }

    /// Returns the prompt, unless it comes with its tokens.
    fn echo(&mut self) -> String {
        if self.echo.is_empty() || self.notes_prompt { String::new() } else { self.prompt(&[]) }
    }

    fn prompt(&mut self, tokens: &[TokenLogprobs]) -> String {
        let prompt = event(&self.part(&self.echo, tokens, true, None));
        self.offset = self.echo.chars().count();
        prompt
    }
}

/// Formats tokens for this API, each with its character offset in the whole text; the tokens' own
/// `text` begins at `offset`.
fn legacy(text: &str, tokens: &[TokenLogprobs], offset: usize, first: bool) -> Value {
    // Byte offset of a token, and the character there with its own byte offset.
    let (mut at, mut character, mut counted) = (0, offset, 0);
    let mut offsets = Vec::with_capacity(tokens.len());
    for token in tokens {
        let begun = text.floor_char_boundary(at);
        (character, counted) = (character + text[counted..begun].chars().count(), begun);
        offsets.push(character);
        at += shown(&text.as_bytes()[at..], &token.chosen.bytes);
    }
    let texts: Vec<String> = tokens.iter().map(|token| token.chosen.text()).collect();
    let told = |at: usize, value: Value| if first && at == 0 { Value::Null } else { value };
    let logprobs = tokens.iter().map(|token| token.chosen.logprob.into());
    let top = tokens.iter().map(|token| {
        let mut top = serde_json::Map::new();
        for token in &token.top {
            // Among tokens with equal texts, such as parts of characters, keep the most likely.
            top.entry(token.text()).or_insert_with(|| token.logprob.into());
        }
        Value::Object(top)
    });
    json!({
        "tokens": texts,
        "token_logprobs": logprobs.enumerate().map(|(at, value)| told(at, value)).collect::<Value>(),
        "top_logprobs": top.enumerate().map(|(at, value)| told(at, value)).collect::<Value>(),
        "text_offset": offsets,
    })
}

/// Returns how many bytes of the rest of a text belong to a token.
/// A token put before the text has none, nor has the end of the turn; the space before a first word
/// may be omitted; part of the token may be in the next text.
fn shown(rest: &[u8], token: &[u8]) -> usize {
    let without_space = token.strip_prefix(b" ").unwrap_or(token);
    match [token, without_space].into_iter().find(|token| rest.starts_with(token)) {
        Some(token) => token.len(),
        None if token.starts_with(rest) => rest.len(),
        None => 0,
    }
}

impl Writer for Completion {
    fn piece(&mut self, piece: &Piece) -> String {
        match piece {
            Piece::Begun => self.echo(),
            Piece::PromptLogprobs(tokens) => self.prompt(tokens),
            Piece::Logprobs(tokens) => {
                self.tokens.clone_from(tokens);
                String::new()
            }
            Piece::Text(text) | Piece::Reasoning(text) => {
                let tokens = std::mem::take(&mut self.tokens);
                let chunk = self.body(text, &tokens, None);
                self.offset += text.chars().count();
                event(&chunk)
            }
            Piece::Call(_) | Piece::Alara(_) => String::new(),
            Piece::Next(end) => {
                let last = event(&self.body("", &[], Some(end)));
                (self.index, self.offset) = (self.index + 1, 0);
                last + &self.echo()
            }
            Piece::End(end) => {
                let mut events = event(&self.body("", &[], Some(end)));
                if self.include_usage {
                    let mut last = self.body("", &[], None);
                    last["choices"] = json!([]);
                    last["usage"] = usage(&end.usage);
                    events += &event(&last);
                }
                events + "data: [DONE]\n\n"
            }
        }
    }

    fn failure(&mut self, refusal: &Refusal) -> String {
        event(&refusal.body())
    }

    fn beat(&mut self) -> String {
        event(&self.body("", &[], None))
    }

    fn whole(&mut self, answer: Answer, end: &End) -> Value {
        let text = format!("{}{}{}", self.echo, answer.reasoning, answer.text);
        let first = !answer.prompt_logprobs.is_empty();
        let tokens = [answer.prompt_logprobs, answer.logprobs].concat();
        let mut body = self.part(&text, &tokens, first, Some(end));
        body["usage"] = usage(&end.usage);
        body
    }

    fn joined(&self, bodies: Vec<Value>) -> Value {
        super::joined(bodies)
    }
}

#[cfg(test)]
mod tests {
    use alara_engine::{Finish, Usage};

    use super::*;

    fn read(body: &Value) -> Result<Completions, Refusal> {
        super::read(Fields::read(body.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn prompts_are_texts_or_tokens() {
        let check = |prompt: Value, expected: &[Prompt]| {
            assert_eq!(read(&json!({"prompt": prompt})).unwrap().prompts, expected);
        };
        let text = |text: &str| Prompt::Text(text.into());
        check(json!("a"), &[text("a")]);
        check(json!(["a", "b"]), &[text("a"), text("b")]);
        check(json!([1, 2]), &[Prompt::Tokens(vec![1, 2])]);
        check(json!([[1], [2, 3]]), &[Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])]);
        for wrong in [json!(null), json!(""), json!([]), json!(5), json!(["a", 1]), json!([[]]), json!([-1])]
        {
            assert_eq!(read(&json!({"prompt": wrong})).unwrap_err().status, 400);
        }
        let plain = read(&json!({"prompt": "a", "suffix": "", "logprobs": null, "best_of": 1})).unwrap();
        assert_eq!((plain.asked.request.max_tokens, plain.suffix, plain.echo), (Some(16), None, false));
        let more = read(&json!({"prompt": "a", "suffix": "b", "echo": true, "max_tokens": 5})).unwrap();
        assert_eq!(
            (more.asked.request.max_tokens, more.suffix, more.echo),
            (Some(5), Some("b".into()), true)
        );
        let more = read(&json!({"prompt": "a", "logprobs": 5, "n": 3, "best_of": 3})).unwrap();
        assert_eq!((more.asked.request.logprobs, more.asked.choices), (Some(5), 3));
        for wrong in [
            json!({"logprobs": 21}),
            json!({"max_tokens": 0}),
            json!({"n": 0}),
            json!({"n": 2, "best_of": 3}),
        ] {
            let mut body = json!({"prompt": "a"});
            body.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
            assert_eq!(read(&body).unwrap_err().status, 400, "{wrong}");
        }
        assert!(read(&json!({"prompt": ["a", "b"], "stream": true})).is_err());
    }

    #[test]
    fn answers() {
        let writer = || Completion {
            id: "id".into(),
            created: 1,
            model: "m".into(),
            echo: "Once ".into(),
            notes_prompt: false,
            include_usage: true,
            timings: false,
            index: 0,
            offset: 0,
            tokens: Vec::new(),
        };
        let usage = Usage { prompt_tokens: 2, completion_tokens: 3, ..Usage::default() };
        let end = End { finish: Finish::Length, usage, alara: None };
        let answer = Answer { text: "upon".into(), ..Answer::default() };
        let mut body = writer().whole(answer, &end);
        let choice = json!({"text": "Once upon", "index": 0, "logprobs": null, "finish_reason": "length"});
        assert_eq!((&body["object"], &body["choices"]), (&json!("text_completion"), &json!([choice])));
        let mut other = body.clone();
        join(&mut body, &mut other);
        assert_eq!((&body["choices"][1]["index"], &body["usage"]["total_tokens"]), (&json!(1), &json!(10)));

        let mut writer = writer();
        let pieces = [Piece::Begun, Piece::Text("upon".into()), Piece::End(Box::new(end))];
        let text: String = pieces.iter().map(|piece| writer.piece(piece)).collect();
        let chunks: Vec<&str> = text.split_terminator("\n\n").map(|line| &line["data: ".len()..]).collect();
        assert_eq!(chunks.len(), 5);
        let chunk = |index: usize| serde_json::from_str::<Value>(chunks[index]).unwrap();
        assert_eq!(chunk(0)["choices"][0]["text"], "Once ");
        assert_eq!(chunk(1)["choices"][0]["finish_reason"], Value::Null);
        assert_eq!(chunk(2)["choices"][0]["finish_reason"], "length");
        assert_eq!((&chunk(3)["choices"], &chunk(3)["usage"]["total_tokens"]), (&json!([]), &json!(5)));
        assert_eq!(chunks[4], "[DONE]");
    }
}
