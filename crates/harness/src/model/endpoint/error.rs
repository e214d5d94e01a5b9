//! All errors of endpoints, by cause.

use alara_engine::TemplateError;

/// Why an endpoint can't be used, or didn't answer.
/// Never contains a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// An invalid address.
    #[error("{address} is no address of an endpoint: {reason}")]
    Address {
        /// The address.
        address: String,
        /// The problem.
        reason: String,
    },
    /// A key that can't be sent.
    #[error("the API key contains characters that no key has")]
    Key,
    /// No server answers there.
    #[error("no server answers at {url}: {reason}")]
    Unreachable {
        /// The address.
        url: String,
        /// The error instead.
        reason: String,
    },
    /// The endpoint refuses the key, or requires one.
    #[error("{url} {}{message}", if *keyed { "refuses the API key" } else { "wants an API key" })]
    Unauthorized {
        /// The address.
        url: String,
        /// Whether a key was sent.
        keyed: bool,
        /// The endpoint's message, after a colon.
        message: String,
    },
    /// The endpoint doesn't know the model.
    #[error("there is no model {model} at {url} (known: {})", known.join(", "))]
    NoModel {
        /// The address.
        url: String,
        /// The model.
        model: String,
        /// The available models.
        known: Vec<String>,
    },
    /// The endpoint serves several models, or none.
    #[error("{url} serves {}", if known.is_empty() { "no model".into() } else { format!("several models: {}", known.join(", ")) })]
    Which {
        /// The address.
        url: String,
        /// The available models.
        known: Vec<String>,
    },
    /// The conversation is longer than the model's context.
    #[error("the conversation does not fit the model's context{message}")]
    TooLong {
        /// The endpoint's message, after a colon.
        message: String,
    },
    /// The endpoint refuses tools.
    #[error("{url} can't serve tools{message}")]
    Tools {
        /// The address.
        url: String,
        /// The endpoint's message, after a colon.
        message: String,
    },
    /// Any other refusal.
    #[error("{url} answers {status}{message}")]
    Refused {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The endpoint's message, after a colon.
        message: String,
    },
    /// The endpoint asks to wait for too long.
    #[error("{url} answers {status} and wants to be asked again in {seconds} s{message}")]
    Busy {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// How long it asks to wait.
        seconds: u64,
        /// The endpoint's message, after a colon.
        message: String,
    },
    /// The answer doesn't follow the API.
    #[error("{url} does not answer as an OpenAI-compatible API does: {reason}")]
    Nonsense {
        /// The address.
        url: String,
        /// The problem.
        reason: String,
    },
    /// The endpoint sent nothing for too long.
    #[error("nothing came from {url} for {seconds} s")]
    Silent {
        /// The address.
        url: String,
        /// How long.
        seconds: u64,
    },
    /// The connection ended before the answer did.
    #[error("the connection to {url} broke off: {reason}")]
    BrokenOff {
        /// The address.
        url: String,
        /// The error.
        reason: String,
    },
    /// The endpoint reports an error in the middle of its answer.
    #[error("{url} failed while it answered{message}")]
    Failed {
        /// The address.
        url: String,
        /// The endpoint's message, after a colon.
        message: String,
    },
    /// The endpoint's content filter ended the answer.
    #[error("the content filter of {url} ended the answer")]
    Filtered {
        /// The address.
        url: String,
    },
    /// The answer should be JSON, but isn't.
    #[error("the answer should be JSON, and is not: {reason}")]
    NotJson {
        /// The problem.
        reason: String,
    },
    /// A request for a JSON answer together with tools that the prompt describes, for which nothing
    /// would enforce the schema.
    #[error("where the prompt describes the tools, an answer by a schema can't be had beside them")]
    SchemaBesideTools,
    /// The prompt can't describe the tools.
    #[error(transparent)]
    ToolFormat(#[from] TemplateError),
    /// No thread could be started for the turn.
    #[error("can't start a thread for the endpoint")]
    Thread(#[source] std::io::Error),
}

impl EndpointError {
    /// Whether the server of the model failed, rather than the model at its task.
    pub fn is_outage(&self) -> bool {
        !matches!(
            self,
            EndpointError::TooLong { .. }
                | EndpointError::Filtered { .. }
                | EndpointError::NotJson { .. }
                | EndpointError::SchemaBesideTools
                | EndpointError::ToolFormat(_)
        )
    }

    /// The next thing that a person can try.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            EndpointError::Address { .. } => "an address is https://HOST/v1#MODEL, or http://127.0.0.1:PORT/v1#MODEL".into(),
            EndpointError::Nonsense { .. } | EndpointError::Refused { status: 404 | 405, .. } => {
                "is this the API's address? It ends in /v1 with most servers: http://127.0.0.1:PORT/v1#MODEL".into()
            }
            EndpointError::Unreachable { .. } => "is the server running, and is this its address?".into(),
            EndpointError::Silent { url, .. } => {
                format!("is the server busy, or still loading its model? `curl {url}/models` tells whether it answers")
            }
            EndpointError::Unauthorized { .. } | EndpointError::Key => {
                "the key is taken from the environment variable ALARA_API_KEY, or from that which the team names".into()
            }
            EndpointError::NoModel { url, known, .. } | EndpointError::Which { url, known } => {
                format!("-m {url}#{}", known.first()?)
            }
            EndpointError::TooLong { .. } => "shorten the task, or serve the model with more context".into(),
            EndpointError::Tools { .. } => {
                "any model can call in the format that the prompt describes: --tool-format generic".into()
            }
            EndpointError::SchemaBesideTools => "leave out --tool-format or the tools, or take --calls forced".into(),
            _ => return None,
        })
    }
}
