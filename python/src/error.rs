//! Converts Rust errors to Python exceptions.

use std::error::Error;

use alara_harness::error::chain;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

/// Separates the message from the remedy.
const HINT: &str = "\nhint: ";

/// Returns an `alara.Error` for an error; `place` is the file, model or team that it is about.
pub fn raised(py: Python, place: &str, error: &(dyn Error + 'static)) -> PyErr {
    raised_text(py, place, &chain(error))
}

/// Returns an `alara.Error` for a text, whose remedy follows `hint:`, or the last semicolon.
pub fn raised_text(py: Python, place: &str, text: &str) -> PyErr {
    let (what, remedy) = text.split_once(HINT).or_else(|| text.rsplit_once("; ")).unwrap_or((text, ""));
    let class = py.import("alara._error").and_then(|module| module.getattr("Error"));
    class
        .and_then(|class| class.call1((what.trim(), place, remedy.trim())))
        .map_or_else(|error| error, PyErr::from_value)
}

/// Parses JSON from Python; an error names the place of the wrong type.
pub fn read<T: DeserializeOwned>(json: &str) -> PyResult<T> {
    serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(json)).map_err(|error| {
        let (path, reason) = (error.path().to_string(), error.inner().to_string());
        // The position in the JSON text means nothing to the user.
        let reason = reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason);
        PyTypeError::new_err(if path == "." { reason.to_owned() } else { format!("{path}: {reason}") })
    })
}
