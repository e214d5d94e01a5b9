//! The jobs of a session: programs that steps have started in the background.
//! A job lives as long as the session, unless it exits or is ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::permission::holder;
use crate::run::guarded::{self, Guardian};
use crate::run::session::{Caller, Notice, Session};
use crate::sandbox::{Risk, Script};
use crate::trace::Record;
use crate::types::{ToolResult, cut};
use crate::undo::By;

/// Most jobs of a session that run at once.
const RUNNING: usize = 8;
/// How many ended jobs can still be read.
const ENDED: usize = 32;
/// How long to watch a new job, so that one that fails to start is reported at once.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// How long to wait for the output of a job that has none yet.
const WAIT: Duration = Duration::from_secs(1);
/// How often to look while waiting.
const LOOK: Duration = Duration::from_millis(20);

/// The jobs of a session.
#[derive(Default)]
pub struct Jobs {
    started: Mutex<Started>,
}

#[derive(Default)]
struct Started {
    count: usize,
    jobs: Vec<Arc<Job>>,
}

/// A job and the guardian of its changes.
struct Job {
    number: usize,
    /// The call that started it: `shell python3 -m http.server`.
    call: String,
    /// The team that may read and end it.
    holder: String,
    /// Its scope in the trace.
    scope: String,
    /// Answers for its changes; `None` for a person's own job.
    guardian: Option<Guardian>,
    job: crate::sandbox::Job,
    /// Whether its end has been reported.
    told: AtomicBool,
}

/// The result of taking over a job's changes.
#[derive(Default)]
struct Taken {
    /// Why its changes were discarded, if they were.
    undone: Option<String>,
    /// How a person changed its changes; may be empty.
    note: String,
}

/// An action on jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAction {
    /// Lists the jobs.
    List,
    /// Returns a job's output since the last read.
    Read,
    /// Ends a job.
    End,
}

impl JobAction {
    /// The action with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "list" => Some(JobAction::List),
            "read" => Some(JobAction::Read),
            "end" => Some(JobAction::End),
            _ => None,
        }
    }
}

impl Jobs {
    /// Starts a program of a step in the background.
    /// `call` is the call as one line.
    ///
    /// # Errors
    /// The sandbox or the trace failed.
    pub(in crate::run) fn start(
        script: &Script,
        call: String,
        mut guardian: Option<Guardian>,
        reads: bool,
        caller: &Caller,
    ) -> Result<ToolResult, Error> {
        let session = caller.session;
        session.jobs.settle(session);
        if let Some(why) = caller.overruled()? {
            return Ok(ToolResult::failed(format!("not run: {why}")));
        }
        // Start them one at a time, so that the limit also holds for jobs that start at once.
        let mut started = session.jobs.started();
        let running = started.jobs.iter().filter(|job| job.runs()).count();
        if running >= RUNNING {
            let error = format!("not started: {RUNNING} jobs run already, which is the limit; end one first");
            return Ok(ToolResult::failed(error));
        }
        let own = guardian.clone();
        let by = own.as_ref().map_or_else(By::default, |own| own.by(session));
        let mut ask = |risk: Risk| {
            guardian.as_mut().map_or(Ok(true), |guardian| guardian.answer(risk, session, caller.trace))
        };
        let guarded = caller.npc.is_some();
        let Some(job) = session.sandbox.start(script, guarded, reads, by, &mut ask)? else {
            let why = guardian.map(|guardian| guardian.why).unwrap_or_default();
            return Ok(ToolResult::failed(format!("not run: {why}")));
        };
        started.count += 1;
        let job = Arc::new(Job {
            number: started.count,
            call,
            holder: holder(caller.team),
            scope: caller.scope.to_owned(),
            guardian,
            job,
            told: AtomicBool::new(false),
        });
        let over = started.jobs.iter().filter(|job| !job.runs()).count();
        if let Some(first) = started.jobs.iter().position(|job| !job.runs()).filter(|_| over >= ENDED) {
            started.jobs.remove(first);
        }
        started.jobs.push(job.clone());
        drop(started);
        let record = Record::Job { job: job.number, call: job.call.clone(), ended: None };
        caller.trace.push(caller.scope, record)?;
        session.notify(&Notice::Job { job: job.number, call: &job.call, ended: None });
        job.job.ended(FIRST_LOOK);
        let (output, dropped_bytes) = job.job.read();
        if let Some(error) = job.job.failure(&output) {
            return Err(error.into());
        }
        let result = job.result(&output, dropped_bytes);
        let Some(ended) = job.job.ended(Duration::ZERO) else {
            let mut note = format!("it goes on in the background as job {}", job.number);
            if !session.sandbox.reaches_jobs() {
                note += "; no other program can speak with it: this machine has no network namespaces";
            }
            return Ok(ToolResult { note, ..result });
        };
        let Taken { undone, note } = job.close(session)?;
        let failed = undone.or_else(|| (ended.exit != Some(0)).then(|| ended.how.clone()));
        let mut result = match failed {
            Some(error) => ToolResult { ok: false, error, exit: ended.exit, ..result },
            None => result,
        };
        result.add_note(&note);
        Ok(result)
    }

    /// Performs an action on the jobs of the caller's team.
    /// Without a number, it acts on the latest job.
    ///
    /// # Errors
    /// The sandbox or the trace failed.
    pub(in crate::run) fn act(
        action: JobAction,
        number: Option<usize>,
        caller: &Caller,
    ) -> Result<ToolResult, Error> {
        let session = caller.session;
        session.jobs.settle(session);
        let holder = holder(caller.team);
        let own: Vec<Arc<Job>> = {
            let started = session.jobs.started();
            started.jobs.iter().filter(|job| job.holder == holder).cloned().collect()
        };
        if action == JobAction::List {
            let lines: Vec<String> = own.iter().map(|job| job.line()).collect();
            let none = "no jobs were started".to_owned();
            return Ok(ToolResult::succeeded(if lines.is_empty() { none } else { lines.join("\n") }));
        }
        let meant = number.map_or(own.last(), |number| own.iter().find(|job| job.number == number));
        let Some(job) = meant else {
            let error = match number {
                Some(number) if !own.is_empty() => {
                    let numbers: Vec<String> = own.iter().map(|job| job.number.to_string()).collect();
                    format!("there is no job {number}; there are: {}", numbers.join(", "))
                }
                _ => "no jobs were started".to_owned(),
            };
            return Ok(ToolResult::failed(error));
        };
        match action {
            JobAction::End => job.job.end(),
            _ => job.wait_for_output(caller),
        }
        let (output, dropped_bytes) = job.job.read();
        let Taken { undone, note } = if job.runs() { job.take(session)? } else { job.close(session)? };
        let result = job.result(&output, dropped_bytes);
        let mut result = match undone {
            Some(error) => ToolResult { ok: false, error, exit: None, ..result },
            None => result,
        };
        result.add_note(&note);
        Ok(result)
    }

    /// Updates the work directory before another program runs in it.
    /// Takes over the changes of jobs that need no confirmation, and shows jobs the changes of
    /// others.
    /// Reports which jobs have ended.
    pub(in crate::run) fn settle(&self, session: &Session) {
        let jobs = self.started().jobs.clone();
        for job in jobs {
            let mut later = |_: Risk| Ok::<bool, Error>(false);
            if let Some(guardian) = &job.guardian
                && let Err(error) = session.sandbox.take(&job.job, guardian.by(session), &mut later)
            {
                session.notify(&Notice::Warning(&format!("job {}: {error}", job.number)));
            }
            job.job.refresh();
            job.tell(session);
        }
    }

    /// Shows jobs the changes of a program.
    pub(in crate::run) fn refresh(&self) {
        self.started().jobs.iter().for_each(|job| job.job.refresh());
    }

    /// Ends all running jobs; returns the calls that started them.
    pub(in crate::run) fn finish(&self, session: &Session) -> Vec<String> {
        let jobs = self.started().jobs.clone();
        let mut ended = Vec::new();
        for job in jobs {
            if job.runs() {
                ended.push(job.call.clone());
                job.job.end();
            }
            match job.close(session) {
                Ok(Taken { undone: None, .. }) => {}
                Ok(Taken { undone: Some(why), .. }) => {
                    session.notify(&Notice::Warning(&format!("job {}: {why}", job.number)));
                }
                Err(error) => session.notify(&Notice::Warning(&format!("job {}: {error}", job.number))),
            }
        }
        ended
    }

    fn started(&self) -> MutexGuard<'_, Started> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn runs(&self) -> bool {
        self.job.ended(Duration::ZERO).is_none()
    }

    /// The job as a line: `1  runs for 12 s: shell python3 -m http.server`.
    fn line(&self) -> String {
        format!("{}  {}: {}", self.number, self.state(), self.call)
    }

    fn state(&self) -> String {
        match self.job.ended(Duration::ZERO) {
            Some(ended) => format!("has ended ({})", ended.how),
            None => format!("has run for {} s", self.job.age().as_secs()),
        }
    }

    /// The result that a caller gets for the job.
    fn result(&self, output: &str, mut dropped_bytes: u64) -> ToolResult {
        let note = format!("job {} {}", self.number, self.state());
        let mut output = output.trim_end_matches(['\n', '\r']).to_owned();
        if dropped_bytes > 0 {
            // The oldest output made space for the newest, up to somewhere within a line.
            // Some more makes space for the mark.
            let mark = output.floor_char_boundary(cut::mark(0, u64::MAX).len());
            let rest = output.split_off(output[mark..].find('\n').map_or(0, |at| mark + at + 1));
            dropped_bytes += output.len() as u64;
            output = format!("{}\n{rest}", cut::mark(0, dropped_bytes));
        }
        ToolResult { note, dropped_bytes, ..ToolResult::succeeded(output) }
    }

    fn wait_for_output(&self, caller: &Caller) {
        let begun = std::time::Instant::now();
        while !self.job.has_output() && self.runs() && caller.stopped().is_none() && begun.elapsed() < WAIT {
            std::thread::sleep(LOOK);
        }
    }

    /// Takes over the job's changes.
    /// If they are refused, the job is ended: its later changes would build on files that don't
    /// exist.
    fn take(&self, session: &Session) -> Result<Taken, Error> {
        let Some(mut guardian) = self.guardian.clone() else { return Ok(Taken::default()) };
        let own = guardian.clone();
        let mut ask = |risk: Risk| guardian.answer(risk, session, &session.trace);
        let before = session.sandbox.changes().unwrap_or_default();
        if session.sandbox.take(&self.job, own.by(session), &mut ask)? {
            guarded::tell_of_journal(session);
            guarded::record_changes(session, &session.trace, &self.scope, before)?;
            return Ok(Taken { undone: None, note: guardian.note });
        }
        self.job.end();
        self.job.discard();
        self.tell(session);
        let undone = Some(format!("ended, and no file was changed: {}", guardian.why));
        Ok(Taken { undone, note: String::new() })
    }

    /// As [`take`](Self::take), after the job has ended.
    fn close(&self, session: &Session) -> Result<Taken, Error> {
        self.tell(session);
        self.take(session)
    }

    /// Reports its end, once.
    fn tell(&self, session: &Session) {
        let Some(ended) = self.job.ended(Duration::ZERO) else { return };
        if self.told.swap(true, Ordering::Relaxed) {
            return;
        }
        let how = Some(ended.how.clone());
        // If the trace can't be written, the next write reports it.
        let record = Record::Job { job: self.number, call: self.call.clone(), ended: how };
        let _ = session.trace.push(&self.scope, record);
        session.notify(&Notice::Job { job: self.number, call: &self.call, ended: Some(&ended.how) });
    }
}
