//! Plans a sweep: its runs, and how much memory and time each model needs.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use alara_bench::record::{About, Header, Machine, Named, now};
use alara_bench::run_file;
use alara_bench::sweep::{Shard, Sweep, SweepRun};
use alara_bench::{Suite, Task};
use alara_engine::file;
use alara_engine::{Sampling, limits};
use alara_harness::{Npc, Team, knowledge};
use alara_models::{catalog, shipped};
use anyhow::bail;
use serde_json::{Value, json};

use super::Args;
use super::resume::own_words;
use crate::facts::FileFacts;
use crate::progress::count;
use crate::{compute, model, ui};

/// Estimated average tokens per task: generated, and prefilled without a cache hit.
const WRITTEN: f64 = 1000.0;
const READ: f64 = 3000.0;
/// Estimated seconds per task for its programs: folders, sandboxes, the check.
const PROGRAMS: f64 = 1.0;
/// Default maximum number of parallel tasks.
const SIDE_BY_SIDE: usize = 16;

/// One run: who works on which tasks, under which rules, and where to write it.
pub struct Job<'a> {
    pub run: SweepRun,
    pub team: Team,
    pub npc: Npc,
    /// The model, as for `-m`; `None` for the one that ships, or for gold solutions.
    pub model: Option<String>,
    pub tasks: Vec<&'a Task>,
    /// How many tasks run in parallel.
    pub parallel: usize,
    /// `None` for a file named by the current time.
    pub path: Option<PathBuf>,
}

/// Returns the runs of a sweep that belong to this shard.
pub fn jobs<'a>(
    args: &Args,
    sweep: &Sweep,
    suite: &Suite,
    tasks: &[&'a Task],
    folder: Option<&Path>,
) -> anyhow::Result<Vec<Job<'a>>> {
    let shard = args.shard.unwrap_or(Shard::ALL);
    let runs = sweep.runs(&args.condition()?);
    let mine = shard.range(runs.len() * tasks.len());
    let mut jobs = Vec::new();
    let asked = args.parallel.map(NonZeroUsize::get).or_else(|| tasks_at_a_time(args.resume.as_deref()?));
    let mut side_by_side: BTreeMap<Option<String>, usize> = BTreeMap::new();
    for (index, run) in runs.into_iter().enumerate() {
        let first = index * tasks.len();
        let part = |at: usize| at.clamp(first, first + tasks.len()) - first;
        let tasks = &tasks[part(mine.start)..part(mine.end)];
        if tasks.is_empty() {
            continue;
        }
        let mut team = match (&run.condition.team, &suite.setting.team) {
            (Some(name), _) => crate::agent::find(Some(name), Path::new(""), false)?,
            (None, Some(folder)) => crate::agent::team_in(folder)?,
            (None, None) => crate::agent::built_in()?,
        };
        suite.furnish(&mut team);
        run.condition.apply(&mut team)?;
        let npc = team.npc(run.condition.npc.as_deref())?.clone();
        let model =
            run.model.clone().or_else(|| model::chosen(&npc.model).model).filter(|_| !args.scripted());
        let path = folder.map(|folder| folder.join(run.file(shard)));
        let parallel = match asked {
            Some(asked) => asked,
            None => *side_by_side
                .entry(model.clone())
                .or_insert_with_key(|model| parallel(args, model.as_deref())),
        };
        jobs.push(Job { run, team, npc, model, tasks: tasks.to_vec(), parallel, path });
    }
    Ok(jobs)
}

/// Returns how many tasks ran in parallel in the run or sweep to continue.
fn tasks_at_a_time(path: &Path) -> Option<usize> {
    let parallel = |file: &Path| run_file::read(file).ok().map(|run| run.header.parallel);
    match path.read_dir() {
        Ok(entries) => entries.flatten().find_map(|entry| parallel(&entry.path())),
        Err(_) => parallel(path),
    }
}

/// Default number of parallel tasks: as many as cores and memory permit.
fn parallel(args: &Args, model: Option<&str>) -> usize {
    if model.is_some_and(model::is_elsewhere) {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(SIDE_BY_SIDE);
    let bears = |tasks: usize| {
        let candidate = args.model.named(model).candidate(tasks);
        candidate.err().is_none_or(|error| model::out_of_memory(&error).is_none())
    };
    std::iter::successors(Some(cores), |tasks| Some(tasks / 2))
        .take_while(|tasks| *tasks > 1)
        .find(|&tasks| args.scripted() || bears(tasks))
        .unwrap_or(1)
}

/// Prints in advance what a run does and how long that takes, roughly.
///
/// # Errors
/// Those of [`forecasts`].
pub fn announce(args: &Args, job: &Job) -> anyhow::Result<()> {
    let (bandwidth, peak) = limits(args.model.threads(), compute::isa()?);
    let about = match args.scripted() {
        true => Some(Duration::from_secs_f64(PROGRAMS * job.tasks.len() as f64 / job.parallel as f64)),
        false => job.about(bandwidth, peak),
    };
    let about = about.map_or_else(String::new, |about| format!("; about {} on this machine", span(about)));
    let model = match (args.gold, args.junk) {
        (true, _) => "gold",
        (_, true) => "junk",
        _ => job.model.as_deref().unwrap_or(shipped::NAME),
    };
    let attempts = job.run.condition.policy().most();
    ui::note(&format!(
        "{} with {model}, at most {} each, {} at a time{about}",
        count(job.tasks.len(), "task"),
        count(attempts.get() as usize, "attempt"),
        job.parallel
    ));
    Ok(())
}

impl Job<'_> {
    /// Returns the header of the run's file.
    pub fn header(
        &self,
        args: &Args,
        suite: &Suite,
        named: &Named,
        programs: &BTreeMap<String, String>,
    ) -> anyhow::Result<Header> {
        let SweepRun { condition, trial, seed, .. } = &self.run;
        Ok(Header {
            suite: Named { name: suite.name.clone(), hash: suite.hash.clone() },
            model: named.clone(),
            about: about(args, self.model.as_deref()),
            user: args
                .user_model
                .as_deref()
                .map(|name| args.model.named(Some(name)).identity(name))
                .transpose()?,
            engine: if args.scripted() { json!({}) } else { args.model.record()? },
            // Include all of its jinxes: those that tasks bring along, and those of NPCs that get
            // work delegated.
            team: Named::of(&self.team.name, &self.said()?),
            npc: self.npc.name.clone(),
            gate: condition.gate,
            retrieval: condition.retrieval,
            price: args.price.or(self.run.price),
            sampling: Sampling { seed: *seed, ..condition.sampling() },
            retry_temperature: condition.retry_temperature.unwrap_or(1.0),
            thinking: condition.thinking,
            calls: condition.calls,
            policy: condition.policy(),
            timeout: self.timeout().as_secs(),
            parallel: self.parallel,
            condition: condition.name.clone(),
            trial: *trial,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            programs: programs.clone(),
            machine: Machine::this(),
            tasks: self.tasks.iter().map(|task| task.id.clone()).collect(),
            started: now(),
            command: own_words(),
        })
    }

    /// Returns everything that defines the team, including its gates and documents.
    fn said(&self) -> anyhow::Result<Vec<u8>> {
        let mut said = serde_json::to_vec(&self.team)?;
        let gates = self.team.npcs.iter().flat_map(|npc| &npc.gate.gates);
        for path in gates.map(|gate| &gate.path).collect::<BTreeSet<_>>() {
            said.extend(file::read(path, file::TEXT)?);
        }
        let npcs = self.team.npcs.iter().chain([&self.npc]);
        let all = npcs.map(|npc| npc.knowledge.as_ref()).chain([self.team.knowledge.as_ref()]).flatten();
        for folder in all.map(|knowledge| &knowledge.folder).collect::<BTreeSet<_>>() {
            for document in knowledge::documents(folder, &mut Vec::new())? {
                said.extend(document.text.into_bytes());
            }
        }
        Ok(said)
    }

    /// Returns the embedding model for the team's documents, if one is needed.
    pub fn embedder(&self) -> Option<&str> {
        let knowledge = self.npc.knowledge.as_ref().or(self.team.knowledge.as_ref());
        knowledge.filter(|knowledge| knowledge.retrieval.embeds()).map(|knowledge| knowledge.model.as_str())
    }

    /// Time limit of tasks without one of their own.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.run.condition.timeout.map_or(360, std::num::NonZeroU64::get))
    }

    /// Estimates the run time, given memory bandwidth in bytes per second and peak operations per
    /// second; `None` if it is unknown, as for an endpoint.
    fn about(&self, bandwidth: f64, peak: f64) -> Option<Duration> {
        let bytes = model::file_size(self.model.as_deref())?;
        // Decode reads the file once per token for all parallel tasks; prefill does one
        // multiply-add per weight of about five bits.
        let decode = bytes / bandwidth / self.parallel as f64;
        let prefill = bytes * 8.0 / 5.0 * 2.0 / peak;
        let programs = PROGRAMS / self.parallel as f64;
        let most = self.timeout().as_secs_f64() / self.parallel as f64;
        let task = (WRITTEN * decode + READ * prefill + programs).min(most);
        Some(Duration::from_secs_f64(task * self.tasks.len() as f64))
    }

    /// Title of the run among others.
    pub fn title(&self) -> String {
        let SweepRun { condition, trial, .. } = &self.run;
        [self.model.as_deref().unwrap_or_default(), &condition.name, &trial.to_string()]
            .join(" ")
            .trim()
            .to_owned()
    }
}

/// Reads a model's file, if it is on this machine.
fn about(args: &Args, name: Option<&str>) -> Option<About> {
    if args.scripted() || name.is_some_and(model::is_elsewhere) {
        return None;
    }
    let facts = FileFacts::new(|_| None).of(name)?;
    Some(About {
        architecture: facts.architecture.clone(),
        parameters: facts.parameters as f64 / 1e9,
        quantization: facts.quantization.clone(),
    })
}

/// Resources that a model of the plan needs.
pub struct Forecast {
    pub model: Option<String>,
    /// Bytes, or why the model can't run here.
    pub memory: Result<u64, String>,
    pub tasks: usize,
    /// `None` if unknown, as for an endpoint.
    pub about: Option<Duration>,
    pub at_most: Duration,
    /// Why the model isn't available, if it isn't.
    pub missing: Option<anyhow::Error>,
}

/// Returns a forecast for each model, including missing ones.
/// Compares each model's size with the memory that is free now.
///
/// # Errors
/// The requested instruction set doesn't exist.
pub fn forecasts(args: &Args, jobs: &[Job]) -> anyhow::Result<Vec<Forecast>> {
    let (bandwidth, peak) = limits(args.model.threads(), compute::isa()?);
    let mut forecasts: Vec<Forecast> = Vec::new();
    for job in jobs {
        let most: f64 = job
            .tasks
            .iter()
            .map(|task| task.timeout.map_or(job.timeout().as_secs_f64(), |own| own.get() as f64))
            .sum();
        // A task's absurdly high limit may exceed what a clock can show.
        let most = Duration::try_from_secs_f64(most / job.parallel as f64).unwrap_or(Duration::MAX);
        if let Some(known) = forecasts.iter_mut().find(|known| known.model == job.model) {
            let share = (known.tasks + job.tasks.len()) as f64 / known.tasks as f64;
            known.about = known.about.map(|about| about.mul_f64(share));
            known.at_most = known.at_most.saturating_add(most);
            known.tasks += job.tasks.len();
            continue;
        }
        let (mut memory, mut about, mut missing) = (Ok(0), None, None);
        if !args.scripted() {
            match args.model.named(job.model.as_deref()).candidate(job.parallel) {
                Ok(candidate) => memory = Ok(candidate.bytes),
                Err(error) => match model::out_of_memory(&error) {
                    Some(why) => memory = Err(why),
                    None => missing = Some(error),
                },
            }
            about = job.about(bandwidth, peak);
        }
        let (model, tasks) = (job.model.clone(), job.tasks.len());
        forecasts.push(Forecast { model, memory, tasks, about, at_most: most, missing });
    }
    Ok(forecasts)
}

/// Returns the forecasts as JSON, in bytes and seconds; null for unknown values.
pub fn described(forecasts: &[Forecast]) -> Value {
    let models = forecasts.iter().map(|forecast| {
        let (missing, memory) = (forecast.missing.as_ref(), forecast.memory.as_ref());
        json!({
            "model": forecast.model.as_deref().unwrap_or(catalog::SHIPPED),
            "tasks": forecast.tasks,
            "memory": memory.ok().filter(|bytes| **bytes > 0 && missing.is_none()),
            "seconds": forecast.about.map(|about| about.as_secs_f64()),
            "most_seconds": forecast.at_most.as_secs_f64(),
            "missing": missing.map(|error| format!("{error:#}")),
            "left_out": memory.err(),
        })
    });
    json!({"models": models.collect::<Vec<_>>()})
}

/// Prints the forecasts, to stdout if nothing else was requested.
pub fn tell(forecasts: &[Forecast], alone: bool) {
    let rows = forecasts.iter().map(|forecast| {
        let (memory, remark) = match (&forecast.missing, &forecast.memory) {
            (Some(_), _) => ("-".to_owned(), "is missing"),
            (None, Ok(0)) => ("-".to_owned(), ""),
            (None, Ok(bytes)) => (ui::bytes(*bytes), ""),
            (None, Err(_)) => ("too much".to_owned(), "is left out"),
        };
        vec![
            forecast.model.clone().unwrap_or_else(|| shipped::NAME.to_owned()),
            forecast.tasks.to_string(),
            memory,
            forecast.about.map_or_else(|| "-".to_owned(), span),
            span(forecast.at_most),
            remark.to_owned(),
        ]
    });
    let header = ["model", "tasks", "memory", "about", "at most", ""];
    if alone {
        ui::table(&header, rows);
    } else {
        ui::note_table(&header, rows);
    }
    for forecast in forecasts {
        if let Err(why) = &forecast.memory {
            ui::note(why);
        }
    }
    ui::note(&format!(
        "about: if a task takes {WRITTEN} tokens written and {READ} read; mixtures of experts take less. At most: every task its whole time."
    ));
}

/// # Errors
/// Models that aren't available: lists all of them, each with a remedy.
pub fn refuse_missing(forecasts: &mut [Forecast]) -> anyhow::Result<()> {
    let mut missing: Vec<anyhow::Error> = forecasts.iter_mut().filter_map(|one| one.missing.take()).collect();
    match missing.len() {
        0 => Ok(()),
        1 => Err(missing.remove(0)),
        count => {
            for error in missing {
                ui::note(&ui::told(&error));
            }
            bail!(
                "{count} of {} models can't be had; the others would run without them: leave them out",
                forecasts.len()
            )
        }
    }
}

/// Formats a duration for display.
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..180 => format!("{seconds} s"),
        180..3600 => format!("{} min", seconds.div_ceil(60)),
        3600..172_800 => format!("{:.1} h", seconds as f64 / 3600.0),
        _ => format!("{:.1} days", seconds as f64 / 86400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded() {
        let check = |seconds: f64, expected: &str| {
            assert_eq!(span(Duration::from_secs_f64(seconds)), expected);
        };
        check(0.4, "0.4 s");
        check(1.97, "2.0 s");
        check(59.4, "59 s");
        check(90.4, "90 s");
        check(180.0, "3 min");
        check(181.0, "4 min");
        check(5400.0, "1.5 h");
        check(172_800.0, "2.0 days");
    }
}
