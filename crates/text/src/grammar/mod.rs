//! Constrains a turn to what its format, tools and schemas permit, using llguidance.
//!
//! Owns masks, forced tokens and the grammar's state.
//! Knows nothing of models, and only the grammar text of formats.
//! An error ends the turn: a constraint never permits what it can't check.
//!
//! A turn with a schema ends in JSON that is valid for it, or with calls, a limit or an error.

mod arguments;
mod blocks;
mod bounds;
mod cache;
mod constraint;
mod cost;
mod decimal;
mod gbnf;
mod json;
mod schema;
mod text;
mod turn;
mod verdict;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use llguidance::api::TopLevelGrammar;
use llguidance::{ParserFactory, TokenParser};
use serde_json::Value;
use toktrie::TokEnv;

use cache::{Compiled, GrammarCache};
pub use constraint::Constraint;
use cost::Judge;
pub use gbnf::to_lark;
pub use schema::{SchemaError, fits, loosened, mismatch, violation};

use crate::chat::Turn;
use crate::request::{Over, Tool, ToolChoice, Until};

/// Time limit for building a turn's grammar, whatever time the request has.
const PATIENCE: Duration = Duration::from_secs(20);

/// An error of a constraint.
#[derive(Debug, thiserror::Error)]
pub enum GrammarError {
    /// The vocabulary doesn't support grammars.
    #[error("the vocabulary can't carry a grammar: {message}")]
    Vocabulary {
        /// llguidance's message.
        message: String,
    },
    /// A call is required, but the request has no tool for it.
    #[error("tool choice asks for {wanted}, but the request has {}", names(.tools))]
    NoSuchTool {
        /// The requested tool choice.
        wanted: String,
        /// Names of the tools.
        tools: Vec<String>,
    },
    /// The model's call format can't express calls of a tool.
    #[error("tool {tool} can't be called: {reason}")]
    Name {
        /// The tool's name.
        tool: String,
        /// The reason.
        reason: String,
    },
    /// The schema of the answer can't be enforced in full.
    #[error("the output schema can't be guaranteed: {refusal}")]
    Schema {
        /// Keyword, place and reason.
        refusal: SchemaError,
    },
    /// The grammar of the answer can't be used.
    #[error("the grammar can't be used: {message}")]
    Grammar {
        /// The position and the problem.
        message: String,
    },
    /// The schema of a tool's arguments can't be enforced in full.
    #[error("the parameters of tool {tool} can't be guaranteed: {refusal}")]
    Parameters {
        /// The tool.
        tool: String,
        /// Keyword, place and reason.
        refusal: SchemaError,
    },
    /// The grammar of the whole turn exceeds llguidance's limits.
    #[error("the grammar of {tools} tools can't be built: {message}")]
    Build {
        /// Number of tools.
        tools: usize,
        /// llguidance's message.
        message: String,
    },
    /// The request timed out, or its client disconnected.
    #[error(transparent)]
    Over(#[from] Over),
    /// A token was accepted that the mask forbids, or llguidance failed.
    #[error("the constraint failed: {message}")]
    Failed {
        /// llguidance's message.
        message: String,
    },
}

fn schema_error(tool: &Tool, refusal: SchemaError) -> GrammarError {
    GrammarError::Parameters { tool: tool.name.clone(), refusal }
}

fn names(tools: &[String]) -> String {
    if tools.is_empty() { "no tools".into() } else { format!("only {}", tools.join(", ")) }
}

/// Builds constraints for one vocabulary.
/// Clones share everything, including compiled grammars.
#[derive(Clone)]
pub struct Grammar {
    vocabulary: Arc<dyn Fn() -> TokEnv + Send + Sync>,
    /// llguidance's factory for the vocabulary, or its error.
    factory: Arc<OnceLock<Result<ParserFactory, String>>>,
    compiled: Arc<GrammarCache>,
    /// Measured costs of lexemes.
    costs: Arc<cost::Known>,
}

impl Grammar {
    /// Prepares a vocabulary on a separate thread.
    /// This takes most of a second for 150,000 tokens, so it is done once per model, during
    /// loading.
    /// Earlier users wait for it.
    pub fn new(vocabulary: impl Fn() -> TokEnv + Send + Sync + 'static) -> Self {
        let (factory, compiled, costs) = Default::default();
        let grammar = Grammar { vocabulary: Arc::new(vocabulary), factory, compiled, costs };
        let beside = grammar.clone();
        let prepare = move || beside.prepare();
        // If no thread can be started, it is prepared on first use.
        drop(std::thread::Builder::new().name("grammar".into()).spawn(prepare));
        grammar
    }

    /// Blocks until the vocabulary is prepared, or found to be unsuitable.
    pub fn prepare(&self) {
        let _ = self.factory();
    }

    fn factory(&self) -> Result<&ParserFactory, GrammarError> {
        let prepare = || {
            let mut factory =
                ParserFactory::new_simple(&(self.vocabulary)()).map_err(|error| error.to_string())?;
            factory.quiet();
            let limits = factory.limits_mut();
            limits.verbose_errors = false;
            limits.step_lexer_fuel = cost::MOST;
            Ok(factory)
        };
        let factory = self.factory.get_or_init(prepare).as_ref();
        factory.map_err(|message| GrammarError::Vocabulary { message: message.clone() })
    }

    /// The constraint of a turn; `None` for a turn without tools, schema or grammar, which is
    /// unconstrained.
    /// `token` gives the id of a text that is a single control or user-defined token.
    ///
    /// # Errors
    /// [`GrammarError::NoSuchTool`], [`GrammarError::Vocabulary`], and [`GrammarError::Schema`],
    /// [`GrammarError::Parameters`] or [`GrammarError::Build`] for schemas that can't be enforced
    /// in full.
    /// [`GrammarError::Grammar`] for a grammar that can't be used, and [`GrammarError::Over`].
    pub fn constraint(
        &self,
        turn: &Turn,
        token: &dyn Fn(&str) -> Option<u32>,
        until: &Until,
    ) -> Result<Option<Constraint>, GrammarError> {
        let permitted: Vec<&Tool> = turn.permitted().collect();
        let wanted = match &turn.tool_choice {
            ToolChoice::Required if permitted.is_empty() => Some("a call".to_owned()),
            ToolChoice::Named(name) if permitted.is_empty() => Some(format!("tool {name}")),
            ToolChoice::Among { names, required: true } if permitted.is_empty() => {
                Some(format!("a call of one of {}", names.join(", ")))
            }
            _ => None,
        };
        if let Some(wanted) = wanted {
            let tools = turn.tools.iter().map(|tool| tool.name.clone()).collect();
            return Err(GrammarError::NoSuchTool { wanted, tools });
        }
        if turn.tools.is_empty() && !turn.has_shape() {
            return Ok(None);
        }
        let started = Instant::now();
        // Covers everything that the grammar depends on, and is much cheaper than building it.
        let key = format!("{turn:?}");
        let (grammar, cached) = self
            .compiled
            .grammar(key, || self.compile_turn(turn, &permitted, token, &until.within(PATIENCE)))
            .map_err(|error| if until.is_over() { Over.into() } else { error })?;
        let constraint = Constraint::new(grammar.parser, cached, started.elapsed());
        Ok(Some(constraint.with_loosened(grammar.loosened)))
    }

    fn compile_turn(
        &self,
        turn: &Turn,
        permitted: &[&Tool],
        token: &dyn Fn(&str) -> Option<u32>,
        until: &Until,
    ) -> Result<Compiled, GrammarError> {
        self.factory()?;
        let judge = Judge { lexeme: &|lexeme| self.afford(lexeme), until };
        if let Some(grammar) = &turn.grammar {
            bounds::check_given(grammar).map_err(|message| GrammarError::Grammar { message })?;
        }
        let (lark, loosened) = turn::lark(turn, token, judge)?;
        until.check()?;
        let parser = self.compile_warm(lark).or_else(|message| {
            if turn.schema.is_some() {
                return Err(GrammarError::Schema { refusal: SchemaError::of_whole(message) });
            }
            if let Some(grammar) = &turn.grammar {
                // Compiled alone, its line numbers are those that its author knows.
                let alone = self.compile(grammar.clone());
                return Err(GrammarError::Grammar { message: alone.err().unwrap_or(message) });
            }
            // Only on failure is it worth searching for the offending schema.
            permitted.iter().try_for_each(|tool| {
                until.check()?;
                let alone =
                    Turn { tools: vec![(*tool).clone()], tool_choice: ToolChoice::Required, ..turn.clone() };
                let (lark, _) = turn::lark(&alone, token, judge)?;
                let compiled = self.compile_warm(lark);
                compiled.map(drop).map_err(|message| schema_error(tool, SchemaError::of_whole(message)))
            })?;
            Err(GrammarError::Build { tools: permitted.len(), message })
        })?;
        Ok(Compiled { parser, loosened: loosened.into() })
    }

    /// Compiles the grammar and precomputes what the first steps of a turn need.
    /// A grammar that is too ambiguous for its first token is refused here and not during the turn.
    fn compile_warm(&self, lark: String) -> Result<TokenParser, String> {
        let parser = self.compile(lark)?;
        Constraint::new(parser, false, Duration::ZERO).warm().map_err(|error| match error {
            GrammarError::Failed { message } => format!("it leaves too much open: {message}"),
            error => error.to_string(),
        })
    }

    /// Compiles the grammar of a written schema alone.
    fn compile_schema(&self, schema: &Value) -> Result<TokenParser, SchemaError> {
        let until = Until::default().within(PATIENCE);
        let lark = json::lark(schema, Judge { lexeme: &|lexeme| self.afford(lexeme), until: &until })?;
        self.compile(lark).map_err(SchemaError::of_whole)
    }

    /// Compiles a grammar; llguidance can't be interrupted, so the input is checked against limits
    /// first.
    fn compile(&self, lark: String) -> Result<TokenParser, String> {
        bounds::check(&lark)?;
        let grammar = TopLevelGrammar::from_lark(lark);
        let factory = self.factory().map_err(|error| error.to_string())?;
        let mut parser = factory.create_parser(grammar).map_err(|error| plain_message(&error.to_string()))?;
        parser.start_without_prompt();
        // A warning means that part of the schema was not taken literally.
        parser.grammar_warnings().into_iter().next().map_or(Ok(parser), Err)
    }
}

/// llguidance's message; for a panic, its reaction to some limits, only the useful part.
fn plain_message(message: &str) -> String {
    match message.split_once("<backtrace>") {
        Some(_) => "it is larger than a grammar may be".into(),
        None => message.into(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
