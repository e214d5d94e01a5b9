//! `alara check`: finds problems in a team or a jinx without running anything.

mod connect;
mod models;
mod suite;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use alara_harness::scratch::Scratch;
use alara_harness::skill;
use alara_harness::team::check_jinx;
use alara_harness::{Caller, Diagnostic, Policy, Sandbox, Scripted, Session, Severity, Single, Team, tool};
use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::json;

use crate::agent::{INTERRUPTED, team_around, team_in};
use crate::progress::count;
use crate::screen::{BOLD, PLAIN, RED, YELLOW, printable};
use crate::{state, ui};

/// Check a team, a jinx, a task suite or a sweep without running anything
///
/// Prints every problem with its file, line and column.
/// Exit code 0: no errors, 1: errors, 2: nothing to check there.
#[derive(clap::Args)]
pub struct Args {
    /// A team's directory, the name of a built-in team, or a .jinx, .npc or .gate file.
    /// Also a folder of task files, a task's .yaml or .csv file, or a .bench file
    #[arg(value_name = "PATH")]
    path: String,
    /// Print the problems as one JSON object
    #[arg(long)]
    json: bool,
    /// Has no effect: steps run exactly as written
    #[arg(long, hide = true)]
    explain: bool,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// Run the tests in jinx files, each in an empty directory.
    /// For a task suite, run each task's check with nothing done, which must fail, and after the
    /// gold solution, which must pass
    #[arg(long, conflicts_with_all = ["json", "compiled"])]
    tests: bool,
    /// Start the MCP servers that the files name, and print the tools that they offer
    #[arg(long, conflicts_with_all = ["json", "compiled"])]
    connect: bool,
    /// Print the compiled form as JSON; problems go to stderr
    #[arg(long, conflicts_with = "json")]
    compiled: bool,
}

/// The target of the check: a team, or one file of it.
struct Target {
    team: Team,
    file: Option<PathBuf>,
}

/// The results of the check.
#[derive(Serialize)]
struct Report {
    problems: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = Path::new(&args.path);
    if let Some(mut problems) = suite::problems(path)? {
        if args.explain || args.connect || args.compiled {
            bail!("--explain, --connect and --compiled are for teams and jinxes; {} is none", args.path);
        }
        if args.tests && suite::is_sweep(path) {
            bail!("--tests is for suites, teams and jinxes; {} is a sweep: name its suite", args.path);
        }
        if args.tests {
            for found in [suite::idle(path)?, suite::wrong_gold(path)?] {
                match found {
                    Some(found) => problems.extend(found),
                    None => return Ok(INTERRUPTED.into()),
                }
            }
        }
        let report = Report::of(problems);
        report.show(args, ui::line)?;
        return Ok(report.verdict(args, 0));
    }
    let target = match Target::find(&args.path) {
        Ok(target) => target,
        // A team without a usable NPC still has problems to report.
        Err(error) => {
            let report = Report::of(problems_of(path));
            if report.errors == 0 {
                return Err(error);
            }
            report.show(args, if args.compiled { ui::note } else { ui::line })?;
            return Ok(report.verdict(args, 0));
        }
    };
    let problems = target.team.check().into_iter().chain(models::problems(&target.team));
    let problems: Vec<Diagnostic> = problems.filter(|problem| target.means(&problem.path)).collect();
    let report = Report::of(problems);
    report.show(args, if args.compiled { ui::note } else { ui::line })?;
    if args.compiled {
        ui::line(&target.compiled()?);
    }
    let mut failed = if args.tests { target.try_jinxes()? } else { 0 };
    if args.connect {
        failed += connect::run(&target.team)?;
    }
    Ok(report.verdict(args, failed))
}

/// Returns the problems in a team that can't be loaded, or in one of its files.
fn problems_of(path: &Path) -> Vec<Diagnostic> {
    let parent = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = if path.is_file() { parent } else { path };
    let mut problems = folder.to_str().map_or_else(Vec::new, |name| state::search().problems(name));
    if let Some(file) = path.canonicalize().ok().filter(|file| file.is_file()) {
        problems.retain(|problem| problem.path.canonicalize().is_ok_and(|path| path == file));
    }
    problems
}

impl Target {
    /// Finds the target that the user named.
    /// A file that belongs to a team is checked as part of it.
    fn find(name: &str) -> anyhow::Result<Self> {
        let path = Path::new(name);
        let ending = path.extension().and_then(|ending| ending.to_str());
        // Of a team's other files, these can be distinguished from those of a task suite.
        if matches!(ending, Some("npc" | "ctx" | "gate"))
            || path.file_name().is_some_and(|file| file == "permissions.yaml")
        {
            let team = team_in(path.parent().unwrap_or(path))?;
            return Ok(Target {
                team,
                file: Some(path.canonicalize().with_context(|| format!("can't read {name}"))?),
            });
        }
        if ending != Some("jinx") && !skill::is_file(path) {
            return Ok(Target { team: state::search().team(Some(name))?, file: None });
        }
        let file = path.canonicalize().with_context(|| format!("can't read {name}"))?;
        if let Some(team) = team_around(path).or_else(|| team_around(&file)) {
            return Ok(Target { team, file: Some(file) });
        }
        // On its own, a jinx may call the built-in ones and the user's.
        let mut team = state::search().team(Some("alara"))?;
        let mut problems = Vec::new();
        if let Some(jinx) = check_jinx(path, &mut problems)? {
            team.jinxes.retain(|other| other.name != jinx.name);
            team.jinxes.push(jinx);
        }
        team.diagnostics = problems;
        Ok(Target { team, file: Some(file) })
    }

    /// Runs the tests of the jinxes without a model.
    /// Returns the number of failures.
    fn try_jinxes(&self) -> anyhow::Result<usize> {
        let (mut passed, mut failed) = (0, 0);
        // Don't give keys to a stranger's files that are only being checked.
        let mut team = self.team.clone();
        team.jinxes.iter_mut().filter(|jinx| !jinx.trusted).for_each(|jinx| jinx.env.clear());
        for jinx in team.jinxes.iter().filter(|jinx| self.means(&jinx.path)) {
            for test in &jinx.tests {
                let work = Scratch::claim(&std::env::temp_dir())?;
                let readable = self.team.directory.iter().cloned().collect();
                let sandbox = Sandbox::new(work.path(), Policy { readable, ..Policy::default() })?;
                let nobody = Scripted::default();
                let source = Single(&nobody);
                let session = Session::new(&source, &sandbox);
                let begun = Instant::now();
                let caller = Caller::person(&session, &team);
                let result = tool::call(&caller, jinx, &test.inputs, &jinx.name)?;
                let problems = test.judge(&result, begun.elapsed());
                if problems.is_empty() {
                    passed += 1;
                } else {
                    failed += 1;
                }
                for problem in problems {
                    ui::line(&format!("{}: test {}: {problem}", jinx.path.display(), test.id));
                }
            }
        }
        ui::line(&format!("{} passed, {failed} failed", count(passed, "test")));
        Ok(failed)
    }

    /// Whether to check a file.
    fn means(&self, path: &Path) -> bool {
        self.file.as_ref().is_none_or(|file| path.canonicalize().is_ok_and(|path| path == *file))
    }

    /// Returns the compiled form of the team, or of the file, that a run would use.
    /// Stable: the same files give the same text.
    fn compiled(&self) -> anyhow::Result<String> {
        let npc = self.team.npcs.iter().find(|npc| self.file.is_some() && self.means(&npc.path));
        let jinx = self.team.jinxes.iter().find(|jinx| self.file.is_some() && self.means(&jinx.path));
        Ok(match (npc, jinx, &self.file) {
            (Some(npc), ..) => serde_json::to_string_pretty(npc)?,
            (_, Some(jinx), _) => serde_json::to_string_pretty(jinx)?,
            (.., Some(_)) => serde_json::to_string_pretty(&json!(null))?,
            _ => serde_json::to_string_pretty(&self.team)?,
        })
    }
}

impl Report {
    fn of(problems: Vec<Diagnostic>) -> Self {
        let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
        let warnings = problems.len() - errors;
        Report { problems, errors, warnings }
    }

    /// Prints the results in the requested format; for people, by `line`.
    fn show(&self, args: &Args, line: fn(&str)) -> anyhow::Result<()> {
        match args.json {
            true => ui::line(&serde_json::to_string_pretty(self)?),
            false => self.print(line),
        }
        Ok(())
    }

    /// Returns the exit code, given the number of other failures.
    fn verdict(&self, args: &Args, failed: usize) -> ExitCode {
        let bad = self.errors > 0 || (args.strict && self.warnings > 0) || failed > 0;
        ExitCode::from(u8::from(bad))
    }

    fn print(&self, line: fn(&str)) {
        for problem in &self.problems {
            line(&shown(&problem.to_string(), problem.severity, std::io::stdout().is_terminal()));
        }
        let count = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        match (self.errors, self.warnings) {
            (0, 0) => line("no problems"),
            (errors, warnings) => {
                line(&format!("{}, {}", count(errors, "error"), count(warnings, "warning")));
            }
        }
    }
}

/// Formats an error as one line, with its hint in parentheses.
fn one_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    match text.split_once("\nhint: ") {
        Some((what, hint)) => format!("{what} ({hint})"),
        None => text,
    }
}

/// Formats a problem as one line, in colour on a terminal.
fn shown(text: &str, severity: Severity, terminal: bool) -> String {
    let (word, colour) = match severity {
        Severity::Error => (": error: ", RED),
        Severity::Warning => (": warning: ", YELLOW),
    };
    if !terminal {
        return text.to_owned();
    }
    let text = printable(text);
    match text.split_once(word) {
        Some((place, message)) => {
            format!(
                "{BOLD}{place}{PLAIN}: {colour}{}{PLAIN} {message}",
                word.trim_matches([' ', ':']).to_owned() + ":"
            )
        }
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_played_with() {
        let text = "\u{1b}]0;x.jinx:1:1: error: \u{1b}[2J";
        assert_eq!(shown(text, Severity::Error, false), text);
        let expected = "\u{1b}[1m\u{fffd}]0;x.jinx:1:1\u{1b}[0m: \u{1b}[31merror:\u{1b}[0m \u{fffd}[2J";
        assert_eq!(shown(text, Severity::Error, true), expected);
    }
}
