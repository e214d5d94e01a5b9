//! The team's shared store: a small map that its NPCs read and write by permission.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};

/// The shared values: by team (its key among the teams), key and value.
#[derive(Debug, Default)]
pub struct Store {
    values: Mutex<BTreeMap<String, Map<String, Value>>>,
}

impl Store {
    /// The values that `npc` of `team` may read.
    pub fn read(&self, team: &crate::team::Team, npc: &str) -> Map<String, Value> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let all = values.get(team.key()).cloned().unwrap_or_default();
        all.into_iter()
            .filter(|(key, _)| {
                let access = team.store.get(key).and_then(|access| access.read.as_ref());
                access.is_none_or(|readers| readers.iter().any(|reader| reader == npc))
            })
            .collect()
    }

    /// Sets `key`; a null removes it.
    ///
    /// # Errors
    /// `npc` may not write it; the message lists who may.
    pub fn write(&self, team: &crate::team::Team, npc: &str, key: &str, value: Value) -> Result<(), String> {
        if let Some(writers) = team.store.get(key).and_then(|access| access.write.as_ref())
            && !writers.iter().any(|writer| writer == npc)
        {
            let writers = writers.join(", ");
            return Err(format!("`{npc}` may not write `store.{key}`; it is written by: {writers}"));
        }
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let team = values.entry(team.key().to_owned()).or_default();
        match value {
            Value::Null => drop(team.shift_remove(key)),
            value => drop(team.insert(key.to_owned(), value)),
        }
        Ok(())
    }
}
