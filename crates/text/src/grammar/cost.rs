//! What a lexeme costs, found before a turn begins.
//!
//! A lexer makes its states as a text is written.
//! Some expressions have so many states that a mask would take seconds.
//! Such are those of which many counts or ends have to be tracked, like the format of an address
//! that also matches a pattern.
//! They are found by writing some texts at random with the vocabulary at hand.
//! Those that pass have much room left: a turn doesn't fail.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use llguidance::Logger;
use llguidance::api::{GrammarInit, TopLevelGrammar};
use toktrie::InferenceCapabilities;

use super::{Constraint, Grammar};
use crate::request::Until;

/// What rules may cost.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    /// Says what is against a lexeme, given by its body.
    pub lexeme: &'a dyn Fn(&str) -> Result<(), String>,
    /// How long there is for them.
    pub until: &'a Until,
}

/// Points of fuel for a mask, of which a millisecond spends some ten thousand.
pub(super) const MOST: u64 = 4_000_000;
/// Points that a mask of a lexeme may take.
const AFFORDABLE: usize = 200_000;
/// Points that are next to nothing; after some such masks nothing worse is expected.
const LITTLE: usize = 5_000;
/// Texts that are written, and tokens of each.
const TEXTS: u64 = 2;
const TOKENS: usize = 24;
/// How many lexemes are remembered.
const REMEMBERED: usize = 4096;

/// Lexemes, and what is said against them.
pub(super) type Known = Mutex<HashMap<String, Option<String>>>;

impl Grammar {
    /// Whether a turn can have a lexeme, given by its body in Lark.
    ///
    /// # Errors
    /// Why not.
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
            // A clone has its own place in the grammar, but the same lexer.
            let constraint = Constraint::new(parser.clone(), false, Duration::ZERO);
            write(constraint, 0x9e37_79b9_7f4a_7c15 + text).map_err(dear)?;
        }
        Ok(())
    }
}

/// Writes a text at random.
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
