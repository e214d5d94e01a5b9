//! Guards what lay in the work directory before a program came.
//! Whoever can say yes is asked before something of it is removed, overwritten or moved.
//!
//! Not what a program's text looks like counts but what it does.
//! Where overlayfs can be had, it writes to a layer of its own.
//! What is in there when it has ended is inspected, and taken over or thrown away as a whole.
//! Elsewhere the question comes before it starts, for nobody knows what it will do.
//!
//! A job has a layer of its own for as long as it runs.
//! What is new in it is copied, and the copy inspected and taken over, whenever somebody asks for
//! it.

#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::change::Change;
#[cfg(target_os = "linux")]
use super::change::is_deep;
#[cfg(target_os = "linux")]
use super::layer::{self, Made, Proposed};
use super::{Job, Output, Over, Proposal, Sandbox, Script};
use crate::error::Error;
#[cfg(target_os = "linux")]
use crate::scratch::Scratch;
use crate::undo::By;

/// Where layers are kept, if it is possible there: it must not lie in the work directory, and its
/// filesystem needs attributes.
#[cfg(target_os = "linux")]
const PLACES: [&str; 2] = ["/var/tmp", "/dev/shm"];

/// Variables that keep programs from rewriting files which only make them faster: a question about
/// these would be noise.
pub(super) const QUIET: [(&str, &str); 2] = [("GIT_OPTIONAL_LOCKS", "0"), ("PYTHONDONTWRITEBYTECODE", "1")];

/// How the work directory is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarding {
    /// Programs write to a layer over it, and only what loses something is asked about.
    Layer,
    /// Nothing is known of a program before it has run, so each is asked about.
    Ask,
}

/// What a person is asked about.
#[derive(Clone, Copy, Debug)]
pub enum Risk<'a> {
    /// A program has done this, and some of it [needs a yes](Change::needs_a_yes).
    Losses(&'a [Change]),
    /// This is about to be written, and a person wants to look at it first.
    Writes(&'a dyn Proposal),
    /// A program may do anything.
    Unknown,
    /// A program has done this, which is [refused](super::Policy::refused): no question.
    Refused(&'a [Change]),
}

/// What came of a guarded program.
#[derive(Debug)]
pub enum Guarded {
    /// It ran, and what it did is done.
    Ran(Output),
    /// It ran, and of what it did nothing is left.
    Undone(Output),
    /// It did not run.
    Refused,
}

/// What guards a work directory.
#[derive(Debug)]
pub(super) struct Guard {
    /// Whether nothing is asked about, or no more, but what tools of the user obey.
    permitted: AtomicBool,
    /// What is written by nobody.
    #[cfg(target_os = "linux")]
    refused: globset::GlobSet,
    /// The directories of the work directory whose programs the user's shell finds.
    #[cfg(target_os = "linux")]
    on_path: Vec<PathBuf>,
    /// What git obeys in the work directory by its settings.
    #[cfg(target_os = "linux")]
    git: super::presence::Asked,
    /// What lies below a layer must not change, so a program with a layer runs alone.
    turn: RwLock<()>,
    #[cfg(target_os = "linux")]
    layers: Option<Layers>,
}

#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Layers {
    place: Scratch,
    /// What programs have made: no question is needed to take it away again.
    made: Mutex<Made>,
}

impl Guard {
    /// What `sandbox` needs; `None` where nobody can lose anything.
    ///
    /// # Errors
    /// What must not be written can't be told here.
    pub(super) fn of(sandbox: &Sandbox) -> Result<Option<Self>, Error> {
        let policy = &sandbox.policy;
        // One that can't be read is not known to be empty.
        let is_empty = || sandbox.work.read_dir().is_ok_and(|mut entries| entries.next().is_none());
        let watched = policy.guard && (policy.review || !is_empty());
        let refuses = !policy.refused.is_empty() && sandbox.launched() && !sandbox.is_read_only();
        // A file has as many names as it has links: only a layer tells them apart.
        let keeps = policy.protected.iter().any(|path| path.starts_with(&sandbox.work));
        if !policy.guard && !refuses && !keeps {
            return Ok(None);
        }
        #[cfg(target_os = "linux")]
        let layers = Layers::of(sandbox);
        #[cfg(target_os = "linux")]
        if refuses && layers.is_none() {
            let path = sandbox.work.join(&policy.refused[0]);
            return Err(Error::Unprotected { path, why: "it has no overlayfs for users" });
        }
        #[cfg(target_os = "linux")]
        if layers.is_none() && !watched {
            return Ok(None);
        }
        #[cfg(not(target_os = "linux"))]
        if !watched {
            return Ok(None);
        }
        Ok(Some(Guard {
            permitted: AtomicBool::new(!watched),
            #[cfg(target_os = "linux")]
            refused: super::presence::set(policy.refused.iter().cloned()),
            #[cfg(target_os = "linux")]
            on_path: super::environment::on_path(&sandbox.work),
            #[cfg(target_os = "linux")]
            git: super::presence::Asked::about(&sandbox.work),
            turn: RwLock::default(),
            #[cfg(target_os = "linux")]
            layers,
        }))
    }

    /// Which of the changes are never made.
    #[cfg(target_os = "linux")]
    fn refuses(&self, changes: &[Change]) -> Vec<Change> {
        let never = |change: &&Change| self.refused.is_match(&change.path) || is_deep(&change.path);
        changes.iter().filter(never).cloned().collect()
    }

    /// For a program with a layer, and wherever the work directory is taken over or compared.
    fn turn(&self) -> RwLockWriteGuard<'_, ()> {
        self.turn.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// For programs without one, which may run beside each other.
    pub(super) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.turn.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sandbox {
    /// How the work directory is guarded; `None`: not at all, since nothing was in there, or it is
    /// permitted.
    pub fn guarding(&self) -> Option<Guarding> {
        let guard = self.guard.as_ref().filter(|guard| !guard.permitted.load(Ordering::Relaxed))?;
        #[cfg(target_os = "linux")]
        if guard.layers.is_some() {
            return Some(Guarding::Layer);
        }
        let _ = guard;
        Some(Guarding::Ask)
    }

    /// Whether a person looks at each change before it is done.
    pub fn reviews(&self) -> bool {
        self.policy.review && self.guarding().is_some()
    }

    /// From now on programs may remove and overwrite what they like in the work directory.
    /// Files that tools of the user obey are asked about all the same.
    pub fn permit(&self) {
        if let Some(guard) = &self.guard {
            guard.permitted.store(true, Ordering::Relaxed);
        }
    }

    /// As [`run`](Self::run), or [`finish`](Self::finish) if `finishing`.
    /// What it takes away of the work directory, and was not made by an earlier program, is gone
    /// only if `ask` says yes.
    /// So it is with what [reaches others](Change::reaches_others).
    /// Otherwise nothing is changed at all.
    /// `reads`: it is known to change nothing, so it needs no question where it can't be watched.
    /// `by` is what the sandbox's journal calls it.
    ///
    /// # Errors
    /// As [`run`](Self::run), and if what a program did can't be taken over.
    /// Those of `ask`.
    pub fn run_guarded(
        &self,
        script: &Script,
        finishing: bool,
        reads: bool,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, Error>,
    ) -> Result<Guarded, Error> {
        self.run_guarded_if(&|| true, script, finishing, reads, by, ask)
    }

    /// The same, if `may` says yes to it.
    /// It is asked when nothing that a layer holds back comes into the work directory any more
    /// until the program has ended: what it finds there, the program finds.
    ///
    /// # Errors
    /// As [`run_guarded`](Self::run_guarded).
    pub fn run_guarded_if(
        &self,
        may: &dyn Fn() -> bool,
        script: &Script,
        finishing: bool,
        reads: bool,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, Error>,
    ) -> Result<Guarded, Error> {
        // Where what it does can't be looked at, it can't change what tools of the user obey.
        let over = if self.guard.is_some() { Over::Fixed } else { Over::Nothing };
        let plainly = || {
            let _turn = self.guard.as_ref().map(Guard::turn);
            if !may() {
                return Ok(Guarded::Refused);
            }
            self.run_over(script, over, finishing).map(Guarded::Ran)
        };
        match (self.guarding(), &self.guard) {
            #[cfg(target_os = "linux")]
            (_, Some(guard @ Guard { layers: Some(layers), .. })) => {
                let _turn = guard.turn();
                if !may() {
                    return Ok(Guarded::Refused);
                }
                layers.run(self, guard, script, finishing, by, ask)
            }
            (Some(_), _) if !reads && !ask(Risk::Unknown)? => Ok(Guarded::Refused),
            _ => {
                let journal = self.journal.as_ref().filter(|_| !reads);
                let before = journal.map(|journal| (journal, journal.look(&self.work, by)));
                let ran = plainly();
                before.into_iter().for_each(|(journal, before)| journal.looked(before));
                ran
            }
        }
    }
}

impl Sandbox {
    /// Starts a program that goes on beside the others.
    /// They share a network with it that leads nowhere, from now on, if it may not use another one.
    /// Of the script's limits, time and output don't count, and it gets no input.
    /// What it does to a `guarded` work directory comes there by [`take`](Self::take); the rest is
    /// as in [`run_guarded`](Self::run_guarded).
    /// `None`: it was not permitted.
    ///
    /// # Errors
    /// It can't be started or isolated.
    /// Those of `ask`.
    pub fn start(
        &self,
        script: &Script,
        guarded: bool,
        reads: bool,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, Error>,
    ) -> Result<Option<Job>, Error> {
        #[cfg(target_os = "linux")]
        if self.launched() && super::enforced().network && !self.has_network(script) {
            self.share_network()?;
        }
        let guard = self.guard.as_ref().filter(|_| guarded);
        let journal = self.journal.as_ref().filter(|_| guarded && !reads);
        let begin = |over, before| {
            let program = script.program.first().copied().unwrap_or_default().to_owned();
            let command = self.command(script, over, true);
            Job::start(command, self, before).map_err(|source| Error::Spawn { program, source })
        };
        #[cfg(target_os = "linux")]
        if let Some(Guard { layers: Some(layers), .. }) = guard {
            let folder = layers.folder(&self.work)?;
            let job = begin(Over::Layer(folder.path()), None)?;
            *job.layer.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((folder, layer::Taken::default()));
            return Ok(Some(job));
        }
        if guard.is_some() && self.guarding().is_some() && !reads && !ask(Risk::Unknown)? {
            return Ok(None);
        }
        let before = journal.map(|journal| journal.look(&self.work, by));
        let over = if guard.is_some() { Over::Fixed } else { Over::Nothing };
        begin(over, before).map(Some)
    }

    /// Whether programs reach the servers that jobs are.
    pub fn reaches_jobs(&self) -> bool {
        // Without isolation they share the machine's own network.
        !self.launched() || super::enforced().network
    }

    #[cfg(target_os = "linux")]
    fn share_network(&self) -> Result<(), Error> {
        if self.loopback.get().is_none() {
            // Another thread may have been faster.
            let _ = self.loopback.set(super::loopback::Loopback::new()?);
        }
        Ok(())
    }

    /// Takes what a job has written since the last time over into the work directory; `by` is what
    /// the journal calls it.
    /// `false`: something of it needs a yes and `ask` says no, so nothing is changed.
    /// Once the job has ended, its layer goes with that.
    ///
    /// # Errors
    /// What it did can't be read or taken over.
    /// Those of `ask`.
    pub fn take(
        &self,
        job: &Job,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        #[cfg(target_os = "linux")]
        if let Some(guard @ Guard { layers: Some(layers), .. }) = &self.guard {
            let _turn = guard.turn();
            let ended = job.ended(std::time::Duration::ZERO).is_some();
            let mut layer = job.layer.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((folder, taken)) = &mut *layer else { return Ok(true) };
            let upper = folder.path().join("upper");
            let staged = layers.folder(&self.work)?;
            let copy = staged.path().join("upper");
            let now =
                layer::stage(&upper, &copy, taken).map_err(|source| layers.error("can't be copied", source));
            let done = now.and_then(|now| Ok((layers.take_over(self, guard, &copy, by, ask)?, now)));
            let _ = crate::scratch::remove(staged.path());
            let (done, now) = done?;
            if done {
                *taken = now;
            }
            if done && ended {
                let _ = crate::scratch::remove(folder.path());
                *layer = None;
            }
            return Ok(done);
        }
        let _ = ask;
        let mut before = job.before.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(journal), Some(earlier)) = (&self.journal, before.take()) {
            journal.looked(earlier);
            *before = Some(journal.look(&self.work, by));
        }
        Ok(true)
    }
}

#[cfg(target_os = "linux")]
impl Layers {
    /// Layers over the work directory of `sandbox`; `None` where that is not possible, found out by
    /// trying.
    fn of(sandbox: &Sandbox) -> Option<Self> {
        if !sandbox.launched()
            || !super::enforced().mounts
            || sandbox.work != sandbox.work_inside()
            || super::mounts::within(&sandbox.work)
        {
            return None;
        }
        let places = [std::env::temp_dir()].into_iter().chain(PLACES.map(Into::into));
        places.filter(|place| place.is_dir()).find_map(|place| {
            let layers = Layers { place: Scratch::claim(&place).ok()?, made: Mutex::default() };
            let timeout = std::time::Duration::from_secs(10);
            let nothing = Script::new(&["true"], timeout);
            let folder = layers.folder(&sandbox.work).ok()?;
            let child = sandbox.spawn_over(&nothing, Over::Layer(folder.path())).ok()?;
            sandbox.run_until(child, &nothing, &AtomicBool::new(false)).ok().map(|_| layers)
        })
    }

    /// A new layer, which is gone when it is dropped.
    /// The directory looks like the one that it covers.
    fn folder(&self, work: &std::path::Path) -> Result<tempfile::TempDir, Error> {
        let make = || {
            let folder = tempfile::tempdir_in(self.place.path())?;
            let (upper, own) = (folder.path().join("upper"), folder.path().join("work"));
            std::fs::create_dir(&upper)?;
            std::fs::create_dir(own)?;
            std::fs::set_permissions(&upper, work.metadata()?.permissions())?;
            Ok(folder)
        };
        make().map_err(|source| self.error("can't be made", source))
    }

    fn error(&self, what: &'static str, source: std::io::Error) -> Error {
        Error::Layer { what, path: self.place.path().to_owned(), source }
    }

    fn run(
        &self,
        sandbox: &Sandbox,
        guard: &Guard,
        script: &Script,
        finishing: bool,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, Error>,
    ) -> Result<Guarded, Error> {
        let folder = self.folder(&sandbox.work)?;
        let upper = folder.path().join("upper");
        let child = sandbox.spawn_over(script, Over::Layer(folder.path()))?;
        let never = AtomicBool::new(false);
        let output = sandbox.run_until(child, script, if finishing { &never } else { &sandbox.cancel });
        let kept = output.and_then(|output| {
            let mut ask = |risk: Risk| Ok(!output.cancelled && ask(risk)?);
            Ok(match self.take_over(sandbox, guard, &upper, by, &mut ask)? {
                true => Guarded::Ran(output),
                false => Guarded::Undone(output),
            })
        });
        // Also what forbids it by its permissions.
        let _ = crate::scratch::remove(folder.path());
        kept
    }

    /// Takes over into the work directory what lies in `upper`; `false` = nobody said yes to it.
    fn take_over(
        &self,
        sandbox: &Sandbox,
        guard: &Guard,
        upper: &std::path::Path,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let look = |made: &Made| {
            let reach = layer::Reach { on_path: &guard.on_path, git: &guard.git };
            layer::look(upper, &sandbox.work, reach, made)
                .map_err(|source| self.error("can't be read", source))
        };
        let changes = look(&made)?;
        let refused = guard.refuses(&changes);
        if !refused.is_empty() {
            ask(Risk::Refused(&refused))?;
            return Ok(false);
        }
        let permitted = sandbox.guarding().is_none();
        let reviews = sandbox.reviews();
        let asked = |change: &Change| change.reaches_others() || ((change.loses || reviews) && !permitted);
        let changes = if changes.iter().any(asked) {
            let proposed = Proposed::new(upper, &sandbox.work, &changes)
                .map_err(|source| self.error("can't be read", source))?;
            let risk = if reviews { Risk::Writes(&proposed) } else { Risk::Losses(&changes) };
            if !ask(risk)? {
                return Ok(false);
            }
            // The answer was yes to exactly what was shown.
            let now = look(&made)?;
            if !proposed.holds(&now) || !guard.refuses(&now).is_empty() {
                return Ok(false);
            }
            now
        } else {
            changes
        };
        let paths = || changes.iter().map(|change| change.path.as_path());
        let journal = sandbox.journal.as_ref();
        let before = journal.map(|journal| (journal, journal.before(&sandbox.work, paths(), by)));
        let put = layer::put(upper, &sandbox.work, &changes, &mut made);
        // What broke off is written down, too.
        if let Some((journal, before)) = before {
            journal.after(before);
        }
        put.map_err(|source| Error::Taken { path: sandbox.work.clone(), source })?;
        Ok(true)
    }
}
