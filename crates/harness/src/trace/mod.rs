//! The trace: an append-only list of the events of a run.
//! Everything that a run knows is folded from it.
//!
//! A run may hold conversations inside of others (an NPC to which another one delegated work): each
//! record names its own.
//! A trace file contains one JSON object a line, flushed line by line, so a killed run leaves
//! everything up to then.
//! Records of parallel branches are in a file next to it.
//! These files are the source of truth; the database next to them is an index that can be rebuilt.
//! This module must not know how turns are made or tools are run.

mod file;
mod fold;
mod followed;
mod journal;
mod record;
pub mod sqlite;
mod steering;
mod turns;

pub use file::{Line, Trace, is_in_use, lines, make_directory, read};
pub use fold::{facts, ledgers, messages, normalised, phases, request, unlocked, usage};
pub(crate) use record::inside;
pub use record::{About, ContextFile, Entry, PERSON, Record, Start};
pub(crate) use steering::alike;
pub use turns::{NoTurn, Turn, turn};
