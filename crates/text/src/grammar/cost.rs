//! Measures the cost of a lexeme before a turn begins.
//!
//! A lexer creates its states while a text is generated.
//! Some expressions have so many states that computing a mask would take seconds.
//! They are those that have to track many counts or ends, like an address format that also matches
//! a pattern.
//! To find them, this module generates a few random texts with the actual vocabulary.
//! Lexemes that pass stay far below the limit, so that turns don't fail.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use llguidance::Logger;
use llguidance::api::{GrammarInit, TopLevelGrammar};
use toktrie::InferenceCapabilities;

use super::{Constraint, Grammar};
use crate::request::Until;

/// Limits for the cost of rules.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    /// Checks a lexeme, given by its body.
    pub lexeme: &'a dyn Fn(&str) -> Result<(), String>,
    /// The deadline of the check.
    pub until: &'a Until,
}

/// Fuel for a mask; one millisecond spends about ten thousand units.
pub(super) const MOST: u64 = 4_000_000;
/// Fuel that a mask of one lexeme may spend.
const AFFORDABLE: usize = 200_000;
/// A negligible amount of fuel; after several such masks the test stops early.
const LITTLE: usize = 5_000;
/// Number of texts, and of tokens in each.
const TEXTS: u64 = 2;
const TOKENS: usize = 24;
/// How many lexemes are cached.
const REMEMBERED: usize = 4096;

/// Lexemes, each with the objection to it, if any.
pub(super) type Known = Mutex<HashMap<String, Option<String>>>;

impl Grammar {
    /// Checks that a turn can afford a lexeme, given by its body in Lark.
    ///
    /// # Errors
    /// The reason if it can't.
    pub(super) fn afford(&self, lexeme: &str) -> Result<(), String> {
        let known = || self.costs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(objection) = known().get(lexeme) {
            return objection.clone().map_or(Ok(()), Err);
        }
        let objection = self.cost(lexeme).err();
        let mut known = known();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(lexeme.to_owned(), objection.clone());
        objection.map_or(Ok(()), Err)
    }

    fn cost(&self, lexeme: &str) -> Result<(), String> {
        let dear = |_| "what it permits takes too much work to keep to; simplify it".to_owned();
        let factory = self.factory().map_err(|error| error.to_string())?;
        let mut limits = factory.limits().clone();
        limits.step_lexer_fuel = AFFORDABLE as u64;
        let grammar = format!("start: V\nV: {lexeme}");
        super::bounds::check(&grammar)?;
        let grammar = TopLevelGrammar::from_lark(grammar);
        let parser = factory.create_parser_from_init_ext(
            GrammarInit::Serialized(grammar),
            Logger::new(0, 0),
            InferenceCapabilities::default(),
            limits,
        );
        let mut parser =
            parser.map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?;
        parser.start_without_prompt();
        for text in 0..TEXTS {
            // A clone has its own position in the grammar, but shares the lexer.
            let constraint = Constraint::new(parser.clone(), false, Duration::ZERO);
            write(constraint, 0x9e37_79b9_7f4a_7c15 + text).map_err(dear)?;
        }
        Ok(())
    }
}

/// Generates a random text.
fn write(mut constraint: Constraint, mut state: u64) -> Result<(), super::GrammarError> {
    let mut little = 0;
    for _ in 0..TOKENS {
        for token in constraint.forced()? {
            constraint.accept(token)?;
        }
        if constraint.finished() || little > 8 {
            break;
        }
        let before = constraint.work();
        let allowed: Vec<u32> = constraint.computed()?.iter().collect();
        little = if constraint.work() - before > LITTLE { 0 } else { little + 1 };
        let ends = constraint.trie().eos_tokens().to_vec();
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let Some(&token) = allowed.get(state as usize % allowed.len().max(1)) else { break };
        if ends.contains(&token) {
            break;
        }
        constraint.accept(token)?;
    }
    Ok(())
}
