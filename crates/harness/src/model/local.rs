//! The local engine as a model.

use alara_engine::{Engine, Request};

use super::{ChatModel, Events, ModelError};

impl ChatModel for Engine {
    fn name(&self) -> &str {
        Engine::name(self)
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        let events = self.generate(&request).map_err(ModelError::new)?;
        Ok(Box::new(events.map(|event| event.map_err(ModelError::new))))
    }

    fn context(&self) -> Option<usize> {
        Some(Engine::context(self))
    }
}
