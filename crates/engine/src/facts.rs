//! A model's facts by their canonical names, wherever the file keeps them.

use crate::architecture::{Architecture, EmbeddingScale, QueryScale};
use crate::gguf::{Gguf, TensorInfo};
use crate::{Error, Result, role};

/// A model file seen through its architecture file: keys go without the prefix, and keys and tensors have the names that
/// the architecture file uses, whatever this file calls them.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The file.
    pub gguf: &'a Gguf,
    /// What it can't say about itself.
    pub architecture: &'a Architecture,
    prefix: &'a str,
}

impl<'a> Facts<'a> {
    /// Looks at `gguf` through `architecture`.
    ///
    /// # Errors
    /// If the file is no model, or holds what the architecture file refuses.
    pub fn new(gguf: &'a Gguf, architecture: &'a Architecture) -> Result<Self> {
        role::check(gguf)?;
        let prefix = gguf.metadata().str("general.architecture")?.unwrap_or(&architecture.architecture);
        let facts = Facts { gguf, architecture, prefix };
        for name in &architecture.refuses {
            if facts.tensor(name).is_some() || facts.maybe(name)?.is_some() {
                return Err(facts.invalid(name, "what it stands for is not supported in this architecture"));
            }
        }
        Ok(facts)
    }

    /// The name under which the file keeps the key `name`, prefix included; the canonical one if it has none.
    pub fn key(&self, name: &str) -> String {
        let canonical = format!("{}.{name}", self.prefix);
        if self.gguf.metadata().get(&canonical).is_some() {
            return canonical;
        }
        let others = self.architecture.rename.keys.iter().filter(|(_, new)| *new == name);
        let mut others = others.map(|(old, _)| format!("{}.{old}", self.prefix));
        others.find(|key| self.gguf.metadata().get(key).is_some()).unwrap_or(canonical)
    }

    /// The error for a key whose value makes no sense.
    pub fn invalid(&self, name: &str, reason: &str) -> Error {
        Error::InvalidKey { file: self.gguf.name().into(), key: self.key(name), reason: reason.into() }
    }

    /// The error for a key that is needed and absent.
    pub fn missing_key(&self, name: &str) -> Error {
        Error::MissingKey { file: self.gguf.name().into(), key: self.key(name) }
    }

    /// A size; `None` if it is absent or 0. An array with one value a block gives the one that is not 0: zeros mark blocks
    /// that have no such thing.
    ///
    /// # Errors
    /// If it is no whole number, is beyond 2^32, or differs between blocks.
    pub fn maybe(&self, name: &str) -> Result<Option<usize>> {
        let metadata = self.gguf.metadata();
        let key = self.key(name);
        let value = match metadata.get(&key) {
            Some(crate::gguf::Value::Array(_)) => {
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

    /// A size that must be there and not 0.
    ///
    /// # Errors
    /// As [`Facts::maybe`], or if it is absent or 0.
    pub fn size(&self, name: &str) -> Result<usize> {
        self.maybe(name)?.ok_or_else(|| self.missing_key(name))
    }

    /// A finite number.
    ///
    /// # Errors
    /// If it is no such number.
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

    /// A text.
    ///
    /// # Errors
    /// If it is no text.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        Ok(match self.gguf.metadata().str(&self.key(name))? {
            Some(value) => Some(value.to_owned()),
            None => self.architecture.defaults.get(name).and_then(|v| v.as_str()).map(str::to_owned),
        })
    }

    /// A yes or no.
    ///
    /// # Errors
    /// If it is neither.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        Ok(match self.gguf.metadata().bool(&self.key(name))? {
            Some(value) => Some(value),
            None => self.architecture.defaults.get(name).and_then(serde_json::Value::as_bool),
        })
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

/// The sizes that every model has, from the metadata. Letters as in [`crate::decoder`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// L, blocks that compute logits; blocks for predicting further tokens are left out.
    pub layers: usize,
    /// D, width of the residual stream.
    pub width: usize,
    /// H, query heads.
    pub heads: usize,
    /// K, key and value heads.
    pub kv_heads: usize,
    /// E, width of a key head.
    pub key_width: usize,
    /// Width of a value head.
    pub value_width: usize,
    /// Multiplies attention scores.
    pub query_scale: f32,
    /// Tokens that a windowed layer sees, itself included.
    pub window: Option<usize>,
    /// Every how many blocks one has no window: the last of each group.
    pub full_every: usize,
    /// Multiplies embeddings.
    pub embedding_scale: f32,
    /// `logits = cap * tanh(logits / cap)`.
    pub logit_cap: Option<f32>,
    /// Added to the mean square in every RMS norm.
    pub norm_epsilon: f32,
    /// Tokens that the model was trained to see at once.
    pub context: usize,
}

impl Sizes {
    /// Reads the sizes of a model.
    ///
    /// # Errors
    /// If a key is missing, of the wrong type or out of range.
    pub fn of(facts: &Facts) -> Result<Self> {
        let width = facts.size("embedding_length")?;
        let heads = facts.size("attention.head_count")?;
        let kv_heads = facts.maybe("attention.head_count_kv")?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let reason = format!("{heads} heads are no multiple of {kv_heads}");
            return Err(facts.invalid("attention.head_count_kv", &reason));
        }
        let key_width = match facts.maybe("attention.key_length")? {
            Some(width) => width,
            None if width.is_multiple_of(heads) => width / heads,
            None => {
                let reason = format!("{width} is no multiple of {heads}");
                return Err(facts.invalid("attention.head_count", &reason));
            }
        };
        let blocks = facts.size("block_count")?;
        let predicting = facts.maybe("nextn_predict_layers")?.unwrap_or(0);
        let has_predictor = facts.tensor(&format!("blk.{}.nextn.eh_proj.weight", blocks - 1)).is_some();
        let layers = if has_predictor { blocks.saturating_sub(predicting.max(1)) } else { blocks };
        if layers == 0 {
            return Err(facts.invalid("nextn_predict_layers", "no block is left"));
        }
        let per_head = match facts.architecture.query_scale {
            QueryScale::HeadWidth => key_width as f32,
            QueryScale::WidthPerHead => width as f32 / heads as f32,
        };
        Ok(Sizes {
            layers,
            width,
            heads,
            kv_heads,
            key_width,
            value_width: facts.maybe("attention.value_length")?.unwrap_or(key_width),
            query_scale: 1.0 / per_head.sqrt(),
            window: match facts.architecture.full_attention_every {
                Some(_) => facts.maybe("attention.sliding_window")?,
                None => None,
            },
            full_every: facts.architecture.full_attention_every.unwrap_or(1).max(1),
            embedding_scale: match facts.architecture.embedding_scale {
                EmbeddingScale::One => 1.0,
                EmbeddingScale::SqrtWidth => (width as f32).sqrt(),
            },
            logit_cap: facts.number("final_logit_softcapping")?.filter(|&cap| cap > 0.0),
            norm_epsilon: facts
                .number("attention.layer_norm_rms_epsilon")?
                .ok_or_else(|| facts.missing_key("attention.layer_norm_rms_epsilon"))?,
            context: facts.size("context_length")?,
        })
    }

    /// The window of block `layer`; `None` if it sees everything.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| !(layer + 1).is_multiple_of(self.full_every))
    }
}
