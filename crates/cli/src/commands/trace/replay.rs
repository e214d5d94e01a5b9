//! Replays a trace with the recorded answers of the model, and reports where today's run differs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alara_harness::context_files::ContextFiles;
use alara_harness::run::Mocks;
use alara_harness::sandbox::enforced;
use alara_harness::scratch::Scratch;
use alara_harness::trace::{self, Record};
use alara_harness::{Sandbox, Session, Single, replay};
use anyhow::{Context, bail};
use serde_json::Value;

use crate::agent::{self, Watched};
use crate::progress::{count, shorten};
use crate::{ask, consent, traces, ui};

/// Replay a trace without a model, and report any differences
///
/// The model's answers come from the trace.
/// The current team makes the requests, and decides which calls are allowed.
/// Tool results also come from the trace, except those of tools that held a conversation; with
/// --run, all tools run.
/// Times aren't compared.
/// Exit code 0: no difference, 1: it differs, 2: wrong usage, or the machine lacks something.
#[derive(clap::Args)]
pub struct Args {
    /// An id from `alara trace list`, part of one, or a file [default: the latest run]
    #[arg(value_name = "ID|FILE")]
    trace: Option<String>,
    /// Run the tools again instead of taking their results from the trace
    #[arg(long)]
    run: bool,
    /// Where running tools may change files [default: an empty temporary directory]
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// A team's directory, or the name of a built-in team [default: the trace's]
    #[arg(short, long)]
    team: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = traces::file(args.trace.as_deref())?;
    let recorded = trace::read(&path)?;
    let start = recorded.iter().find_map(|entry| match &*entry.record {
        Record::Start(start) if entry.is_the_users() => Some(start),
        _ => None,
    });
    let Some(start) = start else { bail!("no conversation begins in {}", path.display()) };
    let recorded_team = start.directory.as_ref().map_or(Some(start.team.as_str()), |path| path.to_str());
    let workdir = args.workdir.as_deref().unwrap_or(Path::new(""));
    let is_own = traces::is_own(&path);
    let team = match &args.team {
        Some(team) => agent::find(Some(team), workdir, false)?,
        None => {
            // A stranger's trace may name any folder.
            let found = start.directory.is_some() && args.run && !is_own;
            let team = recorded_team.context("the path of the trace's team is no text")?;
            agent::find_as(Some(team), found, workdir, false).with_context(|| {
                format!("the team {} of the trace can't be found: name it with -t", start.team)
            })?
        }
    };
    let temporary = args.workdir.is_none().then(|| Scratch::claim(&std::env::temp_dir())).transpose()?;
    let work = args.workdir.as_deref().or(temporary.as_ref().map(Scratch::path));
    let work = work.unwrap_or(Path::new("."));
    if args.run {
        consent::workdir(work, false)?;
    }
    let sandbox = Sandbox::new(work, agent::policy(&team, work, None, Watched::Nothing)?)?;
    if let Some(warning) = enforced().warning() {
        ui::note(&format!("warning: {warning}"));
    }
    let model = replay::Replay::new(&recorded);
    let source = Single(&model);
    let mut session =
        Session::new(&source, &sandbox).sampled(start.sampling.clone()).calling(Some(start.calls));
    // When tools really run, answers in a stranger's trace don't count as the user's.
    match replay::answers(&recorded) {
        _ if replay::agreed(&recorded) && (is_own || !args.run) => session = session.agreeing(),
        Some(answers) if is_own || !args.run => session = session.asking(answers),
        _ if args.run && ask::is_possible() => session = session.asking(ask::person),
        _ => {}
    }
    session.context_files = ContextFiles::recorded(start);
    session.dry_run = start.dry_run;
    // Parallel branches would take each other's replies.
    session.threads = 1;
    if !args.run {
        session.mocks = Mocks::new(&recorded);
    }
    replay::run(&session, &team, &recorded)?;
    let mut recorded = session.mocks.outside(&recorded);
    recorded.retain(replay::is_compared);
    let (compared, difference) = replay::difference(&recorded, &session.trace.entries());
    if args.json {
        let report = serde_json::json!({
            "trace": path,
            "records": recorded.len(),
            "compared": compared,
            "difference": difference,
        });
        ui::line(&report.to_string());
    } else {
        match &difference {
            None if compared < recorded.len() => {
                let all = count(recorded.len(), "record");
                ui::line(&format!("the same: {compared} of {all}, up to where the run was stopped"));
            }
            None => ui::line(&format!("the same: {}", count(compared, "record"))),
            Some(difference) => tell(difference),
        }
    }
    Ok(if difference.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn tell(difference: &replay::Difference) {
    let side = |value: &Option<Value>| match value {
        None => "nothing more".to_owned(),
        Some(value) => {
            let kind = value["record"].as_str().unwrap_or_default();
            let part = match difference.at.is_empty() {
                true => value,
                false => value.pointer(&format!("/{}", difference.at)).unwrap_or(&Value::Null),
            };
            let part = part.as_str().map_or_else(|| part.to_string(), str::to_owned);
            format!("{kind}: {}", shorten(&part))
        }
    };
    let at = if difference.at.is_empty() { String::new() } else { format!(", in {}", difference.at) };
    ui::line(&format!("differs after {}{at}", count(difference.same, "record")));
    ui::line(&format!("  recorded  {}", side(&difference.recorded)));
    ui::line(&format!("  replayed  {}", side(&difference.replayed)));
}
