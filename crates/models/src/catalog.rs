//! The models that alara knows by name: data about them, and where the hub has their files.
//!
//! The catalog is data: one file per model in `models/catalog`, embedded in this crate.

pub(crate) mod alike;
mod sampling;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use alara_engine::inspect::Architecture;
use include_dir::{Dir, include_dir};
use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::name::{HubName, Wanted, is_gguf};

pub use sampling::Recommended;

/// The `-m` name of the model that ships.
pub const SHIPPED: &str = "alara-tiny";

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/$ALARA_MODELS/catalog");

/// A model in the catalog: the file that `pull` downloads, and data about the model.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The name for `-m` and `pull`.
    pub name: String,
    /// The display name.
    pub title: String,
    /// The family of models, as people call it.
    pub family: String,
    /// The architecture file used to read its GGUF file.
    pub architecture: String,
    /// Name of this model in Ollama's library, if it is there.
    pub ollama: Option<String>,
    /// The hub's repository, `owner/name`.
    pub repository: String,
    /// The commit that contains the file as described here; if absent, the newest is used.
    pub revision: Option<String>,
    /// The path of the file in the repository.
    pub file: String,
    /// Further files that `pull` downloads: for a checkpoint, those that accompany its tensors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// SHA-256 of the file, in hexadecimal.
    /// If absent, downloads are checked against the hub's own checksum.
    pub sha256: Option<String>,
    /// Size of the file, in bytes.
    pub size: Option<u64>,
    /// The quantization of the file, such as `Q4_K_M`.
    pub quantization: String,
    /// Context length that the model was trained for, in tokens.
    pub context: u64,
    /// Parameters of the language model, in billions.
    pub parameters: f64,
    /// Active parameters per token, in billions, for a mixture of experts.
    pub active: Option<f64>,
    /// Whether the model was trained to call tools, in a format of its own.
    pub tools: bool,
    /// The publisher's name for the license of the weights; absent if uncertain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// A published score for general knowledge, if known.
    pub score: Option<Score>,
    /// The publisher's recommended sampling parameters.
    /// Absent if the model card has none, or they could not be verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Recommended>,
    /// Whether two independent public records agree on file, size and checksum.
    pub verified: bool,
    /// Whether to suggest this model where no larger one fits.
    #[serde(default)]
    pub choice: bool,
}

/// A published score.
/// Scores of different benchmarks aren't comparable.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// The benchmark, and how it was run.
    pub benchmark: String,
    /// Percentage.
    pub value: f64,
    /// Who published the score.
    pub source: String,
}

impl Entry {
    /// Returns the file on the hub.
    pub fn wanted(&self) -> HubName {
        HubName {
            repository: self.repository.clone(),
            revision: self.revision.clone(),
            wanted: Wanted::File(self.file.clone()),
        }
    }

    /// Formats the number of parameters for display.
    pub fn counted(&self) -> String {
        match self.active {
            Some(active) => format!("{} B, {active} a token", self.parameters),
            None => format!("{} B", self.parameters),
        }
    }

    /// Whether this is a checkpoint rather than a GGUF file.
    pub fn is_checkpoint(&self) -> bool {
        !is_gguf(&self.file)
    }

    /// Returns its file in the cache, if the files that accompany it are there too.
    pub fn cached(&self, cache: &Cache) -> Option<PathBuf> {
        let path = cache.find(&self.repository, &self.file, self.sha256.as_deref())?;
        self.beside.iter().all(|file| path.with_file_name(file).is_file()).then_some(path)
    }
}

/// Returns all catalog models that this build can run, by family, small ones first.
pub fn entries() -> Result<&'static [Entry]> {
    static ENTRIES: LazyLock<Result<Vec<Entry>, String>> = LazyLock::new(|| {
        let mut entries = all()?;
        entries.retain(|entry| Architecture::is_known(&entry.architecture));
        entries.sort_by(|a, b| {
            a.family.cmp(&b.family).then(a.parameters.total_cmp(&b.parameters)).then(a.name.cmp(&b.name))
        });
        Ok(entries)
    });
    ENTRIES.as_ref().map(Vec::as_slice).map_err(|error| Error::Catalog(error.clone()))
}

/// Parses the catalog's files.
fn all() -> Result<Vec<Entry>, String> {
    let parse = |file: &include_dir::File<'_>| {
        let text = file.contents_utf8().unwrap_or_default();
        serde_saphyr::from_str(text)
            .map_err(|error| format!("models/catalog/{}: {error}", file.path().display()))
    };
    FILES.files().map(parse).collect()
}

/// Finds the model with this name, whether ours or Ollama's.
pub fn find(name: &str) -> Result<Option<&'static Entry>> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    Ok(entries()?.iter().find(|entry| is(&entry.name) || entry.ollama.as_deref().is_some_and(is)))
}

/// Finds the catalog entry for a file, whatever its quantization.
pub fn of_file(path: &Path) -> Option<&'static Entry> {
    sampling::of_file(path, entries().ok()?)
}

/// Finds the model that `name` means in another spelling, such as Ollama's `qwen3:4b`.
pub fn meant(name: &str) -> Result<Option<&'static Entry>> {
    Ok(alike::meant(name, entries()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hub, name};

    #[test]
    fn the_catalog_is_whole() {
        let entries = all().unwrap();
        assert_eq!(entries.len(), 59);
        for entry in &entries {
            let name = &entry.name;
            assert!(FILES.get_file(format!("{name}.yaml")).is_some(), "{name} is in a file of another name");
            if entry.is_checkpoint() {
                assert_eq!(entry.file, alara_engine::WEIGHTS, "{name}");
                assert!(
                    ["config.json", "tokenizer.json"]
                        .iter()
                        .all(|file| entry.beside.contains(&(*file).into()))
                );
            } else {
                let hub: name::HubName = format!("{}:{}", entry.repository, entry.file).parse().unwrap();
                assert_eq!(hub.wanted, name::Wanted::File(entry.file.clone()), "{name}");
                assert!(entry.file.to_lowercase().contains(&entry.quantization.to_lowercase()), "{name}");
            }
            assert!(entry.beside.iter().all(|file| name::is_inside(file)), "{name}");
            assert_eq!(entry.verified, entry.sha256.is_some() && entry.size.is_some(), "{name}");
            assert!(entry.sha256.iter().all(|hash| hub::is_sha256(hash)), "{name}: {:?}", entry.sha256);
            assert!(entry.revision.iter().all(|commit| hub::is_commit(commit)), "{name}");
            // About four bits or a few more per parameter, or all 32; a wrong digit in the size or
            // in the parameters fails this.
            let bits = entry.size.map_or(5.0, |size| size as f64 * 8.0 / entry.parameters / 1e9);
            let expected = if entry.quantization == "F32" { 31.0..33.0 } else { 4.2..9.0 };
            assert!(expected.contains(&bits), "{name}: {bits} bits a parameter");
            assert!(
                entry.active.is_none_or(|active| (0.2..entry.parameters / 2.0).contains(&active)),
                "{name}"
            );
            assert!(entry.score.iter().all(|score| (0.0..100.0).contains(&score.value)), "{name}");
            let same = |other: &&Entry| other.name == *name || other.ollama.as_deref() == Some(name);
            assert_eq!(entries.iter().filter(same).count(), 1, "{name}");
        }
    }

    #[test]
    fn a_checkpoint_is_here_once_all_its_files_are() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().to_owned() };
        let entry = find("all-MiniLM-L6-v2").unwrap().unwrap();
        let (repository, commit) = (&entry.repository, "1".repeat(40));
        let put = |etag: &str, file: &str| {
            let blob = cache.blob(repository, etag);
            std::fs::create_dir_all(blob.parent().unwrap()).unwrap();
            std::fs::write(blob, file).unwrap();
            cache.publish(repository, etag, &commit, "main", file).unwrap()
        };
        let weights = put(entry.sha256.as_deref().unwrap(), &entry.file);
        for (at, file) in entry.beside.iter().enumerate() {
            assert_eq!(entry.cached(&cache), None, "{file} is missing");
            put(&format!("{at:040}"), file);
        }
        assert_eq!(entry.cached(&cache), Some(weights));
    }

    #[test]
    fn a_model_that_can_not_run_is_not_listed() {
        for entry in all().unwrap() {
            let listed = find(&entry.name).unwrap().is_some();
            assert_eq!(listed, Architecture::is_known(&entry.architecture), "{}", entry.name);
        }
        assert!(!Architecture::is_known("no-such"));
    }

    #[test]
    fn names() {
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(find(name).unwrap().map(|entry| entry.name.as_str()), expected, "{name}");
        };
        check("qwen3-8b", Some("qwen3-8b"));
        check("Qwen3-8B", Some("qwen3-8b"));
        check("qwen3:8b", Some("qwen3-8b"));
        // Ollama means another model by this name.
        check("qwen3:4b", None);
        check("qwen3", None);
    }

    #[test]
    fn unknown_keys_are_refused() {
        let text = FILES.get_file("olmo2-13b.yaml").unwrap().contents_utf8().unwrap();
        assert!(serde_saphyr::from_str::<Entry>(text).is_ok());
        let error = serde_saphyr::from_str::<Entry>(&format!("{text}licence: free\n")).unwrap_err();
        assert!(error.to_string().contains("licence"), "{error}");
    }
}
