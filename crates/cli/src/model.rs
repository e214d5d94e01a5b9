//! Loads the model named by `-m`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alara_bench::record::Named;
use alara_engine::file;
use alara_engine::inspect::ChatTemplate;
use alara_engine::{Engine, Format, Gguf, KvType, Options, SamplingOverrides};
use alara_harness::model::endpoint::{self, Address, EndpointError, Key};
use alara_harness::model::{
    Candidate, Endpoint, Loaded, ModelSource, ModelSpec, Models, Tuned as WithTuning, Tuning,
};
use alara_harness::{ChatModel, ModelError, Scripted};
use alara_models::{catalog, memory, shipped};
use anyhow::{Context, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};

use crate::model_file::{self, Place};
use crate::tuned::Tuned;
use crate::{cache, compute, config, consent, device, ui};

/// Options for the model and how it runs.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// The model: a file, a name from `alara models list`, or an OpenAI-compatible endpoint as
    /// http://127.0.0.1:PORT/v1#NAME or https://HOST/v1#NAME.
    /// Set ALARA_API_KEY to the endpoint's key (OPENAI_API_KEY also works for api.openai.com)
    /// [default: the NPC's, the team's, the one in `alara config`, the one that ships]
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Maximum length of a conversation in tokens, up to the model's training context [default: the
    /// training context, if it fits in half of the free memory; for an endpoint: its limit]
    #[arg(long, value_name = "N", value_parser = compute::context)]
    pub ctx: Option<usize>,
    #[command(flatten)]
    device: device::Args,
    /// Number format of the KV cache: f32, f16 or q8_0
    #[arg(long, default_value = "f16", value_name = "TYPE")]
    kv: KvType,
    /// Maximum memory for the KV cache in GB [default: enough for all conversations].
    /// With less, some conversations wait for others, and the longest possible one is shorter
    #[arg(long, value_name = "GB", value_parser = cache::gigabytes)]
    kv_size: Option<u64>,
    /// Number of compute threads [default: one per core, two if there are fewer than four cores]
    #[arg(long, value_name = "N", value_parser = compute::threads)]
    threads: Option<usize>,
    /// Format of tool calls; `generic` (JSON in tags), `code` (blocks of bash or Python that are
    /// run) and `json` are described in the prompt, for an endpoint too [default: as in the chat
    /// template or at the endpoint, else described in the prompt]
    #[arg(long, value_name = "NAME", value_parser = tool_format())]
    tool_format: Option<&'static Format>,
    /// A Jinja file to use instead of the model's own chat template
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Whether a reasoning model reasons: on or off [default: as in its chat template]
    #[arg(long, value_name = "on|off", value_parser = on_off)]
    pub thinking: Option<bool>,
    /// Speculative decoding by prompt lookup, and joint computation of forced tokens: on, or off
    /// for one token per step.
    /// Never changes an answer
    #[arg(long, default_value = "on", value_name = "on|off", value_parser = on_off, action = clap::ArgAction::Set)]
    drafts: bool,
    /// Where to cache computed static prefixes.
    #[command(flatten)]
    pub cache: cache::SizedArgs,

    /// See [`Options::steady`].
    #[arg(skip = true)]
    pub steady: bool,
    /// Minimum number of full-length conversations that the cache has room for; it has room for
    /// more if memory permits.
    /// `None` for as many as run at once.
    #[arg(skip)]
    cached: Option<usize>,
    /// Whether other models need memory too.
    #[arg(skip)]
    several: bool,
    /// How agents use the model, overriding any measurement; `None` to use the measurement.
    #[arg(skip)]
    tuning: Option<Tuning>,
}

/// Numbers of conversations to cache, as memory permits, largest first.
const ROOMS: [usize; 4] = [16, 8, 4, 2];

/// Opens the model that `name` means, else the default in the settings, else the one that ships.
///
/// # Errors
/// Those of [`model_file::open`].
pub fn open(name: Option<&str>) -> anyhow::Result<Gguf> {
    model_file::open(name.or_else(config::model))
}

/// Returns the file that `name` means, else the default in the settings, else the model that ships.
///
/// # Errors
/// Those of [`model_file::place`].
pub fn place(name: Option<&str>) -> anyhow::Result<Place> {
    model_file::place(name.or_else(config::model))
}

/// Returns the model to use for `spec`: the default in the settings if it names none.
pub fn chosen(spec: &ModelSpec) -> ModelSpec {
    match config::model().filter(|_| *spec == ModelSpec::default()) {
        Some(name) => ModelSpec::named(name),
        None => spec.clone(),
    }
}

impl Args {
    /// Returns the requested model, else the default in the settings; `None` for the one that
    /// ships.
    pub fn name(&self) -> Option<&str> {
        self.model.as_deref().or_else(config::model)
    }

    /// Loads the requested model, else `default`, else the one that ships, for `parallel`
    /// conversations at a time.
    pub fn load(&self, default: Option<&str>, parallel: usize) -> anyhow::Result<Arc<dyn ChatModel>> {
        let memory = memory::available();
        let (name, key) = match &self.model {
            Some(name) => (Some(name.clone()), own_key(name)?),
            None => (default.or_else(config::model).map(str::to_owned), None),
        };
        let spec = ModelSpec { model: name, ..ModelSpec::default() };
        Ok((self.find(&spec, key, parallel, memory, false)?.load)()?)
    }

    /// Returns these options for the model `name`, or for the one that ships.
    pub fn named(&self, name: Option<&str>) -> Args {
        Args { model: name.map(str::to_owned), ..self.clone() }
    }

    /// Returns these options with `tuning` instead of a measured one.
    pub fn tuned(&self, tuning: &Tuning) -> Args {
        Args { tuning: Some(tuning.clone()), ..self.clone() }
    }

    /// Returns these options with room in the cache for at least `cached` full-length
    /// conversations, whatever runs at once; for more only if the model is not one of `several`.
    pub fn caching(&self, cached: usize, several: bool) -> Args {
        Args { cached: Some(cached), several, ..self.clone() }
    }

    /// Returns the requested model, not loaded yet, for `parallel` conversations at a time.
    pub fn candidate(&self, parallel: usize) -> anyhow::Result<Candidate> {
        let name = self.name();
        let spec = ModelSpec { model: name.map(str::to_owned), ..ModelSpec::default() };
        let key = name.map(own_key).transpose()?.flatten();
        self.find(&spec, key, parallel, memory::available(), false)
    }

    /// Returns the name of the model `name`, and the hash of its file.
    pub fn identity(&self, name: &str) -> anyhow::Result<Named> {
        if Address::is_meant_by(name) {
            let endpoint = self.endpoint(name.parse()?, own_key(name)?)?;
            return Ok(Named { name: endpoint.name().to_owned(), hash: String::new() });
        }
        let (called, file) = match name.strip_prefix("script:") {
            Some(script) => ("script".to_owned(), script.into()),
            None => match place(Some(name))? {
                Place::Shipped => return Ok(Named::of(shipped::NAME, shipped::bytes())),
                Place::File(file) => (model_file::open_file(&file)?.name().to_owned(), file),
            },
        };
        Named::of_file(called, &file).with_context(|| format!("can't read the model {}", file.display()))
    }

    /// Returns the source of models for agents, each for `parallel` conversations at a time, all
    /// within the memory that is free now.
    /// `yes` confirms in advance that keys named in a team's files may be sent.
    pub fn source(&self, parallel: usize, yes: bool) -> Source {
        self.source_of(self.model.clone(), Vec::new(), parallel, yes)
    }

    /// Like [`source`](Self::source), but the user `named` several models, none of which overrides
    /// the requested one.
    pub fn several(&self, named: Vec<String>, parallel: usize, yes: bool) -> Source {
        self.source_of(None, named, parallel, yes)
    }

    fn source_of(&self, own: Option<String>, named: Vec<String>, parallel: usize, yes: bool) -> Source {
        let (args, memory) = (self.clone(), memory::available());
        let own = Arc::new(Mutex::new(own));
        let users = own.clone();
        let find = move |spec: &ModelSpec| {
            let own = lock(&users).clone();
            let name = own.iter().chain(&named).find(|name| *spec == ModelSpec::named(*name));
            let key = name.map(|name| own_key(name)).transpose().map_err(ModelError::new)?.flatten();
            args.find(spec, key, parallel, memory, yes).map_err(model_error)
        };
        Source { own, models: Models::new(memory, find) }
    }

    /// Finds the model that `spec` means.
    /// `script:FILE.json` is a scripted model for tests: the file has a JSON array of
    /// `{"text": …, "calls": [{"name": …, "arguments": {…}}]}`, one for each turn.
    /// `key` is for an endpoint used instead of the model's name.
    fn find(
        &self,
        spec: &ModelSpec,
        key: Option<Key>,
        parallel: usize,
        memory: Option<u64>,
        yes: bool,
    ) -> anyhow::Result<Candidate> {
        let name = spec.model.as_deref();
        if let Some(url) = &spec.api_url {
            let mut address: Address = url.parse()?;
            address.model = spec.model.clone().or(address.model);
            let variable = spec.api_key_env.as_deref();
            let key = variable.map(key_in).transpose()?.flatten();
            if let (Some(_), Some(variable)) = (&key, variable) {
                consent::key(variable, &address, yes)?;
                ui::note(&format!("{} gets the key in {variable}", address.host()));
            }
            return Ok(elsewhere(self.endpoint(address, key)?));
        }
        if let Some(address) = name.filter(|name| Address::is_meant_by(name)) {
            return Ok(elsewhere(self.endpoint(address.parse()?, key)?));
        }
        if let Some(path) = name.and_then(|name| name.strip_prefix("script:")) {
            let text =
                file::read_given(path.as_ref()).with_context(|| format!("can't read the script {path}"))?;
            return Ok(elsewhere(
                Scripted::from_json(&text).with_context(|| format!("{path} is no script"))?,
            ));
        }
        let gguf = model_file::open(name);
        let gguf = match &spec.provider {
            Some(provider) => gguf.with_context(|| format!("{spec} of {provider} has no api_url"))?,
            None => gguf?,
        };
        let mut options = self.options(parallel, memory)?;
        if let Place::File(path) = model_file::place(name)? {
            options.sampling = recommended(&path, self.thinking);
        }
        if self.ctx.is_none() {
            options.context = Some(Engine::context_of(&gguf, &options)?);
        }
        if let Some(least) = self.cached {
            options.kv_sequences = Some(self.room(&gguf, &options, least)?);
        }
        let tuning = self.tuning.clone().or_else(|| Some(Tuned::of(&gguf)?.tuning())).unwrap_or_default();
        let bytes = Engine::memory_estimate(&gguf, &options)?.total();
        // The memory has been checked already.
        let options = Options { memory: None, ..options };
        let load = move || {
            let engine = Engine::load(&gguf, &options).map_err(ModelError::new)?;
            let context = engine.context_note();
            let notes = [engine.placement_note(), engine.template_note(), engine.tokenizer_note()];
            notes.into_iter().chain([context.as_deref()]).flatten().for_each(ui::note);
            Ok(Arc::new(WithTuning { model: engine, tuning }) as Arc<dyn ChatModel>)
        };
        Ok(Candidate { bytes, load: Box::new(load) })
    }

    /// Returns the context length with which the model in `gguf` is loaded, for `parallel`
    /// conversations at a time within `memory` bytes.
    ///
    /// # Errors
    /// The model's sizes are missing or invalid, or the device can't be used.
    pub fn context(&self, gguf: &Gguf, parallel: usize, memory: Option<u64>) -> anyhow::Result<usize> {
        Ok(Engine::context_of(gguf, &self.options(parallel, memory)?)?)
    }

    /// Returns how many full-length conversations the cache has room for: the largest of [`ROOMS`]
    /// that takes at most half of the remaining memory, model included, but never fewer than
    /// `least`.
    /// A GPU's memory is for the model first, and --kv-size overrides this.
    fn room(&self, gguf: &Gguf, options: &Options, least: usize) -> anyhow::Result<usize> {
        let alone = self.device.is_cpu() && !self.several;
        let Some(memory) = options.memory.filter(|_| alone) else { return Ok(least) };
        for sequences in ROOMS.into_iter().filter(|&sequences| sequences > least) {
            let options = Options { kv_sequences: Some(sequences), ..options.clone() };
            if self.kv_size.is_some() || Engine::memory_estimate(gguf, &options)?.total() <= memory / 2 {
                return Ok(sequences);
            }
        }
        Ok(least)
    }

    fn endpoint(&self, address: Address, key: Option<Key>) -> anyhow::Result<Endpoint> {
        let given = endpoint_options(&address, self.tool_format, self.chat_template.as_deref())?;
        let options = endpoint::Options { key, context: self.ctx, thinking: self.thinking, ..given };
        Ok(Endpoint::new(address, options)?)
    }

    fn options(&self, parallel: usize, memory: Option<u64>) -> anyhow::Result<Options> {
        Ok(Options {
            context: self.ctx,
            // Each of several models leaves room for the others.
            context_memory: memory.map(|memory| memory / if self.several { 4 } else { 2 }),
            parallel,
            kv_sequences: self.cached,
            kv: self.kv,
            kv_bytes: self.kv_size,
            tool_format: self.tool_format,
            chat_template: self.chat_template.as_deref().map(chat_template).transpose()?,
            thinking: self.thinking,
            drafts: self.drafts,
            steady: self.steady,
            offload: self.device.offload(),
            threads: compute::threads_or_default(self.threads),
            isa: compute::isa()?,
            disk: self.cache.options(),
            memory,
            ..Options::default()
        })
    }

    /// Returns the number of worker threads.
    pub fn threads(&self) -> usize {
        compute::threads_or_default(self.threads)
    }

    /// Returns how the model runs, for the header of a run.
    ///
    /// # Errors
    /// The chat template can't be read.
    pub fn record(&self) -> anyhow::Result<Value> {
        let template = self.chat_template.as_deref();
        let template = template.map(|path| Named::of_file(path.to_string_lossy(), path)).transpose()?;
        let kv = format!("{:?}", self.kv).to_lowercase();
        let mut record = json!({
            "ctx": self.ctx,
            "kv": kv,
            "threads": self.threads(),
            "tool_format": self.tool_format.map(|format| format.name),
            "chat_template": template,
            "thinking": self.thinking,
        });
        // Runs from before this option existed resume without one.
        if let Some(bytes) = self.kv_size {
            record["kv_bytes"] = bytes.into();
        }
        if let Some(device) = self.device.record() {
            record["device"] = device.into();
        }
        Ok(record)
    }
}

/// The models of a run: the one that the user named, whatever the team names, else those that the
/// team names.
/// Loads each one on first use.
pub struct Source {
    own: Arc<Mutex<Option<String>>>,
    models: Models,
}

impl Source {
    /// Uses the model `name` from now on, whatever the team names.
    ///
    /// # Errors
    /// It can't be loaded.
    /// Then nothing changes.
    pub fn choose(&self, name: &str) -> Result<(), ModelError> {
        let before = lock(&self.own).replace(name.to_owned());
        self.models.get(&ModelSpec::named(name)).map(drop).inspect_err(|_| *lock(&self.own) = before)
    }
}

impl Source {
    /// Whether `spec` resolves to the model that ships.
    pub fn is_shipped(&self, spec: &ModelSpec) -> bool {
        self.used(spec) == ModelSpec::default()
    }

    /// Whether `spec` resolves to an endpoint.
    pub fn is_endpoint(&self, spec: &ModelSpec) -> bool {
        let used = self.used(spec);
        used.api_url.is_some() || used.model.as_deref().is_some_and(Address::is_meant_by)
    }
}

impl ModelSource for Source {
    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        self.models.model(&self.used(spec))
    }

    fn embedding(&self, name: &str) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        self.models.model(&ModelSpec::named(name))
    }

    /// The model that ships is one model, whatever its name.
    fn used(&self, spec: &ModelSpec) -> ModelSpec {
        let used = lock(&self.own).as_ref().map_or_else(|| chosen(spec), ModelSpec::named);
        let is_shipped = |name: &str| matches!(place(Some(name)), Ok(Place::Shipped));
        match (&used.model, &used.api_url) {
            (Some(name), None) if model_file::is_shipped_name(name) && is_shipped(name) => {
                ModelSpec::default()
            }
            _ => used,
        }
    }

    fn loaded(&self) -> Vec<Loaded> {
        self.models.loaded()
    }

    fn unload(&self, spec: &ModelSpec) -> bool {
        self.models.unload(&self.used(spec))
    }
}

fn lock(own: &Mutex<Option<String>>) -> MutexGuard<'_, Option<String>> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Explains why memory is too small for a model, if that is the error.
pub fn out_of_memory(error: &anyhow::Error) -> Option<String> {
    let cause = error.downcast_ref::<alara_engine::Error>()?;
    let full =
        matches!(cause, alara_engine::Error::OutOfMemory { .. } | alara_engine::Error::Placement { .. });
    full.then(|| cause.to_string())
}

/// Whether a name means an endpoint's model, or a script.
pub fn is_elsewhere(name: &str) -> bool {
    Address::is_meant_by(name) || name.starts_with("script:")
}

/// Returns the file size, in bytes, of a model on this machine, or of the one that ships.
pub fn file_size(name: Option<&str>) -> Option<f64> {
    let bytes = match place(name).ok()? {
        Place::Shipped => shipped::bytes().len() as u64,
        Place::File(path) => path.metadata().ok()?.len(),
    };
    Some(bytes as f64)
}

/// Returns the options of an endpoint, from the user's tool format and chat template.
///
/// # Errors
/// The option applies only to model files.
pub fn endpoint_options(
    address: &Address,
    format: Option<&'static Format>,
    chat_template: Option<&Path>,
) -> anyhow::Result<endpoint::Options> {
    if let Some(format) = format.filter(|format| !format.described()) {
        let described = Format::all().iter().filter(|format| format.described()).map(|format| format.name);
        bail!(
            "{address} writes calls as it is used to, or as the prompt describes them ({}); --tool-format {} is for model files",
            described.collect::<Vec<_>>().join(", "),
            format.name
        );
    }
    if chat_template.is_some() {
        bail!("--chat-template is for model files; {address} has its own");
    }
    Ok(endpoint::Options { format, ..endpoint::Options::default() })
}

/// Returns the catalog's recommended sampling parameters for the model in a file.
fn recommended(path: &Path, thinking: Option<bool>) -> SamplingOverrides {
    let found = catalog::of_file(path).and_then(|entry| entry.sampling.as_ref());
    found.map_or_else(SamplingOverrides::default, |sampling| sampling.overrides(thinking))
}

/// Returns a model that uses no memory here.
fn elsewhere(model: impl ChatModel + 'static) -> Candidate {
    Candidate { bytes: 0, load: Box::new(|| Ok(Arc::new(model))) }
}

/// Returns the user's key for an endpoint that the user names.
/// An endpoint that a team names gets only the key named by the team: otherwise a team could have
/// the user's keys sent to any host.
fn own_key(name: &str) -> anyhow::Result<Option<Key>> {
    if !Address::is_meant_by(name) {
        return Ok(None);
    }
    match key_in("ALARA_API_KEY")? {
        None if name.parse::<Address>()?.host() == "api.openai.com" => key_in("OPENAI_API_KEY"),
        own => Ok(own),
    }
}

/// Returns the key in an environment variable, if there is one.
fn key_in(variable: &str) -> anyhow::Result<Option<Key>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    Key::new(&text).with_context(|| format!("the environment variable {variable}"))
}

/// Converts an error to a model error, preserving its cause.
fn model_error(error: anyhow::Error) -> ModelError {
    error.downcast::<alara_engine::Error>().map_or_else(
        |error| error.downcast::<EndpointError>().map_or_else(ModelError::new, ModelError::new),
        ModelError::new,
    )
}

/// Reads a chat template, and compiles it here, where an error can name its file.
pub fn chat_template(path: &Path) -> anyhow::Result<String> {
    let name = path.display();
    let source = file::read_given(path).with_context(|| format!("can't read {name}"))?;
    ChatTemplate::new(&source, "", "").with_context(|| name.to_string())?;
    Ok(source)
}

/// Parses `on` or `off`.
pub fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is on or off".into()),
    }
}

/// Parses the name of a tool-call format, which the help lists; `house` is the old name of the
/// generic one.
pub fn tool_format() -> impl TypedValueParser<Value = &'static Format> {
    let old_name = |format: &Format| (format == Format::generic()).then_some("house");
    let value = |format: &&'static Format| PossibleValue::new(format.name).aliases(old_name(format));
    PossibleValuesParser::new(Format::all().iter().map(value))
        .try_map(|name| Format::from_name(&name).ok_or("there is no such format"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        model: Args,
    }

    fn spec(model: Option<&str>, api_url: Option<&str>) -> ModelSpec {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        ModelSpec {
            model: owned(model),
            api_url: owned(api_url),
            provider: Some("x".into()),
            api_key_env: None,
        }
    }

    #[test]
    fn what_a_team_names() {
        let check = |line: &[&str], spec: ModelSpec, expected: &str| {
            let line = Line::parse_from([&["alara"], line].concat());
            let source = line.model.source(1, false);
            let found = source.model(&spec).map(|model| model.name().to_owned());
            let found = found.unwrap_or_else(|error| format!("{:#}", anyhow::Error::from(error)));
            assert!(found.starts_with(expected), "{found}");
        };
        let url = "http://127.0.0.1:1";
        check(&[], spec(Some("m"), Some(url)), "http://127.0.0.1:1/v1#m");
        check(&[], spec(Some("m"), Some("http://127.0.0.1:1/api#n")), "http://127.0.0.1:1/api#m");
        check(&[], spec(None, Some("http://127.0.0.1:1/api#n")), "http://127.0.0.1:1/api#n");
        check(&[], spec(Some("http://127.0.0.1:1/v1#m"), None), "http://127.0.0.1:1/v1#m");
        check(&[], spec(None, None), shipped::NAME);
        check(&[], spec(Some("alara-tiny"), None), shipped::NAME);
        check(&["-m", "alara-tiny.gguf"], spec(Some("m"), Some(url)), shipped::NAME);
        check(
            &[],
            spec(Some("no-such"), None),
            "no-such of x has no api_url: there is no model file no-such",
        );
        check(
            &[],
            spec(Some("m"), Some("ftp://example.org")),
            "ftp://example.org is no address of an endpoint",
        );
        // The command line overrides the team.
        check(&["-m", "http://127.0.0.1:2#z"], spec(Some("m"), Some(url)), "http://127.0.0.1:2/v1#z");
        let refused = "http://127.0.0.1:2/v1#z writes calls as it is used to, or as the prompt describes them (generic, code, json)";
        check(&["-m", "http://127.0.0.1:2#z", "--tool-format", "hermes"], spec(None, None), refused);
        let source = Line::parse_from(["alara", "-m", "alara-tiny"]).model.source(1, false);
        assert!(source.is_shipped(&spec(Some("m"), None)));
        let source = Line::parse_from(["alara", "-m", "http://127.0.0.1:2#z"]).model.source(1, false);
        source.choose("http://127.0.0.1:3#y").unwrap();
        assert_eq!(source.model(&spec(None, None)).unwrap().name(), "http://127.0.0.1:3/v1#y");
        assert!(source.choose("no-such").is_err());
        assert_eq!(source.model(&spec(None, None)).unwrap().name(), "http://127.0.0.1:3/v1#y");
        let refused = "--chat-template is for model files";
        check(&["-m", "http://127.0.0.1:2#z", "--chat-template", "x"], spec(None, None), refused);
    }
}
