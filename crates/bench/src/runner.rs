//! The runner: worker threads that take task after task, over one model and into one run file.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alara_engine::Sampling;
use alara_harness::model::ChatModel;
use alara_harness::sandbox::{Isolation, Policy, Sandbox, Script};
use alara_harness::team::{Npc, Team};

use crate::place::Ground;
use crate::record::{Finished, Record};
use crate::run_file::RunFile;
use crate::{Error, Task, trial};

/// Who works on the tasks: an agent.
pub struct Solver<'a> {
    /// Its team.
    pub team: &'a Team,
    /// Its role in the team.
    pub npc: &'a Npc,
    /// The model, shared by all threads; `None` = a script that plays the tasks' own gold solutions, which [`require_gold`] looks
    /// for: a test of the suite.
    pub model: Option<&'a dyn ChatModel>,
    /// How tokens are drawn; the seed is replaced by each attempt's own.
    pub sampling: Sampling,
}

/// What happens during a run, for display.
#[derive(Debug)]
pub enum Progress<'a> {
    /// An attempt begins; the first has the number 1.
    Attempt {
        /// At this task.
        task: &'a Task,
        /// The number.
        number: u32,
    },
    /// A task has come to its end.
    Finished(&'a Finished),
}

/// The rules of a run.
pub struct Options<'a> {
    /// Most attempts a task, at least 1.
    pub attempts: u32,
    /// Wall-clock time of a task with all its attempts, unless it has its own. Verifications run even after it.
    pub timeout: Duration,
    /// From which the seeds of the attempts are derived.
    pub seed: u64,
    /// What the temperature is raised to from the second attempt on: the most likely mistake would only be repeated.
    pub retry_temperature: f32,
    /// How many tasks run at a time, at least 1.
    pub parallel: usize,
    /// How the tasks' programs are walled off.
    pub isolation: Isolation,
    /// Ends the run soon; tasks under way have no result then.
    pub cancel: Arc<AtomicBool>,
    /// Is told what happens.
    pub observer: &'a (dyn Fn(Progress) + Sync),
}

/// Runs `tasks` in folders on `ground` and writes what happens to `file`. Whether all came to their end: not if the run
/// was cancelled.
///
/// # Errors
/// The run file can't be written.
pub fn run(
    tasks: &[&Task],
    solver: &Solver,
    options: &Options,
    ground: &Ground,
    file: RunFile,
) -> Result<bool, Error> {
    let missing = missing(ground, options)?;
    let traces = traces(&file);
    let shared = Mutex::new(file);
    let file = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let (next, broken) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || -> Result<(), Error> {
        while !options.cancel.load(Ordering::Relaxed) {
            let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let trace = traces.join(format!("{}.jsonl", task.id));
            let record = |attempt| file().append(&Record::Attempt(attempt));
            let finished =
                trial::run(task, solver, options, ground.place(&task.id), &missing, &trace, record)?;
            let Some(finished) = finished else { break };
            file().append(&Record::Task(finished.clone()))?;
            (options.observer)(Progress::Finished(&finished));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..options.parallel.clamp(1, tasks.len().max(1)) {
            scope.spawn(|| {
                if let Err(error) = work() {
                    options.cancel.store(true, Ordering::Relaxed);
                    broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            });
        }
    });
    match broken.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(!options.cancel.load(Ordering::Relaxed)),
    }
}

/// Checks that all `tasks` have the gold solution that a [`Solver`] without a model plays.
///
/// # Errors
/// One has no gold solution.
pub fn require_gold(tasks: &[&Task]) -> Result<(), Error> {
    match tasks.iter().find(|task| task.gold.is_none()) {
        Some(task) => Err(Error::NoGold { id: task.id.clone() }),
        None => Ok(()),
    }
}

/// Where the traces of a run lie: beside its file, in a folder of the same name.
fn traces(file: &RunFile) -> PathBuf {
    file.path().with_extension("traces")
}

/// Which of the programs that tasks need this machine lacks. Without bash nothing could be said about any task, so that
/// is found out by the tasks themselves.
fn missing(ground: &Ground, options: &Options) -> Result<Vec<&'static str>, Error> {
    let place = ground.place("probe")?;
    let policy = Policy { home: Some(place.home.clone()), isolation: options.isolation, ..Policy::default() };
    let look = |name: &&str| {
        let found = Sandbox::new(&place.work, policy.clone()).and_then(|sandbox| {
            sandbox.run(&Script {
                program: &["bash", "-c", &format!("command -v {name}")],
                env: &[],
                stdin: None,
                timeout: Duration::from_secs(10),
                network: false,
                output_limit: 1024,
            })
        });
        found.is_ok_and(|output| output.exit == Some(1))
    };
    Ok(["python3", "git"].into_iter().filter(look).collect())
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
