//! Threads that compute together.
//!
//! A decode step is hundreds of short jobs, each a fraction of a millisecond, so a job must start in about a
//! microsecond: workers spin for a moment between jobs and only then sleep, and a worker that comes too late to a job
//! is not waited for.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

/// How often a worker looks for the next job before it sleeps: for about a tenth of a millisecond.
const SPINS: usize = 1_500;

/// A fixed number of threads: the caller's and workers that are kept between jobs.
pub struct Threads {
    crew: Arc<Crew>,
    workers: Vec<JoinHandle<()>>,
    /// Held while a job runs.
    turn: Mutex<()>,
}

impl Threads {
    /// `count` threads, the caller's included (at least one). Fewer if the system refuses to start so many.
    pub fn new(count: usize) -> Threads {
        let crew = Arc::new(Crew::default());
        let start = |index| {
            let crew = Arc::clone(&crew);
            thread::Builder::new().name(format!("compute-{index}")).spawn(move || crew.serve()).ok()
        };
        let workers = (1..count).map_while(start).collect();
        Threads { crew, workers, turn: Mutex::new(()) }
    }

    /// The number of threads, the caller's included.
    pub fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` once for each of `0..tasks` and returns when all are done. A thread takes the next task as soon as
    /// it is free. A task that runs tasks itself, or a caller while another's job runs, computes alone.
    ///
    /// # Panics
    /// If a task panics, with its payload, once no task runs any more; tasks not yet begun are dropped.
    pub fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        let turn = match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()), // a task panicked
            Err(TryLockError::WouldBlock) => None,
        };
        if turn.is_some() && tasks > 1 && !self.workers.is_empty() {
            self.crew.run(tasks, work);
        } else {
            (0..tasks).for_each(work);
        }
    }
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Threads({})", self.count())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.crew.stop.store(true, SeqCst);
        self.crew.wake();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks.
            let _ = worker.join();
        }
    }
}

/// The state of the gate: `job number * JOB + OPEN if workers may join + workers inside`.
const OPEN: usize = 1 << 15;
const JOB: usize = 1 << 16;
const INSIDE: usize = OPEN - 1;

/// What the caller and the workers share.
#[derive(Default)]
struct Crew {
    gate: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    /// The next task of the job.
    next: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    sleepers: AtomicUsize,
    bed: Mutex<()>,
    alarm: Condvar,
}

#[derive(Clone, Copy)]
struct Job {
    tasks: usize,
    work: *const (dyn Fn(usize) + Sync),
}

// SAFETY: `job` is written by the one caller that holds the turn, while the gate is closed and nobody is inside; workers
// read it only inside. Its pointer is to a `Sync` closure that outlives the job: `run` returns when all have left.
unsafe impl Sync for Crew {}
// SAFETY: as above.
unsafe impl Send for Crew {}

impl Crew {
    fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes, and the pointer isn't used after this call (see `Sync`).
        let work =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work) };
        let job = Job { tasks, work };
        // SAFETY: the gate is closed and nobody is inside, and only the holder of the turn is here.
        unsafe { *self.job.get() = Some(job) };
        self.next.store(0, SeqCst);
        let number = (self.gate.load(SeqCst) / JOB).wrapping_add(1);
        self.gate.store(number.wrapping_mul(JOB) | OPEN, SeqCst);
        if self.sleepers.load(SeqCst) > 0 {
            self.wake();
        }
        self.work(job);
        self.gate.fetch_and(!OPEN, SeqCst);
        let mut spins = 0;
        while self.gate.load(SeqCst) & INSIDE != 0 {
            pause(&mut spins);
        }
        if let Some(payload) = lock(&self.panic).take() {
            resume_unwind(payload);
        }
    }

    /// Takes tasks until there are none.
    fn work(&self, job: Job) {
        // SAFETY: the closure lives until `run` returns, which waits for everyone inside.
        let work = unsafe { &*job.work };
        let tasks = AssertUnwindSafe(|| {
            loop {
                let task = self.next.fetch_add(1, SeqCst);
                if task >= job.tasks {
                    break;
                }
                work(task);
            }
        });
        if let Err(payload) = catch_unwind(tasks) {
            self.next.store(job.tasks, SeqCst);
            lock(&self.panic).get_or_insert(payload);
        }
    }

    /// The life of a worker.
    fn serve(&self) {
        let mut seen = 0;
        while !self.stop.load(SeqCst) {
            let gate = self.await_job(seen);
            seen = gate / JOB;
            if gate & OPEN != 0 && self.gate.compare_exchange(gate, gate + 1, SeqCst, SeqCst).is_ok() {
                // SAFETY: this worker is inside, so the caller of the job waits for it and `job` isn't written.
                if let Some(job) = unsafe { *self.job.get() } {
                    self.work(job);
                }
                self.gate.fetch_sub(1, SeqCst);
            } else if gate & OPEN != 0 {
                // Another worker changed the gate meanwhile: look again.
                seen = seen.wrapping_sub(1);
            }
        }
    }

    /// The gate, once it is that of another job than `seen` or the crew stops.
    fn await_job(&self, seen: usize) -> usize {
        for _ in 0..SPINS {
            let gate = self.gate.load(SeqCst);
            if gate / JOB != seen || self.stop.load(SeqCst) {
                return gate;
            }
            std::hint::spin_loop();
        }
        let mut bed = lock(&self.bed);
        // Whoever opens the gate looks for sleepers after it; whoever sleeps looks at the gate after lying down.
        self.sleepers.fetch_add(1, SeqCst);
        loop {
            let gate = self.gate.load(SeqCst);
            if gate / JOB != seen || self.stop.load(SeqCst) {
                self.sleepers.fetch_sub(1, SeqCst);
                return gate;
            }
            bed = self.alarm.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self) {
        drop(lock(&self.bed));
        self.alarm.notify_all();
    }
}

/// Waits a moment: spinning at first, then leaving the core to others.
fn pause(spins: &mut usize) {
    *spins += 1;
    if *spins < SPINS {
        std::hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers of which several tasks write different ones.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    numbers: PhantomData<&'a mut [T]>,
}

// SAFETY: as `&mut [T]`; who writes vouches for disjointness.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(numbers: &'a mut [T]) -> Self {
        Disjoint { start: numbers.as_mut_ptr(), len: numbers.len(), numbers: PhantomData }
    }

    /// The numbers from `start` on.
    ///
    /// # Safety
    /// No other task has any of them while the slice lives.
    ///
    /// # Panics
    /// If they are not all there.
    #[allow(clippy::mut_from_ref)] // That is what it is for.
    pub(crate) unsafe fn slice(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start, "{start} + {len} of {} numbers", self.len);
        // SAFETY: inside the borrowed slice, and the caller says that nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for count in 1..=4 {
            let threads = Threads::new(count);
            for tasks in [0, 1, 2, 3, 17, 1000] {
                let ran: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                threads.run(tasks, &|task| {
                    ran[task].fetch_add(1, SeqCst);
                });
                assert!(ran.iter().all(|ran| ran.load(SeqCst) == 1), "{count} threads, {tasks} tasks");
            }
        }
    }

    #[test]
    fn many_jobs_follow_each_other() {
        let threads = Threads::new(3);
        let sum = AtomicUsize::new(0);
        for job in 0..2000 {
            threads.run(5, &|task| {
                sum.fetch_add(task, SeqCst);
            });
            assert_eq!(sum.load(SeqCst), (job + 1) * 10);
            if job % 500 == 0 {
                thread::sleep(std::time::Duration::from_millis(3)); // the workers fall asleep
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_threads_go_on() {
        let threads = Threads::new(3);
        let run = || threads.run(100, &|task| assert!(task != 41, "task {task}"));
        let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert_eq!(payload.downcast_ref::<String>().unwrap(), "task 41");
        every(&threads);
    }

    #[test]
    fn a_task_may_run_tasks() {
        let threads = Threads::new(2);
        threads.run(4, &|_| every(&threads));
    }

    fn every(threads: &Threads) {
        let sum = AtomicUsize::new(0);
        threads.run(10, &|task| {
            sum.fetch_add(task, SeqCst);
        });
        assert_eq!(sum.load(SeqCst), 45);
    }
}
