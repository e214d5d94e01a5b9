//! `alara models rm`: removes files from the hub's cache.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use alara_models::cache::{Cache, INCOMPLETE};
use alara_models::catalog::{find, meant};
use alara_models::name::{HubName, Wanted, parts};
use alara_models::pull::wanted;
use alara_models::{local, ollama};
use anyhow::{Context, bail, ensure};

use crate::model_file::is_shipped_name;
use crate::screen::one_line;
use crate::{config, ui};

/// Remove models, and remains of their unfinished downloads, from Hugging Face's cache
#[derive(clap::Args)]
pub struct Args {
    /// A name from `alara models list`
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Don't ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let cache = local::cache()?;
    let models = args.names.iter().map(|name| belongings(&cache, name)).collect::<Result<Vec<_>, _>>()?;
    for (repository, paths) in models {
        ui::note(&format!("of {repository}, below {}:", cache.folder(&repository).display()));
        let mut sum = 0;
        for path in &paths {
            let about = path.symlink_metadata();
            let bytes = about.as_ref().map_or(0, |about| if about.is_symlink() { 0 } else { about.len() });
            sum += bytes;
            let inside = path.strip_prefix(cache.folder(&repository)).unwrap_or(path);
            let kind = match about.is_ok_and(|about| about.is_symlink()) {
                true => "link".to_owned(),
                false if path.extension().is_some_and(|ending| ending == INCOMPLETE) => {
                    format!("{}, unfinished", ui::bytes(bytes))
                }
                false => ui::bytes(bytes),
            };
            ui::note(&format!("  {}  {kind}", one_line(&inside.display().to_string())));
        }
        if !args.yes && !agrees(&format!("remove {}? [y/N] ", ui::bytes(sum)))? {
            ui::note("kept");
            continue;
        }
        cache
            .remove(&repository, &paths)
            .with_context(|| format!("can't remove all of {}", cache.folder(&repository).display()))?;
        ui::note(&format!("removed, {} are free again", ui::bytes(sum)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the model's repository and files.
fn belongings(cache: &Cache, name: &str) -> anyhow::Result<(String, Vec<PathBuf>)> {
    // Resolve the name as `pull` does, unless Ollama has a model with it.
    let is_ollamas = || ollama::folder().is_some_and(|folder| ollama::find(&folder, name).is_some());
    let entry = match find(name)? {
        None if !is_ollamas() => meant(name)?,
        found => found,
    };
    let tag = entry.and_then(|entry| entry.ollama.as_deref()).unwrap_or(name);
    let held = || ollama::find(&ollama::folder()?, tag);
    let hub = match entry {
        Some(entry) => Ok(entry.wanted()),
        None => name.parse::<HubName>(),
    };
    let files = |hub: &HubName| -> Vec<String> {
        let cached = || cache.files().into_iter().filter(|cached| cached.repository == hub.repository);
        match &hub.wanted {
            Wanted::File(file) => {
                let beside = entry.map(|entry| entry.beside.clone()).unwrap_or_default();
                [parts(file), beside].concat()
            }
            Wanted::Quantization(quantization) => {
                let quantization = quantization.to_lowercase();
                cached()
                    .map(|own| own.file)
                    .filter(|file| file.to_lowercase().contains(&quantization))
                    .collect()
            }
            Wanted::Any => cached().map(|own| own.file).collect(),
        }
    };
    let paths = hub.as_ref().map(|hub| cache.belongings(&hub.repository, &files(hub))).unwrap_or_default();
    match (hub, held()) {
        (Ok(hub), _) if !paths.is_empty() => Ok((hub.repository, paths)),
        (_, Some(held)) => {
            bail!("{} belongs to Ollama, which alara only reads\nhint: ollama rm {}", held.name, held.name)
        }
        _ if std::path::Path::new(name).exists() => {
            bail!("{name} is a file of yours, which alara does not remove")
        }
        _ if is_shipped_name(name) => bail!("{name} is a part of alara itself: there is no file to remove"),
        // This error suggests similar names.
        (Err(error), None) => Err(wanted(name, config::model_file()).err().unwrap_or(error).into()),
        (Ok(_), None) => bail!(
            "{name} is not in the cache {}\nhint: `alara models list` tells what is here",
            cache.root.display()
        ),
    }
}

fn agrees(question: &str) -> anyhow::Result<bool> {
    ensure!(std::io::stdin().is_terminal(), "nothing is removed without a yes\nhint: --yes");
    ui::piece(question);
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
