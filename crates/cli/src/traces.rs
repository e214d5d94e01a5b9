//! Finds the traces of earlier runs by name.

use std::path::{Path, PathBuf};

use alara_harness::trace::sqlite::{Index, RunRow};
use anyhow::{Context, bail};

use crate::progress::shorten;
use crate::{state, ui};

/// Maximum number of traces to list for an ambiguous name.
const MEANT: usize = 5;

/// Opens the index, updated from the trace files.
pub fn index() -> anyhow::Result<Index> {
    let state = state::directory().context("there is no home directory, and XDG_STATE_HOME is not set")?;
    let traces = state.join("traces");
    // An existing folder may be readable even if it can't be created.
    if let Err(error) = alara_harness::trace::make_directory(&traces)
        && !traces.is_dir()
    {
        let hint = "XDG_STATE_HOME names another place for what runs leave";
        return Err(error).with_context(|| format!("can't make {}\nhint: {hint}", traces.display()));
    }
    let (index, left_out) = Index::of(&traces, &state.join("traces.sqlite"))?;
    for left_out in left_out {
        ui::note(&format!("warning: {:#}", anyhow::Error::from(left_out)));
    }
    Ok(index)
}

/// Returns the latest runs, up to a limit; none if they can't be read, without a message.
pub fn latest(limit: usize) -> Vec<RunRow> {
    let runs = || {
        let state = state::directory()?;
        let traces = Some(state.join("traces")).filter(|traces| traces.is_dir())?;
        let (index, _) = Index::of(&traces, &state.join("traces.sqlite")).ok()?;
        index.runs(None, limit).ok()
    };
    runs().unwrap_or_default()
}

/// Finds a trace file: by path, by an id or part of one, or the latest.
pub fn file(name: Option<&str>) -> anyhow::Result<PathBuf> {
    if let Some(path) = name.map(Path::new).filter(|path| path.is_file()) {
        return Ok(path.to_owned());
    }
    let index = index()?;
    match (index.find(name)?, name) {
        (Some(run), _) => Ok(run.path),
        (None, None) => bail!("there are no traces yet"),
        (None, Some(name)) => match index.containing(name, MEANT)?.as_slice() {
            [] => bail!("there is no trace and no file {name}\nhint: alara trace list"),
            meant => {
                let line = |run: &RunRow| format!("\n  {}  {}", run.id, shorten(&run.task));
                let meant: String = meant.iter().map(line).collect();
                bail!(
                    "more than one trace has {name} in its id, the latest:{meant}\nhint: give more of the id"
                )
            }
        },
    }
}

/// Whether a trace is among the user's own; one from elsewhere may come from a stranger.
pub fn is_own(path: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    let own = state::traces().and_then(|traces| real(&traces));
    own.is_some_and(|own| real(path).is_some_and(|path| path.starts_with(own)))
}

/// Returns the trace file of the latest conversation in a work directory.
pub fn latest_in(work: &Path) -> anyhow::Result<PathBuf> {
    let work = work.canonicalize().with_context(|| format!("can't read {}", work.display()))?;
    let found = index()?.latest_in(&work)?;
    let none = || {
        format!("no conversation was held in {}\nhint: alara trace list, then --resume ID", work.display())
    };
    Ok(found.with_context(none)?.path)
}
