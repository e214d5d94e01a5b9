//! Shared helpers of the kernels' tests.

use crate::{Cpu, Isa, ThreadPool};

/// Every instruction set of this machine, on one to three threads; the first is the scalar one on a
/// single thread.
pub(crate) fn cpus() -> Vec<Cpu> {
    let with = |isa| (1..=3).map(move |count| Cpu::new(isa, ThreadPool::new(count)));
    Isa::available().flat_map(with).collect()
}

/// Numbers between -1 and 1, determined by the seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Fails if `y` has an error of more than `tolerance`, relative to the exact value where that
/// exceeds 1.
#[track_caller]
pub(crate) fn assert_close(y: &[f32], exact: &[f64], tolerance: f64) {
    assert_eq!(y.len(), exact.len());
    for (i, (&y, &exact)) in y.iter().zip(exact).enumerate() {
        let off = (f64::from(y) - exact).abs();
        assert!(off <= tolerance * exact.abs().max(1.0), "number {i}: {y} for {exact}");
    }
}

/// Fails unless the bits are equal.
#[track_caller]
pub(crate) fn assert_same(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert_eq!(a.to_bits(), b.to_bits(), "{what}: number {i}: {a} and {b}");
    }
}

/// Compares a kernel with independent rows with its formula in f64:
/// it maps `x: [rows, x_width]` to `y: [rows, y_width]`.
/// The results must be bitwise equal on every CPU and however the rows are divided into calls.
///
/// `kernel` gets the index of its first row, `exact` that of its row.
#[track_caller]
pub(crate) fn check_rows(
    x_width: usize,
    y_width: usize,
    tolerance: f64,
    kernel: impl Fn(&Cpu, usize, &[f32], &mut [f32]),
    exact: impl Fn(usize, &[f32]) -> Vec<f64>,
) {
    let rows = 13;
    let x = noise(x_width as u64, rows * x_width);
    let exact: Vec<f64> = x.chunks_exact(x_width).enumerate().flat_map(|(row, x)| exact(row, x)).collect();
    let mut first: Option<Vec<f32>> = None;
    for cpu in cpus() {
        for step in [rows, 1, 4] {
            let mut y = vec![0.0; rows * y_width];
            for (i, (x, y)) in x.chunks(step * x_width).zip(y.chunks_mut(step * y_width)).enumerate() {
                kernel(&cpu, i * step, x, y);
            }
            let first = first.get_or_insert_with(|| y.clone());
            assert_same(first, &y, &format!("{cpu:?}, {step} rows a call"));
        }
    }
    assert_close(&first.unwrap_or_default(), &exact, tolerance);
}
