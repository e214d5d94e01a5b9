//! Elementwise sums and products.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::Cpu;
use crate::isa::for_each_isa;
use crate::thread_pool::Disjoint;

/// Numbers per task of a light kernel: waking a thread for fewer isn't worthwhile.
const TASK: usize = 8 * 1024;

/// Calls `work` with the ranges of `0..rows` that form tasks, for rows of `width` numbers.
pub(crate) fn over_rows(cpu: &Cpu, rows: usize, width: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    let step = (TASK / width.max(1)).max(1);
    cpu.threads.run(rows.div_ceil(step), &|task| work(task * step..rows.min((task + 1) * step)));
}

/// Calls `work` with pieces of `y`, each of whole rows of `width` numbers, and with the range of
/// numbers in each piece.
pub(crate) fn over_pieces(
    cpu: &Cpu,
    y: &mut [f32],
    width: usize,
    work: &(dyn Fn(Range<usize>, &mut [f32]) + Sync),
) {
    let rows = y.len().checked_div(width).unwrap_or(0);
    let y = Disjoint::new(y);
    over_rows(cpu, rows, width, &|rows| {
        // SAFETY: no two tasks have the same row.
        let piece = unsafe { y.slice(rows.start * width, rows.len() * width) };
        work(rows.start * width..rows.end * width, piece);
    });
}

/// `x += y`
///
/// # Panics
/// If the lengths differ.
pub fn add(cpu: &Cpu, x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "add");
    over_pieces(cpu, x, 1, &|range, x| add_all(cpu.isa, x, &y[range]));
}

/// `x[t] += row` for every row of `x: [T, row.len()]`.
///
/// # Panics
/// If `x` is not a whole number of rows.
pub fn add_row(cpu: &Cpu, x: &mut [f32], row: &[f32]) {
    assert!(x.len().is_multiple_of(row.len().max(1)), "add_row: {} numbers, rows of {}", x.len(), row.len());
    over_pieces(cpu, x, row.len(), &|_, x| {
        for x in x.chunks_exact_mut(row.len()) {
            add_all(cpu.isa, x, row);
        }
    });
}

/// `x[t] += table[rows[t]]` for every row of `x: [rows.len(), width]` and rows of a table of that
/// width.
///
/// # Panics
/// If `x` is not a whole number of rows, or a row is not in the table.
pub fn add_rows(cpu: &Cpu, x: &mut [f32], table: &[f32], rows: &[u32]) {
    let width = x.len().checked_div(rows.len()).unwrap_or(0);
    assert_eq!(x.len(), width * rows.len(), "add_rows");
    over_pieces(cpu, x, width, &|range, x| {
        for (x, &row) in x.chunks_exact_mut(width).zip(&rows[range.start / width..]) {
            add_all(cpu.isa, x, &table[row as usize * width..][..width]);
        }
    });
}

/// `y[t] = Σ weights[t, i] x[rows[t, i]]`, in the order of `i`, for rows of `width` numbers;
/// `weights` and `rows` have equal numbers of entries for each row of `y`.
///
/// # Panics
/// If lengths don't match, or a row is not in `x`.
pub fn weigh_rows(cpu: &Cpu, x: &[f32], width: usize, rows: &[u32], weights: &[f32], y: &mut [f32]) {
    let used = (rows.len() * width).checked_div(y.len()).unwrap_or(0);
    assert!(rows.len() == weights.len() && rows.len() * width == used * y.len(), "weigh_rows");
    over_pieces(cpu, y, width, &|range, y| {
        for (t, y) in (range.start / width..).zip(y.chunks_exact_mut(width)) {
            y.fill(0.0);
            for (&row, &weight) in rows[t * used..][..used].iter().zip(&weights[t * used..]) {
                add_weighed(cpu.isa, y, &x[row as usize * width..][..width], weight);
            }
        }
    });
}

/// `x[t] *= factors[t]` for every row of `x: [T, width]`.
///
/// # Panics
/// If `x` doesn't have one row of `width` numbers per factor.
pub fn scale_rows(cpu: &Cpu, x: &mut [f32], width: usize, factors: &[f32]) {
    assert_eq!(x.len(), width * factors.len(), "scale_rows");
    over_pieces(cpu, x, width, &|range, x| {
        for (x, &factor) in x.chunks_exact_mut(width).zip(&factors[range.start / width..]) {
            scale_all(cpu.isa, x, factor);
        }
    });
}

for_each_isa! {
    fn add_all(x: &mut [f32], y: &[f32]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }

    fn add_weighed(y: &mut [f32], x: &[f32], weight: f32) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y += weight * x;
        }
    }

    fn scale_all(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_rows, noise};

    #[test]
    fn sums_and_products() {
        for width in [1, 5, 64, 3000] {
            let row = noise(7, width);
            let wanted = |x: &[f32]| x.iter().zip(&row).map(|(&x, &y)| f64::from(x) + f64::from(y)).collect();
            check_rows(
                width,
                width,
                1e-7,
                |cpu, _, x, y| {
                    y.copy_from_slice(x);
                    let rows: Vec<f32> = (0..x.len() / width).flat_map(|_| row.clone()).collect();
                    add(cpu, y, &rows);
                },
                |_, x| wanted(x),
            );
            check_rows(
                width,
                width,
                1e-7,
                |cpu, _, x, y| {
                    y.copy_from_slice(x);
                    add_row(cpu, y, &row);
                },
                |_, x| wanted(x),
            );
            let factor = |row: usize| row as f32 - 3.5;
            check_rows(
                width,
                width,
                1e-7,
                |cpu, first, x, y| {
                    y.copy_from_slice(x);
                    let factors: Vec<f32> = (0..x.len() / width).map(|row| factor(first + row)).collect();
                    scale_rows(cpu, y, width, &factors);
                },
                |row, x| x.iter().map(|&x| f64::from(x) * f64::from(factor(row))).collect(),
            );
        }
    }
}
