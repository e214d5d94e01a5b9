//! The gated short convolution of LFM2: a causal depthwise convolution between two products.
//! Source: Liquid AI 2025, <https://arxiv.org/abs/2511.23404>.
#![allow(unsafe_code)]

use std::cell::RefCell;

use crate::isa::for_each_isa;
use crate::thread_pool::Disjoint;
use crate::{Aligned, Cpu};

/// Channels that one task processes for all rows.
const CHANNELS: usize = 128;

thread_local! {
    /// The interleaved taps, and the rows that they cover.
    static SCRATCH: RefCell<Aligned<f32>> = const { RefCell::new(Aligned::new()) };
}

/// `y[t] = c[t] Σ weights[i] u[t - kernel + 1 + i]` in each channel, with `u = b x`: the last tap
/// is the current row.
///
/// bcx: `[T, b | c | x]` of `channels` each, weights: `[channels, kernel]`, y: `[T, channels]`.
/// `history: [kernel - 1, channels]` holds the rows of u before the call's, oldest first (zeros at
/// the start of a sequence), and is updated to those before the next call's.
///
/// # Panics
/// If the lengths don't match.
pub fn short_conv(
    cpu: &Cpu,
    weights: &[f32],
    kernel: usize,
    channels: usize,
    history: &mut [f32],
    bcx: &[f32],
    y: &mut [f32],
) {
    assert!(kernel > 0 && weights.len() == kernel * channels, "short_conv: weights");
    assert_eq!(history.len(), (kernel - 1) * channels, "short_conv: history");
    assert_eq!(bcx.len(), 3 * y.len(), "short_conv: bcx, y");
    assert!(y.len().is_multiple_of(channels.max(1)), "short_conv: rows of {channels}");
    let rows = y.len().checked_div(channels).unwrap_or(0);
    let (y, history) = (Disjoint::new(y), Disjoint::new(history));
    cpu.threads.run(channels.div_ceil(CHANNELS), &|task| {
        let first = task * CHANNELS;
        let count = CHANNELS.min(channels - first);
        SCRATCH.with_borrow_mut(|scratch| {
            let (taps, past) = scratch.at_least(2 * kernel * count).split_at_mut(kernel * count);
            let past = &mut past[..kernel * count];
            for (c, weights) in weights[first * kernel..][..count * kernel].chunks_exact(kernel).enumerate() {
                weights.iter().enumerate().for_each(|(tap, &weight)| taps[tap * count + c] = weight);
            }
            // SAFETY: no two tasks share a channel.
            let last = |row: usize| unsafe { history.slice(row * channels + first, count) };
            // A ring buffer: row t of the call is at t + kernel - 1.
            for (row, past) in past.chunks_exact_mut(count).take(kernel - 1).enumerate() {
                past.copy_from_slice(last(row));
            }
            for row in 0..rows {
                let part = |which: usize| &bcx[(3 * row + which) * channels + first..][..count];
                let now = &mut past[(row + kernel - 1) % kernel * count..][..count];
                multiply(cpu.isa, part(0), part(2), now);
                // SAFETY: as above.
                let y = unsafe { y.slice(row * channels + first, count) };
                for (tap, taps) in taps.chunks_exact(count).take(kernel).enumerate() {
                    add_tap(cpu.isa, tap == 0, taps, &past[(row + tap) % kernel * count..][..count], y);
                }
                scale(cpu.isa, part(1), y);
            }
            for row in 0..kernel - 1 {
                last(row).copy_from_slice(&past[(rows + row) % kernel * count..][..count]);
            }
        });
    });
}

for_each_isa! {
    fn multiply(a: &[f32], b: &[f32], y: &mut [f32]) {
        y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y = a * b);
    }

    /// Adds one tap of every channel; the first initializes the sum.
    fn add_tap(begins: bool, taps: &[f32], u: &[f32], y: &mut [f32]) {
        let channels = y.iter_mut().zip(taps).zip(u);
        match begins {
            true => channels.for_each(|((y, tap), u)| *y = tap * u),
            false => channels.for_each(|((y, tap), &u)| *y = tap.mul_add(u, *y)),
        }
    }

    fn scale(by: &[f32], y: &mut [f32]) {
        y.iter_mut().zip(by).for_each(|(y, by)| *y *= by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, assert_same, cpus, noise};

    /// Computes the formula, given the `kernel - 1` previous rows of u.
    fn exact(weights: &[f32], kernel: usize, channels: usize, before: &[f32], bcx: &[f32]) -> Vec<f64> {
        let wide = |&x: &f32| f64::from(x);
        let mut u: Vec<f64> = before.iter().map(wide).collect();
        let mut y = Vec::new();
        for (row, bcx) in bcx.chunks_exact(3 * channels).enumerate() {
            let bcx: Vec<f64> = bcx.iter().map(wide).collect();
            u.extend((0..channels).map(|c| bcx[c] * bcx[2 * channels + c]));
            y.extend((0..channels).map(|c| {
                let tap = |i: usize| f64::from(weights[c * kernel + i]) * u[(row + i) * channels + c];
                bcx[channels + c] * (0..kernel).map(tap).sum::<f64>()
            }));
        }
        y
    }

    fn check(kernel: usize, channels: usize, rows: usize) {
        let weights = noise(1, kernel * channels);
        let (before, bcx) = (noise(2, (kernel - 1) * channels), noise(3, rows * 3 * channels));
        let mut first: Option<(Vec<f32>, Vec<f32>)> = None;
        for cpu in cpus() {
            for step in [rows, 1, 2, 5] {
                let (mut history, mut y) = (before.clone(), vec![f32::NAN; rows * channels]);
                for (bcx, y) in bcx.chunks(step * 3 * channels).zip(y.chunks_mut(step * channels)) {
                    short_conv(&cpu, &weights, kernel, channels, &mut history, bcx, y);
                }
                let what = format!("kernel {kernel}, {channels} channels, {rows} rows by {step}, {cpu:?}");
                let first = first.get_or_insert_with(|| (y.clone(), history.clone()));
                assert_same(&first.0, &y, &what);
                assert_same(&first.1, &history, &what);
            }
        }
        let (y, _) = first.unwrap();
        assert_close(&y, &exact(&weights, kernel, channels, &before, &bcx), 1e-6);
    }

    #[test]
    fn rows_see_the_products_before_them() {
        for rows in [1, 2, 3, 17] {
            check(3, 60, rows);
            check(3, 2 * CHANNELS + 5, rows);
            check(4, 16, rows);
            check(1, 8, rows);
        }
    }
}
