//! The one way to a model: a request in, a stream of events out.

mod local;
mod scripted;

use alara_engine::{Event, Request};

pub use scripted::{Reply, Scripted};

/// The events of one turn, in order; `Event::Done` comes last. Dropping it cancels the turn.
pub type Events<'a> = Box<dyn Iterator<Item = Result<Event, ModelError>> + Send + 'a>;

/// A model that continues conversations: the local engine, an endpoint, or a script.
pub trait ChatModel: Send + Sync {
    /// What traces and reports call the model.
    fn name(&self) -> &str;

    /// Starts one turn.
    ///
    /// # Errors
    /// The request can't be served, for example because it is longer than the model's context.
    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError>;
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

    /// The model's own error.
    pub fn cause(&self) -> &(dyn std::error::Error + 'static) {
        &*self.0
    }
}
