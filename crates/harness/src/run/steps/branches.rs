//! Runs branches in parallel.
//! Each branch has a copy of the scope and its own trace.
//! Both are merged in the order of the file, up to the first branch that ends the series.
//! So nothing depends on the number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::flow::{Execution, Stop, list};
use crate::error::Error;
use crate::jinx::check::{Known, reaches};
use crate::jinx::{Action, Step};
use crate::run::session::{Caller, Notice};
use crate::trace::{Record, Trace};

/// A branch that has run.
struct Branch<'a> {
    run: Execution<'a>,
    /// Boxed, since the cache identifies a branch by the address of its trace.
    trace: Box<Trace>,
    /// `true` if the series is over.
    ended: Result<bool, Stop>,
}

impl<'a> Execution<'a> {
    /// The iterations of a parallel loop.
    pub(super) fn side_by_side(&mut self, step: &Step, caller: &Caller) -> Result<(), Stop> {
        let Action::For { variable, items, until, steps, .. } = &step.action else { return Ok(()) };
        let items = list(items, &self.scope).map_err(|reason| Stop::wrong(step, &reason))?;
        let around = self.iteration.clone();
        // Asking after the end of the series would cost tokens, and take replies meant for others.
        let known = Known::new(&caller.team.jinxes);
        let asks = |action: &Action| matches!(action, Action::Llm(_));
        let one_by_one = until.is_some() && steps.iter().any(|step| reaches(step, &known, &asks));
        let threads = if one_by_one { 1 } else { caller.session.threads };
        let (branches, ended) = self.branches(items.len(), threads, caller, |index, run, caller| {
            run.iterate(&around, variable, &items[index], index, items.len());
            run.steps(steps, caller)?;
            run.over(until.as_deref(), step)
        });
        ended?;
        let results = branches.into_iter().map(|run| run.result).collect();
        self.gather(step, steps, results);
        Ok(())
    }

    /// Runs `count` branches on this many threads and merges their traces, up to the first that
    /// stops or ends the series.
    /// Returns these, and why the last of them stopped.
    fn branches(
        &mut self,
        count: usize,
        threads: usize,
        caller: &Caller,
        work: impl Fn(usize, &mut Execution<'a>, &Caller) -> Result<bool, Stop> + Sync,
    ) -> (Vec<Execution<'a>>, Result<(), Stop>) {
        let done: Mutex<Vec<Option<Branch>>> = Mutex::new((0..count).map(|_| None).collect());
        let (next, end) = (AtomicUsize::new(0), AtomicUsize::new(count));
        let (whole, series) = (&*self, caller.trace.begin_series());
        let worker = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count || index > end.load(Ordering::Relaxed) {
                    break;
                }
                let trace = Box::new(series.branch(index));
                let mut run = whole.fork();
                let ended = work(index, &mut run, &Caller { trace: &trace, ..*caller });
                if !matches!(ended, Ok(false)) {
                    end.fetch_min(index, Ordering::Relaxed);
                }
                done.lock().unwrap_or_else(PoisonError::into_inner)[index] =
                    Some(Branch { run, trace, ended });
            }
        };
        // Branches inside a branch only have its thread, so that threads don't multiply.
        match if self.branch(caller).is_some() { 1 } else { threads.min(count) } {
            0 | 1 => worker(),
            workers => std::thread::scope(|scope| {
                for _ in 0..workers {
                    scope.spawn(worker);
                }
            }),
        }
        let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut runs = Vec::new();
        let mut stopped = None;
        for Branch { run, trace, ended } in done.into_iter().flatten() {
            if stopped.is_some() {
                // It wouldn't have run in sequence.
                caller.session.memo.join(&trace, None);
                continue;
            }
            if let Err(error) = self.merge(trace, caller) {
                return (runs, Err(error.into()));
            }
            for (place, count) in &run.places {
                let known = self.places.entry(place.clone()).or_default();
                *known = (*known).max(*count);
            }
            self.last |= run.last;
            stopped = match ended {
                Ok(false) => None,
                Ok(true) => Some(Ok(())),
                Err(stop) => Some(Err(stop)),
            };
            runs.push(run);
        }
        caller.trace.end_series();
        (runs, stopped.unwrap_or(Ok(())))
    }

    fn fork(&self) -> Self {
        Execution {
            jinx: self.jinx,
            scope: self.scope.branch(),
            result: None,
            iteration: self.iteration.clone(),
            places: self.places.clone(),
            last: false,
            missing: 0,
        }
    }

    /// Appends the records of a branch, and shows them to the observer.
    fn merge(&self, branch: Box<Trace>, caller: &Caller) -> Result<(), Error> {
        let own = self.branch(caller);
        caller.session.memo.join(&branch, Some(own));
        if own.is_none() {
            for entry in branch.entries() {
                if let Record::Emit { response } = &*entry.record {
                    caller.session.notify(&Notice::Emit(response));
                }
            }
        }
        caller.trace.join(*branch)
    }
}
