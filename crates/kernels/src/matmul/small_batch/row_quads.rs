//! Row quads: processes four rows of weights together, so that scales, sums and floats are computed
//! for four rows at once.
//!
//! A quad has one row from each quarter of the matrix, so that quads read four long streams:
//!
//! ```text
//! quad 0: rows 0, n/4, n/2, 3n/4    quad 1: rows 1, n/4 + 1, n/2 + 1, 3n/4 + 1    ...
//! ```
//!
//! This module has the loop over a matrix of super-blocks, shared by AVX2 and AVX-512.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

pub(super) mod avx2;
pub(super) mod avx512;

use std::arch::x86_64::*;
use std::ops::Range;

use super::SmallBatch;
use super::x86::{RowCursor, each_of_four};
use crate::Format;
use crate::activations::Layout;
use crate::format::SUPER_BLOCK;
use crate::lanes::LANES;
use crate::prefetch::prefetch;
use crate::quant::avx2::each;

/// Number of rows of weights processed together.
const ROWS: usize = 4;

/// Prefetch distance in each stream, in bytes.
/// With less the CPU has to wait; with more, not all lines have arrived when needed.
const AHEAD: usize = 1 << 10;

/// The quads of a task: as many rows as it has, but different ones ([`SmallBatch::quad`]); they
/// belong to no other task, because tasks begin at whole quads.
fn quads(rows: &Range<usize>) -> Range<usize> {
    debug_assert!(rows.start.is_multiple_of(ROWS));
    rows.start / ROWS..rows.end.div_ceil(ROWS)
}

impl SmallBatch<'_> {
    /// The rows of weights in a quad, one from each quarter; rows beyond the end don't exist.
    /// The CPU prefetches each of four long streams; of four consecutive rows, it would not
    /// prefetch the next four.
    #[inline(always)]
    fn quad(&self, quad: usize) -> [usize; ROWS] {
        let quarter = self.weight_rows.div_ceil(ROWS);
        each_of_four!(row => row * quarter + quad)
    }

    /// The addresses of a quad's rows.
    /// A missing row is replaced by another one, whose results aren't used.
    #[inline(always)]
    fn quad_starts(&self, quad: usize) -> [*const u8; ROWS] {
        let rows = self.quad(quad);
        each_of_four!(row => {
            let row = if rows[row] < self.weight_rows { rows[row] } else { quad };
            self.w[row * self.row_bytes..][..self.row_bytes].as_ptr()
        })
    }

    /// Writes the results of a quad's rows for row `i` of activations to their destination.
    ///
    /// # Safety
    /// No other task has this quad.
    #[inline(always)]
    unsafe fn put_quad(&self, quad: usize, i: usize, totals: [f32; ROWS]) {
        for (row, total) in self.quad(quad).into_iter().zip(totals) {
            if row < self.weight_rows {
                self.y.slice(self.at(i, row), 1)[0] = total;
            }
        }
    }
}

/// Multiplies quads of super-blocks with an instruction set.
trait SuperBlockQuad {
    const FORMAT: Format;
    /// The layout of activations.
    /// If interleaved, two vectors of quants have the same scales: their products are added before
    /// scaling.
    const LAYOUT: Layout;

    /// Adds the products of blocks of four rows with T super-blocks of activations to the sums of a
    /// lane.
    ///
    /// # Safety
    /// The CPU has the instruction set; pointers are to whole blocks.
    unsafe fn add<const T: usize>(w: [*const u8; ROWS], x: &[RowCursor; T], lane: &mut [__m128; T]);
}

/// The products of these quads with T rows of activations from `first` on, super-block by
/// super-block.
///
/// # Safety
/// As [`avx2::multiply`], from functions with the features of `Q`.
#[allow(clippy::needless_range_loop)] // Each row of activations has a part of every lane.
#[inline(always)]
unsafe fn super_blocks<Q: SuperBlockQuad, const T: usize>(p: &SmallBatch, quads: Range<usize>, first: usize) {
    let bytes = Q::FORMAT.block_bytes();
    let blocks = p.row_bytes / bytes;
    let of_block = (SUPER_BLOCK, Q::LAYOUT.sums.per_super_block(), 1);
    let x = RowCursor::rows::<T>(p, Q::LAYOUT, first, blocks, of_block);
    for quad in quads {
        let w = p.quad_starts(quad);
        let mut lanes = [[_mm_setzero_ps(); T]; LANES];
        for index in 0..blocks {
            let w = each_of_four!(row => w[row].add(index * bytes));
            if first == 0 {
                each_of_four!(row => prefetch(w[row].wrapping_add(AHEAD), bytes));
            }
            Q::add(w, &RowCursor::at(x, index, of_block), &mut lanes[index % LANES]);
        }
        for i in 0..T {
            p.put_quad(quad, first + i, sum_lanes(each!(lane => lanes[lane][i])));
        }
    }
}

/// The first sixteen bytes of blocks of Q4_K and Q5_K, for four rows at once.
struct QuadHeads {
    /// The scales of the first four sub-blocks of each row, and those of the last four: bytes
    /// `row * 4 + sub-block`.
    scales: [__m128i; 2],
    /// The minima, in the same order.
    minima: [__m128i; 2],
    /// The factors of each row's scales, and of its minima.
    factors: __m256,
}

impl QuadHeads {
    /// # Safety
    /// The CPU has AVX2 and F16C; pointers are to whole blocks.
    #[inline(always)]
    unsafe fn new(blocks: [*const u8; ROWS]) -> Self {
        // Transposed, one register per four bytes of each row: the two factors, then scales, minima
        // and the low bits of the last ones.
        //
        //   r0  f0 s0 m0 l0                      factors  f0 f1 f2 f3
        //   r1  f1 s1 m1 l1     becomes          scale    s0 s1 s2 s3
        //   r2  f2 s2 m2 l2                      minimum  m0 m1 m2 m3
        //   r3  f3 s3 m3 l3                      low      l0 l1 l2 l3
        let [r0, r1, r2, r3] = each_of_four!(row => _mm_loadu_si128(blocks[row].cast()));
        let (a, b) = (_mm_unpacklo_epi32(r0, r1), _mm_unpacklo_epi32(r2, r3));
        let (c, d) = (_mm_unpackhi_epi32(r0, r1), _mm_unpackhi_epi32(r2, r3));
        let factors = _mm_unpacklo_epi64(a, b);
        let (scale, minimum, low) =
            (_mm_unpackhi_epi64(a, b), _mm_unpacklo_epi64(c, d), _mm_unpackhi_epi64(c, d));
        // As `k::scales_and_minima`.
        let (six, four, two) =
            (_mm_set1_epi32(0x3f3f_3f3f), _mm_set1_epi32(0x0f0f_0f0f), _mm_set1_epi32(0x3030_3030));
        let last_scales =
            _mm_or_si128(_mm_and_si128(low, four), _mm_and_si128(_mm_srli_epi32::<2>(scale), two));
        let last_minima = _mm_or_si128(
            _mm_and_si128(_mm_srli_epi32::<4>(low), four),
            _mm_and_si128(_mm_srli_epi32::<2>(minimum), two),
        );
        // The two halves of each row: first all scales, then all minima.
        let order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        QuadHeads {
            scales: [_mm_and_si128(scale, six), last_scales],
            minima: [_mm_and_si128(minimum, six), last_minima],
            factors: _mm256_cvtph_ps(_mm_shuffle_epi8(factors, order)),
        }
    }
}

/// Half-precision numbers from four addresses.
///
/// # Safety
/// The CPU has F16C.
#[inline(always)]
unsafe fn halves(at: [*const u8; ROWS]) -> __m128 {
    let half = |row: usize| i32::from(at[row].cast::<u16>().read_unaligned());
    _mm_cvtph_ps(_mm_setr_epi32(half(0) | half(1) << 16, half(2) | half(3) << 16, 0, 0))
}

/// The sums of all lanes for four rows, as in `lanes::sum`.
///
/// # Safety
/// None: every x86 CPU has the instructions.
#[inline(always)]
unsafe fn sum_lanes(lanes: [__m128; LANES]) -> [f32; ROWS] {
    let even = _mm_add_ps(_mm_add_ps(lanes[0], lanes[4]), _mm_add_ps(lanes[2], lanes[6]));
    let odd = _mm_add_ps(_mm_add_ps(lanes[1], lanes[5]), _mm_add_ps(lanes[3], lanes[7]));
    let mut numbers = [0f32; ROWS];
    _mm_storeu_ps(numbers.as_mut_ptr(), _mm_add_ps(even, odd));
    numbers
}
