//! Why a request gets no answer.

use alara_engine::{Error as EngineError, GrammarError};
use alara_harness::error::chain;
use alara_harness::model::EndpointError;
use alara_harness::{Error, ModelError};
use serde_json::{Value, json};

/// Why a request gets no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// Of which kind it is, by OpenAI's names.
    pub kind: &'static str,
    /// What is wrong, for people.
    pub message: String,
    /// The field of the request that it is about.
    param: Option<String>,
    /// What it is, for programs.
    code: Option<&'static str>,
    /// After how many seconds the same request may succeed if it is sent again.
    /// `None`: a client that tries by itself must not, or an agent's work is repeated.
    pub retry: Option<u64>,
}

impl Refusal {
    /// One with this status and message.
    pub fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        Refusal { status, kind, message: message.into(), param: None, code: None, retry: None }
    }

    /// A request that can't be honoured.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Refusal { param: Some(param.into()), ..Refusal::new(400, "invalid_request_error", message) }
    }

    /// A request for what there is not.
    pub fn unknown(param: &str, message: impl Into<String>) -> Self {
        Refusal { status: 404, ..Refusal::invalid(param, message) }
    }

    /// Somebody who may not ask.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Refusal::new(403, "permission_error", message).coded("forbidden")
    }

    /// Too many wait already, or are connected; in so many seconds it may be otherwise.
    pub fn busy(seconds: u64) -> Self {
        let message = "too many requests wait already; try again later";
        let refusal = Refusal::new(503, "server_error", message).coded("overloaded");
        Refusal { retry: Some(seconds), ..refusal }
    }

    /// What this server, or its model, can't do.
    pub fn unable(message: impl Into<String>) -> Self {
        Refusal::new(501, "server_error", message).coded("not_supported")
    }

    /// The time for a request is over.
    pub fn late() -> Self {
        let message = "the request took longer than this server lets one take (--timeout)";
        Refusal::new(504, "server_error", message).coded("timeout")
    }

    /// The work ended without a word.
    pub fn silent() -> Self {
        Refusal::new(500, "server_error", "the answer broke off")
    }

    /// The same with a code.
    #[must_use]
    pub fn coded(self, code: &'static str) -> Self {
        Refusal { code: Some(code), ..self }
    }

    /// The body of the answer, in the shape that OpenAI's API gives errors.
    pub fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }
}

impl From<&ModelError> for Refusal {
    fn from(error: &ModelError) -> Self {
        if error.too_long() {
            return Refusal::invalid("messages", chain(error)).coded("context_length_exceeded");
        }
        if error.cause().is::<EndpointError>() {
            return Refusal::new(502, "server_error", chain(error)).coded("model_unavailable");
        }
        let param = match error.cause().downcast_ref() {
            Some(EngineError::Encoder { .. }) => return Refusal::unable(chain(error)),
            Some(EngineError::Grammar(error)) => match error {
                GrammarError::Schema { .. } | GrammarError::Build { tools: 0, .. } => "response_format",
                GrammarError::Grammar { .. } => "grammar",
                GrammarError::NoSuchTool { .. } => "tool_choice",
                GrammarError::Parameters { .. } | GrammarError::Name { .. } | GrammarError::Build { .. } => {
                    "tools"
                }
                GrammarError::Vocabulary { .. } | GrammarError::Failed { .. } => {
                    return Refusal::new(500, "server_error", chain(error));
                }
            },
            Some(EngineError::NoToolFormat { .. } | EngineError::ToolFormat { .. }) => "tools",
            Some(EngineError::Template(_) | EngineError::InvalidRequest { .. }) => "messages",
            _ => return Refusal::new(500, "server_error", chain(error)),
        };
        Refusal::invalid(param, chain(error))
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        match error {
            Error::Model(error) => Refusal::from(error),
            error => Refusal::new(500, "server_error", chain(error)),
        }
    }
}
