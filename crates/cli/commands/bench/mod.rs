//! `alara bench`: task suites, speed and the prefix cache.

mod prefix;
mod speed;
mod tasks;

use std::process::ExitCode;

/// Benchmark agents on tasks, models on speed, and the prefix cache
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
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Tasks(args) => tasks::run(args),
        Command::Speed(args) => speed::run(args),
        Command::Prefix(args) => prefix::run(args),
    }
}
