//! Panels times blocks, with the rows of a block side by side in the lanes of registers.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::panel::{ROWS, RunPanel, SUMS, SuperPanel};
use super::vector::{Avx2, Avx512, AvxVnni, Vector};
use crate::activations::{RunBlock, SuperBlock, TOKENS, WordBlock};
use crate::quant::RUN;

/// Adds the products of a panel with all blocks to `sums: [blocks, ROWS, TOKENS]`, or puts them there if `fresh`. N registers hold the lanes of a
/// block that are computed, R rows of weights are worked through side by side; a scale holds for QUADS * 4 codes, and partial
/// sums for HEAD * 4.
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
    for (index, block) in blocks.iter().enumerate() {
        let x = block.codes.as_ptr().cast::<i32>();
        let code_sums =
            if QUADS == 4 { block.sums.as_ptr().cast() } else { block.wide_sums.as_ptr().cast::<i32>() };
        let mut first = 0;
        while first < ROWS {
            let codes = panel.codes.as_ptr().add(first).cast::<i32>();
            let scale_words = panel.scales.as_ptr().cast::<i32>();
            let mut totals = [[V::zero(); N]; R];
            for scale in 0..64 / QUADS {
                for part in 0..QUADS / HEAD {
                    let start = scale * QUADS + part * HEAD;
                    let partial =
                        products::<V, 64, R, N, HEAD, SIGNED>(codes.add(start), x.add(start * TOKENS));
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
                    let code_sums = code_sums.add(n * V::WIDTH);
                    let mut total = totals[r][n];
                    if lowered {
                        let words = panel.lowered.as_ptr().add(row).cast();
                        total = V::sub(total, of_sums::<V, QUADS>(words, code_sums));
                    }
                    let scales = V::load_floats(block.scales.as_ptr().add(n * V::WIDTH));
                    let at = sums.add(index * SUMS + row * TOKENS + n * V::WIDTH);
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

/// The partial sums of HEAD * 4 codes of R rows of weights, which are APART words apart, with N registers of a block.
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
    x: *const i32,
) -> [[V::I; N]; R] {
    let mut partial = [[V::zero(); N]; R];
    for quad in 0..HEAD {
        let mut xs = [V::zero(); N];
        for n in 0..N {
            xs[n] = V::load(x.add(quad * TOKENS + n * V::WIDTH));
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
    supers::<Avx2, 2, 2, QUADS, HEAD, SIGNED>(panel, whole, lowered, minima, fresh, sums);
    let sums = sums.add(whole.len() * SUMS);
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
    supers::<Avx512, 8, 1, QUADS, QUADS, false>(panel, blocks, lowered, minima, fresh, sums);
}

/// The products of a lane's runs with those of all blocks, `[blocks, panels]`: puts them into `sums: [blocks, ROWS, TOKENS]`.
/// `bias` was added to codes.
#[allow(clippy::needless_range_loop)] // See `products`.
#[inline(always)]
unsafe fn runs<V: Vector, const R: usize, const N: usize, const HEAD: usize>(
    panels: &[RunPanel],
    blocks: &[RunBlock],
    bias: i16,
    offset: bool,
    sums: *mut f32,
) {
    // A sum of a run's codes is within a word's range; the word above it counts nothing.
    let less = V::spread(i32::from(-bias as u16));
    for (index, block) in blocks.chunks_exact(panels.len()).enumerate() {
        let mut first = 0;
        while first < ROWS {
            let mut lanes = [[V::zero_floats(); N]; R];
            for (panel, block) in panels.iter().zip(block) {
                let (codes, x) =
                    (panel.codes.as_ptr().add(first).cast::<i32>(), block.codes.as_ptr().cast::<i32>());
                let mut totals = [[V::zero(); N]; R];
                for part in 0..8 / HEAD {
                    let start = part * HEAD;
                    let partial =
                        products::<V, 8, R, N, HEAD, false>(codes.add(start), x.add(start * TOKENS));
                    for r in 0..R {
                        for n in 0..N {
                            totals[r][n] = V::add(totals[r][n], V::whole(partial[r][n]));
                        }
                    }
                }
                for n in 0..N {
                    let scales = V::load_floats(block.scales.as_ptr().add(n * V::WIDTH));
                    let code_sums = V::load(block.sums.as_ptr().add(n * V::WIDTH));
                    for r in 0..R {
                        let total = if bias == 0 {
                            totals[r][n]
                        } else {
                            V::add_pairs(totals[r][n], code_sums, less)
                        };
                        let scale = *panel.scales.as_ptr().add(first + r);
                        let factor = V::mul(V::spread_float(scale), scales);
                        lanes[r][n] = V::mul_add(factor, V::float(total), lanes[r][n]);
                        if offset {
                            let offset = *panel.offsets.as_ptr().add(first + r);
                            let factor = V::mul(V::spread_float(offset), scales);
                            lanes[r][n] = V::mul_add(factor, V::float(code_sums), lanes[r][n]);
                        }
                    }
                }
            }
            for r in 0..R {
                for n in 0..N {
                    V::store_floats(
                        sums.add(index * SUMS + (first + r) * TOKENS + n * V::WIDTH),
                        lanes[r][n],
                    );
                }
            }
            first += R;
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn runs_avx2<const HEAD: usize>(
    panels: &[RunPanel],
    (whole, half): (&[RunBlock], &[RunBlock]),
    bias: i16,
    offset: bool,
    sums: *mut f32,
) {
    runs::<Avx2, 4, 2, HEAD>(panels, whole, bias, offset, sums);
    let sums = sums.add(whole.len() / panels.len() * SUMS);
    runs::<Avx2, 8, 1, HEAD>(panels, half, bias, offset, sums);
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn runs_avxvnni(
    panels: &[RunPanel],
    (whole, half): (&[RunBlock], &[RunBlock]),
    bias: i16,
    offset: bool,
    sums: *mut f32,
) {
    runs::<AvxVnni, 2, 2, 8>(panels, whole, bias, offset, sums);
    let sums = sums.add(whole.len() / panels.len() * SUMS);
    runs::<AvxVnni, 4, 1, 8>(panels, half, bias, offset, sums);
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn runs_avx512(
    panels: &[RunPanel],
    blocks: &[RunBlock],
    bias: i16,
    offset: bool,
    sums: *mut f32,
) {
    runs::<Avx512, 8, 1, 8>(panels, blocks, bias, offset, sums);
}

/// The codes of a [`RunPanel`] as words.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct WordPanel([[i16; RUN]; ROWS]);

/// As [`runs_avx2`], of codes that have a sign and need all of a byte: a sum of two products of bytes fills a word, so that each
/// would be widened. Here codes are, once for all blocks and all rows.
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
    let (whole_words, half_words) = word_blocks.split_at(whole.len());
    signed_runs::<Avx2, 4, 2>(panels, words, whole, whole_words, sums);
    let sums = sums.add(whole.len() / panels.len() * SUMS);
    signed_runs::<Avx2, 8, 1>(panels, words, half, half_words, sums);
}

/// As [`runs`], of codes as words.
#[allow(clippy::needless_range_loop)] // See `products`.
#[inline(always)]
unsafe fn signed_runs<V: Vector, const R: usize, const N: usize>(
    panels: &[RunPanel],
    words: &[WordPanel],
    blocks: &[RunBlock],
    word_blocks: &[WordBlock],
    sums: *mut f32,
) {
    let blocks = blocks.chunks_exact(panels.len()).zip(word_blocks.chunks_exact(panels.len()));
    for (index, (block, word_block)) in blocks.enumerate() {
        let sums = sums.add(index * SUMS);
        for first in (0..ROWS).step_by(R) {
            let mut lanes = [[V::zero_floats(); N]; R];
            for (at, (panel, block)) in panels.iter().zip(block).enumerate() {
                let w = words[at].0.as_ptr().add(first).cast::<i32>();
                let x = word_block[at].0.as_ptr().cast::<i32>();
                let mut totals = [[V::zero(); N]; R];
                for pair in 0..RUN / 2 {
                    let mut xs = [V::zero(); N];
                    for n in 0..N {
                        xs[n] = V::load(x.add(pair * TOKENS + n * V::WIDTH));
                    }
                    for r in 0..R {
                        let w = V::spread(*w.add(r * RUN / 2 + pair));
                        for n in 0..N {
                            totals[r][n] = V::add_pairs(totals[r][n], w, xs[n]);
                        }
                    }
                }
                for n in 0..N {
                    let scales = V::load_floats(block.scales.as_ptr().add(n * V::WIDTH));
                    for r in 0..R {
                        let factor = V::mul(V::spread_float(panel.scales[first + r]), scales);
                        lanes[r][n] = V::mul_add(factor, V::float(totals[r][n]), lanes[r][n]);
                    }
                }
            }
            for r in 0..R {
                for n in 0..N {
                    V::store_floats(sums.add((first + r) * TOKENS + n * V::WIDTH), lanes[r][n]);
                }
            }
        }
    }
}
