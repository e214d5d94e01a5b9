//! `alara check --connect`: lists the tools of a team's MCP servers.
//! Passing the option counts as consent to start them.

use std::path::Path;

use alara_harness::{Effect, Notice, Scripted, Session, Single, Team};

use crate::agent::{Watched, sandbox};
use crate::screen::printable;
use crate::ui;

/// Starts the servers named by the NPCs of a team and its sub-teams, and prints their tools.
/// Returns the number of servers that failed.
pub fn run(team: &Team) -> anyhow::Result<usize> {
    // Start them as `run` does, in the work directory, but without letting them change anything.
    let sandbox = sandbox(team, Path::new("."), None, Watched::Impossible)?;
    let nobody = Scripted::default();
    let source = Single(&nobody);
    let session = Session::new(&source, &sandbox).agreeing().observed(|notice| {
        if let Notice::Warning(text) = notice {
            ui::note(&format!("warning: {}", printable(text)));
        }
    });
    Ok(connect(&session, team))
}

fn connect(session: &Session, team: &Team) -> usize {
    let mut failed = 0;
    for npc in team.npcs.iter().filter(|npc| !npc.servers.is_empty()) {
        let offered = session.mcp.offered(session, team, npc);
        failed += offered.served.iter().filter(|served| !served.error.is_empty()).count();
        ui::line(&format!("{} of {} gets from MCP servers:", npc.name, team.name));
        for jinx in &offered.jinxes {
            let inputs = jinx.inputs.iter().map(|input| match input.default {
                None => printable(&input.name).into_owned(),
                Some(_) => format!("[{}]", printable(&input.name)),
            });
            let typed = format!("{} {}", jinx.name, inputs.collect::<Vec<_>>().join(" "));
            let about = jinx.description.lines().next().unwrap_or_default();
            // That is the server's own claim.
            let reads = if jinx.effect == Effect::Read { " (reads only)" } else { "" };
            ui::line(format!("  {typed:<32} {}{reads}", printable(about)).trim_end());
        }
    }
    failed + team.teams.iter().map(|team| connect(session, team)).sum::<usize>()
}
