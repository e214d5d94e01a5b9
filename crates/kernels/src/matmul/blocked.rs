//! Products with many rows of activations: a panel of some rows of weights is unpacked once and
//! multiplied with blocks of sixteen rows of activations, which lie side by side in the lanes of
//! registers.
//!
//! The sums are those of the few rows' kernels, number by number: integers within a superblock or a
//! run, then floats in lane `panel % 8` or `run % 8`.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the
// same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::{asm, x86_64::*};
use std::cell::RefCell;

use super::few::turned;
use super::panel::{Part, ROWS, RunPanel, SUMS, SuperPanel};
use super::side_by_side::{
    WordPanel, runs_avx2, runs_avx512, runs_avxvnni, signed_runs_avx2, supers_avx2, supers_avx512,
    supers_avxvnni,
};
use super::vector::{Avx2, Avx512, AvxVnni};
use super::{Few, Product, few, tiles};
use crate::activations::{Activations, Blocks, TOKENS};
use crate::isa::Level;
use crate::lanes::LANES;
use crate::quant::avx2::{Bias, RunBits, SuperBits, each};
use crate::quant::{PANEL, RUN, codebook, iq, k, legacy, ternary};
use crate::threads::Disjoint;
use crate::wide::turn;
use crate::{Aligned, Cpu, Format};

/// What a task works with.
#[derive(Default)]
struct Scratch {
    supers: Option<Box<SuperPanel>>,
    runs: Vec<RunPanel>,
    words: Vec<WordPanel>,
    sums: Aligned<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Blocks of rows of activations that tiles pay for: for fewer, filling the tiles takes longer than
/// what they save.
const TILES: usize = 2;

/// Whether products of `rows` rows of activations are worth unpacking weights for.
pub(super) fn pays(level: Level, format: Format, rows: usize) -> bool {
    let most = match level {
        Level::Scalar => return false,
        _ if as_words(level, format) => 20,
        Level::Avx2 | Level::AvxVnni => 12,
        Level::Avx512 | Level::Amx => few::most(format),
    };
    matches!(format.block_len(), RUN | PANEL) && rows > most
}

/// Whether codes and activations are widened to words, for [`signed_runs_avx2`].
fn as_words(level: Level, format: Format) -> bool {
    level == Level::Avx2 && matches!(format, Format::Q8_0 | Format::IQ4_NL)
}

/// As [`super::matmul`].
pub(super) fn multiply(cpu: &Cpu, product: &Product, x: &mut Activations) {
    let &Product { w, out, named, ref y, .. } = product;
    let panels = x.panels();
    let all = product.tokens(x);
    let left = match cpu.isa.level() {
        Level::Avx512 => turned::left(w.format, out, all),
        _ => 0,
    };
    let tokens = all - left;
    if left > 0 {
        turned::arrange(w.format, x);
    }
    x.in_blocks(cpu, named, tokens, as_words(cpu.isa.level(), w.format));
    let x = &*x;
    let blocks = x.blocks();
    let row_bytes = w.bytes.len() / out;
    let level = match cpu.isa.level() {
        Level::Amx if blocks.count() < TILES => Level::Avx512,
        level => level,
    };
    cpu.threads.run(out.div_ceil(ROWS), &|task| {
        let first = task * ROWS;
        let part = Part {
            bytes: &w.bytes[first * row_bytes..(first + ROWS).min(out) * row_bytes],
            row_bytes,
            panels,
            level,
        };
        let to = Outputs { y, tokens, out, first, rows: part.rows() };
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: this CPU has AVX2 and what `level` says.
            unsafe {
                match w.format {
                    Format::Q2_K => part.supers::<k::Q2_K>(blocks, scratch),
                    Format::Q3_K => part.supers::<k::Q3_K>(blocks, scratch),
                    Format::Q4_K => part.supers::<k::Q4_K>(blocks, scratch),
                    Format::Q5_K => part.supers::<k::Q5_K>(blocks, scratch),
                    Format::Q6_K => part.supers::<k::Q6_K>(blocks, scratch),
                    Format::IQ4_XS => part.supers::<codebook::IQ4_XS>(blocks, scratch),
                    Format::Q4_0 => part.runs::<legacy::Q4_0>(blocks, scratch),
                    Format::Q4_1 => part.runs::<legacy::Q4_1>(blocks, scratch),
                    Format::Q5_0 => part.runs::<legacy::Q5_0>(blocks, scratch),
                    Format::Q5_1 => part.runs::<legacy::Q5_1>(blocks, scratch),
                    Format::Q8_0 => part.runs::<legacy::Q8_0>(blocks, scratch),
                    Format::IQ4_NL => part.runs::<codebook::IQ4_NL>(blocks, scratch),
                    Format::MXFP4 => part.runs::<codebook::MXFP4>(blocks, scratch),
                    Format::IQ1_S => part.supers::<iq::IQ1_S>(blocks, scratch),
                    Format::IQ1_M => part.supers::<iq::IQ1_M>(blocks, scratch),
                    Format::IQ2_XXS => part.supers::<iq::IQ2_XXS>(blocks, scratch),
                    Format::IQ2_XS => part.supers::<iq::IQ2_XS>(blocks, scratch),
                    Format::IQ2_S => part.supers::<iq::IQ2_S>(blocks, scratch),
                    Format::IQ3_XXS => part.supers::<iq::IQ3_XXS>(blocks, scratch),
                    Format::IQ3_S => part.supers::<iq::IQ3_S>(blocks, scratch),
                    Format::TQ1_0 => part.supers::<ternary::TQ1_0>(blocks, scratch),
                    Format::TQ2_0 => part.supers::<ternary::TQ2_0>(blocks, scratch),
                    Format::F32 | Format::F16 | Format::BF16 | Format::NVFP4 | Format::Q1_0 => {
                        unreachable!("neither runs nor superblocks")
                    }
                }
                let lanes = if w.format.block_len() == RUN { LANES } else { panels.min(LANES) };
                to.ask(0);
                for block in 0..blocks.count() {
                    to.ask(block + 1);
                    let at = scratch.sums.as_ptr().add(block * SUMS);
                    to.finish(block, at, lanes, blocks.count() * SUMS);
                }
                if left > 0 {
                    let few = Few {
                        w: part.bytes,
                        row_bytes,
                        out: part.rows(),
                        x,
                        named,
                        before: tokens,
                        tokens: left,
                        y,
                        column: first,
                        stride: out,
                    };
                    let multiplied = turned::some_rows(few, w.format, 0..part.rows());
                    debug_assert!(multiplied);
                }
            }
        });
    });
}

impl Part<'_> {
    /// The sums of all blocks in `scratch`: `[lanes, blocks, ROWS, TOKENS]`.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn supers<F: SuperBits>(&self, blocks: &Blocks, scratch: &mut Scratch) {
        let lanes = self.panels.min(LANES);
        let lane = blocks.count() * SUMS;
        // What is there is never read: the first panel of a lane puts its sums in place of it.
        scratch.sums.at_least(lanes * lane);
        let panel = scratch.supers.get_or_insert_with(SuperPanel::zero);
        if self.rows() < ROWS {
            **panel = *SuperPanel::zero();
        }
        for index in 0..self.panels {
            let fresh = index < LANES;
            let sums = scratch.sums[index % LANES * lane..][..lane].as_mut_ptr();
            let x = blocks.supers(index);
            let parts = x.split_at(x.len() - usize::from(blocks.ends_in_half()));
            match self.level {
                Level::Scalar => {}
                Level::Avx2 => {
                    self.fill_supers::<F, Avx2>(index, panel);
                    let lowered = !matches!(F::BIAS, Bias::Unsigned(0));
                    // Sums of so many times two products of a code and an activation are words.
                    match (F::SIXTEENS, i16::MAX as usize / (2 * 127 * F::MOST as usize)) {
                        _ if matches!(F::BIAS, Bias::Signed) => {
                            supers_avx2::<8, 1, true>(panel, parts, false, F::MINIMA, fresh, sums);
                        }
                        (true, 1) => {
                            supers_avx2::<4, 1, false>(panel, parts, lowered, F::MINIMA, fresh, sums);
                        }
                        (true, 2..4) => {
                            supers_avx2::<4, 2, false>(panel, parts, lowered, F::MINIMA, fresh, sums);
                        }
                        (true, _) => {
                            supers_avx2::<4, 4, false>(panel, parts, lowered, F::MINIMA, fresh, sums);
                        }
                        (false, ..4) => {
                            supers_avx2::<8, 1, false>(panel, parts, lowered, F::MINIMA, fresh, sums);
                        }
                        (false, 4..8) => {
                            supers_avx2::<8, 4, false>(panel, parts, lowered, F::MINIMA, fresh, sums);
                        }
                        (false, _) => {
                            supers_avx2::<8, 8, false>(panel, parts, lowered, F::MINIMA, fresh, sums);
                        }
                    }
                }
                Level::AvxVnni => {
                    self.fill_supers::<F, AvxVnni>(index, panel);
                    let lowered = !matches!(F::BIAS, Bias::Unsigned(0));
                    match F::SIXTEENS {
                        true => supers_avxvnni::<4>(panel, parts, lowered, F::MINIMA, fresh, sums),
                        false => supers_avxvnni::<8>(panel, parts, lowered, F::MINIMA, fresh, sums),
                    }
                }
                Level::Avx512 => {
                    self.fill_supers::<F, Avx512>(index, panel);
                    let lowered = !matches!(F::BIAS, Bias::Unsigned(0));
                    match F::SIXTEENS {
                        true => supers_avx512::<4>(panel, x, lowered, F::MINIMA, fresh, sums),
                        false => supers_avx512::<8>(panel, x, lowered, F::MINIMA, fresh, sums),
                    }
                }
                Level::Amx => {
                    self.fill_planes::<F>(index, panel);
                    match F::SIXTEENS {
                        true => tiles::supers::<8>(panel, x, F::MINIMA, fresh, sums),
                        false => tiles::supers::<4>(panel, x, F::MINIMA, fresh, sums),
                    }
                }
            }
        }
    }

    /// The sums of all blocks in `scratch`: `[LANES, blocks, ROWS, TOKENS]`.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn runs<F: RunBits>(&self, blocks: &Blocks, scratch: &mut Scratch) {
        let Scratch { runs: panels, words, sums, .. } = scratch;
        let len = LANES * self.panels;
        panels.resize(len.max(panels.len()), RunPanel::ZERO);
        if self.rows() < ROWS {
            panels[..len].fill(RunPanel::ZERO);
        }
        self.fill_runs::<F>(&mut panels[..len]);
        sums.at_least(LANES * blocks.count() * SUMS);
        let bias = match F::BIAS {
            Bias::Unsigned(bias) => bias,
            Bias::Signed => 128,
        };
        for (lane, panels) in panels[..len].chunks_exact(self.panels).enumerate() {
            let x = blocks.runs(lane);
            let parts = x.split_at(x.len() - if blocks.ends_in_half() { self.panels } else { 0 });
            let sums = sums[lane * blocks.count() * SUMS..][..blocks.count() * SUMS].as_mut_ptr();
            match self.level {
                Level::Scalar => {}
                Level::Avx2 => match F::BIAS {
                    Bias::Signed => signed_runs_avx2(panels, words, parts, blocks.words(lane), sums),
                    _ if F::MOST > 15 => runs_avx2::<4>(panels, parts, bias, F::OFFSET, sums),
                    _ => runs_avx2::<8>(panels, parts, bias, F::OFFSET, sums),
                },
                Level::AvxVnni => runs_avxvnni(panels, parts, bias, F::OFFSET, sums),
                Level::Avx512 => runs_avx512(panels, x, bias, F::OFFSET, sums),
                Level::Amx => tiles::runs(panels, x, F::OFFSET, sums),
            }
        }
    }
}

/// Where a task's numbers go.
struct Outputs<'a> {
    y: &'a Disjoint<'a, f32>,
    tokens: usize,
    /// Numbers in a row of `y`.
    out: usize,
    /// The first column that is this task's.
    first: usize,
    /// How many columns are.
    rows: usize,
}

impl Outputs<'_> {
    /// The tokens of a block, and where their numbers begin.
    #[inline(always)]
    fn places(&self, block: usize) -> impl Iterator<Item = usize> {
        let start = (block * TOKENS).min(self.tokens);
        let end = (start + TOKENS).min(self.tokens);
        (start..end).map(|token| token * self.out + self.first)
    }

    /// Asks for the memory of a block's numbers: rows of `y` are far apart, and a CPU has few
    /// stores that wait.
    #[inline(always)]
    unsafe fn ask(&self, block: usize) {
        for place in self.places(block) {
            // SAFETY: no other task writes these columns.
            let to = unsafe { self.y.slice(place, self.rows) };
            for line in to.chunks(16) {
                asm!("prefetchw [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags, readonly));
            }
        }
    }

    /// Adds up the lanes of a block and writes each token's numbers.
    /// Lanes are `lane` apart; there are `lanes`, the others are zero.
    #[allow(clippy::needless_range_loop)] // Indices tell registers apart.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn finish(&self, block: usize, sums: *const f32, lanes: usize, lane: usize) {
        static ZEROS: [f32; SUMS] = [0.0; SUMS];
        let mut from = [ZEROS.as_ptr(); LANES];
        for (i, from) in from[..lanes].iter_mut().enumerate() {
            *from = sums.add(i * lane);
        }
        let mut turned = [[0f32; ROWS]; TOKENS];
        let mut row = 0;
        while row < self.rows {
            for half in (0..self.places(block).count()).step_by(8) {
                let at = row * TOKENS + half;
                let t = turn(each!(r => {
                    let s = each!(i => _mm256_loadu_ps(from[i].add(at + r * TOKENS)));
                    let even = _mm256_add_ps(_mm256_add_ps(s[0], s[4]), _mm256_add_ps(s[2], s[6]));
                    let odd = _mm256_add_ps(_mm256_add_ps(s[1], s[5]), _mm256_add_ps(s[3], s[7]));
                    _mm256_add_ps(even, odd)
                }));
                for token in 0..8 {
                    _mm256_storeu_ps(turned[half + token].as_mut_ptr().add(row), t[token]);
                }
            }
            row += 8;
        }
        for (place, numbers) in self.places(block).zip(&turned) {
            // SAFETY: no other task writes these columns.
            let to = unsafe { self.y.slice(place, self.rows) };
            match to.as_mut_array::<ROWS>() {
                Some(whole) => *whole = *numbers,
                None => to.copy_from_slice(&numbers[..self.rows]),
            }
        }
    }
}
