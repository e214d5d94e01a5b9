//! `alara chat`: talk with the NPCs of a team. Answers go to stdout, everything else to stderr.

mod conversation;
mod input;
mod line;
mod models;
mod talk;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alara_engine::Sampling;
use alara_harness::sandbox::enforced;
use alara_harness::{Policy, Sandbox, Session, Team, Trace};
use anyhow::{Context, bail};

use crate::{ask, model, state, ui};
use input::{Input, Lines};
use models::Models;
use talk::{Next, Talk};
use view::View;

/// The exit code of a program that an interrupt ended, as shells count.
const INTERRUPTED: u8 = 130;

/// Talk with the NPCs of a team
///
/// What is typed is said to the NPC; @NAME talks with another one, /NAME runs a jinx, /help tells the commands. A backslash at the
/// end continues a line. Without a terminal each line of the input is a message, answers go to stdout and everything else to stderr.
#[derive(clap::Args)]
pub struct Args {
    /// A team's directory, or the name of a built-in team
    #[arg(short, long, default_value = "alara")]
    team: String,
    /// The NPC to talk with [default: the team's forenpc]
    #[arg(short, long)]
    npc: Option<String>,
    #[command(flatten)]
    model: model::Args,
    /// The only directory in which files may be changed
    #[arg(long, value_name = "DIR", default_value = ".")]
    workdir: PathBuf,
    /// Seed of the random draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How daring the draws are; 0 always takes the most likely token
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Where to write the trace of the first conversation [default: a new file in the user's state directory]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.temperature.is_finite() || args.temperature < 0.0 {
        bail!("a temperature is a number from 0 up, not {}", args.temperature);
    }
    let team = Team::find(&args.team)?;
    let npc = team.npc(args.npc.as_deref())?.name.clone();
    let sandbox = Sandbox::new(&args.workdir, Policy::default())?;
    if let Some(warning) = enforced().warning() {
        ui::note(&format!("warning: {warning}"));
    }
    let trace = args.trace.as_deref().map_or_else(|| Ok(state::trace()), Trace::create)?;
    let models = Models::new(&args.model);
    let view = Mutex::new(View::new());
    let view = || view.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lines = Lines::new()?;
    let sampling = Sampling { seed: args.seed, temperature: args.temperature, ..Sampling::default() };
    let session = Session::new(&models, &sandbox)
        .sampled(sampling)
        .traced(trace)
        .observed(|notice| view().show(notice))
        .asking(|question| {
            view().end_line();
            ask::person(question)
        });
    let mut talk = Talk::new(session, &models, &args.team, team, npc);
    talk.welcome(lines.is_terminal())?;

    let cancel = sandbox.cancel_flag();
    let working = Arc::new(AtomicBool::new(false));
    on_interrupt(cancel.clone(), working.clone())?;
    loop {
        let line = match lines.next(&talk.prompt(), || talk.names())? {
            Input::Line(line) => line,
            Input::Interrupted => continue,
            Input::End => break,
        };
        working.store(true, Ordering::Relaxed);
        let next = talk.hear(&line);
        view().end_line();
        working.store(false, Ordering::Relaxed);
        cancel.store(false, Ordering::Relaxed);
        match next {
            Ok(Next::Remark(text)) => view().remark(&text),
            Ok(Next::Nothing) => {}
            Ok(Next::Leave) => break,
            Err(error) => drop(ui::report(&error)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The first interrupt while something works cancels it; the second, or one while nothing does, ends the process. At the prompt of a
/// terminal the editor gets the key, and there is no interrupt.
fn on_interrupt(cancel: Arc<AtomicBool>, working: Arc<AtomicBool>) -> anyhow::Result<()> {
    ctrlc::set_handler(move || {
        if !working.load(Ordering::Relaxed) || cancel.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    })
    .context("can't catch interrupts")
}
