//! `alara chat`: a conversation with the NPCs of a team.
//! Answers go to stdout, everything else to stderr.

mod conversation;
mod input;
mod line;
mod settings;
mod talk;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alara_harness::{ModelSource, Session};

use super::tune;
use crate::agent::{self, INTERRUPTED};
use crate::view::{View, Words};
use crate::{earlier, interrupt, traces, ui};
use input::{Input, Lines};
use talk::{Next, Talk};

/// Talk with the NPCs of a team
///
/// Your input goes to the NPC; @NAME talks with another one, /NAME runs a jinx, /help lists the
/// commands.
/// A backslash at the end continues a line.
/// Without a terminal, each line of input is a message, answers go to stdout and everything else to
/// stderr.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    agent: agent::Args,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (agent, earlier) = args.agent.with_earlier()?;
    if agent.tune && !tune::first(&agent.model)? {
        return Ok(INTERRUPTED.into());
    }
    let team = agent.team()?;
    let npc = team.npc(agent.npc.as_deref())?.name.clone();
    let sandbox = agent.sandbox(&team, false)?;
    let models = agent.models();
    let view = Mutex::new(View::new(Words::Answer, agent.verbose));
    let view = || view.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lines = Lines::new()?;
    let session = Session::new(&models, &sandbox).observed(|notice| view().show(notice));
    let is_own = earlier.as_deref().is_some_and(traces::is_own);
    let taken_up = |path: PathBuf| {
        let model = models.model(&team.npc(Some(&npc))?.model)?;
        earlier::take_up(&path, &sandbox, &earlier::who(&npc, &team.name, model.name()))
    };
    let mut earlier = earlier.map(taken_up).transpose()?;
    let trace = earlier.as_mut().map(|earlier| std::mem::take(&mut earlier.trace));
    let session = agent.equip(session, trace, |_| view().end_line())?.reading(agent.context_files()?);
    let mut talk = Talk::new(session, &models, agent, team, npc);
    talk.welcome(lines.is_terminal())?;
    if let Some(earlier) = earlier {
        talk.take_up(earlier, lines.is_terminal(), is_own);
    }
    talk.begin()?;

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
            Ok(Next::Said { text, remark }) => {
                let mut view = view();
                text.iter().for_each(|text| view.answer(text));
                view.remark(&remark);
            }
            Ok(Next::Remark(text)) => view().remark(&text),
            Ok(Next::Nothing) => {}
            Ok(Next::Leave) => break,
            Err(error) => drop(ui::report(&error)),
        }
    }
    talk.end()?;
    Ok(ExitCode::SUCCESS)
}

/// The first interrupt cancels running work; a second one, or one while nothing runs, ends the
/// process.
/// At the prompt of a terminal the line editor receives the key, so there is no interrupt.
fn on_interrupt(cancel: Arc<AtomicBool>, working: Arc<AtomicBool>) -> anyhow::Result<()> {
    interrupt::does(move || {
        if !working.load(Ordering::Relaxed) || cancel.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    })
}
