//! `alara warm`: computes and caches the static prefixes of a team's NPCs, or of requests.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use alara_engine::{Event, Message, Request, Usage, file};
use alara_harness::model::{ModelSource, ModelSpec};
use alara_harness::{ChatModel, Team, agent};
use alara_server::read_request;
use anyhow::{Context, anyhow, ensure};
use serde_json::json;

use crate::{agent as agents, model, ui};

/// Compute the static prefix of each NPC of a team (directive, skills, tools), or of requests, and
/// cache it on disk
///
/// Later runs start immediately with it.
/// Omits the tools of MCP servers: an NPC with such tools still uses the part before them.
#[derive(clap::Args)]
pub struct Args {
    /// A team: a directory, or a name [default: ./npc_team if there is one, else the built-in team
    /// alara]
    #[arg(short, long)]
    team: Option<String>,
    /// Compute the system prompt and tools of a request to the server instead: a file with its
    /// JSON, in the format of OpenAI's API (chat or responses), Anthropic's or Ollama's; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    request: Vec<PathBuf>,
    #[command(flatten)]
    model: model::Args,
    /// Answer yes to every question
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The cost of one NPC or request.
struct Warmed {
    name: String,
    model: String,
    usage: Usage,
    took: Duration,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(
        args.model.cache.folder().is_some(),
        "the prefix cache is switched off, so that nothing could be cached\nhint: name its folder with --cache"
    );
    let requests = args.request.iter().map(|path| read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let team = agents::find(args.team.as_deref(), Path::new(""), args.yes)?;
    let mut own = args.model.clone();
    own.cache.patient = true;
    let models = own.source(1, args.yes);
    let all = match requests.is_empty() {
        true => npcs(&models, &team)?,
        false => {
            let spec = &team.npc(None)?.model;
            ensure!(
                !models.is_endpoint(spec),
                "the model is an endpoint, which has a cache of its own\nhint: name a model of this machine with -m"
            );
            let bar = ui::progress(requests.len() as u64, "warm");
            let warmed = requests.into_iter().map(|(name, request)| {
                bar.inc(1);
                warm(&models, spec, &name, |_| request).with_context(|| name.clone())
            });
            let warmed = warmed.collect::<anyhow::Result<Vec<_>>>()?;
            bar.finish_and_clear();
            warmed
        }
    };
    // Finish pending writes first.
    drop(models);
    let outcome = &own.cache.outcome;
    let [wanted, written] = [&outcome.wanted, &outcome.written].map(|count| count.load(Ordering::Relaxed));
    ensure!(
        !outcome.off.load(Ordering::Relaxed) && (wanted == 0 || written > 0),
        "{written} of {wanted} static segments could be cached"
    );
    let what = if args.request.is_empty() { "npc" } else { "request" };
    if args.json {
        let all: Vec<_> = all
            .iter()
            .map(|warmed| {
                json!({
                    what: warmed.name, "model": warmed.model, "tokens": warmed.usage.prompt_tokens,
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
        let name = [warmed.name.clone()].into_iter();
        let took = format!("{:.1} s", warmed.took.as_secs_f64());
        name.chain(numbers.iter().map(ToString::to_string)).chain([took]).collect()
    });
    let what = if args.request.is_empty() { "NPC" } else { "request" };
    ui::table(&[what, "tokens", "computed", "shared", "from disk", "time"], rows);
    Ok(ExitCode::SUCCESS)
}

/// Reads the request in a file; also returns the file's name.
fn read(path: &Path) -> anyhow::Result<(String, Request)> {
    let name = path.display().to_string();
    let text = file::read_given(path).with_context(|| format!("can't read {name}"))?;
    let request = read_request(text.as_bytes());
    let request = request.map_err(|why| {
        anyhow!("{name} is no request: {why}\nhint: it is the JSON body that a client sends to alara serve")
    })?;
    // The conversation differs each time.
    let messages = vec![Message::user("Hello")];
    Ok((name, Request { messages, continue_final_message: false, ..request }))
}

/// Computes the prefix of each NPC of the team.
fn npcs(models: &model::Source, team: &Team) -> anyhow::Result<Vec<Warmed>> {
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
        let opening =
            |model: &dyn ChatModel| agent::opening(team, npc, model, vec![Message::user("Hello")], None);
        let warmed = warm(models, &npc.model, &npc.name, opening);
        all.push(warmed.with_context(|| format!("NPC {}", npc.name))?);
    }
    bar.finish_and_clear();
    Ok(all)
}

/// Computes the part of a request's prompt before the conversation; `make` builds the request.
fn warm(
    models: &model::Source,
    spec: &ModelSpec,
    name: &str,
    make: impl FnOnce(&dyn ChatModel) -> Request,
) -> anyhow::Result<Warmed> {
    let model = models.model(spec)?;
    let begun = Instant::now();
    let request = Request { max_tokens: Some(1), ..make(&*model) };
    let mut used = Usage::default();
    for event in model.chat(request)? {
        if let Event::Done { usage, .. } = event? {
            used = usage;
        }
    }
    Ok(Warmed { name: name.to_owned(), model: model.name().to_owned(), usage: used, took: begun.elapsed() })
}
