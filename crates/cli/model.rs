//! From what the user typed after `-m` to a model.

use std::path::Path;

use alara_harness::{ChatModel, Scripted};
use anyhow::{Context, bail};

/// Opens the model that `name` means. `script:FILE.json` is a model that says what the file tells it, for tests: a JSON
/// array of `{"text": …, "calls": [{"name": …, "arguments": {…}}]}`, one for each turn.
pub fn load(name: Option<&str>) -> anyhow::Result<Box<dyn ChatModel>> {
    match name {
        Some(name) => match name.strip_prefix("script:") {
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).with_context(|| format!("can't read the script {path}"))?;
                let script = Scripted::from_json(&text).with_context(|| format!("{path} is no script"))?;
                Ok(Box::new(script))
            }
            None if Path::new(name).is_dir() => bail!("{name} is a directory, not a model"),
            None => bail!("the model {name} can't be opened: only script:FILE.json works so far"),
        },
        None => bail!("no model ships with this build yet; name one with -m"),
    }
}
