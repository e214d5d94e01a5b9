//! The way from a model's name to its file, and to where the file comes from.
//!
//! A name is a path, one of the catalog's, one of Ollama's, or that of a repository on the hub.
//! This crate finds its file on this machine, downloads it, and tells which models fit.
//! It loads no model, prints nothing, and knows no agents: the caller shows progress by a
//! [`pull::Watcher`], and says which model is the user's default.
//!
//! # Layers
//!
//! A module uses only modules on the lines above its own, and on its own line only those to its
//! left:
//!
//! 1. `error`; `size`: sizes for people; `memory`: this machine's memory, and the free part.
//! 2. `name`: how people write names of files on the hub; `hub`: the hub that the environment sets.
//! 3. `cache`: the hub's cache; `choice`: which of a repository's files to use; `ollama`: Ollama's
//!    store; `transfer`: a file comes from the hub, and is checked.
//! 4. `catalog`: the models known by name; `machine`: which of them fit; `shipped`: the one that is
//!    built in.
//! 5. `local`: the models on this machine.
//! 6. `pull`: downloads a model into the cache; `file`: the file that a name means.

pub mod cache;
pub mod catalog;
mod choice;
mod error;
pub mod file;
pub mod hub;
pub mod local;
mod machine;
pub mod memory;
pub mod name;
pub mod ollama;
pub mod pull;
pub mod shipped;
mod size;
mod transfer;

pub use catalog::Entry;
pub use error::{Error, HubError, Result};
pub use machine::Machine;
pub use size::bytes;
