//! Products of weight panels and activation tiles: each lane of a register is a row of activations.
//!
//! ```text
//! four quants of a row of weights, in every lane     w0 w1 w2 w3 | w0 w1 w2 w3 | w0 w1 w2 w3 | ...
//! times four of sixteen rows of activations          row 0       | row 1       | row 2       | ...
//! added to R x N registers of partial sums           R rows of weights, N registers of activations
//! ```
//!
//! A lane accumulates four products at a time.
//! The instruction vpdpbusd adds them to 32 bits.
//! AVX2's vpmaddubsw adds pairs to words, and saturates: partial sums are limited to as many
//! products as words can hold.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::pack::{BlockPanel, ROWS, SUMS, SuperPanel};
use crate::activations::{BlockTile, SuperTile, TILE_ROWS, WordTile};
use crate::format::BLOCK;
use crate::matmul::vector::{Avx2, Avx512, AvxVnni, Vector};

/// How many tiles' rows N registers hold; 1 also for the first half of a tile.
const fn span<V: Vector>(n: usize) -> usize {
    (n * V::WIDTH).div_ceil(TILE_ROWS)
}

/// The tile of a register's lanes, out of several, and the first of their rows.
const fn place<V: Vector>(register: usize) -> (usize, usize) {
    let lane = register * V::WIDTH;
    (lane / TILE_ROWS, lane % TILE_ROWS)
}

/// The index in the sums of these tiles, `[tiles, ROWS, TILE_ROWS]`, for a row of weights and a
/// register.
const fn sum_at<V: Vector>(row: usize, register: usize) -> usize {
    let (tile, lane) = place::<V>(register);
    tile * SUMS + row * TILE_ROWS + lane
}

/// The properties of a panel of super-blocks, and the destination of its products.
#[derive(Clone, Copy)]
pub(super) struct SuperSums {
    /// Whether quants have zero points.
    pub zero_points: bool,
    /// Whether there are minima.
    pub minima: bool,
    /// Whether sums are overwritten rather than added to.
    pub fresh: bool,
    /// `[tiles, ROWS, TILE_ROWS]`
    pub sums: *mut f32,
}

/// Adds the products of a panel with as many tiles as form whole spans, and returns the remaining
/// tiles and the destination of their sums.
/// N registers hold the lanes that are computed together, from one or several tiles.
/// R rows of weights are processed together.
/// A scale applies to QUADS * 4 quants, and partial sums have headroom for HEADROOM * 4 products.
#[allow(clippy::needless_range_loop)] // See `products`.
#[inline(always)]
unsafe fn super_blocks<
    'a,
    V: Vector,
    const R: usize,
    const N: usize,
    const QUADS: usize,
    const HEADROOM: usize,
    const SIGNED: bool,
>(
    panel: &SuperPanel,
    tiles: &'a [SuperTile],
    to: SuperSums,
) -> (&'a [SuperTile], SuperSums) {
    let SuperSums { zero_points, minima, fresh, sums } = to;
    let spans = tiles.chunks_exact(span::<V>(N));
    let done = tiles.len() - spans.remainder().len();
    let rest = (spans.remainder(), SuperSums { sums: sums.add(done * SUMS), ..to });
    for (index, tiles) in spans.enumerate() {
        let sums = sums.add(index * tiles.len() * SUMS);
        let x = std::array::from_fn(|n| {
            let (tile, lane) = place::<V>(n);
            tiles[tile].quants.as_ptr().cast::<i32>().add(lane)
        });
        let mut first = 0;
        while first < ROWS {
            let quants = panel.quants.as_ptr().add(first).cast::<i32>();
            let scale_words = panel.scales.as_ptr().cast::<i32>();
            let mut totals = [[V::zero(); N]; R];
            for scale in 0..64 / QUADS {
                for part in 0..QUADS / HEADROOM {
                    let start = scale * QUADS + part * HEADROOM;
                    let zeros = [[V::zero(); N]; R];
                    let partial =
                        products::<V, 64, R, N, HEADROOM, SIGNED>(quants.add(start), x, start, zeros);
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
                    let (tile, lane) = place::<V>(n);
                    let tile = &tiles[tile];
                    let quant_sums = if QUADS == 4 {
                        tile.sums.as_ptr().cast::<i32>().add(lane)
                    } else {
                        tile.wide_sums.as_ptr().cast::<i32>().add(lane)
                    };
                    let mut total = totals[r][n];
                    if zero_points {
                        let words = panel.zero_points.as_ptr().add(row).cast();
                        total = V::sub(total, of_sums::<V, QUADS>(words, quant_sums));
                    }
                    let scales = V::load_floats(tile.scales.as_ptr().add(lane));
                    let at = sums.add(sum_at::<V>(row, n));
                    let factor = V::mul(V::spread_float(*panel.scale.as_ptr().add(row)), scales);
                    let mut sum = V::mul_add(factor, V::float(total), V::load_unless(fresh, at));
                    if minima {
                        let words = panel.minima.as_ptr().add(row).cast();
                        let total = of_sums::<V, QUADS>(words, quant_sums);
                        let factor = V::mul(V::spread_float(-*panel.minimum.as_ptr().add(row)), scales);
                        sum = V::mul_add(factor, V::float(total), sum);
                    }
                    V::store_floats(at, sum);
                }
            }
            first += R;
        }
    }
    rest
}

/// The sums of quants, each multiplied by a word.
#[inline(always)]
unsafe fn of_sums<V: Vector, const QUADS: usize>(words: *const i32, quant_sums: *const i32) -> V::I {
    let mut total = V::zero();
    for pair in 0..32 / QUADS {
        total = V::add_pairs(total, V::load(quant_sums.add(pair * TILE_ROWS)), V::spread(*words.add(pair)));
    }
    total
}

/// The partial sums of LEN * 4 quants of R rows of weights, which are APART words apart.
/// Each of the N registers of activations has its own position in a tile's quads; they start at
/// quad `start`.
// Uses indices, because iterators over arrays of registers aren't always unrolled.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn products<
    V: Vector,
    const APART: usize,
    const R: usize,
    const N: usize,
    const LEN: usize,
    const SIGNED: bool,
>(
    quants: *const i32,
    x: [*const i32; N],
    start: usize,
    mut partial: [[V::I; N]; R],
) -> [[V::I; N]; R] {
    for quad in 0..LEN {
        let mut xs = [V::zero(); N];
        for n in 0..N {
            xs[n] = V::load(x[n].add((start + quad) * TILE_ROWS));
        }
        for r in 0..R {
            let w = V::spread(quants.add(r * APART + quad).read_unaligned());
            for n in 0..N {
                partial[r][n] = V::add_quads::<SIGNED>(partial[r][n], w, xs[n]);
            }
        }
    }
    partial
}

/// For the tiles in `half`, computes only the first half of their rows.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn super_blocks_avx2<const QUADS: usize, const HEADROOM: usize, const SIGNED: bool>(
    panel: &SuperPanel,
    (whole, half): (&[SuperTile], &[SuperTile]),
    to: SuperSums,
) {
    let (single, to) = super_blocks::<Avx2, 1, 4, QUADS, HEADROOM, SIGNED>(panel, whole, to);
    let (_, to) = super_blocks::<Avx2, 2, 2, QUADS, HEADROOM, SIGNED>(panel, single, to);
    super_blocks::<Avx2, 4, 1, QUADS, HEADROOM, SIGNED>(panel, half, to);
}

/// As [`super_blocks_avx2`].
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn super_blocks_avxvnni<const QUADS: usize>(
    panel: &SuperPanel,
    (whole, half): (&[SuperTile], &[SuperTile]),
    to: SuperSums,
) {
    let (_, to) = super_blocks::<AvxVnni, 2, 2, QUADS, QUADS, false>(panel, whole, to);
    super_blocks::<AvxVnni, 4, 1, QUADS, QUADS, false>(panel, half, to);
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn super_blocks_avx512<const QUADS: usize>(
    panel: &SuperPanel,
    tiles: &[SuperTile],
    to: SuperSums,
) {
    let (single, to) = super_blocks::<Avx512, 4, 2, QUADS, QUADS, false>(panel, tiles, to);
    super_blocks::<Avx512, 8, 1, QUADS, QUADS, false>(panel, single, to);
}

/// Blocks whose activations stay in a core's L1 cache while all rows of weights are multiplied.
const PASS: usize = 8;

/// The quants of a lane's blocks and of their activations: `[chunks]` and `[tiles, chunks]`.
trait Quants: Copy {
    /// The sums of products, added to initial values, for the rows of weights from `first` on of
    /// panel `at`, with registers of these blocks' activations.
    unsafe fn totals<V: Vector, const R: usize, const N: usize>(
        self,
        first: usize,
        at: usize,
        blocks: [usize; N],
        from: [V::I; N],
    ) -> [[V::I; N]; R];
}

/// Quants as unpacked.
/// Sums of HEADROOM * 4 products don't overflow in [`Vector::add_quads`].
#[derive(Clone, Copy)]
struct Bytes<'a, const HEADROOM: usize>(&'a [BlockPanel], &'a [BlockTile]);

impl<const HEADROOM: usize> Quants for Bytes<'_, HEADROOM> {
    #[allow(clippy::needless_range_loop)] // See `products`.
    #[inline(always)]
    unsafe fn totals<V: Vector, const R: usize, const N: usize>(
        self,
        first: usize,
        at: usize,
        blocks: [usize; N],
        from: [V::I; N],
    ) -> [[V::I; N]; R] {
        let quants = self.0[at].quants.as_ptr().add(first).cast::<i32>();
        let x = std::array::from_fn(|n| self.1[blocks[n]].quants.as_ptr().cast::<i32>().add(place::<V>(n).1));
        if V::STARTS_CORRECTED {
            // Here partial sums are final.
            return products::<V, 8, R, N, 8, false>(quants, x, 0, [from; R]);
        }
        let mut totals = [from; R];
        for part in 0..8 / HEADROOM {
            let start = part * HEADROOM;
            let zeros = [[V::zero(); N]; R];
            let partial = products::<V, 8, R, N, HEADROOM, false>(quants.add(start), x, start, zeros);
            for r in 0..R {
                for n in 0..N {
                    totals[r][n] = V::add(totals[r][n], V::whole(partial[r][n]));
                }
            }
        }
        totals
    }
}

/// Signed quants that need a full byte.
/// A sum of two of their products fills a word, so each sum would have to be widened.
/// Instead the quants are widened, once for all tiles and all rows.
#[derive(Clone, Copy)]
struct Words<'a>(&'a [WordPanel], &'a [WordTile]);

impl Quants for Words<'_> {
    #[allow(clippy::needless_range_loop)] // See `products`.
    #[inline(always)]
    unsafe fn totals<V: Vector, const R: usize, const N: usize>(
        self,
        first: usize,
        at: usize,
        blocks: [usize; N],
        from: [V::I; N],
    ) -> [[V::I; N]; R] {
        let w = self.0[at].0.as_ptr().add(first).cast::<i32>();
        let x: [*const i32; N] =
            std::array::from_fn(|n| self.1[blocks[n]].0.as_ptr().cast::<i32>().add(place::<V>(n).1));
        let mut totals = [from; R];
        for pair in 0..BLOCK / 2 {
            let mut xs = [V::zero(); N];
            for n in 0..N {
                xs[n] = V::load(x[n].add(pair * TILE_ROWS));
            }
            for r in 0..R {
                let w = V::spread(*w.add(r * BLOCK / 2 + pair));
                for n in 0..N {
                    totals[r][n] = V::add_pairs(totals[r][n], w, xs[n]);
                }
            }
        }
        totals
    }
}

/// The properties of a lane's panels of blocks, and the destination of their products.
#[derive(Clone, Copy)]
pub(super) struct BlockSums {
    /// The zero point that was added to quants.
    pub zero_point: i16,
    /// Whether blocks have an offset.
    pub offset: bool,
    /// `[tiles, ROWS, TILE_ROWS]`: overwritten with the sums.
    pub sums: *mut f32,
}

/// Writes the products of a lane's blocks with those of tiles, `[tiles, chunks]`, to their
/// destination, for as many tiles as form whole spans.
/// Returns how many these are, and the destination of the remaining sums.
#[allow(clippy::needless_range_loop)] // See `products`.
#[inline(always)]
unsafe fn blocks<V: Vector, const R: usize, const N: usize>(
    panels: &[BlockPanel],
    tiles: &[BlockTile],
    to: BlockSums,
    quants: impl Quants,
) -> (usize, BlockSums) {
    let BlockSums { zero_point, offset, sums } = to;
    // A sum of a block's quants fits into a word; the word above it is ignored.
    let less = V::spread(i32::from(-zero_point as u16));
    let span = span::<V>(N);
    let done = tiles.len() / panels.len() / span * span;
    for index in (0..done).step_by(span) {
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
                    let blocks = std::array::from_fn(|n| (index + place::<V>(n).0) * panels.len() + at);
                    let sums_of = |n: usize| V::load(tiles[blocks[n]].sums.as_ptr().add(place::<V>(n).1));
                    let mut from = [V::zero(); N];
                    if V::STARTS_CORRECTED && zero_point != 0 {
                        for n in 0..N {
                            from[n] = V::add_pairs(from[n], sums_of(n), less);
                        }
                    }
                    let totals = quants.totals::<V, R, N>(first, at, blocks, from);
                    for n in 0..N {
                        let scales = V::load_floats(tiles[blocks[n]].scales.as_ptr().add(place::<V>(n).1));
                        let quant_sums = sums_of(n);
                        for r in 0..R {
                            let total = if V::STARTS_CORRECTED || zero_point == 0 {
                                totals[r][n]
                            } else {
                                V::add_pairs(totals[r][n], quant_sums, less)
                            };
                            let factor = V::mul(V::spread_float(panel.scales[first + r]), scales);
                            lanes[r][n] = V::mul_add(factor, V::float(total), lanes[r][n]);
                            if offset {
                                let factor = V::mul(V::spread_float(panel.offsets[first + r]), scales);
                                lanes[r][n] = V::mul_add(factor, V::float(quant_sums), lanes[r][n]);
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
    (done, BlockSums { sums: sums.add(done * SUMS), ..to })
}

/// [`blocks`] for quants as bytes; returns the remaining tiles.
#[inline(always)]
unsafe fn byte_blocks<'a, V: Vector, const R: usize, const N: usize, const HEADROOM: usize>(
    panels: &[BlockPanel],
    tiles: &'a [BlockTile],
    to: BlockSums,
) -> (&'a [BlockTile], BlockSums) {
    let (done, to) = blocks::<V, R, N>(panels, tiles, to, Bytes::<HEADROOM>(panels, tiles));
    (&tiles[done * panels.len()..], to)
}

/// For the tiles in `half`, computes only the first half of their rows.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn blocks_avx2<const HEADROOM: usize>(
    panels: &[BlockPanel],
    (whole, half): (&[BlockTile], &[BlockTile]),
    to: BlockSums,
) {
    let (single, to) = byte_blocks::<Avx2, 1, 4, HEADROOM>(panels, whole, to);
    let (_, to) = byte_blocks::<Avx2, 4, 2, HEADROOM>(panels, single, to);
    byte_blocks::<Avx2, 8, 1, HEADROOM>(panels, half, to);
}

/// As [`blocks_avx2`].
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn blocks_avxvnni(
    panels: &[BlockPanel],
    (whole, half): (&[BlockTile], &[BlockTile]),
    to: BlockSums,
) {
    let (_, to) = byte_blocks::<AvxVnni, 2, 2, 8>(panels, whole, to);
    byte_blocks::<AvxVnni, 4, 1, 8>(panels, half, to);
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn blocks_avx512(panels: &[BlockPanel], tiles: &[BlockTile], to: BlockSums) {
    let (single, to) = byte_blocks::<Avx512, 4, 2, 8>(panels, tiles, to);
    byte_blocks::<Avx512, 8, 1, 8>(panels, single, to);
}

/// The quants of a [`BlockPanel`] as words.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct WordPanel([[i16; BLOCK]; ROWS]);

/// As [`blocks_avx2`], with quants as [`Words`]: those of the panels are written to `words`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn word_blocks_avx2(
    panels: &[BlockPanel],
    words: &mut Vec<WordPanel>,
    (whole, half): (&[BlockTile], &[BlockTile]),
    word_tiles: &[WordTile],
    sums: *mut f32,
) {
    assert_eq!(whole.len() + half.len(), word_tiles.len(), "tiles that were not widened");
    words.resize(panels.len(), WordPanel([[0; BLOCK]; ROWS]));
    for (panel, words) in panels.iter().zip(words.iter_mut()) {
        for (quants, words) in panel.quants.iter().zip(&mut words.0) {
            for (quants, words) in quants.as_chunks::<16>().0.iter().zip(words.as_chunks_mut::<16>().0) {
                let widened = _mm256_cvtepi8_epi16(_mm_loadu_si128(quants.as_ptr().cast()));
                _mm256_storeu_si256(words.as_mut_ptr().cast(), widened);
            }
        }
    }
    let words = &words[..panels.len()];
    let to = BlockSums { zero_point: 0, offset: false, sums };
    let (pairs, to) = blocks::<Avx2, 1, 4>(panels, whole, to, Words(words, word_tiles));
    let (single, word_tiles) = (&whole[pairs * panels.len()..], &word_tiles[pairs * panels.len()..]);
    let (_, to) = blocks::<Avx2, 4, 2>(panels, single, to, Words(words, word_tiles));
    blocks::<Avx2, 8, 1>(panels, half, to, Words(words, &word_tiles[single.len()..]));
}
