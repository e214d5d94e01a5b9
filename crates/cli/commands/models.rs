//! `alara models`: model files.

mod contents;
mod show;

use std::process::ExitCode;

/// Look at model files
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Show(show::Args),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Show(args) => show::run(args),
    }
}
