//! `alara trace`: what runs have left: a list, one of them in readable form, and whether the same
//! happens again.

mod replay;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alara_harness::trace::sqlite::{Index, RunRow};
use anyhow::{Context, bail};

use crate::progress::{count, shorten};
use crate::{state, ui};

/// List, show and replay what runs have left
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
    /// Only runs in which all these words were said, in one message
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Most runs to list
    #[arg(short = 'n', value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.command.run()
}

/// The index, after a look at the files.
fn index() -> anyhow::Result<Index> {
    let state = state::directory().context("there is no home directory, and XDG_STATE_HOME is not set")?;
    let traces = state.join("traces");
    // Where none can be made there are none, and the error says so.
    let _ = alara_harness::trace::make_directory(&traces);
    let (index, left_out) = Index::of(&traces, &state.join("traces.sqlite"))?;
    for left_out in left_out {
        ui::note(&format!("warning: {:#}", anyhow::Error::from(left_out)));
    }
    Ok(index)
}

/// The trace file that is meant: a file, an id of the list or a part of one, or the latest.
fn file(name: Option<&str>) -> anyhow::Result<PathBuf> {
    if let Some(path) = name.map(Path::new).filter(|path| path.is_file()) {
        return Ok(path.to_owned());
    }
    match (index()?.find(name)?, name) {
        (Some(run), _) => Ok(run.path),
        (None, None) => bail!("there are no traces yet"),
        (None, Some(name)) => {
            bail!("no file, and no or more than one trace is called {name}\nhint: alara trace list")
        }
    }
}

fn list(args: &List) -> anyhow::Result<ExitCode> {
    let runs = index()?.runs(args.search.as_deref(), args.limit)?;
    for run in &runs {
        match args.json {
            true => ui::line(&serde_json::to_string(run)?),
            false => ui::line(&line(run)),
        }
    }
    if runs.is_empty() && !args.json {
        ui::note(if args.search.is_some() { "no trace says that" } else { "there are no traces yet" });
    }
    Ok(ExitCode::SUCCESS)
}

fn line(run: &RunRow) -> String {
    let started = run
        .started
        .parse::<jiff::Timestamp>()
        .map(|started| started.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string());
    let started = started.unwrap_or_else(|_| run.started.clone());
    let size = format!("{}, {}", count(run.turns, "turn"), count(run.calls, "call"));
    let (id, npc, outcome) = (&run.id, &run.npc, &run.outcome);
    format!("{id:<22}  {started}  {npc:<12}  {outcome:<10}  {size:<19}  {}", shorten(&run.task))
}
