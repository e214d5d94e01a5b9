//! `alara bench tasks`: an agent works through a suite. The table goes to stdout, progress to stderr.

use std::io::IsTerminal;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use alara_bench::place::Ground;
use alara_bench::record::{Finished, Header, Machine, Named, Verdict, now};
use alara_bench::run_file::{self, RunFile};
use alara_bench::runner::{self, Progress, Solver};
use alara_bench::stats::{self, Table};
use alara_bench::{Suite, Task};
use alara_engine::Sampling;
use alara_harness::model::endpoint::Address;
use alara_harness::sandbox::{Isolation, enforced};
use alara_harness::{ChatModel, Npc, Team, agent};
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::{model, ui};

/// The exit code of a program that an interrupt ended, as shells count.
const INTERRUPTED: u8 = 130;

/// Let an agent work through a suite of tasks
///
/// Each task runs in folders of its own, behind the sandbox; after each attempt its verification decides, and what that
/// says is the feedback for the next attempt. Exit code 0: the run came to its end, however much was solved, 2: wrong
/// usage, 130: interrupted.
#[derive(clap::Args)]
pub struct Args {
    /// A folder of task files, one .yaml file, or a .csv file [default: the suite that ships]
    #[arg(value_name = "SUITE")]
    suite: Option<PathBuf>,
    #[command(flatten)]
    model: model::Args,
    /// A team's directory, or the name of a team [default: the built-in team alara]
    #[arg(short, long)]
    team: Option<String>,
    /// The NPC that works on the tasks [default: the team's forenpc]
    #[arg(short, long)]
    npc: Option<String>,
    /// Only tasks of these categories
    #[arg(short, long, value_name = "NAME", num_args = 1..)]
    category: Vec<String>,
    /// Only tasks with these ids
    #[arg(long, value_name = "ID", num_args = 1..)]
    task: Vec<String>,
    /// Most attempts a task
    #[arg(long, default_value = "5", value_name = "N")]
    attempts: NonZeroU32,
    /// Most seconds a task, for all its attempts together
    #[arg(long, default_value = "360", value_name = "SECONDS")]
    timeout: NonZeroU64,
    /// From which the seeds of all random draws are derived
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How daring the draws are; 0 always takes the most likely token
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// How daring the draws of later attempts are at least: the most likely mistake would only be repeated
    #[arg(long, default_value_t = 1.0)]
    retry_temperature: f32,
    /// How many tasks run at a time
    #[arg(long, default_value = "1", value_name = "N")]
    parallel: NonZeroUsize,
    /// Where to write the run, one JSON record a line; the traces lie beside it [default: runs/DATE-TIME.jsonl]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Go on with a run that was interrupted; the other arguments must be the same
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    resume: Option<PathBuf>,
    /// Print the table as one JSON object
    #[arg(long)]
    json: bool,
    /// List the tasks and the suite's hash, and run nothing
    #[arg(long)]
    list: bool,
    /// Play the tasks' own gold solutions instead of asking a model: a test of the suite
    #[arg(long, conflicts_with_all = ["model", "team", "npc", "list"])]
    gold: bool,
}

/// Who works: what an agent borrows from.
struct Crew {
    team: Team,
    npc: Npc,
    /// `None` = the gold solutions.
    model: Option<Arc<dyn ChatModel>>,
    /// The model's name and its file's hash.
    named: Named,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    for temperature in [args.temperature, args.retry_temperature] {
        if !temperature.is_finite() || temperature < 0.0 {
            bail!("a temperature is a number from 0 up, not {temperature}");
        }
    }
    let suite = args.suite.as_deref().map_or_else(Suite::stock, Suite::load)?;
    let tasks = suite.select(&args.category, &args.task)?;
    if args.list {
        list(args, &suite, &tasks);
        return Ok(ExitCode::SUCCESS);
    }
    if args.gold {
        runner::require_gold(&tasks)?;
    }
    let crew = crew(args, &suite)?;
    let header = header(args, &suite, &tasks, &crew)?;
    let solver = Solver {
        team: &crew.team,
        npc: &crew.npc,
        model: crew.model.as_deref(),
        sampling: header.sampling.clone(),
    };
    let (file, before) = match &args.resume {
        Some(path) => {
            let (file, run) = RunFile::resume(path, &header)?;
            (file, run.finished)
        }
        None => {
            let path = args.out.clone().unwrap_or_else(run_file::default_path);
            let file =
                RunFile::create(&path, header).context("can't start the run (--out names another file)")?;
            (file, Vec::new())
        }
    };
    let path = file.path().to_owned();
    let left: Vec<&Task> =
        tasks.iter().copied().filter(|task| before.iter().all(|done| done.task != task.id)).collect();
    let ended = work(args, &left, &solver, file, &Display::new(tasks.len(), &before))?;
    if !ended {
        ui::note(&format!("interrupted; go on with: {}", resume_command(&path)));
        return Ok(INTERRUPTED.into());
    }
    report(args, &path)?;
    Ok(ExitCode::SUCCESS)
}

fn work(
    args: &Args,
    tasks: &[&Task],
    solver: &Solver,
    file: RunFile,
    display: &Display,
) -> anyhow::Result<bool> {
    if let Some(warning) = enforced().warning() {
        ui::note(&format!("warning: {warning}"));
    }
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = cancel.clone();
    // The first interrupt ends the run cleanly, the second at once.
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    })
    .context("can't catch interrupts")?;
    let ground = Ground::claim(&std::env::temp_dir())?;
    let observer = |progress: Progress| display.show(&progress);
    let options = runner::Options {
        attempts: args.attempts.get(),
        timeout: Duration::from_secs(args.timeout.get()),
        seed: args.seed,
        retry_temperature: args.retry_temperature,
        parallel: args.parallel.get(),
        isolation: Isolation::Auto,
        cancel,
        observer: &observer,
    };
    let ended = runner::run(tasks, solver, &options, &ground, file)?;
    display.clear();
    Ok(ended)
}

fn crew(args: &Args, suite: &Suite) -> anyhow::Result<Crew> {
    let mut team = match &args.team {
        Some(name) => crate::agent::find(Some(name), false)?,
        None => crate::agent::built_in()?,
    };
    suite.furnish(&mut team);
    let npc = team.npc(args.npc.as_deref())?.clone();
    if args.gold {
        let named = Named { name: "gold".into(), hash: String::new() };
        return Ok(Crew { team, npc, model: None, named });
    }
    let model = args.model.load(npc.model.model.as_deref(), args.parallel.get())?;
    let wanted = args.model.model.as_deref().or(npc.model.model.as_deref());
    let file = |name: &str| match name.strip_prefix("script:") {
        Some(script) => Ok(script.into()),
        None => model::path(name),
    };
    let named = match wanted {
        Some(name) if Address::is_meant_by(name) => {
            Named { name: model.name().to_owned(), hash: String::new() }
        }
        Some(name) => {
            let file = file(name)?;
            Named::of_file(model.name(), &file)
                .with_context(|| format!("can't read the model {}", file.display()))?
        }
        None => Named::of(model::SHIPPED_NAME, model::shipped_bytes()),
    };
    Ok(Crew { team, npc, model: Some(model), named })
}

fn header(args: &Args, suite: &Suite, tasks: &[&Task], crew: &Crew) -> anyhow::Result<Header> {
    let Crew { team, npc, model, named } = crew;
    let told = serde_json::to_vec(&(agent::system(team, npc), agent::tools(team, npc)))?;
    Ok(Header {
        suite: Named { name: suite.name.clone(), hash: suite.hash.clone() },
        model: named.clone(),
        engine: if model.is_some() { args.model.record() } else { json!({}) },
        team: Named::of(&team.name, &told),
        npc: npc.name.clone(),
        sampling: Sampling { seed: args.seed, temperature: args.temperature, ..Sampling::default() },
        retry_temperature: args.retry_temperature,
        attempts: args.attempts.get(),
        timeout: args.timeout.get(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: Machine::this(),
        tasks: tasks.iter().map(|task| task.id.clone()).collect(),
        started: now(),
    })
}

fn list(args: &Args, suite: &Suite, tasks: &[&Task]) {
    if args.json {
        ui::line(&json!({"name": suite.name, "hash": suite.hash, "tasks": tasks}).to_string());
        return;
    }
    ui::line(&format!("suite {}, {} tasks, hash {}", suite.name, suite.tasks.len(), suite.hash));
    let width = tasks.iter().map(|task| task.id.len()).max().unwrap_or(0);
    for task in tasks {
        let (id, difficulty) = (&task.id, task.difficulty.to_string());
        let line = task.instruction.trim().lines().next().unwrap_or_default();
        ui::line(&format!("{id:width$}  {difficulty:6}  {line}"));
    }
}

fn report(args: &Args, path: &Path) -> anyhow::Result<()> {
    let run = run_file::read(path)?;
    let table = stats::table([&run]);
    if args.json {
        let mut report = serde_json::to_value(&table)?;
        report["suite"] = json!(run.header.suite);
        report["model"] = json!(run.header.model);
        report["file"] = json!(path);
        ui::line(&report.to_string());
    } else {
        ui::table(&Table::COLUMNS, table.rows());
    }
    ui::note(&format!("run file {}", path.display()));
    Ok(())
}

/// The command of this process, going on with `path`.
fn resume_command(path: &Path) -> String {
    let mut words: Vec<String> = std::env::args().collect();
    for (flag, values) in [("--out", 1), ("--resume", 1)] {
        if let Some(at) = words.iter().position(|word| word == flag) {
            words.drain(at..(at + 1 + values).min(words.len()));
        }
        words.retain(|word| !word.starts_with(&format!("{flag}=")));
    }
    words.extend(["--resume".to_owned(), path.display().to_string()]);
    let quoted =
        words.iter().map(|word| match word.contains(|c: char| c.is_whitespace() || "'\"$&;".contains(c)) {
            true => format!("'{}'", word.replace('\'', r"'\''")),
            false => word.clone(),
        });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Progress: a bar at a terminal, a line a task elsewhere.
struct Display {
    bar: Option<ProgressBar>,
    total: u64,
    done: AtomicU64,
    solved: AtomicU64,
}

impl Display {
    fn new(total: usize, before: &[Finished]) -> Self {
        let solved = before.iter().filter(|done| done.verdict == Verdict::Solved).count();
        let (total, done) = (total as u64, before.len() as u64);
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {elapsed}  {wide_msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(total).with_style(style).with_position(done);
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Display { bar, total, done: done.into(), solved: AtomicU64::new(solved as u64) }
    }

    fn show(&self, progress: &Progress) {
        match progress {
            Progress::Attempt { task, number } => {
                let solved = self.solved.load(Ordering::Relaxed);
                if let Some(bar) = &self.bar {
                    bar.set_message(format!("{}, attempt {number}; {solved} solved so far", task.id));
                }
            }
            Progress::Finished(finished) => {
                if finished.verdict == Verdict::Solved {
                    self.solved.fetch_add(1, Ordering::Relaxed);
                }
                let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
                let width = self.total.to_string().len();
                let line = format!("{done:width$}/{}  {}", self.total, line(finished));
                match &self.bar {
                    Some(bar) => {
                        bar.println(line);
                        bar.set_position(done);
                    }
                    None => ui::note(&line),
                }
            }
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A finished task in one line.
fn line(finished: &Finished) -> String {
    let attempts = match finished.attempts {
        1 => "1 attempt".to_owned(),
        attempts => format!("{attempts} attempts"),
    };
    let reason = finished.reason.lines().next().unwrap_or_default();
    let reason = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(160).collect::<String>();
    let head = format!(
        "{:16} {:6}  {attempts}, {:.1} s",
        finished.task,
        finished.verdict.to_string(),
        finished.seconds
    );
    if reason.is_empty() { head } else { format!("{head}  {reason}") }
}
