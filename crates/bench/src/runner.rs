//! The runner: worker threads that take task after task, over one model and into one run file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alara_engine::Sampling;
use alara_harness::calls::Calls;
use alara_harness::model::ChatModel;
use alara_harness::sandbox::{self, Isolation, Sandbox, Script};
use alara_harness::team::{Npc, Team};

use crate::place::{self, Ground};
use crate::policy::Policy;
use crate::record::{Finished, Named, Record, Verdict};
use crate::run_file::RunFile;
use crate::{Error, Task, trial};

/// Who works on the tasks: an agent.
pub struct Solver<'a> {
    /// Its team.
    pub team: &'a Team,
    /// Its role in the team.
    pub npc: &'a Npc,
    /// The model, shared by all threads; `None` = a script that plays the tasks' own gold
    /// solutions, which [`require_gold`] looks for: a test of the suite.
    pub model: Option<&'a dyn ChatModel>,
    /// What the model is called, and its file's hash.
    pub named: Named,
    /// How tokens are drawn; the seed is replaced by each attempt's own.
    pub sampling: Sampling,
    /// Whether a model that can reason does so; `None` = as it is used to.
    pub thinking: Option<bool>,
    /// Whether each turn is a call; `None` = what the NPC's file says.
    pub calls: Option<Calls>,
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
    /// How often a task is tried, and how.
    pub policy: Policy,
    /// Wall-clock time of a task with all its attempts, unless it has its own.
    /// Verifications run even after it.
    pub timeout: Duration,
    /// From which the seeds of the attempts are derived.
    pub seed: u64,
    /// What the temperature is raised to from the second attempt on: the most likely mistake would
    /// only be repeated.
    pub retry_temperature: f32,
    /// How many tasks run at a time, at least 1.
    pub parallel: usize,
    /// How the tasks' programs are walled off.
    pub isolation: Isolation,
    /// What [`programs`] found: a task that needs another can't run.
    pub programs: BTreeMap<String, String>,
    /// Ends the run soon; tasks under way have no result then.
    pub cancel: Arc<AtomicBool>,
    /// Is told what happens.
    pub observer: &'a (dyn Fn(Progress) + Sync),
}

/// Runs `tasks` in folders on `ground` and writes what happens to `file`.
/// Whether all came to their end: not if the run was cancelled.
///
/// # Errors
/// The run file can't be written, or the disk is full and no single task is to blame: it has gone,
/// and there is still no room.
/// What was under way then is not recorded, so that the run can go on.
pub fn run(
    tasks: &[&Task],
    solver: &Solver,
    options: &Options,
    ground: &Ground,
    file: RunFile,
) -> Result<bool, Error> {
    let traces = traces(&file);
    let shared = Mutex::new(file);
    let file = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let (next, broken) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || -> Result<(), Error> {
        while !options.cancel.load(Ordering::Relaxed) {
            let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let record = |attempt| file().append(&Record::Attempt(attempt));
            let finished = trial::run(task, solver, options, ground.place(&task.id), &traces, record)?;
            let Some(finished) = finished else { break };
            if finished.verdict == Verdict::Error {
                room(ground.path())?;
                room(folder(&traces))?;
            }
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

/// Whether there is room in a folder.
fn room(folder: &Path) -> Result<(), Error> {
    place::probe_disk(folder).map_err(|source| Error::DiskFull { path: folder.to_owned(), source })
}

/// The folder in which something lies.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
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

/// Prints the programs beside bash that tasks use, with what each says of its version.
const PROGRAMS: &str = r#"for name in bash python3 git; do
  command -v "$name" >/dev/null || continue
  said=$("$name" --version 2>&1)
  printf '%s\t%s\n' "$name" "${said%%$'\n'*}"
done"#;

/// Which of the programs that tasks use this machine has, and the version that each tells.
/// Without bash nothing can be said about any, so that is found out by the tasks themselves.
///
/// # Errors
/// There is no room on `ground`.
pub fn programs(ground: &Ground, isolation: Isolation) -> Result<BTreeMap<String, String>, Error> {
    let place = ground.place("probe")?;
    let policy = sandbox::Policy { home: Some(place.home.clone()), isolation, ..sandbox::Policy::default() };
    let output = Sandbox::new(&place.work, policy).and_then(|sandbox| {
        sandbox.run(&Script {
            program: &["bash", "-c", PROGRAMS],
            env: &[],
            stdin: None,
            timeout: Duration::from_secs(20),
            network: false,
            output_limit: 4096,
        })
    });
    let told = match output {
        Ok(output) if output.exit == Some(0) => String::from_utf8_lossy(&output.stdout).into_owned(),
        _ => "bash\t\npython3\t\ngit\t\n".to_owned(),
    };
    let pairs = told.lines().filter_map(|line| line.split_once('\t'));
    Ok(pairs.map(|(name, version)| (name.to_owned(), version.to_owned())).collect())
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
