//! How agents use a model by default.

use alara_engine::{Engine, Request};
use serde::{Deserialize, Serialize};

use super::{ChatModel, Embedder, Events, ModelError, Prompt};
use crate::calls::Calls;

/// The settings that were measured to work best with a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// The format of its calls, by name; `None` leaves it to its NPC or its template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_format: Option<String>,
    /// Whether each turn is a call; `None` leaves it to its NPC or its format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calls>,
    /// The sampling temperature; `None` uses the model's recommendation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
}

/// A model with its tuning.
pub struct Tuned<M> {
    /// The model.
    pub model: M,
    /// How agents use it.
    pub tuning: Tuning,
}

impl<M: ChatModel> ChatModel for Tuned<M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        self.model.chat(request)
    }

    fn prompt(&self, request: &Request) -> Result<Prompt, ModelError> {
        self.model.prompt(request)
    }

    fn tuning(&self) -> Tuning {
        self.tuning.clone()
    }

    fn local(&self) -> Option<&Engine> {
        self.model.local()
    }

    fn embedder(&self) -> Option<&dyn Embedder> {
        self.model.embedder()
    }

    fn inner(&self) -> Option<&dyn ChatModel> {
        Some(&self.model)
    }
}
