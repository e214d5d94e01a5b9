//! The runner: worker threads that process the tasks, with one model and one run file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use alara_harness::sandbox::{self, Isolation, Sandbox, Script};

use crate::options::{Options, Progress, Solver};
use crate::record::{Record, Verdict};
use crate::run_file::RunFile;
use crate::task_dir::{self, TaskDirs};
use crate::{Error, Task, attempts};

/// Runs `tasks`, each in folders of `dirs`, and writes the records to `file`.
/// Returns whether all tasks finished, which they don't if the run is cancelled.
///
/// # Errors
/// The run file can't be written, or the disk is still full after a task's folders were removed.
/// Then no single task is to blame.
/// Unfinished tasks aren't recorded, so that the run can be resumed.
pub fn run(
    tasks: &[&Task],
    solver: &Solver,
    options: &Options,
    dirs: &TaskDirs,
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
            let finished = attempts::run(task, solver, options, dirs.make(&task.id), &traces, record)?;
            let Some(finished) = finished else { break };
            if finished.verdict == Verdict::Error {
                check_disk(dirs.path())?;
                check_disk(folder(&traces))?;
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

/// Returns an error if the disk of a folder is full.
fn check_disk(folder: &Path) -> Result<(), Error> {
    task_dir::probe_disk(folder).map_err(|source| Error::DiskFull { path: folder.to_owned(), source })
}

/// Returns the folder that contains a path.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks that all `tasks` have the gold solution that a [`Solver`] without a model plays.
///
/// # Errors
/// Some have no gold solution.
pub fn require_gold(tasks: &[&Task]) -> Result<(), Error> {
    let lacking: Vec<&&Task> =
        tasks.iter().filter(|task| task.gold.is_none() && task.dialogue.is_none()).collect();
    match lacking.as_slice() {
        [] => Ok(()),
        all if all.len() == tasks.len() => Err(Error::NoGoldAtAll),
        [one] => Err(Error::NoGold { which: format!("the task `{}` has", one.id) }),
        [first, more @ ..] => {
            Err(Error::NoGold { which: format!("the task `{}` and {} more have", first.id, more.len()) })
        }
    }
}

/// Returns the folder of a run's traces: next to its file, with the same name.
fn traces(file: &RunFile) -> PathBuf {
    file.path().with_extension("traces")
}

/// Prints the programs other than bash that tasks use, with their versions.
const PROGRAMS: &str = r#"for name in bash python3 git; do
  command -v "$name" >/dev/null || continue
  output=$("$name" --version 2>&1)
  printf '%s\t%s\n' "$name" "${output%%$'\n'*}"
done"#;

/// Returns which of the programs that tasks use exist on this machine, with their versions.
/// Without bash none can be detected, and the tasks find that out themselves.
///
/// # Errors
/// The disk of `dirs` is full.
pub fn programs(dirs: &TaskDirs, isolation: Isolation) -> Result<BTreeMap<String, String>, Error> {
    let dir = dirs.make("probe")?;
    let policy = sandbox::Policy { home: Some(dir.home.clone()), isolation, ..sandbox::Policy::default() };
    let output = Sandbox::new(&dir.work, policy)
        .and_then(|sandbox| sandbox.run(&Script::new(&["bash", "-c", PROGRAMS], Duration::from_secs(20))));
    let lines = match output {
        Ok(output) if output.exit == Some(0) => String::from_utf8_lossy(&output.stdout).into_owned(),
        _ => "bash\t\npython3\t\ngit\t\n".to_owned(),
    };
    let pairs = lines.lines().filter_map(|line| line.split_once('\t'));
    Ok(pairs.map(|(name, version)| (name.to_owned(), version.to_owned())).collect())
}

#[cfg(test)]
#[path = "runner_tests.rs"]
pub(crate) mod tests;
