//! From what the user typed after `-m` to a model.

use std::path::Path;

use alara_engine::backend::KvType;
use alara_engine::chat::Format;
use alara_engine::gguf::Gguf;
use alara_engine::{Engine, Options};
use alara_harness::{ChatModel, Scripted};
use anyhow::{Context, bail};

/// Which model, and how it runs.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// The model file [default: the NPC's, the team's, the one that ships]
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<String>,
    /// Most tokens of a conversation [default: what the model was trained for, at most 16384]
    #[arg(long, value_name = "N")]
    ctx: Option<usize>,
    /// How keys and values are kept: f32, f16 or q8_0
    #[arg(long, default_value = "f16", value_name = "TYPE")]
    kv: KvType,
    /// How the model writes tool calls, where its chat template does not show it: hermes
    #[arg(long, value_name = "NAME", value_parser = tool_format)]
    tool_format: Option<Format>,
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
        let options = Options { context: self.ctx, parallel, kv: self.kv, tool_format: self.tool_format };
        Ok(Box::new(Engine::load(&open(name)?, &options)?))
    }
}

fn tool_format(name: &str) -> Result<Format, String> {
    let known = || Format::ALL.map(Format::name).join(", ");
    Format::from_name(name).ok_or_else(|| format!("`{name}` is none of {}", known()))
}

/// Opens the model file `name`, or the model that ships if there is no name.
pub fn open(name: Option<&str>) -> anyhow::Result<Gguf> {
    let Some(name) = name else { return shipped() };
    let path = Path::new(name);
    if path.is_dir() {
        let inside = std::fs::read_dir(path).with_context(|| format!("can't read {name}"))?;
        let paths = inside.filter_map(|entry| Some(entry.ok()?.path().display().to_string()));
        match paths.filter(|path| path.ends_with(".gguf")).min() {
            Some(first) => bail!("{name} is a directory, not a model\nhint: -m {first}"),
            None => bail!("{name} is a directory without a .gguf file"),
        }
    }
    if !path.exists() {
        bail!("there is no model file {name}\nhint: without -m the model that ships is used");
    }
    Ok(Gguf::open(path)?)
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
