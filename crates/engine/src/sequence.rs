//! One turn under way: its tokens, and the path of each new token from logits to events.

mod listener;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::cache::Stop;
use crate::chat::formats::{Parsed, Parser};
use crate::draft::{self, Lookup, Tenants};
use crate::grammar::Constraint;
use crate::logits::Logits;
use crate::pool::{Found, Run};
use crate::repetition::{Calls, Cycles, Verdict};
use crate::request::{Event, Finish, Miss, ToolCall, Usage};
use crate::sampler::Sampler;
use crate::stop::StopTexts;
use crate::tokenizer::{DecodeStream, Tokenizer};
use crate::{Error, Result};
pub(crate) use listener::Listener;

/// Tokens before the point where two prompts part that are told with it.
const SHOWN_BEFORE: usize = 4;

/// Everything that a turn needs beside the model.
pub struct Sequence {
    /// Its tokens, and what is computed of them.
    pub run: Run,
    /// Most tokens that the run may reach.
    pub limit: usize,
    /// Draws tokens.
    pub sampler: Sampler,
    /// Whether tokens that end the turn are not drawn, nor repetition ends it.
    pub endless: bool,
    /// What may be emitted; `None` = anything.
    pub constraint: Option<Constraint>,
    /// What comes in place of what is drawn.
    pub answer: std::vec::IntoIter<u32>,
    /// Guesses at what comes next; `None`: nothing is guessed.
    pub lookup: Option<Lookup>,
    /// Text to answer.
    pub parser: Parser,
    /// What bounds the reasoning.
    pub reasoning: ReasoningBudget,
    /// The tokens that close a string of a call, for a turn that must be one: it is not ended
    /// because it goes round in circles, but the string in which it does so is.
    /// Empty for other turns.
    pub closer: Vec<u32>,
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
    /// Appends what comes before the first token is drawn.
    pub fn begin(&mut self) {
        if let Err(error) = self.follow() {
            self.fail(error);
        }
    }

    /// Guesses at what comes next, for the coming step.
    pub fn guess(&mut self, said: &Tenants) {
        if let Some(lookup) = &mut self.lookup {
            let room = self.limit.saturating_sub(self.run.tokens.len() + 1);
            let said = said.said(&self.run.prefix.salt);
            let mut draft = lookup.propose(&self.run.tokens, said, room.min(draft::MOST));
            // What would follow the end of the turn is of no use.
            draft.end(|token| self.tokenizer.is_end_of_turn(token));
            self.run.draft = draft;
        }
    }

    /// Draws the next token from the logits of the latest, and appends what follows without a draw;
    /// once more from the logits of the drafted tokens, as long as these are the tokens that came.
    /// The next step computes all that is not computed together.
    /// `rows` of the logits are this sequence's.
    pub fn advance(&mut self, logits: &mut dyn Logits, rows: Range<usize>) {
        if self.cancelled.load(Ordering::Relaxed) {
            self.run.finished = true;
        }
        let mut row = 0;
        while !self.run.finished && row < rows.len() {
            if let Err(error) = self.draw(logits, rows.start + row).and_then(|()| self.follow()) {
                self.fail(error);
            }
            // At least one has come.
            let Some(come) = self.run.come() else { break };
            row = come;
        }
    }

    /// Ends the turn with an error.
    pub fn fail(&mut self, error: Error) {
        self.run.finished = true;
        // Nobody listening is no error: the sequence ends either way.
        let _ = self.events.send(Err(error));
    }

    fn draw(&mut self, logits: &mut dyn Logits, row: usize) -> Result<()> {
        let token = match self.draw_among_few(logits, row)? {
            Some(token) => token,
            None => self.draw_among_all(logits.row(row)?)?.ok_or(Error::NoToken)?,
        };
        let token = self.answer.next().unwrap_or(token);
        let now = Instant::now();
        self.drawn = Some((self.drawn.map_or(now, |(first, _)| first), now));
        self.append(token)?;
        // Asked here alone: what is forced may be monotonous.
        if !self.run.finished && !self.endless && self.cycles.endless() && !self.close()? {
            self.finish(Finish::Repetition);
        }
        Ok(())
    }

    fn draw_among_all(&mut self, logits: &mut [f32]) -> Result<Option<u32>> {
        self.tokenizer.mask(logits, self.endless);
        Ok(match &mut self.constraint {
            Some(constraint) => constraint.sample(&mut self.sampler, logits, &self.run.tokens)?,
            None => self.sampler.sample(logits, &self.run.tokens),
        })
    }

    /// The token that would be drawn among all, where the greatest logits decide that and can be
    /// had apart.
    fn draw_among_few(&mut self, logits: &mut dyn Logits, row: usize) -> Result<Option<u32>> {
        let Some(count) = self.sampler.deciding() else { return Ok(None) };
        let drawable = self.tokenizer.candidates(self.endless);
        match &mut self.constraint {
            Some(constraint) => constraint.sample_from_top(&mut self.sampler, drawable, &mut |among| {
                logits.greatest(row, count, among)
            }),
            None => {
                let few = logits.greatest(row, count, drawable)?;
                Ok(few.and_then(|few| self.sampler.draw_among_few(&few)))
            }
        }
    }

    /// Appends what needs no draw: tokens that the grammar forces, which are all that its mask
    /// leaves, and the end of reasoning that is out of budget.
    fn follow(&mut self) -> Result<()> {
        while !self.run.finished {
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
                if self.run.finished {
                    break;
                }
                self.append(token)?;
            }
        }
        Ok(())
    }

    /// Closes the string that the turn is in; false if it is in none, or may not.
    fn close(&mut self) -> Result<bool> {
        if self.closer.is_empty() || self.text.within_character() {
            return Ok(false);
        }
        let closer = self.closer.clone();
        let may = match &mut self.constraint {
            Some(constraint) => constraint.allows_all(&closer)?,
            None => false,
        };
        if may {
            closer.into_iter().try_for_each(|token| self.append(token))?;
            self.cycles = Cycles::default();
        }
        Ok(may)
    }

    /// The tokens that end the reasoning, if its budget is used up and they may stand here: not
    /// within a character.
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
        self.run.tokens.push(token);
        self.cycles.note(&self.run.tokens[self.run.prompt..]);
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
        } else if stopped {
            self.finish(Finish::Stop);
        } else if self.run.tokens.len() >= self.limit {
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
        self.run.finished = true;
        let finish = if finish == Finish::Stop && self.calls.any() { Finish::ToolCalls } else { finish };
        let (first, last) = self.drawn.unwrap_or_else(|| (Instant::now(), Instant::now()));
        let usage = Usage {
            prompt_tokens: self.run.prompt,
            cached_tokens: self.run.found.as_ref().map_or(0, |found| found.cached),
            disk_tokens: self.run.found.as_ref().map_or(0, |found| found.disk),
            miss: self.miss(),
            completion_tokens: self.run.tokens.len() - self.run.prompt,
            time_to_first_token: first - self.started,
            prefill_time: self.run.spent.steps,
            snapshot_time: self.run.spent.snapshots,
            decode_time: last - first,
            grammar: self.constraint.as_ref().map(Constraint::usage).unwrap_or_default(),
            drafts: self.run.drafts(),
            loosened: self
                .constraint
                .as_ref()
                .map_or_else(Vec::new, |constraint| constraint.loosened().to_vec()),
        };
        let _ = self.events.send(Ok(Event::Done { finish, usage }));
    }

    /// Why no more of the prompt was found in the cache.
    fn miss(&self) -> Option<Miss> {
        let Found { cached, stop, .. } = self.run.found.as_ref()?;
        let at = *cached;
        let text = |tokens: &[u32]| self.tokenizer.decode(tokens, true);
        Some(match stop.as_ref()? {
            Stop::Diverged { kept } => {
                let before = &self.run.tokens[at.saturating_sub(SHOWN_BEFORE)..at];
                let prompt = &self.run.tokens[at..self.run.tokens.len().min(at + kept.len())];
                let prompt = text(&[before, prompt].concat());
                Miss::Diverged { at, prompt, kept: text(&[before, kept.as_slice()].concat()) }
            }
            Stop::Evicted { tokens } => Miss::Evicted { at, tokens: *tokens },
            Stop::NoState { tokens } => Miss::NoState { at, tokens: *tokens },
        })
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
