//! `alara trace`: lists the traces of runs, shows one in readable form, shows prompts, and replays
//! runs.

mod prompt;
mod replay;
mod show;

use std::process::ExitCode;

use alara_harness::trace::is_in_use;
use alara_harness::trace::sqlite::RunRow;
use serde_json::json;

use crate::progress::{count, shorten};
use crate::{traces, ui};

/// List, show and replay the traces of runs
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

subcommands! {
    List(List) => list,
    Show(show::Args) => show::run,
    Replay(replay::Args) => replay::run,
}

/// List runs, the latest first
#[derive(clap::Args)]
pub struct List {
    /// List only runs in which one message contains all these words
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Maximum number of runs to list
    #[arg(short = 'n', value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.command.run()
}

fn list(args: &List) -> anyhow::Result<ExitCode> {
    let mut runs = traces::index()?.runs(args.search.as_deref(), args.limit.saturating_add(1))?;
    let is_all = runs.len() <= args.limit;
    runs.truncate(args.limit);
    for run in &runs {
        match args.json {
            true => {
                let mut row = serde_json::to_value(run)?;
                row["resumable"] = json!(is_resumable(run));
                ui::line(&row.to_string());
            }
            false => ui::line(&line(run)),
        }
    }
    if !args.json && runs.iter().any(is_resumable) {
        ui::note("alara chat --resume ID goes on with a conversation, alara run --resume ID with a task");
    }
    if !is_all && !args.json {
        let wider = args.limit.saturating_mul(5).max(100);
        ui::note(&format!(
            "there are more: `-n {wider}` lists the latest {wider}, `--search TEXT` finds some"
        ));
    }
    if runs.is_empty() && is_all && !args.json {
        ui::note(if args.search.is_some() { "no trace says that" } else { "there are no traces yet" });
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a conversation can be continued: it exists, and no other process is using it.
fn is_resumable(run: &RunRow) -> bool {
    !run.work.as_os_str().is_empty() && !is_in_use(&run.path)
}

fn line(run: &RunRow) -> String {
    let started = run
        .started
        .parse::<jiff::Timestamp>()
        .map(|started| started.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string());
    let started = started.unwrap_or_else(|_| run.started.clone());
    let size = format!("{}, {}", count(run.turns, "turn"), count(run.calls, "call"));
    let (id, npc) = (&run.id, &run.npc);
    let outcome = if is_in_use(&run.path) { "running" } else { &run.outcome };
    format!("{id:<22}  {started}  {npc:<12}  {outcome:<10}  {size:<19}  {}", shorten(&run.task))
}
