//! Shows what the model is about to read.

use alara_engine::Request;

use super::Agent;
use crate::run::session::Notice;
use crate::trace::Record;

impl Agent<'_, '_> {
    /// Tells the observer what the model reads for this turn, if it wants to know.
    pub(super) fn show_prompt(&self, request: &Request) {
        if !self.session.prompts {
            return;
        }
        // Why there is none, the turn itself tells.
        if let Ok(prompt) = self.model.prompt(request) {
            let turns = self.records().filter(|record| matches!(record, Record::Assistant { .. })).count();
            let (npc, scope) = (self.npc.name.as_str(), self.scope.as_str());
            self.session.notify(&Notice::Prompt { npc, scope, turn: turns + 1, prompt: &prompt });
        }
    }
}
