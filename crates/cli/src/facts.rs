//! Reads facts about models from the heads of their files, without loading the models.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use alara_engine::Gguf;
use alara_engine::inspect::{
    self, Architecture, Array, ChatTemplate, Strings, TensorType, Value, chat_template,
};
use alara_models::hub::is_sha256;
use alara_models::shipped;
use alara_server::{Facts, fills_in};
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use crate::model;
use crate::model_file::Place;

/// Maximum length of an array to include; a vocabulary has hundreds of thousands of entries.
const ENTRIES: usize = 64;

/// Strings in a chat template that indicate a reasoning model.
const THINKING: [&str; 4] = ["enable_thinking", "<think>", "reasoning_content", "<|channel|>"];

/// Names of `general.file_type` by number, as in llama.cpp's `enum llama_ftype`
/// (<https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h>).
const FILE_TYPES: [(u64, &str); 35] = [
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (19, "IQ2_XXS"),
    (20, "IQ2_XS"),
    (21, "Q2_K_S"),
    (22, "IQ3_XS"),
    (23, "IQ3_XXS"),
    (24, "IQ1_S"),
    (25, "IQ4_NL"),
    (26, "IQ3_S"),
    (27, "IQ3_M"),
    (28, "IQ2_S"),
    (29, "IQ2_M"),
    (30, "IQ4_XS"),
    (31, "IQ1_M"),
    (32, "BF16"),
    (36, "TQ1_0"),
    (37, "TQ2_0"),
    (38, "MXFP4"),
    (39, "NVFP4"),
    (40, "Q1_0"),
];

/// Returns the context length that a model is loaded with; `None` if unknown.
type ContextOf = Box<dyn Fn(&Gguf) -> Option<usize> + Send + Sync>;

/// Facts from model files, read again when a file changes.
pub struct FileFacts {
    context: ContextOf,
    known: Mutex<HashMap<Option<String>, Known>>,
}

/// A file's state when it was read, and its facts.
struct Known {
    path: PathBuf,
    stamp: Stamp,
    facts: Arc<Facts>,
}

/// Length and modification time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp(u64, SystemTime);

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let about = path.metadata().ok()?;
        Some(Stamp(about.len(), about.modified().ok()?))
    }
}

impl FileFacts {
    /// Starts empty; `context` returns the context length that a model is loaded with.
    pub fn new(context: impl Fn(&Gguf) -> Option<usize> + Send + Sync + 'static) -> Self {
        FileFacts { context: Box::new(context), known: Mutex::default() }
    }

    /// Returns the facts of the model that ships.
    /// `None` if it can't be read.
    pub fn shipped(&self) -> Option<Arc<Facts>> {
        let gguf = shipped::open().ok()?;
        Some(Arc::new(facts(&gguf, &self.context, built(), hash(shipped::bytes()))))
    }

    /// Returns the facts of the model `name`, or of the default one.
    /// `None` if there is no such file, or it can't be read.
    pub fn of(&self, name: Option<&str>) -> Option<Arc<Facts>> {
        let key = name.map(str::to_owned);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = known.get(&key)
            && (held.path.as_os_str().is_empty() || Stamp::of(&held.path) == Some(held.stamp))
        {
            return Some(held.facts.clone());
        }
        let (path, stamp, digest) = match model::place(name).ok()? {
            Place::Shipped => (PathBuf::new(), built(), hash(shipped::bytes())),
            Place::File(path) => {
                let stamp = Stamp::of(&path)?;
                let digest = digest(&path, stamp);
                (path, stamp, digest)
            }
        };
        let facts = Arc::new(facts(&model::open(name).ok()?, &self.context, stamp, digest));
        known.insert(key, Known { path, stamp, facts: facts.clone() });
        Some(facts)
    }
}

/// Returns the state of the model that ships, which is as old as the program that contains it.
fn built() -> Stamp {
    let stamp = std::env::current_exe().ok().and_then(|program| Stamp::of(&program));
    stamp.unwrap_or(Stamp(0, UNIX_EPOCH))
}

/// Returns the SHA-256 of a file that a cache names by it, else a hash of its path, size and
/// modification time: reading a whole model takes too long.
fn digest(path: &Path, stamp: Stamp) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_prefix("sha256-").unwrap_or(name);
    if is_sha256(name) {
        return name.to_lowercase();
    }
    let since = stamp.1.duration_since(UNIX_EPOCH).unwrap_or_default();
    hash(format!("{}\n{}\n{}", path.display(), stamp.0, since.as_nanos()).as_bytes())
}

fn hash(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

fn facts(gguf: &Gguf, context: &ContextOf, stamp: Stamp, digest: String) -> Facts {
    let metadata = gguf.metadata();
    let text = |key: &str| metadata.str(key).ok().flatten().unwrap_or_default().to_owned();
    let architecture = text("general.architecture");
    let number = |key: &str| metadata.u64(&format!("{architecture}.{key}")).ok().flatten();
    let trained_context = number("context_length");
    let template = Some(text("tokenizer.chat_template")).filter(|template| !template.trim().is_empty());
    let template = template.or_else(|| built_in_template(gguf)).unwrap_or_default();
    let embeds = number("pooling_type").is_some_and(|kind| kind > 0)
        || Architecture::of(gguf).is_ok_and(|architecture| architecture.encoder);
    Facts {
        bytes: gguf.file_bytes(),
        modified: stamp.1.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        digest,
        parameters: gguf.tensors().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.values())),
        quantization: quantization(gguf),
        context: context(gguf),
        trained_context,
        capabilities: capabilities(gguf, &template, embeds),
        template,
        metadata: metadata.iter().map(|(key, value)| (key.to_owned(), told(value))).collect::<Map<_, _>>(),
        architecture,
    }
}

/// Returns the built-in chat template for a model without its own, if its family is known.
fn built_in_template(gguf: &Gguf) -> Option<String> {
    let tokenizer = inspect::tokenizer(gguf).ok()?;
    Some(chat_template(gguf, &tokenizer, None).ok()?.template.source().to_owned())
}

/// Returns the quantization named in the file, else the type with the largest share of its bytes.
fn quantization(gguf: &Gguf) -> String {
    let said = gguf.metadata().u64("general.file_type").ok().flatten();
    if let Some((_, name)) = FILE_TYPES.into_iter().find(|(number, _)| Some(*number) == said) {
        return name.to_owned();
    }
    let mut used: HashMap<TensorType, u64> = HashMap::new();
    for tensor in gguf.tensors() {
        let bytes = used.entry(tensor.kind).or_default();
        *bytes = bytes.saturating_add(tensor.bytes);
    }
    let most = used.into_iter().max_by_key(|(kind, bytes)| (*bytes, *kind));
    most.map_or_else(String::new, |(kind, _)| kind.name().to_uppercase())
}

fn capabilities(gguf: &Gguf, template: &str, embeds: bool) -> Vec<&'static str> {
    // As in Ollama, embedding models do nothing else.
    if embeds {
        return vec!["embedding"];
    }
    let calls = || ChatTemplate::new(template, "", "").is_ok_and(|template| template.format().is_some());
    let tokens = gguf.metadata().strings("tokenizer.ggml.tokens").ok().flatten();
    let markers: HashSet<&str> =
        tokens.into_iter().flat_map(Strings::iter).filter(|token| token.ends_with('>')).collect();
    let can = [
        ("completion", true),
        ("tools", !template.is_empty() && calls()),
        ("insert", fills_in(|marker| markers.contains(marker))),
        ("thinking", THINKING.iter().any(|word| template.contains(word))),
    ];
    can.into_iter().filter(|(_, can)| *can).map(|(what, _)| what).collect()
}

/// Converts a metadata value to JSON; long arrays become null.
fn told(value: &Value) -> Json {
    match value {
        Value::U8(n) => json!(n),
        Value::I8(n) => json!(n),
        Value::U16(n) => json!(n),
        Value::I16(n) => json!(n),
        Value::U32(n) => json!(n),
        Value::I32(n) => json!(n),
        Value::U64(n) => json!(n),
        Value::I64(n) => json!(n),
        Value::F32(n) => json!(n),
        Value::F64(n) => json!(n),
        Value::Bool(yes) => json!(yes),
        Value::String(text) => json!(text),
        Value::Array(array) if array.len() > ENTRIES => Json::Null,
        Value::Array(array) => told_array(array),
    }
}

fn told_array(array: &Array) -> Json {
    match array {
        Array::U8(all) => json!(all),
        Array::I8(all) => json!(all),
        Array::U16(all) => json!(all),
        Array::I16(all) => json!(all),
        Array::U32(all) => json!(all),
        Array::I32(all) => json!(all),
        Array::U64(all) => json!(all),
        Array::I64(all) => json!(all),
        Array::F32(all) => json!(all),
        Array::F64(all) => json!(all),
        Array::Bool(all) => json!(all),
        Array::String(all) => all.iter().collect(),
        Array::Array(all) => all
            .iter()
            .map(|array| if array.len() > ENTRIES { Json::Null } else { told_array(array) })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(case: &str) -> String {
        format!("{}/../../tests/fixtures/arch/{case}/model.gguf", env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn what_files_say() {
        let files = FileFacts::new(|_| Some(7));
        let shipped = files.of(None).unwrap();
        assert_eq!(shipped.bytes, shipped::bytes().len() as u64);
        assert!(shipped.parameters > 1_000_000 && shipped.context == Some(7));
        assert!(shipped.capabilities.starts_with(&["completion", "tools"]), "{:?}", shipped.capabilities);
        assert!(is_sha256(&shipped.digest) && !shipped.template.is_empty());
        // All keys are present, with long arrays as null.
        let gguf = model::open(None).unwrap();
        assert_eq!(shipped.metadata.len(), gguf.metadata().len());
        assert_eq!(shipped.metadata["tokenizer.ggml.tokens"], Json::Null);
        assert_eq!(shipped.metadata["general.architecture"], shipped.architecture.as_str());

        let other = files.of(Some(&fixture("qwen3-exact"))).unwrap();
        assert_eq!((other.architecture.as_str(), other.quantization.as_str()), ("qwen3", "F32"));
        assert_eq!(
            other.trained_context.map(Json::from),
            other.metadata.get("qwen3.context_length").cloned()
        );
        assert_ne!(other.digest, shipped.digest);
        assert!(files.of(Some("no-such")).is_none());
    }

    #[test]
    fn a_file_that_changes_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        let name = path.to_str().unwrap();
        std::fs::copy(fixture("qwen3-exact"), &path).unwrap();
        let files = FileFacts::new(|_| Some(7));
        let first = files.of(Some(name)).unwrap();
        assert!(Arc::ptr_eq(&first, &files.of(Some(name)).unwrap()));
        std::fs::write(&path, shipped::bytes()).unwrap();
        let second = files.of(Some(name)).unwrap();
        assert_eq!(second.bytes, shipped::bytes().len() as u64);
        assert_ne!(first.digest, second.digest);
        std::fs::remove_file(&path).unwrap();
        assert!(files.of(Some(name)).is_none());
        // A cache names a file by its hash.
        let hash = "ab".repeat(32);
        for name in [format!("sha256-{hash}"), hash.clone()] {
            let path = dir.path().join(name);
            std::fs::write(&path, shipped::bytes()).unwrap();
            assert_eq!(files.of(path.to_str()).unwrap().digest, hash);
        }
    }
}
