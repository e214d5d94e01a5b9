//! One turn under way: its tokens, and the path of each new token from logits to events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::cache::Table;
use crate::chat::formats::{Parsed, Parser};
use crate::grammar::Constraint;
use crate::listener::Listener;
use crate::repetition::{Calls, Cycles, Digits, Verdict};
use crate::request::{Event, Finish, ToolCall, Usage};
use crate::sampler::Sampler;
use crate::stop::StopTexts;
use crate::tokenizer::{DecodeStream, Tokenizer};
use crate::{Error, Result};

/// Everything that a turn needs beside the model.
pub struct Sequence {
    /// The prompt and what was generated.
    pub tokens: Vec<u32>,
    /// Where the keys and values of the computed tokens lie.
    pub table: Table,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the prompt that were found in the cache.
    pub cached: usize,
    /// Most tokens that `tokens` may reach.
    pub limit: usize,
    /// Draws tokens.
    pub sampler: Sampler,
    /// What may be emitted; `None` = anything.
    pub constraint: Option<Constraint>,
    /// Text to answer.
    pub parser: Parser,
    /// What bounds the reasoning.
    pub reasoning: ReasoningBudget,
    /// Texts that end the turn.
    pub stop: StopTexts,
    /// Tokens to text.
    pub text: DecodeStream,
    /// The model's vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// Number of the next tool call in the conversation.
    pub next_call: usize,
    /// Where events go.
    pub events: Listener,
    /// Set when nobody listens any more.
    pub cancelled: Arc<AtomicBool>,
    /// When the request came.
    pub started: Instant,
    /// When the first and the latest token were drawn.
    pub drawn: Option<(Instant, Instant)>,
    /// The calls of the answer.
    pub calls: Calls,
    /// Whether the turn goes round in circles.
    pub cycles: Cycles,
    /// Whether a call has begun and is not complete.
    pub writing: bool,
    /// Whether its text is JSON.
    pub json: bool,
    /// Whether a number in its JSON has no end.
    pub digits: Digits,
    /// Whether nothing more is to be computed.
    pub finished: bool,
}

/// Bounds the reasoning of a turn.
#[derive(Debug, Default)]
pub struct ReasoningBudget {
    /// Tokens that are left; `None` = as many as the turn has.
    pub left: Option<usize>,
    /// The tokens that end the reasoning.
    pub end: Vec<u32>,
}

impl Sequence {
    /// Tokens whose keys and values are not computed yet.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.table.len()
    }

    /// Appends what comes before the first token is drawn.
    pub fn begin(&mut self) {
        if let Err(error) = self.follow() {
            self.fail(error);
        }
    }

    /// Draws the next token from the logits of the latest, and appends what follows without a draw. The next step computes all of
    /// them together.
    pub fn advance(&mut self, logits: &mut [f32]) {
        if self.cancelled.load(Ordering::Relaxed) {
            self.finished = true;
        } else if let Err(error) = self.draw(logits).and_then(|()| self.follow()) {
            self.fail(error);
        }
    }

    /// Ends the turn with an error.
    pub fn fail(&mut self, error: Error) {
        self.finished = true;
        // Nobody listening is no error: the sequence ends either way.
        let _ = self.events.send(Err(error));
    }

    fn draw(&mut self, logits: &mut [f32]) -> Result<()> {
        self.tokenizer.mask(logits);
        let token = match &mut self.constraint {
            Some(constraint) => constraint.draw(&mut self.sampler, logits, &self.tokens)?,
            None => self.sampler.sample(logits, &self.tokens),
        };
        let token = token.ok_or(Error::NoToken)?;
        let now = Instant::now();
        self.drawn = Some((self.drawn.map_or(now, |(first, _)| first), now));
        self.append(token)?;
        // Asked here alone: what is forced may be monotonous.
        if !self.finished && self.cycles.endless() {
            self.finish(Finish::Repetition);
        }
        Ok(())
    }

    /// Appends what needs no draw: tokens that the grammar forces, and the end of reasoning that is out of budget.
    fn follow(&mut self) -> Result<()> {
        while !self.finished {
            let mut next = match &mut self.constraint {
                Some(constraint) => constraint.forced()?,
                None => Vec::new(),
            };
            if next.is_empty() {
                next = self.end_of_reasoning()?;
            }
            if next.is_empty() {
                break;
            }
            for token in next {
                if self.finished {
                    break;
                }
                self.append(token)?;
            }
        }
        Ok(())
    }

    /// The tokens that end the reasoning, if its budget is used up and they may stand here: not within a character.
    fn end_of_reasoning(&mut self) -> Result<Vec<u32>> {
        if !self.parser.is_reasoning() || self.reasoning.left != Some(0) || self.text.within_character() {
            return Ok(Vec::new());
        }
        let may = match &mut self.constraint {
            Some(constraint) => constraint.allows_all(&self.reasoning.end)?,
            None => true,
        };
        if !may {
            return Ok(Vec::new());
        }
        // Once: if the model starts to reason again, it does so at the expense of the turn.
        self.reasoning.left = None;
        Ok(std::mem::take(&mut self.reasoning.end))
    }

    fn append(&mut self, token: u32) -> Result<()> {
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(token)?;
        }
        self.tokens.push(token);
        self.cycles.note(&self.tokens[self.prompt..]);
        if self.tokenizer.is_end_of_turn(token) {
            self.finish(Finish::Stop);
            return Ok(());
        }
        let text = self.text.push(token);
        let (text, stopped) = self.stop.push(&text);
        let reasoned = self.parser.is_reasoning();
        let parsed = self.parser.push(&text);
        if let (true, Some(left)) = (reasoned, &mut self.reasoning.left) {
            *left = left.saturating_sub(1);
        }
        if let Some(finish) = self.emit(parsed) {
            self.end(finish);
        } else if (self.json || self.writing) && self.digits.endless(&text) {
            self.finish(Finish::Repetition);
        } else if stopped {
            self.finish(Finish::Stop);
        } else if self.tokens.len() >= self.limit {
            self.finish(Finish::Length);
        }
        Ok(())
    }

    /// Sends what is held back, and `Done`.
    fn finish(&mut self, finish: Finish) {
        let text = std::mem::replace(&mut self.text, self.tokenizer.stream());
        let rest = format!("{}{}", self.stop.finish(), text.finish());
        let mut parsed = self.parser.push(&rest);
        parsed.extend(self.parser.finish());
        let finish = self.emit(parsed).unwrap_or(finish);
        self.end(finish);
    }

    fn end(&mut self, finish: Finish) {
        self.finished = true;
        let finish = if finish == Finish::Stop && self.calls.any() { Finish::ToolCalls } else { finish };
        let (first, last) = self.drawn.unwrap_or_else(|| (Instant::now(), Instant::now()));
        let usage = Usage {
            prompt_tokens: self.prompt,
            cached_tokens: self.cached,
            completion_tokens: self.tokens.len() - self.prompt,
            time_to_first_token: first - self.started,
            decode_time: last - first,
            grammar: self.constraint.as_ref().map(Constraint::usage).unwrap_or_default(),
        };
        let _ = self.events.send(Ok(Event::Done { finish, usage }));
    }

    /// Sends events, up to a call that ends the turn.
    fn emit(&mut self, parsed: Vec<Parsed>) -> Option<Finish> {
        for piece in parsed {
            let event = match piece {
                Parsed::Text(text) => {
                    self.writing = false;
                    Event::Text { text }
                }
                Parsed::Reasoning(text) => Event::Reasoning { text },
                Parsed::Delta { name, arguments } => {
                    let named = std::mem::replace(&mut self.writing, true);
                    Event::ToolCallDelta {
                        index: self.calls.count(),
                        name: (!named).then_some(name),
                        arguments,
                    }
                }
                Parsed::Incomplete { name, arguments, .. } => {
                    self.writing = false;
                    Event::Incomplete { name, arguments }
                }
                Parsed::ToolCall { id, name, arguments } => {
                    self.writing = false;
                    match self.calls.note(&name, &arguments) {
                        Verdict::Make => {}
                        Verdict::Repeated => return Some(Finish::Repetition),
                        Verdict::TooMany => return Some(Finish::Length),
                    }
                    let id = if id.is_empty() { format!("call_{}", self.next_call) } else { id };
                    self.next_call += 1;
                    Event::ToolCall(ToolCall { id, name, arguments })
                }
            };
            let _ = self.events.send(Ok(event));
        }
        None
    }
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
