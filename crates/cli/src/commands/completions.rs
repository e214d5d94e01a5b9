//! `alara completions`: what a shell needs to complete arguments, and the answers when it asks.

use std::ffi::OsStr;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};

use crate::{catalog, ui};

/// The variable by which a shell's script asks for completions.
const ASKED: &str = "ALARA_COMPLETE";

/// Arguments that take names of models.
const MODELS: [&str; 3] = ["model", "user_model", "names"];

/// Print a script that lets a shell complete commands, options and names of models
///
/// Load it where the shell starts: `source <(alara completions bash)` in ~/.bashrc or ~/.zshrc,
/// `alara completions fish | source` in ~/.config/fish/config.fish.
/// The script asks `alara` for what fits, so it stays right when alara is updated.
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
    Elvish,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
        Shell::Powershell => &Powershell,
        Shell::Elvish => &Elvish,
    };
    let mut script = Vec::new();
    shell
        .write_registration(ASKED, "alara", "alara", "alara", &mut script)
        .context("can't make the script")?;
    ui::text(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

/// Answers a shell that asks what fits, and ends the program then.
pub fn answer_shell(command: fn() -> Command) {
    CompleteEnv::with_factory(|| with_models(command())).var(ASKED).complete();
}

/// `command`, whose arguments that take a model complete the catalog's names, and paths.
fn with_models(command: Command) -> Command {
    let models = |arg: clap::Arg| match MODELS.iter().any(|id| arg.get_id() == id) {
        true => arg.add(ArgValueCompleter::new(models)),
        false => arg,
    };
    command.mut_args(models).mut_subcommands(with_models)
}

fn models(current: &OsStr) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    // Who completes does not read errors.
    let entries = catalog::entries().unwrap_or_default();
    let known = entries.iter().filter(|entry| entry.name.starts_with(&*begun));
    let known =
        known.map(|entry| CompletionCandidate::new(&entry.name).help(Some(entry.title.clone().into())));
    known.chain(PathCompleter::any().complete(current)).collect()
}
