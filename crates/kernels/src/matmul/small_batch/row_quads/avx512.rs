//! Row quads with AVX-512: for super-blocks (`super_blocks`), and for blocks of 32, eight at a time
//! (`blocks`, or `nibbles` if quants are nibbles).
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

mod blocks;
mod nibbles;
mod super_blocks;

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::x86::in_parts;
use super::{AHEAD, QuadHeads, ROWS, SuperBlockQuad, each_of_four, halves, quads};
use super::{RowCursor, SmallBatch};
use crate::Format;
use crate::activations::Layout;
use crate::prefetch::prefetch;
use crate::quant::{MAX_BYTES, with_format};
use blocks::ByteQuad;
use nibbles::NibbleQuad;
use super_blocks::SuperQuad;

/// The rows of activations for which eight blocks are unpacked at once.
const BLOCK_ROWS: usize = 8;

/// The rows of activations for which super-blocks are unpacked at once: as many as have sums in
/// registers.
const SUPER_BLOCK_ROWS: usize = 5;

/// The layout of activations.
pub(in super::super) fn layout(format: Format) -> Layout {
    match format {
        Format::Q4_K | Format::Q5_K | Format::Q6_K => {
            with_format!(format, F in k [Q4_K Q5_K Q6_K] => SuperQuad::<F>::LAYOUT)
        }
        _ => Layout::PLAIN,
    }
}

/// The products of some rows of weights.
///
/// # Safety
/// The CPU has AVX-512, and no other task has these rows of weights, which begin with a whole quad.
pub(in super::super) unsafe fn multiply(p: SmallBatch, format: Format, rows: Range<usize>) {
    match format {
        Format::Q4_K | Format::Q5_K | Format::Q6_K => {
            with_format!(format, F in k [Q4_K Q5_K Q6_K] => of_super_blocks::<SuperQuad<F>>(p, rows));
        }
        Format::Q5_0 | Format::Q5_1 | Format::Q8_0 => {
            with_format!(format, F in legacy [Q5_0 Q5_1 Q8_0] => of_blocks::<ByteQuad<F>>(p, rows));
        }
        _ => with_format!(format, F in legacy [Q4_0 Q4_1] codebook [MXFP4 IQ4_NL] => {
            of_blocks::<NibbleQuad<F>>(p, rows);
        }),
    }
}

/// # Safety
/// As [`multiply`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn of_super_blocks<Q: SuperBlockQuad>(p: SmallBatch, rows: Range<usize>) {
    let quads = quads(&rows);
    in_parts!(p.rows, first, SUPER_BLOCK_ROWS, T => super::super_blocks::<Q, T>(&p, quads.clone(), first); 1 2 3 4);
}

/// A chunk (eight blocks) of each of four rows, unpacked: data shared by all of them, and data of
/// each row.
///
/// # Safety
/// The functions may only be called where the instruction set is available, and with pointers to
/// whole chunks.
trait BlockQuad {
    /// Bytes per chunk of a row.
    const BYTES: usize;
    /// Data extracted from all four rows at once.
    type Head: Copy;
    /// Data extracted from one row.
    type Row: Copy;
    /// The sums of lanes of four rows.
    type Lanes: Copy;

    unsafe fn head(chunks: [*const u8; ROWS]) -> Self::Head;

    unsafe fn row(head: &Self::Head, chunk: *const u8, row: usize) -> Self::Row;

    unsafe fn zeros() -> Self::Lanes;

    /// Adds the products of a chunk with `len` bytes and activations, given as quants, sums of
    /// sixteen, scales.
    unsafe fn add(w: &impl Quad<Self>, x: (&[i8], &[i16], &[f32]), len: usize, lanes: &mut Self::Lanes)
    where
        Self: Sized;

    /// The sums of all lanes, as in `lanes::sum`.
    unsafe fn totals(lanes: Self::Lanes) -> [f32; ROWS];
}

/// A chunk of each of four rows, for one or more rows of activations.
///
/// # Safety
/// As [`BlockQuad`].
trait Quad<B: BlockQuad> {
    fn head(&self) -> &B::Head;

    unsafe fn row(&self, row: usize) -> B::Row;
}

/// Unpacked in registers on its single use.
struct OnTheFly<B: BlockQuad> {
    head: B::Head,
    chunks: [*const u8; ROWS],
}

impl<B: BlockQuad> OnTheFly<B> {
    #[inline(always)]
    unsafe fn new(chunks: [*const u8; ROWS]) -> Self {
        OnTheFly { head: B::head(chunks), chunks }
    }
}

impl<B: BlockQuad> Quad<B> for OnTheFly<B> {
    #[inline(always)]
    fn head(&self) -> &B::Head {
        &self.head
    }

    #[inline(always)]
    unsafe fn row(&self, row: usize) -> B::Row {
        B::row(&self.head, self.chunks[row], row)
    }
}

/// Unpacked in advance, for several rows of activations.
struct Unpacked<B: BlockQuad> {
    head: B::Head,
    rows: [B::Row; ROWS],
}

impl<B: BlockQuad> Unpacked<B> {
    #[inline(always)]
    unsafe fn new(chunks: [*const u8; ROWS]) -> Self {
        let head = B::head(chunks);
        Unpacked { rows: each_of_four!(row => B::row(&head, chunks[row], row)), head }
    }
}

impl<B: BlockQuad> Quad<B> for Unpacked<B> {
    #[inline(always)]
    fn head(&self) -> &B::Head {
        &self.head
    }

    #[inline(always)]
    unsafe fn row(&self, row: usize) -> B::Row {
        self.rows[row]
    }
}

/// # Safety
/// As [`multiply`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn of_blocks<B: BlockQuad>(p: SmallBatch, rows: Range<usize>) {
    let (chunks, rest) = (p.row_bytes / B::BYTES, p.row_bytes % B::BYTES);
    let mut padded = [[0; MAX_BYTES]; ROWS];
    for first in (0..p.rows).step_by(BLOCK_ROWS) {
        let count = BLOCK_ROWS.min(p.rows - first);
        for quad in quads(&rows) {
            let w = p.quad_starts(quad);
            let mut lanes = [B::zeros(); BLOCK_ROWS];
            for index in 0..chunks {
                let w = each_of_four!(row => w[row].add(index * B::BYTES));
                if first == 0 {
                    w.iter().for_each(|w| prefetch(w.wrapping_add(AHEAD), B::BYTES));
                }
                add_chunk::<B>(&p, first, w, (index, B::BYTES), &mut lanes[..count]);
            }
            if rest > 0 {
                let w = each_of_four!(row => w[row].add(chunks * B::BYTES));
                // The last chunks of all rows have equal lengths, so the padding stays zero.
                for (padded, w) in padded.iter_mut().zip(w) {
                    w.copy_to_nonoverlapping(padded.as_mut_ptr(), rest);
                }
                if first == 0 {
                    w.iter().for_each(|w| prefetch(w.wrapping_add(AHEAD), rest));
                }
                let w = each_of_four!(row => padded[row].as_ptr());
                add_chunk::<B>(&p, first, w, (chunks, rest), &mut lanes[..count]);
            }
            for (i, lanes) in lanes[..count].iter().enumerate() {
                p.put_quad(quad, first + i, B::totals(*lanes));
            }
        }
    }
}

/// Adds the products of chunk `index` of four rows, with `len` bytes, to the lanes of rows of
/// activations from `first` on.
///
/// # Safety
/// As [`multiply`], with pointers to whole chunks.
#[inline(always)]
unsafe fn add_chunk<B: BlockQuad>(
    p: &SmallBatch,
    first: usize,
    w: [*const u8; ROWS],
    (index, len): (usize, usize),
    lanes: &mut [B::Lanes],
) {
    if let [lanes] = lanes {
        return B::add(&OnTheFly::<B>::new(w), p.x.blocks(p.row(first), index), len, lanes);
    }
    let w = Unpacked::<B>::new(w);
    for (i, lanes) in lanes.iter_mut().enumerate() {
        B::add(&w, p.x.blocks(p.row(first + i), index), len, lanes);
    }
}

/// Combines two halves to a register.
#[inline(always)]
unsafe fn pair(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}
