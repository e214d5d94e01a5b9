//! Turns under the grammar of many tools, for timing what the grammar adds to a decoder's steps.

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

/// Turn after turn of calls, sampled at temperature 1 from whatever logits come.
pub struct ProbeTurns {
    tokenizer: Arc<Tokenizer>,
    grammar: Grammar,
    turn: Turn,
    constraint: Constraint,
    sampler: Sampler,
    /// Of the turns that are over.
    ended: GrammarUsage,
}

impl ProbeTurns {
    /// Turns of a model with the vocabulary in `gguf` that has to call one of `count` made-up
    /// tools.
    ///
    /// # Errors
    /// If the vocabulary is broken or can't carry a grammar.
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

    /// The token sampled from `logits` and those that are forced behind it.
    /// A turn that is over is followed by the next one.
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

    /// What the grammar has done since the beginning.
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
