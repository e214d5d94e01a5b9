//! Root mean square normalisation.

use crate::dense::dot;
use crate::elementwise::over_pieces;
use crate::isa::for_each_isa;
use crate::{Cpu, Isa};

/// `y = weight x / sqrt(mean(x²) + epsilon)` of every run of `weight.len()` numbers: rows, or heads of rows.
///
/// # Panics
/// If `x` and `y` are not the same whole number of runs.
pub fn rms_norm(cpu: &Cpu, x: &[f32], weight: &[f32], epsilon: f32, y: &mut [f32]) {
    let width = weight.len();
    assert_eq!(x.len(), y.len(), "rms_norm");
    assert!(x.len().is_multiple_of(width.max(1)), "rms_norm: {} numbers, runs of {width}", x.len());
    over_pieces(cpu, y, width, &|range, y| norm_runs(cpu.isa, cpu.isa, &x[range], weight, epsilon, y));
}

for_each_isa! {
    fn norm_runs(isa: Isa, x: &[f32], weight: &[f32], epsilon: f32, y: &mut [f32]) {
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
