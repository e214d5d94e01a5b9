//! Shows the prompt that the model is about to read.

use alara_engine::Request;

use super::Agent;
use crate::run::session::Notice;
use crate::trace::Record;

impl Agent<'_, '_> {
    /// Sends the prompt of this turn to the observer, if it wants prompts.
    pub(super) fn show_prompt(&self, request: &Request) {
        if !self.session.prompts {
            return;
        }
        // If there is no prompt, the turn itself reports the error.
        if let Ok(prompt) = self.model.prompt(request) {
            let turns = self.records().filter(|record| matches!(record, Record::Assistant { .. })).count();
            let (npc, scope) = (self.npc.name.as_str(), self.scope.as_str());
            self.session.notify(&Notice::Prompt { npc, scope, turn: turns + 1, prompt: &prompt });
        }
    }
}
