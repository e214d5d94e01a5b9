//! The `alara` binary: arguments, terminal output and exit codes.
//! One file per command.

mod advice;
mod agent;
mod ask;
mod attach;
mod cache;
mod commands;
mod compute;
mod config;
mod consent;
mod device;
mod diff;
mod earlier;
mod facts;
mod first_words;
mod fold;
mod gpu;
mod input;
mod interrupt;
mod markdown;
mod model;
mod model_file;
mod progress;
mod prompts;
mod screen;
mod state;
mod traces;
mod tuned;
mod ui;
mod view;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};

/// Run agents on local models, fully offline.
#[derive(Parser)]
#[command(name = "alara", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

/// Returns the command line's definition, with all commands and their arguments.
fn command() -> clap::Command {
    Cli::command()
}

fn command_names() -> Vec<String> {
    let command = command();
    let names = command.get_subcommands().map(|command| command.get_name().to_owned());
    names.chain(["help".to_owned()]).collect()
}

fn main() -> ExitCode {
    #[cfg(feature = "cuda")]
    launch_with_the_other_build();
    alara_harness::sandbox::enter();
    commands::answer_shell(command);
    ui::report_panics();
    let as_json = is_json();
    let failed = |error: &anyhow::Error| {
        if as_json {
            ui::line(&ui::error_object(error).to_string());
        }
        ui::report(error)
    };
    let settings = config::load();
    let matches = config::with_defaults(command()).try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let error = suggesting(error);
            if as_json && error.use_stderr() {
                let text = error.render().to_string();
                let message = text.trim_end().trim_start_matches("error: ");
                ui::line(&ui::error_object(&anyhow::anyhow!(message.to_owned())).to_string());
            }
            return ui::usage(&error);
        }
    };
    // Broken settings must not prevent `--help`, `--version`, or repairing the settings.
    if let (Err(error), false) = (&settings, matches!(cli.command, commands::Command::Config(_))) {
        return failed(error);
    }
    match cli.command.run() {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

/// Whether the command line asks for JSON with an option that its command has.
fn is_json() -> bool {
    let root = command();
    let asked = named(&root);
    let has = |name: &str| asked.get_arguments().any(|argument| argument.get_long() == Some(name));
    let words = std::env::args_os().skip(1).take_while(|word| word != "--");
    let options = words.filter_map(|word| Some(word.to_str()?.strip_prefix("--")?.to_owned()));
    options.into_iter().any(|name| matches!(&*name, "json" | "json-stream") && has(&name))
}

/// Returns the command that the command line names.
fn named(root: &clap::Command) -> &clap::Command {
    let words = std::env::args_os().skip(1);
    words.fold(root, |command, word| command.find_subcommand(word).unwrap_or(command))
}

/// Whether any command has an option, written as `--name`.
fn is_option(command: &clap::Command, word: &str) -> bool {
    let name = word.strip_prefix("--");
    command.get_arguments().any(|argument| name.is_some() && argument.get_long() == name)
        || command.get_subcommands().any(|command| is_option(command, word))
}

/// Adds a suggestion for a mistyped command to the error.
/// Clap doesn't recognize transposed letters in short names.
fn suggesting(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::InvalidUtf8 {
        return not_utf8(&error);
    }
    // An option of another command is hardly meant as a value, as in `-- --json`.
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg)
        && is_option(&command(), word)
        && let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested)
    {
        tips.retain(|tip| !tip.to_string().contains(" as a value, use "));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let typed = typed.clone();
    let root = Cli::command();
    let names = named(&root).get_subcommands().map(clap::Command::get_name);
    let meant = match alara_engine::nearest(&typed, names) {
        Some(near) => near.to_owned(),
        // A sentence is a task.
        None if typed.trim().contains(char::is_whitespace) => format!("run \"{}\"", typed.trim()),
        None => return error,
    };
    error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
    error
}

/// Adds the arguments that may have caused the error, which clap doesn't name.
fn not_utf8(error: &clap::Error) -> clap::Error {
    let words = std::env::args_os().skip(1).filter(|word| word.to_str().is_none());
    let words: Vec<String> = words.map(|word| format!("`{}`", word.display())).collect();
    let told = format!(
        "not UTF-8 text: {}{}rename the file, or name it by a link whose name is such text\n",
        words.join(", "),
        ui::HINT
    );
    command().error(error.kind(), told)
}

/// Launches the CPU build if it is installed next to this one.
/// The sandbox starts its launcher isolated and with an empty environment, where this build may not
/// find CUDA's libraries; the CPU build needs none.
#[cfg(feature = "cuda")]
fn launch_with_the_other_build() {
    if let Ok(other) = std::env::current_exe().map(|own| own.with_file_name("alara"))
        && other.is_file()
    {
        alara_harness::sandbox::launch_with(&other);
    }
}
