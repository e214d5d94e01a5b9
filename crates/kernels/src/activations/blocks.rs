//! Activations side by side: what products with many rows read.
#![allow(unsafe_code)]

use super::Activations;
use crate::Cpu;
use crate::lanes::LANES;
use crate::quant::PANEL;
use crate::threads::Disjoint;

/// The rows of activations in a block.
pub(crate) const TOKENS: usize = 16;

/// A panel of 256 codes of sixteen rows that have a scale each.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct SuperBlock {
    /// Four consecutive codes of each row.
    pub codes: [[[i8; 4]; TOKENS]; 64],
    /// The sums of sixteen codes each, in pairs.
    pub sums: [[[i16; 2]; TOKENS]; 8],
    /// The sums of 32 codes each, in pairs.
    pub wide_sums: [[[i16; 2]; TOKENS]; 4],
    /// The scales.
    pub scales: [f32; TOKENS],
}

/// A run of 32 codes of sixteen rows that have a scale for each.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct RunBlock {
    /// Four consecutive codes of each row.
    pub codes: [[[i8; 4]; TOKENS]; 8],
    /// The sums of codes.
    pub sums: [i32; TOKENS],
    /// The scales.
    pub scales: [f32; TOKENS],
}

/// The codes of a [`RunBlock`] as words: two consecutive ones of each row.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct WordBlock(pub [[[i16; 2]; TOKENS]; 16]);

/// Rows of activations in blocks of sixteen; what is missing of the last block is zero.
/// Only one of both is filled.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Of which rows: `None` if nothing is up to date, an empty list means all.
    taken: Option<Vec<u32>>,
    /// How many of them.
    rows: usize,
    count: usize,
    ends_in_half: bool,
    /// `[panels, count]`
    supers: Vec<SuperBlock>,
    /// `[LANES, count, panels]`
    runs: Vec<RunBlock>,
    /// The same as words, or none if nobody wanted them yet.
    words: Vec<WordBlock>,
}

impl Blocks {
    /// Says that the rows are others now.
    pub(super) fn forget(&mut self) {
        self.taken = None;
    }

    /// The number of blocks.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether only the first half of the last block has rows.
    pub(crate) fn ends_in_half(&self) -> bool {
        self.ends_in_half
    }

    /// The blocks of a panel.
    pub(crate) fn supers(&self, panel: usize) -> &[SuperBlock] {
        &self.supers[panel * self.count..][..self.count]
    }

    /// The runs of all blocks that go to a lane, in the order of panels: `[count, panels]`.
    pub(crate) fn runs(&self, lane: usize) -> &[RunBlock] {
        let len = self.runs.len() / LANES;
        &self.runs[lane * len..][..len]
    }

    /// What [`Blocks::runs`] gives as words, after [`Blocks::widen`].
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn words(&self, lane: usize) -> &[WordBlock] {
        let len = self.words.len() / LANES;
        &self.words[lane * len..][..len]
    }

    /// Makes words of all runs' codes.
    pub(super) fn widen(&mut self, cpu: &Cpu) {
        if self.words.len() == self.runs.len() {
            return;
        }
        self.words.resize(self.runs.len(), WordBlock([[[0; 2]; TOKENS]; 16]));
        let words = Disjoint::new(&mut self.words);
        cpu.threads.run(self.runs.len(), &|run| {
            // SAFETY: each task has its own block.
            let WordBlock(words) = unsafe { &mut words.slice(run, 1)[0] };
            for (words, quads) in words.as_chunks_mut::<2>().0.iter_mut().zip(&self.runs[run].codes) {
                for (token, quad) in quads.iter().enumerate() {
                    let [a, b, c, d] = quad.map(i16::from);
                    words[0][token] = [a, b];
                    words[1][token] = [c, d];
                }
            }
        });
    }

    /// Takes the first `rows` rows of `x`, or of those that are named.
    pub(super) fn take(&mut self, cpu: &Cpu, x: &Activations, named: Option<&[u32]>, rows: usize) {
        let wanted = named.map_or(&[][..], |named| &named[..rows]);
        if self.taken.as_deref() == Some(wanted) && self.rows == rows {
            return;
        }
        self.words.clear();
        self.rows = rows;
        let from = |i: usize| named.map_or(i, |rows| rows[i] as usize);
        self.count = rows.div_ceil(TOKENS);
        self.ends_in_half = (1..=TOKENS / 2).contains(&(rows % TOKENS));
        let (count, panels) = (self.count, x.panels());
        if x.has_supers() {
            self.supers.resize(count * panels, SuperBlock::ZERO);
            let blocks = Disjoint::new(&mut self.supers);
            cpu.threads.run(count * panels, &|task| {
                let (panel, block) = (task / count, task % count);
                // SAFETY: each task has its own block.
                let out = unsafe { &mut blocks.slice(task, 1)[0] };
                for token in 0..TOKENS {
                    let row = block * TOKENS + token;
                    if row < rows {
                        out.set(token, x.supers(from(row), panel));
                    } else {
                        out.set(token, (&[0; 256], &[0; 16], 0.0));
                    }
                }
            });
        } else {
            self.runs.resize(LANES * count * panels, RunBlock::ZERO);
            let blocks = Disjoint::new(&mut self.runs);
            cpu.threads.run(count * panels, &|task| {
                let (block, panel) = (task / panels, task % panels);
                for token in 0..TOKENS {
                    let row = block * TOKENS + token;
                    let (codes, sums, scales): (&[i8], &[i16], &[f32]) = if row < rows {
                        x.runs(from(row), panel)
                    } else {
                        (&[0; PANEL], &[0; PANEL / 16], &[0.0; LANES])
                    };
                    for lane in 0..LANES {
                        // SAFETY: each task has its own panel of a block.
                        let out = unsafe { &mut blocks.slice(lane * count * panels + task, 1)[0] };
                        out.set(token, &codes[32 * lane..][..32], &sums[2 * lane..][..2], scales[lane]);
                    }
                }
            });
        }
        let taken = self.taken.get_or_insert_default();
        taken.clear();
        taken.extend_from_slice(wanted);
    }
}

fn set_codes(blocks: &mut [[[i8; 4]; TOKENS]], token: usize, codes: &[i8]) {
    for (quad, codes) in blocks.iter_mut().zip(codes.as_chunks::<4>().0) {
        quad[token] = *codes;
    }
}

impl SuperBlock {
    const ZERO: SuperBlock = SuperBlock {
        codes: [[[0; 4]; TOKENS]; 64],
        sums: [[[0; 2]; TOKENS]; 8],
        wide_sums: [[[0; 2]; TOKENS]; 4],
        scales: [0.0; TOKENS],
    };

    fn set(&mut self, token: usize, (codes, sums, scale): (&[i8], &[i16], f32)) {
        set_codes(&mut self.codes, token, codes);
        for (pair, sums) in self.sums.iter_mut().zip(sums.as_chunks::<2>().0) {
            pair[token] = *sums;
        }
        for (pair, sums) in self.wide_sums.iter_mut().zip(sums.as_chunks::<4>().0) {
            pair[token] = [sums[0] + sums[1], sums[2] + sums[3]];
        }
        self.scales[token] = scale;
    }
}

impl RunBlock {
    const ZERO: RunBlock =
        RunBlock { codes: [[[0; 4]; TOKENS]; 8], sums: [0; TOKENS], scales: [0.0; TOKENS] };

    fn set(&mut self, token: usize, codes: &[i8], sums: &[i16], scale: f32) {
        set_codes(&mut self.codes, token, codes);
        self.sums[token] = i32::from(sums[0]) + i32::from(sums[1]);
        self.scales[token] = scale;
    }
}
