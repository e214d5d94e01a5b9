//! Causal depthwise convolution over the rows of one sequence.
#![allow(unsafe_code)]

use crate::Cpu;
use crate::exp::silu;
use crate::isa::for_each_isa;
use crate::thread_pool::Disjoint;

/// Channels per row that one task handles.
const CHANNELS: usize = 2048;

/// `y[t, c] = silu(Σ weights[c, i] u[t - kernel + 1 + i, c] + bias[c])`, where u is `history`
/// followed by `x`: the last tap is the current row.
///
/// weights: `[channels, kernel]`, bias: `[channels]` if present, x and y: `[T, channels]`.
/// `history: [kernel - 1, channels]` holds the rows before `x`, oldest first (zeros at the start of
/// a sequence), and is updated to those before the next call's rows.
///
/// # Panics
/// If the lengths don't match.
#[allow(clippy::too_many_arguments)] // What a convolution is made of.
pub fn conv(
    cpu: &Cpu,
    weights: &[f32],
    bias: Option<&[f32]>,
    kernel: usize,
    channels: usize,
    history: &mut [f32],
    x: &[f32],
    y: &mut [f32],
) {
    assert!(kernel > 0 && weights.len() == kernel * channels, "conv: weights");
    assert!(bias.is_none_or(|bias| bias.len() == channels), "conv: bias");
    assert_eq!(history.len(), (kernel - 1) * channels, "conv: history");
    assert_eq!(x.len(), y.len(), "conv: x, y");
    if channels == 0 {
        return;
    }
    assert!(x.len().is_multiple_of(channels), "conv: {} numbers, rows of {channels}", x.len());
    let rows = x.len() / channels;
    let parts = channels.div_ceil(CHANNELS);
    let y = Disjoint::new(y);
    let before = &*history;
    cpu.threads.run(rows * parts, &|task| {
        let (row, first) = (task / parts, task % parts * CHANNELS);
        let count = CHANNELS.min(channels - first);
        // SAFETY: no two tasks share both a row and a channel.
        let y = unsafe { y.slice(row * channels + first, count) };
        let u = |tap: usize| match (row + tap).checked_sub(kernel - 1) {
            Some(row) => &x[row * channels + first..][..count],
            None => &before[(row + tap) * channels + first..][..count],
        };
        let weights = &weights[first * kernel..][..count * kernel];
        let bias = bias.map(|bias| &bias[first..][..count]);
        if kernel == 4 {
            four_taps(cpu.isa, weights.as_chunks().0, bias, [u(0), u(1), u(2), u(3)], y);
        } else {
            (0..kernel).for_each(|tap| add_tap(cpu.isa, weights, kernel, tap, u(tap), y));
            finish(cpu.isa, bias, y);
        }
    });
    if rows < kernel - 1 {
        history.copy_within(rows * channels.., 0);
    }
    let last = rows.min(kernel - 1) * channels;
    let start = history.len() - last;
    history[start..].copy_from_slice(&x[x.len() - last..]);
}

for_each_isa! {
    /// All taps of a kernel of four, the size that models use.
    fn four_taps(weights: &[[f32; 4]], bias: Option<&[f32]>, u: [&[f32]; 4], y: &mut [f32]) {
        let u = u.map(|u| &u[..y.len()]);
        let weights = &weights[..y.len()];
        let sum = |c: usize| {
            let first = weights[c][0] * u[0][c];
            (1..4).fold(first, |sum, tap| weights[c][tap].mul_add(u[tap][c], sum))
        };
        match bias {
            None => y.iter_mut().enumerate().for_each(|(c, y)| *y = silu(sum(c))),
            Some(bias) => {
                y.iter_mut().zip(bias).enumerate().for_each(|(c, (y, bias))| *y = silu(sum(c) + bias));
            }
        }
    }

    /// Adds one tap of every channel; the first initializes the sum.
    fn add_tap(weights: &[f32], kernel: usize, tap: usize, u: &[f32], y: &mut [f32]) {
        let channels = y.iter_mut().zip(u).zip(weights.chunks_exact(kernel));
        if tap == 0 {
            channels.for_each(|((y, &u), weights)| *y = weights[0] * u);
        } else {
            channels.for_each(|((y, &u), weights)| *y = weights[tap].mul_add(u, *y));
        }
    }

    /// Applies bias and activation to the sums.
    fn finish(bias: Option<&[f32]>, y: &mut [f32]) {
        if let Some(bias) = bias {
            y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
        y.iter_mut().for_each(|y| *y = silu(*y));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, assert_same, cpus, noise};

    /// Computes all rows at once according to the formula, from a history of `kernel - 1` rows.
    fn exact(weights: &[f32], bias: Option<&[f32]>, kernel: usize, channels: usize, u: &[f32]) -> Vec<f64> {
        let rows = u.len() / channels - (kernel - 1);
        let number = |i: usize| {
            let (row, c) = (i / channels, i % channels);
            let tap = |i: usize| f64::from(weights[c * kernel + i]) * f64::from(u[(row + i) * channels + c]);
            let sum = (0..kernel).map(tap).sum::<f64>() + bias.map_or(0.0, |bias| f64::from(bias[c]));
            sum / (1.0 + (-sum).exp())
        };
        (0..rows * channels).map(number).collect()
    }

    fn check(kernel: usize, channels: usize, rows: usize) {
        let bias = noise(3, channels);
        for bias in [None, Some(&bias[..])] {
            check_with(bias, kernel, channels, rows);
        }
    }

    fn check_with(bias: Option<&[f32]>, kernel: usize, channels: usize, rows: usize) {
        let weights = noise(1, kernel * channels);
        let past = (kernel - 1) * channels;
        let u = noise(2, past + rows * channels);
        let (before, x) = u.split_at(past);
        let mut first: Option<Vec<f32>> = None;
        for cpu in cpus() {
            for step in [rows, 1, 2, 5] {
                let (mut history, mut y) = (before.to_vec(), vec![0.0; x.len()]);
                for (x, y) in x.chunks(step * channels).zip(y.chunks_mut(step * channels)) {
                    conv(&cpu, &weights, bias, kernel, channels, &mut history, x, y);
                }
                let what = format!("kernel {kernel}, {channels} channels, {rows} rows by {step}, {cpu:?}");
                assert_same(first.get_or_insert_with(|| y.clone()), &y, &what);
                assert_same(&history, &u[u.len() - past..], &what);
            }
        }
        assert_close(&first.unwrap(), &exact(&weights, bias, kernel, channels, &u), 1e-6);
    }

    #[test]
    fn rows_see_the_rows_before_them() {
        for rows in [1, 2, 3, 4, 17] {
            check(4, 40, rows);
            check(4, 2 * CHANNELS + 5, rows);
            check(1, 8, rows);
            check(3, 7, rows);
        }
    }
}
