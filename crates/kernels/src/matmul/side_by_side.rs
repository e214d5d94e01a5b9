//! Panels times blocks, with the rows of a block side by side in the lanes of registers.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the
// same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::panel::{ROWS, RunPanel, SUMS, SuperPanel};
use super::vector::{Avx2, Avx512, AvxVnni, Vector};
use crate::activations::{RunBlock, SuperBlock, TOKENS, WordBlock};
use crate::quant::RUN;

/// The blocks that N registers hold the rows of, or the first half of them.
const fn span<V: Vector>(n: usize) -> usize {
    (n * V::WIDTH).div_ceil(TOKENS)
}

/// In which of several blocks the lanes of a register are, and from which row on.
const fn place<V: Vector>(register: usize) -> (usize, usize) {
    let lane = register * V::WIDTH;
    (lane / TOKENS, lane % TOKENS)
}

/// Where in the sums of these blocks, `[blocks, ROWS, TOKENS]`, those of a row of weights and a
/// register are.
const fn sum_at<V: Vector>(row: usize, register: usize) -> usize {
    let (block, lane) = place::<V>(register);
    block * SUMS + row * TOKENS + lane
}

/// As many blocks of `panels` each as make pairs, and what is left.
fn in_pairs<T>(blocks: &[T], panels: usize) -> (&[T], &[T]) {
    blocks.split_at(blocks.len() / (2 * panels) * 2 * panels)
}

/// Adds the products of a panel with all blocks to `sums: [blocks, ROWS, TOKENS]`, or puts them
/// there if `fresh`.
/// N registers hold the lanes that are computed together, of one or several blocks, R rows of
/// weights are worked through side by side; a scale holds for QUADS * 4 codes, and partial sums for
/// HEAD * 4.
#[allow(clippy::needless_range_loop)] // See `products`.
#[inline(always)]
unsafe fn supers<
    V: Vector,
    const R: usize,
    const N: usize,
    const QUADS: usize,
    const HEAD: usize,
    const SIGNED: bool,
>(
    panel: &SuperPanel,
    blocks: &[SuperBlock],
    lowered: bool,
    minima: bool,
    fresh: bool,
    sums: *mut f32,
) {
    for (index, blocks) in blocks.chunks_exact(span::<V>(N)).enumerate() {
        let sums = sums.add(index * blocks.len() * SUMS);
        let x = std::array::from_fn(|n| {
            let (block, lane) = place::<V>(n);
            blocks[block].codes.as_ptr().cast::<i32>().add(lane)
        });
        let mut first = 0;
        while first < ROWS {
            let codes = panel.codes.as_ptr().add(first).cast::<i32>();
            let scale_words = panel.scales.as_ptr().cast::<i32>();
            let mut totals = [[V::zero(); N]; R];
            for scale in 0..64 / QUADS {
                for part in 0..QUADS / HEAD {
                    let start = scale * QUADS + part * HEAD;
                    let zeros = [[V::zero(); N]; R];
                    let partial = products::<V, 64, R, N, HEAD, SIGNED>(codes.add(start), x, start, zeros);
                    for r in 0..R {
                        let scale = V::spread(*scale_words.add((first + r) * 16 + scale));
                        for n in 0..N {
                            totals[r][n] = V::add(totals[r][n], V::scaled(partial[r][n], scale));
                        }
                    }
                }
            }
            for r in 0..R {
                let row = first + r;
                for n in 0..N {
                    let (block, lane) = place::<V>(n);
                    let block = &blocks[block];
                    let code_sums = if QUADS == 4 {
                        block.sums.as_ptr().cast::<i32>().add(lane)
                    } else {
                        block.wide_sums.as_ptr().cast::<i32>().add(lane)
                    };
                    let mut total = totals[r][n];
                    if lowered {
                        let words = panel.lowered.as_ptr().add(row).cast();
                        total = V::sub(total, of_sums::<V, QUADS>(words, code_sums));
                    }
                    let scales = V::load_floats(block.scales.as_ptr().add(lane));
                    let at = sums.add(sum_at::<V>(row, n));
                    let factor = V::mul(V::spread_float(*panel.scale.as_ptr().add(row)), scales);
                    let mut sum = V::mul_add(factor, V::float(total), V::load_unless(fresh, at));
                    if minima {
                        let words = panel.minima.as_ptr().add(row).cast();
                        let total = of_sums::<V, QUADS>(words, code_sums);
                        let factor = V::mul(V::spread_float(-*panel.minimum.as_ptr().add(row)), scales);
                        sum = V::mul_add(factor, V::float(total), sum);
                    }
                    V::store_floats(at, sum);
                }
            }
            first += R;
        }
    }
}

/// The sums of codes times a word each.
#[inline(always)]
unsafe fn of_sums<V: Vector, const QUADS: usize>(words: *const i32, code_sums: *const i32) -> V::I {
    let mut total = V::zero();
    for pair in 0..32 / QUADS {
        total = V::add_pairs(total, V::load(code_sums.add(pair * TOKENS)), V::spread(*words.add(pair)));
    }
    total
}

/// The partial sums of HEAD * 4 codes of R rows of weights, which are APART words apart, with N
/// registers, each of which is at its place in a block's quads, from quad `start` on.
// Indices, because what iterators do to arrays of registers isn't always unrolled.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn products<
    V: Vector,
    const APART: usize,
    const R: usize,
    const N: usize,
    const HEAD: usize,
    const SIGNED: bool,
>(
    codes: *const i32,
    x: [*const i32; N],
    start: usize,
    mut partial: [[V::I; N]; R],
) -> [[V::I; N]; R] {
    for quad in 0..HEAD {
        let mut xs = [V::zero(); N];
        for n in 0..N {
            xs[n] = V::load(x[n].add((start + quad) * TOKENS));
        }
        for r in 0..R {
            let w = V::spread(codes.add(r * APART + quad).read_unaligned());
            for n in 0..N {
                partial[r][n] = V::add_quads::<SIGNED>(partial[r][n], w, xs[n]);
            }
        }
    }
    partial
}

/// Of the blocks of `half`, only the first half of their rows is computed.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn supers_avx2<const QUADS: usize, const HEAD: usize, const SIGNED: bool>(
    panel: &SuperPanel,
    (whole, half): (&[SuperBlock], &[SuperBlock]),
    lowered: bool,
    minima: bool,
    fresh: bool,
    sums: *mut f32,
) {
    let (pairs, single) = in_pairs(whole, 1);
    supers::<Avx2, 1, 4, QUADS, HEAD, SIGNED>(panel, pairs, lowered, minima, fresh, sums);
    let sums = sums.add(pairs.len() * SUMS);
    supers::<Avx2, 2, 2, QUADS, HEAD, SIGNED>(panel, single, lowered, minima, fresh, sums);
    let sums = sums.add(single.len() * SUMS);
    supers::<Avx2, 4, 1, QUADS, HEAD, SIGNED>(panel, half, lowered, minima, fresh, sums);
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn supers_avxvnni<const QUADS: usize>(
    panel: &SuperPanel,
    (whole, half): (&[SuperBlock], &[SuperBlock]),
    lowered: bool,
    minima: bool,
    fresh: bool,
    sums: *mut f32,
) {
    supers::<AvxVnni, 2, 2, QUADS, QUADS, false>(panel, whole, lowered, minima, fresh, sums);
    let sums = sums.add(whole.len() * SUMS);
    supers::<AvxVnni, 4, 1, QUADS, QUADS, false>(panel, half, lowered, minima, fresh, sums);
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn supers_avx512<const QUADS: usize>(
    panel: &SuperPanel,
    blocks: &[SuperBlock],
    lowered: bool,
    minima: bool,
    fresh: bool,
    sums: *mut f32,
) {
    let (pairs, single) = in_pairs(blocks, 1);
    supers::<Avx512, 4, 2, QUADS, QUADS, false>(panel, pairs, lowered, minima, fresh, sums);
    let sums = sums.add(pairs.len() * SUMS);
    supers::<Avx512, 8, 1, QUADS, QUADS, false>(panel, single, lowered, minima, fresh, sums);
}

/// Runs whose activations stay in a core's first cache while all rows of weights go over them.
const PASS: usize = 8;

/// The codes of a lane's runs and of their activations: `[panels]` and `[blocks, panels]`.
trait Codes: Copy {
    /// The sums of products, and of what they begin with: of the rows of weights from `first` on,
    /// of panel `at`, with registers of these runs' activations.
    unsafe fn totals<V: Vector, const R: usize, const N: usize>(
        self,
        first: usize,
        at: usize,
        runs: [usize; N],
        from: [V::I; N],
    ) -> [[V::I; N]; R];
}

/// Codes as they are unpacked.
/// Sums of HEAD * 4 products have room where [`Vector::add_quads`] adds them.
#[derive(Clone, Copy)]
struct Bytes<'a, const HEAD: usize>(&'a [RunPanel], &'a [RunBlock]);

impl<const HEAD: usize> Codes for Bytes<'_, HEAD> {
    #[allow(clippy::needless_range_loop)] // See `products`.
    #[inline(always)]
    unsafe fn totals<V: Vector, const R: usize, const N: usize>(
        self,
        first: usize,
        at: usize,
        runs: [usize; N],
        from: [V::I; N],
    ) -> [[V::I; N]; R] {
        let codes = self.0[at].codes.as_ptr().add(first).cast::<i32>();
        let x = std::array::from_fn(|n| self.1[runs[n]].codes.as_ptr().cast::<i32>().add(place::<V>(n).1));
        if V::BEGINS_LOWERED {
            // Partial sums are whole there.
            return products::<V, 8, R, N, 8, false>(codes, x, 0, [from; R]);
        }
        let mut totals = [from; R];
        for part in 0..8 / HEAD {
            let start = part * HEAD;
            let zeros = [[V::zero(); N]; R];
            let partial = products::<V, 8, R, N, HEAD, false>(codes.add(start), x, start, zeros);
            for r in 0..R {
                for n in 0..N {
                    totals[r][n] = V::add(totals[r][n], V::whole(partial[r][n]));
                }
            }
        }
        totals
    }
}

/// Codes that have a sign and need all of a byte: a sum of two products of bytes fills a word, so
/// that each would be widened.
/// Here codes are, once for all blocks and all rows.
#[derive(Clone, Copy)]
struct Words<'a>(&'a [WordPanel], &'a [WordBlock]);

impl Codes for Words<'_> {
    #[allow(clippy::needless_range_loop)] // See `products`.
    #[inline(always)]
    unsafe fn totals<V: Vector, const R: usize, const N: usize>(
        self,
        first: usize,
        at: usize,
        runs: [usize; N],
        from: [V::I; N],
    ) -> [[V::I; N]; R] {
        let w = self.0[at].0.as_ptr().add(first).cast::<i32>();
        let x: [*const i32; N] =
            std::array::from_fn(|n| self.1[runs[n]].0.as_ptr().cast::<i32>().add(place::<V>(n).1));
        let mut totals = [from; R];
        for pair in 0..RUN / 2 {
            let mut xs = [V::zero(); N];
            for n in 0..N {
                xs[n] = V::load(x[n].add(pair * TOKENS));
            }
            for r in 0..R {
                let w = V::spread(*w.add(r * RUN / 2 + pair));
                for n in 0..N {
                    totals[r][n] = V::add_pairs(totals[r][n], w, xs[n]);
                }
            }
        }
        totals
    }
}

/// The products of a lane's runs with those of all blocks, `[blocks, panels]`: puts them into
/// `sums: [blocks, ROWS, TOKENS]`.
/// `bias` was added to codes.
#[allow(clippy::needless_range_loop)] // See `products`.
#[inline(always)]
unsafe fn runs<V: Vector, const R: usize, const N: usize>(
    panels: &[RunPanel],
    blocks: &[RunBlock],
    bias: i16,
    offset: bool,
    sums: *mut f32,
    codes: impl Codes,
) {
    // A sum of a run's codes is within a word's range; the word above it counts nothing.
    let less = V::spread(i32::from(-bias as u16));
    let span = span::<V>(N);
    for index in (0..blocks.len() / panels.len()).step_by(span) {
        let sums = sums.add(index * SUMS);
        for start in (0..panels.len()).step_by(PASS) {
            for first in (0..ROWS).step_by(R) {
                let mut lanes = [[V::zero_floats(); N]; R];
                for r in 0..R {
                    for n in 0..N {
                        lanes[r][n] = V::load_unless(start == 0, sums.add(sum_at::<V>(first + r, n)));
                    }
                }
                for at in start..panels.len().min(start + PASS) {
                    let panel = &panels[at];
                    let runs = std::array::from_fn(|n| (index + place::<V>(n).0) * panels.len() + at);
                    let sums_of = |n: usize| V::load(blocks[runs[n]].sums.as_ptr().add(place::<V>(n).1));
                    let mut from = [V::zero(); N];
                    if V::BEGINS_LOWERED && bias != 0 {
                        for n in 0..N {
                            from[n] = V::add_pairs(from[n], sums_of(n), less);
                        }
                    }
                    let totals = codes.totals::<V, R, N>(first, at, runs, from);
                    for n in 0..N {
                        let scales = V::load_floats(blocks[runs[n]].scales.as_ptr().add(place::<V>(n).1));
                        let code_sums = sums_of(n);
                        for r in 0..R {
                            let total = if V::BEGINS_LOWERED || bias == 0 {
                                totals[r][n]
                            } else {
                                V::add_pairs(totals[r][n], code_sums, less)
                            };
                            let factor = V::mul(V::spread_float(panel.scales[first + r]), scales);
                            lanes[r][n] = V::mul_add(factor, V::float(total), lanes[r][n]);
                            if offset {
                                let factor = V::mul(V::spread_float(panel.offsets[first + r]), scales);
                                lanes[r][n] = V::mul_add(factor, V::float(code_sums), lanes[r][n]);
                            }
                        }
                    }
                }
                for r in 0..R {
                    for n in 0..N {
                        V::store_floats(sums.add(sum_at::<V>(first + r, n)), lanes[r][n]);
                    }
                }
            }
        }
    }
}

/// [`runs`] of codes as bytes.
#[inline(always)]
unsafe fn byte_runs<V: Vector, const R: usize, const N: usize, const HEAD: usize>(
    panels: &[RunPanel],
    blocks: &[RunBlock],
    bias: i16,
    offset: bool,
    sums: *mut f32,
) {
    runs::<V, R, N>(panels, blocks, bias, offset, sums, Bytes::<HEAD>(panels, blocks));
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn runs_avx2<const HEAD: usize>(
    panels: &[RunPanel],
    (whole, half): (&[RunBlock], &[RunBlock]),
    bias: i16,
    offset: bool,
    sums: *mut f32,
) {
    let (pairs, single) = in_pairs(whole, panels.len());
    byte_runs::<Avx2, 1, 4, HEAD>(panels, pairs, bias, offset, sums);
    let sums = sums.add(pairs.len() / panels.len() * SUMS);
    byte_runs::<Avx2, 4, 2, HEAD>(panels, single, bias, offset, sums);
    let sums = sums.add(single.len() / panels.len() * SUMS);
    byte_runs::<Avx2, 8, 1, HEAD>(panels, half, bias, offset, sums);
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn runs_avxvnni(
    panels: &[RunPanel],
    (whole, half): (&[RunBlock], &[RunBlock]),
    bias: i16,
    offset: bool,
    sums: *mut f32,
) {
    byte_runs::<AvxVnni, 2, 2, 8>(panels, whole, bias, offset, sums);
    let sums = sums.add(whole.len() / panels.len() * SUMS);
    byte_runs::<AvxVnni, 4, 1, 8>(panels, half, bias, offset, sums);
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn runs_avx512(
    panels: &[RunPanel],
    blocks: &[RunBlock],
    bias: i16,
    offset: bool,
    sums: *mut f32,
) {
    let (pairs, single) = in_pairs(blocks, panels.len());
    byte_runs::<Avx512, 4, 2, 8>(panels, pairs, bias, offset, sums);
    let sums = sums.add(pairs.len() / panels.len() * SUMS);
    byte_runs::<Avx512, 8, 1, 8>(panels, single, bias, offset, sums);
}

/// The codes of a [`RunPanel`] as words.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct WordPanel([[i16; RUN]; ROWS]);

/// As [`runs_avx2`], of codes as [`Words`]: those of the panels are put into `words`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn signed_runs_avx2(
    panels: &[RunPanel],
    words: &mut Vec<WordPanel>,
    (whole, half): (&[RunBlock], &[RunBlock]),
    word_blocks: &[WordBlock],
    sums: *mut f32,
) {
    assert_eq!(whole.len() + half.len(), word_blocks.len(), "blocks that nobody asked for as words");
    words.resize(panels.len(), WordPanel([[0; RUN]; ROWS]));
    for (panel, words) in panels.iter().zip(words.iter_mut()) {
        for (codes, words) in panel.codes.iter().zip(&mut words.0) {
            for (codes, words) in codes.as_chunks::<16>().0.iter().zip(words.as_chunks_mut::<16>().0) {
                let widened = _mm256_cvtepi8_epi16(_mm_loadu_si128(codes.as_ptr().cast()));
                _mm256_storeu_si256(words.as_mut_ptr().cast(), widened);
            }
        }
    }
    let words = &words[..panels.len()];
    let (pairs, single) = in_pairs(whole, panels.len());
    runs::<Avx2, 1, 4>(panels, pairs, 0, false, sums, Words(words, word_blocks));
    let (sums, word_blocks) = (sums.add(pairs.len() / panels.len() * SUMS), &word_blocks[pairs.len()..]);
    runs::<Avx2, 4, 2>(panels, single, 0, false, sums, Words(words, word_blocks));
    let (sums, word_blocks) = (sums.add(single.len() / panels.len() * SUMS), &word_blocks[single.len()..]);
    runs::<Avx2, 8, 1>(panels, half, 0, false, sums, Words(words, word_blocks));
}
