//! `alara models list`: the catalog, and what is on this machine.

use std::process::ExitCode;

use serde_json::json;

use super::printable;
use crate::catalog::local::{self, Local, Source};
use crate::catalog::{Entry, entries, hub, ollama};
use crate::ui;

/// List the models that alara knows by name, and those that are on this machine: in Hugging Face's cache, and Ollama's
#[derive(clap::Args)]
pub struct Args {
    /// Only what is on this machine
    #[arg(long)]
    local: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let models = local::models()?;
    let here = |entry: &Entry| models.iter().any(|model| model.catalog.as_ref() == Some(&entry.name));
    let known: Vec<&Entry> = entries()?.iter().filter(|entry| !args.local || here(entry)).collect();
    let hub = hub::cache_folder()?;
    let ollama = ollama::folder();
    if args.json {
        let all = json!({"catalog": known, "local": models, "hub_cache": hub, "ollama": ollama});
        ui::line(&serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    if !known.is_empty() {
        let header = ["catalog", "parameters", "quantization", "size", "context", "tools", "score", "here"];
        ui::table(&header, known.iter().map(|entry| row(entry, &models)));
        ui::line("");
    }
    let other: Vec<&Local> = models.iter().filter(|model| model.catalog.is_none()).collect();
    if !other.is_empty() {
        let row = |model: &&Local| {
            let size = match model.missing.len() {
                0 => ui::bytes(model.bytes),
                1 => format!("{}, 1 part missing", ui::bytes(model.bytes)),
                missing => format!("{}, {missing} parts missing", ui::bytes(model.bytes)),
            };
            vec![printable(&model.name), size, place(model.source).to_owned()]
        };
        ui::table(&["other models on this machine", "size", "here"], other.iter().map(row));
        ui::line("");
    }
    ui::line(&format!("hub's cache: {}", hub.display()));
    ui::line(&match ollama {
        Some(folder) => format!("Ollama: {}", folder.display()),
        None => "Ollama: not found".to_owned(),
    });
    if !args.local {
        ui::line(
            "`alara models pull NAME` downloads one. Scores of different benchmarks don't compare: --json tells which.",
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn row(entry: &Entry, models: &[Local]) -> Vec<String> {
    let own = models.iter().filter(|model| model.catalog.as_ref() == Some(&entry.name));
    let mut places: Vec<&str> = own.map(|model| place(model.source)).collect();
    places.dedup();
    let partly = || {
        let part = local::partial(&local::cache().ok()?, entry)?;
        Some(format!("{} of it", ui::bytes(part)))
    };
    let here = match places.as_slice() {
        [] => partly().unwrap_or_default(),
        places => places.join(", "),
    };
    let score = entry.score.as_ref().map_or_else(String::new, |score| {
        format!("{} {:.1}", score.benchmark.split(',').next().unwrap_or_default(), score.value)
    });
    vec![
        entry.name.clone(),
        format!("{} B", entry.parameters),
        entry.quantization.clone(),
        entry.size.map_or_else(|| "unknown".to_owned(), ui::bytes),
        entry.context.to_string(),
        if entry.tools { "native" } else { "no" }.to_owned(),
        score,
        here,
    ]
}

fn place(source: Source) -> &'static str {
    match source {
        Source::Hub => "hub's cache",
        Source::Ollama => "Ollama",
    }
}
