//! `alara debug mask`.

use std::path::PathBuf;
use std::process::ExitCode;

use alara_engine::GrammarError;
use alara_engine::file;
use alara_engine::inspect::Grammar;
use anyhow::{Context, anyhow};
use serde::Deserialize;
use serde_json::{Value, json};

/// Test which texts the grammar of a JSON schema accepts, exactly as they are
///
/// Reads one text per line on stdin, prints `accept` or `reject` for each.
/// Needs no model.
#[derive(clap::Args)]
pub struct Args {
    /// The JSON schema
    #[arg(long, value_name = "FILE", required_unless_present = "jsonl", conflicts_with = "jsonl")]
    schema: Option<PathBuf>,
    /// Read {"schema", "texts"} per line, print {"verdicts"}, {"refused": "…"} or {"error": "…"}
    /// per line
    #[arg(long)]
    jsonl: bool,
}

#[derive(Deserialize)]
struct Record {
    schema: Value,
    texts: Vec<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let grammar = Grammar::of_bytes();
    let Some(path) = &args.schema else {
        return super::jsonl::each(|record: Record| {
            match verdicts(&grammar, &record.schema, &record.texts) {
                Ok(verdicts) => Ok(json!({ "verdicts": verdicts })),
                Err(GrammarError::Schema { refusal }) => Ok(json!({ "refused": refusal.to_string() })),
                Err(error) => Err(error.into()),
            }
        });
    };
    let source = file::read_given(path).with_context(|| format!("can't read {}", path.display()))?;
    let schema: Value =
        serde_json::from_str(&source).with_context(|| format!("{} is not JSON", path.display()))?;
    let input = std::io::read_to_string(std::io::stdin()).context("can't read texts from stdin")?;
    // Only `\n` ends a line, so every other character belongs to its text.
    let texts: Vec<&str> = input.split_terminator('\n').collect();
    let verdicts = verdicts(&grammar, &schema, &texts).map_err(|error| {
        let hint = "take that out, and check answers for it afterwards";
        anyhow!("{}: {error}\nhint: {hint}", path.display())
    })?;
    verdicts.into_iter().for_each(crate::ui::line);
    Ok(ExitCode::SUCCESS)
}

fn verdicts(
    grammar: &Grammar,
    schema: &Value,
    texts: &[impl AsRef<str>],
) -> Result<Vec<&'static str>, GrammarError> {
    let permitted = grammar.verdicts(schema, texts)?;
    Ok(permitted.into_iter().map(|permitted| if permitted { "accept" } else { "reject" }).collect())
}
