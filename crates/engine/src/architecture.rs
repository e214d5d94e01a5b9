//! The facts about a model that a GGUF file doesn't contain.
//!
//! The facts of a model come from three places: sizes from the metadata, optional parts from the
//! tensors present, and the rest from an architecture file.
//! Such a file is a few lines of YAML under `models/architectures`, embedded at build time.
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

/// Merged under every architecture file.
const EVERY: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", env!("ALARA_MODELS"), "/every-architecture.yaml"));

/// An architecture file, with the matching cases of its `when` already merged.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    /// The value of `general.architecture`, and the prefix of the file's metadata keys.
    pub architecture: String,
    /// Other values of `general.architecture` with the same meaning.
    #[serde(default)]
    pub accepts: Vec<String>,
    /// Other names that files use for keys and tensors.
    #[serde(default)]
    pub rename: Rename,
    /// Values of keys that a file may omit; without the prefix.
    #[serde(default)]
    pub defaults: BTreeMap<String, Value>,
    /// Whether every token attends to all others, as in embedding models.
    /// Blocks then apply their norms after the residual sums, in the slots `attn_out` and
    /// `ffn_out`.
    #[serde(default)]
    pub encoder: bool,
    /// The tensor for each norm slot.
    #[serde(default)]
    pub norms: NormSlots,
    /// The rotary embedding.
    pub rope: RopeFacts,
    /// For a model with a window: one block in this many has full attention, the last of each
    /// group.
    pub full_attention_every: Option<usize>,
    /// Whether windows are chunks: positions are cut into chunks, and a token attends from its
    /// chunk's start to itself.
    #[serde(default)]
    pub chunked_window: bool,
    /// The scale of attention scores, unless the metadata sets it.
    #[serde(default)]
    pub query_scale: QueryScale,
    /// The scale of embeddings, unless the metadata sets it.
    #[serde(default)]
    pub embedding_scale: EmbeddingScale,
    /// The meaning of the metadata's `logit_scale`.
    /// `None`: files don't have it.
    pub logit_scale: Option<LogitScale>,
    /// The kind of norm of blocks and output.
    #[serde(default)]
    pub norm: NormKind,
    /// Norms on the heads of queries and keys.
    #[serde(default)]
    pub qk_norm: QkNorm,
    /// Whether heads of values are normalized, without weights.
    /// A block without value weights then uses the input of its keys.
    #[serde(default)]
    pub value_norm: bool,
    /// Whether attention and the feed-forward layer read the same input, the norm `attn_in`, and
    /// their results are summed.
    #[serde(default)]
    pub parallel: bool,
    /// The activation of the feed-forward layer's gate.
    #[serde(default)]
    pub activation: Activation,
    /// The activation of feed-forward layers without a gate.
    /// `None`: models of this architecture have none.
    pub ungated: Option<Ungated>,
    /// How experts are chosen, unless the metadata sets it.
    /// `None`: models of this architecture have none.
    pub router: Option<Router>,
    /// Facts about the tokenizer that files omit.
    #[serde(default)]
    pub tokenizer: TokenizerFacts,
    /// Keys and tensors that needn't be read.
    #[serde(default)]
    pub harmless: Harmless,
    /// The corresponding names in Hugging Face checkpoints.
    /// `None`: models of this architecture are read from GGUF files only.
    pub checkpoint: Option<CheckpointFacts>,
}

/// Names in `config.json` and `model.safetensors`, each with the canonical name, and other entries
/// that these files may have.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFacts {
    /// The value of `model_type`.
    pub model_type: String,
    /// Metadata keys without the prefix, by keys of `config.json`.
    pub keys: BTreeMap<String, String>,
    /// Keys of `config.json` that must either be absent or have this value.
    #[serde(default)]
    pub needs: BTreeMap<String, Value>,
    /// Tensors; `*` stands for a block number.
    /// A name also covers its continuations after a dot.
    pub tensors: BTreeMap<String, String>,
    /// Entries that needn't be read, by their names in the checkpoint.
    #[serde(default)]
    pub harmless: Harmless,
}

/// Names of entries that don't affect the logits.
/// A name that ends in a dot covers all names with that prefix.
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

/// Facts that apply to every architecture.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Every {
    rename: Rename,
    harmless: Harmless,
}

/// Alternative names in some files, each with its canonical name.
/// Keys have no prefix, tensors no `blk.N.`; a tensor's name also covers its continuations after a
/// dot (`attn_out: attn_output` renames weight and bias).
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

/// The facts of the rotary embedding.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RopeFacts {
    /// Which elements of a head rotate together.
    pub pairing: Pairing,
    /// Whether windowed layers rotate without scaling, and with the base `rope.freq_base_swa` if
    /// present, rather than like the others.
    #[serde(default)]
    pub window_unscaled: bool,
    /// The target of YaRN's multiplier, `rope.scaling.yarn_log_multiplier`.
    #[serde(default)]
    pub yarn_multiplies: YarnMultiplies,
    /// Whether only windowed layers rotate, in a model that has some.
    #[serde(default)]
    pub only_windowed: bool,
    /// One block in this many doesn't rotate, the last of each group.
    pub except_every: Option<usize>,
}

/// The target of YaRN's multiplier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum YarnMultiplies {
    /// Cosines and sines, whose scaling it partly reverts.
    #[default]
    Angles,
    /// Attention scores, multiplied by the square of `1 + key * ln(factor)`: the key holds a tenth
    /// of the multiplier.
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

/// The scale of attention scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryScale {
    /// `1 / sqrt(E)`, E the width of a head.
    #[default]
    HeadWidth,
    /// `1 / sqrt(D / H)`, independent of the width of a head.
    WidthPerHead,
    /// No scaling.
    One,
}

/// The meaning of `logit_scale`.
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
    /// Subtracts the mean, then divides as RMS norm does.
    /// Source: Ba et al. 2016, <https://arxiv.org/abs/1607.06450>.
    Layer,
}

/// Norms on the heads of queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::enum_variant_names, reason = "the values in architecture files")]
pub enum QkNorm {
    /// With weights if the tensors exist, before the rotation.
    #[default]
    BeforeRope,
    /// With weights if the tensors exist, after the rotation.
    AfterRope,
    /// Without weights, after the rotation, in layers that rotate.
    WeightlessAfterRope,
}

/// The scale of embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmbeddingScale {
    /// No scaling.
    #[default]
    One,
    /// `sqrt(D)`.
    SqrtWidth,
}

/// The activation of a gated layer.
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

/// The activation of a feed-forward layer without a gate.
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

/// How experts are chosen and weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Router {
    /// Converts logits to scores.
    #[serde(default)]
    pub score: Score,
    /// Whether the scores of the chosen experts are divided by their sum.
    #[serde(default)]
    pub normalise: bool,
    /// Whether weights multiply an expert's input rather than its output.
    #[serde(default)]
    pub weigh_input: bool,
}

/// Converts a router's logits to scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// Softmax over all experts.
    #[default]
    Softmax,
    /// Sigmoid of each.
    Sigmoid,
    /// Softmax over the chosen experts; the choice is by logits.
    SoftmaxOfChosen,
    /// Sigmoid of each chosen expert; the choice is by logits.
    SigmoidOfChosen,
}

/// The tensor for each norm slot of a block, without `blk.N.` and `.weight`.
/// A slot without a tensor has no norm; a slot with one requires it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormSlots {
    /// Applied to the input of attention.
    pub attn_in: Option<String>,
    /// Applied to the output of attention, before it is added to the residual stream.
    pub attn_out: Option<String>,
    /// Applied to the input of the feed-forward layer.
    pub ffn_in: Option<String>,
    /// Applied to the output of the feed-forward layer.
    pub ffn_out: Option<String>,
}

impl Default for NormSlots {
    fn default() -> Self {
        let slot = |name: &str| Some(name.to_owned());
        NormSlots { attn_in: slot("attn_norm"), attn_out: None, ffn_in: slot("ffn_norm"), ffn_out: None }
    }
}

/// A case of `when`: conditions on the model, and settings that apply if all of them hold.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Metadata keys without the prefix with their values; `has_tensor` with a tensor's name.
    #[serde(rename = "if")]
    condition: BTreeMap<String, Value>,
    /// Merged over the file.
    set: Value,
}

impl Architecture {
    /// The built-in architecture file for `gguf`.
    ///
    /// # Errors
    /// If the file names no architecture, or an unknown one.
    pub fn of(gguf: &Gguf) -> Result<Self> {
        let shipped = FILES.files().map(|file| {
            (file.path().display().to_string(), file.contents_utf8().unwrap_or_default().to_owned())
        });
        Self::among(shipped, gguf)
    }

    /// The architecture file for `gguf` in `files`, pairs of name and text.
    ///
    /// # Errors
    /// As [`Architecture::of`], or if one of the files is invalid.
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
        // Companion files of models have their own architectures.
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
    /// Whether an architecture file has this name.
    pub fn is_known(name: &str) -> bool {
        FILES.get_file(format!("{name}.yaml")).is_some()
    }

    /// Merges the facts of every architecture under this one.
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
    /// The checkpoint facts for a `model_type`, and its architecture's name.
    ///
    /// # Errors
    /// If one of the architecture files is invalid.
    pub fn of(model_type: &str) -> Result<Option<(String, Self)>> {
        Self::all()
            .find(|read| read.as_ref().map_or(true, |(_, facts)| facts.model_type == model_type))
            .transpose()
    }

    /// All known values of `model_type`.
    ///
    /// # Errors
    /// As [`CheckpointFacts::of`].
    pub fn known() -> Result<Vec<String>> {
        Self::all().map(|read| Ok(read?.1.model_type)).collect()
    }

    fn all() -> impl Iterator<Item = Result<(String, Self)>> {
        /// Other entries of the file.
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

/// The tokenizer facts in the architecture file of `gguf`.
/// Empty for an unknown architecture, as in files that only hold a vocabulary.
fn tokenizer_facts(gguf: &Gguf) -> TokenizerFacts {
    Architecture::of(gguf).map(|architecture| architecture.tokenizer).unwrap_or_default()
}

impl Harmless {
    /// Whether `names` contains `name`, or a covering prefix of it.
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

/// Merges `over` into `base`: maps are merged, other values replaced.
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

    /// Facts that Ollama's files omit.
    /// An unknown architecture has none.
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
