//! The grammars of earlier turns, compiled, for the turns to come.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use llguidance::TokenParser;

/// How many grammars are kept: a tool set has one for each tool choice in use. Cost: below one megabyte for a few tools, some
/// megabytes for hundreds.
const MOST: usize = 64;

/// Compiled grammars by a text that says all they were made from; the one used last first.
#[derive(Default)]
pub(super) struct Cache {
    kept: Mutex<VecDeque<(String, TokenParser)>>,
}

impl Cache {
    /// A parser at the start of the grammar that `key` stands for, and whether it was kept. If not, `compile` makes it, and
    /// nobody waits meanwhile. It is a copy that shares nothing which changes: what happens to it happens to no other turn.
    pub(super) fn parser<E>(
        &self,
        key: String,
        compile: impl FnOnce() -> Result<TokenParser, E>,
    ) -> Result<(TokenParser, bool), E> {
        if let Some(parser) = self.find(&key) {
            return Ok((parser, true));
        }
        let parser = compile()?;
        let copy = parser.deep_clone();
        let mut kept = self.kept();
        kept.push_front((key, parser));
        kept.truncate(MOST);
        Ok((copy, false))
    }

    fn find(&self, key: &str) -> Option<TokenParser> {
        let mut kept = self.kept();
        let at = kept.iter().position(|(kept, _)| kept == key)?;
        let found = kept.remove(at)?;
        let copy = found.1.deep_clone();
        kept.push_front(found);
        Some(copy)
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(String, TokenParser)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.kept().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::tests::parser;

    #[test]
    fn keeps_the_grammars_used_last() {
        let cache = Cache::default();
        let ask = |key: usize| {
            let compiled = cache.parser(key.to_string(), || Ok::<_, ()>(parser("start: \"a\"")));
            compiled.map(|(_, kept)| kept).unwrap()
        };
        assert!((0..MOST).all(|key| !ask(key)));
        assert!((0..MOST).all(ask));
        assert!(!ask(MOST), "the first falls out");
        assert_eq!(cache.len(), MOST);
        assert!(!ask(0) && ask(MOST) && ask(3), "the second fell out for it");
        assert_eq!(cache.parser("bad".into(), || Err("reason")).err(), Some("reason"));
        assert_eq!(cache.len(), MOST);
    }
}
