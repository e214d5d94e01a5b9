//! The sequences that run on a pool together: what each finds of its prompt, who waits for whom,
//! and the steps.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::disk::Restored;
use super::{Part, Pool};
use crate::backend::Backend;
use crate::cache::{Hit, Prefix, SNAPSHOT_EVERY, SNAPSHOT_GAIN, SlotId, Stop, Table};
use crate::draft::{Draft, MOST};
use crate::request::DraftUsage;
use crate::{Result, schedule};

/// A sequence that is being computed.
#[derive(Debug, Default)]
pub struct Run {
    /// The prompt and what was generated.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// What it asks of the cache.
    pub prefix: Prefix,
    /// What was found of the prompt, once it is known.
    pub found: Option<Found>,
    /// Whether nothing more is to be computed.
    pub finished: bool,
    /// What may follow `tokens`: as much of it as pays is computed beside them.
    pub draft: Draft,
    /// Whether each token after the prompt takes a step of its own, forced ones too: what drafts
    /// are measured against.
    pub single: bool,
    /// What its prompt took.
    pub spent: Spent,
    table: Table,
    /// The draft of the latest step, until it is settled what of it came.
    guess: Option<Guess>,
    /// What came of those before.
    drafts: DraftUsage,
    /// Whether it has computed something since it was attached to what was found.
    begun: bool,
    /// How many tokens were in memory when the disk was asked for it, as long as there is more on
    /// it; then it is not asked again.
    asked: Option<usize>,
    /// Tokens that came from disk for it.
    disk: usize,
    /// Put off for want of room, when so many had finished: it waits for one more.
    put_off: Option<u64>,
}

/// A draft of which the first `rows` tokens were computed after the first `at` tokens of a run.
#[derive(Debug)]
struct Guess {
    at: usize,
    draft: Draft,
    rows: usize,
    /// The recurrent state after these `at` tokens, in a model that has such.
    slot: Option<SlotId>,
}

/// What a prompt took on the way to its first token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Steps that computed a part of it, whole: other sequences may have a part in them.
    pub steps: Duration,
    /// Of that, taking snapshots of state: finding room for them, copying, and filing.
    pub snapshots: Duration,
}

/// What was found of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Tokens that were not computed again.
    pub cached: usize,
    /// How many of them came from disk.
    pub disk: usize,
    /// Why no more.
    pub stop: Option<Stop>,
}

/// What a step gave.
#[derive(Debug)]
pub struct Stepped<A> {
    /// Numbers of the runs that are computed to their end, and how many rows of logits there are of
    /// each: after its last token, and after each drafted one.
    pub ready: Vec<(usize, usize)>,
    /// These logits, run after run.
    /// `[rows, V]`; `None`: there are none.
    pub logits: Option<A>,
    /// Number of a run that needs more room than there is.
    pub too_long: Option<usize>,
}

impl<A> Stepped<A> {
    /// Each run that is computed to its end, with its rows of logits.
    pub fn each(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut next = 0;
        self.ready.iter().map(move |&(at, rows)| {
            let first = next;
            next += rows;
            (at, first..next)
        })
    }
}

impl Run {
    /// A sequence that begins with `tokens`.
    pub fn new(tokens: Vec<u32>, prefix: Prefix) -> Self {
        Run { prompt: tokens.len(), tokens, prefix, ..Run::default() }
    }

    /// Tokens whose keys and values are not computed yet.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.computed()
    }

    /// How many tokens of the latest step's draft have come, if no others have: the number of its
    /// row of logits that is the run's own.
    /// `None` if others came, or more than were computed.
    pub fn come(&self) -> Option<usize> {
        let guess = self.guess.as_ref()?;
        let agreed = self.agreed();
        (guess.at + agreed == self.tokens.len()).then_some(agreed)
    }

    /// How many tokens were drafted, and how many of them came.
    pub fn drafts(&self) -> DraftUsage {
        let mut drafts = self.drafts;
        drafts += DraftUsage {
            drafted: self.guess.as_ref().map_or(0, |guess| guess.rows),
            accepted: self.agreed(),
        };
        drafts
    }

    /// How many of the computed guesses came.
    fn agreed(&self) -> usize {
        self.guess.as_ref().map_or(0, |guess| guess.draft.agreed(guess.rows, &self.tokens[guess.at..]))
    }

    /// How many of its tokens are computed, guesses that didn't come aside.
    /// Recurrent state can only be put back to where the guesses began, so with it those that came
    /// are computed again, unless all did.
    fn computed(&self) -> usize {
        let Some(guess) = &self.guess else { return self.table.len() };
        match self.agreed() {
            agreed if agreed < guess.rows && guess.slot.is_some() => guess.at,
            agreed => guess.at + agreed,
        }
    }

    /// Whether it waits for its next token, its prompt being through.
    fn decodes(&self) -> bool {
        self.begun && !self.finished && self.tokens.len() > self.prompt
    }

    /// How many tokens it will have in common with a sequence that begins with `tokens`, and
    /// whether all of them are computed.
    fn gives(&self, tokens: &[u32]) -> (usize, bool) {
        let limit = tokens.len().saturating_sub(1);
        let common = self.tokens.iter().zip(&tokens[..limit]).take_while(|(a, b)| a == b).count();
        (common, self.table.len() >= common)
    }
}

/// Whether a run holds what it was attached to and has computed nothing after it.
fn runs_nothing(run: &Run) -> bool {
    !run.begun && !run.finished && !run.table.is_empty()
}

impl<B: Backend> Pool<B> {
    /// How many rows the next step of `runs` may have, at most `most`: few while one of several
    /// decodes, if its tokens are to come steadily beside a long prompt.
    pub fn budget(&self, runs: &[&mut Run], most: usize) -> usize {
        let several = runs.iter().filter(|run| !run.finished).count() > 1;
        self.pace.budget(self.steady && several && runs.iter().any(|run| run.decodes()), most)
    }

    /// One forward pass of at most `budget` rows for all runs that have room.
    /// Who needs what an earlier one is about to compute waits for it; so each prefix is computed
    /// once, however many need it.
    ///
    /// # Errors
    /// If a token is out of range or the backend fails.
    pub fn step(&mut self, runs: &mut [&mut Run], budget: usize) -> Result<Stepped<B::Array>> {
        runs.iter_mut().for_each(|run| self.settle(run));
        let stepped = self.compute_some(runs, budget);
        if stepped.is_err() {
            // What was to be computed was not, or in some layers only: recurrent state may be of a
            // row that others don't know.
            for run in runs.iter_mut() {
                self.drop_guess(run);
                if self.cache.recurrent() {
                    self.release(std::mem::take(&mut run.table));
                }
            }
        }
        stepped
    }

    fn compute_some(&mut self, runs: &mut [&mut Run], budget: usize) -> Result<Stepped<B::Array>> {
        if runs.iter().any(|run| !run.begun && !run.finished) {
            for run in runs.iter().filter(|run| run.begun) {
                self.prefixes.learn(&mut self.cache, &run.prefix, &run.tokens, &run.table);
            }
        }
        let decoding = runs.iter().any(|run| run.decodes());
        let mut pending = Vec::with_capacity(runs.len());
        for at in 0..runs.len() {
            let (before, rest) = runs.split_at_mut(at);
            let run = &mut *rest[0];
            let ready = !run.finished && (run.begun || self.begin(before, run, decoding)?);
            let most = match run.single {
                true => run.prompt.saturating_sub(run.computed()).max(1),
                false => usize::MAX,
            };
            pending.push(if ready { run.pending().min(most) } else { 0 });
        }
        let mut rows = schedule::plan(&pending, budget);
        self.make_room(runs, &mut rows)?;
        if rows.iter().all(|&rows| rows == 0) {
            let too_long = self.put_off(runs);
            return Ok(Stepped { ready: Vec::new(), logits: None, too_long });
        }
        self.draft(runs, &rows, budget)?;
        let mut states = Vec::with_capacity(runs.len());
        for (run, &rows) in runs.iter_mut().zip(&rows) {
            let begun = Instant::now();
            states.push(self.states(run, rows));
            run.spent.snapshots += begun.elapsed();
        }
        self.compute(runs, &rows, &states)
    }

    /// Reserves the `rows` of each run, in their order; none for who has to wait until another is
    /// through.
    fn make_room(&mut self, runs: &mut [&mut Run], rows: &mut [usize]) -> Result<()> {
        for at in 0..runs.len() {
            if rows[at] == 0 || self.reserve(&mut runs[at].table, rows[at])? {
                continue;
            }
            // Whoever has not begun holds what could be evicted.
            let mut released = false;
            for later in at + 1..runs.len() {
                let run = &mut *runs[later];
                if runs_nothing(run) {
                    self.release(std::mem::take(&mut run.table));
                    (rows[later], released) = (0, true);
                }
            }
            if released && self.reserve(&mut runs[at].table, rows[at])? {
                continue;
            }
            rows[at] = 0;
            if runs_nothing(runs[at]) {
                self.release(std::mem::take(&mut runs[at].table));
            }
        }
        Ok(())
    }

    /// Decides how much of their drafts the runs get computed that this step computes to their
    /// ends: as much as pays, as there is room for without giving up what is kept, at most [`MOST`]
    /// in all, and within the `budget`, unless there is only one, which nobody waits for.
    fn draft(&mut self, runs: &mut [&mut Run], rows: &[usize], budget: usize) -> Result<()> {
        let sum: usize = rows.iter().sum();
        let through = |run: &Run, rows: usize| rows > 0 && rows == run.pending();
        let chances: Vec<_> = runs
            .iter()
            .zip(rows)
            .map(|(run, &rows)| through(run, rows).then(|| self.odds.chances(&run.draft)))
            .collect();
        let (fixed, row) = self.pace.few();
        // What came of a draft that did not come whole may be computed again.
        let drafted = if self.cache.recurrent() { 2.0 * row } else { row };
        let alone = runs.iter().filter(|run| !run.finished).count() == 1;
        let most = if alone { MOST } else { budget.saturating_sub(sum).min(MOST) };
        // What a guess saves is rows of later steps, in which prompts have no part.
        let drawing = chances.iter().flatten().count();
        let counts = schedule::drafts(&chances, drawing, most, (fixed, row, drafted));
        for at in (0..runs.len()).filter(|at| chances[*at].is_some()) {
            let run = &mut *runs[at];
            let mut guess =
                Guess { at: run.tokens.len(), draft: std::mem::take(&mut run.draft), rows: 0, slot: None };
            if counts[at] > 0 && self.reserve_free(&mut run.table, rows[at] + counts[at])?.is_none() {
                guess.slot = match self.cache.recurrent() {
                    true => self.slot(),
                    false => None,
                };
                if guess.slot.is_some() || !self.cache.recurrent() {
                    guess.rows = counts[at];
                }
            }
            run.guess = Some(guess);
        }
        Ok(())
    }

    /// Takes back what was computed for guesses that didn't come, and learns from all.
    fn settle(&mut self, run: &mut Run) {
        let (computed, drafts) = (run.computed(), run.drafts());
        let Some(Guess { at, draft, slot, .. }) = run.guess.take() else { return };
        run.drafts = drafts;
        self.odds.learn(&draft, &run.tokens[at..]);
        if computed < run.table.len() {
            self.cache.cut(&mut run.table, computed, slot);
        } else if let Some(slot) = slot {
            self.cache.release_slot(slot);
        }
    }

    /// Forgets a guess that was not computed.
    fn drop_guess(&mut self, run: &mut Run) {
        if let Some(slot) = run.guess.take().and_then(|guess| guess.slot) {
            self.cache.release_slot(slot);
        }
    }

    /// Attaches `run` to what is kept of its tokens.
    /// False if it waits for what one of those `before` it is about to compute, or for more from
    /// disk while somebody is `decoding`.
    fn begin(&mut self, before: &mut [&mut Run], run: &mut Run, decoding: bool) -> Result<bool> {
        if run.put_off == Some(self.finished) {
            return Ok(false);
        }
        let mut hit = self.find(&run.prefix.salt, &run.tokens);
        // If what was put back is gone again, there is no room for it.
        if run.asked.is_none_or(|before| hit.len > before) {
            let (restored, from_disk) = self.restore(&run.prefix, &run.tokens, &hit, decoding)?;
            let before = hit.len;
            if restored != Restored::Nothing {
                hit = self.find(&run.prefix.salt, &run.tokens);
                run.disk += hit.len.saturating_sub(before).min(from_disk);
            }
            if restored == Restored::Part {
                run.asked = Some(before);
                return Ok(false);
            }
            run.asked = Some(usize::MAX);
        }
        for other in before.iter_mut().filter(|other| !other.finished && other.prefix.salt == run.prefix.salt)
        {
            let (common, computed) = other.gives(&run.tokens);
            // Not for one that decodes: it would take a step for each token.
            if !computed && other.pending() > 1 && common > hit.len {
                // Here the two part.
                other.prefix.add(common);
                return Ok(false);
            }
        }
        run.table = self.attach(&hit)?;
        let Hit { seen, stop, .. } = hit;
        let cached = run.table.len();
        if self.cache.has_state() && seen >= cached + SNAPSHOT_GAIN {
            run.prefix.add(seen);
        }
        if run.put_off.is_none() {
            run.found = Some(Found { cached: cached.min(run.prompt), disk: run.disk.min(cached), stop });
        }
        Ok(true)
    }

    /// The points within the next `rows` rows of `run` after which its state is kept, and the slots
    /// for recurrent state.
    fn states(&mut self, run: &Run, rows: usize) -> Vec<(usize, Option<SlotId>)> {
        let (start, mut kept) = (run.table.len(), run.table.len());
        let mut points = Vec::new();
        if !self.cache.has_state() {
            return points;
        }
        let boundaries = &run.prefix.boundaries;
        let lone = |at: usize| !boundaries.iter().any(|other| other.abs_diff(at) < SNAPSHOT_EVERY / 2);
        let end = start + rows;
        let regular = (start / SNAPSHOT_EVERY + 1..).map(|at| at * SNAPSHOT_EVERY);
        let regular =
            regular.take_while(|at| *at <= end.min(run.prompt)).filter(|at| lone(*at)).map(|at| (at, true));
        let declared = boundaries.iter().filter(|at| **at > start && **at <= end).map(|at| (*at, false));
        let mut all: Vec<(usize, bool)> = declared.chain(regular).collect();
        all.sort_unstable();
        for (at, regular) in all {
            // What a later step begins with may be far from the last snapshot.
            let known = !points.is_empty() || !run.begun && start > 0;
            if known && at < kept + SNAPSHOT_GAIN || regular && !self.cache.has_spare_state() {
                continue;
            }
            let slot = self.cache.recurrent().then(|| self.slot());
            match slot {
                Some(None) => break,
                slot => points.push((at, slot.flatten())),
            }
            kept = at;
        }
        points
    }

    fn compute(
        &mut self,
        runs: &mut [&mut Run],
        rows: &[usize],
        states: &[Vec<(usize, Option<SlotId>)>],
    ) -> Result<Stepped<B::Array>> {
        let mut parts = Vec::with_capacity(runs.len());
        let (mut ready, mut all) = (Vec::new(), 0);
        for (at, run) in runs.iter_mut().enumerate().filter(|(at, _)| rows[*at] > 0) {
            let Run { table, tokens, guess, .. } = &mut **run;
            let start = table.len();
            let saves = states[at].iter().filter_map(|(at, slot)| Some((at - start, (*slot)?)));
            let mut saves: Vec<_> = saves.collect();
            let tokens = &tokens[start..start + rows[at]];
            let (mut drafted, mut outputs) = (&[][..], 0);
            if let Some(guess) = guess {
                drafted = &guess.draft.tokens[..guess.rows];
                outputs = 1 + guess.rows;
                saves.extend(guess.slot.map(|slot| (rows[at], slot)));
                ready.push((at, outputs));
            }
            all += rows[at] + drafted.len();
            parts.push(Part { table, tokens, drafted, outputs, saves });
        }
        let copies = parts.iter().map(|part| part.saves.len()).sum::<usize>().max(1) as u32;
        let begun = Instant::now();
        let computed = self.forward_observed(&mut parts, None);
        self.pace.learn(rows.iter().sum(), all, begun.elapsed());
        let copying = self.decoder.saving();
        let slots = states.iter().flatten().filter_map(|(_, slot)| *slot);
        let logits = match computed {
            Ok(logits) => logits,
            Err(error) => {
                slots.for_each(|slot| self.cache.release_slot(slot));
                return Err(error);
            }
        };
        for (at, run) in runs.iter_mut().enumerate().filter(|(at, _)| rows[*at] > 0) {
            (run.begun, run.put_off) = (true, None);
            let filing = Instant::now();
            for &state in &states[at] {
                let Run { prefix, tokens, table, .. } = &**run;
                self.prefixes.keep_state(&mut self.cache, prefix, tokens, table, state);
            }
            let own = states[at].iter().filter(|(_, slot)| slot.is_some()).count() as u32;
            run.spent.snapshots += filing.elapsed() + copying * own / copies;
            if run.tokens.len() == run.prompt {
                run.spent.steps += begun.elapsed();
            }
        }
        Ok(Stepped { ready, logits, too_long: None })
    }

    /// Nobody has room.
    /// The last that has begun gives up its place until another is through; what it computed stays
    /// in the tree as long as nobody needs the room.
    /// Gives the number of a run for which all the room would not do.
    fn put_off(&mut self, runs: &mut [&mut Run]) -> Option<usize> {
        if runs.iter().any(|run| run.finished && !run.table.is_empty()) {
            // There is more room when that is given up.
            return None;
        }
        let mut begun =
            runs.iter().enumerate().filter(|(_, run)| run.begun && !run.finished).map(|(at, _)| at);
        let Some(first) = begun.next() else {
            // The first of all waits for nobody.
            return runs.iter().position(|run| !run.finished);
        };
        let Some(last) = begun.next_back() else { return Some(first) };
        let run = &mut *runs[last];
        (run.begun, run.put_off) = (false, Some(self.finished));
        let table = std::mem::take(&mut run.table);
        self.keep(&run.prefix, &run.tokens, table);
        None
    }

    /// Keeps what a run has computed: it goes no further.
    pub fn finish(&mut self, run: &mut Run) {
        self.settle(run);
        let table = std::mem::take(&mut run.table);
        let computed = table.len();
        self.keep(&run.prefix, &run.tokens, table);
        self.finished += 1;
        self.queue_for_disk(&run.prefix, &run.tokens[..computed.min(run.tokens.len())]);
    }
}
