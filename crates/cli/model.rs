//! From what the user typed after `-m` to a model.

use std::path::Path;

use alara_engine::gguf::Gguf;
use anyhow::{Context, bail};

/// Opens the model file `model`, or the model that ships if none is named.
pub fn open(model: Option<&str>) -> anyhow::Result<Gguf> {
    let Some(model) = model else { return shipped() };
    let path = Path::new(model);
    if path.is_dir() {
        let inside = std::fs::read_dir(path).with_context(|| format!("cannot read {model}"))?;
        let found: Vec<String> = inside
            .filter_map(|entry| Some(entry.ok()?.path().display().to_string()))
            .filter(|path| path.ends_with(".gguf"))
            .collect();
        match found.first() {
            Some(first) => bail!("{model} is a directory\nhint: name a file in it: -m {first}"),
            None => bail!("{model} is a directory without a .gguf file"),
        }
    }
    if !path.exists() {
        bail!("there is no model file {model}\nhint: without -m the model that ships is used");
    }
    Ok(Gguf::open(path)?)
}

/// The model that ships, at an address that lets its weights be used in place.
fn shipped() -> anyhow::Result<Gguf> {
    #[repr(C, align(64))]
    struct Aligned<T: ?Sized>(T);
    static MODEL: &Aligned<[u8]> = &Aligned(*include_bytes!("../../models/alara-tiny.gguf"));
    Ok(Gguf::from_static("alara-tiny.gguf", &MODEL.0)?)
}
