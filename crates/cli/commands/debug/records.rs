//! What the debug commands share: reading stdin, and answering records line by line.

use std::io::{BufRead, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};

/// Prints what `answer` makes of each line of stdin, one JSON object a line; a line that is no JSON is answered with an error.
/// Lines end at `\n` only, since strings may hold other line separators.
pub fn answer_each_line(mut answer: impl FnMut(Value) -> Value) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.context("stdin can't be read")?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let answer = match serde_json::from_slice(&line) {
            Ok(record) => answer(record),
            Err(error) => json!({"error": format!("not a JSON record: {error}")}),
        };
        writeln!(out, "{answer}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All of stdin, as text.
pub fn read_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text).context("stdin is not UTF-8 text")?;
    Ok(text)
}

/// A whole text file.
pub fn read_file(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))
}

/// Prints `text` as it is.
pub fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}
