//! The trace: an append-only list of what happened.
//! Everything that a run knows is folded from it.
//!
//! A run may hold conversations inside of others (an NPC that another one gave work to): each
//! record names its own.
//! As a file it is one JSON object a line, flushed line by line, so a killed run leaves all that it
//! did.
//! What ran side by side lies in a file beside it.
//! These files are the truth; the database beside them is an index that can be lost.
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
