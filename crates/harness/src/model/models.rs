//! Several models under one byte budget: each loaded when it is first asked for, and evicted when
//! others need its memory.
//!
//! Knows sizes and who still holds a model; what a model is and where it comes from is its loader's
//! matter.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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
    if *held > 0 { format!(", and {} are held by models at work", shown(*held)) } else { String::new() }
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

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees memory for a model that is being loaded.
    /// Others are dropped under the lock, so that nobody takes their memory before they are gone.
    fn reserve(&self, spec: &ModelSpec, bytes: u64) -> Result<(), OverBudget> {
        let mut state = self.lock();
        if let Some(budget) = self.budget {
            let held = state.slots.iter().filter(|slot| !slot.is_idle()).map(|slot| slot.bytes).sum::<u64>();
            if held.saturating_add(bytes) > budget {
                return Err(OverBudget { spec: spec.clone(), bytes, budget, held });
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
        self.reserve(spec, candidate.bytes).map_err(ModelError::new)?;
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
                Some(Slot { model: Some(model), used, .. }) => {
                    *used = now;
                    return Ok(model.clone());
                }
                Some(_) => state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner),
                None => {
                    state.slots.push(Slot { spec: spec.clone(), bytes: 0, used: now, model: None });
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
                Some(model) => state.slots[at].model = Some(model),
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
