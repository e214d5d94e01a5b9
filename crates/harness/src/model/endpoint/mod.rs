//! Any OpenAI-compatible endpoint as a model: Ollama, llama-server, vLLM, or a remote service.
//!
//! Uses `POST /chat/completions` with server-sent events
//! (<https://platform.openai.com/docs/api-reference/chat>).
//! Reads no environment: keys and addresses are passed in.
//!
//! A key goes only to the host that the user or a team's file named for it, and never unencrypted
//! to another machine.

mod address;
mod answer;
mod body;
mod chunk;
mod client;
mod error;
mod name;
pub(crate) mod sse;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use alara_engine::{Format, Request};
use serde_json::Value;

pub use address::{Address, Key};
use client::{Client, Trouble};
pub use error::EndpointError;
use turn::Turn;

use super::{ChatModel, Events, ModelError, Prompt};

/// How to talk to an endpoint.
#[derive(Clone, Debug)]
pub struct Options {
    /// The API key.
    /// Default: none.
    pub key: Option<Key>,
    /// Describe the tools in the system prompt, with calls in this format, and read calls from the
    /// answer's text.
    /// For models that are served without tool calls.
    /// Default: the endpoint does both.
    pub format: Option<&'static Format>,
    /// Most tokens of a conversation, which an endpoint doesn't report.
    /// Default: unknown.
    pub context: Option<usize>,
    /// Whether to reason, for requests that don't set it.
    /// Default: the endpoint's own.
    pub thinking: Option<bool>,
    /// Most time to connect.
    /// Default 10 s.
    pub connect: Duration,
    /// Most time to wait for the answer to begin, the prompt's computation included.
    /// Default 10 min.
    pub first_byte: Duration,
    /// Most time between two pieces of an answer.
    /// Default 2 min.
    pub idle: Duration,
    /// How often a turn that hasn't begun is retried after a temporary failure.
    /// Default 5.
    pub retries: u32,
    /// The wait before the first retry; it doubles each time.
    /// Default 0.5 s.
    pub backoff: Duration,
    /// Longest wait: an endpoint that asks for more is given up.
    /// Default 60 s.
    pub longest_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            key: None,
            format: None,
            context: None,
            thinking: None,
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(600),
            idle: Duration::from_secs(120),
            retries: 5,
            backoff: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
        }
    }
}

/// A model at an endpoint.
///
/// alara doesn't constrain the answers of an endpoint.
/// Calls may violate their tool's schema or not be JSON at all.
/// They may name tools that weren't offered, or be several where one was wanted.
/// An answer with a schema is only known to be JSON.
/// The endpoint gets no limit on reasoning tokens.
#[derive(Debug)]
pub struct Endpoint {
    name: String,
    model: String,
    client: Arc<Client>,
}

impl Endpoint {
    /// The model at `address`.
    /// An address without a model means the only one that the endpoint serves, which it is asked
    /// for.
    ///
    /// # Errors
    /// If the endpoint has to be asked: it can't be reached, refuses, or serves no model or
    /// several.
    /// Otherwise nothing is sent yet.
    pub fn new(mut address: Address, options: Options) -> Result<Self, EndpointError> {
        if options.key.is_some() && !address.is_private() {
            let reason = "a key is not sent without encryption: take https, or leave the key out".to_owned();
            return Err(EndpointError::Address { address: address.to_string(), reason });
        }
        let model = match &address.model {
            Some(model) => model.clone(),
            None => the_only_one(&Client::new(address.clone(), options.clone()))?,
        };
        address.model = Some(model.clone());
        Ok(Endpoint { name: address.to_string(), model, client: Arc::new(Client::new(address, options)) })
    }

    /// The format of calls in the turn's prompt, if the prompt describes them.
    fn format_of(&self, request: &Request) -> Option<&'static Format> {
        let must = request.tool_choice.must_call();
        // A JSON schema can constrain an answer to a call that is nothing but JSON.
        let bare = |format| if must && format == Format::generic() { Format::bare() } else { format };
        self.client.options.format.map(bare)
    }

    /// The body of the request for a turn.
    fn body(&self, request: &Request) -> Result<Value, ModelError> {
        let dialect = body::Dialect {
            model: &self.model,
            format: self.format_of(request),
            thinking: self.client.options.thinking,
            completion_tokens: self.client.address.host() == "api.openai.com",
        };
        body::body(request, dialect).map_err(ModelError::new)
    }
}

/// The only model that an endpoint serves.
fn the_only_one(client: &Client) -> Result<String, EndpointError> {
    let known = client.models(&client.agent()).map_err(|trouble| match trouble {
        Trouble::Final(error) | Trouble::Passing { error, .. } => error,
    })?;
    match known.as_slice() {
        [model] => Ok(model.clone()),
        _ => Err(EndpointError::Which { url: client.url(), known }),
    }
}

impl ChatModel for Endpoint {
    /// The address and the model: `http://127.0.0.1:8080/v1#qwen3`.
    fn name(&self) -> &str {
        &self.name
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        let body = self.body(&request)?.to_string();
        let format = self.format_of(&request);
        let turn = Turn::start(self.client.clone(), &self.model, format, request, body);
        Ok(Box::new(turn.map_err(|error| ModelError::new(EndpointError::Thread(error)))?))
    }

    /// The body that is sent.
    fn prompt(&self, request: &Request) -> Result<Prompt, ModelError> {
        Ok(Prompt::Json(self.body(request)?))
    }

    fn context(&self) -> Option<usize> {
        self.client.options.context
    }

    fn format(&self) -> Option<&'static Format> {
        self.client.options.format
    }
}
