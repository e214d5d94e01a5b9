//! The state of one turn's grammar: permitted tokens, forced tokens, and sampling among them.
//!
//! Any failure of llguidance is final: every later call fails too, so that no token is sampled
//! unconstrained.
//!
//! Sampling keeps the sampler's distribution over the permitted tokens, whether or not a mask was
//! computed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::{TokenParser, panic_utils};
use toktrie::{SimpleVob, TokTrie};

use super::GrammarError;
use crate::request::GrammarUsage;
use crate::sampler::Sampler;

/// llguidance spends fuel on new lexer states and gets [new fuel](super::cost) only when it
/// computes a mask.
/// After this much fuel a mask is computed even for a question about a single token, so that a long
/// turn doesn't run out.
const FUEL: usize = 100_000;

/// The top logits with their tokens; `None` if reading all logits is as cheap.
type TopK = Option<Vec<(f32, u32)>>;

/// The state of a turn's grammar.
/// After an error every further call fails.
pub struct Constraint {
    parser: TokenParser,
    /// The reason of the failure.
    failure: Option<String>,
    /// The mask, if it was computed.
    mask: Option<SimpleVob>,
    /// Fuel that had been spent at the last refill.
    refuelled: usize,
    usage: GrammarUsage,
    loosened: Arc<[String]>,
}

impl Constraint {
    pub(super) fn new(parser: TokenParser, cached: bool, prepare_time: Duration) -> Self {
        let refuelled = parser.parser.lexer_stats().total_fuel_spent;
        let usage = GrammarUsage { compiled: usize::from(!cached), prepare_time, ..GrammarUsage::default() };
        Constraint { parser, failure: None, mask: None, refuelled, usage, loosened: Arc::default() }
    }

    pub(super) fn with_loosened(self, loosened: Arc<[String]>) -> Self {
        Constraint { loosened, ..self }
    }

    /// The constraints of the tools' schemas that aren't guaranteed: each with tool, keyword, place
    /// and reason.
    pub fn loosened(&self) -> &[String] {
        &self.loosened
    }

    /// Work done so far, and its time.
    pub fn usage(&self) -> GrammarUsage {
        self.usage
    }

    /// Samples the next token from `logits` once no token is [forced](Constraint::forced).
    /// `seen` holds the tokens for the penalties.
    /// `None` if no allowed token has a finite logit.
    ///
    /// The distribution is the result of the sampler's steps on the logits of the allowed tokens
    /// alone.
    /// At temperature 0 it selects the most likely of them.
    /// Otherwise it is `softmax(logits / temperature)` over them, then cut by top-k, top-p and
    /// min-p.
    /// It doesn't depend on whether a mask is computed.
    /// Without cuts, a token is sampled from all, and only if it is forbidden, a second one under
    /// the mask.
    /// With P the total probability of the allowed tokens, this samples x with
    /// `p(x) + (1 - P) p(x) / P = p(x) / P`.
    /// The cuts depend on which tokens are allowed, so with them the mask is computed first.
    ///
    /// # Errors
    /// [`GrammarError::Failed`].
    pub fn sample(
        &mut self,
        sampler: &mut Sampler,
        logits: &mut [f32],
        seen: &[u32],
    ) -> Result<Option<u32>, GrammarError> {
        sampler.penalize(logits, seen);
        if !sampler.truncates() {
            let Some(token) = sampler.sample_unpenalized(logits) else { return Ok(None) };
            if self.allows(token)? {
                return Ok(Some(token));
            }
            self.usage.rejected_tokens += 1;
        }
        self.mask(logits)?;
        Ok(sampler.sample_unpenalized(logits))
    }

    /// The token that [`Constraint::sample`] would return, if the top logits
    /// [suffice](Sampler::top_needed).
    /// `top_k` returns the top logits of the tokens whose bit is set; `candidates` are all tokens
    /// that the vocabulary defines.
    /// `None` if all logits are needed.
    ///
    /// # Errors
    /// [`GrammarError::Failed`], or the error of `top_k`.
    pub fn sample_from_top<E: From<GrammarError>>(
        &mut self,
        sampler: &mut Sampler,
        candidates: &[u32],
        top_k: &mut dyn FnMut(&[u32]) -> Result<TopK, E>,
    ) -> Result<Option<u32>, E> {
        if !sampler.truncates() {
            let Some(few) = top_k(candidates)? else { return Ok(None) };
            let Some(token) = sampler.sample_from_top(&few) else { return Ok(None) };
            if self.allows(token)? {
                return Ok(Some(token));
            }
            self.usage.rejected_tokens += 1;
        }
        let size = self.trie().vocab_size();
        let allowed = self.computed()?.as_slice();
        let within =
            |at: usize| u32::MAX.checked_shr((32 * (at + 1)).saturating_sub(size) as u32).unwrap_or(0);
        let words = candidates.iter().zip(allowed).enumerate();
        let among: Vec<u32> = words.map(|(at, (a, b))| a & b & within(at)).collect();
        Ok(top_k(&among)?.and_then(|few| sampler.sample_from_top(&few)))
    }

    /// Whether `token` may come next once no token is forced.
    /// Gives the same answer as the mask at a fraction of the cost.
    ///
    /// # Errors
    /// [`GrammarError::Failed`].
    pub fn allows(&mut self, token: u32) -> Result<bool, GrammarError> {
        if self.mask.is_some() || self.needs_fuel()? {
            let mask = self.computed()?;
            return Ok((token as usize) < mask.len() && mask.is_allowed(token));
        }
        self.allows_all(&[token])
    }

    /// Whether `tokens` may come next, in this order.
    ///
    /// # Errors
    /// [`GrammarError::Failed`].
    pub fn allows_all(&mut self, tokens: &[u32]) -> Result<bool, GrammarError> {
        self.guarded(|parser| {
            let trie = parser.token_env.tok_trie();
            if parser.stopped() {
                return Ok(tokens.iter().all(|token| trie.eos_tokens().contains(token)));
            }
            let known = tokens.iter().all(|&token| (token as usize) < trie.vocab_size());
            Ok(known && parser.validate_tokens_raw(tokens).map_err(text)? == tokens.len())
        })
    }

    /// Sets the logits of forbidden tokens, and those beyond the vocabulary, to minus infinity.
    /// Once the grammar is complete, only the tokens that end a turn remain.
    ///
    /// # Errors
    /// [`GrammarError::Failed`], also if no token would remain.
    pub fn mask(&mut self, logits: &mut [f32]) -> Result<(), GrammarError> {
        let size = self.trie().vocab_size();
        let mask = self.computed()?;
        let started = Instant::now();
        mask.iter_unset_entries(|token| {
            if let Some(logit) = logits.get_mut(token) {
                *logit = f32::NEG_INFINITY;
            }
        });
        if let Some(beyond) = logits.get_mut(size..) {
            beyond.fill(f32::NEG_INFINITY);
        }
        self.usage.step_time += started.elapsed();
        Ok(())
    }

    /// The tokens that must come next, in their canonical tokenization; may be empty.
    /// The caller still has to accept them.
    ///
    /// # Errors
    /// [`GrammarError::Failed`].
    pub fn forced(&mut self) -> Result<Vec<u32>, GrammarError> {
        let tokens = self.guarded(|parser| match parser.stopped() {
            true => Ok(Vec::new()),
            false => Ok(parser.compute_ff_tokens()),
        })?;
        self.usage.forced_tokens += tokens.len();
        Ok(tokens)
    }

    /// Advances by one token.
    ///
    /// # Errors
    /// [`GrammarError::Failed`] if the mask forbids it.
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        self.mask = None;
        self.guarded(|parser| {
            if parser.stopped() && parser.token_env.tok_trie().eos_tokens().contains(&token) {
                return Ok(());
            }
            if parser.consume_token(token).map_err(text)? > 0 {
                return Err("llguidance wants to take tokens back".into());
            }
            parser.check_stop().map_err(text)?;
            Ok(())
        })
    }

    /// Whether the turn is complete, so that only its end may follow.
    pub fn finished(&self) -> bool {
        self.failure.is_none() && self.parser.stopped()
    }

    /// Precomputes what the first steps of a turn need, and refills the fuel.
    /// Returns the parser at the grammar's start.
    pub(super) fn warm(mut self) -> Result<TokenParser, GrammarError> {
        let forced = self.forced()?;
        // A clone has its own position in the grammar, but shares the lexer.
        let start = (!forced.is_empty()).then(|| self.parser.clone());
        forced.into_iter().try_for_each(|token| self.accept(token))?;
        // The second mask reuses the states of the first, so it spends almost no fuel.
        for _ in 0..2 {
            self.parser.invalidate_bias_cache();
            self.mask = None;
            self.computed()?;
        }
        Ok(start.unwrap_or(self.parser))
    }

    pub(super) fn computed(&mut self) -> Result<&SimpleVob, GrammarError> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => {
                self.usage.masks += 1;
                self.guarded(compute_mask)?
            }
        };
        Ok(self.mask.insert(mask))
    }

    fn needs_fuel(&mut self) -> Result<bool, GrammarError> {
        let spent = self.guarded(|parser| Ok(parser.parser.lexer_stats().total_fuel_spent))?;
        let needed = spent.saturating_sub(self.refuelled) > FUEL;
        if needed {
            self.refuelled = spent;
            // A cached mask would bring no fuel.
            self.parser.invalidate_bias_cache();
        }
        Ok(needed)
    }

    /// Calls llguidance.
    /// Errors and panics are final, and so is an exceeded limit that it didn't report.
    fn guarded<T>(
        &mut self,
        ask: impl FnOnce(&mut TokenParser) -> Result<T, String>,
    ) -> Result<T, GrammarError> {
        if let Some(message) = &self.failure {
            return Err(GrammarError::Failed { message: message.clone() });
        }
        let started = Instant::now();
        let parser = &mut self.parser;
        let asked = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            let answer = ask(parser);
            let reason = parser.stop_reason();
            Ok(match parser.parser.get_error() {
                Some(error) => Err(error.message()),
                None if !reason.is_ok() => answer.and(Err(reason.to_string())),
                None => answer,
            })
        }));
        self.usage.step_time += started.elapsed();
        asked.unwrap_or_else(|panic| Err(text(panic))).map_err(|message| {
            // The message of a panic includes a backtrace.
            let message = message.lines().next().unwrap_or_default().to_owned();
            self.failure = Some(message.clone());
            GrammarError::Failed { message }
        })
    }

    /// Makes the constraint fail, as llguidance may; for tests.
    #[doc(hidden)]
    pub fn break_down(&mut self) {
        let _ = self.guarded(|parser| parser.parser.test_trigger_lexer_error().map_err(text));
    }

    /// The work that the lexer has done so far, in llguidance's fuel units.
    pub(super) fn work(&self) -> usize {
        self.parser.parser.lexer_stats().total_fuel_spent
    }

    pub(super) fn trie(&self) -> &TokTrie {
        self.parser.token_env.tok_trie()
    }
}

fn compute_mask(parser: &mut TokenParser) -> Result<SimpleVob, String> {
    let vocabulary = parser.token_env.clone();
    let trie = vocabulary.tok_trie();
    if parser.stopped() {
        return Ok(trie.eos_token_set());
    }
    let mut mask = parser.compute_mask().map_err(text)?;
    if mask.is_allowed(trie.eos_token()) {
        // llguidance may permit only the first of the tokens that end a turn.
        trie.eos_tokens().iter().for_each(|&token| mask.allow_token(token));
    }
    if mask.num_set() == 0 {
        return Err("no token may follow".into());
    }
    Ok(mask)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
#[path = "constraint_tests.rs"]
mod tests;
