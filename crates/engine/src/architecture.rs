//! What a GGUF file can't say about itself.
//!
//! The facts of a model have three homes: sizes in the metadata, optional parts in which tensors
//! exist, and the rest in an architecture file.
//! That is a few lines of YAML under `models/architectures`, embedded at build time.
//!
//! No code asks for an architecture's name, so a family of known parts takes a file and no code.

use std::collections::BTreeMap;

use alara_text::gguf::Gguf;
use alara_text::nearest;
use alara_text::tokenizer::{Tokenizer, TokenizerError, TokenizerFacts};
use include_dir::{Dir, include_dir};
use serde::Deserialize;
use serde_json::Value;

use crate::{Error, Result, role};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/$ALARA_MODELS/architectures");

/// What is laid under each of them.
const EVERY: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", env!("ALARA_MODELS"), "/every-architecture.yaml"));

/// An architecture file, with the cases of its `when` that hold for a model already taken in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    /// The value of `general.architecture`, and the prefix of the file's metadata keys.
    pub architecture: String,
    /// Other values of `general.architecture` with the same meaning.
    #[serde(default)]
    pub accepts: Vec<String>,
    /// Other names under which files keep keys and tensors.
    #[serde(default)]
    pub rename: Rename,
    /// Values of keys that a file may lack; without the prefix.
    #[serde(default)]
    pub defaults: BTreeMap<String, Value>,
    /// Whether every token sees all others, as in models for embeddings.
    /// Blocks then have their norms after the sums, in the slots `attn_out` and `ffn_out`.
    #[serde(default)]
    pub encoder: bool,
    /// Which tensor serves which norm slot.
    #[serde(default)]
    pub norms: NormSlots,
    /// What the rotation is.
    pub rope: RopeFacts,
    /// For a model with a window: every how many blocks one sees everything, the last of each
    /// group.
    pub full_attention_every: Option<usize>,
    /// Whether a window is a chunk: one of those that positions are cut into, up to the token
    /// itself.
    #[serde(default)]
    pub chunked_window: bool,
    /// What multiplies attention scores, where the metadata doesn't say.
    #[serde(default)]
    pub query_scale: QueryScale,
    /// What multiplies embeddings, where the metadata doesn't say.
    #[serde(default)]
    pub embedding_scale: EmbeddingScale,
    /// What the metadata's `logit_scale` does.
    /// `None`: files have none.
    pub logit_scale: Option<LogitScale>,
    /// What the norms of blocks and of the output are.
    #[serde(default)]
    pub norm: NormKind,
    /// Norms on the heads of queries and keys.
    #[serde(default)]
    pub qk_norm: QkNorm,
    /// Whether heads of values are normed, without weights.
    /// A block without values of its own then takes what its keys are made of.
    #[serde(default)]
    pub value_norm: bool,
    /// Whether attention and the feed-forward layer read the same, the norm `attn_in`, and are
    /// added together.
    #[serde(default)]
    pub parallel: bool,
    /// The function on the gate of the feed-forward layer.
    #[serde(default)]
    pub activation: Activation,
    /// The function of feed-forward layers without a gate.
    /// `None`: models of this architecture have none.
    pub ungated: Option<Ungated>,
    /// How experts are chosen, where the metadata doesn't say.
    /// `None`: models of this architecture have none.
    pub router: Option<Router>,
    /// What files leave out about their tokenizer.
    #[serde(default)]
    pub tokenizer: TokenizerFacts,
    /// What of a file nobody needs to read.
    #[serde(default)]
    pub harmless: Harmless,
    /// What checkpoints of Hugging Face's call the same.
    /// `None`: models of this architecture are read from GGUF files only.
    pub checkpoint: Option<CheckpointFacts>,
}

/// Names of `config.json` and `model.safetensors`, each with the canonical one, and what these
/// files may say beside.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFacts {
    /// The value of `model_type`.
    pub model_type: String,
    /// Metadata keys without the prefix, by keys of `config.json`.
    pub keys: BTreeMap<String, String>,
    /// Keys of `config.json` that must have this value, or be absent.
    #[serde(default)]
    pub needs: BTreeMap<String, Value>,
    /// Tensors; `*` is the number of a block.
    /// A name covers what follows it after a dot.
    pub tensors: BTreeMap<String, String>,
    /// What nobody needs to read, by the names there.
    #[serde(default)]
    pub harmless: Harmless,
}

/// Names of what changes no logit.
/// One that ends in a dot stands for all that begin so.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Harmless {
    /// Metadata keys without the prefix.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Tensors.
    #[serde(default)]
    pub tensors: Vec<String>,
}

/// What holds for every architecture.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Every {
    rename: Rename,
    harmless: Harmless,
}

/// Names as some files have them, each with the name that it stands for.
/// Keys go without the prefix, tensors without `blk.N.`; a tensor's name covers what follows it
/// after a dot (`attn_out: attn_output` renames weight and bias).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// Metadata keys.
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
    /// Tensors.
    #[serde(default)]
    pub tensors: BTreeMap<String, String>,
}

/// What the file says of the rotation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RopeFacts {
    /// Which elements of a head rotate together.
    pub pairing: Pairing,
    /// Whether windowed layers rotate without scaling, and by the base `rope.freq_base_swa` if
    /// there is one, rather than as the others do.
    #[serde(default)]
    pub window_unscaled: bool,
    /// What the multiplier of YaRN, `rope.scaling.yarn_log_multiplier`, acts on.
    #[serde(default)]
    pub yarn_multiplies: YarnMultiplies,
    /// Whether only windowed layers rotate, in a model that has such.
    #[serde(default)]
    pub only_windowed: bool,
    /// Every how many blocks one does not rotate, the last of each group.
    pub except_every: Option<usize>,
}

/// What YaRN's multiplier acts on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum YarnMultiplies {
    /// Cosines and sines, which it takes back in part.
    #[default]
    Angles,
    /// Attention scores, which grow by the square of `1 + key * ln(factor)`: the key holds a tenth
    /// of it.
    /// Source: DeepSeek-V2.
    Scores,
}

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pairing {
    /// `2j` with `2j + 1` (ggml's NORM).
    Adjacent,
    /// `j` with `j + n/2` (ggml's NEOX).
    Half,
}

/// What multiplies attention scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryScale {
    /// `1 / sqrt(E)`, E the width of a head.
    #[default]
    HeadWidth,
    /// `1 / sqrt(D / H)`, whatever the width of a head is.
    WidthPerHead,
    /// Nothing.
    One,
}

/// What `logit_scale` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogitScale {
    /// Logits are multiplied by it.
    Multiplies,
    /// Logits are divided by it.
    Divides,
}

/// A kind of norm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Divides by the root of the mean of squares.
    /// Source: Zhang and Sennrich 2019, <https://arxiv.org/abs/1910.07467>.
    #[default]
    Rms,
    /// The same after the mean was taken off.
    /// Source: Ba et al. 2016, <https://arxiv.org/abs/1607.06450>.
    Layer,
}

/// Norms on the heads of queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::enum_variant_names, reason = "the values in architecture files")]
pub enum QkNorm {
    /// If there are tensors, before the rotation.
    #[default]
    BeforeRope,
    /// If there are tensors, after it.
    AfterRope,
    /// Without weights, after the rotation of layers that rotate.
    WeightlessAfterRope,
}

/// What multiplies embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmbeddingScale {
    /// Nothing.
    #[default]
    One,
    /// `sqrt(D)`.
    SqrtWidth,
}

/// The function on the gate of a gated layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `g sigmoid(g) u`.
    #[default]
    Silu,
    /// `gelu(g) u`, with the tanh form of GELU.
    GeluTanh,
    /// `sigmoid(g) u`.
    Sigmoid,
    /// `g sigmoid(1.702 g) (1 + u)`, g at most 7, u between -7 and 7.
    /// Source: gpt-oss.
    ClampedSwiglu,
}

/// The function of a feed-forward layer without a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ungated {
    /// `max(u, 0)²`.
    /// Source: So et al. 2021, <https://arxiv.org/abs/2109.08668>.
    ReluSquared,
    /// `gelu(u)`, by the error function.
    /// Source: Hendrycks and Gimpel 2016, <https://arxiv.org/abs/1606.08415>.
    Gelu,
}

/// How experts are chosen and weighed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Router {
    /// What makes a score of a logit.
    #[serde(default)]
    pub score: Score,
    /// Whether the scores of the chosen are divided by their sum.
    #[serde(default)]
    pub normalise: bool,
    /// Whether weights multiply what goes into an expert rather than what comes out.
    #[serde(default)]
    pub weigh_input: bool,
}

/// What makes a score of a router's logit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// Softmax over all experts.
    #[default]
    Softmax,
    /// Sigmoid of each.
    Sigmoid,
    /// Softmax over the chosen ones, which are chosen by their logits.
    SoftmaxOfChosen,
    /// Sigmoid of each of the chosen ones, which are chosen by their logits.
    SigmoidOfChosen,
}

/// The tensor, without `blk.N.` and `.weight`, that serves each norm slot of a block.
/// A slot without one is no norm; a slot with one requires it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormSlots {
    /// On what attention reads.
    pub attn_in: Option<String>,
    /// On what attention adds to the residual stream.
    pub attn_out: Option<String>,
    /// On what the feed-forward layer reads.
    pub ffn_in: Option<String>,
    /// On what the feed-forward layer adds.
    pub ffn_out: Option<String>,
}

impl Default for NormSlots {
    fn default() -> Self {
        let slot = |name: &str| Some(name.to_owned());
        NormSlots { attn_in: slot("attn_norm"), attn_out: None, ffn_in: slot("ffn_norm"), ffn_out: None }
    }
}

/// A case of `when`: facts of the model, and what else is true if all of them hold.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Metadata keys without the prefix with their values; `has_tensor` with a tensor's name.
    #[serde(rename = "if")]
    condition: BTreeMap<String, Value>,
    /// Laid over the file.
    set: Value,
}

impl Architecture {
    /// The architecture file for `gguf` among those that ship.
    ///
    /// # Errors
    /// If the file names no architecture, or none that is known.
    pub fn of(gguf: &Gguf) -> Result<Self> {
        let shipped = FILES.files().map(|file| {
            (file.path().display().to_string(), file.contents_utf8().unwrap_or_default().to_owned())
        });
        Self::among(shipped, gguf)
    }

    /// The architecture file for `gguf` among `files`, pairs of name and text.
    ///
    /// # Errors
    /// As [`Architecture::of`], or if one of the files is wrong.
    pub fn among(files: impl IntoIterator<Item = (String, String)>, gguf: &Gguf) -> Result<Self> {
        let Some(name) = gguf.metadata().str("general.architecture")? else {
            role::check(gguf)?;
            return Err(Error::MissingKey { file: gguf.name().into(), key: "general.architecture".into() });
        };
        let (mut known, mut others) = (Vec::new(), Vec::new());
        for (file, text) in files {
            let wrong = |message: String| Error::ArchitectureFile { name: file.clone(), message };
            let mut document: Value =
                serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
            let cases = document.as_object_mut().and_then(|map| map.remove("when"));
            let cases: Vec<Case> = cases
                .map_or(Ok(Vec::new()), serde_json::from_value)
                .map_err(|error| wrong(error.to_string()))?;
            for case in cases {
                if case.holds(gguf, name) {
                    overlay(&mut document, case.set);
                }
            }
            let architecture: Architecture =
                serde_json::from_value(document).map_err(|error| wrong(error.to_string()))?;
            if architecture.parallel && architecture.norms.attn_in.is_none() {
                return Err(wrong("`parallel` takes a norm in the slot `attn_in`".into()));
            }
            let norms = &architecture.norms;
            if architecture.encoder && (norms.attn_out.is_none() || norms.ffn_out.is_none()) {
                return Err(wrong("`encoder` takes norms in the slots `attn_out` and `ffn_out`".into()));
            }
            if architecture.architecture == name || architecture.accepts.iter().any(|other| other == name) {
                return architecture.over_every();
            }
            known.push(architecture.architecture);
            others.extend(architecture.accepts);
        }
        // Files that lie beside models have architectures of their own.
        role::check(gguf)?;
        known.sort();
        Err(Error::UnknownArchitecture {
            file: gguf.name().into(),
            name: name.into(),
            near: nearest(name, known.iter().chain(&others).map(String::as_str))
                .map(|near| format!("; of those that are, {near} is most like it"))
                .unwrap_or_default(),
            known: known.join(", "),
        })
    }
}

impl Architecture {
    /// Whether an architecture file is called so.
    pub fn is_known(name: &str) -> bool {
        FILES.get_file(format!("{name}.yaml")).is_some()
    }

    /// Lays what holds for every architecture under this one.
    fn over_every(mut self) -> Result<Self> {
        let every: Every = serde_saphyr::from_str(EVERY).map_err(|error| Error::ArchitectureFile {
            name: "every-architecture.yaml".into(),
            message: error.to_string(),
        })?;
        for (own, under) in
            [(&mut self.rename.keys, every.rename.keys), (&mut self.rename.tensors, every.rename.tensors)]
        {
            for (old, new) in under {
                own.entry(old).or_insert(new);
            }
        }
        self.harmless.keys.extend(every.harmless.keys);
        self.harmless.tensors.extend(every.harmless.tensors);
        Ok(self)
    }
}

impl CheckpointFacts {
    /// What is known of checkpoints of a `model_type`, and its architecture.
    ///
    /// # Errors
    /// If one of the architecture files is wrong.
    pub fn of(model_type: &str) -> Result<Option<(String, Self)>> {
        Self::all()
            .find(|read| read.as_ref().map_or(true, |(_, facts)| facts.model_type == model_type))
            .transpose()
    }

    /// All values of `model_type` that are known.
    ///
    /// # Errors
    /// As [`CheckpointFacts::of`].
    pub fn known() -> Result<Vec<String>> {
        Self::all().map(|read| Ok(read?.1.model_type)).collect()
    }

    fn all() -> impl Iterator<Item = Result<(String, Self)>> {
        /// Whatever else the file says.
        #[derive(Deserialize)]
        struct Part {
            architecture: String,
            checkpoint: Option<CheckpointFacts>,
        }
        FILES.files().filter_map(|file| {
            match serde_saphyr::from_str(file.contents_utf8().unwrap_or_default()) {
                Ok(Part { architecture, checkpoint }) => Some(Ok((architecture, checkpoint?))),
                Err(error) => {
                    let name = file.path().display().to_string();
                    Some(Err(Error::ArchitectureFile { name, message: error.to_string() }))
                }
            }
        })
    }

    /// The canonical name of a tensor.
    pub fn tensor(&self, name: &str) -> Option<String> {
        self.tensors.iter().find_map(|(own, canonical)| {
            let Some((before, after)) = own.split_once('*') else {
                let rest = name.strip_prefix(own.as_str()).filter(|rest| rest.starts_with('.'))?;
                return Some(format!("{canonical}{rest}"));
            };
            let rest = name.strip_prefix(before)?;
            let number = rest.split('.').next().filter(|number| number.parse::<u32>().is_ok())?;
            let rest = rest[number.len()..].strip_prefix(after).filter(|rest| rest.starts_with('.'))?;
            Some(format!("{}{rest}", canonical.replace('*', number)))
        })
    }
}

/// The tokenizer of `gguf`, with the facts of its architecture.
///
/// # Errors
/// As [`Tokenizer::with_facts`].
pub fn tokenizer(gguf: &Gguf) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::with_facts(gguf, &tokenizer_facts(gguf))
}

/// What the architecture file of `gguf` says about its tokenizer.
/// Nothing if its architecture is not known, as in files that hold just a vocabulary.
fn tokenizer_facts(gguf: &Gguf) -> TokenizerFacts {
    Architecture::of(gguf).map(|architecture| architecture.tokenizer).unwrap_or_default()
}

impl Harmless {
    /// Whether `names` has `name`, or what it begins with.
    pub fn has(names: &[String], name: &str) -> bool {
        names.iter().any(|known| known == name || known.ends_with('.') && name.starts_with(known.as_str()))
    }
}

impl Case {
    fn holds(&self, gguf: &Gguf, prefix: &str) -> bool {
        self.condition.iter().all(|(key, expected)| {
            if key == "has_tensor" {
                return expected.as_str().is_some_and(|name| gguf.tensor(name).is_some());
            }
            let (key, metadata) = (format!("{prefix}.{key}"), gguf.metadata());
            match expected {
                Value::String(expected) => metadata.str(&key).ok().flatten() == Some(expected),
                Value::Bool(expected) => metadata.bool(&key).ok().flatten() == Some(*expected),
                expected => expected.is_u64() && metadata.u64(&key).ok().flatten() == expected.as_u64(),
            }
        })
    }
}

/// Lays `over` over `base`: maps are merged, everything else replaces.
fn overlay(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                overlay(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alara_text::gguf::Writer;

    fn text(file: &include_dir::File<'_>) -> String {
        file.contents_utf8().unwrap().to_owned()
    }

    #[test]
    fn every_architecture_file_parses_and_is_named_after_its_architecture() {
        for file in FILES.files() {
            let stem = file.path().file_stem().unwrap().to_str().unwrap();
            let writer = Writer::new().meta("general.architecture", stem);
            let model = Gguf::from_vec("test", writer.bytes().unwrap()).unwrap();
            let found = Architecture::among([(stem.to_owned(), text(file))], &model).unwrap();
            assert_eq!(found.architecture, stem);
        }
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let text = "architecture: x\nrope: {pairing: half}\nwidnow: 3\n";
        assert!(serde_saphyr::from_str::<Architecture>(text).unwrap_err().to_string().contains("widnow"));
    }

    /// What Ollama's files leave out.
    /// An architecture that is not there yet has nothing to say.
    #[test]
    fn architectures_fill_in_what_files_leave_out() {
        #[track_caller]
        fn check(architecture: &str, pre: Option<&str>, tokens: Option<usize>, space_prefix: Option<bool>) {
            let bytes = Writer::new().meta("general.architecture", architecture).bytes().unwrap();
            let gguf = Gguf::from_vec("tiny.gguf", bytes).unwrap();
            if Architecture::of(&gguf).is_err() {
                println!("SKIPPED: there is no architecture {architecture}");
                assert_eq!(tokenizer_facts(&gguf), TokenizerFacts::default());
                return;
            }
            let expected = TokenizerFacts { pre: pre.map(str::to_owned), tokens, space_prefix };
            assert_eq!(tokenizer_facts(&gguf), expected, "{architecture}");
        }
        check("nobody", None, None, None);
        check("qwen3", None, None, None);
        check("llama", Some("llama-bpe"), Some(128_256), None);
        check("gemma3", None, None, Some(false));
        check("gptoss", Some("gpt-4o"), None, None);
        check("mistral3", Some("tekken"), None, None);
        check("glm4moelite", Some("glm4"), Some(154_880), None);
    }
}
