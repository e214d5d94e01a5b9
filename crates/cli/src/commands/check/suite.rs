//! `alara check` on task suites and sweeps: what the benchmark says of them, and whether a sweep's
//! teams and models are there.

use std::path::Path;

use alara_bench::inspect;
use alara_bench::sweep::Sweep;
use alara_harness::model::endpoint::Address;
use alara_harness::source::Source;
use alara_harness::{Diagnostic, Severity};

use crate::agent::search;
use crate::model;

/// The problems of what lies at `path`; `None` if it is neither a suite nor a sweep.
pub fn problems(path: &Path) -> anyhow::Result<Option<Vec<Diagnostic>>> {
    if path.extension().is_some_and(|ending| ending == "bench") {
        let (sweep, mut problems) = inspect::sweep(path)?;
        if let Some(sweep) = sweep {
            around(&sweep, &Source::from_file(path)?, &mut problems);
        }
        return Ok(Some(problems));
    }
    Ok(if inspect::is_suite(path) { Some(inspect::suite(path)?) } else { None })
}

/// Teams, NPCs and models that a sweep names and this machine lacks.
/// Another one may have the models: that is no error.
fn around(sweep: &Sweep, source: &Source, problems: &mut Vec<Diagnostic>) {
    for condition in &sweep.conditions {
        let team = condition.team.as_deref();
        let team = match team {
            Some(name) => search().team(Some(name)).map_err(|error| (name, error.into())),
            None => crate::agent::built_in().map_err(|error| ("conditions", error)),
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
        let found = match Address::is_meant_by(name) {
            true => name.parse::<Address>().map(drop).map_err(anyhow::Error::from),
            false => model::path(name).map(drop),
        };
        if let Err(error) = found {
            let problem = inspect::about(source, name, &one_line(&error));
            problems.push(Diagnostic { severity: Severity::Warning, ..problem });
        }
    }
}

/// An error in a line, its hint in brackets.
fn one_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    match text.split_once("\nhint: ") {
        Some((what, hint)) => format!("{what} ({hint})"),
        None => text,
    }
}
