//! Resolves a model's name to a model.

use std::path::PathBuf;
use std::sync::Arc;

use alara_engine::{Engine, Gguf, Options};
use alara_harness::model::endpoint::{self, Address, Key};
use alara_harness::model::{Candidate, Endpoint, ModelSpec, Models};
use alara_harness::permission::{KEYS, Permissions, about_key};
use alara_harness::{ChatModel, ModelError, ModelSource, Scripted, Verdict, sandbox, state};
use alara_models::file::{self, Place};
use alara_models::shipped;
use pyo3::prelude::*;
use serde_json::Value;

/// Sets the path of the `alara` binary of this version, which starts agents' programs in the
/// sandbox.
/// Only the first call has an effect.
#[pyfunction]
pub fn use_binary(path: PathBuf) {
    sandbox::launch_with(&path);
}

/// Returns what the sandbox can't enforce on this machine, if anything.
#[pyfunction]
pub fn sandbox_warning(py: Python) -> Option<String> {
    py.detach(|| sandbox::enforced().warning())
}

/// Opens the model that `name` means, or the one that ships.
///
/// # Errors
/// There is no such model, or it can't be read.
pub fn open(name: Option<&str>) -> Result<Gguf, ModelError> {
    let Some(name) = name else { return shipped::open().map_err(ModelError::new) };
    if Address::is_meant_by(name) {
        return Err(ModelError::new(format!(
            "{name} is an endpoint, not a model file\nhint: alara.run takes it as its model"
        )));
    }
    match file::place(name, default_file().as_deref(), "").map_err(ModelError::new)? {
        Place::Shipped => shipped::open().map_err(ModelError::new),
        Place::File(path) => alara_engine::open(&path).map_err(ModelError::new),
    }
}

/// Returns the file of the user's default model, if it is a file: a name of the catalog may mean
/// it.
/// Settings that can't be read have none; the binary reports them.
fn default_file() -> Option<PathBuf> {
    let set = std::env::var("ALARA_MODEL").ok().filter(|name| !name.trim().is_empty());
    let stored = || {
        let text = alara_engine::file::read_given(&state::config_home()?.join("alara/config.yaml")).ok()?;
        let settings: Value = serde_saphyr::from_str(&text).ok()?;
        settings["model"].as_str().map(str::to_owned)
    };
    set.or_else(stored).map(PathBuf::from).filter(|path| path.is_file())
}

/// The source of models for the agents of a run: the model that the caller named, whatever files
/// name, else those that the team names.
pub struct Source {
    own: Option<ModelSpec>,
    models: Models,
}

impl Source {
    /// `yes` allows sending keys that a team's files name.
    pub fn new(own: Option<String>, yes: bool) -> Self {
        let own = own.map(ModelSpec::named);
        let named = own.clone();
        Source { own, models: Models::new(None, move |spec| find(spec, named.as_ref() == Some(spec), yes)) }
    }
}

impl ModelSource for Source {
    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        self.models.model(&self.used(spec))
    }

    fn embedding(&self, name: &str) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        self.models.model(&ModelSpec::named(name))
    }

    fn used(&self, spec: &ModelSpec) -> ModelSpec {
        self.own.as_ref().unwrap_or(spec).clone()
    }
}

/// Finds the model that `spec` means, not loaded yet.
/// `own` means that the caller named it, so its key is the caller's.
fn find(spec: &ModelSpec, own: bool, yes: bool) -> Result<Candidate, ModelError> {
    let name = spec.model.as_deref();
    if let Some(url) = spec.api_url.as_deref().or_else(|| name.filter(|name| Address::is_meant_by(name))) {
        let mut address: Address = url.parse().map_err(ModelError::new)?;
        if spec.api_url.is_some() {
            address.model = spec.model.clone().or(address.model);
        }
        let key = match &spec.api_key_env {
            _ if own => own_key(&address)?,
            Some(variable) if std::env::var_os(variable).is_none() => None,
            Some(variable) if agreed(KEYS, &about_key(variable, address.authority()), yes)? => {
                key_in(variable)?
            }
            Some(variable) => {
                return Err(ModelError::new(format!(
                    "the team's files send the key in {variable} to {}, and nobody said yes to that\nhint: yes=True \
                     lets them; or name the endpoint yourself, as the model",
                    address.authority()
                )));
            }
            _ => None,
        };
        let options = endpoint::Options { key, ..endpoint::Options::default() };
        return Ok(elsewhere(Endpoint::new(address, options).map_err(ModelError::new)?));
    }
    if let Some(script) = name.and_then(|name| name.strip_prefix("script:")) {
        let text = std::fs::read_to_string(script);
        let text =
            text.map_err(|error| ModelError::new(format!("can't read the script {script}: {error}")))?;
        return Ok(elsewhere(Scripted::from_json(&text).map_err(ModelError::new)?));
    }
    let gguf = open(name)?;
    let bytes = Engine::memory_estimate(&gguf, &Options::default()).map_err(ModelError::new)?.total();
    let load = move || {
        let engine = Engine::load(&gguf, &Options::default()).map_err(ModelError::new)?;
        Ok(Arc::new(engine) as Arc<dyn ChatModel>)
    };
    Ok(Candidate { bytes, load: Box::new(load) })
}

/// Whether the user has agreed before, or the caller agrees now.
/// A stored no takes precedence.
pub fn agreed(holder: &str, about: &str, yes: bool) -> Result<bool, ModelError> {
    let answers =
        state::permissions().map_or_else(|| Ok(Permissions::default()), |file| Permissions::open(&file));
    let answer = answers.map_err(ModelError::new)?.answer(holder, about);
    Ok(answer.map_or(yes, |(verdict, _)| verdict == Verdict::Allow))
}

/// Returns the caller's key for an endpoint that the caller names.
fn own_key(address: &Address) -> Result<Option<Key>, ModelError> {
    match key_in("ALARA_API_KEY")? {
        None if address.host() == "api.openai.com" => key_in("OPENAI_API_KEY"),
        own => Ok(own),
    }
}

fn key_in(variable: &str) -> Result<Option<Key>, ModelError> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    Key::new(&text).map_err(|error| ModelError::new(format!("the environment variable {variable}: {error}")))
}

/// Returns a model that uses no memory here.
fn elsewhere(model: impl ChatModel + 'static) -> Candidate {
    Candidate { bytes: 0, load: Box::new(|| Ok(Arc::new(model))) }
}
