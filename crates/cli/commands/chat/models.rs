//! The models of a chat: loaded when they are first needed, and exchanged by `/model`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alara_harness::{ChatModel, ModelError, ModelSource, ModelSpec};

use crate::model;

/// Where the models come from.
pub struct Models {
    inner: Mutex<Inner>,
}

struct Inner {
    args: model::Args,
    loaded: Vec<(ModelSpec, Arc<dyn ChatModel>)>,
}

impl Models {
    /// Those that the command line asks for, or that the NPCs ask for where it says nothing.
    pub fn new(args: &model::Args) -> Self {
        Models { inner: Mutex::new(Inner { args: args.clone(), loaded: Vec::new() }) }
    }

    /// Uses the model `name` from now on, whatever NPCs ask for. Those that are loaded go first, to make room.
    ///
    /// # Errors
    /// It can't be loaded. Then all is as before.
    pub fn choose(&self, name: &str) -> Result<(), ModelError> {
        let before = {
            let mut inner = self.lock();
            inner.loaded.clear();
            inner.args.model.replace(name.to_owned())
        };
        self.model(&ModelSpec::default()).map(drop).inspect_err(|_| self.lock().args.model = before)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelSource for Models {
    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        let mut inner = self.lock();
        let spec = inner.args.model.clone().map_or_else(|| spec.clone(), ModelSpec::named);
        if let Some((_, model)) = inner.loaded.iter().find(|(loaded, _)| *loaded == spec) {
            return Ok(model.clone());
        }
        let model: Arc<dyn ChatModel> =
            Arc::from(inner.args.load(spec.model.as_deref(), 1).map_err(ModelError::new)?);
        inner.loaded.push((spec, model.clone()));
        Ok(model)
    }
}
