//! Why a request gets no answer.

use alara_engine::inspect::TokenizerError;
use alara_engine::{Error as EngineError, GrammarError};
use alara_harness::client::Denied;
use alara_harness::error::chain;
use alara_harness::model::{EndpointError, OverBudget};
use alara_harness::{Error, ModelError};
use serde_json::{Value, json};

use crate::served::called;

/// OpenAI's code for a prompt that is longer than the context.
const TOO_LONG: &str = "context_length_exceeded";
/// Seconds after which a model may fit that did not fit beside those at work.
const ROOM: u64 = 5;

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
    /// By how much the prompt is too long, if that is it.
    too_long: Option<Box<TooLong>>,
}

/// A prompt that is longer than the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the context.
    pub context: usize,
    /// Tokens that the model was trained for.
    pub trained: usize,
}

impl TooLong {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        let TooLong { context, trained, .. } = self;
        match context < trained {
            true => format!("start the server with a larger --ctx (the model was trained for {trained})"),
            false => "the model was trained for no more, so a larger --ctx does not help: serve one with a longer context"
                .to_owned(),
        }
    }
}

impl Refusal {
    /// One with this status and message.
    pub fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        Refusal {
            status,
            kind,
            message: message.into(),
            param: None,
            code: None,
            retry: None,
            too_long: None,
        }
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
        Refusal::new(503, "server_error", message).coded("overloaded").again(seconds)
    }

    /// What this server, or its model, can't do.
    /// The request is at fault: no server of this kind would do it, so it is no 501.
    pub fn unable(message: impl Into<String>) -> Self {
        Refusal::new(400, "invalid_request_error", message).coded("not_supported")
    }

    /// The model repeats itself in a call of `tool`, and nothing closes the call.
    pub fn repetition(tool: &str) -> Self {
        let message = format!(
            "the model repeats itself in a call of {tool} without end; a maxLength or maxItems in the tool's \
             schema, a repetition penalty or another model helps"
        );
        Refusal::new(422, "server_error", message).coded("repetition")
    }

    /// A model has no room in memory; it may have once the models at work are done.
    fn full(error: &OverBudget) -> Self {
        let OverBudget { spec, bytes, budget, held, holders } = error;
        let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
        let mut message =
            format!("{} takes {} of memory, of {}", called(&spec.to_string()), gib(*bytes), gib(*budget));
        if !holders.is_empty() {
            let names: Vec<String> =
                holders.iter().map(|spec| called(&spec.to_string()).to_owned()).collect();
            message += &format!(", and {} are held by models at work: {}", gib(*held), names.join(", "));
        }
        let refusal = Refusal::new(503, "server_error", message).coded("out_of_memory");
        Refusal { retry: (bytes <= budget).then_some(ROOM), ..refusal }
    }

    /// The time for a request is over.
    pub fn late() -> Self {
        let message = "the request took longer than this server lets one take (--timeout)";
        Refusal::new(504, "server_error", message).coded("timeout")
    }

    /// Why a text is not tokenized, or no prompt is made of a field.
    pub fn untokenized(field: &str, error: &EngineError) -> Self {
        if error.is_over() { Refusal::late() } else { Refusal::invalid(field, error.to_string()) }
    }

    /// The work ended without a word.
    pub fn silent() -> Self {
        Refusal::new(500, "server_error", "the answer broke off")
    }

    /// A prompt that is longer than the context, in the field `param`.
    pub fn too_long(param: &str, too_long: TooLong) -> Self {
        let TooLong { prompt, context, .. } = too_long;
        let remedy = too_long.remedy();
        let message = format!(
            "the prompt has {prompt} tokens, but the context holds {context}: shorten it, or {remedy}"
        );
        let refusal = Refusal::invalid(param, message).coded(TOO_LONG);
        Refusal { too_long: Some(Box::new(too_long)), ..refusal }
    }

    /// A wire format's message for a prompt that is too long: `numbers` where these are known, else
    /// `words` before what somebody else said of it.
    /// `None`: that isn't it.
    pub fn of_length(&self, words: &str, numbers: impl FnOnce(&TooLong) -> String) -> Option<String> {
        match &self.too_long {
            Some(too_long) => Some(numbers(too_long)),
            None => (self.code == Some(TOO_LONG)).then(|| format!("{words}: {}", self.message)),
        }
    }

    /// By how much the prompt is too long, if that is it.
    pub fn length(&self) -> Option<TooLong> {
        self.too_long.as_deref().copied()
    }

    /// The same with a code.
    #[must_use]
    pub fn coded(self, code: &'static str) -> Self {
        Refusal { code: Some(code), ..self }
    }

    /// The same, which may succeed in so many seconds.
    #[must_use]
    pub fn again(self, seconds: u64) -> Self {
        Refusal { retry: Some(seconds), ..self }
    }

    /// The same about a file of this `name`, without its directories, which are nobody else's
    /// business.
    #[must_use]
    pub fn about(self, name: &str) -> Self {
        Refusal { message: self.message.replace(name, called(name)), ..self }
    }

    /// The body of the answer, in the shape that OpenAI's API gives errors.
    pub fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }
}

impl From<&ModelError> for Refusal {
    fn from(error: &ModelError) -> Self {
        if error.too_long() {
            return match error.cause().downcast_ref() {
                Some(&EngineError::PromptTooLong { prompt, context, trained }) => {
                    Refusal::too_long("messages", TooLong { prompt, context, trained })
                }
                _ => Refusal::invalid("messages", chain(error)).coded(TOO_LONG),
            };
        }
        if error.cause().is::<EndpointError>() {
            return Refusal::new(502, "server_error", chain(error)).coded("model_unavailable");
        }
        if error.cause().is::<Denied>() {
            return Refusal::new(422, "agent_error", chain(error)).coded("denied");
        }
        if let Some(error) = error.cause().downcast_ref::<OverBudget>() {
            return Refusal::full(error);
        }
        let param = match error.cause().downcast_ref() {
            Some(EngineError::Encoder { .. }) => return Refusal::unable(chain(error)),
            Some(error) if error.is_over() => return Refusal::late(),
            Some(EngineError::Grammar(error)) => match error {
                GrammarError::Schema { .. } | GrammarError::Build { tools: 0, .. } => "response_format",
                GrammarError::Grammar { .. } => "grammar",
                GrammarError::NoSuchTool { .. } => "tool_choice",
                GrammarError::Parameters { .. } | GrammarError::Name { .. } | GrammarError::Build { .. } => {
                    "tools"
                }
                // What was asked for is at fault, and would be again.
                GrammarError::Failed { .. } => {
                    return Refusal::new(422, "invalid_request_error", chain(error)).coded("grammar_failed");
                }
                GrammarError::Vocabulary { .. } | GrammarError::Over(_) => {
                    return Refusal::new(500, "server_error", chain(error));
                }
            },
            Some(EngineError::NoToolFormat { .. } | EngineError::ToolFormat { .. }) => "tools",
            Some(
                EngineError::Template(_)
                | EngineError::InvalidRequest { .. }
                | EngineError::Tokenizer(TokenizerError::Text { .. }),
            ) => "messages",
            _ => return Refusal::new(500, "server_error", chain(error)),
        };
        Refusal::invalid(param, chain(error))
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        match error {
            Error::Model(error) => Refusal::from(error),
            // The directory of a file is nobody else's business.
            Error::Invalid(wrong) => {
                let directory = wrong.path.parent().map(|directory| format!("{}/", directory.display()));
                let directory = directory.filter(|directory| directory != "/").unwrap_or_default();
                let message = match directory.is_empty() {
                    true => wrong.plain(),
                    false => wrong.plain().replace(&directory, ""),
                };
                Refusal::new(500, "server_error", message).coded("invalid_agent")
            }
            error => Refusal::new(500, "server_error", chain(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_not_told() {
        let told = |name: &str| Refusal::unable(format!("{name} can't do that")).about(name).message;
        assert_eq!(told("/home/me/models/a.gguf"), "a.gguf can't do that");
        assert_eq!(told("a.gguf"), "a.gguf can't do that");
        assert_eq!(told("http://127.0.0.1:1/v1#m"), "http://127.0.0.1:1/v1#m can't do that");
    }
}
