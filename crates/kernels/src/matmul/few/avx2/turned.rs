//! Products of runs with few rows of activations by AVX2: eight rows of weights are turned, so that each has a lane of every
//! register, and no sum goes across lanes.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::needless_range_loop)] // Indices, because what iterators do to arrays of registers isn't always unrolled.

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::in_parts;
use super::{Few, Panel, settled};
use crate::Format;
use crate::lanes::LANES;
use crate::quant::avx2::{Bias, RunBits, each};
use crate::quant::{RUN, codebook, legacy};
use crate::wide::turn;

/// The rows of weights that are turned.
const ROWS: usize = 8;

/// The most rows of activations that weights are turned for at once: as many as have sums in registers.
const TOGETHER: usize = 8;

/// The bytes of a row of Q8_0 from which one row of activations takes weights as they lie: then memory is the limit, of which four
/// long streams get more. Shorter rows are of models so small that they stay in a cache.
const LONG: usize = 1 << 10;

/// The products of some rows of weights; `false` if there is nothing here for the format, or if weights are better used as they lie.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and no other task has these rows of weights.
pub(super) unsafe fn some_rows(p: Few, format: Format, rows: Range<usize>) -> bool {
    let waits = format == Format::Q8_0 && p.tokens == 1 && p.row_bytes >= LONG;
    if waits || !p.out.is_multiple_of(ROWS) {
        return false;
    }
    match format {
        Format::Q4_0 => multiply::<legacy::Q4_0>(p, rows),
        Format::Q4_1 => multiply::<legacy::Q4_1>(p, rows),
        Format::Q5_0 => multiply::<legacy::Q5_0>(p, rows),
        Format::Q5_1 => multiply::<legacy::Q5_1>(p, rows),
        Format::Q8_0 => multiply::<legacy::Q8_0>(p, rows),
        Format::MXFP4 => multiply::<codebook::MXFP4>(p, rows),
        Format::IQ4_NL => multiply::<codebook::IQ4_NL>(p, rows),
        _ => return false,
    }
    true
}

/// # Safety
/// As [`some_rows`], and the rows of weights are whole groups.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply<F: RunBits>(p: Few, rows: Range<usize>) {
    let groups = rows.start / ROWS..rows.end / ROWS;
    in_parts!(p.tokens, first, TOGETHER, T => together::<F, T>(&p, groups.clone(), first); 1 2 3 4 5 6 7);
}

/// The products of some groups of rows with T rows of activations from `first` on.
///
/// # Safety
/// As [`multiply`], from functions with these features.
#[inline(always)]
unsafe fn together<F: RunBits, const T: usize>(p: &Few, groups: Range<usize>, first: usize) {
    let bytes = F::FORMAT.block_bytes();
    let blocks = p.row_bytes / bytes;
    let x: [_; T] = std::array::from_fn(|token| {
        let x = p.x.all_runs(p.taken.get(first + token));
        assert!(x.0.len() >= RUN * blocks && x.1.len() >= RUN / 16 * blocks && x.2.len() >= blocks);
        Panel::first(x)
    });
    for group in groups {
        let row = group * ROWS;
        let w = &p.w[row * p.row_bytes..][..ROWS * p.row_bytes];
        let mut next = w.as_ptr().wrapping_add(w.len());
        let mut lanes = [[_mm256_setzero_ps(); T]; LANES];
        for index in 0..blocks {
            // Into the second cache: the first has no room for two groups, and too few lines under way.
            for line in (0..ROWS * bytes).step_by(64) {
                _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(line).cast());
            }
            next = next.wrapping_add(ROWS * bytes);
            let at = w.as_ptr().add(index * bytes);
            add::<F, T>(at, p.row_bytes, &Panel::at(x, index, (RUN, RUN / 16, 1)), &mut lanes[index % LANES]);
        }
        for token in 0..T {
            // As `lanes::sum`.
            let s = each!(lane => lanes[lane][token]);
            let even = _mm256_add_ps(_mm256_add_ps(s[0], s[4]), _mm256_add_ps(s[2], s[6]));
            let odd = _mm256_add_ps(_mm256_add_ps(s[1], s[5]), _mm256_add_ps(s[3], s[7]));
            let mut numbers = [0f32; ROWS];
            _mm256_storeu_ps(numbers.as_mut_ptr(), _mm256_add_ps(even, odd));
            p.y.slice((first + token) * p.out + row, ROWS).copy_from_slice(&numbers);
        }
    }
}

/// Adds the products of a run of each row, so many bytes apart, with T runs of activations to the sums of a lane.
#[inline(always)]
unsafe fn add<F: RunBits, const T: usize>(
    w: *const u8,
    stride: usize,
    x: &[Panel; T],
    sums: &mut [__m256; T],
) {
    // How many times two products fit into a word: a power of two, so that a run is whole times as many.
    let most = (1 << (i16::MAX as usize / (2 * 127 * F::MOST as usize)).ilog2()).min(RUN / 4);
    let codes = turn(each!(row => _mm256_castsi256_ps(F::vector(w.add(row * stride)))));
    let mut words = [_mm256_setzero_si256(); T];
    let mut totals = [_mm256_setzero_si256(); T];
    each!(i => {
        let codes = _mm256_castps_si256(codes[i]);
        let without_sign = _mm256_abs_epi8(codes);
        for t in 0..T {
            let x = _mm256_set1_epi32(x[t].codes.add(4 * i).cast::<i32>().read_unaligned());
            let products = match F::BIAS {
                Bias::Unsigned(_) => _mm256_maddubs_epi16(codes, x),
                Bias::Signed => _mm256_maddubs_epi16(without_sign, _mm256_sign_epi8(x, codes)),
            };
            words[t] = if i.is_multiple_of(most) { products } else { _mm256_add_epi16(words[t], products) };
            if (i + 1).is_multiple_of(most) {
                let pairs = _mm256_madd_epi16(words[t], _mm256_set1_epi16(1));
                totals[t] = settled(_mm256_add_epi32(totals[t], pairs));
            }
        }
    });
    let scales = F::scales(w, stride);
    for t in 0..T {
        let of_x = _mm256_set1_ps(x[t].scale());
        let code_sums = _mm256_set1_epi32(x[t].sums.cast::<i32>().read_unaligned());
        let mut total = totals[t];
        if let Bias::Unsigned(bias @ 1..) = F::BIAS {
            total = _mm256_sub_epi32(total, _mm256_madd_epi16(code_sums, _mm256_set1_epi16(bias)));
        }
        sums[t] = _mm256_fmadd_ps(_mm256_mul_ps(scales, of_x), _mm256_cvtepi32_ps(total), sums[t]);
        if F::OFFSET {
            let total = _mm256_cvtepi32_ps(_mm256_madd_epi16(code_sums, _mm256_set1_epi16(1)));
            sums[t] = _mm256_fmadd_ps(_mm256_mul_ps(F::offsets(w, stride), of_x), total, sums[t]);
        }
    }
}
