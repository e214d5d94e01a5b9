//! Answers one record per line.

use std::io::{BufRead, stdin};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads a record from each line of stdin and prints its answer, or `{"error": …}` if it has none.
/// Prints one line for each input line, except empty ones.
/// Only `\n` ends a line.
pub fn each<R: DeserializeOwned, A: Serialize>(
    answer: impl Fn(R) -> anyhow::Result<A>,
) -> anyhow::Result<ExitCode> {
    for line in stdin().lock().split(b'\n') {
        let line = line.context("can't read stdin")?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answered = serde_json::from_slice(&line).map_err(anyhow::Error::from).and_then(&answer);
        crate::ui::line(&match answered {
            Ok(answer) => serde_json::to_string(&answer)?,
            Err(error) => serde_json::json!({ "error": format!("{error:#}") }).to_string(),
        });
    }
    Ok(ExitCode::SUCCESS)
}
