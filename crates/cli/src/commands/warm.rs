//! `alara warm`: computes the static prefixes of a team's NPCs, and caches them.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use alara_engine::{Event, Message, Request, Usage};
use alara_harness::model::ModelSource;
use alara_harness::{Npc, Team, agent};
use anyhow::{Context, ensure};
use serde_json::json;

use crate::{agent as agents, model, ui};

/// Compute the static prefix of each NPC of a team (directive, skills, tools) and cache it on disk
///
/// Every later run begins with it at once.
/// Tools of MCP servers are left out: who has some shares what stands before them.
#[derive(clap::Args)]
pub struct Args {
    /// A team: a directory, or a name [default: ./npc_team if there is one, else the built-in team
    /// alara]
    #[arg(short, long)]
    team: Option<String>,
    #[command(flatten)]
    model: model::Args,
    /// Say yes wherever a person would be asked
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What an NPC took.
struct Warmed<'a> {
    npc: &'a Npc,
    model: String,
    usage: Usage,
    took: Duration,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(
        args.model.cache.folder().is_some(),
        "the prefix cache is switched off, so that nothing could be cached\nhint: name its folder with --cache"
    );
    let team = agents::find(args.team.as_deref(), Path::new(""), args.yes)?;
    let mut own = args.model.clone();
    own.cache.patient = true;
    let models = own.source(1, args.yes);
    let bar = ui::progress(team.npcs.len() as u64, "warm");
    let mut all = Vec::new();
    for npc in &team.npcs {
        bar.inc(1);
        if models.is_endpoint(&npc.model) {
            ui::note(&format!(
                "{} is left out: its model is an endpoint, which has a cache of its own",
                npc.name
            ));
            continue;
        }
        all.push(warm(&models, &team, npc).with_context(|| format!("NPC {}", npc.name))?);
    }
    // What is still being written is finished first.
    drop(models);
    bar.finish_and_clear();
    let outcome = &own.cache.outcome;
    let [wanted, written] = [&outcome.wanted, &outcome.written].map(|count| count.load(Ordering::Relaxed));
    ensure!(
        !outcome.off.load(Ordering::Relaxed) && (wanted == 0 || written > 0),
        "{written} of {wanted} static segments could be cached"
    );
    if args.json {
        let all: Vec<_> = all
            .iter()
            .map(|warmed| {
                json!({
                    "npc": warmed.npc.name, "model": warmed.model, "tokens": warmed.usage.prompt_tokens,
                    "memory_tokens": warmed.usage.cached_tokens.saturating_sub(warmed.usage.disk_tokens),
                    "disk_tokens": warmed.usage.disk_tokens, "seconds": warmed.took.as_secs_f64(),
                })
            })
            .collect();
        ui::line(&serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    let rows = all.iter().map(|warmed| {
        let Usage { prompt_tokens, cached_tokens, disk_tokens, .. } = warmed.usage;
        let numbers = [
            prompt_tokens,
            prompt_tokens.saturating_sub(cached_tokens),
            cached_tokens.saturating_sub(disk_tokens),
            disk_tokens,
        ];
        let name = [warmed.npc.name.clone()].into_iter();
        let took = format!("{:.1} s", warmed.took.as_secs_f64());
        name.chain(numbers.iter().map(ToString::to_string)).chain([took]).collect()
    });
    ui::table(&["NPC", "tokens", "computed", "shared", "from disk", "time"], rows);
    Ok(ExitCode::SUCCESS)
}

fn warm<'a>(models: &model::Source, team: &Team, npc: &'a Npc) -> anyhow::Result<Warmed<'a>> {
    let model = models.model(&npc.model)?;
    let begun = Instant::now();
    let opening = agent::opening(team, npc, &*model, vec![Message::user("Hello")], None);
    let request = Request { max_tokens: Some(1), ..opening };
    let mut used = Usage::default();
    for event in model.chat(request)? {
        if let Event::Done { usage, .. } = event? {
            used = usage;
        }
    }
    Ok(Warmed { npc, model: model.name().to_owned(), usage: used, took: begun.elapsed() })
}
