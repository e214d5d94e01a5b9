//! From what the user typed after `-m` to a model.

use std::path::Path;

use alara_engine::gguf::Gguf;
use alara_engine::{Engine, Options};
use alara_harness::{ChatModel, Scripted};
use anyhow::{Context, bail};

/// Loads the model that `name` means: a file, or the model that ships if there is no name. `script:FILE.json` is a
/// model that says what the file tells it, for tests: a JSON array of `{"text": …, "calls": [{"name": …,
/// "arguments": {…}}]}`, one for each turn.
pub fn load(name: Option<&str>, options: &Options) -> anyhow::Result<Box<dyn ChatModel>> {
    match name.and_then(|name| name.strip_prefix("script:")) {
        Some(path) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("can't read the script {path}"))?;
            Ok(Box::new(Scripted::from_json(&text).with_context(|| format!("{path} is no script"))?))
        }
        None => Ok(Box::new(Engine::load(&open(name)?, options)?)),
    }
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

/// The file of the model that ships.
pub fn shipped_bytes() -> &'static [u8] {
    /// At an address that lets the weights be used in place.
    #[repr(C, align(64))]
    struct Aligned<T: ?Sized>(T);
    static MODEL: &Aligned<[u8]> = &Aligned(*include_bytes!("../../models/alara-tiny.gguf"));
    &MODEL.0
}

fn shipped() -> anyhow::Result<Gguf> {
    Ok(Gguf::from_static("alara-tiny.gguf", shipped_bytes())?)
}
