//! Embeddings: one vector per text, from an encoder or from the states of a decoder.

use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use alara_text::request::{Over, Until};

use super::Engine;
use super::serve::Job;
use crate::backend::Backend;
use crate::embedding::{Pooler, Pooling};
use crate::encoder::Encoder;
use crate::pool::Pool;
use crate::{Error, Result};

/// Interval of checks whether a request has ended while its texts are computed.
const BEAT: Duration = Duration::from_millis(50);
/// Bytes of a truncated text that are tokenized beyond those that count.
const AT_CUT: usize = 1 << 12;

/// An input to embed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbedInput {
    /// A text; the special tokens that the model expects around it are added.
    Text(String),
    /// Tokens, used unchanged.
    Tokens(Vec<u32>),
}

/// Embeddings of several texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    /// One per text, each of length 1.
    /// `[texts][D]`
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all texts together.
    pub tokens: usize,
}

/// A text waiting to be embedded.
pub struct EmbedJob {
    /// Index of the text in its request.
    at: usize,
    tokens: Vec<u32>,
    pooling: Pooling,
    until: Until,
    reply: mpsc::Sender<(usize, Result<Vec<f32>>)>,
}

impl Engine {
    /// The embedding of each of `inputs`: the model's states, pooled as specified in its file
    /// (`pooling_type`), by default to their mean, and normalized to length 1.
    /// Inputs that are too long are truncated with `truncate`, and refused otherwise.
    /// Returns when all are computed.
    ///
    /// # Errors
    /// If an input is empty, too long, or contains a token that the vocabulary lacks.
    /// Also if the model ranks texts instead, or the backend fails.
    pub fn embed(&self, inputs: &[EmbedInput], truncate: bool) -> Result<Embeddings> {
        self.embed_until(inputs, truncate, &Until::default())
    }

    /// As [`Engine::embed`], unless `until` ends first.
    ///
    /// # Errors
    /// As [`Engine::embed`], and [`Error::Over`].
    pub fn embed_until(&self, inputs: &[EmbedInput], truncate: bool, until: &Until) -> Result<Embeddings> {
        let Some(pooling) = self.pooling else {
            let reason = format!("{} ranks texts, and makes no embeddings", self.name);
            return Err(Error::InvalidRequest { reason });
        };
        let texts = inputs
            .iter()
            .map(|input| self.embed_tokens(input, truncate, until))
            .collect::<Result<Vec<_>>>()?;
        let mut embeddings =
            Embeddings { vectors: vec![Vec::new(); texts.len()], tokens: texts.iter().map(Vec::len).sum() };
        let jobs = self.jobs.as_ref().ok_or(Error::Stopped)?;
        let (reply, replies) = mpsc::channel();
        for (at, tokens) in texts.into_iter().enumerate() {
            let job = EmbedJob { at, tokens, pooling, until: until.clone(), reply: reply.clone() };
            jobs.send(Job::Embed(job)).map_err(|_| Error::Stopped)?;
        }
        for _ in inputs {
            let (at, vector) = loop {
                match replies.recv_timeout(BEAT) {
                    Ok(reply) => break reply,
                    Err(RecvTimeoutError::Timeout) => until.check()?,
                    Err(RecvTimeoutError::Disconnected) => return Err(Error::Stopped),
                }
            };
            embeddings.vectors[at] = vector?;
        }
        Ok(embeddings)
    }

    /// The tokens of an input, at most as many as fit.
    fn embed_tokens(&self, input: &EmbedInput, truncate: bool, until: &Until) -> Result<Vec<u32>> {
        let context = self.context.min(self.capacity);
        let bytes = self.tokenizer.most_bytes(context);
        // The text of an input never becomes control tokens, as in messages.
        let (mut tokens, last) = match input {
            EmbedInput::Text(text) if text.len() > bytes && !truncate => {
                return Err(self.too_long(self.tokenizer.fewest_tokens(text.len()), context));
            }
            EmbedInput::Text(text) => {
                // The rest is cut off anyway; keep a little more, for a word at the cut.
                let text = &text[..text.floor_char_boundary(bytes.saturating_add(AT_CUT))];
                let tokens = self.tokenizer.until(until).encode_whole(text, false)?;
                (tokens, self.tokenizer.closing())
            }
            EmbedInput::Tokens(tokens) => (tokens.clone(), None),
        };
        let vocabulary = self.tokenizer.len();
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            return Err(Error::TokenOutOfRange { token, vocabulary });
        }
        if tokens.is_empty() {
            return Err(Error::InvalidRequest { reason: "an input without tokens has no embedding".into() });
        }
        if tokens.len() > context && !truncate {
            return Err(self.too_long(tokens.len(), context));
        }
        if tokens.len() > context {
            // Keep the closing token, at which some models are pooled.
            tokens.truncate(context - usize::from(last.is_some()));
            tokens.extend(last);
        }
        Ok(tokens)
    }
}

impl EmbedJob {
    fn reply(self, vector: Result<Vec<f32>>) {
        // A caller that has gone away is no error.
        let _ = self.reply.send((self.at, vector));
    }
}

/// Embeds the first of the waiting texts, while sequences are `running`.
/// False if there isn't enough memory until one of these has finished.
pub fn embed_next<B: Backend>(pool: &mut Pool<B>, waiting: &mut VecDeque<EmbedJob>, running: bool) -> bool {
    let Some(job) = waiting.pop_front() else { return true };
    if job.until.is_over() {
        job.reply(Err(Over.into()));
        return true;
    }
    let mut pooler = Pooler::new(job.pooling, pool.width());
    let mut take = |states: &[f32]| {
        pooler.push(states);
        Ok(job.until.check()?)
    };
    match pool.states(&job.tokens, &mut take) {
        Ok(true) => job.reply(Ok(pooler.finish())),
        Ok(false) if running => {
            // The states pooled so far are recomputed.
            waiting.push_front(job);
            return false;
        }
        Ok(false) => job.reply(Err(Error::OutOfBlocks { capacity: pool.capacity() })),
        Err(error) => job.reply(Err(error)),
    }
    true
}

/// Starts the thread that owns an encoder.
/// It computes waiting texts of all requests together, as many as fit into a step.
pub fn start<B: Backend + Send + 'static>(
    mut encoder: Encoder<B>,
    queue: mpsc::Receiver<Job>,
) -> std::io::Result<JoinHandle<()>>
where
    Encoder<B>: Send,
{
    let embed = |job| match job {
        Job::Embed(job) => Some(job),
        // Refused earlier.
        Job::Turn(_) => None,
    };
    let serve = move || {
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                let Ok(job) = queue.recv() else { return };
                waiting.extend(embed(job));
            }
            waiting.extend(queue.try_iter().filter_map(embed));
            waiting.retain(|job: &EmbedJob| !job.until.is_over());
            if waiting.is_empty() {
                continue;
            }
            let fitting = encoder.fitting(waiting.iter().map(|job: &EmbedJob| job.tokens.len()));
            let batch: Vec<EmbedJob> = waiting.drain(..fitting).collect();
            let texts: Vec<&[u32]> = batch.iter().map(|job| job.tokens.as_slice()).collect();
            let states = encoder.forward(&texts);
            let mut row = 0;
            for job in batch {
                let rows = row..row + job.tokens.len();
                row = rows.end;
                let vector = match &states {
                    Ok(states) => {
                        let width = encoder.width();
                        let mut pooler = Pooler::new(job.pooling, width);
                        pooler.push(&states[rows.start * width..rows.end * width]);
                        Ok(pooler.finish())
                    }
                    Err(error) => Err(error.again()),
                };
                job.reply(vector);
            }
        }
    };
    std::thread::Builder::new().name("engine".into()).spawn(serve)
}
