//! A turn being decoded: its tokens, and the processing of each new token from logits to events.

mod listener;
mod logprobs;
mod recovery;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use alara_text::chat::formats::{Parsed, Parser};
use alara_text::grammar::Constraint;
use alara_text::prompt_lookup::{AnswerHistories, MAX_DRAFT_TOKENS, PromptLookup};
use alara_text::repetition::{CallDecision, CallLog, CycleDetector};
use alara_text::request::{Event, Finish, Miss, ToolCall, Until, Usage};
use alara_text::sampler::Sampler;
use alara_text::stop::StopTexts;
use alara_text::tokenizer::{DecodeStream, Tokenizer};

use crate::cache::MissReason;
use crate::logits::Logits;
use crate::pool::{FoundPrefix, SequenceData};
use crate::{Error, Result};
pub(crate) use listener::Listener;
pub(crate) use logprobs::{Logprobs, PromptLogprobs};
pub(crate) use recovery::Recovery;

/// How many tokens before a divergence the report of a miss shows.
const SHOWN_BEFORE: usize = 4;

/// Everything that a turn needs besides the model.
pub struct Sequence {
    /// Its tokens and their computation.
    pub data: SequenceData,
    /// Most tokens in total.
    pub limit: usize,
    /// Samples tokens.
    pub sampler: Sampler,
    /// Whether to ignore ends: tokens that end the turn aren't sampled, and repetition doesn't end
    /// it.
    pub endless: bool,
    /// Collects the log-probabilities of the answer's tokens, if they are reported.
    pub logprobs: Option<Logprobs>,
    /// The prompt's log-probabilities, until the prompt is computed.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// The grammar of the turn; `None` = unconstrained.
    pub constraint: Option<Constraint>,
    /// Tokens of a given answer, which replace sampled ones.
    pub answer: std::vec::IntoIter<u32>,
    /// Drafts the next tokens; `None` = no drafts.
    pub lookup: Option<PromptLookup>,
    /// Parses text into parts of the answer.
    pub parser: Parser,
    /// Limits the reasoning.
    pub reasoning: ReasoningBudget,
    /// The tokens that close a string of a call.
    /// If a string repeats itself, it is closed, instead of ending the turn.
    /// Empty for turns without calls.
    pub closer: Vec<u32>,
    /// Whether the whole turn counts as inside a call, even if `in_call` is false.
    pub must_call: bool,
    /// Texts that end the turn.
    pub stop: StopTexts,
    /// Decodes tokens to text.
    pub text: DecodeStream,
    /// The model's vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// Number of the next tool call in the conversation.
    pub next_call: usize,
    /// Receives the events.
    pub events: Listener,
    /// Set when the receiver has gone away.
    pub cancelled: Arc<AtomicBool>,
    /// The deadline of the request.
    pub until: Until,
    /// When the request arrived.
    pub started: Instant,
    /// When the first and the latest token were sampled.
    pub sampled_at: Option<(Instant, Instant)>,
    /// The calls of the answer.
    pub calls: CallLog,
    /// Detects whether the turn repeats itself.
    pub cycles: CycleDetector,
    /// Whether a call is in progress.
    pub in_call: bool,
}

/// Limits the reasoning of a turn.
#[derive(Debug, Default)]
pub struct ReasoningBudget {
    /// Remaining tokens; `None` = unlimited.
    pub left: Option<usize>,
    /// The tokens that end the reasoning.
    pub end: Vec<u32>,
}

impl Sequence {
    /// Appends tokens that come before the first sampled one.
    pub fn begin(&mut self) {
        if self.data.tokens.len() < self.limit
            && let Err(error) = self.append_forced()
        {
            self.fail(error);
        }
    }

    /// Whether its request has ended or its client has disconnected.
    pub fn is_over(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.until.is_over()
    }

    /// Drafts tokens for the coming step.
    pub fn draft(&mut self, answers: &AnswerHistories) {
        if let Some(lookup) = &mut self.lookup {
            let left = self.limit.saturating_sub(self.data.tokens.len() + 1);
            let answers = answers.under(&self.data.prefix.salt);
            let mut draft = lookup.propose(&self.data.tokens, answers, left.min(MAX_DRAFT_TOKENS));
            // Tokens after the end of the turn are useless.
            draft.end(|token| self.tokenizer.is_end_of_turn(token));
            self.data.draft = draft;
        }
    }

    /// Records the log-probabilities of prompt tokens.
    /// `rows` of the logits are those after the prompt tokens from number `before` on, one after
    /// each.
    pub fn note_prompt(&mut self, logits: &mut dyn Logits, rows: Range<usize>, before: usize) {
        let Some(mut noted) = self.prompt_logprobs.take() else { return };
        for (row, &token) in rows.zip(&self.data.tokens[before + 1..]) {
            match logits.row(row) {
                Ok(logits) => noted.note(token, logits, &self.tokenizer),
                Err(error) => return self.fail(error),
            }
        }
        self.prompt_logprobs = Some(noted);
    }

    /// Samples the next token from the logits after the latest one, and appends forced tokens.
    /// Continues with the logits of draft tokens, as long as these are accepted.
    /// The next step computes all appended tokens together.
    /// `rows` of the logits belong to this sequence.
    pub fn advance(&mut self, logits: &mut dyn Logits, rows: Range<usize>) {
        if self.is_over() {
            self.data.finished = true;
        }
        if let Some(noted) = self.prompt_logprobs.take()
            && !self.data.finished
        {
            let _ = self.events.send(Ok(Event::PromptLogprobs { tokens: noted.into_tokens() }));
        }
        if !self.data.finished && self.data.tokens.len() >= self.limit {
            self.finish(Finish::Length);
        }
        let mut row = 0;
        while !self.data.finished && row < rows.len() {
            if let Err(error) = self.sample(logits, rows.start + row).and_then(|()| self.append_forced()) {
                self.fail(error);
            }
            let Some(next) = self.data.next_row() else { break };
            row = next;
        }
    }

    /// Reports the progress of a prompt that takes more than one step.
    pub fn tell_prefill(&mut self) {
        let (pending, prompt) = (self.data.pending(), self.data.prompt);
        let computed = self.data.tokens.len() - pending;
        if self.data.finished || computed >= prompt {
            return;
        }
        if let Some(cached) = self.data.found.as_ref().map(|found| found.cached) {
            let _ = self.events.send(Ok(Event::Prefill { computed, cached, prompt }));
        }
    }

    /// Ends the turn with an error.
    pub fn fail(&mut self, error: Error) {
        self.data.finished = true;
        // A receiver that has gone away is no error: the sequence ends either way.
        let _ = self.events.send(Err(error));
    }

    fn sample(&mut self, logits: &mut dyn Logits, row: usize) -> Result<()> {
        let from_top = match &mut self.logprobs {
            // Probabilities need all logits, unmodified.
            Some(logprobs) => {
                logprobs.read(logits.row(row)?, &self.tokenizer);
                None
            }
            None => self.sample_from_top(logits, row)?,
        };
        let token = match from_top {
            Some(token) => token,
            None => self.sample_from_all(logits.row(row)?)?.ok_or(Error::NoToken)?,
        };
        let token = self.answer.next().unwrap_or(token);
        let now = Instant::now();
        self.sampled_at = Some((self.sampled_at.map_or(now, |(first, _)| first), now));
        self.append(token)?;
        // Checked only here, since forced tokens may be monotonous.
        if !self.data.finished && !self.endless && self.cycles.repeats() && !self.close()? {
            self.finish(Finish::Repetition);
        }
        Ok(())
    }

    fn sample_from_all(&mut self, logits: &mut [f32]) -> Result<Option<u32>> {
        self.tokenizer.mask(logits, self.endless);
        Ok(match &mut self.constraint {
            Some(constraint) => constraint.sample(&mut self.sampler, logits, &self.data.tokens)?,
            None => self.sampler.sample(logits, &self.data.tokens),
        })
    }

    /// The token that would be sampled from all logits, if the top logits suffice and can be read
    /// separately.
    fn sample_from_top(&mut self, logits: &mut dyn Logits, row: usize) -> Result<Option<u32>> {
        let Some(k) = self.sampler.top_needed() else { return Ok(None) };
        let drawable = self.tokenizer.candidates(self.endless);
        match &mut self.constraint {
            Some(constraint) => constraint
                .sample_from_top(&mut self.sampler, drawable, &mut |mask| logits.top_k(row, k, mask)),
            None => {
                let top = logits.top_k(row, k, drawable)?;
                Ok(top.and_then(|top| self.sampler.sample_from_top(&top)))
            }
        }
    }

    /// Appends tokens that aren't sampled: those forced by the grammar, since its mask permits no
    /// other, and the end of reasoning that exceeds its budget.
    fn append_forced(&mut self) -> Result<()> {
        while !self.data.finished {
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
                if self.data.finished {
                    break;
                }
                self.append(token)?;
            }
        }
        Ok(())
    }

    /// Closes the string that the turn is in; false if it is in none, or can't be closed.
    fn close(&mut self) -> Result<bool> {
        let may_be_in_string = self.in_call || self.must_call;
        if self.closer.is_empty() || !may_be_in_string || self.text.within_character() {
            return Ok(false);
        }
        let closer = self.closer.clone();
        let may = match &mut self.constraint {
            Some(constraint) => constraint.allows_all(&closer)?,
            None => false,
        };
        if may {
            closer.into_iter().try_for_each(|token| self.append(token))?;
            self.cycles = CycleDetector::default();
        }
        Ok(may)
    }

    /// The tokens that end the reasoning, if its budget is used up and they are possible here: not
    /// inside a character.
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
        // Only once: if the model starts to reason again, this counts towards the turn's limit.
        self.reasoning.left = None;
        Ok(std::mem::take(&mut self.reasoning.end))
    }

    fn append(&mut self, token: u32) -> Result<()> {
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(token)?;
        }
        self.data.tokens.push(token);
        self.cycles.note(&self.data.tokens[self.data.prompt..]);
        if self.tokenizer.is_end_of_turn(token) {
            if let Some(logprobs) = &mut self.logprobs {
                logprobs.note_end(token, &self.tokenizer);
            }
            self.finish(Finish::Stop);
            return Ok(());
        }
        if let Some(logprobs) = &mut self.logprobs {
            logprobs.note(token, &self.tokenizer);
        }
        let decoded = self.text.push(token);
        let (text, stopped) = self.stop.push(&decoded);
        if let Some(logprobs) = &mut self.logprobs {
            logprobs.decoded(decoded.len());
            logprobs.release(text.len());
        }
        let reasoned = self.parser.is_reasoning();
        let parsed = self.parser.push(&text);
        if let (true, Some(left)) = (reasoned, &mut self.reasoning.left) {
            *left = left.saturating_sub(1);
        }
        if let Some(finish) = self.emit(parsed) {
            self.end(finish);
        } else if stopped {
            self.finish(Finish::Stop);
        } else if self.data.tokens.len() >= self.limit {
            self.finish(Finish::Length);
        }
        Ok(())
    }

    /// Sends held-back text, and `Done`.
    /// If the turn was cut off, drops an incomplete character and text after a stop text.
    fn finish(&mut self, finish: Finish) {
        let text = std::mem::replace(&mut self.text, self.tokenizer.stream());
        let ended = finish == Finish::Stop && !self.stop.came();
        let mut rest = self.stop.finish();
        if ended {
            rest += &text.finish();
        }
        if let Some(logprobs) = &mut self.logprobs {
            logprobs.release(rest.len());
        }
        let mut parsed = self.parser.push(&rest);
        parsed.extend(if ended { self.parser.finish() } else { self.parser.cut_off() });
        let finish = self.emit(parsed).unwrap_or(finish);
        self.end(finish);
    }

    fn end(&mut self, finish: Finish) {
        self.data.finished = true;
        let rest = self.logprobs.as_mut().map_or_else(Vec::new, Logprobs::take_rest);
        if !self.stop.came() && !rest.is_empty() {
            // Log-probabilities precede the text they belong to, even an empty one.
            let _ = self.events.send(Ok(Event::Logprobs { tokens: rest }));
            let _ = self.events.send(Ok(Event::Text { text: String::new() }));
        }
        let finish = if finish == Finish::Stop && self.calls.any() { Finish::ToolCalls } else { finish };
        let (first, last) = self.sampled_at.unwrap_or_else(|| (Instant::now(), Instant::now()));
        let usage = Usage {
            prompt_tokens: self.data.prompt,
            cached_tokens: self.data.found.as_ref().map_or(0, |found| found.cached),
            disk_tokens: self.data.found.as_ref().map_or(0, |found| found.disk),
            miss: self.miss(),
            recovered: None,
            stop_text: self.stop.found().map(str::to_owned),
            completion_tokens: self.data.tokens.len() - self.data.prompt,
            time_to_first_token: first - self.started,
            prefill_time: self.data.spent.steps,
            snapshot_time: self.data.spent.snapshots,
            decode_time: last - first,
            untimed_tokens: 0,
            grammar: self.constraint.as_ref().map(Constraint::usage).unwrap_or_default(),
            drafts: self.data.drafts(),
            loosened: self
                .constraint
                .as_ref()
                .map_or_else(Vec::new, |constraint| constraint.loosened().to_vec()),
        };
        let _ = self.events.send(Ok(Event::Done { finish, usage }));
    }

    /// Why no more of the prompt was found in the cache.
    fn miss(&self) -> Option<Miss> {
        let FoundPrefix { cached, stop, .. } = self.data.found.as_ref()?;
        let at = *cached;
        let text = |tokens: &[u32]| self.tokenizer.decode(tokens, true);
        Some(match stop.as_ref()? {
            MissReason::Diverged { cached: kept } => {
                let before = &self.data.tokens[at.saturating_sub(SHOWN_BEFORE)..at];
                let prompt = &self.data.tokens[at..self.data.tokens.len().min(at + kept.len())];
                let prompt = text(&[before, prompt].concat());
                Miss::Diverged { at, prompt, kept: text(&[before, kept.as_slice()].concat()) }
            }
            MissReason::Evicted { tokens } => Miss::Evicted { at, tokens: *tokens },
            MissReason::NoState { tokens } => Miss::NoState { at, tokens: *tokens },
        })
    }

    /// Sends events, up to a call that ends the turn.
    fn emit(&mut self, parsed: Vec<Parsed>) -> Option<Finish> {
        for piece in parsed {
            let event = match piece {
                Parsed::Text(text) => {
                    self.in_call = false;
                    Event::Text { text }
                }
                Parsed::Reasoning(text) => Event::Reasoning { text },
                Parsed::Delta { name, arguments } => {
                    let named = std::mem::replace(&mut self.in_call, true);
                    Event::ToolCallDelta {
                        index: self.calls.count(),
                        name: (!named).then_some(name),
                        arguments,
                    }
                }
                Parsed::Incomplete { name, arguments, .. } => {
                    self.in_call = false;
                    Event::Incomplete { name, arguments }
                }
                Parsed::ToolCall { id, name, arguments } => {
                    self.in_call = false;
                    match self.calls.note(&name, &arguments) {
                        CallDecision::Make => {}
                        CallDecision::Repeated => return Some(Finish::Repetition),
                        CallDecision::TooMany => return Some(Finish::Repetition),
                    }
                    let id = if id.is_empty() { format!("call_{}", self.next_call) } else { id };
                    self.next_call += 1;
                    Event::ToolCall(ToolCall { id, name, arguments })
                }
            };
            let tokens = match (&event, &mut self.logprobs) {
                (
                    Event::Text { .. } | Event::Reasoning { .. } | Event::ToolCallDelta { .. },
                    Some(logprobs),
                ) => logprobs.take(),
                _ => Vec::new(),
            };
            let tokens = (!tokens.is_empty()).then_some(Event::Logprobs { tokens });
            for event in tokens.into_iter().chain([event]) {
                let _ = self.events.send(Ok(event));
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
