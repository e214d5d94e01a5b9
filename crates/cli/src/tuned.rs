//! Results of `alara tune` for model files, stored in the user's state directory.

use std::path::PathBuf;

use alara_engine::{Gguf, file};
use alara_harness::model::Tuning;
use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::state;

/// Measurements of a model file, and the way chosen from them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// The alara version that made the measurements.
    pub version: String,
    /// Number of tasks per row.
    pub tasks: u64,
    /// The ways that were tried; the first row is the default.
    pub rows: Vec<Row>,
    /// Index of the row to use.
    pub best: usize,
}

/// One way to use a model, and its results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    #[serde(flatten)]
    pub tuning: Tuning,
    pub solved: u64,
    pub calls: u64,
    pub seconds: f64,
}

impl Row {
    /// Describes the way in words.
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
    /// Loads the results for a model file; `None` if it wasn't tuned, or by another version.
    pub fn of(gguf: &Gguf) -> Option<Self> {
        let text = file::read_given(&path(gguf)?).ok()?;
        let tuned: Tuned = serde_json::from_str(&text).ok()?;
        (tuned.version == env!("CARGO_PKG_VERSION") && tuned.best < tuned.rows.len()).then_some(tuned)
    }

    /// Stores the results.
    ///
    /// # Errors
    /// There is no folder for it, or it can't be written.
    pub fn keep(&self, gguf: &Gguf) -> anyhow::Result<()> {
        let path = path(gguf).context("there is no home directory, and XDG_STATE_HOME is not set")?;
        let folder = path.parent().context("the state directory has no name")?;
        let write = || {
            std::fs::create_dir_all(folder)?;
            std::fs::write(&path, serde_json::to_string_pretty(self).unwrap_or_default())
        };
        write().with_context(|| format!("can't write {}", path.display()))
    }

    /// Returns the chosen way to use the model.
    pub fn tuning(&self) -> Tuning {
        self.rows[self.best].tuning.clone()
    }

    /// Describes the results in one line.
    pub fn told(&self) -> String {
        let (best, first) = (&self.rows[self.best], &self.rows[0]);
        let name = best.name();
        match self.best {
            0 => format!("{name}: {} of {} tasks, and nothing else did better", best.solved, self.tasks),
            _ => format!("{name}: {} of {} tasks, {} without", best.solved, self.tasks, first.solved),
        }
    }
}

/// Returns the path of a model file's results.
fn path(gguf: &Gguf) -> Option<PathBuf> {
    let identity: String = gguf.identity().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(state::directory()?.join("tuned").join(format!("{identity}.json")))
}
