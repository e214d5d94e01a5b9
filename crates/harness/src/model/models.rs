//! Several models under one byte budget: each loaded when it is first asked for, and evicted when
//! others need its memory, or when somebody says so.
//!
//! Knows sizes and who still holds a model; what a model is and where it comes from is its loader's
//! matter.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use alara_engine::Engine;

use super::{ChatModel, ModelError, ModelSource, ModelSpec};

/// A model that can be loaded, and what it will take.
pub struct Candidate {
    /// Bytes of memory that it will take; 0 for a model elsewhere.
    pub bytes: u64,
    /// Loads it, once it fits.
    pub load: Box<dyn FnOnce() -> Result<Arc<dyn ChatModel>, ModelError>>,
}

/// Finds the model that a spec means.
type Find = Box<dyn Fn(&ModelSpec) -> Result<Candidate, ModelError> + Send + Sync>;

/// A model does not fit into the budget.
#[derive(Debug, thiserror::Error)]
#[error(
    "{spec} does not fit the memory budget: it takes {} of {}{}",
    shown(*bytes), shown(*budget),
    if *held > 0 { format!(", and {} are held by models at work ({})", shown(*held), listed(holders)) } else { String::new() }
)]
pub struct OverBudget {
    /// The model.
    pub spec: ModelSpec,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Bytes that all models together may take.
    pub budget: u64,
    /// Bytes of models that someone still holds.
    pub held: u64,
    /// These models.
    pub holders: Vec<ModelSpec>,
}

/// A model that is loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it was asked for with.
    pub spec: ModelSpec,
    /// Bytes of memory that it takes; 0 for a model elsewhere.
    pub bytes: u64,
    /// Most tokens of a conversation; `None` = not known.
    pub context: Option<usize>,
    /// Tokens in its KV cache, and how many that can hold; `None` of a model elsewhere.
    pub cached: Option<(usize, usize)>,
    /// Since when.
    pub since: SystemTime,
    /// When it was asked for last.
    pub used: Instant,
    /// Whether someone holds it now.
    pub busy: bool,
}

/// Models by what they were asked for with.
/// One that nobody holds stays loaded until its memory is needed; of several, the one that was
/// asked for longest ago goes first.
pub struct Models {
    budget: Option<u64>,
    find: Find,
    state: Mutex<Slots>,
    /// A model has been loaded, or could not be.
    settled: Condvar,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    /// Counts requests.
    clock: u64,
}

struct Slot {
    spec: ModelSpec,
    /// 0 until it is known.
    bytes: u64,
    /// The request that asked for it last.
    used: u64,
    /// When that was.
    used_at: Instant,
    since: SystemTime,
    /// `None` while it is being loaded.
    model: Option<Arc<dyn ChatModel>>,
}

impl Slot {
    fn is_idle(&self) -> bool {
        self.model.as_ref().is_some_and(|model| Arc::strong_count(model) == 1)
    }
}

impl Models {
    /// No models yet.
    /// All that get loaded take at most `budget` bytes together; `None` = no limit.
    pub fn new(
        budget: Option<u64>,
        find: impl Fn(&ModelSpec) -> Result<Candidate, ModelError> + Send + Sync + 'static,
    ) -> Self {
        Models { budget, find: Box::new(find), state: Mutex::default(), settled: Condvar::new() }
    }

    /// Bytes that the loaded models take together, and those that are being loaded.
    pub fn bytes(&self) -> u64 {
        self.lock().slots.iter().map(|slot| slot.bytes).sum()
    }

    /// The models that are loaded; those that are being loaded are not among them.
    pub fn loaded(&self) -> Vec<Loaded> {
        let state = self.lock();
        let loaded = state.slots.iter().filter_map(|slot| {
            Some(Loaded {
                spec: slot.spec.clone(),
                bytes: slot.bytes,
                context: slot.model.as_ref()?.context(),
                cached: slot.model.as_ref()?.local().map(Engine::cached),
                since: slot.since,
                used: slot.used_at,
                busy: !slot.is_idle(),
            })
        });
        loaded.collect()
    }

    /// Frees the memory of the model that `spec` means, unless someone holds it.
    /// True if it was loaded, and no longer is.
    pub fn unload(&self, spec: &ModelSpec) -> bool {
        let mut state = self.lock();
        let idle = state.slots.iter().position(|slot| slot.spec == *spec && slot.is_idle());
        // Dropped under the lock, as in `reserve`.
        idle.map(|at| drop(state.slots.swap_remove(at))).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees memory for a model that is being loaded.
    /// Others are dropped under the lock, so that nobody takes their memory before they are gone.
    fn reserve(&self, spec: &ModelSpec, bytes: u64) -> Result<(), ModelError> {
        let mut state = self.lock();
        if let Some(budget) = self.budget {
            let holding = || state.slots.iter().filter(|slot| !slot.is_idle() && slot.bytes > 0);
            let held = holding().map(|slot| slot.bytes).sum::<u64>();
            if held.saturating_add(bytes) > budget {
                let holders = holding().map(|slot| slot.spec.clone()).collect();
                let spec = spec.clone();
                return Err(ModelError::new(OverBudget { spec, bytes, budget, held, holders }));
            }
            while state.slots.iter().map(|slot| slot.bytes).sum::<u64>() + bytes > budget {
                let idle =
                    state.slots.iter().enumerate().filter(|(_, slot)| slot.is_idle() && slot.bytes > 0);
                let Some((oldest, _)) = idle.min_by_key(|(_, slot)| slot.used) else { break };
                state.slots.swap_remove(oldest);
            }
        }
        if let Some(slot) = state.slots.iter_mut().find(|slot| slot.spec == *spec) {
            slot.bytes = bytes;
        }
        Ok(())
    }

    fn load(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel>, ModelError> {
        let candidate = (self.find)(spec)?;
        self.reserve(spec, candidate.bytes)?;
        (candidate.load)()
    }

    /// The model that `spec` means; loads it if need be, once for all who ask for it meanwhile.
    ///
    /// # Errors
    /// What the loader says, and [`OverBudget`].
    pub fn get(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel>, ModelError> {
        let mut state = self.lock();
        loop {
            state.clock += 1;
            let now = state.clock;
            match state.slots.iter_mut().find(|slot| slot.spec == *spec) {
                Some(Slot { model: Some(model), used, used_at, .. }) => {
                    (*used, *used_at) = (now, Instant::now());
                    return Ok(model.clone());
                }
                Some(_) => state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner),
                None => {
                    let (used_at, since) = (Instant::now(), SystemTime::now());
                    let spec = spec.clone();
                    state.slots.push(Slot { spec, bytes: 0, used: now, used_at, since, model: None });
                    break;
                }
            }
        }
        drop(state);
        let mut loading = Loading { models: self, spec, model: None };
        let model = self.load(spec)?;
        loading.model = Some(model.clone());
        Ok(model)
    }
}

impl ModelSource for Models {
    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        self.get(spec)
    }

    fn loaded(&self) -> Vec<Loaded> {
        self.loaded()
    }

    fn unload(&self, spec: &ModelSpec) -> bool {
        self.unload(spec)
    }
}

/// A load under way.
/// However it ends, others that wait for the model go on.
struct Loading<'a> {
    models: &'a Models,
    spec: &'a ModelSpec,
    model: Option<Arc<dyn ChatModel>>,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let mut state = self.models.lock();
        if let Some(at) = state.slots.iter().position(|slot| slot.spec == *self.spec) {
            match self.model.take() {
                Some(model) => {
                    let slot = &mut state.slots[at];
                    (slot.model, slot.since) = (Some(model), SystemTime::now());
                }
                None => drop(state.slots.swap_remove(at)),
            }
        }
        self.models.settled.notify_all();
    }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let specs: Vec<String> = self.lock().slots.iter().map(|slot| slot.spec.to_string()).collect();
        f.debug_struct("Models").field("budget", &self.budget).field("models", &specs).finish_non_exhaustive()
    }
}

fn listed(specs: &[ModelSpec]) -> String {
    specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Bytes for people.
fn shown(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib if mib < 1024.0 => format!("{mib:.1} MiB"),
        mib => format!("{:.1} GiB", mib / 1024.0),
    }
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
