//! Text as tokens arrive, never with half a character.

use std::sync::Arc;

use super::Core;

/// Turns tokens into text one by one.
/// Bytes of a character that is not complete yet are kept back; what can't become one is shown as
/// U+FFFD.
/// All pieces together are what [`decode`](super::Tokenizer::decode) gives.
#[derive(Clone, Debug)]
pub struct DecodeStream {
    core: Arc<Core>,
    show_special: bool,
    /// Whether no token has come yet.
    fresh: bool,
    pending: Vec<u8>,
}

impl DecodeStream {
    pub(super) fn new(core: Arc<Core>) -> DecodeStream {
        DecodeStream { core, show_special: false, fresh: true, pending: Vec::new() }
    }

    /// The same, with control tokens shown as they are written.
    pub fn with_special(mut self) -> DecodeStream {
        self.show_special = true;
        self
    }

    /// This stream for tokens that continue others: the first one keeps the space before it.
    pub fn continuing(mut self) -> DecodeStream {
        self.fresh = false;
        self
    }

    /// The text that this token completes; may be empty.
    pub fn push(&mut self, id: u32) -> String {
        let fresh = std::mem::replace(&mut self.fresh, false);
        self.pending.extend(self.core.shown_bytes(id, self.show_special, fresh));
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.pending[..valid]));
                    let Some(invalid) = error.error_len() else {
                        self.pending.drain(..valid);
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.pending.drain(..valid + invalid);
                }
            }
        }
    }

    /// Whether the latest token ended within a character.
    pub fn within_character(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What is left when no token follows: U+FFFD for a character that stayed incomplete, else
    /// nothing.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}
