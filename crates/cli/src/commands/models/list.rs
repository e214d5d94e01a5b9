//! `alara models list`: lists the catalog, and the models on this machine.

use std::process::ExitCode;

use std::sync::Arc;

use alara_models::catalog::{SHIPPED, entries};
use alara_models::local::{self, Local, Store};
use alara_models::{Entry, Machine, hub, ollama};
use alara_server::Facts;
use serde_json::{Value, json};

use super::count;
use crate::facts::FileFacts;
use crate::screen::one_line;
use crate::{config, ui};

/// List the models that alara knows by name, and those on this machine, in the caches of Hugging
/// Face and Ollama
#[derive(clap::Args)]
pub struct Args {
    /// List only models on this machine
    #[arg(long)]
    local: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let models = local::models(config::model_file())?;
    let here = |entry: &Entry| models.iter().any(|model| model.catalog.as_ref() == Some(&entry.name));
    let known: Vec<&Entry> = entries()?.iter().filter(|entry| !args.local || here(entry)).collect();
    let machine = Machine::this();
    let chosen = machine.choice(entries()?);
    let choice = chosen.map(|entry| entry.name.as_str());
    let files = FileFacts::new(|_| None);
    let shipped = files.shipped();
    let hub = hub::cache_folder()?;
    let ollama = ollama::folder();
    if args.json {
        let known: Vec<Value> =
            known.iter().map(|entry| described(entry, machine.fits(entry), choice)).collect();
        let here: Vec<Value> =
            models.iter().map(|model| told(model, facts_of(&files, model), &machine)).collect();
        let gpu = machine.gpu.as_ref().map(|(name, free)| json!({"name": name, "free": free}));
        let shipped = shipped.map(|facts| {
            json!({"name": SHIPPED, "bytes": facts.bytes, "parameters": facts.parameters, "architecture": facts.architecture})
        });
        let all = json!({
            "memory": machine.memory,
            "threads": machine.threads,
            "gpu": gpu,
            "choice": chosen.map(|entry| json!({"name": entry.name, "why": machine.why(entry)})),
            "shipped": shipped,
            "catalog": known,
            "local": here,
            "hub_cache": hub,
            "ollama": ollama,
        });
        ui::line(&serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut is_whole = true;
    if !known.is_empty() {
        let header =
            ["catalog", "parameters", "quantization", "size", "fits", "context", "tools", "score", "here"];
        let fit = |entry: &Entry| match machine.fits(entry) {
            _ if choice == Some(entry.name.as_str()) => "best",
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        let rows: Vec<Vec<String>> = known.iter().map(|entry| row(entry, fit(entry), &models)).collect();
        // Show size, fit, presence and tool calls first, then the rest.
        is_whole = ui::table_that_fits(&header, &rows, &[3, 4, 8, 6, 1, 5, 2, 7]);
        ui::line("");
    }
    let other = models.iter().filter(|model| model.catalog.is_none());
    let other = other.map(|model| {
        let size = match model.missing.len() {
            0 => ui::bytes(model.bytes),
            1 => format!("{}, 1 part missing", ui::bytes(model.bytes)),
            missing => format!("{}, {missing} parts missing", ui::bytes(model.bytes)),
        };
        let fit = match machine.holds(model.bytes) {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        let facts = facts_of(&files, model);
        other_row(one_line(&model.name), facts.as_deref(), size, fit, origin(model.source))
    });
    let shipped = shipped.map(|facts| {
        other_row(SHIPPED.to_owned(), Some(&facts), ui::bytes(facts.bytes), "yes", "ships with alara")
    });
    let header = [
        "other models on this machine",
        "family",
        "parameters",
        "quantization",
        "size",
        "fits",
        "context",
        "tools",
        "here",
    ];
    let rows: Vec<Vec<String>> = shipped.into_iter().chain(other).collect();
    is_whole &= ui::table_that_fits(&header, &rows, &[4, 5, 7, 1, 2, 6, 3, 8]);
    ui::line("");
    ui::line(&format!("hub's cache: {}", hub.display()));
    ui::line(&match ollama {
        Some(folder) => format!("Ollama: {}", folder.display()),
        None => "Ollama: not found".to_owned(),
    });
    if !args.local {
        ui::line(&format!("this machine: {}", machine.described()));
        if let Some(entry) = chosen {
            ui::line(&format!("to begin with, take {}: {}", entry.name, machine.why(entry)));
        }
    }
    if !is_whole {
        ui::note("a wider terminal shows more of each model, and so does --json");
    }
    if !args.local {
        ui::line(
            "`alara models pull NAME` downloads one. Scores of different benchmarks don't compare: --json tells which.",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes an entry as JSON: the contents of its file, and how they relate to this machine.
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
        entry.counted(),
        entry.quantization.clone(),
        entry.size.map_or_else(|| "unknown".to_owned(), ui::bytes),
        fit.to_owned(),
        entry.context.to_string(),
        if entry.tools { "native" } else { "no" }.to_owned(),
        score,
        here,
    ]
}

fn facts_of(files: &FileFacts, model: &Local) -> Option<Arc<Facts>> {
    files.of(Some(model.path.to_str()?))
}

/// Describes a model outside the catalog as JSON, from its file.
fn told(model: &Local, facts: Option<Arc<Facts>>, machine: &Machine) -> Value {
    let mut told = json!(model);
    told["fits"] = json!(machine.holds(model.bytes));
    if let Some(facts) = facts {
        told["architecture"] = json!(facts.architecture);
        told["parameters"] = json!(facts.parameters);
        told["quantization"] = json!(facts.quantization);
        told["context"] = json!(facts.trained_context);
        told["capabilities"] = json!(facts.capabilities);
    }
    told
}

/// Returns a row for a model known only from its file; the fields are empty if that can't be read.
fn other_row(name: String, facts: Option<&Facts>, size: String, fit: &str, origin: &str) -> Vec<String> {
    let of = |text: &dyn Fn(&Facts) -> String| facts.map(text).unwrap_or_default();
    vec![
        name,
        of(&|facts| one_line(&facts.architecture)),
        of(&|facts| count(facts.parameters)),
        of(&|facts| facts.quantization.clone()),
        size,
        fit.to_owned(),
        of(&|facts| facts.trained_context.map_or_else(String::new, |context| context.to_string())),
        of(&|facts| if facts.capabilities.contains(&"tools") { "native" } else { "no" }.to_owned()),
        origin.to_owned(),
    ]
}

fn origin(store: Store) -> &'static str {
    match store {
        Store::Hub => "hub's cache",
        Store::Ollama => "Ollama",
        Store::File => "the default model",
    }
}
