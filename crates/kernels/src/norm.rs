//! Root mean square normalization, and the centering that turns it into layer normalization.

use crate::dense::dot;
use crate::elementwise::over_pieces;
use crate::isa::for_each_isa;
use crate::wide::LANES;
use crate::{Cpu, Isa};

/// `y = weight x / sqrt(mean(x²) + epsilon)` of every group of `weight.len()` numbers: rows, or
/// heads of rows.
///
/// # Panics
/// If `x` and `y` don't have the same whole number of groups.
pub fn rms_norm(cpu: &Cpu, x: &[f32], weight: &[f32], epsilon: f32, y: &mut [f32]) {
    let width = weight.len();
    assert_eq!(x.len(), y.len(), "rms_norm");
    assert!(x.len().is_multiple_of(width.max(1)), "rms_norm: {} numbers, runs of {width}", x.len());
    over_pieces(cpu, y, width, &|range, y| norm_groups(cpu.isa, cpu.isa, &x[range], weight, epsilon, y));
}

/// `y = x - mean(x)` of every row of `width` numbers.
///
/// # Panics
/// If `x` and `y` don't have the same whole number of rows.
pub fn centre(cpu: &Cpu, x: &[f32], width: usize, y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "centre");
    assert!(x.len().is_multiple_of(width.max(1)), "centre: {} numbers, rows of {width}", x.len());
    over_pieces(cpu, y, width, &|range, y| centre_rows(cpu.isa, &x[range], width, y));
}

for_each_isa! {
    fn centre_rows(x: &[f32], width: usize, y: &mut [f32]) {
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            let mut lanes = [0.0; LANES];
            for some in x.chunks(LANES) {
                lanes.iter_mut().zip(some).for_each(|(lane, x)| *lane += x);
            }
            let mean = lanes.iter().sum::<f32>() / width as f32;
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x - mean);
        }
    }

    fn norm_groups(isa: Isa, x: &[f32], weight: &[f32], epsilon: f32, y: &mut [f32]) {
        for (x, y) in x.chunks_exact(weight.len()).zip(y.chunks_exact_mut(weight.len())) {
            let mean = dot(isa, x, x) / weight.len() as f32;
            let scale = 1.0 / (mean + epsilon).sqrt();
            for ((y, &x), &weight) in y.iter_mut().zip(x).zip(weight) {
                *y = x * scale * weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_rows, noise};

    #[test]
    fn the_mean_becomes_zero() {
        for width in [1, 3, 16, 100, 2880] {
            let exact = |x: &[f32]| {
                let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / width as f64;
                x.iter().map(|&x| f64::from(x) - mean).collect()
            };
            check_rows(width, width, 1e-6, |cpu, _, x, y| centre(cpu, x, width, y), |_, x| exact(x));
        }
    }

    #[test]
    fn the_root_mean_square_becomes_one() {
        for width in [1, 3, 8, 64, 100, 2880] {
            let weight = noise(5, width);
            let exact = |x: &[f32]| {
                let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
                let scale = 1.0 / (squares / width as f64 + f64::from(1e-6f32)).sqrt();
                x.iter().zip(&weight).map(|(&x, &w)| f64::from(x) * scale * f64::from(w)).collect()
            };
            check_rows(
                width,
                width,
                1e-6,
                |cpu, _, x, y| rms_norm(cpu, x, &weight, 1e-6, y),
                |_, x| exact(x),
            );
        }
    }
}
