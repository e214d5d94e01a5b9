//! Resolves a model's name to its file as [`alara_models::file`] does, with the user's settings.

pub use alara_models::file::{Place, is_shipped_name};

use std::path::Path;

use alara_engine::Gguf;
use alara_harness::model::endpoint::Address;
use alara_models::{Entry, Error, file};
use anyhow::bail;

use crate::config;

/// Opens the model that `name` means, or the one that ships if there is no name.
///
/// # Errors
/// There is no such model, or its file can't be read as one.
pub fn open(name: Option<&str>) -> anyhow::Result<Gguf> {
    place(name)?.open().map_err(unwrapped)
}

/// Opens a model's file.
///
/// # Errors
/// Those of [`file::open`].
pub fn open_file(path: &Path) -> anyhow::Result<Gguf> {
    file::open(path).map_err(unwrapped)
}

/// Returns the engine's error as it is: hints and exit codes depend on its type.
fn unwrapped(error: Error) -> anyhow::Error {
    match error {
        Error::Engine(error) => error.into(),
        error => error.into(),
    }
}

/// Finds the file that `name` means, see [`file::place`]; without a name, the model that ships.
///
/// # Errors
/// There is no model of that name, or it is an endpoint's.
/// If the settings name it, the error says where.
pub fn place(name: Option<&str>) -> anyhow::Result<Place> {
    let Some(name) = name else { return Ok(Place::Shipped) };
    place_of(name, &without_name(name)).map_err(|error| match config::value("model") {
        Some(value) if value.text == name => value.blamed("model", &error),
        _ => error,
    })
}

/// Like [`place`], for a name that is no option's.
///
/// # Errors
/// Those of [`place`].
pub fn known(name: &str) -> anyhow::Result<Place> {
    place_of(name, "")
}

/// `without` ends a hint: which model is used if the user names none.
fn place_of(name: &str, without: &str) -> anyhow::Result<Place> {
    if Address::is_meant_by(name) {
        bail!("{name} is an endpoint; this takes a model file");
    }
    Ok(file::place(name, config::model_file(), without)?)
}

/// Says which model is used if the user names none; nothing if the settings name the wrong one.
fn without_name(wrong: &str) -> String {
    match config::value("model") {
        None => "; without -m the model that ships is used".to_owned(),
        Some(value) if value.text == wrong || value.is_of_project() => String::new(),
        Some(value) => format!("; without -m {} is used, set in {}", value.text, value.origin),
    }
}

/// Returns the catalog model that `name` means, if its file is not on this machine.
///
/// # Errors
/// The catalog can't be read.
pub fn absent(name: &str) -> anyhow::Result<Option<&'static Entry>> {
    if Address::is_meant_by(name) {
        return Ok(None);
    }
    Ok(file::absent(name, config::model_file())?)
}
