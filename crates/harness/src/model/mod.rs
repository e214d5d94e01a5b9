//! The one way to a model: a request in, a stream of events out.

pub mod endpoint;
mod local;
mod models;
mod scripted;
mod spec;

use std::sync::Arc;

use alara_engine::{Event, Request};

pub use endpoint::Endpoint;
pub use models::{Candidate, Models, NoRoom};
pub use scripted::{Reply, Scripted};
pub use spec::ModelSpec;

/// The events of one turn, in order; `Event::Done` comes last. Dropping it cancels the turn.
///
/// A model that has to wait may give empty texts meanwhile: they say only that it is still at it, and let the listener leave.
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

/// Where agents get their models from.
pub trait ModelSource: Send + Sync {
    /// The model that `spec` asks for. It is kept ready at least as long as someone holds it.
    ///
    /// # Errors
    /// There is no such model, it can't be loaded, or there is no room for it.
    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel>, ModelError>;
}

/// One model, whatever is asked for.
pub struct Single(pub Arc<dyn ChatModel>);

impl ModelSource for Single {
    fn model(&self, _: &ModelSpec) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(self.0.clone())
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

    /// The model's own error.
    pub fn cause(&self) -> &(dyn std::error::Error + 'static) {
        &*self.0
    }
}
