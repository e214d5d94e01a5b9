//! Python's way to the engine, the agents and the benchmark: the module `alara._alara`.
//!
//! What people call is written in Python, in `python/alara`, which says the types.
//! Requests, events and results pass between the two as JSON, as the other crates read and write
//! them: no value has a second form here.
//! Whatever takes time runs without the interpreter's lock, and looks after Ctrl-C.

#![allow(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

mod agent;
mod bench;
mod engine;
mod error;
mod models;
mod wait;

use pyo3::prelude::*;

/// What `alara` is made of; its own classes say what it can do.
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

/// The version, which the binary must have too.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
