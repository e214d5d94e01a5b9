//! Guards the files that were in the work directory before a program ran.
//! A person is asked before a program removes, overwrites or moves one of them.
//!
//! The guard judges a program by its effects, not by its text.
//! Where overlayfs is available, the program writes to its own layer.
//! After the program ends, the layer is inspected, and taken over or discarded as a whole.
//! Elsewhere the question comes before the program starts, since its effects can't be known.
//!
//! A job has its own layer for as long as it runs.
//! Its new changes are copied, and the copy inspected and taken over, whenever a caller asks for
//! it.

#[cfg(target_os = "linux")]
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::change::Change;
#[cfg(target_os = "linux")]
use super::change::is_deep;
#[cfg(target_os = "linux")]
use super::layer::{self, Covered, Made, Proposed};
use super::presence::{Asked, Checkout};
use super::{Job, Output, Over, Proposal, Sandbox, Script};
use crate::Error;
#[cfg(target_os = "linux")]
use crate::scratch::Scratch;
use crate::undo::By;

/// Where layers are stored if possible: this must not be in the work directory, and its filesystem
/// needs extended attributes.
#[cfg(target_os = "linux")]
const PLACES: [&str; 2] = ["/var/tmp", "/dev/shm"];

/// The subfolder of a layer for the layer over the work tree's git folder.
#[cfg(target_os = "linux")]
pub(super) const STORE: &str = "store";

/// Variables that keep programs from rewriting files that are only caches: a question about these
/// would be noise.
pub(super) const QUIET: [(&str, &str); 2] = [("GIT_OPTIONAL_LOCKS", "0"), ("PYTHONDONTWRITEBYTECODE", "1")];

/// How the work directory is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarding {
    /// Programs write to a layer over it, and only losses need a confirmation.
    Layer,
    /// A program's effects are unknown before it has run, so each program needs a confirmation.
    Ask,
}

/// The subject of a question to a person.
#[derive(Clone, Copy, Debug)]
pub enum Risk<'a> {
    /// A program has made these changes, and some [need a confirmation](Change::needs_a_yes); with
    /// the files as they would become.
    Losses(&'a [Change], &'a dyn Proposal),
    /// These changes are about to be written, and a person wants to review them first.
    Writes(&'a dyn Proposal),
    /// A program may do anything.
    Unknown,
    /// A program has made these changes, which are [refused](super::Policy::refused): no question.
    Refused(&'a [Change]),
}

/// The result of a guarded program.
#[derive(Debug)]
pub enum Guarded {
    /// It ran, and its changes were made.
    Ran(Output),
    /// It ran, and its changes were discarded.
    Undone(Output),
    /// It did not run.
    Refused,
}

/// The guard of a work directory.
#[derive(Debug)]
pub(super) struct Guard {
    /// Whether only changes to files that the user's tools obey still need a confirmation.
    permitted: AtomicBool,
    /// The paths that no program may write.
    #[cfg(target_os = "linux")]
    refused: globset::GlobSet,
    /// The directories of the work directory that are on the user's `PATH`.
    #[cfg(target_os = "linux")]
    on_path: Vec<PathBuf>,
    /// What git obeys in the work directory because of its settings.
    #[cfg(target_os = "linux")]
    git: Asked,
    /// The directory below a layer must not change, so a program with a layer runs alone.
    turn: RwLock<()>,
    #[cfg(target_os = "linux")]
    layers: Option<Layers>,
}

#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Layers {
    place: Scratch,
    /// The files that programs have made: removing them needs no confirmation.
    made: Mutex<Made>,
    store: Option<Store>,
}

/// The git folder of a work tree, if it is elsewhere.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Store {
    path: PathBuf,
    /// The part that belongs to the work tree alone.
    own: PathBuf,
    on_path: Vec<PathBuf>,
    git: Asked,
    made: Mutex<Made>,
}

impl Guard {
    /// The guard that `sandbox` needs; git may be asked about its work directory.
    /// `None` if there is nothing to lose.
    ///
    /// # Errors
    /// The paths that must not be written can't be determined here.
    pub(super) fn of(
        sandbox: &Sandbox,
        git: Asked,
        checkout: Option<&Checkout>,
    ) -> Result<Option<Self>, Error> {
        let policy = &sandbox.policy;
        // A directory that can't be read may hold files.
        let is_empty = || sandbox.work.read_dir().is_ok_and(|mut entries| entries.next().is_none());
        let watched = policy.guard && (policy.review || !is_empty());
        let refuses = !policy.refused.is_empty() && sandbox.launched() && !sandbox.is_read_only();
        // A file has as many names as it has hard links: only a layer tells them apart.
        let keeps = policy.protected.iter().any(|path| path.starts_with(&sandbox.work));
        if !policy.guard && !refuses && !keeps {
            return Ok(None);
        }
        #[cfg(target_os = "linux")]
        let layers = Layers::of(sandbox, checkout);
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
        let _ = checkout;
        #[cfg(not(target_os = "linux"))]
        if !watched {
            return Ok(None);
        }
        // Ask git before the first program runs.
        git.around();
        Ok(Some(Guard {
            permitted: AtomicBool::new(!watched),
            #[cfg(target_os = "linux")]
            refused: super::presence::set(policy.refused.iter().cloned()),
            #[cfg(target_os = "linux")]
            on_path: super::environment::on_path(&sandbox.work),
            #[cfg(target_os = "linux")]
            git,
            turn: RwLock::default(),
            #[cfg(target_os = "linux")]
            layers,
        }))
    }

    /// Whether programs write to layers.
    #[cfg(target_os = "linux")]
    pub(super) fn has_layers(&self) -> bool {
        self.layers.is_some()
    }

    /// Which changes to each of the directories are never made.
    #[cfg(target_os = "linux")]
    fn refuses(&self, covered: &[Covered], changes: &[Vec<Change>]) -> Vec<Change> {
        let never = |covered: &Covered, change: &Change| {
            let is_work = covered.reach.own.is_none();
            is_deep(&change.path) || (is_work && self.refused.is_match(&change.path))
        };
        let of = |(covered, changes): (&Covered, &Vec<Change>)| {
            let refused = changes.iter().filter(|change| never(covered, change));
            refused.map(|change| covered.for_display(change)).collect::<Vec<_>>()
        };
        covered.iter().zip(changes).flat_map(of).collect()
    }

    /// Held by a program with a layer, and while the work directory is updated or compared.
    fn turn(&self) -> RwLockWriteGuard<'_, ()> {
        self.turn.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by programs without a layer, which may run in parallel.
    pub(super) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.turn.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sandbox {
    /// How the work directory is guarded; `None` if it is not, because it was empty or changes are
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

    /// Whether a person reviews each change before it is made.
    pub fn reviews(&self) -> bool {
        self.policy.review && self.guarding().is_some()
    }

    /// From now on, programs may remove and overwrite anything in the work directory.
    /// Changes to files that the user's tools obey still need a confirmation.
    pub fn permit(&self) {
        if let Some(guard) = &self.guard {
            guard.permitted.store(true, Ordering::Relaxed);
        }
    }

    /// As [`run`](Self::run), or [`finish`](Self::finish) if `finishing`.
    /// Losses in the work directory, except of files that an earlier program made, happen only if
    /// `ask` says yes.
    /// So do changes that [affect others](Change::reaches_others).
    /// Otherwise nothing is changed at all.
    /// `reads` means that the program is known to change nothing, so it needs no question where it
    /// can't be watched.
    /// `by` is its name in the sandbox's journal.
    ///
    /// # Errors
    /// As [`run`](Self::run), and if the program's changes can't be taken over.
    /// Those of `ask`.
    pub fn run_guarded<E: From<Error>>(
        &self,
        script: &Script,
        finishing: bool,
        reads: bool,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, E>,
    ) -> Result<Guarded, E> {
        self.run_guarded_if(&|| true, script, finishing, reads, by, ask)
    }

    /// As [`run_guarded`](Self::run_guarded), if `may` permits it.
    /// `may` is called once nothing held back by a layer can enter the work directory until the
    /// program has ended: the program finds the same files as `may`.
    ///
    /// # Errors
    /// As [`run_guarded`](Self::run_guarded).
    pub fn run_guarded_if<E: From<Error>>(
        &self,
        may: &dyn Fn() -> bool,
        script: &Script,
        finishing: bool,
        reads: bool,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, E>,
    ) -> Result<Guarded, E> {
        // If its changes can't be inspected, it can't change files that the user's tools obey.
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
                before.into_iter().for_each(|(journal, before)| self.count(journal.looked(before)));
                Ok(ran?)
            }
        }
    }
}

impl Sandbox {
    /// Starts a job: a program that runs in parallel with others.
    /// From now on they share an isolated network with it, if it may not use another one.
    /// The script's time and output limits don't apply, and the job gets no input.
    /// Its changes to a `guarded` work directory are made by [`take`](Self::take); everything else
    /// is as in [`run_guarded`](Self::run_guarded).
    /// Returns `None` if it was not permitted.
    ///
    /// # Errors
    /// The program can't be started or isolated.
    /// Those of `ask`.
    pub fn start<E: From<Error>>(
        &self,
        script: &Script,
        guarded: bool,
        reads: bool,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, E>,
    ) -> Result<Option<Job>, E> {
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
            let folder = layers.folder(&self.work, None)?;
            let job = begin(Over::Layer(folder.path(), None), None)?;
            *job.layer.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((folder, layer::Taken::default()));
            return Ok(Some(job));
        }
        if guard.is_some() && self.guarding().is_some() && !reads && !ask(Risk::Unknown)? {
            return Ok(None);
        }
        let before = journal.map(|journal| journal.look(&self.work, by));
        let over = if guard.is_some() { Over::Fixed } else { Over::Nothing };
        Ok(begin(over, before).map(Some)?)
    }

    /// The number of changes that guarded programs have made to files so far; `None` if they
    /// can't be seen.
    pub fn changes(&self) -> Option<usize> {
        #[cfg(target_os = "linux")]
        let sees = self.guard.as_ref().is_some_and(|guard| guard.layers.is_some());
        #[cfg(not(target_os = "linux"))]
        let sees = false;
        (sees || self.journal.is_some()).then(|| self.changes.load(Ordering::Relaxed))
    }

    fn count(&self, changes: usize) {
        self.changes.fetch_add(changes, Ordering::Relaxed);
    }

    /// Whether programs can reach servers that run as jobs.
    pub fn reaches_jobs(&self) -> bool {
        // Without isolation, they share the machine's own network.
        !self.launched() || super::enforced().network
    }

    #[cfg(target_os = "linux")]
    fn share_network(&self) -> Result<(), Error> {
        if self.loopback.get().is_none() {
            // Another thread may have been faster.
            let _ = self.loopback.set(super::isolation::loopback::Loopback::new()?);
        }
        Ok(())
    }

    /// Takes a job's changes since the last call over into the work directory; `by` is its name in
    /// the journal.
    /// Returns `false` if a change needs a confirmation and `ask` says no: then nothing is changed.
    /// Once the job has ended, this removes its layer.
    ///
    /// # Errors
    /// The changes can't be read or taken over.
    /// Those of `ask`.
    pub fn take<E: From<Error>>(
        &self,
        job: &Job,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, E>,
    ) -> Result<bool, E> {
        #[cfg(target_os = "linux")]
        if let Some(guard @ Guard { layers: Some(layers), .. }) = &self.guard {
            let _turn = guard.turn();
            let ended = job.ended(std::time::Duration::ZERO).is_some();
            let mut layer = job.layer.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((folder, taken)) = &mut *layer else { return Ok(true) };
            let upper = folder.path().join("upper");
            let staged = layers.folder(&self.work, None)?;
            let copy = staged.path().join("upper");
            let now =
                layer::stage(&upper, &copy, taken).map_err(|source| layers.error("can't be copied", source));
            let done = now
                .map_err(E::from)
                .and_then(|now| Ok((layers.take_over(self, guard, staged.path(), None, by, ask)?, now)));
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
            self.count(journal.looked(earlier));
            *before = Some(journal.look(&self.work, by));
        }
        Ok(true)
    }
}

#[cfg(target_os = "linux")]
impl Layers {
    /// Layers over the work directory of `sandbox`; `None` if a trial shows that they aren't
    /// possible.
    fn of(sandbox: &Sandbox, checkout: Option<&Checkout>) -> Option<Self> {
        if !sandbox.launched()
            || !super::enforced().mounts
            || sandbox.work != sandbox.work_inside()
            || super::isolation::mounts::within(&sandbox.work)
        {
            return None;
        }
        let places = [std::env::temp_dir()].into_iter().chain(PLACES.map(Into::into));
        let mut layers = places.filter(|place| place.is_dir()).find_map(|place| {
            let place = Scratch::claim(&place).ok()?;
            let layers = Layers { place, made: Mutex::default(), store: None };
            layers.are_possible(sandbox).then_some(layers)
        })?;
        layers.store = checkout.and_then(|checkout| Store::of(sandbox, checkout));
        if layers.store.is_some() && !layers.are_possible(sandbox) {
            layers.store = None;
        }
        Some(layers)
    }

    /// Whether this machine supports layers, found by trying.
    fn are_possible(&self, sandbox: &Sandbox) -> bool {
        let nothing = Script::new(&["true"], std::time::Duration::from_secs(10));
        let store = self.store();
        let ran = || {
            let folder = self.folder(&sandbox.work, store).ok()?;
            let child = sandbox.spawn_over(&nothing, Over::Layer(folder.path(), store)).ok()?;
            sandbox.run_until(child, &nothing, &AtomicBool::new(false)).ok()
        };
        ran().is_some()
    }

    fn store(&self) -> Option<&Path> {
        self.store.as_ref().map(|store| store.path.as_path())
    }

    /// Creates a layer, which is removed when it is dropped; with a second one over `store`.
    /// Its directories have the permissions of those that they cover.
    fn folder(&self, work: &Path, store: Option<&Path>) -> Result<tempfile::TempDir, Error> {
        let layer = |folder: &Path, covered: &Path| {
            let (upper, own) = (folder.join("upper"), folder.join("work"));
            std::fs::create_dir_all(&upper)?;
            std::fs::create_dir(own)?;
            std::fs::set_permissions(&upper, covered.metadata()?.permissions())
        };
        let make = || {
            let folder = tempfile::tempdir_in(self.place.path())?;
            layer(folder.path(), work)?;
            store.map_or(Ok(()), |store| layer(&folder.path().join(STORE), store))?;
            Ok(folder)
        };
        make().map_err(|source| self.error("can't be made", source))
    }

    fn error(&self, what: &'static str, source: std::io::Error) -> Error {
        Error::Layer { what, path: self.place.path().to_owned(), source }
    }

    fn run<E: From<Error>>(
        &self,
        sandbox: &Sandbox,
        guard: &Guard,
        script: &Script,
        finishing: bool,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, E>,
    ) -> Result<Guarded, E> {
        let folder = self.folder(&sandbox.work, self.store())?;
        let child = sandbox.spawn_over(script, Over::Layer(folder.path(), self.store()))?;
        let never = AtomicBool::new(false);
        let output = sandbox.run_until(child, script, if finishing { &never } else { &sandbox.cancel });
        let kept = output.map_err(E::from).and_then(|output| {
            let mut ask = |risk: Risk| -> Result<bool, E> { Ok(!output.cancelled && ask(risk)?) };
            let store = self.store.as_ref();
            Ok(match self.take_over(sandbox, guard, folder.path(), store, by, &mut ask)? {
                true => Guarded::Ran(output),
                false => Guarded::Undone(output),
            })
        });
        // Also directories whose permissions forbid it.
        let _ = crate::scratch::remove(folder.path());
        kept
    }

    /// Takes over the changes in the layers of `folder`; returns `false` if they were not
    /// confirmed.
    fn take_over<E: From<Error>>(
        &self,
        sandbox: &Sandbox,
        guard: &Guard,
        folder: &Path,
        store: Option<&Store>,
        by: By,
        ask: &mut dyn FnMut(Risk) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let work = Covered {
            upper: folder.join("upper"),
            lower: &sandbox.work,
            named: Path::new(""),
            reach: layer::Reach { on_path: &guard.on_path, git: &guard.git, own: None },
            made: self.made.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let mut covered: Vec<Covered> =
            [work].into_iter().chain(store.map(|store| store.covered(folder))).collect();
        let look = |covered: &[Covered]| {
            let changes = covered.iter().map(Covered::look).collect::<std::io::Result<Vec<_>>>();
            changes.map_err(|source| self.error("can't be read", source))
        };
        let changes = look(&covered)?;
        let refused = guard.refuses(&covered, &changes);
        if !refused.is_empty() {
            ask(Risk::Refused(&refused))?;
            return Ok(false);
        }
        let permitted = sandbox.guarding().is_none();
        let reviews = sandbox.reviews();
        let asked = |change: &Change| change.reaches_others() || ((change.loses || reviews) && !permitted);
        let changes = if changes.iter().flatten().any(asked) {
            let proposed =
                Proposed::new(&covered, &changes).map_err(|source| self.error("can't be read", source))?;
            let told = |(covered, changes): (&Covered, &Vec<Change>)| {
                changes.iter().map(|change| covered.for_display(change)).collect::<Vec<_>>()
            };
            let told: Vec<Change> = covered.iter().zip(&changes).flat_map(told).collect();
            let risk = if reviews { Risk::Writes(&proposed) } else { Risk::Losses(&told, &proposed) };
            if !ask(risk)? {
                return Ok(false);
            }
            // The confirmation covers exactly the changes that were shown.
            let now = look(&covered)?;
            if !proposed.holds(&now) || !guard.refuses(&covered, &now).is_empty() {
                return Ok(false);
            }
            now
        } else {
            changes
        };
        // The git folder comes first, so that the objects that a work tree names exist before it
        // does.
        for (covered, changes) in covered.iter_mut().zip(&changes).rev() {
            let paths = changes.iter().map(|change| change.path.as_path());
            let journal = sandbox.journal.as_ref();
            let before = journal.map(|journal| (journal, journal.before(covered.lower, paths, by)));
            let put = covered.put(changes);
            // An interrupted change is recorded too.
            if let Some((journal, before)) = before {
                journal.after(before);
            }
            put.map_err(|source| Error::Taken { path: covered.lower.to_owned(), source })?;
            sandbox.count(changes.len());
        }
        Ok(true)
    }
}

#[cfg(target_os = "linux")]
impl Store {
    /// The git folder of the work directory's work tree, if steps may write to it there.
    fn of(sandbox: &Sandbox, checkout: &Checkout) -> Option<Self> {
        let (path, own) = checkout.store(&sandbox.work)?;
        let is_hidden = sandbox.policy.private_tmp.is_some() && path.starts_with("/tmp");
        let is_protected = sandbox.policy.protected.iter().any(|place| path.starts_with(place));
        // The layer would expose everything that is hidden in it.
        let mut hidden = sandbox.view.hidden.iter().chain(&sandbox.view.secrets);
        let is_around = hidden.any(|hidden| hidden.starts_with(path));
        let fits = !sandbox.policy.read_only && !is_hidden && !is_protected && !is_around;
        (fits && !super::isolation::mounts::within(path)).then(|| Store {
            path: path.to_owned(),
            own: own.to_owned(),
            on_path: super::environment::on_path(path),
            git: Asked::about(path),
            made: Mutex::default(),
        })
    }

    /// The git folder with the layer over it.
    fn covered<'a>(&'a self, folder: &Path) -> Covered<'a> {
        Covered {
            upper: folder.join(STORE).join("upper"),
            lower: &self.path,
            named: &self.path,
            reach: layer::Reach { on_path: &self.on_path, git: &self.git, own: Some(&self.own) },
            made: self.made.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}
