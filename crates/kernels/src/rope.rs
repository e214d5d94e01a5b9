//! Rotary position embedding.

use crate::Cpu;
use crate::elementwise::over_pieces;
use crate::isa::for_each_isa;

/// Rotates pairs of numbers `(a, b)` of every head of `x: [T, row]` into
/// `(a cos - b sin, a sin + b cos)`.
///
/// A row consists of heads of `head` numbers, of which the first `2 * half` form pairs:
/// `(2j, 2j + 1)` if `adjacent`, otherwise `(j, j + half)`.
/// `cos` and `sin` are `[T, half]`: the row's position times the pair's frequency.
///
/// # Panics
/// If the lengths don't match.
#[allow(clippy::too_many_arguments)] // A row, its layout and its angles.
pub fn rope(
    cpu: &Cpu,
    x: &mut [f32],
    row: usize,
    head: usize,
    cos: &[f32],
    sin: &[f32],
    half: usize,
    adjacent: bool,
) {
    assert!(head > 0 && row.is_multiple_of(head) && 2 * half <= head, "rope: rows of {row}, heads of {head}");
    assert!(row == 0 || x.len().is_multiple_of(row), "rope: {} numbers, rows of {row}", x.len());
    let rows = x.len().checked_div(row).unwrap_or(0);
    assert!(cos.len() == rows * half && sin.len() == rows * half, "rope: angles for {rows} rows of {half}");
    if half == 0 {
        return;
    }
    over_pieces(cpu, x, row, &|range, x| {
        let angles = range.start / row * half..range.end / row * half;
        let (cos, sin) = (&cos[angles.clone()], &sin[angles]);
        for (x, (cos, sin)) in x.chunks_exact_mut(row).zip(cos.chunks_exact(half).zip(sin.chunks_exact(half)))
        {
            rotate(cpu.isa, x, head, cos, sin, adjacent);
        }
    });
}

for_each_isa! {
    fn rotate(row: &mut [f32], head: usize, cos: &[f32], sin: &[f32], adjacent: bool) {
        for head in row.chunks_exact_mut(head) {
            if adjacent {
                for ((pair, &cos), &sin) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                    [pair[0], pair[1]] = rotated([pair[0], pair[1]], cos, sin);
                }
            } else {
                let (first, second) = head.split_at_mut(cos.len());
                for (((a, b), &cos), &sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                    [*a, *b] = rotated([*a, *b], cos, sin);
                }
            }
        }
    }
}

#[inline(always)]
fn rotated([a, b]: [f32; 2], cos: f32, sin: f32) -> [f32; 2] {
    [a * cos - b * sin, a * sin + b * cos]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_rows;

    /// Checks heads of `head` numbers with `half` pairs against the formula.
    fn check(head: usize, half: usize, adjacent: bool) {
        let width = 3 * head;
        let angle = |row: usize, j: usize| row as f64 * 1e4f64.powf(-(j as f64) / half as f64);
        let table = |first: usize, rows: usize, f: fn(f64) -> f64| -> Vec<f32> {
            (first..first + rows).flat_map(|row| (0..half).map(move |j| f(angle(row, j)) as f32)).collect()
        };
        check_rows(
            width,
            width,
            1e-6,
            |cpu, first, x, y| {
                let rows = x.len() / width;
                y.copy_from_slice(x);
                let (cos, sin) = (table(first, rows, f64::cos), table(first, rows, f64::sin));
                rope(cpu, y, width, head, &cos, &sin, half, adjacent);
            },
            |row, x| {
                let mut exact: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
                for head in exact.chunks_exact_mut(head) {
                    for j in 0..half {
                        let (a, b) = if adjacent { (2 * j, 2 * j + 1) } else { (j, j + half) };
                        let (sin, cos) = angle(row, j).sin_cos();
                        (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
                    }
                }
                exact
            },
        );
    }

    #[test]
    fn pairs_turn_by_their_angle() {
        for adjacent in [false, true] {
            for (head, half) in [(8, 4), (64, 32), (256, 32), (10, 3), (96, 48), (5, 0)] {
                check(head, half, adjacent);
            }
        }
    }
}
