//! Task suites, the runner that lets an agent work through them, the run file, and tables of
//! results.
//!
//! This crate defines the benchmark: the tasks, when one counts as solved, and the records.
//! It uses the harness's agent and sandbox, and of models only the `ChatModel` that an agent uses.
//! It prints nothing.

#[cfg(test)]
#[path = "../../../tests/absent.rs"]
mod absent;
mod attempts;
mod converse;
pub mod dialogue;
pub mod drafts;
mod error;
pub mod idle;
pub mod inspect;
pub mod options;
#[cfg(test)]
mod policies_tests;
pub mod policy;
pub mod prefix;
pub mod price;
pub mod record;
pub mod report;
pub mod run_file;
pub mod runner;
mod scripts;
pub mod speed;
pub mod sqlite;
pub mod stats;
pub mod suite;
mod suite_csv;
pub mod sweep;
pub mod task;
pub mod task_dir;

pub use error::Error;
pub use suite::Suite;
pub use task::Task;
