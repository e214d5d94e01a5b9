//! The models of a chat: those that the team asks for, or one that the person chose.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alara_harness::{ChatModel, ModelError, ModelSource, ModelSpec};

use crate::model;

/// Where the models come from.
pub struct Models {
    args: model::Args,
    of_the_team: Box<dyn ModelSource>,
    /// The name and the model that are used whatever the team asks for.
    chosen: Mutex<Option<(String, Arc<dyn ChatModel>)>>,
}

impl Models {
    /// The one that the command line names, which is loaded now; else those that the NPCs ask for.
    ///
    /// # Errors
    /// It can't be loaded.
    pub fn new(args: &model::Args) -> anyhow::Result<Self> {
        let mut unnamed = args.clone();
        let name = unnamed.model.take();
        let (of_the_team, chosen) = (unnamed.source(1)?, Mutex::default());
        let models = Models { args: unnamed, of_the_team, chosen };
        name.map(|name| models.choose(&name)).transpose()?;
        Ok(models)
    }

    /// Uses the model `name` from now on. The one that was chosen before goes first, to make room.
    ///
    /// # Errors
    /// It can't be loaded. Then the one before is used again.
    pub fn choose(&self, name: &str) -> anyhow::Result<()> {
        let mut chosen = self.lock();
        let before = chosen.take().map(|(name, _)| name);
        match self.load(name) {
            Ok(model) => *chosen = Some((name.to_owned(), model)),
            Err(error) => {
                if let Some(before) = before {
                    let model = self.load(&before)?;
                    *chosen = Some((before, model));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn load(&self, name: &str) -> anyhow::Result<Arc<dyn ChatModel>> {
        let mut args = self.args.clone();
        args.model = Some(name.to_owned());
        args.load(None, 1)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(String, Arc<dyn ChatModel>)>> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelSource for Models {
    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        match &*self.lock() {
            Some((_, model)) => Ok(model.clone()),
            None => self.of_the_team.model(spec),
        }
    }
}
