//! What alara keeps between runs, see [`alara_harness::state`]; what can't be kept is told.

use alara_harness::Trace;
use alara_harness::error::chain;
pub use alara_harness::state::{directory, journal, more_than_a_project, permissions, search, traces, undo};

use crate::ui;

/// A new trace in the state directory, as far as there is one and its disk takes it.
pub fn trace() -> Trace {
    alara_harness::state::trace().unwrap_or_else(|error| {
        ui::note(&format!("warning: no trace is written: {}", chain(&error)));
        Trace::in_memory()
    })
}
