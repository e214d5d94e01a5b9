//! Presents a checkpoint saved by Hugging Face's tools as a GGUF file.
//!
//! It is a folder: `model.safetensors` has the tensors, `config.json` the sizes, `tokenizer.json`
//! the tokenizer, `1_Pooling/config.json` how sentence-transformers pool.
//! Tensors stay in place in the map, under their canonical names.
//! The key `checkpoint` of an architecture file maps names of tensors and keys.

mod safetensors;
#[cfg(test)]
mod tests;
mod wordpiece;

use std::path::Path;

use alara_text::gguf::{Bytes, Gguf, Value};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::Result;
use crate::architecture::{CheckpointFacts, Harmless};
use crate::error::CheckpointError;

/// The file that contains a checkpoint's tensors.
pub const WEIGHTS: &str = "model.safetensors";

/// Supported modules of sentence-transformers; vectors always have length 1 here.
const MODULES: [&str; 3] = ["Transformer", "Pooling", "Normalize"];

/// Opens a model: a GGUF file, any part of a split one, or a checkpoint by its folder or its tensor
/// file.
///
/// # Errors
/// As [`Gguf::open`], or if the checkpoint lacks a file or contains something unsupported.
pub fn open(path: &Path) -> Result<Gguf> {
    match path.file_name() {
        _ if path.is_dir() && path.join(WEIGHTS).is_file() => Folder::new(path).open(),
        Some(name) if name == WEIGHTS => Folder::new(path.parent().unwrap_or(Path::new(""))).open(),
        _ => Ok(Gguf::open(path)?),
    }
}

/// The files of a checkpoint.
struct Folder<'a> {
    path: &'a Path,
    /// The files read, each with its path: they are mapped, so that changes are detected.
    files: Vec<(String, Bytes)>,
    metadata: Vec<(String, Value)>,
}

impl<'a> Folder<'a> {
    fn new(path: &'a Path) -> Self {
        Folder { path, files: Vec::new(), metadata: Vec::new() }
    }

    fn open(mut self) -> Result<Gguf> {
        self.map(WEIGHTS)?;
        let config: Json = self.required("config.json")?;
        let model_type = config.get("model_type").and_then(Json::as_str).unwrap_or_default();
        let facts = CheckpointFacts::of(model_type)?;
        let Some((architecture, facts)) = facts else {
            let known = CheckpointFacts::known()?.join(", ");
            let what = format!("`model_type` \"{}\" (known: {known})", model_type.escape_debug());
            return Err(self.not_understood("config.json", what));
        };
        self.meta("general.architecture", architecture.clone());
        self.sizes(&architecture, &facts, &config)?;
        self.pooling(&architecture)?;
        let tokenizer = self.required("tokenizer.json")?;
        match wordpiece::metadata(&tokenizer) {
            Ok(metadata) => self.metadata.extend(metadata),
            Err(what) => return Err(self.not_understood("tokenizer.json", what)),
        }
        let (weights, bytes) = &self.files[0];
        let mut tensors = safetensors::tensors(weights, bytes)?;
        tensors.retain(|tensor| !Harmless::has(&facts.harmless.tensors, &tensor.name));
        for tensor in &mut tensors {
            match facts.tensor(&tensor.name) {
                Some(name) => tensor.name = name,
                None => {
                    let what = format!("the tensor `{}`", tensor.name.escape_debug());
                    return Err(self.not_understood(WEIGHTS, what));
                }
            }
        }
        Ok(Gguf::assembled(self.metadata, tensors, self.files)?)
    }

    /// Reads the sizes in `config.json`, which must not contain unknown settings.
    fn sizes(&mut self, architecture: &str, facts: &CheckpointFacts, config: &Json) -> Result<()> {
        for (key, value) in config.as_object().into_iter().flatten() {
            let said = || format!("`{}` {value}", key.escape_debug());
            if let Some(needed) = facts.needs.get(key) {
                if value != needed && !value.is_null() {
                    return Err(self.not_understood("config.json", format!("{} (known: {needed})", said())));
                }
            } else if let Some(name) = facts.keys.get(key) {
                let number = match (value.as_u64(), value.as_f64()) {
                    (Some(number), _) => Value::U64(number),
                    (None, Some(number)) => Value::F64(number),
                    (None, None) => return Err(self.not_understood("config.json", said())),
                };
                self.meta(&format!("{architecture}.{name}"), number);
            } else if !Harmless::has(&facts.harmless.keys, key) {
                return Err(self.not_understood("config.json", said()));
            }
        }
        Ok(())
    }

    /// Reads the pooling of sentence-transformers; the default is the mean, as there.
    fn pooling(&mut self, architecture: &str) -> Result<()> {
        let modules: Json = self.optional("modules.json")?.unwrap_or_default();
        for module in modules.as_array().into_iter().flatten() {
            let kind = module.get("type").and_then(Json::as_str).unwrap_or_default();
            let name = kind.rsplit('.').next().unwrap_or_default();
            if !MODULES.contains(&name) {
                let what = format!("the module \"{}\" (known: {})", kind.escape_debug(), MODULES.join(", "));
                return Err(self.not_understood("modules.json", what));
            }
        }
        let file = "1_Pooling/config.json";
        let Some(config): Option<Json> = self.optional(file)? else { return Ok(()) };
        let modes: Vec<&str> = (config.as_object().into_iter().flatten())
            .filter(|(_, value)| **value == Json::Bool(true))
            .filter_map(|(key, _)| key.strip_prefix("pooling_mode_"))
            .collect();
        // Numbers as in `embedding.rs`.
        let number = match modes.as_slice() {
            ["mean_tokens"] => 1,
            ["cls_token"] => 2,
            ["lasttoken"] => 3,
            other => {
                let what =
                    format!("pooling by [{}] (known: mean_tokens, cls_token, lasttoken)", other.join(", "));
                return Err(self.not_understood(file, what));
            }
        };
        self.meta(&format!("{architecture}.pooling_type"), Value::U32(number));
        Ok(())
    }

    fn meta(&mut self, key: &str, value: impl Into<Value>) {
        self.metadata.push((key.to_owned(), value.into()));
    }

    fn name(&self, file: &str) -> String {
        self.path.join(file).display().to_string()
    }

    fn not_understood(&self, file: &str, what: String) -> crate::Error {
        CheckpointError::NotUnderstood { file: self.name(file), what }.into()
    }

    /// Maps a required file.
    fn map(&mut self, file: &str) -> Result<&Bytes> {
        let name = self.name(file);
        let bytes = Bytes::map(&self.path.join(file))
            .map_err(|source| CheckpointError::Open { file: name.clone(), source })?;
        self.files.push((name, bytes));
        Ok(&self.files[self.files.len() - 1].1)
    }

    fn required<T: DeserializeOwned>(&mut self, file: &str) -> Result<T> {
        let parsed = serde_json::from_slice(self.map(file)?);
        parsed.map_err(|source| CheckpointError::Json { file: self.name(file), source }.into())
    }

    fn optional<T: DeserializeOwned>(&mut self, file: &str) -> Result<Option<T>> {
        match self.path.join(file).exists() {
            true => self.required(file).map(Some),
            false => Ok(None),
        }
    }
}
