//! `alara models verify`: tests whether a model computes correctly, as far as that is possible
//! without a reference.

mod checks;

use std::process::ExitCode;

use alara_engine::inspect;
use alara_engine::{Gguf, Offload};
use serde::Serialize;

use crate::screen::one_line;
use crate::{device, ui};

/// Test a model on this machine: file, tensors, tokenizer, template, perplexity, cache, tool calls
///
/// Prints one line per check; exit code 1 if one fails.
/// Skips checks that don't apply to the model or file.
#[derive(clap::Args)]
pub struct Args {
    /// Model file [default: the model that ships]
    #[arg(value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    device: device::Args,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The report; its fields are those of `--json`.
#[derive(Serialize)]
struct Report {
    model: String,
    passed: bool,
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct Check {
    name: &'static str,
    outcome: Outcome,
    /// The result, the problem, or why the check was skipped.
    detail: String,
    /// The measured value, if it is a single number.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Ok,
    Failed,
    Skipped,
}

/// Result of a check: a remark and possibly a number.
type Finding = Result<(String, Option<f64>), Reason>;

/// Why there is no result.
#[derive(Debug)]
enum Reason {
    Failed(String),
    Skipped(String),
}

impl<E: Into<alara_engine::Error>> From<E> for Reason {
    fn from(error: E) -> Self {
        match error.into() {
            error @ alara_engine::Error::Encoder { .. } => Reason::Skipped(error.to_string()),
            error => Reason::Failed(error.to_string()),
        }
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let gguf = crate::model::open(args.model.as_deref())?;
    let report = verify(&gguf, args.model.as_deref(), args.device.offload(), |check| {
        if !args.json {
            let outcome = match check.outcome {
                Outcome::Ok => "ok",
                Outcome::Failed => "FAILED",
                Outcome::Skipped => "skipped",
            };
            ui::line(&format!("{outcome:<9}{:<14}{}", check.name, one_line(&check.detail)));
        }
    })?;
    if args.json {
        ui::line(&serde_json::to_string_pretty(&report)?);
    }
    Ok(if report.passed { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs all checks; calls `seen` after each.
/// Returns an error if this machine has too little memory, or no such device.
fn verify(
    gguf: &Gguf,
    name: Option<&str>,
    offload: Offload,
    seen: impl Fn(&Check),
) -> anyhow::Result<Report> {
    let mut checks = Vec::new();
    let mut add = |name: &'static str, finding: Finding| {
        let (outcome, detail, value) = match finding {
            Ok((detail, value)) => (Outcome::Ok, detail, value),
            Err(Reason::Failed(detail)) => (Outcome::Failed, detail, None),
            Err(Reason::Skipped(detail)) => (Outcome::Skipped, detail, None),
        };
        checks.push(Check { name, outcome, detail, value });
        seen(&checks[checks.len() - 1]);
        outcome != Outcome::Failed
    };
    let without = |what: &str| Err(Reason::Skipped(format!("it needs {what}")));

    add("checksum", checks::checksum(gguf, name));
    checks::fits(gguf, offload)?;
    let loads = add("tensors", checks::tensors(gguf));
    let tokenizer = inspect::tokenizer(gguf);
    match &tokenizer {
        Ok(tokenizer) => add("tokenizer", checks::round_trips(tokenizer)),
        Err(error) => add("tokenizer", Err(Reason::Failed(error.to_string()))),
    };
    match &tokenizer {
        Ok(tokenizer) => add("template", checks::template(gguf, tokenizer)),
        Err(_) => add("template", without("the tokenizer")),
    };
    match &tokenizer {
        Ok(tokenizer) if loads => {
            add("perplexity", checks::perplexity(gguf, tokenizer, offload));
            add("continuation", checks::continuation(gguf, offload));
            add("tool call", checks::tool_call(gguf, offload));
        }
        _ => {
            let needed = if loads { "the tokenizer" } else { "the tensors" };
            for name in ["perplexity", "continuation", "tool call"] {
                add(name, without(needed));
            }
        }
    }
    let passed = checks.iter().all(|check| check.outcome != Outcome::Failed);
    Ok(Report { model: gguf.name().to_owned(), passed, checks })
}
