//! From what the user typed after `-m` to a model.

use std::path::{Path, PathBuf};

use alara_engine::backend::KvType;
use alara_engine::chat::{ChatTemplate, Format};
use alara_engine::gguf::Gguf;
use alara_engine::{Engine, Options};
use alara_harness::{ChatModel, Scripted};
use anyhow::{Context, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};

use crate::catalog::name::HubName;
use crate::catalog::{self, local, ollama};
use crate::{compute, ui};

/// Which model, and how it runs.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// The model: a file, or a name of `alara models list` [default: the NPC's, the team's, the one that ships]
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Most tokens of a conversation [default: what the model was trained for, at most 16384]
    #[arg(long, value_name = "N")]
    ctx: Option<usize>,
    /// How keys and values are kept: f32, f16 or q8_0
    #[arg(long, default_value = "f16", value_name = "TYPE")]
    kv: KvType,
    /// Threads that compute [default: as many as the machine runs at once]
    #[arg(long, value_name = "N", value_parser = compute::threads)]
    threads: Option<usize>,
    /// How the model writes tool calls [default: as its chat template shows, else described in the prompt]
    #[arg(long, value_name = "NAME", value_parser = tool_format())]
    tool_format: Option<&'static Format>,
    /// A chat template to use instead of the model file's, a Jinja file
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Whether a model that can reason does so: on or off [default: what its chat template says]
    #[arg(long, value_name = "on|off", value_parser = on_off)]
    thinking: Option<bool>,
}

impl Args {
    /// Loads the model that was asked for, else `default`, else the one that ships, with room for `parallel`
    /// conversations. `script:FILE.json` is a model that says what the file tells it, for tests: a JSON array of `{"text":
    /// …, "calls": [{"name": …, "arguments": {…}}]}`, one for each turn.
    pub fn load(&self, default: Option<&str>, parallel: usize) -> anyhow::Result<Box<dyn ChatModel>> {
        let name = self.model.as_deref().or(default);
        if let Some(path) = name.and_then(|name| name.strip_prefix("script:")) {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("can't read the script {path}"))?;
            return Ok(Box::new(Scripted::from_json(&text).with_context(|| format!("{path} is no script"))?));
        }
        let options = Options {
            context: self.ctx,
            parallel,
            kv: self.kv,
            tool_format: self.tool_format,
            chat_template: self.chat_template.as_deref().map(chat_template).transpose()?,
            thinking: self.thinking,
            threads: compute::threads_or_default(self.threads),
            isa: compute::isa()?,
            memory: crate::memory::available(),
            ..Options::default()
        };
        let engine = Engine::load(&open(name)?, &options)?;
        if let Some(note) = engine.template_note() {
            ui::note(note);
        }
        Ok(Box::new(engine))
    }

    /// How the model runs, for the header of a run.
    pub fn record(&self) -> Value {
        let kv = format!("{:?}", self.kv).to_lowercase();
        json!({
            "ctx": self.ctx,
            "kv": kv,
            "tool_format": self.tool_format.map(|format| format.name),
            "chat_template": self.chat_template,
            "thinking": self.thinking,
        })
    }
}

/// Reads a chat template; that it compiles is seen here, where its file can be named.
fn chat_template(path: &Path) -> anyhow::Result<String> {
    let name = path.display();
    let source = std::fs::read_to_string(path).with_context(|| format!("can't read {name}"))?;
    ChatTemplate::new(&source, "", "").with_context(|| name.to_string())?;
    Ok(source)
}

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is on or off".into()),
    }
}

/// The tool-call formats by their names, which the help lists.
pub fn tool_format() -> impl TypedValueParser<Value = &'static Format> {
    PossibleValuesParser::new(Format::all().iter().map(|format| format.name))
        .try_map(|name| Format::from_name(&name).ok_or("there is no such format"))
}

/// Opens the model that `name` means, or the one that ships if there is no name.
pub fn open(name: Option<&str>) -> anyhow::Result<Gguf> {
    match name {
        Some(name) => Ok(Gguf::open(&path(name)?)?),
        None => shipped(),
    }
}

/// The file that `name` means: a path, a name of the catalog or of Ollama's for a model that is on this machine, or
/// `OWNER/NAME:FILE` of the hub's cache. A file of the work directory goes before a name.
pub fn path(name: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(path.to_owned());
    }
    if let Some(found) = local::resolve(name)? {
        return Ok(found);
    }
    if path.is_dir() {
        return in_directory(path, name);
    }
    if let Some(entry) = catalog::find(name)? {
        let size = entry.size.map_or_else(String::new, |size| format!(" ({})", ui::bytes(size)));
        bail!("{}{size} is not on this machine\nhint: alara models pull {}", entry.title, entry.name);
    }
    match name.parse::<HubName>() {
        Ok(hub) if !path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf")) => {
            bail!("{} is not on this machine\nhint: alara models pull {name}", hub.repository)
        }
        _ => bail!(
            "there is no model file {name}\nhint: `alara models list` tells the names that are known; without -m the \
             model that ships is used"
        ),
    }
}

/// What to name instead of a directory.
fn in_directory(path: &Path, name: &str) -> anyhow::Result<PathBuf> {
    if ollama::is_folder(path) {
        match ollama::models(path).first() {
            Some(held) => bail!(
                "{name} is Ollama's directory of models\nhint: -m {}; `alara models list` tells all, of another directory \
                 with OLLAMA_MODELS={name}",
                held.name
            ),
            None => bail!("{name} is Ollama's directory of models, but there is none in it"),
        }
    }
    let inside = std::fs::read_dir(path).with_context(|| format!("can't read {name}"))?;
    let paths = inside.filter_map(|entry| Some(entry.ok()?.path().display().to_string()));
    match paths.filter(|path| path.ends_with(".gguf")).min() {
        Some(first) => bail!("{name} is a directory, not a model\nhint: -m {first}"),
        None => bail!("{name} is a directory without a .gguf file"),
    }
}

/// The model that ships.
fn shipped() -> anyhow::Result<Gguf> {
    Ok(Gguf::from_static(SHIPPED_NAME, shipped_bytes())?)
}

/// What messages call the model that ships.
pub const SHIPPED_NAME: &str = "alara-tiny.gguf";

/// The file of the model that ships, at an address that lets its weights be used in place.
pub fn shipped_bytes() -> &'static [u8] {
    #[repr(C, align(64))]
    struct Aligned<T: ?Sized>(T);
    static MODEL: &Aligned<[u8]> = &Aligned(*include_bytes!("../../models/alara-tiny.gguf"));
    &MODEL.0
}
