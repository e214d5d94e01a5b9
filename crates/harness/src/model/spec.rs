//! Which model an agent wants, as team files say it.

use std::fmt;

use serde::Serialize;

/// Which model an agent wants. Nothing said = the model that ships, or what the command line says.
///
/// A key is never kept here, only the name of the environment variable that holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelSpec {
    /// The model's name: of a file, of the catalog, or what the endpoint calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Who serves it. Only said in messages: where a model is, `api_url` tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The address of an OpenAI-compatible endpoint; `None` = a model on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
    /// The name of the environment variable that holds the endpoint's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.api_url, &self.model) {
            (Some(url), Some(model)) => write!(f, "{url}#{model}"),
            (Some(name), None) | (None, Some(name)) => f.write_str(name),
            (None, None) => f.write_str("the model that ships"),
        }
    }
}
