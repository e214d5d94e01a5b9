//! Sampling parameters recommended by publishers, and the files that they apply to.

use std::path::Path;

use alara_engine::SamplingOverrides;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::Entry;
use crate::hub::is_sha256;
use crate::name::is_gguf;

/// A recommendation from the model card or its `generation_config.json`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Recommended {
    /// Replaces `parameters` if the user turns reasoning on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_on: Option<SamplingOverrides>,
    /// Replaces `parameters` if the user turns reasoning off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_off: Option<SamplingOverrides>,
    /// Where it was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Absent parameters keep their usual values.
    #[serde(flatten, deserialize_with = "all_known")]
    pub parameters: SamplingOverrides,
}

/// Refuses unknown parameters, which flattening would drop.
fn all_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SamplingOverrides, D::Error> {
    let map = serde_json::Map::deserialize(deserializer)?;
    serde_json::from_value(map.into()).map_err(D::Error::custom)
}

impl Recommended {
    /// Returns the recommendation with reasoning turned on or off; `None` keeps the model's
    /// default.
    pub fn overrides(&self, thinking: Option<bool>) -> SamplingOverrides {
        let other = match thinking {
            Some(true) => &self.thinking_on,
            Some(false) => &self.thinking_off,
            None => &None,
        };
        other.as_ref().unwrap_or(&self.parameters).clone()
    }
}

/// Finds the entry of `entries` that a file belongs to, whatever its quantization.
/// Identifies the file by its hash if a cache names it by that, else by its name.
pub fn of_file<'a>(path: &Path, entries: &'a [Entry]) -> Option<&'a Entry> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let (linked, own) = (name(path), name(&real));
    let hash = own.strip_prefix("sha256-").unwrap_or(&own);
    let by_hash = entries.iter().find(|entry| {
        is_sha256(hash) && entry.sha256.as_deref().is_some_and(|known| known.eq_ignore_ascii_case(hash))
    });
    by_hash.or_else(|| entries.iter().find(|entry| !entry.is_checkpoint() && same_stem(&linked, entry)))
}

/// Whether a file's name equals the entry's apart from the quantization.
fn same_stem(file: &str, entry: &Entry) -> bool {
    let stem = |file: &str| -> Option<String> {
        let file = file.rsplit('/').next().unwrap_or(file).to_lowercase();
        let stem = is_gguf(&file).then(|| file.trim_end_matches(".gguf").to_owned())?;
        let (before, last) = stem.rsplit_once(['-', '.'])?;
        is_quantization(last).then(|| before.trim_end_matches("-ud").to_owned())
    };
    stem(file).is_some_and(|own| stem(&entry.file) == Some(own))
}

/// Whether a lowercase word is the name of a quantization: `q4_k_m`, `iq3_xxs`, `bf16`, `mxfp4`.
fn is_quantization(word: &str) -> bool {
    let rest = word.strip_prefix("iq").or_else(|| word.strip_prefix('q')).or_else(|| word.strip_prefix("tq"));
    let floats = ["f32", "f16", "bf16", "mxfp4", "nvfp4"];
    floats.contains(&word) || rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{entries, find};

    #[test]
    fn a_recommendation_by_mode() {
        let qwen = find("qwen3-4b").unwrap().unwrap().sampling.clone().unwrap();
        let check = |thinking, temperature, top_p| {
            let found = qwen.overrides(thinking);
            assert_eq!((found.temperature, found.top_p, found.top_k), (temperature, top_p, Some(20)));
            assert_eq!(found.seed, None);
        };
        check(None, Some(0.6), Some(0.95));
        check(Some(true), Some(0.6), Some(0.95));
        check(Some(false), Some(0.7), Some(0.8));
        let exaone = find("exaone4-1.2b").unwrap().unwrap().sampling.clone().unwrap();
        assert_eq!(exaone.overrides(None), SamplingOverrides::default());
        assert_eq!(exaone.overrides(Some(true)).temperature, Some(0.6));
    }

    #[test]
    fn recommendations_make_sense_and_say_where_they_are_from() {
        let mut seen = 0;
        for entry in entries().unwrap() {
            let Some(all) = &entry.sampling else { continue };
            let name = &entry.name;
            assert!(all.source.as_deref().is_some_and(|source| source.starts_with("https://")), "{name}");
            for thinking in [None, Some(true), Some(false)] {
                let own = all.overrides(thinking);
                let share = |value: Option<f32>| value.is_none_or(|value| value > 0.0 && value <= 1.0);
                assert!(own.temperature.is_none_or(|value| (0.0..=1.5).contains(&value)), "{name}");
                assert!(share(own.top_p) && share(own.min_p), "{name}");
                assert!(own.repetition_penalty.is_none_or(|value| (1.0..1.3).contains(&value)), "{name}");
            }
            seen += 1;
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn files_of_a_model() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, expected: Option<&str>| {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            let found = of_file(&path, entries().unwrap()).map(|entry| entry.name.as_str());
            assert_eq!(found, expected, "{name}");
        };
        let hash = find("qwen3-8b").unwrap().unwrap().sha256.clone().unwrap();
        check(&format!("sha256-{hash}"), Some("qwen3-8b"));
        check(&hash, Some("qwen3-8b"));
        check("Qwen3-4B-Q4_K_M.gguf", Some("qwen3-4b"));
        check("Qwen3-4B-Q8_0.gguf", Some("qwen3-4b"));
        check("qwen3-4b-UD-Q2_K_XL.gguf", Some("qwen3-4b"));
        check("gpt-oss-20b-F16.gguf", Some("gpt-oss-20b"));
        // Other models.
        check("Qwen3-4B-Thinking-2507-Q4_K_M.gguf", None);
        check("Qwen3-4B.gguf", None);
        check("model.safetensors", None);
        check("noise", None);
    }
}
