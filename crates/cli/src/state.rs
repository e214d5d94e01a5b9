//! Data that alara keeps between runs, see [`alara_harness::state`]; warns if it can't be kept.

use alara_harness::Trace;
use alara_harness::error::chain;
pub use alara_harness::state::{directory, journal, more_than_a_project, permissions, search, traces, undo};

use crate::ui;

/// Creates a new trace in the state directory, if there is one and it is writable.
pub fn trace() -> Trace {
    alara_harness::state::trace().unwrap_or_else(|error| {
        ui::note(&format!("warning: no trace is written: {}", chain(&error)));
        Trace::in_memory()
    })
}
