//! What a GGUF file can't say about itself, and the sizes that it does say.
//!
//! The facts of a model have three homes: sizes in the metadata, optional parts in which tensors exist, and the rest
//! in an architecture file, a few lines of YAML under `models/architectures`, embedded at build time.

use include_dir::{Dir, include_dir};
use serde::Deserialize;

use crate::gguf::Gguf;
use crate::{Error, Result};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../models/architectures");

/// An architecture file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    /// The value of `general.architecture`, and the prefix of the file's metadata keys.
    pub architecture: String,
    /// Other values of `general.architecture` with the same meaning.
    #[serde(default)]
    pub accepts: Vec<String>,
    /// Which elements of a head rotate together.
    pub rope: RopeFacts,
    /// The function on the gate of the feed-forward layer.
    #[serde(default)]
    pub activation: Activation,
    /// Which tensor serves which norm slot.
    #[serde(default)]
    pub norms: NormSlots,
    /// Tensors, and metadata keys without the prefix, that stand for a mechanism that is not built: a file in which one
    /// is present, a number other than 0, is refused rather than computed wrongly.
    #[serde(default)]
    pub refuses: Vec<String>,
}

/// What the file says of the rotation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RopeFacts {
    /// Which elements of a head rotate together.
    pub pairing: Pairing,
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

/// The function on the gate of a gated feed-forward layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x * sigmoid(x)`.
    #[default]
    Silu,
}

/// The tensor, without `blk.N.` and `.weight`, that serves each norm slot of a block. A slot without one is no norm;
/// a slot with one requires it.
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

impl Architecture {
    /// The architecture file for `gguf`.
    ///
    /// # Errors
    /// If the file names no architecture, or none that is known.
    pub fn of(gguf: &Gguf) -> Result<Self> {
        let name = gguf.metadata().str("general.architecture")?.ok_or_else(|| Error::MissingKey {
            file: gguf.name().into(),
            key: "general.architecture".into(),
        })?;
        let mut known = Vec::new();
        for file in FILES.files() {
            let text = file.contents_utf8().unwrap_or_default();
            let architecture: Architecture =
                serde_saphyr::from_str(text).map_err(|source| Error::ArchitectureFile {
                    name: file.path().display().to_string(),
                    message: source.to_string(),
                })?;
            if architecture.architecture == name || architecture.accepts.iter().any(|other| other == name) {
                return Ok(architecture);
            }
            known.push(architecture.architecture);
        }
        known.sort();
        Err(Error::UnknownArchitecture {
            file: gguf.name().into(),
            name: name.into(),
            known: known.join(", "),
        })
    }
}

/// The sizes of a model, from the metadata. Letters as in [`crate::decoder`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// L, blocks.
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
    /// Elements of a head that rotate.
    pub rope_width: usize,
    /// Base of the rotation's frequencies.
    pub rope_base: f32,
    /// Divides the frequencies (linear scaling). 1 = off.
    pub rope_factor: f32,
    /// Added to the mean square in every RMS norm.
    pub norm_epsilon: f32,
    /// Tokens that the model was trained to see at once.
    pub context: usize,
}

impl Sizes {
    /// Reads the sizes of `architecture` from `gguf`.
    ///
    /// # Errors
    /// If a key is missing, of the wrong type, out of range, or asks for a kind of scaling that is not built.
    pub fn of(gguf: &Gguf, architecture: &Architecture) -> Result<Self> {
        let metadata = gguf.metadata();
        let prefix = metadata.str("general.architecture")?.unwrap_or(&architecture.architecture);
        let key = |name: &str| format!("{prefix}.{name}");
        let invalid = |name: &str, reason: &str| Error::InvalidKey {
            file: gguf.name().into(),
            key: key(name),
            reason: reason.into(),
        };
        let optional = |name: &str| -> Result<Option<usize>> {
            let Some(value) = metadata.u64(&key(name))? else { return Ok(None) };
            match usize::try_from(value) {
                Ok(0) => Ok(None),
                Ok(value) if (1..=1 << 32).contains(&value) => Ok(Some(value)),
                _ => Err(invalid(name, &format!("{value} is out of range"))),
            }
        };
        let required = |name: &str| {
            optional(name)?.ok_or_else(|| Error::MissingKey { file: gguf.name().into(), key: key(name) })
        };

        for name in &architecture.refuses {
            if gguf.tensor(name).is_some() || optional(name)?.is_some() {
                return Err(invalid(name, "what it stands for is not supported in this architecture"));
            }
        }
        let width = required("embedding_length")?;
        let heads = required("attention.head_count")?;
        let kv_heads = optional("attention.head_count_kv")?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(invalid(
                "attention.head_count_kv",
                &format!("{heads} heads are no multiple of {kv_heads}"),
            ));
        }
        let key_width = match optional("attention.key_length")? {
            Some(width) => width,
            None if width.is_multiple_of(heads) => width / heads,
            None => {
                return Err(invalid("attention.head_count", &format!("{width} is no multiple of {heads}")));
            }
        };
        let rope_width = optional("rope.dimension_count")?.unwrap_or(key_width);
        if rope_width > key_width || !rope_width.is_multiple_of(2) {
            return Err(invalid(
                "rope.dimension_count",
                &format!("{rope_width} of {key_width} elements can't rotate"),
            ));
        }
        let scaling = metadata.str(&key("rope.scaling.type"))?.unwrap_or("none");
        let rope_factor = match scaling {
            "none" => 1.0,
            "linear" => metadata.f32(&key("rope.scaling.factor"))?.unwrap_or(1.0),
            other => {
                return Err(invalid("rope.scaling.type", &format!("`{other}` scaling is not supported")));
            }
        };
        let norm_epsilon = metadata.f32(&key("attention.layer_norm_rms_epsilon"))?.ok_or_else(|| {
            Error::MissingKey { file: gguf.name().into(), key: key("attention.layer_norm_rms_epsilon") }
        })?;
        Ok(Sizes {
            layers: required("block_count")?,
            width,
            heads,
            kv_heads,
            key_width,
            value_width: optional("attention.value_length")?.unwrap_or(key_width),
            rope_width,
            rope_base: metadata.f32(&key("rope.freq_base"))?.unwrap_or(10_000.0),
            rope_factor,
            norm_epsilon,
            context: required("context_length")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_file_parses_and_is_named_after_its_architecture() {
        for file in FILES.files() {
            let architecture: Architecture = serde_saphyr::from_str(file.contents_utf8().unwrap()).unwrap();
            assert_eq!(file.path().file_stem().unwrap().to_str(), Some(architecture.architecture.as_str()));
        }
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let text = "architecture: x\nrope: {pairing: half}\nwidnow: 3\n";
        assert!(serde_saphyr::from_str::<Architecture>(text).unwrap_err().to_string().contains("widnow"));
    }
}
