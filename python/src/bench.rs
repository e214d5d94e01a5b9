//! Reads runs of the benchmark.

use std::path::PathBuf;

use alara_bench::report::{find, frame};
use pyo3::prelude::*;

use crate::error::raised;

/// Returns the attempts in these files and folders, and their summary, as JSON.
#[pyfunction]
pub fn read_runs(py: Python, paths: Vec<PathBuf>) -> PyResult<String> {
    let frame = py.detach(|| frame(&find(&paths)?));
    let place = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let frame = frame.map_err(|error| raised(py, &place, &error))?;
    Ok(serde_json::to_string(&frame).unwrap_or_default())
}
