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

#[derive(clap::Subcommand)]
enum Command {
    List(list::Args),
    Pull(pull::Args),
    Show(show::Args),
    Rm(rm::Args),
    Verify(verify::Args),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Pull(args) => pull::run(args),
        Command::Show(args) => show::run(args),
        Command::Rm(args) => rm::run(args),
        Command::Verify(args) => verify::run(args),
    }
}

/// Text from a file must not steer the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
