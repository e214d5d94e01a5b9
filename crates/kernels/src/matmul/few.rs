//! Products with few rows of activations, of runs and of the superblocks that models are mostly
//! made of: four rows of weights are worked through side by side, so that scales, sums and floats
//! are those of four rows at once.
//! Here are the ways through a matrix, which AVX2 and AVX-512 share for superblocks; what AVX-512
//! multiplies is in `supers`, `runs` and `nibbles`, or for several rows of activations in `turned`,
//! what AVX2 does in `avx2`.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the
// same.
#![allow(unsafe_op_in_unsafe_fn)]

pub(super) mod avx2;
mod nibbles;
mod runs;
mod streams;
mod supers;
pub(super) mod turned;

use std::arch::x86_64::*;
use std::ops::Range;

use super::{Few, fetch};
use crate::activations::{Interleaved, RUN_SUMS};
use crate::isa::Level;
use crate::lanes::LANES;
use crate::quant::avx2::each;
use crate::quant::{MAX_BYTES, codebook, k, legacy};
use crate::{Activations, Format};
use nibbles::Halves;
use runs::Runs;
use streams::Streams;
use supers::Fours;

/// `[f(0), f(1), f(2), f(3)]`.
/// Not a function, because a closure that isn't inlined loses the features.
macro_rules! each_row {
    ($row:ident => $f:expr) => {
        each!($row => $f; 0 1 2 3)
    };
}
use each_row;

/// Calls what takes T rows of activations from `first` on for parts of all of them, as even as
/// there can be, of which none has more than `most`.
/// Not a function, as [`each_row`].
macro_rules! in_parts {
    ($tokens:expr, $first:ident, $most:expr, $count:ident => $call:expr; $($less:literal)+) => {
        let parts = $tokens.div_ceil($most);
        for part in 0..parts {
            let ($first, end) = ($tokens * part / parts, $tokens * (part + 1) / parts);
            match end - $first {
                $($less => {
                    const $count: usize = $less;
                    $call
                })+
                _ => {
                    const $count: usize = $most;
                    $call
                }
            }
        }
    };
}
use in_parts;

/// The rows of weights that are worked through side by side.
const ROWS: usize = 4;

/// Blocks of four rows, taken apart: what is the same for all of them, and what is each row's own.
///
/// # Safety
/// The functions may only be called where the instruction set is available, and with pointers to
/// whole blocks.
trait Blocks {
    /// What is taken out of all four at once.
    type Head: Copy;
    /// What is taken out of one.
    type Row: Copy;

    unsafe fn head(blocks: [*const u8; ROWS]) -> Self::Head;

    unsafe fn row(head: &Self::Head, block: *const u8, row: usize) -> Self::Row;
}

/// Eight blocks, of runs, that go with a panel of activations.
///
/// # Safety
/// As [`Blocks`].
trait Panels: Blocks {
    /// The bytes of a row's panel.
    const BYTES: usize;
    /// The sums of lanes of four rows.
    type Lanes: Copy;

    unsafe fn zeros() -> Self::Lanes;

    /// Adds the products of a panel, of which there are `len` bytes, with activations: codes, sums
    /// of sixteen, scales.
    unsafe fn add(w: &impl Source<Self>, x: (&[i8], &[i16], &[f32]), len: usize, lanes: &mut Self::Lanes)
    where
        Self: Sized;

    /// The sums of all lanes, as `lanes::sum`.
    unsafe fn totals(lanes: Self::Lanes) -> [f32; ROWS];
}

/// Blocks of four rows, for one row of activations or for several.
///
/// # Safety
/// As [`Blocks`].
trait Source<B: Blocks> {
    fn head(&self) -> &B::Head;

    unsafe fn row(&self, row: usize) -> B::Row;
}

/// Blocks that are taken apart where they are used: once.
struct Lying<B: Blocks> {
    head: B::Head,
    blocks: [*const u8; ROWS],
}

impl<B: Blocks> Lying<B> {
    #[inline(always)]
    unsafe fn new(blocks: [*const u8; ROWS]) -> Self {
        Lying { head: B::head(blocks), blocks }
    }
}

impl<B: Blocks> Source<B> for Lying<B> {
    #[inline(always)]
    fn head(&self) -> &B::Head {
        &self.head
    }

    #[inline(always)]
    unsafe fn row(&self, row: usize) -> B::Row {
        B::row(&self.head, self.blocks[row], row)
    }
}

/// Blocks that are taken apart before they are used by several rows of activations.
struct Apart<B: Blocks> {
    head: B::Head,
    rows: [B::Row; ROWS],
}

impl<B: Blocks> Apart<B> {
    #[inline(always)]
    unsafe fn new(blocks: [*const u8; ROWS]) -> Self {
        let head = B::head(blocks);
        Apart { rows: each_row!(row => B::row(&head, blocks[row], row)), head }
    }
}

impl<B: Blocks> Source<B> for Apart<B> {
    #[inline(always)]
    fn head(&self) -> &B::Head {
        &self.head
    }

    #[inline(always)]
    unsafe fn row(&self, row: usize) -> B::Row {
        self.rows[row]
    }
}

/// The groups of a task: as many rows as it has, but others ([`Few::group`]); no other task's,
/// because tasks begin at whole groups.
fn groups(rows: &Range<usize>) -> Range<usize> {
    debug_assert!(rows.start.is_multiple_of(ROWS));
    rows.start / ROWS..rows.end.div_ceil(ROWS)
}

impl Few<'_> {
    /// The rows of weights of a group, one of each quarter of them all; those beyond the end aren't
    /// there.
    /// Who goes from group to group reads four long streams, and each is foreseen; of four rows
    /// that follow each other, the next four would not be.
    #[inline(always)]
    fn group(&self, group: usize) -> [usize; ROWS] {
        let quarter = self.out.div_ceil(ROWS);
        each_row!(row => row * quarter + group)
    }

    /// Where the rows of a group begin.
    /// In place of what isn't there another row is read, whose results aren't used.
    #[inline(always)]
    fn four(&self, group: usize) -> [*const u8; ROWS] {
        let rows = self.group(group);
        each_row!(row => {
            let row = if rows[row] < self.out { rows[row] } else { group };
            self.w[row * self.row_bytes..][..self.row_bytes].as_ptr()
        })
    }

    /// Puts the results of a group's rows with a row of activations where they belong.
    ///
    /// # Safety
    /// No other task has this group.
    #[inline(always)]
    unsafe fn put(&self, group: usize, token: usize, totals: [f32; ROWS]) {
        for (row, total) in self.group(group).into_iter().zip(totals) {
            if row < self.out {
                self.y.slice(self.at(token, row), 1)[0] = total;
            }
        }
    }
}

/// How far ahead of what is read of each stream is asked for: less makes the CPU wait, more is not
/// all there when it is wanted.
const AHEAD: usize = 1 << 10;

/// The rows of activations that panels are taken apart for at once.
const TOGETHER: usize = 8;

/// The rows of activations that superblocks are taken apart for at once: as many as have sums in
/// registers.
const SUPERS_TOGETHER: usize = 5;

/// Makes what [`some_rows`] of this file or of `avx2` wants of activations for `out` rows of
/// weights.
pub(super) fn arrange(level: Level, format: Format, out: usize, rows: usize, x: &mut Activations) {
    match (level, format) {
        (Level::Avx2 | Level::AvxVnni, Format::Q4_K | Format::Q5_K | Format::Q6_K) => {
            x.interleave(Interleaved::Eights);
            x.sum_runs();
        }
        (Level::Avx512 | Level::Amx, _) if turned::pays(format, out, rows) => turned::arrange(format, x),
        (Level::Avx512 | Level::Amx, Format::Q4_K | Format::Q5_K) => x.interleave(Interleaved::Whole),
        _ => {}
    }
}

/// The most rows of activations for which [`some_rows`] is faster than what unpacks weights.
pub(super) fn most(format: Format) -> usize {
    turned::most(format).unwrap_or(TOGETHER)
}

/// The products of some rows of weights; `false` if there is nothing here for the format.
///
/// # Safety
/// The CPU has AVX-512, and no other task has these rows of weights, which begin with a whole
/// group.
pub(super) unsafe fn some_rows(p: Few, format: Format, rows: Range<usize>) -> bool {
    if turned::pays(format, p.out, p.tokens) {
        return turned::some_rows(p, format, rows);
    }
    match format {
        Format::Q4_K => multiply::<Fours<k::Q4_K>>(p, rows),
        Format::Q5_K => multiply::<Fours<k::Q5_K>>(p, rows),
        Format::Q6_K => multiply::<Fours<k::Q6_K>>(p, rows),
        Format::Q4_0 => in_panels::<Halves<legacy::Q4_0>>(p, rows),
        Format::Q4_1 => in_panels::<Halves<legacy::Q4_1>>(p, rows),
        Format::Q5_0 => in_panels::<Runs<legacy::Q5_0>>(p, rows),
        Format::Q5_1 => in_panels::<Runs<legacy::Q5_1>>(p, rows),
        Format::Q8_0 => in_panels::<Runs<legacy::Q8_0>>(p, rows),
        Format::MXFP4 => in_panels::<Halves<codebook::MXFP4>>(p, rows),
        Format::IQ4_NL => in_panels::<Halves<codebook::IQ4_NL>>(p, rows),
        _ => return false,
    }
    true
}

/// Superblocks that an instruction set multiplies four at a time.
trait Superblocks {
    /// The format.
    const FORMAT: Format;
    /// Whether activations are [interleaved](crate::Activations::interleaved), so that two vectors
    /// of codes have the same scales: their products are added before they are scaled.
    const ALIKE: bool;
    /// Whether the sums of activations are wanted as [`crate::Activations::run_sums`] has them.
    const SPREAD: bool;

    /// Adds the products of blocks of four rows with T panels to the sums of a lane.
    ///
    /// # Safety
    /// The instruction set is there; pointers are to whole blocks and panels.
    unsafe fn add<const T: usize>(w: [*const u8; ROWS], x: &[Panel; T], lane: &mut [__m128; T]);
}

/// The products of these groups ([`Few::group`]) with T rows of activations from `first` on,
/// superblock after superblock.
///
/// # Safety
/// As [`some_rows`], from functions with the features of `B`.
#[allow(clippy::needless_range_loop)] // Each row of activations has a part of every lane.
#[inline(always)]
unsafe fn supers<B: Superblocks, const T: usize>(p: &Few, groups: Range<usize>, first: usize) {
    let bytes = B::FORMAT.block_bytes();
    let blocks = p.row_bytes / bytes;
    let of_panel = if B::SPREAD { RUN_SUMS } else { 16 };
    let x: [_; T] = std::array::from_fn(|token| {
        let row = p.row_of(first + token);
        let (codes, sums, scales) = p.x.all_supers(row);
        let codes = if B::ALIKE { p.x.interleaved(row) } else { codes };
        let sums = if B::SPREAD { p.x.run_sums(row) } else { sums };
        assert!(codes.len() == 256 * blocks && sums.len() == of_panel * blocks && scales.len() == blocks);
        Panel::first((codes, sums, scales))
    });
    for group in groups {
        let w = p.four(group);
        let mut lanes = [[_mm_setzero_ps(); T]; LANES];
        for index in 0..blocks {
            let w = each_row!(row => w[row].add(index * bytes));
            if first == 0 {
                each_row!(row => fetch(w[row].wrapping_add(AHEAD), bytes));
            }
            B::add(w, &Panel::at(x, index, (256, of_panel, 1)), &mut lanes[index % LANES]);
        }
        for token in 0..T {
            p.put(group, first + token, super_totals(each!(lane => lanes[lane][token])));
        }
    }
}

/// # Safety
/// As [`some_rows`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn multiply<B: Superblocks>(p: Few, rows: Range<usize>) {
    let groups = groups(&rows);
    in_parts!(p.tokens, first, SUPERS_TOGETHER, T => supers::<B, T>(&p, groups.clone(), first); 1 2 3 4);
}

/// # Safety
/// As [`some_rows`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn in_panels<P: Panels>(p: Few, rows: Range<usize>) {
    let (panels, rest) = (p.row_bytes / P::BYTES, p.row_bytes % P::BYTES);
    let mut padded = [[0; MAX_BYTES]; ROWS];
    for first in (0..p.tokens).step_by(TOGETHER) {
        let tokens = TOGETHER.min(p.tokens - first);
        for group in groups(&rows) {
            let w = p.four(group);
            let mut lanes = [P::zeros(); TOGETHER];
            for index in 0..panels {
                let w = each_row!(row => w[row].add(index * P::BYTES));
                if first == 0 {
                    w.iter().for_each(|w| fetch(w.wrapping_add(AHEAD), P::BYTES));
                }
                add_panel::<P>(&p, first, w, (index, P::BYTES), &mut lanes[..tokens]);
            }
            if rest > 0 {
                let w = each_row!(row => w[row].add(panels * P::BYTES));
                // The last panels of all rows are equally long, so what follows them stays zero.
                for (padded, w) in padded.iter_mut().zip(w) {
                    w.copy_to_nonoverlapping(padded.as_mut_ptr(), rest);
                }
                if first == 0 {
                    w.iter().for_each(|w| fetch(w.wrapping_add(AHEAD), rest));
                }
                let w = each_row!(row => padded[row].as_ptr());
                add_panel::<P>(&p, first, w, (panels, rest), &mut lanes[..tokens]);
            }
            for (token, lanes) in lanes[..tokens].iter().enumerate() {
                p.put(group, first + token, P::totals(*lanes));
            }
        }
    }
}

/// Adds what the panel `index` of four rows, of which there are `len` bytes, gives to the lanes of
/// tokens from `first` on.
///
/// # Safety
/// As [`some_rows`], with pointers to whole panels.
#[inline(always)]
unsafe fn add_panel<P: Panels>(
    p: &Few,
    first: usize,
    w: [*const u8; ROWS],
    (index, len): (usize, usize),
    lanes: &mut [P::Lanes],
) {
    if let [lanes] = lanes {
        return P::add(&Lying::<P>::new(w), p.x.runs(p.row_of(first), index), len, lanes);
    }
    let w = Apart::<P>::new(w);
    for (token, lanes) in lanes.iter_mut().enumerate() {
        P::add(&w, p.x.runs(p.row_of(first + token), index), len, lanes);
    }
}

/// Activations that a block of weights is multiplied with, or eight of them.
#[derive(Clone, Copy)]
struct Panel {
    codes: *const i8,
    /// The sums of sixteen codes each, or those of runs ([`Superblocks::SPREAD`]).
    sums: *const i16,
    scales: *const f32,
}

impl Panel {
    /// The first of what `Activations::all_runs` or `all_supers` gives.
    #[inline(always)]
    fn first((codes, sums, scales): (&[i8], &[i16], &[f32])) -> Self {
        Panel { codes: codes.as_ptr(), sums: sums.as_ptr(), scales: scales.as_ptr() }
    }

    /// Of each row number `index` of panels of so many codes, sums and scales.
    /// A loop, because `map` would be a call for each block.
    #[inline(always)]
    fn at<const T: usize>(
        mut panels: [Panel; T],
        index: usize,
        (codes, sums, scales): (usize, usize, usize),
    ) -> [Panel; T] {
        for panel in &mut panels {
            *panel = Panel {
                codes: panel.codes.wrapping_add(codes * index),
                sums: panel.sums.wrapping_add(sums * index),
                scales: panel.scales.wrapping_add(scales * index),
            };
        }
        panels
    }

    /// The only scale.
    ///
    /// # Safety
    /// It is there.
    #[inline(always)]
    unsafe fn scale(&self) -> f32 {
        *self.scales
    }
}

/// The sixteen bytes that blocks of Q4_K and Q5_K begin with, of four rows at once.
struct SuperHeads {
    /// The scales of the first four runs of each row, and those of the last four.
    scales: [__m128i; 2],
    /// The minima, in the same order.
    minima: [__m128i; 2],
    /// What the scales of each row are multiplied by, and what the minima are.
    factors: __m256,
}

impl SuperHeads {
    /// # Safety
    /// The CPU has AVX2 and F16C; pointers are to whole blocks.
    #[inline(always)]
    unsafe fn new(blocks: [*const u8; ROWS]) -> Self {
        // Turned: the two factors, then scales, minima and what is low of the last ones.
        let [r0, r1, r2, r3] = each_row!(row => _mm_loadu_si128(blocks[row].cast()));
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
        // Each row's two halves: first all scales, then all minima.
        let order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        SuperHeads {
            scales: [_mm_and_si128(scale, six), last_scales],
            minima: [_mm_and_si128(minimum, six), last_minima],
            factors: _mm256_cvtph_ps(_mm_shuffle_epi8(factors, order)),
        }
    }
}

/// Half-precision numbers from four places.
///
/// # Safety
/// The CPU has F16C.
#[inline(always)]
unsafe fn halves(at: [*const u8; ROWS]) -> __m128 {
    let half = |row: usize| i32::from(at[row].cast::<u16>().read_unaligned());
    _mm_cvtph_ps(_mm_setr_epi32(half(0) | half(1) << 16, half(2) | half(3) << 16, 0, 0))
}

/// The sums of all lanes, as `lanes::sum`, of four rows.
///
/// # Safety
/// None: every x86 has the instructions.
#[inline(always)]
unsafe fn super_totals(lanes: [__m128; LANES]) -> [f32; ROWS] {
    let even = _mm_add_ps(_mm_add_ps(lanes[0], lanes[4]), _mm_add_ps(lanes[2], lanes[6]));
    let odd = _mm_add_ps(_mm_add_ps(lanes[1], lanes[5]), _mm_add_ps(lanes[3], lanes[7]));
    let mut numbers = [0f32; ROWS];
    _mm_storeu_ps(numbers.as_mut_ptr(), _mm_add_ps(even, odd));
    numbers
}

/// Two halves of a register.
#[inline(always)]
unsafe fn pair(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}
