//! Sampling parameters as shown by `alara models show`.

use alara_engine::{Gguf, SamplingOverrides};
use alara_models::Entry;
use alara_models::catalog::of_file;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use crate::model_file::{Place, place};

/// The default sampling parameters, and their source.
#[derive(Default, Serialize)]
pub struct Recommendation {
    /// `file`, `catalog`, or none: then decoding is greedy.
    pub by: Option<&'static str>,
    /// The catalog's source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Parameters and values.
    pub values: Map<String, Json>,
    /// Differences if the user turns reasoning on or off.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub by_thinking: Map<String, Json>,
}

impl Recommendation {
    /// Returns the parameters in the file's own keys, else in the catalog.
    pub fn of(gguf: &Gguf, name: Option<&str>) -> anyhow::Result<Recommendation> {
        let own = SamplingOverrides::of(gguf);
        if own != SamplingOverrides::default() {
            return Ok(Recommendation {
                by: Some("file"),
                values: values(&own),
                ..Recommendation::default()
            });
        }
        let entry = match place(name)? {
            Place::Shipped => None,
            Place::File(path) => of_file(&path),
        };
        Ok(entry.map(Recommendation::known).unwrap_or_default())
    }

    /// Returns the parameters in the catalog.
    pub fn known(entry: &Entry) -> Recommendation {
        let Some(known) = &entry.sampling else { return Recommendation::default() };
        let all = known.overrides(None);
        let modes = [("on", true), ("off", false)].into_iter();
        let modes = modes.map(|(mode, thinking)| (mode, known.overrides(Some(thinking))));
        let other = modes.filter(|(_, own)| *own != all);
        Recommendation {
            by: Some("catalog"),
            source: known.source.clone(),
            values: values(&all),
            by_thinking: other.map(|(mode, own)| (mode.to_owned(), Json::Object(values(&own)))).collect(),
        }
    }

    /// Formats the parameters as one line.
    pub fn told(&self) -> String {
        let listed = |values: &Map<String, Json>| match values.is_empty() {
            true => "the most likely token".to_owned(),
            false => {
                values.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
            }
        };
        let by = match (self.by, &self.source) {
            (Some("file"), _) => "; the file recommends it".to_owned(),
            (_, Some(source)) => format!("; from {source}"),
            _ => "; nothing is recommended".to_owned(),
        };
        let other = self.by_thinking.iter().filter_map(|(mode, values)| {
            Some(format!("; with --thinking {mode} {}", listed(values.as_object()?)))
        });
        format!("{}{}{by}", listed(&self.values), other.collect::<String>())
    }
}

/// Returns the parameters that are set, by name.
fn values(overrides: &SamplingOverrides) -> Map<String, Json> {
    // Keep the number as written: 0.6 rather than the nearest f32.
    let number = |value: f32| value.to_string().parse::<f64>().map_or(Json::Null, |value| json!(value));
    let numbers = [
        ("temperature", overrides.temperature),
        ("top_p", overrides.top_p),
        ("min_p", overrides.min_p),
        ("repetition_penalty", overrides.repetition_penalty),
        ("presence_penalty", overrides.presence_penalty),
        ("mirostat_tau", overrides.mirostat_tau),
        ("mirostat_eta", overrides.mirostat_eta),
        ("xtc_probability", overrides.xtc_probability),
        ("xtc_threshold", overrides.xtc_threshold),
    ];
    let counts = [
        ("top_k", overrides.top_k),
        ("penalty_last_n", overrides.penalty_last_n),
        ("mirostat", overrides.mirostat.map(usize::from)),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), number(value?))));
    numbers
        .chain(counts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))))
        .collect()
}

#[cfg(test)]
mod tests {
    use alara_engine::inspect::Writer;

    use super::*;

    #[test]
    fn who_recommends_what() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch");
        let tiny = Gguf::open(&root.join("qwen3-exact/model.gguf")).unwrap();
        let check = |file: &str, writer: &Writer, expected: &str| {
            let path = folder.path().join(file);
            std::fs::write(&path, writer.bytes().unwrap()).unwrap();
            let gguf = Gguf::open(&path).unwrap();
            assert_eq!(Recommendation::of(&gguf, path.to_str()).unwrap().told(), expected, "{file}");
        };
        let plain = || Writer::copy_of(&tiny);
        check("a.gguf", &plain(), "the most likely token; nothing is recommended");
        check(
            "Qwen3-4B-Q4_K_M.gguf",
            &plain(),
            "temperature 0.6, top_p 0.95, top_k 20; with --thinking off temperature 0.7, top_p 0.8, top_k 20; from \
             https://huggingface.co/Qwen/Qwen3-4B",
        );
        // The file's own parameters replace the catalog's as a whole.
        let own = plain().meta("general.sampling.temp", 0.3f32);
        check("Qwen3-4B-Q8_0.gguf", &own, "temperature 0.3; the file recommends it");
        let none = Recommendation::of(&tiny, None).unwrap();
        assert_eq!(none.told(), "the most likely token; nothing is recommended");
    }
}
