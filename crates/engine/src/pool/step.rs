//! Continuous batching: the sequences that share a pool's steps, what each finds of its prompt in
//! the cache, and which waits for which.
//!
//! No sequence continues from recurrent state that a failed step left behind.

use std::ops::Range;
use std::time::{Duration, Instant};

use alara_text::prompt_lookup::{Draft, MAX_DRAFT_TOKENS};
use alara_text::request::DraftUsage;

use super::disk::Restored;
use super::{Pool, StepInput};
use crate::backend::Backend;
use crate::cache::{Hit, MissReason, OutOfMemory, Prefix, SNAPSHOT_EVERY, SNAPSHOT_MIN_GAIN, SlotId, Table};
use crate::{Result, schedule};

/// Most bytes of logits that a step keeps of tokens of prompts; there is one row at least.
/// More makes such prompts faster.
const NOTED_BYTES: usize = if cfg!(test) { 16 << 10 } else { 64 << 20 };

/// A sequence that is being computed.
#[derive(Debug, Default)]
pub struct SequenceData {
    /// The prompt and what was generated.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// What it asks of the cache.
    pub prefix: Prefix,
    /// What was found of the prompt, once it is known.
    pub found: Option<FoundPrefix>,
    /// Whether nothing more is to be computed.
    pub finished: bool,
    /// Draft tokens after `tokens`: as many as pay are computed beside them.
    pub draft: Draft,
    /// Whether each token after the prompt takes a step of its own, forced ones too: what drafts
    /// are measured against.
    pub single: bool,
    /// After how many tokens of the prompt the logits were given, where those after each of them
    /// are wanted, but the last.
    /// A prompt of which they are is computed whole, whatever is cached.
    pub noted: Option<usize>,
    /// What its prompt took.
    pub spent: PromptTimes,
    table: Table,
    /// The draft of the latest step, until it is known what of it is accepted.
    pending_draft: Option<PendingDraft>,
    /// How many tokens of those before were drafted and accepted.
    drafts: DraftUsage,
    /// Whether it has computed something since it was attached to what was found.
    begun: bool,
    /// How many tokens were in memory when the disk was asked, as long as there is more on it; then
    /// it is not asked again.
    asked: Option<usize>,
    /// Tokens that came from disk for it.
    disk: usize,
    /// Preempted when memory ran out and so many had finished: it waits for one more.
    preempted: Option<u64>,
}

/// The sequences that share a step.
type Batch<'a> = [&'a mut SequenceData];

/// A draft of which the first `rows` tokens were computed after the first `at` of a sequence.
#[derive(Debug)]
struct PendingDraft {
    at: usize,
    draft: Draft,
    rows: usize,
    /// The recurrent state after these `at` tokens, in a model that has such.
    slot: Option<SlotId>,
}

/// What a prompt took on the way to its first token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptTimes {
    /// Steps that computed a part of it, whole: other sequences may have a part in them.
    pub steps: Duration,
    /// Of that, taking snapshots of state: finding slots for them, copying, and inserting.
    pub snapshots: Duration,
}

/// What was found of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundPrefix {
    /// Tokens that were not computed again.
    pub cached: usize,
    /// How many of them came from disk.
    pub disk: usize,
    /// Why no more.
    pub stop: Option<MissReason>,
}

/// The logits that a step gave of one sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogitsPart {
    /// Index of the sequence.
    pub at: usize,
    /// The rows after tokens of its prompt, one after each.
    pub noted: Range<usize>,
    /// How many tokens stand before the first of these.
    pub before: usize,
    /// Once it is computed to its end, the rows to sample from: one after the last token, and one
    /// after each draft token.
    pub ready: Option<Range<usize>>,
}

#[cfg(test)]
impl<A> StepOutput<A> {
    /// Each sequence that is computed to its end, with its rows of logits.
    pub fn each(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.parts.iter().filter_map(|part| Some((part.at, part.ready.clone()?)))
    }
}

/// What a step gave.
#[derive(Debug)]
pub struct StepOutput<A> {
    /// What the logits are of, one part after the other.
    pub parts: Vec<LogitsPart>,
    /// These logits, sequence after sequence.
    /// `[rows, V]`; `None`: there are none.
    pub logits: Option<A>,
    /// Index of a sequence that is longer than the whole cache.
    pub too_long: Option<usize>,
}

impl SequenceData {
    /// A sequence that begins with `tokens`.
    pub fn new(tokens: Vec<u32>, prefix: Prefix) -> Self {
        SequenceData { prompt: tokens.len(), tokens, prefix, ..SequenceData::default() }
    }

    /// Tokens whose keys and values are not computed yet.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.computed()
    }

    /// The row of the latest step's logits after the last token: how many tokens of the draft were
    /// accepted.
    /// `None` if a token was rejected, or more came than were computed.
    pub fn next_row(&self) -> Option<usize> {
        let draft = self.pending_draft.as_ref()?;
        let accepted = self.accepted();
        (draft.at + accepted == self.tokens.len()).then_some(accepted)
    }

    /// How many tokens were drafted, and how many of them accepted.
    pub fn drafts(&self) -> DraftUsage {
        let drafted = self.pending_draft.as_ref().map_or(0, |draft| draft.rows);
        let mut drafts = self.drafts;
        drafts += DraftUsage { drafted, accepted: self.accepted() };
        drafts
    }

    /// How many of the computed draft tokens are accepted.
    fn accepted(&self) -> usize {
        let pending = self.pending_draft.as_ref();
        pending.map_or(0, |pending| pending.draft.accepted(pending.rows, &self.tokens[pending.at..]))
    }

    /// How many of its tokens are computed, rejected ones aside.
    /// Recurrent state can only be put back to where the draft began, so with it accepted tokens
    /// are computed again, unless all were accepted.
    fn computed(&self) -> usize {
        let Some(draft) = &self.pending_draft else { return self.table.len() };
        match self.accepted() {
            accepted if accepted < draft.rows && draft.slot.is_some() => draft.at,
            accepted => draft.at + accepted,
        }
    }

    /// Whether logits after tokens of its prompt are still to come.
    fn is_noted(&self) -> bool {
        self.noted.is_some_and(|noted| noted + 1 < self.prompt)
    }

    /// After which tokens of the prompt the next `rows` rows give logits that are wanted.
    fn noted_in(&self, rows: usize) -> Range<usize> {
        let Some(noted) = self.noted else { return 0..0 };
        let start = self.table.len();
        let end = (start + rows).min(self.prompt - 1);
        noted.max(start).min(end)..end
    }

    /// Whether it is past prefill.
    fn is_decoding(&self) -> bool {
        self.begun && !self.finished && self.tokens.len() > self.prompt
    }

    /// How many tokens it will have in common with a sequence that begins with `tokens`, and
    /// whether all of them are computed.
    fn shares_with(&self, tokens: &[u32]) -> (usize, bool) {
        let limit = tokens.len().saturating_sub(1);
        let common = self.tokens.iter().zip(&tokens[..limit]).take_while(|(a, b)| a == b).count();
        (common, self.table.len() >= common)
    }
}

/// Whether a sequence holds what it was attached to and has computed nothing after it.
fn only_attached(data: &SequenceData) -> bool {
    !data.begun && !data.finished && !data.table.is_empty()
}

impl<B: Backend> Pool<B> {
    /// How many rows the next step of `sequences` may have, at most `most`.
    /// Few while one of several decodes, if its tokens are to come steadily beside a long prompt
    /// (chunked prefill).
    pub fn budget(&self, sequences: &Batch, most: usize) -> usize {
        let several = sequences.iter().filter(|data| !data.finished).count() > 1;
        self.step_times
            .budget(self.steady && several && sequences.iter().any(|data| data.is_decoding()), most)
    }

    /// One forward pass of at most `budget` rows for all sequences that there are blocks for.
    /// A sequence that needs what an earlier one is about to compute waits for it; so each prefix
    /// is computed once, however many need it.
    ///
    /// # Errors
    /// If a token is out of range or the backend fails.
    pub fn step(&mut self, sequences: &mut Batch, budget: usize) -> Result<StepOutput<B::Array>> {
        sequences.iter_mut().for_each(|data| self.settle_draft(data));
        let stepped = self.compute_some(sequences, budget);
        if stepped.is_err() {
            // What was to be computed was not, or in some layers only: recurrent state may be of a
            // row that other layers don't have.
            for data in sequences.iter_mut() {
                self.discard_draft(data);
                if self.cache.recurrent() {
                    self.release(std::mem::take(&mut data.table));
                }
            }
        }
        stepped
    }

    fn compute_some(&mut self, sequences: &mut Batch, budget: usize) -> Result<StepOutput<B::Array>> {
        if sequences.iter().any(|data| !data.begun && !data.finished) {
            for data in sequences.iter().filter(|data| data.begun) {
                self.prefixes.learn(&mut self.cache, &data.prefix, &data.tokens, &data.table);
            }
        }
        let decoding = sequences.iter().any(|data| data.is_decoding());
        let mut noted_rows = (NOTED_BYTES / (4 * self.vocabulary())).max(1);
        let mut pending = Vec::with_capacity(sequences.len());
        for at in 0..sequences.len() {
            let (before, rest) = sequences.split_at_mut(at);
            let data = &mut *rest[0];
            let ready = !data.finished && (data.begun || self.attach_prefix(before, data, decoding)?);
            let mut most = match data.single {
                true => data.prompt.saturating_sub(data.computed()).max(1),
                false => usize::MAX,
            };
            if ready && data.is_noted() {
                most = most.min(noted_rows);
                noted_rows -= data.pending().min(most);
            }
            pending.push(if ready { data.pending().min(most) } else { 0 });
        }
        let mut rows = schedule::plan(&pending, budget);
        self.reserve_rows(sequences, &mut rows)?;
        if rows.iter().all(|&rows| rows == 0) {
            let too_long = self.preempt(sequences);
            return Ok(StepOutput { parts: Vec::new(), logits: None, too_long });
        }
        self.choose_drafts(sequences, &rows, budget)?;
        let mut states = Vec::with_capacity(sequences.len());
        for (data, &rows) in sequences.iter_mut().zip(&rows) {
            let begun = Instant::now();
            states.push(self.plan_snapshots(data, rows));
            data.spent.snapshots += begun.elapsed();
        }
        self.compute(sequences, &rows, &states)
    }

    /// Reserves the `rows` of each sequence, in their order; none for one that has to wait until
    /// another is through.
    fn reserve_rows(&mut self, sequences: &mut Batch, rows: &mut [usize]) -> Result<()> {
        for at in 0..sequences.len() {
            if rows[at] == 0 || self.reserve(&mut sequences[at].table, rows[at])? {
                continue;
            }
            // A sequence that has not begun holds what could be evicted.
            let mut released = false;
            for later in at + 1..sequences.len() {
                let data = &mut *sequences[later];
                if only_attached(data) {
                    self.release(std::mem::take(&mut data.table));
                    (rows[later], released) = (0, true);
                }
            }
            if released && self.reserve(&mut sequences[at].table, rows[at])? {
                continue;
            }
            rows[at] = 0;
            if only_attached(sequences[at]) {
                self.release(std::mem::take(&mut sequences[at].table));
            }
        }
        Ok(())
    }

    /// Decides how many draft tokens are computed of each sequence that this step computes to its
    /// end: as many as pay and as there are free blocks for, since none is evicted for them.
    /// At most [`MAX_DRAFT_TOKENS`] in all, and within the `budget` unless there is only one
    /// sequence, which no other waits for.
    fn choose_drafts(&mut self, sequences: &mut Batch, rows: &[usize], budget: usize) -> Result<()> {
        let sum: usize = rows.iter().sum();
        let through = |data: &SequenceData, rows: usize| rows > 0 && rows == data.pending();
        let probabilities: Vec<_> = sequences
            .iter()
            .zip(rows)
            .map(|(data, &rows)| through(data, rows).then(|| self.acceptance.probabilities(&data.draft)))
            .collect();
        let (fixed, row) = self.step_times.decode();
        // Accepted tokens of a draft that was not accepted whole may be computed again.
        let drafted = if self.cache.recurrent() { 2.0 * row } else { row };
        let alone = sequences.iter().filter(|data| !data.finished).count() == 1;
        let most = if alone { MAX_DRAFT_TOKENS } else { budget.saturating_sub(sum).min(MAX_DRAFT_TOKENS) };
        // An accepted token saves a row of a later step, in which prompts have no part.
        let sampling = probabilities.iter().flatten().count();
        let counts = schedule::draft_lengths(&probabilities, sampling, most, (fixed, row, drafted));
        for at in (0..sequences.len()).filter(|at| probabilities[*at].is_some()) {
            let data = &mut *sequences[at];
            let draft = std::mem::take(&mut data.draft);
            let mut pending = PendingDraft { at: data.tokens.len(), draft, rows: 0, slot: None };
            if counts[at] > 0
                && self.reserve_free(&mut data.table, rows[at] + counts[at])?.is_none()
                && let Ok(slot) = self.slot()
            {
                (pending.rows, pending.slot) = (counts[at], slot);
            }
            data.pending_draft = Some(pending);
        }
        Ok(())
    }

    /// Takes back what was computed for rejected tokens, and learns from all.
    fn settle_draft(&mut self, data: &mut SequenceData) {
        let (computed, drafts) = (data.computed(), data.drafts());
        let Some(PendingDraft { at, draft, slot, .. }) = data.pending_draft.take() else { return };
        data.drafts = drafts;
        self.acceptance.learn(&draft, &data.tokens[at..]);
        if computed < data.table.len() {
            self.cache.cut(&mut data.table, computed, slot);
        } else if let Some(slot) = slot {
            self.cache.release_slot(slot);
        }
    }

    /// Forgets a draft that was not computed.
    fn discard_draft(&mut self, data: &mut SequenceData) {
        if let Some(slot) = data.pending_draft.take().and_then(|draft| draft.slot) {
            self.cache.release_slot(slot);
        }
    }

    /// Attaches `data` to its prefix hit.
    /// False if it waits for what one of those `before` it is about to compute, or for more from
    /// disk while another one is `decoding`.
    fn attach_prefix(&mut self, before: &mut Batch, data: &mut SequenceData, decoding: bool) -> Result<bool> {
        if data.preempted == Some(self.finished) {
            return Ok(false);
        }
        if let Some(noted) = data.noted {
            // What is attached gives no logits.
            let hit = self.prefixes.find(&self.cache, &data.prefix.salt, &data.tokens, noted);
            data.table = self.attach(&hit)?;
            data.found.get_or_insert_default();
            return Ok(true);
        }
        let mut hit = self.find(&data.prefix.salt, &data.tokens);
        // If what was restored is gone again, there are too few blocks for it.
        if data.asked.is_none_or(|before| hit.len > before) {
            let (restored, from_disk) = self.restore(&data.prefix, &data.tokens, &hit, decoding)?;
            let before = hit.len;
            if restored != Restored::Nothing {
                hit = self.find(&data.prefix.salt, &data.tokens);
                data.disk += hit.len.saturating_sub(before).min(from_disk);
            }
            if restored == Restored::Partial {
                data.asked = Some(before);
                return Ok(false);
            }
            data.asked = Some(usize::MAX);
        }
        for other in
            before.iter_mut().filter(|other| !other.finished && other.prefix.salt == data.prefix.salt)
        {
            let (common, computed) = other.shares_with(&data.tokens);
            // Not for one that decodes: that would take a step for each token.
            if !computed && other.pending() > 1 && common > hit.len {
                // Here the two part.
                other.prefix.add(common);
                return Ok(false);
            }
        }
        data.table = self.attach(&hit)?;
        let Hit { seen, stop, .. } = hit;
        let cached = data.table.len();
        if self.cache.has_state() && seen >= cached + SNAPSHOT_MIN_GAIN {
            data.prefix.add(seen);
        }
        if data.preempted.is_none() {
            data.found =
                Some(FoundPrefix { cached: cached.min(data.prompt), disk: data.disk.min(cached), stop });
        }
        Ok(true)
    }

    /// The points within the next `rows` rows of `data` after which a snapshot is taken, and the
    /// slots for recurrent state.
    fn plan_snapshots(&mut self, data: &SequenceData, rows: usize) -> Vec<(usize, Option<SlotId>)> {
        let (start, mut last) = (data.table.len(), data.table.len());
        let mut points = Vec::new();
        if !self.cache.has_state() {
            return points;
        }
        let boundaries = &data.prefix.boundaries;
        let lone = |at: usize| !boundaries.iter().any(|other| other.abs_diff(at) < SNAPSHOT_EVERY / 2);
        let end = start + rows;
        let regular = (start / SNAPSHOT_EVERY + 1..).map(|at| at * SNAPSHOT_EVERY);
        let regular =
            regular.take_while(|at| *at <= end.min(data.prompt)).filter(|at| lone(*at)).map(|at| (at, true));
        let declared = boundaries.iter().filter(|at| **at > start && **at <= end).map(|at| (*at, false));
        let mut all: Vec<(usize, bool)> = declared.chain(regular).collect();
        all.sort_unstable();
        for (at, regular) in all {
            // What a later step begins with may be far from the last snapshot.
            let known = !points.is_empty() || !data.begun && start > 0;
            if known && at < last + SNAPSHOT_MIN_GAIN || regular && !self.cache.has_spare_snapshot() {
                continue;
            }
            let Ok(slot) = self.slot() else { break };
            points.push((at, slot));
            last = at;
        }
        points
    }

    fn compute(
        &mut self,
        sequences: &mut Batch,
        rows: &[usize],
        states: &[Vec<(usize, Option<SlotId>)>],
    ) -> Result<StepOutput<B::Array>> {
        let mut parts = Vec::with_capacity(sequences.len());
        let (mut given, mut first, mut all) = (Vec::new(), 0, 0);
        for (at, data) in sequences.iter_mut().enumerate().filter(|(at, _)| rows[*at] > 0) {
            let noted = data.noted_in(rows[at]);
            let SequenceData { table, tokens, pending_draft, .. } = &mut **data;
            let start = table.len();
            let saves = states[at].iter().filter_map(|(at, slot)| Some((at - start, (*slot)?)));
            let mut saves: Vec<_> = saves.collect();
            let tokens = &tokens[start..start + rows[at]];
            let (mut drafted, mut outputs, mut ready) = (&[][..], 0, 0);
            if let Some(draft) = pending_draft {
                drafted = &draft.draft.tokens[..draft.rows];
                (outputs, ready) = (1 + draft.rows, 1 + draft.rows);
                saves.extend(draft.slot.map(|slot| (rows[at], slot)));
            }
            if !noted.is_empty() {
                outputs = start + rows[at] - noted.start + drafted.len();
            }
            if outputs > 0 {
                let end = first + outputs;
                given.push(LogitsPart {
                    at,
                    noted: first..first + noted.len(),
                    before: noted.start,
                    ready: (ready > 0).then_some(end - ready..end),
                });
                first = end;
            }
            all += rows[at] + drafted.len();
            parts.push(StepInput { table, tokens, drafted, outputs, saves });
        }
        let copies = parts.iter().map(|part| part.saves.len()).sum::<usize>().max(1) as u32;
        let begun = Instant::now();
        let computed = self.forward_observed(&mut parts, None);
        self.step_times.learn(rows.iter().sum(), all, begun.elapsed());
        let copying = self.decoder.snapshot_time();
        let slots = states.iter().flatten().filter_map(|(_, slot)| *slot);
        let logits = match computed {
            Ok(logits) => logits,
            Err(error) => {
                slots.for_each(|slot| self.cache.release_slot(slot));
                return Err(error);
            }
        };
        for (at, data) in sequences.iter_mut().enumerate().filter(|(at, _)| rows[*at] > 0) {
            let computed = data.table.len().min(data.prompt.saturating_sub(1));
            data.noted = data.noted.map(|noted| noted.max(computed));
            (data.begun, data.preempted) = (true, None);
            let filing = Instant::now();
            for &state in &states[at] {
                let SequenceData { prefix, tokens, table, .. } = &**data;
                self.prefixes.insert_snapshot(&mut self.cache, prefix, tokens, table, state);
            }
            let own = states[at].iter().filter(|(_, slot)| slot.is_some()).count() as u32;
            data.spent.snapshots += filing.elapsed() + copying * own / copies;
            if data.tokens.len() == data.prompt {
                data.spent.steps += begun.elapsed();
            }
        }
        Ok(StepOutput { parts: given, logits, too_long: None })
    }

    /// No sequence gets its blocks.
    /// The last that has begun is preempted until another is through; what it computed stays in the
    /// tree until it is evicted.
    /// Gives the index of a sequence that all blocks would not do for.
    fn preempt(&mut self, sequences: &mut Batch) -> Option<usize> {
        if sequences.iter().any(|data| data.finished && !data.table.is_empty()) {
            // Its blocks are about to be free.
            return None;
        }
        let mut begun =
            sequences.iter().enumerate().filter(|(_, data)| data.begun && !data.finished).map(|(at, _)| at);
        let Some(first) = begun.next() else {
            // The first of all has nothing to wait for.
            // What it shares may leave no room for its own copy of the last block: it begins again
            // with less of that, as long as there is any.
            let first = sequences.iter().position(|data| !data.finished)?;
            let freed =
                [OutOfMemory::Blocks, OutOfMemory::Snapshots].into_iter().any(|kind| self.evict(kind));
            return if freed { None } else { Some(first) };
        };
        let Some(last) = begun.next_back() else { return Some(first) };
        let data = &mut *sequences[last];
        (data.begun, data.preempted) = (false, Some(self.finished));
        let table = std::mem::take(&mut data.table);
        self.insert(&data.prefix, &data.tokens, table);
        None
    }

    /// Caches what a sequence has computed: it goes no further.
    pub fn finish(&mut self, data: &mut SequenceData) {
        self.settle_draft(data);
        let table = std::mem::take(&mut data.table);
        let computed = table.len();
        self.insert(&data.prefix, &data.tokens, table);
        self.finished += 1;
        self.queue_for_disk(&data.prefix, &data.tokens[..computed.min(data.tokens.len())]);
    }
}
