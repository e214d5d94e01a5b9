//! `alara models list`: the catalog, and what is on this machine.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::printable;
use crate::catalog::local::{self, Local, Store};
use crate::catalog::{Entry, Machine, entries, hub, ollama};
use crate::ui;

/// List the models that alara knows by name, and those that are on this machine: in Hugging Face's
/// cache, and Ollama's
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
    let machine = Machine::this();
    let choice = machine.choice(entries()?).map(|entry| entry.name.as_str());
    let hub = hub::cache_folder()?;
    let ollama = ollama::folder();
    if args.json {
        let known: Vec<Value> =
            known.iter().map(|entry| described(entry, machine.fits(entry), choice)).collect();
        let all = json!({"memory": machine.memory, "catalog": known, "local": models, "hub_cache": hub, "ollama": ollama});
        ui::line(&serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    if !known.is_empty() {
        let header =
            ["catalog", "parameters", "quantization", "size", "fits", "context", "tools", "score", "here"];
        let fit = |entry: &Entry| match machine.fits(entry) {
            _ if choice == Some(entry.name.as_str()) => "take this",
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        ui::table(&header, known.iter().map(|entry| row(entry, fit(entry), &models)));
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
            vec![printable(&model.name), size, origin(model.source).to_owned()]
        };
        ui::table(&["other models on this machine", "size", "here"], other.iter().map(row));
        ui::line("");
    }
    ui::line(&format!("hub's cache: {}", hub.display()));
    ui::line(&match ollama {
        Some(folder) => format!("Ollama: {}", folder.display()),
        None => "Ollama: not found".to_owned(),
    });
    if let Some(memory) = machine.memory.filter(|_| !args.local) {
        let taken = choice.map_or_else(String::new, |name| format!("; to begin with, take {name}"));
        ui::line(&format!("this machine: {} of memory{taken}", ui::bytes(memory)));
    }
    if !args.local {
        ui::line(
            "`alara models pull NAME` downloads one. Scores of different benchmarks don't compare: --json tells which.",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// An entry as JSON: what its file says, and what that means on this machine.
fn described(entry: &Entry, fits: Option<bool>, choice: Option<&str>) -> Value {
    let mut described = json!(entry);
    described["fits"] = json!(fits);
    described["choice"] = json!(choice == Some(entry.name.as_str()));
    described
}

fn row(entry: &Entry, fit: &str, models: &[Local]) -> Vec<String> {
    let own = models.iter().filter(|model| model.catalog.as_ref() == Some(&entry.name));
    let mut origins: Vec<&str> = own.map(|model| origin(model.source)).collect();
    origins.dedup();
    let partly = || {
        let part = local::partial(&local::cache().ok()?, entry)?;
        Some(format!("{} of it", ui::bytes(part)))
    };
    let here = match origins.as_slice() {
        [] => partly().unwrap_or_default(),
        origins => origins.join(", "),
    };
    let score = entry.score.as_ref().map_or_else(String::new, |score| {
        format!("{} {:.1}", score.benchmark.split(',').next().unwrap_or_default(), score.value)
    });
    vec![
        entry.name.clone(),
        match entry.active {
            Some(active) => format!("{} B, {active} a token", entry.parameters),
            None => format!("{} B", entry.parameters),
        },
        entry.quantization.clone(),
        entry.size.map_or_else(|| "unknown".to_owned(), ui::bytes),
        fit.to_owned(),
        entry.context.to_string(),
        if entry.tools { "native" } else { "no" }.to_owned(),
        score,
        here,
    ]
}

fn origin(store: Store) -> &'static str {
    match store {
        Store::Hub => "hub's cache",
        Store::Ollama => "Ollama",
    }
}
