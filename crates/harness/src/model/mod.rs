//! The one way to a model: a request in, a stream of events out.

pub(crate) mod arguments;
pub mod endpoint;
mod local;
mod models;
mod prompt;
mod scripted;
mod tuning;

use std::sync::Arc;
use std::time::Duration;

use alara_engine::{Engine, Event, Format, Request, Sampling};
pub use alara_team::model_spec::ModelSpec;

pub use endpoint::{Endpoint, EndpointError};
pub use models::{Candidate, Loaded, Models, OverBudget};
pub use prompt::Prompt;
pub use scripted::{Reply, Scripted};
pub use tuning::{Tuned, Tuning};

/// The events of one turn, in order; `Event::Done` comes last.
/// Dropping it cancels the turn.
///
/// A model that has to wait may yield empty texts meanwhile: they only show that it is still
/// working, and let the listener cancel.
pub type Events<'a> = Box<dyn Iterator<Item = Result<Event, ModelError>> + Send + 'a>;

/// The longest time between two events.
const BEAT: Duration = Duration::from_millis(100);

/// The event that shows that a turn goes on.
fn nothing() -> Event {
    Event::Text { text: String::new() }
}

/// A model that continues conversations: the local engine, an endpoint, or a script.
pub trait ChatModel: Send + Sync {
    /// The model's name in traces and reports.
    fn name(&self) -> &str;

    /// Starts one turn.
    ///
    /// # Errors
    /// The request can't be served, for example because it is longer than the model's context.
    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError>;

    /// The prompt that it reads for `request`.
    ///
    /// # Errors
    /// The request can't be served, if that is known in advance.
    fn prompt(&self, request: &Request) -> Result<Prompt, ModelError> {
        match self.local() {
            Some(engine) => Ok(Prompt::Tokens(engine.prompt_pieces(request).map_err(ModelError::new)?)),
            None => Ok(Prompt::of_parts(request)),
        }
    }

    /// The model that it passes turns on to, whose properties are its own.
    fn inner(&self) -> Option<&dyn ChatModel> {
        None
    }

    /// Most tokens of a conversation; `None` if unknown.
    fn context(&self) -> Option<usize> {
        self.inner()?.context()
    }

    /// The format in which it writes calls, if they are parsed from its text on this machine;
    /// `None` if its server does that.
    fn format(&self) -> Option<&'static Format> {
        self.inner()?.format()
    }

    /// Whether the user chose that format for it.
    fn format_is_chosen(&self) -> bool {
        match self.inner() {
            Some(inner) => inner.format_is_chosen(),
            None => self.local().is_some_and(Engine::format_is_chosen),
        }
    }

    /// How agents use it by default.
    fn tuning(&self) -> Tuning {
        self.inner().map_or_else(Tuning::default, ChatModel::tuning)
    }

    /// How many parameters it has; `None` if unknown.
    fn parameters(&self) -> Option<u64> {
        match self.inner() {
            Some(inner) => inner.parameters(),
            None => self.local().map(Engine::parameters),
        }
    }

    /// Its default sampling settings.
    fn sampling(&self) -> Sampling {
        self.inner().map_or_else(Sampling::default, ChatModel::sampling)
    }

    /// The engine that runs it, for its vocabulary and template; `None` if it runs elsewhere.
    fn local(&self) -> Option<&Engine> {
        None
    }

    /// The model as an embedder; `None` if it makes no vectors here.
    fn embedder(&self) -> Option<&dyn Embedder> {
        None
    }
}

/// A model that makes vectors of texts.
pub trait Embedder: Send + Sync {
    /// A vector of length 1 for each text, in order; a text that is too long for the model is cut.
    /// `[N, D]`
    ///
    /// # Errors
    /// The model fails.
    fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError>;
}

impl<M: ChatModel + ?Sized> ChatModel for &M {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        (**self).chat(request)
    }

    fn prompt(&self, request: &Request) -> Result<Prompt, ModelError> {
        (**self).prompt(request)
    }

    fn context(&self) -> Option<usize> {
        (**self).context()
    }

    fn format(&self) -> Option<&'static Format> {
        (**self).format()
    }

    fn format_is_chosen(&self) -> bool {
        (**self).format_is_chosen()
    }

    fn tuning(&self) -> Tuning {
        (**self).tuning()
    }

    fn parameters(&self) -> Option<u64> {
        (**self).parameters()
    }

    fn sampling(&self) -> Sampling {
        (**self).sampling()
    }

    fn local(&self) -> Option<&Engine> {
        (**self).local()
    }

    fn embedder(&self) -> Option<&dyn Embedder> {
        (**self).embedder()
    }
}

/// Where models come from: an NPC may name its own.
pub trait ModelSource: Sync {
    /// The model for `spec`, loaded if necessary.
    ///
    /// # Errors
    /// There is none, or it can't be loaded.
    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError>;

    /// The embedding model of this name, regardless of overrides for other models.
    ///
    /// # Errors
    /// There is none, or it can't be loaded.
    fn embedding(&self, name: &str) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        self.model(&ModelSpec::named(name))
    }

    /// The spec that is used for `spec`: itself, unless something overrides it.
    fn used(&self, spec: &ModelSpec) -> ModelSpec {
        spec.clone()
    }

    /// The loaded models, by the spec in use.
    fn loaded(&self) -> Vec<Loaded> {
        Vec::new()
    }

    /// Frees the memory of the model that is used for `spec`, unless it is busy.
    /// Returns true if it was loaded, and no longer is.
    fn unload(&self, _spec: &ModelSpec) -> bool {
        false
    }
}

/// One model, whatever the request.
pub struct Single<'a>(pub &'a dyn ChatModel);

impl ModelSource for Single<'_> {
    fn model(&self, _spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        Ok(Arc::new(self.0))
    }
}

/// Why a model could not answer, with the model's own error.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ModelError(Box<dyn std::error::Error + Send + Sync>);

impl ModelError {
    /// Wraps any error, or a text.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        ModelError(error.into())
    }

    /// Whether the conversation was too long for the model.
    pub fn too_long(&self) -> bool {
        matches!(self.cause().downcast_ref(), Some(alara_engine::Error::PromptTooLong { .. }))
            || matches!(self.cause().downcast_ref(), Some(EndpointError::TooLong { .. }))
    }

    /// Whether the server of the model failed, rather than the model at its task.
    pub fn is_outage(&self) -> bool {
        self.cause().downcast_ref().is_some_and(EndpointError::is_outage)
    }

    /// The model's own error.
    pub fn cause(&self) -> &(dyn std::error::Error + 'static) {
        &*self.0
    }
}
