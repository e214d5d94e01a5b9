//! `alara man`: writes the help of all commands as manual pages.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use crate::ui;

/// Write the help of all commands as manual pages: alara.1, alara-run.1 and so on
///
/// View one with `man -l DIR/alara-run.1`; pages in a man1 folder of MANPATH are found by name.
#[derive(clap::Args)]
pub struct Args {
    /// Output folder, created if it doesn't exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let folder = args.directory.display();
    fs::create_dir_all(&args.directory).with_context(|| format!("can't make the folder {folder}"))?;
    clap_mangen::generate_to(crate::command(), &args.directory)
        .with_context(|| format!("can't write manual pages into {folder}"))?;
    ui::note(&format!("the manual pages are in {folder}; `man -l {folder}/alara.1` shows the first"));
    Ok(ExitCode::SUCCESS)
}
