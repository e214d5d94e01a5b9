//! Decodes tokens as they arrive, never splitting a character.

use std::sync::Arc;

use super::Core;

/// Converts tokens to text one by one.
/// Bytes of an incomplete character are held back; bytes that can't become one are shown as
/// U+FFFD.
/// The concatenated pieces equal the result of [`decode`](super::Tokenizer::decode).
#[derive(Clone, Debug)]
pub struct DecodeStream {
    core: Arc<Core>,
    show_special: bool,
    /// Whether no token has arrived yet.
    fresh: bool,
    pending: Vec<u8>,
}

impl DecodeStream {
    pub(super) fn new(core: Arc<Core>) -> DecodeStream {
        DecodeStream { core, show_special: false, fresh: true, pending: Vec::new() }
    }

    /// Returns the stream with control tokens shown as text.
    pub fn with_special(mut self) -> DecodeStream {
        self.show_special = true;
        self
    }

    /// Returns the stream for tokens that continue others: the first one keeps its leading space.
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

    /// The remaining text at the end: U+FFFD for an incomplete character, otherwise empty.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}
