//! The models that are served: what clients call them, and what is known of each without loading
//! it.

use std::sync::Arc;

use alara_harness::model::{Loaded, ModelSpec};
use serde_json::{Map, Value};

/// A model that clients may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// What it is listed as.
    pub name: String,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// What it is had with.
    pub spec: ModelSpec,
}

impl Served {
    /// Whether `name` is its own, or an alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// The one of `models` that `name` means: by its name or an alias, else without regard to the
    /// ending `.gguf`.
    pub fn find<'a>(models: &'a [Served], name: &str) -> Option<&'a Served> {
        let stem = |name: &str| name.strip_suffix(".gguf").unwrap_or(name).to_owned();
        let alike = |model: &&Served| {
            let mut names = model.aliases.iter().chain([&model.name]);
            names.any(|own| stem(own) == stem(name))
        };
        models.iter().find(|model| model.is_called(name)).or_else(|| models.iter().find(alike))
    }
}

/// What clients call a model: a file without its directories, which are nobody else's business.
pub fn called(name: &str) -> &str {
    if name.contains("://") { name } else { name.rsplit(['/', '\\']).next().unwrap_or(name) }
}

/// What the file of a model says of it, whether it is loaded or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Size of the file, or of all files of a split model.
    pub bytes: u64,
    /// When it was changed last, in seconds since 1970.
    pub modified: u64,
    /// What tells it from other files, in hexadecimal, 64 digits.
    pub digest: String,
    /// Its architecture, as `general.architecture` names it.
    pub architecture: String,
    /// How many numbers its tensors have.
    pub parameters: u64,
    /// How most of them are stored, such as `Q4_K_M`; empty if that is not known.
    pub quantization: String,
    /// Most tokens of a conversation, once it is loaded.
    pub context: Option<usize>,
    /// Tokens that it was trained for.
    pub trained_context: Option<u64>,
    /// Its chat template; empty if the file has none.
    pub template: String,
    /// What it can do, by Ollama's words: `completion` or `embedding`; `tools`, `insert`,
    /// `thinking`.
    pub capabilities: Vec<&'static str>,
    /// Its metadata; long arrays are null.
    pub metadata: Map<String, Value>,
}

/// What is told of a model, or of an NPC as one.
pub struct Listing {
    /// What it is called.
    pub name: String,
    /// Of an NPC: the model that it answers with.
    pub parent: Option<String>,
    /// What its file says; `None` of a model elsewhere.
    pub facts: Option<Arc<Facts>>,
    /// How it is loaded; `None` = it is not.
    pub loaded: Option<Loaded>,
}

impl Listing {
    /// Most tokens of a conversation.
    pub fn context(&self) -> Option<usize> {
        let loaded = self.loaded.as_ref().and_then(|loaded| loaded.context);
        loaded.or_else(|| self.facts.as_ref()?.context)
    }

    /// What it can do.
    /// Of a model elsewhere that is what most can; an NPC neither fills in text nor embeds it.
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
