//! Several models under one byte budget: each is loaded when it is first requested, and evicted
//! when others need its memory, or on request.
//!
//! This module knows sizes and who still holds a model; its loader knows what a model is and where
//! it comes from.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use alara_engine::Engine;

use super::{ChatModel, ModelError, ModelSource, ModelSpec};

/// A model that can be loaded, with the memory that it needs.
pub struct Candidate {
    /// Bytes of memory that it needs; 0 for a remote model.
    pub bytes: u64,
    /// Loads it, once there is space for it.
    pub load: Box<dyn FnOnce() -> Result<Arc<dyn ChatModel>, ModelError>>,
}

/// Finds the model for a spec.
type Find = Box<dyn Fn(&ModelSpec) -> Result<Candidate, ModelError> + Send + Sync>;

/// A model doesn't fit into the budget.
#[derive(Debug, thiserror::Error)]
#[error(
    "{spec} does not fit the memory budget: it takes {} of {}{}",
    shown(*bytes), shown(*budget),
    if *held > 0 { format!(", and {} are held by models at work ({})", shown(*held), listed(holders)) } else { String::new() }
)]
pub struct OverBudget {
    /// The model.
    pub spec: ModelSpec,
    /// Bytes that it needs.
    pub bytes: u64,
    /// Bytes that all models together may use.
    pub budget: u64,
    /// Bytes of models that are in use.
    pub held: u64,
    /// The models in use.
    pub holders: Vec<ModelSpec>,
}

/// A loaded model.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The spec of the request for it.
    pub spec: ModelSpec,
    /// Bytes of memory that it uses; 0 for a remote model.
    pub bytes: u64,
    /// Most tokens of a conversation; `None` if unknown.
    pub context: Option<usize>,
    /// Tokens in its KV cache, and how many that can hold; `None` for a remote model.
    pub cached: Option<(usize, usize)>,
    /// When it was loaded.
    pub since: SystemTime,
    /// When it was last requested.
    pub used: Instant,
    /// Whether it is in use now.
    pub busy: bool,
}

/// Models by the specs of their requests.
/// A model that isn't in use stays loaded until its memory is needed; of several, the least
/// recently requested one is evicted first.
pub struct Models {
    budget: Option<u64>,
    find: Find,
    state: Mutex<Slots>,
    /// A model has been loaded, or failed to load.
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
    /// 0 until the size is known.
    bytes: u64,
    /// The number of its latest request.
    used: u64,
    /// The time of its latest request.
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
    /// All loaded models together use at most `budget` bytes; `None` for no limit.
    pub fn new(
        budget: Option<u64>,
        find: impl Fn(&ModelSpec) -> Result<Candidate, ModelError> + Send + Sync + 'static,
    ) -> Self {
        Models { budget, find: Box::new(find), state: Mutex::default(), settled: Condvar::new() }
    }

    /// Bytes that the loaded models use together, including those that are being loaded.
    pub fn bytes(&self) -> u64 {
        self.lock().slots.iter().map(|slot| slot.bytes).sum()
    }

    /// The loaded models, without those that are being loaded.
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

    /// Frees the memory of the model for `spec`, unless it is in use.
    /// Returns true if it was loaded, and no longer is.
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
    /// Others are dropped under the lock, so that no load takes their memory before they are gone.
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

    /// The model for `spec`; loads it if necessary, once for all concurrent requests.
    ///
    /// # Errors
    /// The loader's error, and [`OverBudget`].
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

/// A load in progress.
/// However it ends, it wakes the other requests for the model.
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

/// A number of bytes for people.
fn shown(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib if mib < 1024.0 => format!("{mib:.1} MiB"),
        mib => format!("{:.1} GiB", mib / 1024.0),
    }
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
