//! What `alara tune` found out about model files, kept in the user's state directory.

use std::path::PathBuf;

use alara_engine::{Gguf, file};
use alara_harness::model::Tuning;
use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::state;

/// What was measured of a model file, and what follows from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// The version of alara that measured it.
    pub version: String,
    /// How many tasks each row had.
    pub tasks: u64,
    /// What was tried; the first row is what is used without tuning.
    pub rows: Vec<Row>,
    /// The row that is used.
    pub best: usize,
}

/// One way to use a model, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    #[serde(flatten)]
    pub tuning: Tuning,
    pub solved: u64,
    pub calls: u64,
    pub seconds: f64,
}

impl Row {
    /// The way in words.
    pub fn name(&self) -> String {
        let Tuning { tool_format, calls, temperature } = &self.tuning;
        let parts = [
            tool_format.as_ref().map(|name| format!("format {name}")),
            calls.map(|calls| format!("calls {calls}")),
            temperature.map(|temperature| format!("temperature {temperature}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "as without tuning".to_owned() } else { parts.join(", ") }
    }
}

impl Tuned {
    /// That of a model file; `None` = it was never tuned, or by another version.
    pub fn of(gguf: &Gguf) -> Option<Self> {
        let text = file::read_given(&path(gguf)?).ok()?;
        let tuned: Tuned = serde_json::from_str(&text).ok()?;
        (tuned.version == env!("CARGO_PKG_VERSION") && tuned.best < tuned.rows.len()).then_some(tuned)
    }

    /// Keeps it.
    ///
    /// # Errors
    /// There is no place for it, or it can't be written.
    pub fn keep(&self, gguf: &Gguf) -> anyhow::Result<()> {
        let path = path(gguf).context("there is no home directory, and XDG_STATE_HOME is not set")?;
        let folder = path.parent().context("the state directory has no name")?;
        let write = || {
            std::fs::create_dir_all(folder)?;
            std::fs::write(&path, serde_json::to_string_pretty(self).unwrap_or_default())
        };
        write().with_context(|| format!("can't write {}", path.display()))
    }

    /// How the model is used.
    pub fn tuning(&self) -> Tuning {
        self.rows[self.best].tuning.clone()
    }

    /// In a line.
    pub fn told(&self) -> String {
        let (best, first) = (&self.rows[self.best], &self.rows[0]);
        let name = best.name();
        match self.best {
            0 => format!("{name}: {} of {} tasks, and nothing else did better", best.solved, self.tasks),
            _ => format!("{name}: {} of {} tasks, {} without", best.solved, self.tasks, first.solved),
        }
    }
}

/// Where that of a model file lies.
fn path(gguf: &Gguf) -> Option<PathBuf> {
    let identity: String = gguf.identity().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(state::directory()?.join("tuned").join(format!("{identity}.json")))
}
