//! Embeddings: a vector a text, of an encoder or of the states of a decoder.

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

/// How often it is looked whether a request is over, while its texts are computed.
const BEAT: Duration = Duration::from_millis(50);
/// Bytes of a text that is cut which are tokenized beyond those that count.
const AT_CUT: usize = 1 << 12;

/// What an embedding is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbedInput {
    /// A text; the tokens that the model wants around it are added.
    Text(String),
    /// Tokens, as they are.
    Tokens(Vec<u32>),
}

/// Vectors of texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    /// One a text, each of length 1.
    /// `[texts][D]`
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all texts together.
    pub tokens: usize,
}

/// A text to be embedded.
pub struct EmbedJob {
    /// Which one of its request it is.
    at: usize,
    tokens: Vec<u32>,
    pooling: Pooling,
    until: Until,
    reply: mpsc::Sender<(usize, Result<Vec<f32>>)>,
}

impl Engine {
    /// The embedding of each of `inputs`: the model's states, pooled as its file says
    /// (`pooling_type`), else by their mean, and brought to length 1.
    /// Those that are too long are cut at their end if `truncate`, and refused otherwise.
    /// Returns when all are computed.
    ///
    /// # Errors
    /// If an input is empty, too long, or holds a token that the vocabulary lacks.
    /// If the model ranks texts instead, or the backend fails.
    pub fn embed(&self, inputs: &[EmbedInput], truncate: bool) -> Result<Embeddings> {
        self.embed_until(inputs, truncate, &Until::default())
    }

    /// As [`Engine::embed`], unless `until` is over before.
    ///
    /// # Errors
    /// As there, and [`Error::Over`].
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

    /// The tokens of an input, as many as there may be.
    fn embed_tokens(&self, input: &EmbedInput, truncate: bool, until: &Until) -> Result<Vec<u32>> {
        let context = self.context.min(self.capacity);
        let bytes = self.tokenizer.most_bytes(context);
        // A text's own words are never control tokens, as in messages.
        let (mut tokens, last) = match input {
            EmbedInput::Text(text) if text.len() > bytes && !truncate => {
                return Err(self.too_long(self.tokenizer.fewest_tokens(text.len()), context));
            }
            EmbedInput::Text(text) => {
                // What lies beyond is cut off anyway; a little more is left for a word at the cut.
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
            // What closes a text is what some models are pooled at.
            tokens.truncate(context - usize::from(last.is_some()));
            tokens.extend(last);
        }
        Ok(tokens)
    }
}

impl EmbedJob {
    fn reply(self, vector: Result<Vec<f32>>) {
        // Nobody listening is no error.
        let _ = self.reply.send((self.at, vector));
    }
}

/// Embeds the first of those that wait, beside sequences that are `running`.
/// False if there is no memory for it before one of these has finished.
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
            // What was pooled so far is computed again.
            waiting.push_front(job);
            return false;
        }
        Ok(false) => job.reply(Err(Error::OutOfBlocks { capacity: pool.capacity() })),
        Err(error) => job.reply(Err(error)),
    }
    true
}

/// Starts the thread that owns an encoder.
/// Texts of all requests that wait are computed together, as many as fit into a step.
pub fn start<B: Backend + Send + 'static>(
    mut encoder: Encoder<B>,
    queue: mpsc::Receiver<Job>,
) -> std::io::Result<JoinHandle<()>>
where
    Encoder<B>: Send,
{
    let embed = |job| match job {
        Job::Embed(job) => Some(job),
        // Refused before it comes here.
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
