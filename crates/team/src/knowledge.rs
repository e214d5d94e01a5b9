//! `knowledge:` of a `.ctx` or `.npc`: the documents, and how to search them.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fields::Fields;
use crate::source::Source;
use crate::types::Diagnostic;
use crate::yaml::Node;

/// The default embedding model.
pub const EMBEDDER: &str = "all-minilm-l6-v2";
/// The default number of passages of a search.
const K: usize = 10;
/// Most passages of a search.
const MOST: usize = 1000;

/// How documents reach an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Retrieval {
    /// They don't.
    None,
    /// The prompt contains the documents that a task needs.
    Golden,
    /// A search by the words of the query.
    #[default]
    Bm25,
    /// A search by vectors of a model.
    Embedding,
    /// A search by both: reciprocal rank fusion.
    Hybrid,
}

impl Retrieval {
    /// All methods.
    pub const ALL: [Retrieval; 5] =
        [Retrieval::None, Retrieval::Golden, Retrieval::Bm25, Retrieval::Embedding, Retrieval::Hybrid];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Retrieval::None => "none",
            Retrieval::Golden => "golden",
            Retrieval::Bm25 => "bm25",
            Retrieval::Embedding => "embedding",
            Retrieval::Hybrid => "hybrid",
        }
    }

    /// Whether it is a search.
    pub fn searches(self) -> bool {
        !matches!(self, Retrieval::None | Retrieval::Golden)
    }

    /// Whether a search needs vectors.
    pub fn embeds(self) -> bool {
        matches!(self, Retrieval::Embedding | Retrieval::Hybrid)
    }
}

impl fmt::Display for Retrieval {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Retrieval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Retrieval::ALL.map(Retrieval::name).join(", ");
        let found = Retrieval::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("there is no retrieval `{text}` (known: {})", known()))
    }
}

/// The documents that an agent can look up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Knowledge {
    /// The folder of the documents.
    #[serde(skip)]
    pub folder: PathBuf,
    /// How to search them.
    pub retrieval: Retrieval,
    /// How many passages a search returns.
    pub k: usize,
    /// The embedding model.
    pub model: String,
}

impl Knowledge {
    /// The documents of a folder, with default settings.
    pub fn of(folder: PathBuf) -> Self {
        Knowledge { folder, retrieval: Retrieval::default(), k: K, model: EMBEDDER.to_owned() }
    }
}

/// Reads `{folder, retrieval, k, model}`; `None` if it is unusable, with an error.
/// `base` is the team's folder.
///
/// The documents must be inside it: a team that was fetched from somewhere must not show a model
/// other files of the disk.
pub fn read(
    source: &Source,
    node: &Node,
    base: Option<&Path>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Knowledge> {
    let mut fields = Fields::new(source, node, diagnostics)?;
    let location = fields.location("folder");
    let folder = fields.text(&["folder"]);
    let at = fields.location("retrieval");
    let retrieval = fields.text(&["retrieval"]).map(|text| text.parse::<Retrieval>());
    let k = fields.entry(&["k"]).map(|entry| (entry.value.location, entry.value.value()));
    let model = fields.text(&["model"]).unwrap_or_else(|| EMBEDDER.to_owned());
    fields.unknown();
    let retrieval = match retrieval.transpose() {
        Ok(retrieval) => retrieval.unwrap_or_default(),
        Err(error) => {
            fields.error(at, format!("{error}; nothing of `knowledge` is used"));
            return None;
        }
    };
    let k = match k {
        None => K,
        Some((location, value)) => match value.as_u64().and_then(|k| usize::try_from(k).ok()) {
            Some(k @ 1..=MOST) => k,
            _ => {
                fields.error(location, format!("`k` is a number from 1 to {MOST}, not {value}"));
                K
            }
        },
    };
    let Some(folder) = folder else {
        fields.error(location, "`knowledge` needs a `folder` of documents, beside this file");
        return None;
    };
    let Some(base) = base else {
        fields.error(location, "a built-in team has no folder of documents");
        return None;
    };
    let path = base.join(&folder);
    let inside =
        Path::new(&folder).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let real = |path: &Path| path.canonicalize().ok();
    if !inside || real(&path).zip(real(base)).is_some_and(|(path, base)| !path.starts_with(base)) {
        fields
            .error(location, format!("the documents must lie in the team's folder, but `{folder}` does not"));
        return None;
    }
    if !path.is_dir() {
        fields.error(location, format!("there is no folder {}", path.display()));
        return None;
    }
    Some(Knowledge { folder: path, retrieval, k, model })
}
