//! The `alara` binary: arguments, terminal output and exit codes.
//! One file a command.

mod agent;
mod ask;
mod cache;
mod catalog;
mod commands;
mod compute;
mod consent;
mod device;
mod first_words;
mod gpu;
mod input;
mod markdown;
mod memory;
mod model;
mod progress;
mod state;
mod ui;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Run agents on local models, fully offline.
#[derive(Parser)]
#[command(name = "alara", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Args),
    Chat(commands::chat::Args),
    Serve(commands::serve::Args),
    Init(commands::init::Args),
    Check(commands::check::Args),
    Bench(commands::bench::Args),
    Report(commands::report::Args),
    Models(commands::models::Args),
    Trace(commands::trace::Args),
    Cache(commands::cache::Args),
    Warm(commands::warm::Args),
    Doctor(commands::doctor::Args),
    Debug(commands::debug::Args),
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
    let outcome = match cli.command {
        Command::Run(args) => commands::run::run(&args),
        Command::Chat(args) => commands::chat::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Init(args) => commands::init::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Models(args) => commands::models::run(&args),
        Command::Trace(args) => commands::trace::run(&args),
        Command::Cache(args) => commands::cache::run(&args),
        Command::Warm(args) => commands::warm::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Debug(args) => commands::debug::run(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => ui::report(&error),
    }
}

/// The sandbox starts its launcher without the environment and behind the walls, where this build
/// may not find CUDA's libraries.
/// The CPU's build, which lies beside it, needs none.
#[cfg(feature = "cuda")]
fn launch_with_the_other_build() {
    if let Ok(other) = std::env::current_exe().map(|own| own.with_file_name("alara"))
        && other.is_file()
    {
        alara_harness::sandbox::launch_with(&other);
    }
}
