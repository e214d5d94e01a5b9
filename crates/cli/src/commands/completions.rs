//! `alara completions`: shell scripts for completion, and answers to their requests.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use alara_bench::Suite;
use alara_bench::sweep::Sweep;
use alara_harness::team::Search;
use alara_models::catalog;
use anyhow::Context;
use clap::{Command, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};

use crate::progress::shorten;
use crate::screen::one_line;
use crate::{config, state, traces, ui};

/// The environment variable by which a shell's script requests completions.
const ASKED: &str = "ALARA_COMPLETE";

/// The value name of arguments that take traces.
const TRACES: &str = "ID|FILE";

/// Maximum number of traces to offer, the latest first.
const LISTED: usize = 50;

/// Returns candidates for a partly typed value.
type Fitting = fn(&OsStr) -> Vec<CompletionCandidate>;

/// Print a script that lets a shell complete commands, options and names
///
/// Completes the names of models, NPCs, tasks and traces.
/// Load it in your shell's startup file: `source <(alara completions bash)` in ~/.bashrc or
/// ~/.zshrc, `alara completions fish | source` in ~/.config/fish/config.fish.
/// The script asks `alara` for candidates, so it remains correct when alara is updated.
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

/// Answers a shell's completion request, then exits.
pub fn answer_shell(command: fn() -> Command) {
    CompleteEnv::with_factory(|| with_names(command())).var(ASKED).complete();
}

/// Returns `command` with completion of the names of models, NPCs, tasks and traces.
fn with_names(command: Command) -> Command {
    let with_name = |arg: clap::Arg| match fitting(&arg) {
        Some(fitting) => arg.add(ArgValueCompleter::new(fitting)),
        None => arg,
    };
    command.mut_args(with_name).mut_subcommands(with_names)
}

/// Returns how to complete an argument's values, if they are names.
fn fitting(arg: &clap::Arg) -> Option<Fitting> {
    let takes = |value: &str| {
        arg.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == value))
    };
    match (arg.get_id().as_str(), arg.get_long()) {
        ("model" | "user_model" | "names", _) => Some(models),
        ("npc", Some(_)) => Some(npcs),
        // The task of `run` is plain text.
        ("task", Some(_)) => Some(tasks),
        _ if takes(TRACES) => Some(runs),
        _ => None,
    }
}

/// Returns the names in `known` that begin with `current`, each with its description.
/// A shell prints them unchanged, so names that could manipulate a terminal are omitted.
fn begun<'a>(
    current: &OsStr,
    known: impl IntoIterator<Item = (&'a str, String)>,
) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    let fits = |(name, _): &(&str, String)| name.starts_with(&*begun) && one_line(name) == *name;
    let candidate = |(name, about): (&'a str, String)| {
        let about = Some(one_line(&about)).filter(|about| !about.is_empty());
        CompletionCandidate::new(name).help(about.map(Into::into))
    };
    known.into_iter().filter(fits).map(candidate).collect()
}

// Errors would go unnoticed during completion: if something can't be read, offer nothing.

fn models(current: &OsStr) -> Vec<CompletionCandidate> {
    let entries = catalog::entries().unwrap_or_default();
    let known = entries.iter().map(|entry| (entry.name.as_str(), entry.title.clone()));
    begun(current, known).into_iter().chain(PathCompleter::any().complete(current)).collect()
}

/// Returns the NPCs of the team named on the line, else of the one that a run would use.
/// Reads the team's files, and runs nothing in them.
fn npcs(current: &OsStr) -> Vec<CompletionCandidate> {
    let _ = config::load();
    let words = words();
    let workdir = PathBuf::from(value(&words, &["--workdir"]).unwrap_or("."));
    let named = value(&words, &["-t", "--team"]).map(str::to_owned);
    let named = named.or_else(|| config::team(&workdir).map(|(name, _)| name));
    let team = Search { workdir, ..state::search() }.team(named.as_deref());
    let npcs = team.iter().flat_map(|team| &team.npcs);
    begun(current, npcs.map(|npc| (npc.name.as_str(), String::new())))
}

/// Returns the tasks of the suite named right after the command, else of the one that ships.
fn tasks(current: &OsStr) -> Vec<CompletionCandidate> {
    let words = words();
    let behind = words.iter().skip_while(|word| *word != "tasks").nth(1);
    let mut named = behind.map(PathBuf::from).filter(|path| path.exists());
    if let Some(path) = named.take_if(|path| path.extension().is_some_and(|ending| ending == "bench")) {
        named = Sweep::load(&path).ok().and_then(|sweep| sweep.suite);
    }
    let suite = named.as_deref().map_or_else(Suite::stock, Suite::load);
    let tasks = suite.iter().flat_map(|suite| &suite.tasks);
    begun(current, tasks.map(|task| (task.id.as_str(), shorten(task.summary()))))
}

/// Returns the latest traces, and files.
fn runs(current: &OsStr) -> Vec<CompletionCandidate> {
    let latest = traces::latest(LISTED);
    let known = latest.iter().map(|run| (run.id.as_str(), shorten(&run.task)));
    begun(current, known).into_iter().chain(PathCompleter::any().complete(current)).collect()
}

/// Returns the words of the command line, which the shell's script passes after `--`.
fn words() -> Vec<String> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Returns the value of an option, known by any of these names, on a command line.
fn value<'a>(words: &'a [String], names: &[&str]) -> Option<&'a str> {
    let at = |(at, word): (usize, &'a String)| {
        if names.contains(&word.as_str()) {
            return words.get(at + 1).map(String::as_str);
        }
        names.iter().find_map(|name| word.strip_prefix(name)?.strip_prefix('='))
    };
    words.iter().enumerate().find_map(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_line() {
        let check = |line: &str, expected: Option<&str>| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(value(&words, &["-t", "--team"]), expected, "{line}");
        };
        check("alara run -t one -n ", Some("one"));
        check("alara run --team=two -n ", Some("two"));
        check("alara run --teams=two -n ", None);
        check("alara run -t", None);
    }
}
