//! Constrains a turn to what its format, tools and schemas permit, by llguidance.
//!
//! Owns masks, forced tokens and the state of the grammar. Knows nothing of models; of formats only the grammar text that
//! they hand over. An error ends the turn: a constraint never lets pass what it can't judge.

mod schema;

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;
use toktrie::{TokEnv, TokTrie};

use crate::chat::Turn;
use crate::request::{Tool, ToolChoice};

/// What can go wrong with a constraint.
#[derive(Debug, thiserror::Error)]
pub enum GrammarError {
    /// The vocabulary can't carry a grammar.
    #[error("the vocabulary can't carry a grammar: {message}")]
    Vocabulary {
        /// llguidance's words.
        message: String,
    },
    /// A call is wanted, but no tool is there for it.
    #[error("tool choice asks for {wanted}, but the request has {}", names(.tools))]
    NoSuchTool {
        /// What the tool choice asks for.
        wanted: String,
        /// Names of the tools.
        tools: Vec<String>,
    },
    /// A tool's schema has a keyword that a grammar can't honour.
    #[error(
        "the parameters of tool {tool} can't be guaranteed: keyword at {pointer} is not supported ({message})"
    )]
    Keyword {
        /// The tool's name.
        tool: String,
        /// JSON pointer into the tool's parameters.
        pointer: String,
        /// llguidance's words.
        message: String,
    },
    /// A tool's schema can't be honoured for another reason.
    #[error("the parameters of tool {tool} can't be guaranteed: {message}")]
    Schema {
        /// The tool's name.
        tool: String,
        /// llguidance's words.
        message: String,
    },
    /// The grammar of the whole turn is beyond llguidance's limits.
    #[error("the grammar of {tools} tools can't be built: {message}")]
    Build {
        /// How many tools it has.
        tools: usize,
        /// llguidance's words.
        message: String,
    },
    /// A token was accepted that the mask forbids, or llguidance failed.
    #[error("the constraint failed: {message}")]
    Failed {
        /// llguidance's words.
        message: String,
    },
}

fn names(tools: &[String]) -> String {
    if tools.is_empty() { "no tools".into() } else { format!("only {}", tools.join(", ")) }
}

/// Builds constraints for one vocabulary. Cloning shares everything.
#[derive(Clone)]
pub struct Grammar {
    factory: Arc<ParserFactory>,
}

impl Grammar {
    /// Prepares a vocabulary: some tenths of a second for 150,000 tokens, so once per model.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`].
    pub fn new(vocabulary: &TokEnv) -> Result<Self, GrammarError> {
        let mut factory = ParserFactory::new_simple(vocabulary)
            .map_err(|error| GrammarError::Vocabulary { message: error.to_string() })?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Grammar { factory: Arc::new(factory) })
    }

    /// The constraint of a turn; `None` for one without tools, which may say anything. `token` gives the id of a text that is
    /// a single control or user-defined token.
    ///
    /// # Errors
    /// [`GrammarError::NoSuchTool`], and [`GrammarError::Keyword`], [`GrammarError::Schema`] or
    /// [`GrammarError::Build`] for schemas that can't be honoured in full.
    pub fn constraint(
        &self,
        turn: &Turn,
        token: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Option<Constraint>, GrammarError> {
        let permitted: Vec<&Tool> = turn.permitted().collect();
        let wanted = match &turn.tool_choice {
            ToolChoice::Required if permitted.is_empty() => Some("a call".to_owned()),
            ToolChoice::Named(name) if permitted.is_empty() => Some(format!("tool {name}")),
            _ => None,
        };
        if let Some(wanted) = wanted {
            let tools = turn.tools.iter().map(|tool| tool.name.clone()).collect();
            return Err(GrammarError::NoSuchTool { wanted, tools });
        }
        if turn.tools.is_empty() {
            return Ok(None);
        }
        let schemas: Vec<Value> = permitted.iter().map(|tool| schema::arguments(&tool.parameters)).collect();
        let lark = turn.format.grammar(turn, &schemas, token);
        let matcher = match self.matcher(TopLevelGrammar::from_lark(lark)) {
            Ok(matcher) => matcher,
            Err(message) => {
                // Only now is it worth the time to find the tool that is to blame.
                permitted.iter().zip(&schemas).try_for_each(|(tool, schema)| self.check(tool, schema))?;
                return Err(GrammarError::Build { tools: permitted.len(), message });
            }
        };
        Ok(Some(Constraint { matcher, vocabulary: self.factory.tok_env().clone() }))
    }

    fn check(&self, tool: &Tool, schema: &Value) -> Result<(), GrammarError> {
        let Err(message) = self.matcher(TopLevelGrammar::from_json_schema(schema.clone())) else {
            return Ok(());
        };
        let tool_name = tool.name.clone();
        Err(match schema::unsupported_keyword(schema) {
            Some(pointer) => GrammarError::Keyword { tool: tool_name, pointer, message },
            None => GrammarError::Schema { tool: tool_name, message },
        })
    }

    fn matcher(&self, grammar: TopLevelGrammar) -> Result<Matcher, String> {
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(message) => Err(message),
            // A warning says that something was not taken literally.
            None => matcher.grammar_warnings().into_iter().next().map_or(Ok(matcher), Err),
        }
    }
}

/// The state of a turn's grammar. After an error every further call fails.
pub struct Constraint {
    matcher: Matcher,
    vocabulary: TokEnv,
}

impl Constraint {
    /// Sets the logits of forbidden tokens, and those beyond the vocabulary, to minus infinity. Once the grammar is complete
    /// only the tokens that end a turn are left.
    ///
    /// # Errors
    /// [`GrammarError::Failed`], also if nothing would be left.
    pub fn mask(&mut self, logits: &mut [f32]) -> Result<(), GrammarError> {
        let mut mask = self.matcher.compute_mask_or_eos().map_err(|error| failed(&error))?;
        let trie = self.trie();
        if mask.is_allowed(trie.eos_token()) {
            // llguidance offers only the first of the tokens that end a turn.
            trie.eos_tokens().iter().for_each(|&token| mask.allow_token(token));
        }
        if mask.num_set() == 0 {
            return Err(GrammarError::Failed { message: "no token may follow".into() });
        }
        mask.iter_unset_entries(|token| {
            if let Some(logit) = logits.get_mut(token) {
                *logit = f32::NEG_INFINITY;
            }
        });
        if let Some(beyond) = logits.get_mut(trie.vocab_size()..) {
            beyond.fill(f32::NEG_INFINITY);
        }
        Ok(())
    }

    /// The tokens that must come next, in their canonical tokenization; may be empty. They still have to be
    /// accepted.
    ///
    /// # Errors
    /// [`GrammarError::Failed`].
    pub fn forced(&mut self) -> Result<Vec<u32>, GrammarError> {
        let tokens = self.matcher.compute_ff_tokens();
        self.healthy().map(|()| tokens)
    }

    /// Moves on by a token.
    ///
    /// # Errors
    /// [`GrammarError::Failed`] if the mask forbids it.
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        if self.matcher.is_stopped() && self.trie().eos_tokens().contains(&token) {
            return self.healthy();
        }
        self.matcher.consume_token(token).map_err(|error| failed(&error))?;
        self.healthy()
    }

    /// Whether the turn is complete, so that nothing but its end may follow.
    pub fn finished(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }

    fn trie(&self) -> &TokTrie {
        self.vocabulary.tok_trie()
    }

    fn healthy(&self) -> Result<(), GrammarError> {
        let reason = self.matcher.stop_reason();
        match self.matcher.get_error() {
            Some(message) => Err(GrammarError::Failed { message }),
            None if !reason.is_ok() => Err(GrammarError::Failed { message: reason.to_string() }),
            None => Ok(()),
        }
    }
}

fn failed(error: &impl std::fmt::Display) -> GrammarError {
    GrammarError::Failed { message: error.to_string() }
}

#[cfg(test)]
mod tests;
