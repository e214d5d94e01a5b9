//! `alara bench`: task suites, speed, the prefix cache and drafts.

mod drafts;
mod prefix;
mod speed;
mod tasks;

use std::process::ExitCode;

/// Benchmark agents on tasks, models on speed, the prefix cache and drafts
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Tasks(Box<tasks::Args>),
    Speed(speed::Args),
    Prefix(prefix::Args),
    Drafts(drafts::Args),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Tasks(args) => tasks::run(args),
        Command::Speed(args) => speed::run(args),
        Command::Prefix(args) => prefix::run(args),
        Command::Drafts(args) => drafts::run(args),
    }
}
