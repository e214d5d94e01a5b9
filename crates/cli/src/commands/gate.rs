//! `alara gate`: tests gates without a model.

use std::path::PathBuf;
use std::process::ExitCode;

use alara_harness::gate;
use alara_harness::source::Source;
use anyhow::bail;

use crate::progress::count;
use crate::screen::printable;
use crate::ui;

/// Test a gate: a file of rules about calls
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

subcommands! {
    /// Run the cases of a gate, each with a ledger, a call and the expected verdict
    ///
    /// Exit code 0: all verdicts are as expected, 1: one isn't, or the file can't be used.
    Test(TestArgs) => test,
}

#[derive(clap::Args)]
pub struct TestArgs {
    /// The gate
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.command.run()
}

fn test(args: &TestArgs) -> anyhow::Result<ExitCode> {
    let source = Source::from_file(&args.file)?;
    let mut diagnostics = Vec::new();
    let gate = gate::read(&source, &mut diagnostics);
    diagnostics.iter().for_each(|diagnostic| ui::note(&printable(&diagnostic.to_string())));
    let Some(gate) = gate else { return Ok(ExitCode::FAILURE) };
    if gate.cases.is_empty() {
        bail!("{} has no `cases` to run", args.file.display());
    }
    let tried = gate.try_cases();
    let failed = tried.iter().filter(|tried| tried.wrong.is_some()).count();
    if args.json {
        ui::line(&serde_json::to_string_pretty(&tried)?);
    } else {
        for tried in &tried {
            let at = format!("{}:{}", args.file.display(), tried.location.line);
            match &tried.wrong {
                Some(wrong) => ui::line(&printable(&format!("{at}: failed: {}: {wrong}", tried.name))),
                None => ui::line(&printable(&format!("{at}: ok: {}", tried.name))),
            }
        }
        ui::note(&format!("{}, {failed} failed", count(tried.len(), "case")));
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
