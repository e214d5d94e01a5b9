//! One turn under way: its tokens, and the path of each new token from logits to events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use crate::cache::Table;
use crate::chat::formats::{Parsed, Parser};
use crate::grammar::Constraint;
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
    /// Texts that end the turn.
    pub stop: StopTexts,
    /// Tokens to text.
    pub text: DecodeStream,
    /// The model's vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// Number of the next tool call in the conversation.
    pub next_call: usize,
    /// Where events go.
    pub events: mpsc::Sender<Result<Event>>,
    /// Set when nobody listens any more.
    pub cancelled: Arc<AtomicBool>,
    /// When the request came.
    pub started: Instant,
    /// When the first and the latest token were drawn.
    pub drawn: Option<(Instant, Instant)>,
    /// Whether the answer contains a call.
    pub called: bool,
    /// Whether nothing more is to be computed.
    pub finished: bool,
}

impl Sequence {
    /// Tokens whose keys and values are not computed yet.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.table.len()
    }

    /// Draws the next token from the logits of the latest, and follows it with what the grammar forces.
    pub fn advance(&mut self, logits: &mut [f32]) {
        if self.cancelled.load(Ordering::Relaxed) {
            self.finished = true;
        } else if let Err(error) = self.draw(logits) {
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
        if let Some(constraint) = &mut self.constraint {
            constraint.mask(logits)?;
        }
        let token = self.sampler.sample(logits, &self.tokens).ok_or(Error::NoToken)?;
        let now = Instant::now();
        self.drawn = Some((self.drawn.map_or(now, |(first, _)| first), now));
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(token)?;
        }
        self.push(token);
        while !self.finished {
            let forced = match &mut self.constraint {
                Some(constraint) => constraint.forced()?,
                None => break,
            };
            if forced.is_empty() {
                break;
            }
            for token in forced {
                if self.finished {
                    break;
                }
                if let Some(constraint) = &mut self.constraint {
                    constraint.accept(token)?;
                }
                self.push(token);
            }
        }
        Ok(())
    }

    fn push(&mut self, token: u32) {
        self.tokens.push(token);
        if self.tokenizer.is_end_of_turn(token) {
            return self.finish(None);
        }
        let text = self.text.push(token);
        let (text, stopped) = self.stop.push(&text);
        let parsed = self.parser.push(&text);
        self.emit(parsed);
        if stopped {
            self.finish(None);
        } else if self.tokens.len() >= self.limit {
            self.finish(Some(Finish::Length));
        }
    }

    /// Sends what is held back, and `Done`.
    fn finish(&mut self, finish: Option<Finish>) {
        self.finished = true;
        let text = std::mem::replace(&mut self.text, self.tokenizer.stream());
        let rest = format!("{}{}", self.stop.finish(), text.finish());
        let mut parsed = self.parser.push(&rest);
        parsed.extend(self.parser.finish());
        self.emit(parsed);
        let finish = finish.unwrap_or(if self.called { Finish::ToolCalls } else { Finish::Stop });
        let (first, last) = self.drawn.unwrap_or_else(|| (Instant::now(), Instant::now()));
        let usage = Usage {
            prompt_tokens: self.prompt,
            cached_tokens: self.cached,
            completion_tokens: self.tokens.len() - self.prompt,
            time_to_first_token: first - self.started,
            decode_time: last - first,
        };
        let _ = self.events.send(Ok(Event::Done { finish, usage }));
    }

    fn emit(&mut self, parsed: Vec<Parsed>) {
        for piece in parsed {
            let event = match piece {
                Parsed::Text(text) => Event::Text { text },
                Parsed::Reasoning(text) => Event::Reasoning { text },
                Parsed::ToolCall { name, arguments } => {
                    let id = format!("call_{}", self.next_call);
                    self.next_call += 1;
                    self.called = true;
                    Event::ToolCall(ToolCall { id, name, arguments })
                }
            };
            let _ = self.events.send(Ok(event));
        }
    }
}
