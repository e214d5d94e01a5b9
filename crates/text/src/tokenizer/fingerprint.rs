//! A fingerprint of a tokenizer, in 32 bytes.

use sha2::{Digest, Sha256};

use super::kind::Algorithm;
use super::vocabulary::Vocabulary;
use crate::gguf::Strings;

/// SHA-256 over everything that encoding depends on.
/// Each list and text is preceded by its length, so that different vocabularies have different
/// inputs.
pub(super) fn of(vocabulary: &Vocabulary, algorithm: &dyn Algorithm, merges: &Strings) -> [u8; 32] {
    let mut hash = Sha256::new();
    text(&mut hash, algorithm.name());
    text(&mut hash, &algorithm.options());
    hash.update((vocabulary.len() as u64).to_le_bytes());
    for (_, written, kind) in vocabulary.iter() {
        text(&mut hash, written);
        hash.update([kind as u8]);
    }
    for score in &vocabulary.scores {
        hash.update(score.to_le_bytes());
    }
    for merge in merges.iter() {
        text(&mut hash, merge);
    }
    hash.finalize().into()
}

fn text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}
