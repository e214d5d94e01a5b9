//! The models that alara knows by name, and where their files are: on this machine or on the hub.
//!
//! The catalog is data: one file a model in `models/catalog`, embedded.
//! This module owns names and paths of model files; it knows nothing of what is in them.
//! Its submodules are the only code of alara that talks to the network for a model.

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

/// What `-m` calls the model that ships.
pub const SHIPPED: &str = "alara-tiny";

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/$ALARA_MODELS/catalog");

/// A model of the catalog: the file of it that `pull` gets, and what is known of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What `-m` and `pull` call it.
    pub name: String,
    /// What people call it.
    pub title: String,
    pub family: String,
    /// The architecture file that its GGUF file is read by.
    pub architecture: String,
    /// What Ollama's library calls the same model, where it has it.
    pub ollama: Option<String>,
    /// The hub's repository, `owner/name`.
    pub repository: String,
    /// The commit that holds the file as described here; without it the newest is taken.
    pub revision: Option<String>,
    pub file: String,
    /// What else `pull` gets: of a checkpoint the files beside its tensors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// Of the file, in hexadecimal.
    /// Without it a download is held against the hub's own.
    pub sha256: Option<String>,
    /// Bytes.
    pub size: Option<u64>,
    pub quantization: String,
    /// Tokens that the model was trained for.
    pub context: u64,
    /// In thousands of millions: those of the language model.
    pub parameters: f64,
    /// Those of them that a token takes, where experts make that fewer.
    pub active: Option<f64>,
    /// Whether the model was trained to call tools, in a format of its own.
    pub tools: bool,
    /// What its publisher calls the license of the weights; left out where that is not certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// A published score in general knowledge, where one is known.
    pub score: Option<Score>,
    /// What its publisher recommends for sampling.
    /// Left out where a card says nothing, or its word could not be verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Recommended>,
    /// Whether two independent public records agree in file, size and checksum.
    pub verified: bool,
    /// Whether it is the one to take where no larger of these fits.
    #[serde(default)]
    pub choice: bool,
}

/// A published score.
/// Scores of different benchmarks don't compare.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// The benchmark, and how it was taken.
    pub benchmark: String,
    /// Per cent.
    pub value: f64,
    /// Who published it.
    pub source: String,
}

impl Entry {
    /// The file on the hub.
    pub fn wanted(&self) -> name::HubName {
        name::HubName {
            repository: self.repository.clone(),
            revision: self.revision.clone(),
            wanted: name::Wanted::File(self.file.clone()),
        }
    }

    /// How many parameters it has, for people.
    pub fn counted(&self) -> String {
        match self.active {
            Some(active) => format!("{} B, {active} a token", self.parameters),
            None => format!("{} B", self.parameters),
        }
    }

    /// Whether it is a checkpoint rather than a GGUF file.
    pub fn is_checkpoint(&self) -> bool {
        !name::is_gguf(&self.file)
    }

    /// Its file in the cache, if what belongs beside it is there too.
    pub fn cached(&self, cache: &cache::Cache) -> Option<PathBuf> {
        let path = cache.find(&self.repository, &self.file, self.sha256.as_deref())?;
        self.beside.iter().all(|file| path.with_file_name(file).is_file()).then_some(path)
    }
}

/// All models of the catalog that this build can run, family by family, small ones first.
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

/// What the catalog's files say.
fn all() -> Result<Vec<Entry>, String> {
    let parse = |file: &include_dir::File<'_>| {
        let text = file.contents_utf8().unwrap_or_default();
        serde_saphyr::from_str(text)
            .map_err(|error| format!("models/catalog/{}: {error}", file.path().display()))
    };
    FILES.files().map(parse).collect()
}

/// Bytes that are read for a token by each thread of a machine, so that waiting for it can be
/// borne.
const BYTES_A_THREAD: f64 = 1.25e9;

/// What the system and its programs take of a machine's memory.
const OTHERS: u64 = 2_500_000_000;

/// What of a machine says which model to take.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Bytes, whoever uses them now, where the system says it.
    pub memory: Option<u64>,
    pub threads: usize,
    /// The GPU with most memory that this build computes on, and the bytes that are free there.
    pub gpu: Option<(String, u64)>,
}

impl Machine {
    /// The one that this runs on.
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

    /// Whether a model runs well in its memory, beside what else a machine does.
    /// It takes its file, an eighth of that for the KV cache and activations, and 2.5 GB for the
    /// system and its programs.
    /// As much as goes on a GPU takes nothing of the memory.
    /// `None` where its size or the memory is not known.
    pub fn fits(&self, entry: &Entry) -> Option<bool> {
        self.holds(entry.size?)
    }

    /// The same for a file of so many bytes.
    pub fn holds(&self, size: u64) -> Option<bool> {
        let needed = size.saturating_add(size / 8).saturating_sub(self.gpu_bytes()).saturating_add(OTHERS);
        Some(needed <= self.memory?)
    }

    /// Whether waiting for its tokens can be borne: a thread reads so many bytes for each.
    /// What a GPU reads takes no time beside that.
    pub fn is_bearable(&self, entry: &Entry) -> bool {
        let size = entry.size.unwrap_or(0);
        let share = size.saturating_sub(self.gpu_bytes()) as f64 / size.max(1) as f64;
        let read = size as f64 * share * entry.active.unwrap_or(entry.parameters) / entry.parameters;
        read <= BYTES_A_THREAD * self.threads as f64
    }

    /// The one of `entries` to begin with, of those that are meant for it and fit.
    /// It is the largest that is not too slow, else the smallest.
    pub fn choice<'a>(&self, entries: &'a [Entry]) -> Option<&'a Entry> {
        let fitting = || entries.iter().filter(|entry| entry.choice && self.fits(entry) != Some(false));
        let size = |entry: &&Entry| entry.size;
        fitting()
            .filter(|entry| self.is_bearable(entry))
            .max_by_key(size)
            .or_else(|| fitting().min_by_key(size))
    }

    /// Why that one, in words.
    pub fn why(&self, choice: &Entry) -> String {
        match self.is_bearable(choice) {
            true => "the largest of those to begin with that fits and is not too slow here".to_owned(),
            false => "the smallest of those to begin with: all are slow here".to_owned(),
        }
    }

    /// What it has, in words.
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

/// The model of that name, whether ours or Ollama's.
pub fn find(name: &str) -> anyhow::Result<Option<&'static Entry>> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    let entries = entries().context("the catalog is broken")?;
    Ok(entries.iter().find(|entry| is(&entry.name) || entry.ollama.as_deref().is_some_and(is)))
}

/// The model of the catalog that a file is, in whatever quantization.
pub fn of_file(path: &Path) -> Option<&'static Entry> {
    sampling::of_file(path, entries().ok()?)
}

/// The model that `name` means in another spelling, such as Ollama's `qwen3:4b`.
pub fn meant(name: &str) -> anyhow::Result<Option<&'static Entry>> {
    Ok(alike::meant(name, entries()?))
}

/// Which file of the hub `name` means: of the catalog, whose word on it is there then, or as the
/// hub names it.
///
/// # Errors
/// It is no such name.
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
            // Four bits to a byte and a little more for every parameter, or all of them; a wrong
            // digit in either shows.
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

    /// What people buy has so many GB, of which the system keeps some for itself.
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
        // Of its 36 thousand million parameters a token takes three.
        check(32, 2, Some("qwen3.5-35b-a3b"));
        check(64, 8, Some("qwen3.5-35b-a3b"));
        // A GPU holds what the memory does not, and reads it faster.
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
        // Ollama means another model by it.
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
