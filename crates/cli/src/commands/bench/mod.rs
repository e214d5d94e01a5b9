//! `alara bench`: task suites, speed, the prefix cache and drafts.

mod drafts;
mod prefix;
mod speed;
pub mod tasks;

use std::process::ExitCode;

/// Benchmark agents on tasks, models on speed, the prefix cache and drafts
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

subcommands! {
    Tasks(tasks::Args) => tasks::run,
    Speed(speed::Args) => speed::run,
    Prefix(prefix::Args) => prefix::run,
    Drafts(drafts::Args) => drafts::run,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.command.run()
}
