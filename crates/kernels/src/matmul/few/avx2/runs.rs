//! Products with few rows of activations by AVX2, of runs of 32 codes. They are many numbers in little arithmetic, so that
//! memory is the limit: one row of weights after the other, as they lie, of each quarter in turn.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::needless_range_loop)] // Indices, because what iterators do to arrays of registers isn't always unrolled.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::{AHEAD, Few, Kind, Panel};
use crate::lanes::{self, LANES};
use crate::matmul::fetch;
use crate::quant::avx2::{Bias, RunBits, in_a_row, pairs};
use crate::quant::{MAX_BYTES, PANEL};

/// Runs of a format.
pub(super) struct Runs<F>(PhantomData<F>);

impl<F: RunBits> Kind for Runs<F> {
    #[inline(always)]
    unsafe fn together<const T: usize>(p: &Few, groups: Range<usize>, first: usize) {
        let bytes = LANES * F::FORMAT.block_bytes();
        let (panels, rest) = (p.row_bytes / bytes, p.row_bytes % bytes);
        let x: [_; T] = std::array::from_fn(|token| {
            let x = p.x.all_runs(p.taken.get(first + token));
            let panels = p.row_bytes.div_ceil(bytes);
            assert!(
                x.0.len() == PANEL * panels
                    && x.1.len() == PANEL / 16 * panels
                    && x.2.len() == LANES * panels
            );
            Panel::first(x)
        });
        // Of the lanes of a last panel that isn't whole, those that it has.
        let runs = _mm256_set1_epi32((rest / F::FORMAT.block_bytes()) as i32);
        let used = _mm256_cmpgt_epi32(runs, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        let used = _mm256_castsi256_ps(used);
        let mut padded = [0; MAX_BYTES];
        for row in groups.flat_map(|group| p.group(group)).filter(|row| *row < p.out) {
            let w = &p.w[row * p.row_bytes..];
            let ask = |at: usize, bytes: usize| {
                if first == 0 {
                    fetch(w.as_ptr().wrapping_add(at + AHEAD), bytes);
                }
            };
            let mut lanes = [_mm256_setzero_ps(); T];
            for index in 0..panels {
                ask(index * bytes, bytes);
                add_panel::<F, T>(
                    w.as_ptr().add(index * bytes),
                    &Panel::at(x, index, (PANEL, PANEL / 16, LANES)),
                    &mut lanes,
                );
            }
            if rest > 0 {
                ask(panels * bytes, rest);
                // Read with what follows it, the next row's, whose lanes aren't used; where nothing follows, padded.
                let last = &w[panels * bytes..];
                let last = if last.len() < bytes {
                    padded[..last.len()].copy_from_slice(last);
                    padded.as_ptr()
                } else {
                    last.as_ptr()
                };
                let before = lanes;
                add_panel::<F, T>(last, &Panel::at(x, panels, (PANEL, PANEL / 16, LANES)), &mut lanes);
                for t in 0..T {
                    lanes[t] = _mm256_blendv_ps(before[t], lanes[t], used);
                }
            }
            for (token, lane) in lanes.into_iter().enumerate() {
                let mut numbers = [0.0; LANES];
                _mm256_storeu_ps(numbers.as_mut_ptr(), lane);
                p.y.slice((first + token) * p.out + row, 1)[0] = lanes::sum(numbers);
            }
        }
    }
}

/// Adds the products of eight runs with T panels, of each run to its lane.
#[inline(always)]
unsafe fn add_panel<F: RunBits, const T: usize>(w: *const u8, x: &[Panel; T], lanes: &mut [__m256; T]) {
    let totals = eight::<F, T>(w, x);
    let scales = F::scales(in_a_row(w, F::FORMAT.block_bytes()));
    for t in 0..T {
        let sums = _mm256_loadu_si256(x[t].sums.cast());
        let mut total = totals[t];
        if let Bias::Unsigned(bias @ 1..) = F::BIAS {
            total = _mm256_sub_epi32(total, _mm256_madd_epi16(sums, _mm256_set1_epi16(bias)));
        }
        let of_x = _mm256_loadu_ps(x[t].scales);
        lanes[t] = _mm256_fmadd_ps(_mm256_mul_ps(scales, of_x), _mm256_cvtepi32_ps(total), lanes[t]);
        if F::OFFSET {
            let total = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
            lanes[t] = _mm256_fmadd_ps(
                _mm256_mul_ps(F::offsets(in_a_row(w, F::FORMAT.block_bytes())), of_x),
                total,
                lanes[t],
            );
        }
    }
}

/// Whether sums of eight products fit into words.
const fn in_words<F: RunBits>() -> bool {
    F::MOST as i32 * 127 * 8 <= i16::MAX as i32
}

/// The sums of numbers in both: words as long as they have room.
#[inline(always)]
unsafe fn add<F: RunBits>(a: __m256i, b: __m256i) -> __m256i {
    if in_words::<F>() { _mm256_add_epi16(a, b) } else { _mm256_add_epi32(a, b) }
}

/// The sums of the products of eight runs, in their order.
#[inline(always)]
unsafe fn eight<F: RunBits, const T: usize>(panel: *const u8, x: &[Panel; T]) -> [__m256i; T] {
    let mut sums = four::<F, T>(panel, x, 0);
    let last = four::<F, T>(panel, x, 4);
    for t in 0..T {
        let (a, b) = (sums[t], last[t]);
        sums[t] = _mm256_add_epi32(
            _mm256_blend_epi32::<0b1111_0000>(a, b),
            _mm256_permute2x128_si256::<0x21>(a, b),
        );
    }
    sums
}

/// The sums of four runs from `run` on, of half their codes in each half.
#[inline(always)]
unsafe fn four<F: RunBits, const T: usize>(panel: *const u8, x: &[Panel; T], run: usize) -> [__m256i; T] {
    let mut sums = two::<F, T>(panel, x, run);
    let last = two::<F, T>(panel, x, run + 2);
    for t in 0..T {
        let (a, b) = (_mm256_castsi256_ps(sums[t]), _mm256_castsi256_ps(last[t]));
        sums[t] = add::<F>(
            _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(a, b)),
            _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(a, b)),
        );
        if in_words::<F>() {
            sums[t] = _mm256_madd_epi16(sums[t], _mm256_set1_epi16(1));
        }
    }
    sums
}

/// The sums of two runs, of a quarter of their codes in each quarter.
///
/// Each run is taken apart once, and its codes never leave registers.
#[inline(always)]
unsafe fn two<F: RunBits, const T: usize>(panel: *const u8, x: &[Panel; T], run: usize) -> [__m256i; T] {
    let mut sums = products::<F, T>(panel, x, run);
    let last = products::<F, T>(panel, x, run + 1);
    for t in 0..T {
        let (a, b) = (sums[t], last[t]);
        sums[t] = add::<F>(_mm256_blend_epi32::<0b1100_1100>(a, b), _mm256_alignr_epi8::<8>(b, a));
    }
    sums
}

/// The sums of two products each, in words, or of four.
#[inline(always)]
unsafe fn products<F: RunBits, const T: usize>(panel: *const u8, x: &[Panel; T], run: usize) -> [__m256i; T] {
    let w = F::vector(panel.add(run * F::FORMAT.block_bytes()));
    let mut products = [_mm256_setzero_si256(); T];
    for t in 0..T {
        let x = _mm256_loadu_si256(x[t].codes.add(32 * run).cast());
        products[t] = pairs(w, x, F::BIAS);
        if !in_words::<F>() {
            products[t] = _mm256_madd_epi16(products[t], _mm256_set1_epi16(1));
        }
    }
    products
}
