//! Threads that compute together.
//!
//! A decode step consists of hundreds of short jobs, each a fraction of a millisecond, so a job
//! must start within about a microsecond.
//! Workers spin for a moment between jobs, as long as no other program needs the core, and only
//! then sleep.
//! A worker that is late for a job is not waited for.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

/// How often a worker polls for the next job before it sleeps: about a tenth of a millisecond.
const SPINS: usize = 1_500;

/// After this many polls a worker yields the core to other threads.
const POLITE: usize = 64;

/// A fixed number of threads: the caller's and workers that persist between jobs.
pub struct ThreadPool {
    state: Arc<PoolState>,
    workers: Vec<JoinHandle<()>>,
    /// Locked while a job runs.
    busy: Mutex<()>,
}

impl ThreadPool {
    /// A pool of `count` threads, including the caller's (at least one).
    /// Has fewer threads if the system refuses to start so many.
    pub fn new(count: usize) -> ThreadPool {
        let state = Arc::new(PoolState::new(count.max(1)));
        let start = |index| {
            let state = Arc::clone(&state);
            thread::Builder::new()
                .name(format!("compute-{index}"))
                .spawn(move || state.work_until_stopped(index))
                .ok()
        };
        let workers = (1..count).map_while(start).collect();
        ThreadPool { state, workers, busy: Mutex::new(()) }
    }

    /// The number of threads, including the caller's.
    pub fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` once for each of `0..tasks` and returns when all calls are done.
    /// Each thread processes a contiguous share of tasks in order; a thread that finishes early
    /// steals the last tasks of others.
    /// If a task runs tasks itself, or another caller's job is running, the caller computes alone.
    ///
    /// # Panics
    /// If a task panics, with its payload, after all running tasks have ended; tasks not yet begun
    /// are dropped.
    /// Also if there are 2^32 tasks or more.
    pub fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        let busy = match self.busy.try_lock() {
            Ok(busy) => Some(busy),
            Err(TryLockError::Poisoned(busy)) => Some(busy.into_inner()), // a task panicked
            Err(TryLockError::WouldBlock) => None,
        };
        if busy.is_some() && tasks > 1 && !self.workers.is_empty() {
            self.state.run(tasks, work);
        } else {
            (0..tasks).for_each(work);
        }
    }
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ThreadPool({})", self.count())
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.state.stop.store(true, SeqCst);
        self.state.wake();
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

/// State shared by the caller and the workers.
struct PoolState {
    gate: AtomicUsize,
    job: UnsafeCell<Option<Work>>,
    /// One per thread; the caller's is the first.
    shares: Box<[Share]>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    sleeping: AtomicUsize,
    mutex: Mutex<()>,
    condvar: Condvar,
}

/// The contiguous tasks of a job that wait for one thread, from the first to the one after the
/// last: 32 bits each.
/// Alone in its cache line, and in the one that is prefetched with it.
#[derive(Default)]
#[repr(align(128))]
struct Share(AtomicU64);

impl Share {
    fn put(&self, tasks: Range<usize>) {
        self.0.store((tasks.start as u64) << 32 | tasks.end as u64, SeqCst);
    }

    fn tasks(left: u64) -> Range<usize> {
        (left >> 32) as usize..(left & u64::from(u32::MAX)) as usize
    }

    /// Number of remaining tasks.
    fn len(&self) -> usize {
        Share::tasks(self.0.load(SeqCst)).len()
    }

    /// Takes the first task; for the thread that owns the share.
    fn first(&self) -> Option<usize> {
        let taken = |left| (!Share::tasks(left).is_empty()).then(|| left + (1 << 32));
        self.0.fetch_update(SeqCst, SeqCst, taken).ok().map(|left| Share::tasks(left).start)
    }

    /// Takes the last task; for other threads.
    fn last(&self) -> Option<usize> {
        let taken = |left| (!Share::tasks(left).is_empty()).then(|| left - 1);
        self.0.fetch_update(SeqCst, SeqCst, taken).ok().map(|left| Share::tasks(left).end - 1)
    }
}

type Work = *const (dyn Fn(usize) + Sync);

// SAFETY: `job` is written by the one caller that holds `busy`, while the gate is closed and no
// worker is inside;
// workers only read it inside.
// Its pointer is to a `Sync` closure that outlives the job: `run` returns when all workers have
// left.
unsafe impl Sync for PoolState {}
// SAFETY: as above.
unsafe impl Send for PoolState {}

impl PoolState {
    fn new(threads: usize) -> PoolState {
        PoolState {
            gate: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            shares: (0..threads).map(|_| Share::default()).collect(),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            sleeping: AtomicUsize::new(0),
            mutex: Mutex::new(()),
            condvar: Condvar::new(),
        }
    }

    fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes, and the pointer isn't used after this call (see
        // `Sync`).
        let work =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work) };
        // SAFETY: the gate is closed and no worker is inside, and only the holder of `busy` runs
        // this.
        unsafe { *self.job.get() = Some(work) };
        assert!(u32::try_from(tasks).is_ok(), "{tasks} tasks in a job");
        let threads = self.shares.len();
        for (i, share) in self.shares.iter().enumerate() {
            share.put(tasks * i / threads..tasks * (i + 1) / threads);
        }
        let number = (self.gate.load(SeqCst) / JOB).wrapping_add(1);
        self.gate.store(number.wrapping_mul(JOB) | OPEN, SeqCst);
        if self.sleeping.load(SeqCst) > 0 {
            self.wake();
        }
        self.work(0, work);
        self.gate.fetch_and(!OPEN, SeqCst);
        let mut spins = 0;
        while self.gate.load(SeqCst) & INSIDE != 0 {
            pause(&mut spins);
        }
        if let Some(payload) = lock(&self.panic).take() {
            resume_unwind(payload);
        }
    }

    /// Processes tasks until none are left.
    fn work(&self, thread: usize, work: Work) {
        // SAFETY: the closure lives until `run` returns, which waits for all workers inside.
        let work = unsafe { &*work };
        let tasks = AssertUnwindSafe(|| {
            while let Some(task) = self.task(thread) {
                work(task);
            }
        });
        if let Err(payload) = catch_unwind(tasks) {
            self.shares.iter().for_each(|share| share.put(0..0));
            lock(&self.panic).get_or_insert(payload);
        }
    }

    /// The next task for a thread: from its own share, or from the fullest one.
    fn task(&self, thread: usize) -> Option<usize> {
        self.shares[thread].first().or_else(|| {
            loop {
                let share = self.shares.iter().max_by_key(|share| share.len())?;
                if share.len() == 0 {
                    return None;
                }
                if let Some(task) = share.last() {
                    return Some(task);
                }
            }
        })
    }

    /// The main loop of a worker.
    fn work_until_stopped(&self, thread: usize) {
        let mut seen = 0;
        while !self.stop.load(SeqCst) {
            let gate = self.await_job(seen);
            seen = gate / JOB;
            if gate & OPEN != 0 && self.gate.compare_exchange(gate, gate + 1, SeqCst, SeqCst).is_ok() {
                // SAFETY: this worker is inside, so the caller of the job waits for it and `job`
                // isn't written.
                if let Some(work) = unsafe { *self.job.get() } {
                    self.work(thread, work);
                }
                self.gate.fetch_sub(1, SeqCst);
            } else if gate & OPEN != 0 {
                // Another worker changed the gate meanwhile: check again.
                seen = seen.wrapping_sub(1);
            }
        }
    }

    /// Waits for the gate to announce a job other than `seen`, or for the pool to stop; returns the
    /// gate.
    fn await_job(&self, seen: usize) -> usize {
        for spin in 1..=SPINS {
            let gate = self.gate.load(SeqCst);
            if gate / JOB != seen || self.stop.load(SeqCst) {
                return gate;
            }
            // Give precedence to threads with work: other programs, such as those that an agent
            // runs.
            if spin % POLITE == 0 {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        let mut mutex = lock(&self.mutex);
        // The opener of the gate checks for sleepers afterwards; a worker going to sleep checks the
        // gate after it is counted as a sleeper.
        self.sleeping.fetch_add(1, SeqCst);
        loop {
            let gate = self.gate.load(SeqCst);
            if gate / JOB != seen || self.stop.load(SeqCst) {
                self.sleeping.fetch_sub(1, SeqCst);
                return gate;
            }
            mutex = self.condvar.wait(mutex).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self) {
        drop(lock(&self.mutex));
        self.condvar.notify_all();
    }
}

/// Waits a moment: spins at first, then yields the core.
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

/// A slice of which several tasks write disjoint parts.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    numbers: PhantomData<&'a mut [T]>,
}

// SAFETY: as `&mut [T]`; writers guarantee disjointness.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(numbers: &'a mut [T]) -> Self {
        Disjoint { start: numbers.as_mut_ptr(), len: numbers.len(), numbers: PhantomData }
    }

    /// The numbers from `start` on.
    ///
    /// # Safety
    /// No other task uses any of them while the slice lives.
    ///
    /// # Panics
    /// If they are out of bounds.
    #[allow(clippy::mut_from_ref)] // That is what it is for.
    pub(crate) unsafe fn slice(&self, start: usize, len: usize) -> &mut [T] {
        // SAFETY: inside the borrowed slice, and the caller guarantees exclusive use.
        unsafe { std::slice::from_raw_parts_mut(self.place(start, len), len) }
    }

    /// The address of the numbers from `start` on.
    /// Two tasks must not use the same one at once.
    ///
    /// # Panics
    /// If they are out of bounds.
    pub(crate) fn place(&self, start: usize, len: usize) -> *mut T {
        assert!(start <= self.len && len <= self.len - start, "{start} + {len} of {} numbers", self.len);
        self.start.wrapping_add(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for count in 1..=4 {
            let threads = ThreadPool::new(count);
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
    fn whoever_is_done_takes_over_the_last_tasks_of_others() {
        let threads = ThreadPool::new(2);
        let share = 50;
        let (done, late) =
            (AtomicUsize::new(0), std::time::Instant::now() + std::time::Duration::from_mins(1));
        let by = Mutex::new(vec![None; 2 * share]);
        threads.run(2 * share, &|task| {
            if task == 0 {
                while threads.count() > 1
                    && done.load(SeqCst) < 2 * share - 1
                    && std::time::Instant::now() < late
                {
                    thread::yield_now();
                }
            }
            lock(&by)[task] = Some(thread::current().id());
            done.fetch_add(1, SeqCst);
        });
        let by = lock(&by);
        assert!(
            threads.count() == 1 || by[1..].iter().all(|thread| *thread != by[0]),
            "the first task's thread"
        );
    }

    #[test]
    fn many_jobs_follow_each_other() {
        let threads = ThreadPool::new(3);
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
        let threads = ThreadPool::new(3);
        let run = || threads.run(100, &|task| assert!(task != 41, "task {task}"));
        let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert_eq!(payload.downcast_ref::<String>().unwrap(), "task 41");
        every(&threads);
    }

    #[test]
    fn a_task_may_run_tasks() {
        let threads = ThreadPool::new(2);
        threads.run(4, &|_| every(&threads));
    }

    fn every(threads: &ThreadPool) {
        let sum = AtomicUsize::new(0);
        threads.run(10, &|task| {
            sum.fetch_add(task, SeqCst);
        });
        assert_eq!(sum.load(SeqCst), 45);
    }
}
