//! Access to a model's facts by their canonical names.
//!
//! A file that holds a tensor or key which the engine would leave out is refused.

use std::cell::RefCell;
use std::collections::BTreeSet;

use alara_text::gguf::{Array, Gguf, TensorInfo, Value};

use crate::architecture::{Architecture, EmbeddingScale, Harmless, LogitScale, NormKind, QueryScale};
use crate::{Error, Result, role};

/// A model file accessed through its architecture file.
/// Keys have no prefix, and keys and tensors have the architecture file's names, whatever this file
/// calls them.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The file.
    pub gguf: &'a Gguf,
    /// Facts that the file doesn't contain.
    pub architecture: &'a Architecture,
    prefix: &'a str,
    /// The file's keys and tensors that were read.
    read: RefCell<[BTreeSet<String>; 2]>,
}

/// How many blocks a file without tensors, as one with a vocabulary alone, may claim to have.
const MOST_BLOCKS: usize = 1024;
/// Most names of keys or tensors listed in a message.
const NAMES_SHOWN: usize = 4;

impl<'a> Facts<'a> {
    /// Accesses `gguf` through `architecture`.
    ///
    /// # Errors
    /// If the file isn't a model.
    pub fn new(gguf: &'a Gguf, architecture: &'a Architecture) -> Result<Self> {
        role::check(gguf)?;
        let prefix = gguf.metadata().str("general.architecture")?.unwrap_or(&architecture.architecture);
        Ok(Facts { gguf, architecture, prefix, read: RefCell::default() })
    }

    /// The file's name for the key `name`, including the prefix; the canonical one if the file
    /// lacks it.
    /// Marks it as read, together with its other names if the file has the same value under them.
    pub fn key(&self, name: &str) -> String {
        let canonical = format!("{}.{name}", self.prefix);
        let others = self.architecture.rename.keys.iter().filter(|(_, new)| *new == name);
        let others = others.map(|(old, _)| format!("{}.{old}", self.prefix));
        let metadata = self.gguf.metadata();
        let mut there =
            std::iter::once(canonical.clone()).chain(others).filter(|key| metadata.get(key).is_some());
        let Some(key) = there.next() else { return canonical };
        let [keys, _] = &mut *self.read.borrow_mut();
        keys.extend(there.filter(|other| metadata.get(other) == metadata.get(&key)));
        keys.insert(key.clone());
        key
    }

    /// As [`Facts::tensor`], for use in the computation: marks it as read.
    pub fn take(&self, name: &str) -> Option<&'a TensorInfo> {
        let info = self.tensor(name)?;
        let [_, tensors] = &mut *self.read.borrow_mut();
        tensors.insert(info.name.clone());
        Some(info)
    }

    /// Whether a tensor of the file needn't be read.
    /// Examples are towers for images or sound, and blocks that predict further tokens.
    pub fn ignores(&self, tensor: &str, sizes: &Sizes) -> bool {
        Harmless::has(&self.architecture.harmless.tensors, tensor)
            || block_of(tensor).is_some_and(|block| (sizes.layers..sizes.blocks).contains(&block))
    }

    /// Refuses a file with unread entries, once all layers are loaded: ignoring an unknown entry
    /// would give wrong results.
    /// Keys with other prefixes don't concern the computation, and a key with value 0, false or
    /// empty requires nothing.
    ///
    /// # Errors
    /// [`Error::NotUnderstood`], with the names.
    pub fn check_all_read(&self, sizes: &Sizes) -> Result<()> {
        let [read_keys, read_tensors] = &*self.read.borrow();
        let tensors = self.gguf.tensors().map(|info| info.name.as_str());
        let tensors = tensors.filter(|name| !read_tensors.contains(*name) && !self.ignores(name, sizes));
        let is_known = |key: &str| {
            let name = key.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix('.'));
            name.is_none_or(|name| Harmless::has(&self.architecture.harmless.keys, name))
        };
        let keys = self
            .gguf
            .metadata()
            .iter()
            .filter(|(key, value)| !read_keys.contains(*key) && !is_known(key) && !says_nothing(value));
        let found = [
            listed("tensor", &tensors.collect::<Vec<_>>()),
            listed("metadata key", &keys.map(|(key, _)| key).collect::<Vec<_>>()),
        ];
        match found.into_iter().flatten().collect::<Vec<_>>() {
            found if found.is_empty() => Ok(()),
            found => Err(Error::NotUnderstood { file: self.gguf.name().into(), what: found.join(" and ") }),
        }
    }

    /// The error for a key with an invalid value.
    pub fn invalid(&self, name: &str, reason: &str) -> Error {
        Error::InvalidKey { file: self.gguf.name().into(), key: self.key(name), reason: reason.into() }
    }

    /// The error for a required key that is absent.
    pub fn missing_key(&self, name: &str) -> Error {
        Error::MissingKey { file: self.gguf.name().into(), key: self.key(name) }
    }

    /// A size; `None` if absent or 0.
    /// For an array with one value per block, the one nonzero value: zeros mark blocks without this
    /// part.
    ///
    /// # Errors
    /// If it is not an integer, exceeds 2^32, or differs between blocks.
    pub fn maybe(&self, name: &str) -> Result<Option<usize>> {
        let metadata = self.gguf.metadata();
        let key = self.key(name);
        let value = match metadata.get(&key) {
            Some(alara_text::gguf::Value::Array(_)) => {
                let mut values = metadata.u64s(&key)?.unwrap_or_default();
                values.retain(|&value| value != 0);
                values.dedup();
                match values[..] {
                    [] => None,
                    [value] => Some(value),
                    _ => return Err(self.invalid(name, "it differs between blocks, which is not supported")),
                }
            }
            Some(_) => metadata.u64(&key)?,
            None => self.architecture.defaults.get(name).and_then(serde_json::Value::as_u64),
        };
        match value {
            None | Some(0) => Ok(None),
            Some(value) if value <= 1 << 32 => Ok(usize::try_from(value).ok()),
            Some(value) => Err(self.invalid(name, &format!("{value} is out of range"))),
        }
    }

    /// A size for each of `layers` blocks, which may differ; 0 for a block without this part.
    /// `None` if absent.
    ///
    /// # Errors
    /// If it is not an integer or array of integers, or has too few entries.
    pub fn each(&self, name: &str, layers: usize) -> Result<Option<Vec<usize>>> {
        let (metadata, key) = (self.gguf.metadata(), self.key(name));
        if !matches!(metadata.get(&key), Some(Value::Array(_))) {
            return Ok(self.maybe(name)?.map(|size| vec![size; layers]));
        }
        let values = metadata.u64s(&key)?.unwrap_or_default();
        let few = || self.invalid(name, &format!("it tells of {} blocks of {layers}", values.len()));
        let values = values.get(..layers).ok_or_else(few)?;
        if let Some(value) = values.iter().find(|&&value| value > 1 << 32) {
            return Err(self.invalid(name, &format!("{value} is out of range")));
        }
        Ok(Some(values.iter().map(|&value| value as usize).collect()))
    }

    /// Whether an array with one value per block is 0 for block `layer`.
    ///
    /// # Errors
    /// If it is not an array of integers.
    pub fn lacks(&self, name: &str, layer: usize) -> Result<bool> {
        let (metadata, key) = (self.gguf.metadata(), self.key(name));
        match metadata.get(&key) {
            Some(Value::Array(_)) => {
                Ok(metadata.u64s(&key)?.is_some_and(|values| values.get(layer) == Some(&0)))
            }
            _ => Ok(false),
        }
    }

    /// A required, nonzero size.
    ///
    /// # Errors
    /// As [`Facts::maybe`], or if absent or 0.
    pub fn size(&self, name: &str) -> Result<usize> {
        self.maybe(name)?.ok_or_else(|| self.missing_key(name))
    }

    /// A finite number.
    ///
    /// # Errors
    /// If it is not a finite number.
    pub fn number(&self, name: &str) -> Result<Option<f32>> {
        let value = match self.gguf.metadata().f32(&self.key(name))? {
            Some(value) => Some(value),
            None => {
                self.architecture.defaults.get(name).and_then(serde_json::Value::as_f64).map(|v| v as f32)
            }
        };
        match value {
            Some(value) if !value.is_finite() => Err(self.invalid(name, "it is not finite")),
            value => Ok(value),
        }
    }

    /// A string.
    ///
    /// # Errors
    /// If it is not a string.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        Ok(match self.gguf.metadata().str(&self.key(name))? {
            Some(value) => Some(value.to_owned()),
            None => self.architecture.defaults.get(name).and_then(|v| v.as_str()).map(str::to_owned),
        })
    }

    /// A boolean.
    ///
    /// # Errors
    /// If it is not a boolean.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        Ok(match self.gguf.metadata().bool(&self.key(name))? {
            Some(value) => Some(value),
            None => self.architecture.defaults.get(name).and_then(serde_json::Value::as_bool),
        })
    }

    /// Whether sequences of up to `context` tokens use the rotation divisors for long ones, if the
    /// file has both kinds.
    ///
    /// # Errors
    /// If a key is invalid.
    pub fn is_long(&self, context: usize) -> Result<bool> {
        let trained = self.maybe("rope.scaling.original_context_length")?;
        Ok(self.tensor("rope_factors_long.weight").is_some()
            && trained.is_some_and(|trained| context > trained))
    }

    /// The tensor with the canonical name `name`, for example `blk.0.attn_output.weight`.
    pub fn tensor(&self, name: &str) -> Option<&'a TensorInfo> {
        let gguf = self.gguf;
        if let Some(info) = gguf.tensor(name) {
            return Some(info);
        }
        let (block, tail) = match name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((number, tail)) => (format!("blk.{number}."), tail),
            None => (String::new(), name),
        };
        self.architecture.rename.tensors.iter().find_map(|(old, new)| {
            let rest = tail.strip_prefix(new.as_str())?;
            let whole = rest.is_empty() || rest.starts_with('.');
            whole.then(|| gguf.tensor(&format!("{block}{old}{rest}"))).flatten()
        })
    }
}

/// The number of the block that a tensor belongs to.
pub(crate) fn block_of(tensor: &str) -> Option<usize> {
    tensor.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok())
}

/// Whether a value requires nothing.
fn says_nothing(value: &Value) -> bool {
    fn all<T: Default + PartialEq>(values: &[T]) -> bool {
        values.iter().all(|value| *value == T::default())
    }
    match value {
        Value::F32(value) => *value == 0.0,
        Value::F64(value) => *value == 0.0,
        Value::Bool(value) => !value,
        Value::String(text) => text.is_empty(),
        Value::Array(Array::Bool(values)) => all(values),
        Value::Array(Array::F32(values)) => all(values),
        Value::Array(Array::F64(values)) => all(values),
        Value::Array(Array::I32(values)) => all(values),
        Value::Array(Array::U32(values)) => all(values),
        Value::Array(_) => false,
        value => value.integer() == Some(0),
    }
}

/// Formats names of one kind for a message; `None` if there are none.
fn listed(kind: &str, names: &[&str]) -> Option<String> {
    let shown: Vec<String> =
        names.iter().take(NAMES_SHOWN).map(|name| format!("`{}`", name.escape_debug())).collect();
    let (shown, rest) = (shown.join(", "), names.len().saturating_sub(NAMES_SHOWN));
    match (names.len(), rest) {
        (0, _) => None,
        (1, _) => Some(format!("the {kind} {shown}")),
        (_, 0) => Some(format!("the {kind}s {shown}")),
        (_, rest) => Some(format!("the {kind}s {shown} and {rest} more")),
    }
}

/// The sizes common to all models, from the metadata.
/// Dimension letters are as in `decoder.rs`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// L, blocks that compute logits; excludes blocks that predict further tokens.
    pub layers: usize,
    /// Number of all blocks.
    pub blocks: usize,
    /// D, width of the residual stream.
    pub width: usize,
    /// H, query heads.
    pub heads: usize,
    /// K, key and value heads of each block; 0 for a block without attention.
    /// `[L]`
    pub kv_heads: Vec<usize>,
    /// E, width of a key head, in full-attention blocks.
    pub key_width: usize,
    /// Width of a value head, in full-attention blocks.
    pub value_width: usize,
    /// E and the width of a value head in blocks with a window.
    pub windowed_widths: (usize, usize),
    /// For each block, the block whose keys and values it reads: itself, or an earlier one.
    /// `[L]`
    pub keys_of: Vec<usize>,
    /// Multiplies attention scores.
    pub query_scale: f32,
    /// Attention scores become `score = cap * tanh(score / cap)`.
    pub attention_cap: Option<f32>,
    /// Window size of windowed layers in tokens, including the current one.
    pub window: Option<usize>,
    /// Which blocks have a window, if any.
    /// `[L]`
    pub windowed: Vec<bool>,
    /// Which blocks rotate queries and keys.
    /// `[L]`
    pub rotates: Vec<bool>,
    /// Multiplies embeddings.
    pub embedding_scale: f32,
    /// Multiplies the contribution of each layer to the residual stream.
    pub residual_scale: f32,
    /// Multiplies logits.
    pub logit_scale: f32,
    /// `logits = cap * tanh(logits / cap)`.
    pub logit_cap: Option<f32>,
    /// Added to the mean square in every norm.
    pub norm_epsilon: f32,
    /// The context length that the model was trained for.
    pub context: usize,
}

impl Sizes {
    /// Reads the sizes of a model.
    ///
    /// # Errors
    /// If a key is missing, has the wrong type or is out of range.
    pub fn of(facts: &Facts) -> Result<Self> {
        let width = facts.size("embedding_length")?;
        let heads = facts.size("attention.head_count")?;
        let key_width = match facts.maybe("attention.key_length")? {
            Some(width) => width,
            None if width.is_multiple_of(heads) => width / heads,
            None => {
                let reason = format!("{width} is no multiple of {heads}");
                return Err(facts.invalid("attention.head_count", &reason));
            }
        };
        let blocks = facts.size("block_count")?;
        // Each block has tensors of its own.
        if blocks > facts.gguf.tensors().count().max(MOST_BLOCKS) {
            return Err(facts.invalid("block_count", &format!("there are no tensors for {blocks} blocks")));
        }
        let predicting = facts.maybe("nextn_predict_layers")?.unwrap_or(0);
        let has_predictor = facts.tensor(&format!("blk.{}.nextn.eh_proj.weight", blocks - 1)).is_some();
        let layers = if has_predictor { blocks.saturating_sub(predicting.max(1)) } else { blocks };
        if layers == 0 {
            return Err(facts.invalid("nextn_predict_layers", "no block is left"));
        }
        let kv_heads = facts.each("attention.head_count_kv", layers)?.unwrap_or_else(|| vec![heads; layers]);
        if let Some(kv_heads) = kv_heads.iter().find(|&&of| of != 0 && !heads.is_multiple_of(of)) {
            let reason = format!("{heads} heads are no multiple of {kv_heads}");
            return Err(facts.invalid("attention.head_count_kv", &reason));
        }
        let architecture = facts.architecture;
        match (facts.flag("attention.causal")?, architecture.encoder) {
            (Some(false), false) => {
                let reason = "a model that sees what comes after a token writes no text";
                return Err(facts.invalid("attention.causal", reason));
            }
            (Some(true), true) => {
                let reason = "an encoder must see what comes after a token";
                return Err(facts.invalid("attention.causal", reason));
            }
            _ => {}
        }
        let context = facts.size("context_length")?;
        let per_head = match architecture.query_scale {
            QueryScale::HeadWidth => key_width as f32,
            QueryScale::WidthPerHead => width as f32 / heads as f32,
            QueryScale::One => 1.0,
        };
        // A scale of 0 means that there is none.
        let scale = |name: &str| facts.number(name).map(|value| value.filter(|&value| value != 0.0));
        let cap = |name: &str| facts.number(name).map(|value| value.filter(|&value| value > 0.0));
        let window = match (architecture.full_attention_every, facts.maybe("attention.sliding_window")?) {
            (Some(_), window) => window,
            (None, Some(window)) if window < context => {
                let reason = "a window is not supported in this architecture";
                return Err(facts.invalid("attention.sliding_window", reason));
            }
            // A window as long as the context hides nothing.
            (None, _) => None,
        };
        let windowed = match (window, architecture.full_attention_every) {
            (Some(_), Some(every)) => windowed(facts, layers, every)?,
            _ => vec![false; layers],
        };
        let value_width = facts.maybe("attention.value_length")?.unwrap_or(key_width);
        let rope = &architecture.rope;
        let rotates = |layer: usize| {
            let is_last = rope.except_every.is_some_and(|every| (layer + 1).is_multiple_of(every));
            !is_last && (windowed[layer] || window.is_none() || !rope.only_windowed)
        };
        let epsilon = match architecture.norm {
            NormKind::Rms => "attention.layer_norm_rms_epsilon",
            NormKind::Layer => "attention.layer_norm_epsilon",
        };
        Ok(Sizes {
            layers,
            blocks,
            width,
            heads,
            kv_heads,
            key_width,
            value_width,
            windowed_widths: match facts.maybe("attention.key_length_swa")? {
                Some(key) => (key, facts.maybe("attention.value_length_swa")?.unwrap_or(key)),
                None => (key_width, value_width),
            },
            keys_of: keys_of(facts, &windowed)?,
            query_scale: scale("attention.scale")?.unwrap_or(1.0 / per_head.sqrt()),
            attention_cap: cap("attn_logit_softcapping")?,
            rotates: (0..layers).map(rotates).collect(),
            window,
            windowed,
            embedding_scale: scale("embedding_scale")?.unwrap_or(match architecture.embedding_scale {
                EmbeddingScale::One => 1.0,
                EmbeddingScale::SqrtWidth => (width as f32).sqrt(),
            }),
            residual_scale: scale("residual_scale")?.unwrap_or(1.0),
            logit_scale: match architecture.logit_scale {
                Some(LogitScale::Multiplies) => scale("logit_scale")?.unwrap_or(1.0),
                Some(LogitScale::Divides) => 1.0 / scale("logit_scale")?.unwrap_or(1.0),
                None => 1.0,
            },
            logit_cap: cap("final_logit_softcapping")?,
            norm_epsilon: facts.number(epsilon)?.ok_or_else(|| facts.missing_key(epsilon))?,
            context,
        })
    }

    /// The window of block `layer`; `None` for full attention.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| self.windowed[layer])
    }

    /// Widths of a key head and of a value head in block `layer`.
    pub fn widths_of(&self, layer: usize) -> (usize, usize) {
        if self.window_of(layer).is_some() {
            self.windowed_widths
        } else {
            (self.key_width, self.value_width)
        }
    }
}

/// For each block, the block whose keys and values it reads.
/// The last blocks may share those of the latest earlier block with the same kind of attention.
fn keys_of(facts: &Facts, windowed: &[bool]) -> Result<Vec<usize>> {
    const NAME: &str = "attention.shared_kv_layers";
    let (layers, shared) = (windowed.len(), facts.maybe(NAME)?.unwrap_or(0));
    let own = layers.saturating_sub(shared);
    let source = |layer| match layer < own {
        true => Some(layer),
        false => (0..own).rev().find(|&earlier| windowed[earlier] == windowed[layer]),
    };
    let sources = (0..layers).map(source).collect::<Option<Vec<_>>>();
    sources
        .ok_or_else(|| facts.invalid(NAME, "no block is left whose keys and values the last ones can share"))
}

/// Which blocks have a window: as specified in the file, by a number or for each block, otherwise
/// all but the last of every `every`.
fn windowed(facts: &Facts, layers: usize, every: usize) -> Result<Vec<bool>> {
    const NAME: &str = "attention.sliding_window_pattern";
    let flags: Vec<bool> = match facts.gguf.metadata().get(&facts.key(NAME)) {
        Some(Value::Array(Array::Bool(windowed))) => windowed.clone(),
        Some(Value::Array(_)) => {
            let numbers = facts.gguf.metadata().u64s(&facts.key(NAME))?.unwrap_or_default();
            numbers.iter().map(|&number| number != 0).collect()
        }
        _ => {
            let every = facts.maybe(NAME)?.unwrap_or(every).max(1);
            return Ok((1..=layers).map(|block| !block.is_multiple_of(every)).collect());
        }
    };
    match flags.get(..layers) {
        Some(windowed) => Ok(windowed.to_vec()),
        None => Err(facts.invalid(NAME, &format!("it tells of {} blocks of {layers}", flags.len()))),
    }
}
