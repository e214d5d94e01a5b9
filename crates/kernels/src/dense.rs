//! Products of a vector with many rows of floats: dot products and weighted sums.
//! Norms and the delta rule are built from these.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // Indices tell registers apart.

use crate::wide::{LANES, Wide, for_each_wide};

for_each_wide! {
    /// `out[i] = vector · row[i]`, where row i is the numbers from `i * stride` on.
    /// Sums use lanes (see [`crate::wide`]).
    ///
    /// # Panics
    /// If a row is incomplete.
    #[inline(never)] // As a part of something greater its loops are compiled badly; so are those of `accumulate`.
    pub(crate) fn dots<W>(vector: &[f32], rows: &[f32], stride: usize, out: &mut [f32]) {
        let row = |i: usize| &rows[i * stride..][..vector.len()];
        let (fours, rest) = out.as_chunks_mut::<4>();
        let first = fours.len() * 4;
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            for (i, out) in fours.iter_mut().enumerate() {
                *out = dot_rows::<W, 4>(vector, [row(4 * i), row(4 * i + 1), row(4 * i + 2), row(4 * i + 3)]);
            }
            for (i, out) in rest.iter_mut().enumerate() {
                [*out] = dot_rows::<W, 1>(vector, [row(first + i)]);
            }
        }
    }

    /// `a · b`, summed in lanes.
    ///
    /// # Panics
    /// If `b` is shorter.
    pub(crate) fn dot<W>(a: &[f32], b: &[f32]) -> f32 {
        // SAFETY: as above.
        unsafe { dot_rows::<W, 1>(a, [b])[0] }
    }

    /// `sums += Σ weights[i] row[i]`, term by term in the order of the rows, where row i is the
    /// numbers from `i * stride` on.
    ///
    /// # Panics
    /// If a row is incomplete.
    #[inline(never)]
    pub(crate) fn accumulate<W>(sums: &mut [f32], weights: &[f32], rows: &[f32], stride: usize) {
        if weights.is_empty() {
            return;
        }
        assert!((weights.len() - 1) * stride + sums.len() <= rows.len(), "accumulate: rows");
        let width = sums.len();
        let mut first = 0;
        // As many sums at a time as registers permit.
        // SAFETY: as above, and all rows were just checked.
        unsafe {
            while width - first >= 8 * LANES && W::BLOCK > 2 {
                accumulate_block::<W, 8>(&mut sums[first..], weights, &rows[first..], stride);
                first += 8 * LANES;
            }
            while width - first >= 4 * LANES {
                accumulate_block::<W, 4>(&mut sums[first..], weights, &rows[first..], stride);
                first += 4 * LANES;
            }
            while width - first >= LANES {
                accumulate_block::<W, 1>(&mut sums[first..], weights, &rows[first..], stride);
                first += LANES;
            }
        }
        for (i, sum) in sums[first..].iter_mut().enumerate() {
            for (row, weight) in weights.iter().enumerate() {
                *sum = weight.mul_add(rows[row * stride + first + i], *sum);
            }
        }
    }
}

/// The dot products of several rows, which share the loads of `a`.
///
/// # Safety
/// The CPU has the instruction set of `W`.
#[inline(always)]
unsafe fn dot_rows<W: Wide, const N: usize>(a: &[f32], rows: [&[f32]; N]) -> [f32; N] {
    let (wholes, rest) = a.as_chunks::<LANES>();
    for row in rows {
        assert!(row.len() >= a.len(), "dot: {} numbers and {}", a.len(), row.len());
    }
    // SAFETY: upheld by the caller, and sixteen numbers from every whole chunk on are within `a`
    // and the rows.
    unsafe {
        let mut sums = [W::splat(0.0); N];
        for (i, a) in wholes.iter().enumerate() {
            let a = W::load(a.as_ptr());
            for n in 0..N {
                sums[n] = a.mul_add(W::load(rows[n].as_ptr().add(i * LANES)), sums[n]);
            }
        }
        if !rest.is_empty() {
            let from = wholes.len() * LANES;
            let x = padded::<W>(rest);
            for n in 0..N {
                sums[n] = x.mul_add(padded(&rows[n][from..a.len()]), sums[n]);
            }
        }
        W::sums(sums)
    }
}

/// Loads fewer than sixteen numbers, padded with zeros.
///
/// # Safety
/// The CPU has the instruction set of `W`.
#[inline(always)]
unsafe fn padded<W: Wide>(x: &[f32]) -> W {
    let mut padded = [0.0; LANES];
    padded[..x.len()].copy_from_slice(x);
    // SAFETY: upheld by the caller, and sixteen numbers exist.
    unsafe { W::load(padded.as_ptr()) }
}

/// [`accumulate`] for this many times sixteen sums, which stay in registers.
///
/// # Safety
/// The CPU has the instruction set of `W`, and the sums and all rows exist.
#[inline(always)]
unsafe fn accumulate_block<W: Wide, const N: usize>(
    sums: &mut [f32],
    weights: &[f32],
    rows: &[f32],
    stride: usize,
) {
    // SAFETY: upheld by the caller.
    unsafe {
        let mut now = [W::splat(0.0); N];
        for n in 0..N {
            now[n] = W::load(sums.as_ptr().add(n * LANES));
        }
        for (i, &weight) in weights.iter().enumerate() {
            let (weight, row) = (W::splat(weight), rows.as_ptr().add(i * stride));
            for n in 0..N {
                now[n] = weight.mul_add(W::load(row.add(n * LANES)), now[n]);
            }
        }
        for n in 0..N {
            now[n].store(sums.as_mut_ptr().add(n * LANES));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
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
