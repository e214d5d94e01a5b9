//! Turns with the grammar of many tools, to measure the grammar's cost in addition to the decoder.

use std::collections::BTreeMap;
use std::sync::Arc;

use alara_text::chat::formats::{Format, Reasoning, Turn};
use alara_text::gguf::Gguf;
use alara_text::grammar::{Constraint, Grammar};
use alara_text::request::{GrammarUsage, Sampling, ToolChoice, Until};
use alara_text::sampler::Sampler;
use alara_text::tokenizer::Tokenizer;

use super::tools;
use crate::{Error, Result};

/// A series of turns with calls, sampled at temperature 1 from any logits.
pub struct ProbeTurns {
    tokenizer: Arc<Tokenizer>,
    grammar: Grammar,
    turn: Turn,
    constraint: Constraint,
    sampler: Sampler,
    /// Usage of finished turns.
    ended: GrammarUsage,
}

impl ProbeTurns {
    /// Turns of a model with the vocabulary in `gguf` that has to call one of `count` synthetic
    /// tools.
    ///
    /// # Errors
    /// If the vocabulary is invalid or doesn't support grammars.
    pub fn new(gguf: &Gguf, count: usize) -> Result<Self> {
        let tokenizer = Arc::new(crate::architecture::tokenizer(gguf)?);
        let vocabulary = tokenizer.clone();
        let grammar = Grammar::new(move || vocabulary.env());
        let turn = Turn {
            format: Format::generic(),
            thinking: None,
            schema: None,
            grammar: None,
            string_limit: None,
            raw: false,
            bound: BTreeMap::new(),
            tools: tools(count),
            tool_choice: ToolChoice::Required,
            parallel_tool_calls: true,
            reasoning: Reasoning::Never,
        };
        let constraint = start(&grammar, &turn, &tokenizer)?;
        let sampler = Sampler::new(&Sampling { temperature: 1.0, ..Sampling::default() });
        Ok(ProbeTurns { tokenizer, grammar, turn, constraint, sampler, ended: GrammarUsage::default() })
    }

    /// The token sampled from `logits`, and the forced tokens after it.
    /// A finished turn is followed by a new one.
    ///
    /// # Errors
    /// If the constraint fails or no token has a finite logit.
    pub fn next(&mut self, logits: &mut [f32]) -> Result<Vec<u32>> {
        self.tokenizer.mask(logits, false);
        let sampled = self.constraint.sample(&mut self.sampler, logits, &[])?.ok_or(Error::NoToken)?;
        self.constraint.accept(sampled)?;
        let mut tokens = vec![sampled];
        if self.constraint.finished() {
            self.ended += self.constraint.usage();
            self.constraint = start(&self.grammar, &self.turn, &self.tokenizer)?;
        }
        loop {
            let forced = self.constraint.forced()?;
            if forced.is_empty() {
                return Ok(tokens);
            }
            forced.iter().try_for_each(|&token| self.constraint.accept(token))?;
            tokens.extend(forced);
        }
    }

    /// The grammar's work since the beginning.
    pub fn usage(&self) -> GrammarUsage {
        let mut usage = self.ended;
        usage += self.constraint.usage();
        usage
    }
}

fn start(grammar: &Grammar, turn: &Turn, tokenizer: &Tokenizer) -> Result<Constraint> {
    let constraint = grammar.constraint(turn, &|text| tokenizer.id(text), &Until::default())?;
    constraint.ok_or_else(|| Error::InvalidRequest { reason: "a turn without tools has no grammar".into() })
}
