//! Reasons why a request gets no answer.

use alara_engine::inspect::TokenizerError;
use alara_engine::{Error as EngineError, GrammarError};
use alara_harness::client::Denied;
use alara_harness::error::chain;
use alara_harness::model::{EndpointError, OverBudget};
use alara_harness::{Error, ModelError, TeamError};
use serde_json::{Value, json};

use crate::served::called;

/// OpenAI's code for a prompt that is longer than the context.
const TOO_LONG: &str = "context_length_exceeded";
/// Seconds after which a model may fit that had no room next to those in use.
const ROOM: u64 = 5;

/// The reason why a request gets no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// OpenAI's name for the kind of error.
    pub kind: &'static str,
    /// The message for people.
    pub message: String,
    /// The field of the request that it is about.
    param: Option<String>,
    /// The code for programs.
    code: Option<&'static str>,
    /// Seconds after which the same request may succeed.
    /// `None` if a client must not retry by itself, because it would repeat an agent's work.
    pub retry: Option<u64>,
    /// Details, if the prompt is too long.
    too_long: Option<Box<TooLong>>,
}

/// A prompt that is longer than the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Context length in tokens.
    pub context: usize,
    /// Training context in tokens.
    pub trained: usize,
}

impl TooLong {
    /// Suggests a remedy.
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
    /// Creates a refusal with this status and message.
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

    /// The request isn't supported.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Refusal { param: Some(param.into()), ..Refusal::new(400, "invalid_request_error", message) }
    }

    /// The request is for something that doesn't exist.
    pub fn unknown(param: &str, message: impl Into<String>) -> Self {
        Refusal { status: 404, ..Refusal::invalid(param, message) }
    }

    /// The client has no access.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Refusal::new(403, "permission_error", message).coded("forbidden")
    }

    /// Too many requests are waiting or connected; that may change in `seconds`.
    pub fn busy(seconds: u64) -> Self {
        let message = "too many requests wait already; try again later";
        Refusal::new(503, "server_error", message).coded("overloaded").again(seconds)
    }

    /// This server, or its model, doesn't support the request.
    /// The request is at fault: no server of this kind would support it, so the status isn't 501.
    pub fn unable(message: impl Into<String>) -> Self {
        Refusal::new(400, "invalid_request_error", message).coded("not_supported")
    }

    /// The model repeats itself in a call of `tool`, and nothing ends the call.
    pub fn repetition(tool: &str) -> Self {
        let message = format!(
            "the model repeats itself in a call of {tool} without end; a maxLength or maxItems in the tool's \
             schema, a repetition penalty or another model helps"
        );
        Refusal::new(422, "server_error", message).coded("repetition")
    }

    /// A model has no room in memory until the models in use are done.
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

    /// The request's time limit is exceeded.
    pub fn late() -> Self {
        let message = "the request took longer than this server lets one take (--timeout)";
        Refusal::new(504, "server_error", message).coded("timeout")
    }

    /// A text can't be tokenized, or a field can't be turned into a prompt.
    pub fn untokenized(field: &str, error: &EngineError) -> Self {
        if error.is_over() { Refusal::late() } else { Refusal::invalid(field, error.to_string()) }
    }

    /// The work ended without a result.
    pub fn silent() -> Self {
        Refusal::new(500, "server_error", "the answer broke off")
    }

    /// The prompt in the field `param` is longer than the context.
    pub fn too_long(param: &str, too_long: TooLong) -> Self {
        let TooLong { prompt, context, .. } = too_long;
        let remedy = too_long.remedy();
        let message = format!(
            "the prompt has {prompt} tokens, but the context holds {context}: shorten it, or {remedy}"
        );
        let refusal = Refusal::invalid(param, message).coded(TOO_LONG);
        Refusal { too_long: Some(Box::new(too_long)), ..refusal }
    }

    /// Returns a wire format's message for a prompt that is too long: `numbers` if they are known,
    /// else `words` followed by the original message.
    /// `None` if that isn't the reason.
    pub fn of_length(&self, words: &str, numbers: impl FnOnce(&TooLong) -> String) -> Option<String> {
        match &self.too_long {
            Some(too_long) => Some(numbers(too_long)),
            None => (self.code == Some(TOO_LONG)).then(|| format!("{words}: {}", self.message)),
        }
    }

    /// Returns the details, if the prompt is too long.
    pub fn length(&self) -> Option<TooLong> {
        self.too_long.as_deref().copied()
    }

    /// Adds a code.
    #[must_use]
    pub fn coded(self, code: &'static str) -> Self {
        Refusal { code: Some(code), ..self }
    }

    /// Allows a retry after `seconds`.
    #[must_use]
    pub fn again(self, seconds: u64) -> Self {
        Refusal { retry: Some(seconds), ..self }
    }

    /// Adds a file's `name` without its directories, which are private.
    #[must_use]
    pub fn about(self, name: &str) -> Self {
        Refusal { message: self.message.replace(name, called(name)), ..self }
    }

    /// Returns the body of the response, as OpenAI's API formats errors.
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
                // The request is at fault, so a retry would fail again.
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
            Error::Team(error) => Refusal::from(error),
            error => Refusal::new(500, "server_error", chain(error)),
        }
    }
}

impl From<&TeamError> for Refusal {
    fn from(error: &TeamError) -> Self {
        match error {
            // The directory of a file is private.
            TeamError::Invalid(wrong) => {
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
