//! `alara models pull`: downloads models from the hub.

use std::process::ExitCode;

use alara_models::catalog::find;
use alara_models::hub::Hub;
use alara_models::name::HubName;
use alara_models::pull::{Watcher, pull, wanted};
use alara_models::{Entry, local};
use anyhow::bail;

use crate::agent::INTERRUPTED;
use crate::model_file::is_shipped_name;
use crate::{config, interrupt, ui};

/// Download models from Hugging Face into its cache, which other tools share
///
/// Resumes interrupted downloads.
/// HF_ENDPOINT names another hub, HF_HOME or HF_HUB_CACHE the cache, HF_TOKEN an account;
/// HF_HUB_OFFLINE=1 disables the network.
#[derive(clap::Args)]
pub struct Args {
    /// A name from `alara models list`, the URL of a file, or hf:OWNER/NAME for any repository,
    /// optionally followed by :Q6_K or :FILE.gguf.
    /// By default it downloads the Q4_K_M file, or the nearest to it; the prefix may also be hf.co/
    /// or absent
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let cache = local::cache()?;
    if let Some(name) = args.names.iter().find(|name| is_shipped_name(name)) {
        bail!("{name} ships with alara, so nothing is to be downloaded\nhint: -m {name}");
    }
    let names: Vec<(&String, (Option<&Entry>, HubName))> = args
        .names
        .iter()
        .map(|name| Ok((name, wanted(name, config::model_file())?)))
        .collect::<anyhow::Result<_>>()?;
    for (name, entry) in names.iter().filter_map(|(name, (entry, _))| Some((name, (*entry)?))) {
        if find(name)?.is_none() {
            ui::note(&format!("{name} is taken as {}: {}, {}", entry.name, entry.title, entry.file));
        }
    }
    // Everything received has been written by then, whatever it waits for.
    interrupt::does(|| {
        ui::note("interrupted; the same command goes on where the download stopped");
        std::process::exit(INTERRUPTED.into());
    })?;
    for (name, (entry, wanted)) in names {
        let mut display = Display { bar: None, name: String::new() };
        let path = pull(&cache, Hub::from_env()?, &wanted, entry, &mut display)?;
        if display.name.is_empty() {
            ui::note(&format!("{name} is here already"));
        }
        ui::line(&path.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}

/// A bar on stderr for each file, or lines if stderr is not a terminal.
struct Display {
    bar: Option<ui::Bar>,
    name: String,
}

impl Watcher for Display {
    fn note(&mut self, text: &str) {
        ui::note(text);
    }

    fn begin(&mut self, file: &str, size: Option<u64>, _: Option<&str>) {
        let shown = size.map_or_else(String::new, |size| format!(" ({})", ui::bytes(size)));
        ui::note(&format!("downloading {file}{shown}"));
        file.clone_into(&mut self.name);
        self.bar = Some(ui::bar(size));
    }

    fn at(&mut self, bytes: u64) -> bool {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
        true
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        ui::note(&format!("downloaded {}", self.name));
    }
}
