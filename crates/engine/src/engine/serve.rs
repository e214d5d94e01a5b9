//! The thread that owns a model: accepts requests, computes steps of all running sequences
//! together, and writes to the disk cache meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use alara_text::prompt_lookup::AnswerHistories;

use super::embed::{EmbedJob, embed_next};
use crate::backend::Backend;
use crate::pool::{Pool, SequenceData, WriteProgress};
use crate::schedule::STEP_TOKENS;
use crate::sequence::Sequence;
use crate::{Error, Result};

/// A request to the thread.
pub enum Job {
    Turn(Box<Sequence>),
    Embed(EmbedJob),
}

/// Starts the thread that owns the model; it stores the number of cached tokens in `used`.
pub(super) fn start<B: Backend + Send + 'static>(
    pool: Pool<B>,
    queue: mpsc::Receiver<Job>,
    used: Arc<AtomicUsize>,
) -> std::io::Result<JoinHandle<()>>
where
    Pool<B>: Send,
{
    std::thread::Builder::new().name("engine".into()).spawn(move || serve(pool, &queue, &used))
}

/// Polling interval for a disk that is slower than the model.
const DISK_BEAT: Duration = Duration::from_millis(5);

/// Waits for the next request.
/// Meanwhile it writes queued segments to disk; `None` once all senders are gone and everything is
/// written, or writing took too long.
fn next<B: Backend>(pool: &mut Pool<B>, jobs: &mpsc::Receiver<Job>) -> Option<Job> {
    let mut ended = None;
    loop {
        // A failure to create a file doesn't concern any request.
        let wait = match pool.write().unwrap_or(WriteProgress::Done) {
            WriteProgress::Done => return jobs.recv().ok(),
            WriteProgress::More => Duration::ZERO,
            WriteProgress::Busy => DISK_BEAT,
        };
        match jobs.recv_timeout(wait) {
            Ok(job) => return Some(job),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                if ended.get_or_insert_with(Instant::now).elapsed() >= pool.patience() {
                    return None;
                }
                std::thread::sleep(wait);
            }
        }
    }
}

/// Serves requests until all senders are gone: before each step, which computes a part of every
/// running sequence, it embeds one text.
fn serve<B: Backend>(mut pool: Pool<B>, jobs: &mpsc::Receiver<Job>, used: &AtomicUsize) {
    let mut running: Vec<Sequence> = Vec::new();
    let mut answers = AnswerHistories::default();
    let mut texts = VecDeque::new();
    // Whether a text may find memory: after a failure, not until a sequence has finished.
    let mut may_fit = true;
    loop {
        let first = match running.is_empty() && texts.is_empty() {
            true => match next(&mut pool, jobs) {
                None => return,
                first => first,
            },
            false => None,
        };
        for job in first.into_iter().chain(jobs.try_iter()) {
            match job {
                Job::Turn(sequence) => admit(*sequence, &mut running),
                Job::Embed(text) => texts.push_back(text),
            }
        }
        if may_fit || running.is_empty() {
            may_fit = embed_next(&mut pool, &mut texts, !running.is_empty());
        }
        if running.is_empty() {
            continue;
        }
        if let Err(error) = step(&mut pool, &mut running, &answers) {
            for sequence in &mut running {
                sequence.fail(error.again());
            }
        }
        // Write a little, so that a server that is never idle makes progress too.
        let _ = pool.write();
        let (finished, rest): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|sequence| sequence.data.finished);
        running = rest;
        may_fit |= !finished.is_empty();
        for mut sequence in finished {
            pool.finish(&mut sequence.data);
            if sequence.lookup.is_some() {
                let data = &sequence.data;
                answers.remember(&data.prefix.salt, &data.tokens, data.prompt);
            }
            if let Some(other) = sequence.events.take_other() {
                admit(other, &mut running);
            }
        }
        used.store(pool.used(), Ordering::Relaxed);
    }
}

fn admit(mut sequence: Sequence, running: &mut Vec<Sequence>) {
    sequence.begin();
    running.push(sequence);
}

/// One forward pass, and the next tokens of sequences whose prefill is complete.
fn step<B: Backend>(pool: &mut Pool<B>, running: &mut [Sequence], answers: &AnswerHistories) -> Result<()> {
    for sequence in running.iter_mut() {
        sequence.data.finished |= sequence.is_over();
        sequence.draft(answers);
    }
    let mut sequences: Vec<&mut SequenceData> =
        running.iter_mut().map(|sequence| &mut sequence.data).collect();
    let budget = pool.budget(&sequences, STEP_TOKENS);
    let mut stepped = pool.step(&mut sequences, budget)?;
    let mut computed = stepped.logits.take();
    let mut logits = pool.logits(computed.as_mut());
    for part in std::mem::take(&mut stepped.parts) {
        let sequence = &mut running[part.at];
        sequence.note_prompt(&mut logits, part.noted, part.before);
        if let Some(rows) = part.ready {
            sequence.advance(&mut logits, rows);
        }
    }
    if let Some(at) = stepped.too_long {
        running[at].fail(Error::OutOfBlocks { capacity: pool.capacity() });
    }
    running.iter_mut().for_each(Sequence::tell_prefill);
    Ok(())
}
