//! `alara bench`: task suites and speed.

mod speed;
mod tasks;

use std::process::ExitCode;

/// Benchmark agents on tasks, and models on speed
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Tasks(Box<tasks::Args>),
    Speed(speed::Args),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Tasks(args) => tasks::run(args),
        Command::Speed(args) => speed::run(args),
    }
}
