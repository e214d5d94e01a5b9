//! `alara check` for task suites and sweeps: finds problems in their files, missing teams and
//! models, and task checks that pass with nothing done.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use alara_bench::Suite;
use alara_bench::idle::{self, Idle};
use alara_bench::inspect;
use alara_bench::sweep::Sweep;
use alara_bench::task_dir::TaskDirs;
use alara_harness::sandbox::Isolation;
use alara_harness::source::Source;
use alara_harness::{Diagnostic, Severity};

use super::super::bench::tasks::failing_gold;
use super::models::missing;
use super::one_line;
use crate::agent;
use crate::progress::count;
use crate::{state, ui};

/// Whether a path is the file of a sweep.
pub fn is_sweep(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "bench")
}

/// Returns the problems of the files at `path`; `None` if it is neither a suite nor a sweep.
pub fn problems(path: &Path) -> anyhow::Result<Option<Vec<Diagnostic>>> {
    if is_sweep(path) {
        let (sweep, mut problems) = inspect::sweep(path)?;
        if let Some(sweep) = sweep {
            around(&sweep, &Source::from_file(path)?, &mut problems);
        }
        return Ok(Some(problems));
    }
    Ok(if inspect::is_suite(path) { Some(inspect::suite(path)?) } else { None })
}

/// Sets up each task of the suite at `path`, does nothing, and runs its check, which must fail;
/// returns the tasks where it doesn't.
/// `None` if interrupted.
pub fn idle(path: &Path) -> anyhow::Result<Option<Vec<Diagnostic>>> {
    // Unreadable files have been reported already.
    let Ok(tasks) = inspect::tasks(path) else { return Ok(Some(Vec::new())) };
    agent::warn_of_sandbox();
    let dirs = TaskDirs::claim(&std::env::temp_dir())?;
    let cancel: Arc<AtomicBool> = Arc::default();
    agent::cancel_by_interrupt(cancel.clone())?;
    let bar = ui::progress(tasks.len() as u64, "checks where nothing was done");
    let observer = |_: &alara_bench::Task| bar.inc(1);
    let parallel = std::thread::available_parallelism().map_or(1, usize::from);
    let options = idle::Options { parallel, isolation: Isolation::Auto, cancel, observer: &observer };
    let found = idle::look(&tasks.iter().map(|(task, ..)| task).collect::<Vec<_>>(), &dirs, &options)?;
    bar.finish_and_clear();
    let Some(found) = found else { return Ok(None) };
    ui::note(&format!("{} tried where nothing was done", count(found.len(), "check")));
    let mut problems = Vec::new();
    for (idle, (task, path, location)) in found.into_iter().zip(tasks) {
        let message = match idle {
            Idle::Fails => continue,
            Idle::Passes => format!(
                "the check of `{}` passes though nothing was done: let it look for what the instruction asks for",
                task.id
            ),
            Idle::NotTried(reason) => format!("the check of `{}` could not be tried: {reason}", task.id),
        };
        problems.push(Diagnostic { path, location, severity: Severity::Warning, message });
    }
    Ok(Some(problems))
}

/// Plays the gold solutions of the suite at `path`, and returns the tasks whose check they fail.
/// `None` if interrupted.
pub fn wrong_gold(path: &Path) -> anyhow::Result<Option<Vec<Diagnostic>>> {
    let Ok(tasks) = inspect::tasks(path) else { return Ok(Some(Vec::new())) };
    let Some(failing) = failing_gold(path)? else { return Ok(None) };
    let problem = |(task, path, location): (alara_bench::Task, _, _)| {
        let failed = failing.iter().find(|failed| failed.task == task.id)?;
        let message = format!("the gold solution of `{}` fails its check: {}", task.id, failed.reason);
        Some(Diagnostic { path, location, severity: Severity::Error, message })
    };
    Ok(Some(tasks.into_iter().filter_map(problem).collect()))
}

/// Adds teams, NPCs and models that a sweep names and this machine lacks.
/// Another machine may have the models, so a missing one is only a warning.
fn around(sweep: &Sweep, source: &Source, problems: &mut Vec<Diagnostic>) {
    let suite = sweep.suite.as_deref().map_or_else(Suite::stock, Suite::load).ok();
    let folder = suite.as_ref().and_then(|suite| suite.setting.team.as_deref());
    for condition in &sweep.conditions {
        let team = match (condition.team.as_deref(), folder) {
            (Some(name), _) => state::search().team(Some(name)).map_err(|error| (name, error.into())),
            (None, Some(folder)) => agent::team_in(folder).map_err(|error| ("suite", error)),
            (None, None) => agent::built_in().map_err(|error| ("conditions", error)),
        };
        let npc = |team: &alara_harness::Team| match condition.npc.as_deref() {
            Some(name) => team.npc(Some(name)).map(drop).map_err(|error| (name, error.into())),
            None => Ok(()),
        };
        if let Err((name, error)) = team.and_then(|team| npc(&team)) {
            problems.push(inspect::about(source, name, &one_line(&error)));
        }
    }
    for name in &sweep.models {
        if let Some(error) = missing(name) {
            let problem = inspect::about(source, name, &one_line(&error));
            problems.push(Diagnostic { severity: Severity::Warning, ..problem });
        }
    }
}
