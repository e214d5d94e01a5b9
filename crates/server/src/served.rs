//! The served models: their names for clients, and their data, available without loading them.

use std::sync::Arc;

use alara_harness::model::{Loaded, ModelSpec};
use serde_json::{Map, Value};

/// A model that clients may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Name in the list.
    pub name: String,
    /// Aliases.
    pub aliases: Vec<String>,
    /// Spec for loading it.
    pub spec: ModelSpec,
}

impl Served {
    /// Whether `name` is its name or an alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// Finds the model that `name` means: by its name or an alias, else ignoring the extension
    /// `.gguf`.
    pub fn find<'a>(models: &'a [Served], name: &str) -> Option<&'a Served> {
        let stem = |name: &str| name.strip_suffix(".gguf").unwrap_or(name).to_owned();
        let alike = |model: &&Served| {
            let mut names = model.aliases.iter().chain([&model.name]);
            names.any(|own| stem(own) == stem(name))
        };
        models.iter().find(|model| model.is_called(name)).or_else(|| models.iter().find(alike))
    }
}

/// Returns the clients' name of a model: that of its file without its directories, which are
/// private.
pub fn called(name: &str) -> &str {
    if name.contains("://") { name } else { name.rsplit(['/', '\\']).next().unwrap_or(name) }
}

/// Data from a model's file, whether it is loaded or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Size of the file, or of all files of a split model.
    pub bytes: u64,
    /// Time of the last change, in seconds since 1970.
    pub modified: u64,
    /// Digest that identifies the file, 64 hexadecimal digits.
    pub digest: String,
    /// Architecture, from `general.architecture`.
    pub architecture: String,
    /// Number of elements of all tensors.
    pub parameters: u64,
    /// The predominant quantization, such as `Q4_K_M`; empty if unknown.
    pub quantization: String,
    /// Maximum conversation length in tokens, once it is loaded.
    pub context: Option<usize>,
    /// Training context in tokens.
    pub trained_context: Option<u64>,
    /// Chat template; empty if the file has none.
    pub template: String,
    /// Capabilities in Ollama's terms: `completion` or `embedding`; `tools`, `insert`, `thinking`.
    pub capabilities: Vec<&'static str>,
    /// Metadata; long arrays are null.
    pub metadata: Map<String, Value>,
}

/// An entry in the list of models and NPCs.
pub struct Listing {
    /// Name.
    pub name: String,
    /// For an NPC, its model.
    pub parent: Option<String>,
    /// Data from its file; `None` for a remote model.
    pub facts: Option<Arc<Facts>>,
    /// The loaded model; `None` if it isn't loaded.
    pub loaded: Option<Loaded>,
}

impl Listing {
    /// Returns the maximum conversation length in tokens.
    pub fn context(&self) -> Option<usize> {
        let loaded = self.loaded.as_ref().and_then(|loaded| loaded.context);
        loaded.or_else(|| self.facts.as_ref()?.context)
    }

    /// Returns its capabilities.
    /// For a remote model, returns the usual ones; an NPC neither fills in text nor embeds it.
    pub fn capabilities(&self) -> Vec<&'static str> {
        let mut can = match &self.facts {
            Some(facts) => facts.capabilities.clone(),
            None => vec!["completion", "tools"],
        };
        can.retain(|can| self.parent.is_none() || !["insert", "embedding"].contains(can));
        can
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let model = |name: &str, aliases: &[&str]| Served {
            name: name.to_owned(),
            aliases: aliases.iter().map(ToString::to_string).collect(),
            spec: ModelSpec::named(name),
        };
        let models = [model("a.gguf", &["x"]), model("a", &[]), model("b.gguf", &["c.gguf"])];
        let check = |name: &str, expected: Option<usize>| {
            assert_eq!(Served::find(&models, name), expected.map(|at| &models[at]), "{name}");
        };
        check("a.gguf", Some(0));
        check("a", Some(1));
        check("x", Some(0));
        check("b", Some(2));
        check("c", Some(2));
        check("x.gguf", Some(0));
        check("d", None);
        check("", None);
    }

    #[test]
    fn what_an_npc_can_do() {
        let facts = Facts { capabilities: vec!["completion", "tools", "insert"], ..Facts::default() };
        let listing = |parent: Option<&str>| Listing {
            name: "n".into(),
            parent: parent.map(str::to_owned),
            facts: Some(Arc::new(facts.clone())),
            loaded: None,
        };
        assert_eq!(listing(None).capabilities(), ["completion", "tools", "insert"]);
        assert_eq!(listing(Some("m")).capabilities(), ["completion", "tools"]);
    }
}
