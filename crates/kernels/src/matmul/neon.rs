//! GEMM with NEON: unpacks sixteen rows of weights once, then multiplies four at a time with half a
//! tile: eight rows of activations, whose quants are interleaved in quads.
//!
//! ```text
//! activations, a quad | x0 x0 x0 x0 | x1 x1 x1 x1 | x2 .. | x3 .. |   of four rows
//! weights, a quad     | w w w w     | w w w w     | w ..  | w ..  |   of one row
//! sums                |     x0      |     x1      |  x2   |  x3   |
//! ```
//!
//! Eight of the 32 registers hold the sums of four rows of weights with eight of activations.
//! Unscaled sums take eight more, or sixteen without FEAT_DotProd.
//!
//! The sums equal those of `dot.rs`, number by number: integers within a super-block or a block,
//! then floats in lane `chunk % 8` or `block % 8`.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::needless_range_loop)] // Indices tell registers apart.

use std::arch::aarch64::*;
use std::cell::RefCell;
use std::ops::Range;
use std::thread::LocalKey;

use super::Product;
use super::plan::Kernel;
use crate::activations::{Activations, TILE_ROWS, Tiles};
use crate::format::SUPER_BLOCK;
use crate::lanes::LANES;
use crate::quant::neon::{
    Blocks, Dot, Sdot, SimdBlock, SimdSuperBlock, Smull, SuperBlocks, UnpackedBlocks, UnpackedSuperBlock,
};
use crate::quant::{Codec, MAX_BYTES, whole, with_format};
use crate::{Cpu, Format};

/// Rows of weights per task: unpacked, they stay in the L2 cache.
const ROWS: usize = 16;
/// Rows of weights multiplied together.
const R: usize = 4;
/// Registers that hold a quad of each row of activations.
const N: usize = 2;
/// Rows of activations multiplied together: half a tile.
const HALF: usize = 4 * N;

/// The sums of R rows of weights and HALF rows of activations, in each lane.
type Lanes = [[[float32x4_t; N]; R]; LANES];

/// As [`super::matmul`], for a product with at least one row.
pub(super) fn multiply(cpu: &Cpu, product: &Product, x: &mut Activations) {
    let x_rows = product.x_rows(x);
    x.make_tiles(cpu, product.row_ids, x_rows, false);
    let (format, tiles, chunks) = (product.w.format, x.tiles(), x.chunks());
    let row_bytes = product.w.bytes.len() / product.out;
    cpu.threads.run(product.out.div_ceil(ROWS), &|task| {
        let rows = task * ROWS..((task + 1) * ROWS).min(product.out);
        let bytes = &product.w.bytes[rows.start * row_bytes..rows.end * row_bytes];
        let task = Task { product, bytes, row_bytes, chunks, tiles, x_rows, rows };
        // SAFETY: the kernel belongs to `isa`, whose value proves that the CPU supports it.
        // Tasks have disjoint rows of weights.
        unsafe {
            match product.rule.kernel {
                Kernel::GemmDotProd => task.multiply_dotprod(format),
                _ => task.multiply::<Smull>(format),
            }
        }
    });
}

/// Some rows of weights, and all rows of activations.
struct Task<'a> {
    product: &'a Product<'a>,
    /// The rows of weights.
    bytes: &'a [u8],
    row_bytes: usize,
    /// Chunks per row.
    chunks: usize,
    tiles: &'a Tiles,
    /// Number of rows of activations.
    x_rows: usize,
    /// The range of rows of weights.
    rows: Range<usize>,
}

impl Task<'_> {
    /// # Safety
    /// The CPU has FEAT_DotProd; no other task has these rows.
    #[target_feature(enable = "dotprod")]
    unsafe fn multiply_dotprod(&self, format: Format) {
        self.multiply::<Sdot>(format);
    }

    /// # Safety
    /// The CPU has the features of `D`; no other task has these rows.
    #[inline(always)]
    unsafe fn multiply<D: Dot>(&self, format: Format) {
        with_format!(format, F => {
            float: unreachable!("floats are multiplied by `dot`"),
            block: self.multiply_by::<Blocks<F, D>>(),
            super_block: self.multiply_by::<SuperBlocks<F, D>>(),
            sub_block: unreachable!("sub-blocks with float scales are multiplied by `dot`"),
        });
    }

    /// # Safety
    /// As [`Task::multiply`].
    #[inline(always)]
    unsafe fn multiply_by<C: MultiplyTile>(&self) {
        C::scratch().with_borrow_mut(|unpacked| {
            // The last chunks of all rows have equal lengths, so the padding stays zero.
            let mut padded = [0; MAX_BYTES];
            unpacked.clear();
            for row in self.bytes.chunks_exact(self.row_bytes) {
                unpacked.extend(row.chunks(C::BYTES).map(|bytes| C::unpack(whole::<C>(bytes, &mut padded))));
            }
            let last = self.rows.len() - 1;
            for half in 0..2 * self.tiles.count() - usize::from(self.tiles.ends_in_half()) {
                let at = At { tile: half * HALF / TILE_ROWS, from: half * HALF % TILE_ROWS };
                for first in (0..self.rows.len()).step_by(R) {
                    let mut lanes = [[[vdupq_n_f32(0.0); N]; R]; LANES];
                    for chunk in 0..self.chunks {
                        // In place of a missing row the last one is repeated.
                        let w = |r: usize| &unpacked[(first + r).min(last) * self.chunks + chunk];
                        let w = [w(0), w(1), w(2), w(3)];
                        C::add(w, self.tiles, (chunk, self.chunks), at, &mut lanes);
                    }
                    self.put(half, first, &lanes);
                }
            }
        });
    }

    /// Sums the lanes, and writes the results to their destination.
    ///
    /// # Safety
    /// As [`Task::multiply`].
    #[inline(always)]
    unsafe fn put(&self, half: usize, first: usize, lanes: &Lanes) {
        for r in 0..R.min(self.rows.len() - first) {
            let mut numbers = [0.0; HALF];
            for n in 0..N {
                // As `lanes::sum`.
                let lane = |i: usize| lanes[i][r][n];
                let even = vaddq_f32(vaddq_f32(lane(0), lane(4)), vaddq_f32(lane(2), lane(6)));
                let odd = vaddq_f32(vaddq_f32(lane(1), lane(5)), vaddq_f32(lane(3), lane(7)));
                vst1q_f32(numbers.as_mut_ptr().add(4 * n), vaddq_f32(even, odd));
            }
            for (x_row, number) in (half * HALF..self.x_rows).zip(numbers) {
                let at = x_row * self.product.out + self.rows.start + first + r;
                self.product.y.slice(at, 1)[0] = number;
            }
        }
    }
}

/// A tile of activations, and the first row of its half.
#[derive(Clone, Copy)]
struct At {
    tile: usize,
    from: usize,
}

/// Multiplies unpacked rows of weights with halves of tiles.
trait MultiplyTile: Codec<Chunk: 'static> {
    /// The thread's buffer for unpacked chunks.
    fn scratch() -> &'static LocalKey<RefCell<Vec<Self::Chunk>>>;

    /// Adds the products of one chunk, given by index and count.
    ///
    /// # Safety
    /// The CPU has the features of the codec.
    unsafe fn add(w: [&Self::Chunk; R], x: &Tiles, chunk: (usize, usize), at: At, lanes: &mut Lanes);
}

thread_local! {
    static BLOCKS: RefCell<Vec<UnpackedBlocks>> = const { RefCell::new(Vec::new()) };
    static SUPER_BLOCKS: RefCell<Vec<UnpackedSuperBlock>> = const { RefCell::new(Vec::new()) };
}

/// Unscaled sums.
type Sums<D> = [[<D as Dot>::Sums; N]; R];

/// Adds the products of sixteen quants of the rows of weights with four quads of activations.
///
/// # Safety
/// The CPU has the features of `D`.
#[inline(always)]
unsafe fn add_sixteen<D: Dot>(
    mut sums: Sums<D>,
    w: [int8x16_t; R],
    x: &[[[i8; 4]; TILE_ROWS]],
    from: usize,
) -> Sums<D> {
    macro_rules! quads {
        ($($quad:literal)+) => {$(
            for n in 0..N {
                let x = vld1q_s8(x[$quad][from + 4 * n..][..4].as_ptr().cast());
                for r in 0..R {
                    sums[r][n] = D::add_quad::<$quad>(sums[r][n], x, w[r]);
                }
            }
        )+};
    }
    quads!(0 1 2 3);
    sums
}

impl<F: SimdBlock, D: Dot> MultiplyTile for Blocks<F, D> {
    fn scratch() -> &'static LocalKey<RefCell<Vec<UnpackedBlocks>>> {
        &BLOCKS
    }

    #[inline(always)]
    unsafe fn add(
        w: [&UnpackedBlocks; R],
        x: &Tiles,
        (chunk, chunks): (usize, usize),
        at: At,
        lanes: &mut Lanes,
    ) {
        for (lane, of_lane) in lanes.iter_mut().enumerate() {
            let x = &x.blocks(lane)[at.tile * chunks + chunk];
            let mut sums = [[D::zero(); N]; R];
            for half in 0..2 {
                let w = |r: usize| w[r].quants[lane][half];
                sums = add_sixteen::<D>(sums, [w(0), w(1), w(2), w(3)], &x.quants[4 * half..], at.from);
            }
            for n in 0..N {
                let from = at.from + 4 * n;
                let scales = vld1q_f32(x.scales[from..][..4].as_ptr());
                let x_sums = vcvtq_f32_s32(vld1q_s32(x.sums[from..][..4].as_ptr()));
                for r in 0..R {
                    let total = vcvtq_f32_s32(D::quads(sums[r][n]));
                    let sum = &mut of_lane[r][n];
                    *sum = vfmaq_f32(*sum, vmulq_n_f32(scales, w[r].scales[lane]), total);
                    if F::OFFSET {
                        *sum = vfmaq_f32(*sum, vmulq_n_f32(scales, w[r].offsets[lane]), x_sums);
                    }
                }
            }
        }
    }
}

impl<F: SimdSuperBlock, D: Dot> MultiplyTile for SuperBlocks<F, D> {
    fn scratch() -> &'static LocalKey<RefCell<Vec<UnpackedSuperBlock>>> {
        &SUPER_BLOCKS
    }

    #[inline(always)]
    unsafe fn add(
        w: [&UnpackedSuperBlock; R],
        x: &Tiles,
        (chunk, _): (usize, usize),
        at: At,
        lanes: &mut Lanes,
    ) {
        let x = &x.super_blocks(chunk)[at.tile];
        let mut totals = [[vdupq_n_s32(0); N]; R];
        let of_scale = if F::SUB_BLOCKS_OF_16 { 1 } else { 2 };
        for first in (0..SUPER_BLOCK / 16).step_by(of_scale) {
            let mut sums = [[D::zero(); N]; R];
            for i in first..first + of_scale {
                let w = |r: usize| w[r].quants[i];
                sums = add_sixteen::<D>(sums, [w(0), w(1), w(2), w(3)], &x.quants[4 * i..], at.from);
            }
            for r in 0..R {
                for n in 0..N {
                    totals[r][n] = vmlaq_n_s32(totals[r][n], D::quads(sums[r][n]), w[r].scales[first]);
                }
            }
        }
        for n in 0..N {
            let from = at.from + 4 * n;
            let scales = vld1q_f32(x.scales[from..][..4].as_ptr());
            for r in 0..R {
                let sum = &mut lanes[chunk % LANES][r][n];
                *sum = vfmaq_f32(*sum, vmulq_n_f32(scales, w[r].scale), vcvtq_f32_s32(totals[r][n]));
                if F::MINIMA {
                    let total = if F::SUB_BLOCKS_OF_16 {
                        of_minima(&x.sums, &w[r].minima, 1, from)
                    } else {
                        of_minima(&x.wide_sums, &w[r].minima, 2, from)
                    };
                    *sum = vfmaq_f32(*sum, vmulq_n_f32(scales, -w[r].minimum), vcvtq_f32_s32(total));
                }
            }
        }
    }
}

/// The products of every `step`th minimum with sums of activations, which are in pairs, for four
/// rows from `from` on.
///
/// # Safety
/// The CPU has NEON.
#[inline(always)]
unsafe fn of_minima(
    sums: &[[[i16; 2]; TILE_ROWS]],
    minima: &[i16; 16],
    step: usize,
    from: usize,
) -> int32x4_t {
    let (mut low, mut high) = (vdupq_n_s32(0), vdupq_n_s32(0));
    for (i, pairs) in sums.iter().enumerate() {
        let pair = [minima[2 * step * i], minima[2 * step * i + step]].map(i32::from);
        let pair = vreinterpretq_s16_s32(vdupq_n_s32(pair[0] | pair[1] << 16));
        let sums = vld1q_s16(pairs[from..][..4].as_ptr().cast());
        low = vmlal_s16(low, vget_low_s16(sums), vget_low_s16(pair));
        high = vmlal_high_s16(high, sums, pair);
    }
    vpaddq_s32(low, high)
}
