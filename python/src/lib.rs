//! Python bindings for the engine, the agents and the benchmark: the module `alara._alara`.
//!
//! The public API is written in Python, in `python/alara`, with its types.
//! Requests, events and results are exchanged as JSON, in the format of the other crates, so that
//! no value needs a second representation.
//! Long operations release the interpreter's lock, and check for Ctrl-C.

#![allow(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

mod agent;
mod bench;
mod engine;
mod error;
mod models;
mod wait;

use pyo3::prelude::*;

/// Contents of `alara`; its own classes document what they do.
#[pymodule(name = "_alara")]
mod module {
    #[pymodule_export]
    use crate::agent::{PyTeam, run};
    #[pymodule_export]
    use crate::bench::read_runs;
    #[pymodule_export]
    use crate::engine::{PyEngine, PyEvents};
    #[pymodule_export]
    use crate::models::{sandbox_warning, use_binary};
    #[pymodule_export]
    use crate::version;
}

/// Returns the version, which the binary must share.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
