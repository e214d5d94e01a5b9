//! Compiled grammars of earlier turns, kept for later turns.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llguidance::TokenParser;

/// How many grammars are cached: a tool set has one for each tool choice used.
/// Cost: less than 1 MB for a few tools, several MB for hundreds.
const MOST: usize = 64;

/// A compiled grammar.
pub(super) struct Compiled {
    /// The parser at the start of the grammar.
    pub parser: TokenParser,
    /// The constraints of the tools' schemas that the grammar doesn't guarantee.
    pub loosened: Arc<[String]>,
}

impl Compiled {
    /// Copies the grammar without sharing mutable state with other turns.
    fn copy(&self) -> Self {
        Compiled { parser: self.parser.deep_clone(), loosened: self.loosened.clone() }
    }
}

/// Compiled grammars by a text that covers everything they depend on; most recently used first.
#[derive(Default)]
pub(super) struct GrammarCache {
    entries: Mutex<VecDeque<(String, Compiled)>>,
}

impl GrammarCache {
    /// The grammar for `key`, and whether it was cached.
    /// If not, `compile` builds it, without blocking other turns.
    pub(super) fn grammar<E>(
        &self,
        key: String,
        compile: impl FnOnce() -> Result<Compiled, E>,
    ) -> Result<(Compiled, bool), E> {
        if let Some(compiled) = self.find(&key) {
            return Ok((compiled, true));
        }
        let compiled = compile()?;
        let copy = compiled.copy();
        let mut entries = self.entries();
        entries.push_front((key, compiled));
        entries.truncate(MOST);
        Ok((copy, false))
    }

    fn find(&self, key: &str) -> Option<Compiled> {
        let mut entries = self.entries();
        let at = entries.iter().position(|(known, _)| known == key)?;
        let found = entries.remove(at)?;
        let copy = found.1.copy();
        entries.push_front(found);
        Some(copy)
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<(String, Compiled)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::tests::parser;

    #[test]
    fn keeps_the_grammars_used_last() {
        let cache = GrammarCache::default();
        let ask = |key: usize| {
            let compile =
                || Ok::<_, ()>(Compiled { parser: parser("start: \"a\""), loosened: Arc::default() });
            let compiled = cache.grammar(key.to_string(), compile);
            compiled.map(|(_, kept)| kept).unwrap()
        };
        assert!((0..MOST).all(|key| !ask(key)));
        assert!((0..MOST).all(ask));
        assert!(!ask(MOST), "the first falls out");
        assert_eq!(cache.len(), MOST);
        assert!(!ask(0) && ask(MOST) && ask(3), "the second fell out for it");
        assert_eq!(cache.grammar("bad".into(), || Err("reason")).err(), Some("reason"));
        assert_eq!(cache.len(), MOST);
    }
}
