//! Finds the ends of a prompt's static segments, in tokens.
//!
//! A template renders one string, and a tokenizer merges adjacent characters, so a piece of text
//! has no tokens of its own.
//! A boundary follows the last token that doesn't depend on later text.
//! To find it, the static part is rendered before two different tails; the common prefix doesn't
//! depend on them.
//! The remaining text merges with what follows.
//! Owns a cache of boundaries, since they are equal for all requests of an agent.

use std::sync::{Mutex, PoisonError};

use alara_text::chat::{ChatTemplate, Format, Prompt, Turn};
use alara_text::request::{Message, ReasoningEffort, Request, Role, Segment, Tool, Until};
use alara_text::tokenizer::Tokenizer;
use jiff::civil::DateTime;

use crate::cache::Prefix;
use crate::{Error, Result};

/// Tails that every tokenizer merges differently with the preceding text.
const PROBES: [&str; 2] = ["Probe", "7 of them"];

/// How many static parts are cached.
const REMEMBERED: usize = 64;
/// How many segments of a system prompt get a boundary: finding each takes two more prompts.
const BOUNDARIES: usize = 64;

/// Finds boundaries with a model's template and tokenizer.
#[derive(Debug, Default)]
pub(super) struct Segments {
    known: Mutex<Vec<Known>>,
}

/// The boundaries of one static part.
#[derive(Debug)]
struct Known {
    system: Vec<Segment>,
    tools: Vec<Tool>,
    unlisted: Vec<String>,
    reasoning: (Option<bool>, Option<ReasoningEffort>),
    /// The tokens up to the last boundary.
    tokens: Vec<u32>,
    ends: Vec<usize>,
}

/// Renders and tokenizes prompts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renderer<'a> {
    /// The template.
    pub template: &'a ChatTemplate,
    /// The model's format of a turn.
    pub format: &'static Format,
    /// The tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Texts that message contents must not forge.
    pub control: &'a [String],
    /// The current time for templates.
    pub now: DateTime,
    /// When to give up.
    pub until: &'a Until,
}

impl Renderer<'_> {
    /// The prompt for `request`, and its tokens.
    ///
    /// # Errors
    /// If the template refuses the request, or the vocabulary has no tokens for it.
    pub(super) fn prompt(&self, request: &Request) -> Result<(Prompt, Vec<u32>)> {
        if let Some(ids) = &request.prompt_ids {
            let text = self.tokenizer.decode(ids, true);
            return Ok((Prompt { text, ..Prompt::default() }, ids.clone()));
        }
        let mut prompt = match &request.prompt {
            Some(text) => Prompt { text: text.clone(), ..Prompt::default() },
            None => self.template.render(request, self.control, self.now)?,
        };
        if request.continue_final_message {
            let last = request.messages.last();
            let text = last.filter(|last| last.role == Role::Assistant && last.tool_calls.is_empty());
            let beginning = match (text, prompt.continued.take()) {
                (Some(_), Some((thoughts, text))) => {
                    self.turn(request, &prompt).continuation(&thoughts, &text)
                }
                _ => String::new(),
            };
            if beginning.is_empty() {
                let reason =
                    "continue_final_message takes a last message of the assistant that has text and no calls";
                return Err(Error::InvalidRequest { reason: reason.into() });
            }
            prompt.continue_with(&beginning);
        }
        self.until.check()?;
        let tokens = self.tokenizer.until(self.until).encode_prompt(&prompt.text, &prompt.placeholders)?;
        Ok((prompt, tokens))
    }

    /// The turn for `request`, following its prompt.
    pub(super) fn turn(&self, request: &Request, prompt: &Prompt) -> Turn {
        // A bare prompt shows no reasoning or calls.
        let template = if request.is_raw() { "" } else { self.template.serving(request).source() };
        Turn::new(self.format, request, template, &prompt.generation_prompt)
    }

    /// The tokens of `answer` to `request`, whose prompt is `tokens`, as they appear in the prompts
    /// of later turns.
    ///
    /// # Errors
    /// As [`Renderer::prompt`].
    pub(super) fn answer(&self, request: &Request, answer: &Message, tokens: &[u32]) -> Result<Vec<u32>> {
        let [one, other] = PROBES.map(|probe| {
            let (mut later, mut answer) = (request.clone(), answer.clone());
            if std::mem::take(&mut later.continue_final_message)
                && let Some(begun) = later.messages.pop()
            {
                answer.content = [begun.content.trim_end(), &answer.content].concat();
                answer.reasoning_content = begun.reasoning_content.or(answer.reasoning_content);
            }
            later.messages.extend([answer, Message::user(probe)]);
            self.prompt(&later).map(|(_, tokens)| tokens)
        });
        let mut answer_tokens = one?;
        answer_tokens.truncate(common(&answer_tokens, &other?));
        answer_tokens.drain(..common(&answer_tokens, tokens));
        let end = answer_tokens.iter().position(|&token| self.tokenizer.is_end_of_turn(token));
        answer_tokens.truncate(end.map_or(answer_tokens.len(), |end| end + 1));
        Ok(answer_tokens)
    }
}

impl Segments {
    /// Where other prompts may diverge from that of `request`, whose tokens are `tokens`: after
    /// each static segment, after the tools, and where the turn begins.
    pub(super) fn prefix(&self, by: Renderer, request: &Request, prompt: &Prompt, tokens: &[u32]) -> Prefix {
        let mut prefix = Prefix { salt: request.salt.clone(), ..Prefix::default() };
        if request.is_raw() {
            return prefix;
        }
        for end in self.ends(by, request, tokens) {
            prefix.add(end);
            prefix.pinned = end;
        }
        let turn = by.tokenizer.encode_prompt(&prompt.generation_prompt, &[]).unwrap_or_default();
        let turn = turn.strip_prefix(by.tokenizer.bos().as_slice()).unwrap_or(&turn);
        if !turn.is_empty() && tokens.ends_with(turn) && tokens.len() > turn.len() {
            prefix.add(tokens.len() - turn.len());
        }
        prefix
    }

    /// The ends of the static segments, ascending.
    fn ends(&self, by: Renderer, request: &Request, tokens: &[u32]) -> Vec<usize> {
        if let Some(ends) = self.known(request, tokens) {
            return ends;
        }
        let ends = ends(by, request, tokens);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() == REMEMBERED {
            known.remove(0);
        }
        known.push(Known {
            system: request.system.clone(),
            tools: request.tools.clone(),
            unlisted: request.unlisted.clone(),
            reasoning: (request.thinking, request.reasoning_effort),
            tokens: tokens[..ends.last().copied().unwrap_or(0)].to_vec(),
            ends: ends.clone(),
        });
        ends
    }

    fn known(&self, request: &Request, tokens: &[u32]) -> Option<Vec<usize>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.iter().position(|known| {
            known.system == request.system
                && known.tools == request.tools
                && known.unlisted == request.unlisted
                && known.reasoning == (request.thinking, request.reasoning_effort)
                && tokens.starts_with(&known.tokens)
        })?;
        let found = known.remove(at);
        let ends = found.ends.clone();
        known.push(found);
        Some(ends)
    }
}

fn ends(by: Renderer, request: &Request, tokens: &[u32]) -> Vec<usize> {
    let alone = |system: Vec<Segment>, text: &str| Request {
        system,
        messages: vec![Message::user(text)],
        tools: request.tools.clone(),
        thinking: request.thinking,
        reasoning_effort: request.reasoning_effort,
        ..Request::default()
    };
    // If the template refuses a probe, there is no boundary.
    let end = |tails: [Request; 2]| {
        let [one, other] = tails.map(|tail| by.prompt(&tail).map(|(_, tokens)| tokens));
        Some(common(&one.ok()?, tokens).min(common(&other.ok()?, tokens)))
    };
    let first = request.system.len().saturating_sub(BOUNDARIES);
    let within = (first + 1..=request.system.len()).filter_map(|count| {
        end(PROBES.map(|probe| {
            let tail = Segment { name: String::new(), text: probe.to_owned() };
            alone(request.system[..count].iter().cloned().chain([tail]).collect(), "")
        }))
    });
    let last = end(PROBES.map(|probe| alone(request.system.clone(), probe)));
    let mut ends: Vec<usize> = within.chain(last).filter(|end| *end > 0).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// The length of the common prefix.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
#[path = "segments_tests.rs"]
mod tests;
