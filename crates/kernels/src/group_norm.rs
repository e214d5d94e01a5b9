//! Root mean square normalization of parts of rows.

use crate::dense::dot;
use crate::elementwise::over_pieces;
use crate::isa::for_each_isa;
use crate::{Cpu, Isa};

/// [`rms_norm`](crate::rms_norm) of each of `groups` equal parts of a row of `weight.len()`
/// numbers, with its own part of the weights.
///
/// # Panics
/// If `x` and `y` don't have the same whole number of rows, or rows can't be divided equally.
pub fn group_norm(cpu: &Cpu, x: &[f32], weight: &[f32], groups: usize, epsilon: f32, y: &mut [f32]) {
    let width = weight.len();
    assert!(groups > 0 && width.is_multiple_of(groups), "group_norm: {width} numbers in {groups} groups");
    assert_eq!(x.len(), y.len(), "group_norm");
    assert!(x.len().is_multiple_of(width.max(1)), "group_norm: {} numbers, rows of {width}", x.len());
    if width == 0 {
        return;
    }
    let group = width / groups;
    over_pieces(cpu, y, width, &|range, y| {
        norm_groups(cpu.isa, cpu.isa, &x[range], weight, group, epsilon, y);
    });
}

for_each_isa! {
    fn norm_groups(isa: Isa, x: &[f32], weight: &[f32], group: usize, epsilon: f32, y: &mut [f32]) {
        let weights = weight.chunks_exact(group).cycle();
        for ((x, y), weight) in x.chunks_exact(group).zip(y.chunks_exact_mut(group)).zip(weights) {
            let scale = 1.0 / (dot(isa, x, x) / group as f32 + epsilon).sqrt();
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
    fn groups_have_weights_of_their_own() {
        for (width, groups) in [(6, 2), (80, 1), (128, 8)] {
            let weight = noise(5, width);
            let group = width / groups;
            let exact = |x: &[f32]| {
                let parts = x.chunks_exact(group).zip(weight.chunks_exact(group));
                let normed = parts.flat_map(|(x, weight)| {
                    let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
                    let scale = 1.0 / (squares / group as f64 + f64::from(1e-5f32)).sqrt();
                    x.iter().zip(weight).map(move |(&x, &w)| f64::from(x) * scale * f64::from(w))
                });
                normed.collect()
            };
            check_rows(
                width,
                width,
                1e-6,
                |cpu, _, x, y| group_norm(cpu, x, &weight, groups, 1e-5, y),
                |_, x| exact(x),
            );
        }
    }
}
