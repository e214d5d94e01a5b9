//! `alara bench tasks`: runs an agent on a suite of tasks.
//! Prints the table to stdout, progress to stderr.

mod display;
mod plan;
mod resume;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use alara_bench::options::{Options, Player, Progress, Solver};
use alara_bench::policy::RuleOverride;
use alara_bench::price::Price;
use alara_bench::record::{Finished, Header, Named, Verdict};
use alara_bench::run_file::{self, RunFile};
use alara_bench::runner;
use alara_bench::sqlite;
use alara_bench::stats::{self, Table};
use alara_bench::sweep::{Condition, Shard, Sweep, positive};
use alara_bench::task_dir::TaskDirs;
use alara_bench::{Suite, Task};
use alara_harness::ChatModel;
use alara_harness::knowledge::IndexCache;
use alara_harness::model::Tuning;
use alara_harness::sandbox::{Isolation, enforced};
use alara_harness::scratch::Scratch;
use alara_models::shipped;
use anyhow::{Context, bail};
use clap::Parser;
use serde_json::json;

use crate::agent::{self, INTERRUPTED};
use crate::progress::count;
use crate::{cache, model, ui};
use display::Display;
use plan::Job;
use resume::{as_begun, begun_with, own_words, resume_command};

/// Run an agent on a suite of tasks, or models and conditions through a sweep
///
/// Each task runs in its own folders, in the sandbox.
/// After each attempt a check verifies the result; its output is the feedback for the next attempt.
/// A sweep (a .bench file, or several --trials) writes one run file per model, condition and trial.
/// Exit code 0: the run finished, however many tasks were solved, 1: a gold solution failed, 2:
/// wrong usage, or the machine lacks something, 130: interrupted.
#[derive(clap::Args)]
pub struct Args {
    /// A folder of task files, a .yaml or .csv file, or a sweep (a .bench file) [default: the suite
    /// that ships]
    #[arg(value_name = "SUITE")]
    suite: Option<PathBuf>,
    #[command(flatten)]
    model: model::Args,
    #[command(flatten)]
    condition: Condition,
    /// Price of a million tokens: prompt, cached prompt and generated, for the report on dialogues
    /// [default: the sweep's `prices`]
    #[arg(long, value_name = "IN/CACHED/OUT")]
    price: Option<Price>,
    /// Model of users who are NPCs, in tasks that are dialogues [default: the model under test]
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["gold", "junk"])]
    user_model: Option<String>,
    /// Run only tasks of these categories
    #[arg(short, long, value_name = "NAME", num_args = 1..)]
    category: Vec<String>,
    /// Run only tasks with these ids
    #[arg(long, value_name = "ID", num_args = 1..)]
    task: Vec<String>,
    /// Rules for single categories, each as CATEGORY=RETRY, CATEGORY=RETRY:ATTEMPTS or
    /// CATEGORY=:ATTEMPTS
    #[arg(long, value_name = "RULE", num_args = 1.., value_parser = policy)]
    policy: Vec<(String, RuleOverride)>,
    /// Seed from which all sampling seeds are derived [default: the sweep's, else 0]
    #[arg(long)]
    seed: Option<u64>,
    /// How often to repeat everything; trial n has the seed --seed + n - 1
    #[arg(long, value_name = "N", value_parser = positive::<NonZeroU32>)]
    trials: Option<NonZeroU32>,
    /// Run only this part of the work, as 3/8: for several machines, each of which writes its own
    /// files
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Print what would run, with the memory and time it needs, without running it
    #[arg(long, conflicts_with = "list")]
    plan: bool,
    /// How many tasks run in parallel [default: one per core, as memory permits; 1 for an endpoint]
    #[arg(long, value_name = "N", value_parser = positive::<NonZeroUsize>)]
    parallel: Option<NonZeroUsize>,
    /// Where to write the run, one JSON record per line; the traces go next to it.
    /// For a sweep, the folder for its files [default: runs/DATE-TIME.jsonl, runs/DATE-TIME for a
    /// sweep]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Continue an interrupted run, or the sweep in a folder; the other arguments must be the same.
    /// In a sweep, this also starts runs that have not begun
    #[arg(long, value_name = "PATH", conflicts_with = "out")]
    resume: Option<PathBuf>,
    /// Print the table as one JSON object; also applies to --plan and --list
    #[arg(long)]
    json: bool,
    /// List the tasks and the suite's hash, without running them
    #[arg(long)]
    list: bool,
    /// Play the tasks' own gold solutions instead of running a model: a test of the suite
    #[arg(long, conflicts_with_all = ["model", "list"])]
    gold: bool,
    /// Do nothing and claim success instead of running a model: a test that no task accepts that as
    /// a solution
    #[arg(long, conflicts_with_all = ["gold", "model", "list"])]
    junk: bool,
}

impl Args {
    /// Whether no model runs.
    fn scripted(&self) -> bool {
        self.gold || self.junk
    }

    /// Returns the requested sweep; the command line overrides the file.
    fn sweep(&self) -> anyhow::Result<Sweep> {
        let mut sweep = match &self.suite {
            Some(path) if path.extension().is_some_and(|ending| ending == "bench") => Sweep::load(path)?,
            suite => Sweep { suite: suite.clone(), ..Sweep::default() },
        };
        if let Some(model) = self.model.model.clone() {
            sweep.models = vec![model];
        }
        if self.scripted() {
            sweep.models.clear();
        }
        for (own, files) in [(&self.category, &mut sweep.categories), (&self.task, &mut sweep.tasks)] {
            if !own.is_empty() {
                files.clone_from(own);
            }
        }
        sweep.trials = self.trials.or(sweep.trials);
        sweep.seed = self.seed.or(sweep.seed);
        Ok(sweep)
    }

    /// Returns the condition that the command line describes.
    fn condition(&self) -> anyhow::Result<Condition> {
        let mut categories = BTreeMap::new();
        for (name, own_rule) in &self.policy {
            if categories.insert(name.clone(), *own_rule).is_some() {
                bail!("--policy has two rules for {name}");
            }
        }
        let attempts = self.condition.attempts.or((!self.is_sweep()).then_some(NonZeroU32::MIN));
        Ok(Condition { attempts, categories, ..self.condition.clone() })
    }

    /// Whether several runs, or a part of them, were requested.
    fn is_sweep(&self) -> bool {
        let file = self.suite.as_deref().and_then(Path::extension).is_some_and(|ending| ending == "bench");
        file || self.trials.is_some() || self.shard.is_some()
    }

    /// Returns the folder for the runs of a sweep; `None` for a single run, in a file.
    fn folder(&self) -> Option<PathBuf> {
        let named = || self.resume.clone().or_else(|| self.out.clone());
        self.is_sweep().then(|| named().unwrap_or_else(|| run_file::default_path().with_extension("")))
    }
}

/// Parses `CATEGORY=RULE`.
fn policy(text: &str) -> Result<(String, RuleOverride), String> {
    let (category, rule) =
        text.split_once('=').ok_or("it is CATEGORY=RETRY, CATEGORY=RETRY:ATTEMPTS or CATEGORY=:ATTEMPTS")?;
    Ok((category.to_owned(), rule.parse()?))
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let begun = args.resume.as_deref().filter(|_| own_words().is_empty()).and_then(begun_with);
    let begun = begun.filter(|words| !words.is_empty());
    let args = match &begun {
        Some(words) => &as_begun(args, words)?,
        None => args,
    };
    let sweep = args.sweep()?;
    let suite = sweep.suite.as_deref().map_or_else(Suite::stock, Suite::load)?;
    let tasks = suite.select(&sweep.categories, &sweep.tasks)?;
    let ruled = sweep.conditions.iter().flat_map(|condition| condition.categories.keys());
    suite.select(&ruled.chain(args.condition()?.categories.keys()).cloned().collect::<Vec<_>>(), &[])?;
    if args.list {
        list(args, &suite, &tasks);
        return Ok(ExitCode::SUCCESS);
    }
    if args.gold {
        runner::require_gold(&tasks)?;
    }
    let folder = args.folder();
    let jobs = plan::jobs(args, &sweep, &suite, &tasks, folder.as_deref())?;
    let mut forecasts = Vec::new();
    if folder.is_none() && !args.plan && !args.json {
        jobs.iter().try_for_each(|job| plan::announce(args, job))?;
    }
    if folder.is_some() || args.plan {
        forecasts = plan::forecasts(args, &jobs)?;
        match args.plan && args.json {
            true => ui::line(&plan::described(&forecasts).to_string()),
            false => plan::tell(&forecasts, args.plan),
        }
        plan::refuse_missing(&mut forecasts)?;
    }
    if args.plan {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.scripted()
        && sweep.trials.is_some_and(|trials| trials.get() > 1)
        && jobs.iter().any(|job| job.run.condition.temperature == Some(0.0))
    {
        ui::note(
            "warning: at temperature 0 the first attempts of all trials are the same; --temperature raises it",
        );
    }
    let fits = |job: &&Job| !forecasts.iter().any(|one| one.model == job.model && one.memory.is_err());
    let jobs: Vec<&Job> = jobs.iter().filter(fits).collect();
    if jobs.is_empty() {
        ui::note("nothing ran: there is no work here");
        if args.json {
            ui::line(&json!({"runs": []}).to_string());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let begun = Instant::now();
    let (files, ended) = work(args, &suite, &jobs, folder.as_deref())?;
    let wall = begun.elapsed();
    if !ended {
        let whole = folder.or(files.into_iter().next()).unwrap_or_default();
        ui::note(&format!("interrupted; go on with: {}", resume_command(&whole)));
        return Ok(INTERRUPTED.into());
    }
    match &folder {
        // Other shards may still be running.
        Some(folder) if args.shard.is_some() => {
            ui::note(&format!("runs in {0}; when all shards are done: alara report {0}", folder.display()));
            if args.json {
                ui::line(&json!({"runs": files}).to_string());
            }
        }
        Some(folder) => crate::commands::report::summary(folder, args.json)?,
        None => files.iter().try_for_each(|file| report(args, file, wall))?,
    }
    if args.gold {
        return wrong_gold(&files);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the tasks whose gold solutions fail their checks, which is an error in the suite.
fn wrong_gold(files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let mut wrong = Vec::new();
    for file in files {
        wrong.extend(failed(file)?.into_iter().map(|task| task.task));
    }
    if wrong.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    ui::note(&format!("error: the gold solution fails its check in {}", wrong.join(", ")));
    Ok(ExitCode::FAILURE)
}

/// Returns the tasks of a run that failed, not counting errors of the environment.
fn failed(file: &Path) -> anyhow::Result<Vec<Finished>> {
    let finished = run_file::read(file)?.finished.into_iter();
    Ok(finished.filter(|task| task.verdict == Verdict::Failed).collect())
}

/// Plays the gold solutions of a suite, where its tasks have any, and returns the tasks whose check
/// they fail.
/// `None` if it was interrupted.
///
/// # Errors
/// Those of [`run`].
pub fn failing_gold(path: &Path) -> anyhow::Result<Option<Vec<Finished>>> {
    let mut args = parsed(&[])?;
    args.gold = true;
    let scratch = Scratch::claim(&std::env::temp_dir())?;
    args.out = Some(scratch.path().join("gold.jsonl"));
    let suite = Suite::load(path)?;
    let tasks = suite.select(&[], &[])?;
    let tasks: Vec<&Task> = tasks.into_iter().filter(|task| task.gold.is_some()).collect();
    if tasks.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let jobs = plan::jobs(&args, &args.sweep()?, &suite, &tasks, None)?;
    let (files, ended) = work(&args, &suite, &jobs.iter().collect::<Vec<_>>(), None)?;
    let file = files.first().filter(|_| ended);
    file.map(|file| failed(file)).transpose()
}

/// Parses these words as the command's arguments.
fn parsed(words: &[String]) -> Result<Args, clap::Error> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }
    let words = words.iter().map(String::as_str);
    Line::try_parse_from(["tasks"].into_iter().chain(words)).map(|line| line.args)
}

/// Runs the built-in agent on the tasks in a folder, using the model in this way.
/// Returns the run's file, or `None` if it was interrupted.
///
/// # Errors
/// Those of [`run`].
pub fn in_one_way(
    model: &model::Args,
    tuning: &Tuning,
    suite: &Path,
    out: &Path,
) -> anyhow::Result<Option<PathBuf>> {
    let mut args = parsed(&[])?;
    args.model = model.tuned(tuning);
    args.condition.temperature = tuning.temperature.or(args.condition.temperature);
    args.out = Some(out.to_owned());
    let (sweep, suite) = (args.sweep()?, Suite::load(suite)?);
    let tasks = suite.select(&[], &[])?;
    let jobs = plan::jobs(&args, &sweep, &suite, &tasks, None)?;
    let (files, ended) = work(&args, &suite, &jobs.iter().collect::<Vec<_>>(), None)?;
    Ok(files.into_iter().next().filter(|_| ended))
}

/// Works through the runs, each with its own file.
/// Returns whether all of them finished.
fn work(
    args: &Args,
    suite: &Suite,
    jobs: &[&Job],
    folder: Option<&Path>,
) -> anyhow::Result<(Vec<PathBuf>, bool)> {
    if let Some(warning) = enforced().warning() {
        ui::note(&format!("warning: {warning}"));
    }
    let dirs = TaskDirs::claim(&std::env::temp_dir())?;
    let programs = runner::programs(&dirs, Isolation::Auto)?;
    let display = Display::new(jobs.iter().map(|job| job.tasks.len()).sum());
    let knowledge = Arc::new(cache::knowledge());
    let mut work = Work { args, suite, folder, dirs, programs, display, knowledge, cancel: None };
    let mut files = Vec::new();
    let mut loaded: Option<Loaded> = None;
    let mut ended = true;
    for job in jobs {
        // Free the old model before loading the new one.
        loaded = loaded.filter(|loaded| loaded.wanted == job.model);
        let current = match &mut loaded {
            Some(current) => current,
            none => none.insert(Loaded::find(args, job)?),
        };
        ended = work.job(job, current, &mut files)?;
        if !ended {
            break;
        }
    }
    work.display.clear();
    Ok((files, ended))
}

/// What all runs share.
struct Work<'a> {
    args: &'a Args,
    suite: &'a Suite,
    folder: Option<&'a Path>,
    dirs: TaskDirs,
    programs: BTreeMap<String, String>,
    display: Display,
    knowledge: Arc<IndexCache>,
    /// Set by an interrupt, once there is something that it could break.
    cancel: Option<Arc<AtomicBool>>,
}

impl Work<'_> {
    /// Works through one run, and adds its file to `files`.
    /// Returns whether it finished.
    fn job(&mut self, job: &Job, current: &mut Loaded, files: &mut Vec<PathBuf>) -> anyhow::Result<bool> {
        let args = self.args;
        let header = job.header(args, self.suite, &current.named, &self.programs)?;
        let (file, before) = open(args, job, self.folder, header)?;
        let path = file.path().to_owned();
        files.push(path.clone());
        self.display.begin(if self.folder.is_some() { job.title() } else { String::new() }, &before);
        let left: Vec<&Task> =
            job.tasks.iter().copied().filter(|task| before.iter().all(|done| done.task != task.id)).collect();
        if left.is_empty() {
            return Ok(true);
        }
        let model = current.model(args, job)?;
        let other = |name: Option<&str>, parallel| {
            name.map(|name| args.model.named(Some(name)).load(None, parallel)).transpose()
        };
        let user = other(args.user_model.as_deref(), job.parallel)?;
        let embedder = other(job.embedder(), 1)?;
        let cancel = self.cancel()?;
        let condition = &job.run.condition;
        let solver = Solver {
            team: &job.team,
            npc: &job.npc,
            player: match &model {
                Some(model) => Player::Model(&**model),
                None if args.junk => Player::Junk,
                None => Player::Gold,
            },
            user: user.as_deref(),
            embedder: embedder.as_deref(),
            knowledge: self.knowledge.clone(),
            named: current.named.clone(),
            sampling: condition.sampling(),
            thinking: condition.thinking,
            calls: condition.calls,
        };
        let observer = |progress: Progress| self.display.show(&progress);
        let options = Options {
            policy: condition.policy(),
            timeout: job.timeout(),
            seed: job.run.seed,
            retry_temperature: condition.retry_temperature.unwrap_or(1.0),
            parallel: job.parallel,
            isolation: Isolation::Auto,
            programs: self.programs.clone(),
            cancel,
            observer: &observer,
        };
        runner::run(&left, &solver, &options, &self.dirs, file).with_context(|| {
            self.display.clear();
            let whole = self.folder.unwrap_or(&path);
            format!("the run stopped; when that is mended, go on with: {}", resume_command(whole))
        })
    }

    /// Returns the flag that an interrupt sets.
    fn cancel(&mut self) -> anyhow::Result<Arc<AtomicBool>> {
        if self.cancel.is_none() {
            let flag = Arc::<AtomicBool>::default();
            agent::cancel_by_interrupt(flag.clone())?;
            self.cancel = Some(flag);
        }
        Ok(self.cancel.clone().unwrap_or_default())
    }
}

/// Opens the file of a run, and returns the tasks already finished in it.
fn open(
    args: &Args,
    job: &Job,
    folder: Option<&Path>,
    header: Header,
) -> anyhow::Result<(RunFile, Vec<Finished>)> {
    let path = match (&job.path, &args.resume, &args.out) {
        (Some(path), ..) | (None, Some(path), _) | (None, None, Some(path)) => path.clone(),
        (None, None, None) => run_file::default_path(),
    };
    // In a sweep, some runs may not have begun.
    if args.resume.is_some() && (folder.is_none() || path.exists()) {
        let (file, run) = RunFile::resume(&path, &header)?;
        return Ok((file, run.finished));
    }
    let file = RunFile::create(&path, header).context(
        "can't start the run\nhint: --out names another place, --resume goes on with what is there",
    )?;
    Ok((file, Vec::new()))
}

/// The loaded model, shared by several runs.
struct Loaded {
    wanted: Option<String>,
    /// Its name and the hash of its file.
    named: Named,
    model: Option<Arc<dyn ChatModel>>,
}

impl Loaded {
    fn find(args: &Args, job: &Job) -> anyhow::Result<Self> {
        let wanted = job.model.clone();
        let script = |name: &str| Named { name: name.into(), hash: String::new() };
        let named = match (args.scripted(), wanted.as_deref()) {
            (true, _) => script(if args.gold { "gold" } else { "junk" }),
            (false, None) => Named::of(shipped::NAME, shipped::bytes()),
            (false, Some(name)) => args.model.named(Some(name)).identity(name)?,
        };
        Ok(Loaded { wanted, named, model: None })
    }

    /// Returns the model, loading it on first use; `None` for a script.
    fn model(&mut self, args: &Args, job: &Job) -> anyhow::Result<Option<Arc<dyn ChatModel>>> {
        if self.model.is_none() && !args.scripted() {
            let mut model = args.model.named(job.model.as_deref());
            model.steady = false;
            self.model = Some(model.load(None, job.parallel)?);
        }
        Ok(self.model.clone())
    }
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
        ui::line(&format!("{id:width$}  {difficulty:6}  {}", task.summary()));
    }
}

/// Reports how a run ended and how long it took this time.
fn report(args: &Args, path: &Path, wall: Duration) -> anyhow::Result<()> {
    let run = run_file::read(path)?;
    sqlite::write(&path.with_extension("sqlite"), [(path, &run)])?;
    let table = stats::table([&run]);
    if args.json {
        let mut report = serde_json::to_value(&table)?;
        report["suite"] = json!(run.header.suite);
        report["model"] = json!(run.header.model);
        report["file"] = json!(path);
        report["wall_seconds"] = json!(wall.as_secs_f64());
        ui::line(&report.to_string());
    } else {
        ui::table(&Table::COLUMNS, table.rows());
    }
    let at_a_time = match run.header.parallel {
        1 => "one at a time".to_owned(),
        several => format!("{several} at a time"),
    };
    ui::note(&format!(
        "{} in {}, {at_a_time}; the time of each task, added up: {}",
        count(run.finished.len(), "task"),
        plan::span(wall),
        plan::span(Duration::try_from_secs_f64(table.total.seconds).unwrap_or_default())
    ));
    if args.condition.attempts.is_none() {
        ui::note("one attempt a task; five, as in the published study: --attempts 5");
    }
    ui::note(&format!("run file {0}; more with: alara report {0}", path.display()));
    Ok(())
}
