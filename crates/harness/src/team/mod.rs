//! A team: a directory of text files that says who works, with what, and under which limits.
//!
//! This module owns the reading of `.ctx`, `.npc` and `.jinx` files and what can be wrong in them. It must not know
//! how anything runs.

mod files;
mod nearest;
mod read;
mod stock;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::jinx::Jinx;
pub use files::Diagnostic;
use files::{Files, Source};
use nearest::unknown;

/// A team.
#[derive(Clone, Debug, PartialEq)]
pub struct Team {
    /// The name; the directory's if the `.ctx` has none.
    pub name: String,
    /// What the team is for.
    pub description: String,
    /// Text that every NPC of the team gets after its directive; may be empty.
    pub context: String,
    /// The NPC that is meant if none is named.
    pub forenpc: String,
    /// The NPCs, by name.
    pub npcs: Vec<Npc>,
    /// The jinxes that NPCs may list: the stock ones, overlaid by the team's own; by name.
    pub jinxes: Vec<Jinx>,
    /// What is odd in the files but stops nobody.
    pub diagnostics: Vec<Diagnostic>,
}

/// An agent's description.
#[derive(Clone, Debug, PartialEq)]
pub struct Npc {
    /// The name.
    pub name: String,
    /// Its system text.
    pub directive: String,
    /// The model that it wants; the team's if the file has none.
    pub model: Option<String>,
    /// The jinxes that it sees and may call, in this order: catalog and permission set.
    pub jinxes: Vec<String>,
    /// How long it may go on.
    pub limits: Limits,
}

/// How long an NPC may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Most turns of the model for one user message. Default 12.
    pub turns: usize,
    /// Most tokens that one turn may generate. Default 4096. A turn that reaches it ends the run, so that a model that
    /// never stops does not fill its context first.
    pub turn_tokens: usize,
    /// Most tokens of reasoning in one turn: after so many it is ended for the model, which goes on with its answer. Default
    /// none beside `turn_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<usize>,
    /// Most bytes of one tool's output that the model gets to read. Default 16384.
    pub tool_output_bytes: usize,
    /// Most seconds for one user message. Default none.
    pub seconds: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            turns: 12,
            turn_tokens: 4096,
            reasoning_tokens: None,
            tool_output_bytes: 16 * 1024,
            seconds: None,
        }
    }
}

impl Team {
    /// Reads the team in a directory.
    ///
    /// # Errors
    /// There is none, or a file is wrong; the message names file, place and what would be right.
    pub fn load(directory: &Path) -> Result<Self, Error> {
        let files = Files::from_directory(directory)?;
        if files.ctx.is_empty() && files.npc.is_empty() {
            return Err(Error::NoTeam { path: directory.to_owned() });
        }
        let name = directory.canonicalize().ok();
        let name = name.as_deref().unwrap_or(directory).file_name().unwrap_or(directory.as_os_str());
        read::team(&name.to_string_lossy(), &files, &Files::stock_jinxes())
    }

    /// A team that is built in.
    ///
    /// # Errors
    /// There is none of this name; the message names those that there are.
    pub fn stock(name: &str) -> Result<Self, Error> {
        let files = Files::stock_team(name)
            .ok_or_else(|| unknown("built-in team", name, stock::teams().map(String::as_str)))?;
        read::team(name, &files, &Files::stock_jinxes())
    }

    /// The team that a user named: a directory, or the name of a built-in one.
    ///
    /// # Errors
    /// As [`Team::load`] and [`Team::stock`].
    pub fn find(name: &str) -> Result<Self, Error> {
        let path = Path::new(name);
        if path.is_dir() || name.contains(std::path::MAIN_SEPARATOR) {
            Team::load(path)
        } else {
            Team::stock(name)
        }
    }

    /// The NPC with this name, or the team's `forenpc`.
    ///
    /// # Errors
    /// There is none; the message names those that there are.
    pub fn npc(&self, name: Option<&str>) -> Result<&Npc, Error> {
        let name = name.unwrap_or(&self.forenpc);
        let known = || self.npcs.iter().map(|npc| npc.name.as_str());
        self.npcs.iter().find(|npc| npc.name == name).ok_or_else(|| unknown("NPC", name, known()))
    }

    /// The jinx with this name.
    pub fn jinx(&self, name: &str) -> Option<&Jinx> {
        self.jinxes.iter().find(|jinx| jinx.name == name)
    }
}

/// Reads one jinx file, with what is odd in it.
///
/// # Errors
/// The file can't be read or is wrong.
pub fn load_jinx(path: &Path) -> Result<(Jinx, Vec<Diagnostic>), Error> {
    let mut diagnostics = Vec::new();
    let jinx = read::jinx(&Source::from_file(path)?, &mut diagnostics)?;
    Ok((jinx, diagnostics))
}

#[cfg(test)]
mod tests;
