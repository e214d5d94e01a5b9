//! Teams, and tasks that they work on.
//!
//! Callbacks run in the caller's thread, one at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use alara_engine::SamplingOverrides;
use alara_harness::context_files::ContextFiles;
use alara_harness::error::chain;
use alara_harness::knowledge::IndexCache;
use alara_harness::permission::{Answer, Permissions, about_files, holder};
use alara_harness::run::{as_json, hooks};
use alara_harness::state::Kept;
use alara_harness::team::Search;
use alara_harness::{
    Agent, Error, ModelSource, Notice, Outcome, Policy, Sandbox, Session, Single, Team, Trace, sandbox,
    state, trace,
};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::PyEngine;
use crate::error::{raised, raised_text, read};
use crate::models::{Source, agreed};
use crate::wait;

/// Stack size of an agent's thread: as large as a program's main thread.
const STACK: usize = 8 << 20;

/// A loaded team.
#[pyclass(name = "Team", module = "alara._alara", frozen)]
pub struct PyTeam(Arc<Team>);

#[pymethods]
impl PyTeam {
    #[new]
    fn new(py: Python, name: Option<String>, workdir: PathBuf) -> PyResult<Self> {
        let search = Search { workdir, ..state::search() };
        let team = py.detach(|| search.team(name.as_deref()));
        let place = name.unwrap_or_default();
        Ok(PyTeam(Arc::new(team.map_err(|error| raised(py, &place, &error))?)))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn directory(&self) -> Option<PathBuf> {
        self.0.directory.clone()
    }

    #[getter]
    fn forenpc(&self) -> &str {
        &self.0.forenpc
    }

    #[getter]
    fn npcs(&self) -> Vec<&str> {
        self.0.npcs.iter().map(|npc| npc.name.as_str()).collect()
    }

    #[getter]
    fn jinxes(&self) -> Vec<&str> {
        self.0.jinxes.iter().map(|jinx| jinx.name.as_str()).collect()
    }

    #[getter]
    fn diagnostics(&self) -> Vec<String> {
        self.0.diagnostics.iter().map(ToString::to_string).collect()
    }
}

/// Arguments of `alara.run` other than task, team and engine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    npc: Option<String>,
    model: Option<String>,
    workdir: PathBuf,
    yes: bool,
    dry_run: bool,
    context_files: bool,
    schema: Option<Value>,
    trace: Option<PathBuf>,
    seed: u64,
    temperature: Option<f32>,
}

/// A message from the agent's thread.
enum Said {
    Notice(Value),
    /// A missing answer means no.
    Question(Value, Sender<bool>),
}

/// Runs a task with a team, and returns the outcome as JSON.
#[pyfunction]
pub fn run(
    py: Python,
    task: &str,
    team: PyRef<'_, PyTeam>,
    engine: Option<PyRef<'_, PyEngine>>,
    settings: &str,
    on_event: Option<Py<PyAny>>,
    ask: Option<Py<PyAny>>,
) -> PyResult<String> {
    let settings: Settings = read(settings)?;
    let (team, engine) = (team.0.clone(), engine.map(|engine| engine.0.clone()));
    let place = team.name.clone();
    let agreed = |team: &Team| agreed(&holder(team), &about_files(team), settings.yes);
    if team.found && !agreed(&team).map_err(|error| raised(py, &place, &error))? {
        let shown = team.directory.as_deref().unwrap_or(&settings.workdir).display().to_string();
        let text = format!(
            "the team in {shown} was found here, not named, and nobody said yes to its files\nhint: look at them, then \
             name it: team=Path({shown:?}), or say yes=True"
        );
        return Err(raised_text(py, &shown, &text));
    }
    let cancel = Arc::<AtomicBool>::default();
    let (say, mut said) = channel();
    let work =
        Work { task, team: &team, settings: &settings, cancel: cancel.clone(), asks: ask.is_some(), say };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("agent".into()).stack_size(STACK);
        let worker = thread.spawn_scoped(scope, move || match engine {
            Some(engine) => work.run(&Single(&*engine)),
            None => {
                let models = Source::new(work.settings.model.clone(), work.settings.yes);
                work.run(&models)
            }
        });
        let worker = worker.map_err(|error| raised(py, &place, &error))?;
        let mut failed = None;
        while let Some(said) = hear(py, &mut said, &mut failed, &cancel) {
            // After an exception, further messages are ignored.
            let heard = match said {
                Said::Notice(notice) => {
                    tell(py, on_event.as_ref().filter(|_| failed.is_none()), &notice).map(drop)
                }
                Said::Question(question, reply) => {
                    tell(py, ask.as_ref().filter(|_| failed.is_none()), &question).map(|answer| {
                        // If the run was cancelled, the receiver is gone.
                        let _ = reply.send(answer);
                    })
                }
            };
            if let Err(error) = heard {
                cancel.store(true, Ordering::Relaxed);
                failed.get_or_insert(error);
            }
        }
        let ended = py.detach(|| worker.join());
        match (failed, ended) {
            (Some(error), _) => Err(error),
            (None, Ok(Ok(report))) => Ok(report.to_string()),
            (None, Ok(Err(error))) => Err(raised(py, &place, &error)),
            (None, Err(_)) => {
                Err(raised_text(py, &place, "the agent's thread panicked, which is a fault in alara"))
            }
        }
    })
}

/// Returns the next message; `None` once the agent is done.
/// An interrupt cancels the run, and waits for its end.
fn hear(
    py: Python,
    said: &mut Receiver<Said>,
    failed: &mut Option<PyErr>,
    cancel: &AtomicBool,
) -> Option<Said> {
    loop {
        match wait::next(py, said) {
            Ok(said) => return said,
            Err(interrupt) => {
                cancel.store(true, Ordering::Relaxed);
                failed.get_or_insert(interrupt);
            }
        }
    }
}

/// Calls a callback; returns whether its result is true.
fn tell(py: Python, callback: Option<&Py<PyAny>>, value: &Value) -> PyResult<bool> {
    callback.map_or(Ok(false), |callback| callback.call1(py, (value.to_string(),))?.bind(py).is_truthy())
}

/// A task and everything needed to work on it.
struct Work<'a> {
    task: &'a str,
    team: &'a Team,
    settings: &'a Settings,
    cancel: Arc<AtomicBool>,
    asks: bool,
    say: Sender<Said>,
}

impl Work<'_> {
    fn run(&self, models: &dyn ModelSource) -> Result<Value, Error> {
        let Settings { npc, workdir, yes, dry_run, schema, seed, temperature, .. } = self.settings;
        let team = self.team;
        let npc = team.npc(npc.as_deref())?;
        let sandbox = self.sandbox()?;
        // Report an unavailable model before anything begins.
        let _first = models.model(&npc.model).map_err(Error::Model)?;
        let (mut turns, mut calls) = (0, 0);
        let mut observe = |notice: &Notice| {
            match notice {
                Notice::Turn { depth: 0, turn, .. } => turns = *turn,
                Notice::Call { .. } => calls += 1,
                _ => {}
            }
            if let Some(notice) = as_json::of_notice(notice) {
                // The receiver is gone once the caller has left.
                let _ = self.say.send(Said::Notice(notice));
            }
        };
        let (outcome, usage, path, jobs) = {
            let session = Session::new(models, &sandbox).observed(&mut observe);
            let sampling = SamplingOverrides {
                seed: Some(*seed),
                temperature: *temperature,
                ..SamplingOverrides::default()
            };
            let permissions = state::permissions()
                .map_or_else(|| Ok(Permissions::default()), |file| Permissions::open(&file))?;
            let trace = match &self.settings.trace {
                Some(path) => Trace::create(path)?,
                None => state::trace().unwrap_or_else(|error| {
                    let warning = format!("no trace is written: {}", chain(&error));
                    session.notify(&Notice::Warning(&warning));
                    Trace::in_memory()
                }),
            };
            let mut session = session.sampled(sampling).permitted(permissions).traced(trace);
            session.dry_run = *dry_run;
            session.knowledge =
                Arc::new(state::cache("knowledge").map_or_else(IndexCache::default, IndexCache::kept_in));
            if self.settings.context_files {
                session.context_files = ContextFiles::read(workdir)?;
            }
            if *yes {
                session = session.agreeing();
            }
            if self.asks {
                let say = self.say.clone();
                session = session.asking(move |question| {
                    let (reply, answer) = channel();
                    let agreed = say.send(Said::Question(as_json::of_question(question), reply)).is_ok()
                        && answer.recv() == Ok(true);
                    if agreed { Answer::Yes } else { Answer::No }
                });
            }
            hooks::start(&session, team, npc)?;
            let outcome =
                Agent::new(&session, team, npc, schema.clone()).and_then(|mut agent| agent.run(self.task));
            let ended = hooks::end(&session, team, npc, outcome.as_ref().map_or("failed", Outcome::tag));
            let outcome = outcome?;
            ended?;
            let jobs = session.finish();
            let entries = session.trace.entries();
            let usage = trace::usage(entries.iter().map(|entry| &*entry.record));
            (outcome, usage, session.trace.path().map(PathBuf::from), jobs)
        };
        let reason = outcome.reason();
        let text = if let Outcome::Answer { text } = &outcome { Some(text) } else { None };
        Ok(json!({
            "outcome": outcome.tag(),
            "text": text,
            "reason": reason,
            "usage": usage,
            "turns": turns,
            "calls": calls,
            "trace": path,
            "ended_jobs": jobs,
        }))
    }

    /// Returns the sandbox of the work, with the same rules as the binary.
    fn sandbox(&self) -> Result<Sandbox, Error> {
        let Settings { workdir, yes, dry_run, .. } = self.settings;
        let directory = self.team.directory.as_deref();
        if let Some((what, _)) = state::more_than_a_project(workdir).filter(|_| !yes && !dry_run) {
            let source = std::io::Error::other(format!("it is {what}; name a project's, or say yes=True"));
            return Err(
                sandbox::Error::Directory { what: "work directory", path: workdir.clone(), source }.into()
            );
        }
        let Kept { protected, refused } = Kept::of(self.team, workdir, None)?;
        let policy = Policy {
            readable: directory.map(PathBuf::from).into_iter().collect(),
            protected,
            refused,
            guard: !yes && !dry_run,
            read_only: *dry_run,
            ..Policy::default()
        };
        let sandbox = Sandbox::new(workdir, policy)?.with_cancel(self.cancel.clone());
        Ok(match state::journal() {
            Some(journal) => sandbox.with_journal(journal),
            None => sandbox,
        })
    }
}
