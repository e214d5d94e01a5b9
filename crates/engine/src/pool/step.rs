//! Continuous batching: the sequences that share a pool's steps, the prefix that each finds in the
//! cache, and which of them wait for others.
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

/// Most bytes of prompt logits that a step keeps; at least one row is kept.
/// A higher limit makes prompts with reported logits faster.
const NOTED_BYTES: usize = if cfg!(test) { 16 << 10 } else { 64 << 20 };

/// A running sequence.
#[derive(Debug, Default)]
pub struct SequenceData {
    /// The prompt and the generated tokens.
    pub tokens: Vec<u32>,
    /// Number of prompt tokens.
    pub prompt: usize,
    /// How it uses the prefix cache.
    pub prefix: Prefix,
    /// The prefix found in the cache, once known.
    pub found: Option<FoundPrefix>,
    /// Whether nothing remains to be computed.
    pub finished: bool,
    /// Draft tokens after `tokens`: the step computes as many as are worthwhile.
    pub draft: Draft,
    /// Whether each token after the prompt takes a separate step, including forced ones: the
    /// baseline for measuring drafts.
    pub single: bool,
    /// After how many prompt tokens logits were returned, if the logits after each prompt token
    /// except the last are wanted.
    /// Such a prompt is computed in full, ignoring the cache.
    pub noted: Option<usize>,
    /// Time spent on its prompt.
    pub spent: PromptTimes,
    table: Table,
    /// The draft of the latest step, until its acceptance is known.
    pending_draft: Option<PendingDraft>,
    /// Number of earlier tokens drafted and accepted.
    drafts: DraftUsage,
    /// Whether it computed anything since it was attached to its cached prefix.
    begun: bool,
    /// The number of tokens in memory when the disk was last asked, as long as the disk has more;
    /// used to avoid asking again.
    asked: Option<usize>,
    /// Number of tokens restored from disk for it.
    disk: usize,
    /// Set if it was preempted when memory ran out: the number of finished sequences at that time.
    /// It waits for one more.
    preempted: Option<u64>,
}

/// The sequences that share a step.
type Batch<'a> = [&'a mut SequenceData];

/// A draft whose first `rows` tokens were computed after the first `at` tokens of a sequence.
#[derive(Debug)]
struct PendingDraft {
    at: usize,
    draft: Draft,
    rows: usize,
    /// The recurrent state after the first `at` tokens, if the model has any.
    slot: Option<SlotId>,
}

/// Time spent on a prompt before its first token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptTimes {
    /// Total time of steps that computed a part of it, which other sequences may share.
    pub steps: Duration,
    /// Part of that spent on snapshots of state: finding slots, copying, and inserting.
    pub snapshots: Duration,
}

/// The cached prefix found for a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundPrefix {
    /// Number of tokens that were not recomputed.
    pub cached: usize,
    /// Number of these that came from disk.
    pub disk: usize,
    /// Why no more were found.
    pub stop: Option<MissReason>,
}

/// The logits that a step computed for one sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogitsPart {
    /// Index of the sequence.
    pub at: usize,
    /// The rows after prompt tokens, one after each.
    pub noted: Range<usize>,
    /// Number of tokens before the first of these rows.
    pub before: usize,
    /// Once all tokens are computed, the rows to sample from: one after the last token, and one
    /// after each draft token.
    pub ready: Option<Range<usize>>,
}

#[cfg(test)]
impl<A> StepOutput<A> {
    /// The index of each fully computed sequence, with its rows of logits.
    pub fn each(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.parts.iter().filter_map(|part| Some((part.at, part.ready.clone()?)))
    }
}

/// The result of a step.
#[derive(Debug)]
pub struct StepOutput<A> {
    /// The owners of the logits, in order.
    pub parts: Vec<LogitsPart>,
    /// The logits, sequence after sequence.
    /// `[rows, V]`; `None` if there are none.
    pub logits: Option<A>,
    /// Index of a sequence that doesn't fit even into the whole cache.
    pub too_long: Option<usize>,
}

impl SequenceData {
    /// A sequence that begins with `tokens`.
    pub fn new(tokens: Vec<u32>, prefix: Prefix) -> Self {
        SequenceData { prompt: tokens.len(), tokens, prefix, ..SequenceData::default() }
    }

    /// Number of tokens whose keys and values are not computed yet.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.computed()
    }

    /// The row of the latest step's logits after the last token, which is the number of accepted
    /// draft tokens.
    /// `None` if a token was rejected, or more were appended than were computed.
    pub fn next_row(&self) -> Option<usize> {
        let draft = self.pending_draft.as_ref()?;
        let accepted = self.accepted();
        (draft.at + accepted == self.tokens.len()).then_some(accepted)
    }

    /// How many tokens were drafted, and how many accepted.
    pub fn drafts(&self) -> DraftUsage {
        let drafted = self.pending_draft.as_ref().map_or(0, |draft| draft.rows);
        let mut drafts = self.drafts;
        drafts += DraftUsage { drafted, accepted: self.accepted() };
        drafts
    }

    /// How many of the computed draft tokens were accepted.
    fn accepted(&self) -> usize {
        let pending = self.pending_draft.as_ref();
        pending.map_or(0, |pending| pending.draft.accepted(pending.rows, &self.tokens[pending.at..]))
    }

    /// How many of its tokens are computed, excluding rejected ones.
    /// Recurrent state can only be rewound to the start of the draft, so such models recompute
    /// accepted tokens, unless all were accepted.
    fn computed(&self) -> usize {
        let Some(draft) = &self.pending_draft else { return self.table.len() };
        match self.accepted() {
            accepted if accepted < draft.rows && draft.slot.is_some() => draft.at,
            accepted => draft.at + accepted,
        }
    }

    /// Whether logits after prompt tokens are still outstanding.
    fn is_noted(&self) -> bool {
        self.noted.is_some_and(|noted| noted + 1 < self.prompt)
    }

    /// The prompt tokens after which the next `rows` rows give wanted logits.
    fn noted_in(&self, rows: usize) -> Range<usize> {
        let Some(noted) = self.noted else { return 0..0 };
        let start = self.table.len();
        let end = (start + rows).min(self.prompt - 1);
        noted.max(start).min(end)..end
    }

    /// Whether prefill is complete.
    fn is_decoding(&self) -> bool {
        self.begun && !self.finished && self.tokens.len() > self.prompt
    }

    /// The length of the prefix that it will share with a sequence that begins with `tokens`, and
    /// whether all of it is computed.
    fn shares_with(&self, tokens: &[u32]) -> (usize, bool) {
        let limit = tokens.len().saturating_sub(1);
        let common = self.tokens.iter().zip(&tokens[..limit]).take_while(|(a, b)| a == b).count();
        (common, self.table.len() >= common)
    }
}

/// Whether a sequence holds a cached prefix and has computed nothing after it.
fn only_attached(data: &SequenceData) -> bool {
    !data.begun && !data.finished && !data.table.is_empty()
}

impl<B: Backend> Pool<B> {
    /// How many rows the next step of `sequences` may have, at most `most`.
    /// Few if one of several sequences decodes and should do so steadily during a long prefill
    /// (chunked prefill).
    pub fn budget(&self, sequences: &Batch, most: usize) -> usize {
        let several = sequences.iter().filter(|data| !data.finished).count() > 1;
        self.step_times
            .budget(self.steady && several && sequences.iter().any(|data| data.is_decoding()), most)
    }

    /// One forward pass of at most `budget` rows for all sequences for which there are blocks.
    /// A sequence that needs a prefix which an earlier one is about to compute waits for it, so
    /// each prefix is computed once, however many sequences need it.
    ///
    /// # Errors
    /// If a token is out of range or the backend fails.
    pub fn step(&mut self, sequences: &mut Batch, budget: usize) -> Result<StepOutput<B::Array>> {
        sequences.iter_mut().for_each(|data| self.settle_draft(data));
        let stepped = self.compute_some(sequences, budget);
        if stepped.is_err() {
            // The step failed, possibly after some layers: recurrent state may include a row that
            // other layers lack.
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

    /// Reserves the `rows` of each sequence, in order; sets them to 0 for one that has to wait
    /// until another finishes.
    fn reserve_rows(&mut self, sequences: &mut Batch, rows: &mut [usize]) -> Result<()> {
        for at in 0..sequences.len() {
            if rows[at] == 0 || self.reserve(&mut sequences[at].table, rows[at])? {
                continue;
            }
            // A sequence that hasn't begun holds blocks that could be evicted.
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

    /// Decides how many draft tokens to compute for each sequence that this step computes to its
    /// end: as many as are worthwhile and fit into free blocks, since nothing is evicted for them.
    /// At most [`MAX_DRAFT_TOKENS`] in total, and within the `budget` unless there is only one
    /// sequence, so that no other waits.
    fn choose_drafts(&mut self, sequences: &mut Batch, rows: &[usize], budget: usize) -> Result<()> {
        let sum: usize = rows.iter().sum();
        let through = |data: &SequenceData, rows: usize| rows > 0 && rows == data.pending();
        let probabilities: Vec<_> = sequences
            .iter()
            .zip(rows)
            .map(|(data, &rows)| through(data, rows).then(|| self.acceptance.probabilities(&data.draft)))
            .collect();
        let (fixed, row) = self.step_times.decode();
        // Accepted tokens of a partially accepted draft may have to be recomputed.
        let drafted = if self.cache.recurrent() { 2.0 * row } else { row };
        let alone = sequences.iter().filter(|data| !data.finished).count() == 1;
        let most = if alone { MAX_DRAFT_TOKENS } else { budget.saturating_sub(sum).min(MAX_DRAFT_TOKENS) };
        // An accepted token saves a row of a later decode-only step.
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

    /// Truncates rejected tokens, and learns from the result.
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

    /// Discards a draft that was not computed.
    fn discard_draft(&mut self, data: &mut SequenceData) {
        if let Some(slot) = data.pending_draft.take().and_then(|draft| draft.slot) {
            self.cache.release_slot(slot);
        }
    }

    /// Attaches `data` to its longest cached prefix.
    /// False if it waits for tokens that one of those `before` it is about to compute, or for more
    /// from disk while another sequence is `decoding`.
    fn attach_prefix(&mut self, before: &mut Batch, data: &mut SequenceData, decoding: bool) -> Result<bool> {
        if data.preempted == Some(self.finished) {
            return Ok(false);
        }
        if let Some(noted) = data.noted {
            // Cached tokens have no logits.
            let hit = self.prefixes.find(&self.cache, &data.prefix.salt, &data.tokens, noted);
            data.table = self.attach(&hit)?;
            data.found.get_or_insert_default();
            return Ok(true);
        }
        let mut hit = self.find(&data.prefix.salt, &data.tokens);
        // If restored tokens were evicted again, there are too few blocks for them.
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
            // Don't wait for a decoding sequence: it computes only one token per step.
            if !computed && other.pending() > 1 && common > hit.len {
                // The two diverge here.
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

    /// The points within the next `rows` rows of `data` at which to take a snapshot, each with its
    /// slot for recurrent state.
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
            // The start of a later step may be far from the last snapshot.
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

    /// No sequence got its blocks.
    /// Preempts the last one that has begun, until another finishes; its computed tokens stay in
    /// the tree until they are evicted.
    /// Returns the index of a sequence that doesn't fit even into the whole cache.
    fn preempt(&mut self, sequences: &mut Batch) -> Option<usize> {
        if sequences.iter().any(|data| data.finished && !data.table.is_empty()) {
            // Its blocks are about to be released.
            return None;
        }
        let mut begun =
            sequences.iter().enumerate().filter(|(_, data)| data.begun && !data.finished).map(|(at, _)| at);
        let Some(first) = begun.next() else {
            // The first sequence has none to wait for.
            // If its shared prefix leaves no room for its own copy of the last block, it starts
            // over with a shorter prefix, as long as it has one.
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

    /// Caches the computed tokens of a finished sequence.
    pub fn finish(&mut self, data: &mut SequenceData) {
        self.settle_draft(data);
        let table = std::mem::take(&mut data.table);
        let computed = table.len();
        self.insert(&data.prefix, &data.tokens, table);
        self.finished += 1;
        self.queue_for_disk(&data.prefix, &data.tokens[..computed.min(data.tokens.len())]);
    }
}
