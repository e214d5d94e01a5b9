//! `alara models`: model files.

mod contents;
mod list;
mod pull;
mod rm;
mod show;
mod verify;

use std::process::ExitCode;

/// Find, download and look at model files
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

subcommands! {
    List(list::Args) => list::run,
    Pull(pull::Args) => pull::run,
    Show(show::Args) => show::run,
    Rm(rm::Args) => rm::run,
    Verify(verify::Args) => verify::run,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.command.run()
}

/// Text from a file must not steer the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
