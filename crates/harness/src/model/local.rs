//! The local engine as a model.

use std::task::Poll;

use alara_engine::{EmbedInput, Engine, Event, Format, Request, Sampling};

use super::{BEAT, ChatModel, Embedder, Events, ModelError, nothing};

impl ChatModel for Engine {
    fn name(&self) -> &str {
        Engine::name(self)
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        Ok(Box::new(Turn(self.generate(&request).map_err(ModelError::new)?)))
    }

    fn context(&self) -> Option<usize> {
        Some(Engine::context(self))
    }

    fn format(&self) -> Option<&'static Format> {
        Engine::format(self)
    }

    fn sampling(&self) -> Sampling {
        Engine::sampling(self).clone()
    }

    fn local(&self) -> Option<&Engine> {
        Some(self)
    }

    fn embedder(&self) -> Option<&dyn Embedder> {
        self.is_encoder().then_some(self)
    }
}

impl Embedder for Engine {
    fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let inputs: Vec<EmbedInput> = texts.iter().cloned().map(EmbedInput::Text).collect();
        Ok(Engine::embed(self, &inputs, true).map_err(ModelError::new)?.vectors)
    }
}

/// A running turn.
/// While its prompt is computed, which may take minutes, it yields empty texts.
struct Turn(alara_engine::Events);

impl Iterator for Turn {
    type Item = Result<Event, ModelError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.poll(BEAT) {
            Poll::Ready(event) => event.map(|event| event.map_err(ModelError::new)),
            Poll::Pending => Some(Ok(nothing())),
        }
    }
}
