//! The models that alara knows by name, and the location of their files: on this machine or on the
//! hub.
//!
//! The catalog is data: one file per model in `models/catalog`, embedded in the binary.
//! This module handles names and paths of model files, not their contents.
//! Only its submodules use the network to get models.

mod alike;
pub mod cache;
mod choice;
mod error;
pub mod hub;
pub mod local;
pub mod name;
pub mod ollama;
pub mod pull;
mod sampling;
mod target;
mod transfer;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use alara_engine::default_threads;
use alara_engine::inspect::{Architecture, gpus};
use anyhow::Context;
use include_dir::{Dir, include_dir};
use serde::{Deserialize, Serialize};

use crate::{memory, ui};

use sampling::Recommended;

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
    pub family: String,
    /// The architecture file used to read its GGUF file.
    pub architecture: String,
    /// Name of this model in Ollama's library, if it is there.
    pub ollama: Option<String>,
    /// The hub's repository, `owner/name`.
    pub repository: String,
    /// The commit that contains the file as described here; if absent, the newest is used.
    pub revision: Option<String>,
    pub file: String,
    /// Further files that `pull` downloads: for a checkpoint, those that accompany its tensors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// SHA-256 of the file, in hexadecimal.
    /// If absent, downloads are checked against the hub's own checksum.
    pub sha256: Option<String>,
    /// Size of the file, in bytes.
    pub size: Option<u64>,
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
    pub fn wanted(&self) -> name::HubName {
        name::HubName {
            repository: self.repository.clone(),
            revision: self.revision.clone(),
            wanted: name::Wanted::File(self.file.clone()),
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
        !name::is_gguf(&self.file)
    }

    /// Returns its file in the cache, if the files that accompany it are there too.
    pub fn cached(&self, cache: &cache::Cache) -> Option<PathBuf> {
        let path = cache.find(&self.repository, &self.file, self.sha256.as_deref())?;
        self.beside.iter().all(|file| path.with_file_name(file).is_file()).then_some(path)
    }
}

/// Returns all catalog models that this build can run, by family, small ones first.
pub fn entries() -> anyhow::Result<&'static [Entry]> {
    static ENTRIES: LazyLock<Result<Vec<Entry>, String>> = LazyLock::new(|| {
        let mut entries = all()?;
        entries.retain(|entry| Architecture::is_known(&entry.architecture));
        entries.sort_by(|a, b| {
            a.family.cmp(&b.family).then(a.parameters.total_cmp(&b.parameters)).then(a.name.cmp(&b.name))
        });
        Ok(entries)
    });
    ENTRIES.as_ref().map(Vec::as_slice).map_err(|error| anyhow::anyhow!("{error}"))
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

/// Maximum bytes to read per token and thread for acceptable speed.
const BYTES_A_THREAD: f64 = 1.25e9;

/// Memory that the system and its programs use, in bytes.
const OTHERS: u64 = 2_500_000_000;

/// Properties of a machine that decide which model to suggest.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Total memory in bytes, used or not, if the system reports it.
    pub memory: Option<u64>,
    pub threads: usize,
    /// The GPU with the most memory that this build supports, and its free bytes.
    pub gpu: Option<(String, u64)>,
}

impl Machine {
    /// This machine.
    pub fn this() -> Machine {
        let opened = gpus().into_iter().filter_map(|(_, opened)| opened.ok());
        Machine {
            memory: memory::total(),
            threads: default_threads(),
            gpu: opened.map(|gpu| (gpu.name, gpu.free)).max_by_key(|(_, free)| *free),
        }
    }

    fn gpu_bytes(&self) -> u64 {
        self.gpu.as_ref().map_or(0, |(_, free)| *free)
    }

    /// Whether a model runs well in this machine's memory, next to other programs.
    /// It needs the size of its file, an eighth of that for the KV cache and activations, and 2.5
    /// GB for the system and its programs.
    /// Layers on a GPU need no system memory.
    /// `None` if its size or the memory is unknown.
    pub fn fits(&self, entry: &Entry) -> Option<bool> {
        self.holds(entry.size?)
    }

    /// Like [`fits`](Self::fits), for a file of `size` bytes.
    pub fn holds(&self, size: u64) -> Option<bool> {
        let needed = size.saturating_add(size / 8).saturating_sub(self.gpu_bytes()).saturating_add(OTHERS);
        Some(needed <= self.memory?)
    }

    /// Whether tokens come at an acceptable speed: each thread has to read a limited number of
    /// bytes per token.
    /// Reads by a GPU take negligible time in comparison.
    pub fn is_bearable(&self, entry: &Entry) -> bool {
        let size = entry.size.unwrap_or(0);
        let share = size.saturating_sub(self.gpu_bytes()) as f64 / size.max(1) as f64;
        let read = size as f64 * share * entry.active.unwrap_or(entry.parameters) / entry.parameters;
        read <= BYTES_A_THREAD * self.threads as f64
    }

    /// Returns the model to begin with, among suggested `entries` that fit.
    /// Picks the largest one that isn't too slow, else the smallest.
    pub fn choice<'a>(&self, entries: &'a [Entry]) -> Option<&'a Entry> {
        let fitting = || entries.iter().filter(|entry| entry.choice && self.fits(entry) != Some(false));
        let size = |entry: &&Entry| entry.size;
        fitting()
            .filter(|entry| self.is_bearable(entry))
            .max_by_key(size)
            .or_else(|| fitting().min_by_key(size))
    }

    /// Explains the choice.
    pub fn why(&self, choice: &Entry) -> String {
        match self.is_bearable(choice) {
            true => "the largest of those to begin with that fits and is not too slow here".to_owned(),
            false => "the smallest of those to begin with: all are slow here".to_owned(),
        }
    }

    /// Describes the machine's memory and GPU.
    pub fn described(&self) -> String {
        let memory = self
            .memory
            .map_or_else(|| "memory unknown".to_owned(), |bytes| format!("{} of memory", ui::bytes(bytes)));
        let threads = format!("{} thread{}", self.threads, if self.threads == 1 { "" } else { "s" });
        match &self.gpu {
            Some((name, free)) => format!("{memory}, {threads}, {name} with {} free", ui::bytes(*free)),
            None => format!("{memory}, {threads}, no GPU that this build uses"),
        }
    }
}

/// Finds the model with this name, whether ours or Ollama's.
pub fn find(name: &str) -> anyhow::Result<Option<&'static Entry>> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    let entries = entries().context("the catalog is broken")?;
    Ok(entries.iter().find(|entry| is(&entry.name) || entry.ollama.as_deref().is_some_and(is)))
}

/// Finds the catalog entry for a file, whatever its quantization.
pub fn of_file(path: &Path) -> Option<&'static Entry> {
    sampling::of_file(path, entries().ok()?)
}

/// Finds the model that `name` means in another spelling, such as Ollama's `qwen3:4b`.
pub fn meant(name: &str) -> anyhow::Result<Option<&'static Entry>> {
    Ok(alike::meant(name, entries()?))
}

/// Returns the hub file that `name` means: a catalog model, then with its entry, or a name in the
/// hub's form.
///
/// # Errors
/// The name has neither form.
pub fn wanted(name: &str) -> anyhow::Result<(Option<&'static Entry>, name::HubName)> {
    if let Some(entry) = find(name)?.or(meant(name)?) {
        return Ok((Some(entry), entry.wanted()));
    }
    name.parse().map(|hub| (None, hub)).map_err(|error: anyhow::Error| match local::alike(name).as_slice() {
        alike if !alike.is_empty() && !name.contains('/') => {
            anyhow::anyhow!("{error}, did you mean {}?", alike.join(", "))
        }
        _ if !name.contains('/') && !name.trim().is_empty() => anyhow::anyhow!(
            "{error}\nhint: `alara models list` tells the names of the catalog; others are hf:OWNER/NAME"
        ),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Advertised memory sizes are in GB, and the system keeps some of it for itself.
    #[test]
    fn what_to_take_on_which_machine() {
        let machine = |gigabytes: u64, threads| {
            let memory = Some(gigabytes * (1 << 30) * 97 / 100);
            Machine { memory, threads, gpu: None }
        };
        let entries = entries().unwrap();
        let check = |gigabytes: u64, threads, expected: Option<&str>| {
            let found = machine(gigabytes, threads).choice(entries).map(|entry| entry.name.as_str());
            assert_eq!(found, expected, "{gigabytes} GB, {threads} threads");
        };
        check(2, 8, None);
        check(4, 8, Some("qwen3.5-0.8b"));
        check(8, 8, Some("qwen3.5-4b"));
        check(8, 2, Some("qwen3.5-2b"));
        check(16, 8, Some("qwen3.5-9b"));
        check(16, 1, Some("qwen3.5-0.8b"));
        // Only three of its 36 billion parameters are active per token.
        check(32, 2, Some("qwen3.5-35b-a3b"));
        check(64, 8, Some("qwen3.5-35b-a3b"));
        // A GPU holds what doesn't fit in memory, and reads it faster.
        let with_gpu =
            |gigabytes, gpu: u64| Machine { gpu: Some(("GPU".into(), gpu << 30)), ..machine(gigabytes, 1) };
        let check_gpu = |gigabytes, gpu, expected: &str| {
            let machine = with_gpu(gigabytes, gpu);
            let found = machine.choice(entries).unwrap();
            assert_eq!(found.name, expected, "{gigabytes} GB, GPU of {gpu}");
            assert!(
                machine.why(found).starts_with("the largest") && machine.described().contains("GPU with")
            );
        };
        check_gpu(4, 4, "qwen3.5-4b");
        check_gpu(8, 8, "qwen3.5-9b");
        check_gpu(16, 24, "qwen3.5-35b-a3b");
        for gigabytes in [8, 16, 32] {
            let fits = |entry: &&Entry| machine(gigabytes, 8).fits(entry) == Some(true);
            assert!(entries.iter().filter(fits).count() >= 5, "{gigabytes} GB");
        }
        let olmo = find("olmo2-13b").unwrap().unwrap();
        assert_eq!(machine(64, 8).fits(olmo), None, "its size is not known");
    }

    #[test]
    fn a_checkpoint_is_here_once_all_its_files_are() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache::Cache { root: folder.path().to_owned() };
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
