//! The one way to a model: a request in, a stream of events out.

pub(crate) mod arguments;
pub mod endpoint;
mod local;
mod models;
mod prompt;
mod scripted;
pub mod shipped;
mod spec;
mod tuning;

use std::sync::Arc;
use std::time::Duration;

use alara_engine::{Engine, Event, Format, Request, Sampling};

pub use endpoint::{Endpoint, EndpointError};
pub use models::{Candidate, Loaded, Models, OverBudget};
pub use prompt::Prompt;
pub use scripted::{Reply, Scripted};
pub use spec::ModelSpec;
pub use tuning::{Tuned, Tuning};

/// The events of one turn, in order; `Event::Done` comes last.
/// Dropping it cancels the turn.
///
/// A model that has to wait may give empty texts meanwhile: they say only that it is still at it,
/// and let the listener leave.
pub type Events<'a> = Box<dyn Iterator<Item = Result<Event, ModelError>> + Send + 'a>;

/// How long a listener is left without an event.
const BEAT: Duration = Duration::from_millis(100);

/// Says that a turn goes on.
fn nothing() -> Event {
    Event::Text { text: String::new() }
}

/// A model that continues conversations: the local engine, an endpoint, or a script.
pub trait ChatModel: Send + Sync {
    /// What traces and reports call the model.
    fn name(&self) -> &str;

    /// Starts one turn.
    ///
    /// # Errors
    /// The request can't be served, for example because it is longer than the model's context.
    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError>;

    /// What it reads where `request` asks for a turn.
    ///
    /// # Errors
    /// The request can't be served, as far as that is seen before it is.
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

    /// Most tokens of a conversation; `None` = not known.
    fn context(&self) -> Option<usize> {
        self.inner()?.context()
    }

    /// How it writes calls, where they are read from its text on this machine; `None` = whoever
    /// serves it does that.
    fn format(&self) -> Option<&'static Format> {
        self.inner()?.format()
    }

    /// Whether somebody chose that format for it.
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

    /// How many parameters it has; `None` = not known.
    fn parameters(&self) -> Option<u64> {
        match self.inner() {
            Some(inner) => inner.parameters(),
            None => self.local().map(Engine::parameters),
        }
    }

    /// How tokens are sampled where nobody says otherwise.
    fn sampling(&self) -> Sampling {
        self.inner().map_or_else(Sampling::default, ChatModel::sampling)
    }

    /// The engine that runs it, for its vocabulary and template; `None` = it runs elsewhere.
    fn local(&self) -> Option<&Engine> {
        None
    }

    /// The same model as one that makes vectors; `None` = it makes none here.
    fn embedder(&self) -> Option<&dyn Embedder> {
        None
    }
}

/// A model that makes vectors of texts.
pub trait Embedder: Send + Sync {
    /// A vector of length 1 for each text, in order; what is too long for the model is cut.
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
    /// The model that `spec` means; loads it if need be.
    ///
    /// # Errors
    /// There is none, or it can't be loaded.
    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError>;

    /// The model of this name that makes vectors: that one, whatever goes before other models.
    ///
    /// # Errors
    /// There is none, or it can't be loaded.
    fn embedding(&self, name: &str) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        self.model(&ModelSpec::named(name))
    }

    /// What is used for `spec`: itself, unless something else goes before it.
    fn used(&self, spec: &ModelSpec) -> ModelSpec {
        spec.clone()
    }

    /// The models that are loaded, by what is used.
    fn loaded(&self) -> Vec<Loaded> {
        Vec::new()
    }

    /// Frees the memory of the model that is used for `spec`, unless it is at work.
    /// True if it was loaded, and no longer is.
    fn unload(&self, _spec: &ModelSpec) -> bool {
        false
    }
}

/// One model, whatever is asked for.
pub struct Single<'a>(pub &'a dyn ChatModel);

impl ModelSource for Single<'_> {
    fn model(&self, _spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        Ok(Arc::new(self.0))
    }
}

/// Why a model could not answer, in the model's own words.
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

    /// Whether whatever serves the model failed, rather than the model at what it was asked.
    pub fn is_outage(&self) -> bool {
        self.cause().downcast_ref().is_some_and(EndpointError::is_outage)
    }

    /// The model's own error.
    pub fn cause(&self) -> &(dyn std::error::Error + 'static) {
        &*self.0
    }
}
