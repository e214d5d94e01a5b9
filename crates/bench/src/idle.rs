//! Runs the checks of tasks with nothing done.
//! A check that passes then would count an idle agent as the solver.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alara_harness::sandbox::Isolation;

use crate::scripts::{Infrastructure, ScriptOutcome, prepare, verify};
use crate::task_dir::TaskDirs;
use crate::{Error, Task, runner};

/// Result of a check after nothing but the setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idle {
    /// The check fails, as it should.
    Fails,
    /// The check passes.
    Passes,
    /// The check can't run, for this reason.
    NotTried(String),
}

/// Options for trying the checks.
pub struct Options<'a> {
    /// Number of parallel checks, at least 1.
    pub parallel: usize,
    /// How the tasks' programs are isolated.
    pub isolation: Isolation,
    /// Stops the checks soon.
    pub cancel: Arc<AtomicBool>,
    /// Called after each task.
    pub observer: &'a (dyn Fn(&Task) + Sync),
}

/// Sets up each of `tasks` in folders of `dirs`, does nothing, and runs its check.
/// Returns the results in the order of the tasks; `None` if cancelled.
///
/// # Errors
/// The folders can't be created.
pub fn look(tasks: &[&Task], dirs: &TaskDirs, options: &Options) -> Result<Option<Vec<Idle>>, Error> {
    let programs = runner::programs(dirs, options.isolation)?;
    let next = AtomicUsize::new(0);
    let found: Mutex<BTreeMap<usize, Idle>> = Mutex::default();
    let work = || {
        while !options.cancel.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else { break };
            let idle = one(task, dirs, &programs, options)
                .unwrap_or_else(|Infrastructure(reason)| Idle::NotTried(reason));
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(index, idle);
            (options.observer)(task);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.parallel.clamp(1, tasks.len().max(1)) {
            scope.spawn(work);
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((!options.cancel.load(Ordering::Relaxed)).then(|| found.into_values().collect()))
}

fn one(
    task: &Task,
    dirs: &TaskDirs,
    programs: &BTreeMap<String, String>,
    options: &Options,
) -> Result<Idle, Infrastructure> {
    let dir = dirs.make(&task.id)?;
    let sandbox = prepare(task, options.isolation, programs, &options.cancel, &dir)?;
    Ok(match verify(task, &sandbox, &dir)? {
        // With nothing done, no work was delegated either.
        ScriptOutcome::Passed if task.delegates.is_empty() => Idle::Passes,
        ScriptOutcome::Passed | ScriptOutcome::Failed(_) => Idle::Fails,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Suite;

    /// Runs without isolation, since the test binary isn't a launcher.
    fn tried(tasks: &[&Task]) -> Vec<Idle> {
        let folder = tempfile::tempdir().unwrap();
        let dirs = TaskDirs::claim(folder.path()).unwrap();
        let options =
            Options { parallel: 2, isolation: Isolation::Off, cancel: Arc::default(), observer: &|_| {} };
        look(tasks, &dirs, &options).unwrap().unwrap()
    }

    #[test]
    fn checks_that_pass_when_nothing_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.csv");
        let head = "id,category,difficulty,setup_cmd,instruction,verify_cmd,description\n";
        // The third is like some published tasks: `test -f` without an argument is true.
        let rows = "a,s,easy,echo 1 > in,Go.,test -f out,\n\
                    b,s,easy,echo 1 > in,Go.,test -f in,\n\
                    c,s,easy,,Go.,ls nothing_*.png 2>/dev/null | head -1 | xargs test -f,\n\
                    d,s,easy,exit 3,Go.,true,\n";
        std::fs::write(&path, format!("{head}{rows}")).unwrap();
        let suite = Suite::load(&path).unwrap();
        let mut tasks = suite.tasks.clone();
        tasks.push(Task { delegates: vec!["coder".into()], ..tasks[1].clone() });
        let found = tried(&tasks.iter().collect::<Vec<_>>());
        let [Idle::Fails, Idle::Passes, Idle::Passes, Idle::NotTried(why), Idle::Fails] = found.as_slice()
        else {
            panic!("{found:?}");
        };
        assert!(why.starts_with("the setup failed"), "{why}");
    }

    #[test]
    fn a_cancelled_look_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let dirs = TaskDirs::claim(folder.path()).unwrap();
        let cancel = Arc::new(AtomicBool::new(true));
        let options = Options { parallel: 1, isolation: Isolation::Off, cancel, observer: &|_| {} };
        let suite = Suite::stock().unwrap();
        assert_eq!(look(&[&suite.tasks[0]], &dirs, &options).unwrap(), None);
    }
}
