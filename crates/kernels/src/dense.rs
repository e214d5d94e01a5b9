//! A vector against many rows of floats: dot products and weighted sums. Attention and the delta rule are made of
//! these two.
#![allow(unsafe_code)]

use crate::Isa;
use crate::isa::{Level, for_each_isa};
use crate::lanes::{LANES, sum};

/// `out[i] = vector · row[i]`, where row i is the numbers from `i * stride` on. Each sum runs in lanes (see the crate).
///
/// # Panics
/// If a row is not all there.
#[inline(never)] // As a part of something greater its loops are compiled badly; so are those of `accumulate`.
pub(crate) fn dots(isa: Isa, vector: &[f32], rows: &[f32], stride: usize, out: &mut [f32]) {
    let row = |i: usize| &rows[i * stride..][..vector.len()];
    match isa.level() {
        Level::Scalar => out.iter_mut().enumerate().for_each(|(i, out)| *out = dot_in_lanes(vector, row(i))),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the value proves that this CPU has the instruction set.
        Level::Avx2 | Level::AvxVnni | Level::Avx512 | Level::Amx => unsafe { avx2::dots(vector, row, out) },
    }
}

/// `a · b`, summed in lanes.
#[inline(always)]
pub(crate) fn dot(isa: Isa, a: &[f32], b: &[f32]) -> f32 {
    let b = &b[..a.len()];
    match isa.level() {
        Level::Scalar => dot_in_lanes(a, b),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the value proves that this CPU has the instruction set.
        Level::Avx2 | Level::AvxVnni | Level::Avx512 | Level::Amx => unsafe { avx2::dot1(a, b) },
    }
}

fn dot_in_lanes(a: &[f32], b: &[f32]) -> f32 {
    let mut lane = [0f32; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for ((lane, &a), &b) in lane.iter_mut().zip(a).zip(b) {
            *lane = a.mul_add(b, *lane);
        }
    }
    sum(lane)
}

for_each_isa! {
    /// `sums += Σ weights[i] row[i]`, term by term in the order of the rows, where row i is the numbers from
    /// `i * stride` on.
    ///
    /// # Panics
    /// If a row is not all there.
    #[inline(never)]
    pub(crate) fn accumulate(sums: &mut [f32], weights: &[f32], rows: &[f32], stride: usize) {
        if weights.is_empty() {
            return;
        }
        // As many sums at a time as leave registers to spare.
        let (wide, rest) = sums.as_chunks_mut::<64>();
        let first = wide.len() * 64;
        for (i, sums) in wide.iter_mut().enumerate() {
            accumulate_block(sums, weights, &rows[i * 64..], stride);
        }
        let (narrow, rest) = rest.as_chunks_mut::<LANES>();
        for (i, sums) in narrow.iter_mut().enumerate() {
            accumulate_block(sums, weights, &rows[first + i * LANES..], stride);
        }
        let first = first + narrow.len() * LANES;
        for (i, sum) in rest.iter_mut().enumerate() {
            accumulate_block(std::array::from_mut(sum), weights, &rows[first + i..], stride);
        }
    }
}

/// [`accumulate`] for so few sums that they stay in registers.
#[inline(always)]
pub(crate) fn accumulate_block<const N: usize>(
    sums: &mut [f32; N],
    weights: &[f32],
    rows: &[f32],
    stride: usize,
) {
    let mut sum = *sums;
    for (i, &weight) in weights.iter().enumerate() {
        let row = &rows[i * stride..][..N];
        for (sum, &x) in sum.iter_mut().zip(row) {
            *sum = weight.mul_add(x, *sum);
        }
    }
    *sums = sum;
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::LANES;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn dots<'a>(a: &[f32], row: impl Fn(usize) -> &'a [f32], out: &mut [f32]) {
        let (fours, rest) = out.as_chunks_mut::<4>();
        let first = fours.len() * 4;
        for (i, out) in fours.iter_mut().enumerate() {
            *out = dot4(a, [row(4 * i), row(4 * i + 1), row(4 * i + 2), row(4 * i + 3)]);
        }
        for (i, out) in rest.iter_mut().enumerate() {
            *out = dot1(a, row(first + i));
        }
    }

    /// The dot products of four rows as long as `a`, which share the loads of `a` and the steps of the final sums.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn dot4(a: &[f32], rows: [&[f32]; 4]) -> [f32; 4] {
        assert!(rows.iter().all(|row| row.len() == a.len()));
        let [r0, r1, r2, r3] = rows.map(<[f32]>::as_ptr);
        let [mut s0, mut s1, mut s2, mut s3] = [_mm256_setzero_ps(); 4];
        let whole = a.len() / LANES * LANES;
        for i in (0..whole).step_by(LANES) {
            // SAFETY: eight numbers from i on are within `a` and the rows, which are as long.
            unsafe {
                let a = _mm256_loadu_ps(a.as_ptr().add(i));
                s0 = _mm256_fmadd_ps(a, _mm256_loadu_ps(r0.add(i)), s0);
                s1 = _mm256_fmadd_ps(a, _mm256_loadu_ps(r1.add(i)), s1);
                s2 = _mm256_fmadd_ps(a, _mm256_loadu_ps(r2.add(i)), s2);
                s3 = _mm256_fmadd_ps(a, _mm256_loadu_ps(r3.add(i)), s3);
            }
        }
        if whole < a.len() {
            let a = pad(&a[whole..]);
            s0 = _mm256_fmadd_ps(a, pad(&rows[0][whole..]), s0);
            s1 = _mm256_fmadd_ps(a, pad(&rows[1][whole..]), s1);
            s2 = _mm256_fmadd_ps(a, pad(&rows[2][whole..]), s2);
            s3 = _mm256_fmadd_ps(a, pad(&rows[3][whole..]), s3);
        }
        // [0+4, 1+5, 2+6, 3+7] of each row, then [(0+4)+(2+6), (1+5)+(3+7)] of two rows at a time, then the sums.
        let (s0, s1, s2, s3) = (fold(s0), fold(s1), fold(s2), fold(s3));
        let t0 = _mm_add_ps(_mm_unpacklo_ps(s0, s1), _mm_unpackhi_ps(s0, s1));
        let t1 = _mm_add_ps(_mm_unpacklo_ps(s2, s3), _mm_unpackhi_ps(s2, s3));
        let sums = _mm_add_ps(_mm_movelh_ps(t0, t1), _mm_movehl_ps(t1, t0));
        let mut out = [0f32; 4];
        // SAFETY: four floats are written to an array of four.
        unsafe { _mm_storeu_ps(out.as_mut_ptr(), sums) };
        out
    }

    /// The dot product of slices of the same length.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn dot1(a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len());
        let mut lane = _mm256_setzero_ps();
        let whole = a.len() / LANES * LANES;
        for i in (0..whole).step_by(LANES) {
            // SAFETY: eight numbers from i on are within `a` and `b`, which is as long.
            let (a, b) = unsafe { (_mm256_loadu_ps(a.as_ptr().add(i)), _mm256_loadu_ps(b.as_ptr().add(i))) };
            lane = _mm256_fmadd_ps(a, b, lane);
        }
        if whole < a.len() {
            lane = _mm256_fmadd_ps(pad(&a[whole..]), pad(&b[whole..]), lane);
        }
        let s = fold(lane);
        let t = _mm_add_ps(s, _mm_movehl_ps(s, s));
        _mm_cvtss_f32(_mm_add_ss(t, _mm_shuffle_ps::<1>(t, t)))
    }

    /// The halves of a register added.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn fold(lane: __m256) -> __m128 {
        _mm_add_ps(_mm256_castps256_ps128(lane), _mm256_extractf128_ps::<1>(lane))
    }

    /// The numbers, fewer than eight, then zeros.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn pad(x: &[f32]) -> __m256 {
        let mut padded = [0f32; LANES];
        padded[..x.len()].copy_from_slice(x);
        // SAFETY: eight floats are read from an array of eight.
        unsafe { _mm256_loadu_ps(padded.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, cpus, noise};

    #[test]
    fn sums_are_those_of_f64_with_the_same_bits_everywhere() {
        for width in [1, 2, 7, 8, 9, 16, 31, 64, 65, 80, 129, 200] {
            for rows in [0, 1, 3, 4, 5, 11] {
                let stride = width + 3;
                let (vector, matrix) = (noise(1, width), noise(2, rows * stride));
                let row = |i: usize| &matrix[i * stride..][..width];
                let exact =
                    |i: usize| vector.iter().zip(row(i)).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                let exact: Vec<f64> = (0..rows).map(exact).collect();
                let mut first = None;
                for cpu in cpus() {
                    let mut out = vec![0.0; rows];
                    dots(cpu.isa, &vector, &matrix, stride, &mut out);
                    assert_close(&out, &exact, 1e-5);
                    let one: Vec<f32> = (0..rows).map(|i| dot(cpu.isa, &vector, row(i))).collect();
                    assert_eq!(out, one);
                    assert_eq!(first.get_or_insert(out.clone()), &out);
                }
                let weights = noise(3, rows);
                let mut sums = vec![1.0; width];
                accumulate(Isa::best(), &mut sums, &weights, &matrix, stride);
                let mut same = vec![1.0; width];
                accumulate(Isa::SCALAR, &mut same, &weights, &matrix, stride);
                assert_eq!(sums, same);
                let term = |column: usize, i: usize| f64::from(weights[i]) * f64::from(row(i)[column]);
                let exact: Vec<f64> =
                    (0..width).map(|column| 1.0 + (0..rows).map(|i| term(column, i)).sum::<f64>()).collect();
                assert_close(&sums, &exact, 1e-5);
            }
        }
    }
}
