//! Progress output while a suite runs.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use alara_bench::options::Progress;
use alara_bench::record::{Finished, Verdict};

use crate::ui;

/// Progress: a bar at a terminal, one line per task elsewhere.
pub struct Display {
    bar: Option<ui::Bar>,
    total: u64,
    /// Name of the current run.
    run: Mutex<String>,
    done: AtomicU64,
    solved: AtomicU64,
}

impl Display {
    /// Starts with `total` tasks, none of them finished.
    pub fn new(total: usize) -> Self {
        let total = total as u64;
        let bar = std::io::stderr().is_terminal().then(|| ui::tasks(total));
        Display { bar, total, run: Mutex::default(), done: AtomicU64::new(0), solved: AtomicU64::new(0) }
    }

    /// Begins another run, of which the tasks `before` have already finished.
    /// `name` is empty if there is only one run.
    pub fn begin(&self, name: String, before: &[Finished]) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = name;
        let solved = before.iter().filter(|done| done.verdict == Verdict::Solved).count();
        self.solved.fetch_add(solved as u64, Ordering::Relaxed);
        self.skip(before.len());
    }

    /// Counts tasks that need no work.
    pub fn skip(&self, tasks: usize) {
        self.done.fetch_add(tasks as u64, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.inc(tasks as u64);
            bar.reset_eta();
        }
    }

    /// Prints a note next to the bar.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.note(text),
            None => ui::note(text),
        }
    }

    fn run(&self) -> String {
        match self.run.lock().unwrap_or_else(PoisonError::into_inner).as_str() {
            "" => String::new(),
            name => format!("{name}  "),
        }
    }

    pub fn show(&self, progress: &Progress) {
        match progress {
            Progress::Attempt { task, number } => {
                let solved = self.solved.load(Ordering::Relaxed);
                if let Some(bar) = &self.bar {
                    let run = self.run();
                    bar.set_message(&format!("{run}{}, attempt {number}; {solved} solved so far", task.id));
                }
            }
            Progress::Finished(finished) => {
                if finished.verdict == Verdict::Solved {
                    self.solved.fetch_add(1, Ordering::Relaxed);
                }
                let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
                let width = self.total.to_string().len();
                self.note(&format!("{done:width$}/{}  {}{}", self.total, self.run(), line(finished)));
                if let Some(bar) = &self.bar {
                    bar.inc(1);
                }
            }
        }
    }

    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Formats a finished task as one line.
fn line(finished: &Finished) -> String {
    let attempts = match finished.attempts {
        1 => "1 attempt".to_owned(),
        attempts => format!("{attempts} attempts"),
    };
    let reason = finished.reason.lines().next().unwrap_or_default();
    let reason = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(160).collect::<String>();
    let head = format!(
        "{:16} {:6}  {attempts}, {:.1} s",
        finished.task,
        finished.verdict.to_string(),
        finished.seconds
    );
    if reason.is_empty() { head } else { format!("{head}  {reason}") }
}
