//! The `alara` binary: arguments, terminal output and exit codes.
//! One file a command.

mod advice;
mod agent;
mod ask;
mod cache;
mod catalog;
mod commands;
mod compute;
mod consent;
mod device;
mod diff;
mod earlier;
mod facts;
mod first_words;
mod gpu;
mod input;
mod markdown;
mod memory;
mod model;
mod model_file;
mod progress;
mod state;
mod traces;
mod ui;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

/// Run agents on local models, fully offline.
#[derive(Parser)]
#[command(name = "alara", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

/// The names of all commands.
fn command_names() -> Vec<String> {
    let command = Cli::command();
    let names = command.get_subcommands().map(|command| command.get_name().to_owned());
    names.chain(["help".to_owned()]).collect()
}

fn main() -> ExitCode {
    #[cfg(feature = "cuda")]
    launch_with_the_other_build();
    alara_harness::sandbox::enter();
    let cli = Cli::parse();
    match cli.command.run() {
        Ok(code) => code,
        Err(error) => ui::report(&error),
    }
}

/// The sandbox starts its launcher isolated and without the environment, where this build may not
/// find CUDA's libraries.
/// The CPU's build, which lies beside it, needs none.
#[cfg(feature = "cuda")]
fn launch_with_the_other_build() {
    if let Ok(other) = std::env::current_exe().map(|own| own.with_file_name("alara"))
        && other.is_file()
    {
        alara_harness::sandbox::launch_with(&other);
    }
}
