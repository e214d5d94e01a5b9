//! `alara models`: model files.

mod contents;
mod known;
mod list;
mod pull;
mod recommendation;
mod rm;
mod show;
mod verify;

use std::process::ExitCode;

pub use contents::Contents;

/// Find, download and inspect model files
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

/// Formats a number with its metric prefix: 7.6 B.
fn count(number: u64) -> String {
    let letters = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")];
    match letters.into_iter().find(|(unit, _)| number as f64 >= *unit) {
        Some((unit, letter)) => format!("{:.1} {letter}", number as f64 / unit),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        assert_eq!((count(999), count(7_600_000_000)), ("999".to_owned(), "7.6 B".to_owned()));
    }
}
