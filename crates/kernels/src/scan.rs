//! The selective scan of Mamba-2: a memory of a sequence that decays and is written to, one matrix
//! per head.
//!
//! Each row and head has an input x `[width]`, the group's B and C `[state]`, a step Δ and a decay
//! `e^(ΔA)`.
//! The state is S `[state, width]`.
//! Source: Dao and Gu, Transformers are SSMs, 2024, <https://arxiv.org/abs/2405.21060>.
//!
//! ```text
//! S ← e^(ΔA) S + B (Δx)ᵀ;   y = SᵀC + Dx
//! ```
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // Indices tell registers apart.

use std::cell::RefCell;

use crate::exp::{exp, softplus};
use crate::thread_pool::Disjoint;
use crate::wide::{LANES, Wide, for_each_wide};
use crate::{Aligned, Cpu};

/// The heads of a Mamba-2 layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanShape {
    /// Heads (H), each with a state.
    pub heads: usize,
    /// Groups of adjacent heads that share a B and a C (G); divides the number of heads.
    pub groups: usize,
    /// Numbers in a head's input and output.
    pub width: usize,
    /// Numbers in B and in C.
    pub state: usize,
    /// Number of rows covered by the convolution before the scan, including the current one.
    pub kernel: usize,
}

impl ScanShape {
    /// Numbers in the inputs of all heads.
    pub fn inner(&self) -> usize {
        self.heads * self.width
    }

    /// Number of convolved channels: a row's inputs, B and C.
    pub fn channels(&self) -> usize {
        self.inner() + 2 * self.groups * self.state
    }
}

/// Rows that are applied to some columns of a state, which stay in the L1 cache, before moving to
/// the next columns.
const ROWS_AT_ONCE: usize = 32;

thread_local! {
    /// The columns of a state being processed.
    static SCRATCH: RefCell<Aligned<f32>> = const { RefCell::new(Aligned::new()) };
}

/// Data shared by all tasks of a call.
/// A task processes one head.
struct Call<'a> {
    shape: ScanShape,
    rows: usize,
    xbc: &'a [f32],
    dt: &'a [f32],
    a: &'a [f32],
    d: &'a [f32],
    bias: &'a [f32],
    y: &'a Disjoint<'a, f32>,
}

/// The scan over the rows of one sequence.
///
/// xbc: `[T, H * width | G * state | G * state]`: inputs, B, C. dt: `[T, H]`, raw: the step is
/// `softplus(dt + bias)`. a, d, bias: `[H]`, a negative.
/// `state: [H, state, width]`, zeros at the start of a sequence, is updated. y:
/// `[T, H * width]`.
/// A row is bitwise equal however a sequence is divided into calls.
///
/// # Panics
/// If the lengths don't match.
#[allow(clippy::too_many_arguments)] // What the scan is made of.
pub fn scan(
    cpu: &Cpu,
    shape: &ScanShape,
    xbc: &[f32],
    dt: &[f32],
    a: &[f32],
    d: &[f32],
    bias: &[f32],
    state: &mut [f32],
    y: &mut [f32],
) {
    let ScanShape { heads, groups, width, state: numbers, .. } = *shape;
    assert!(heads > 0 && width > 0 && numbers > 0, "scan: an empty part");
    assert!(groups > 0 && heads.is_multiple_of(groups), "scan: {heads} heads in {groups} groups");
    assert!(xbc.len().is_multiple_of(shape.channels()), "scan: xbc");
    let rows = xbc.len() / shape.channels();
    assert_eq!(dt.len(), rows * heads, "scan: dt");
    assert!(a.len() == heads && d.len() == heads && bias.len() == heads, "scan: a, d, bias");
    assert_eq!(state.len(), heads * numbers * width, "scan: state");
    assert_eq!(y.len(), rows * heads * width, "scan: y");
    let call = Call { shape: *shape, rows, xbc, dt, a, d, bias, y: &Disjoint::new(y) };
    let state = Disjoint::new(state);
    let size = numbers * width;
    cpu.threads.run(heads, &|head| {
        // SAFETY: no two tasks have the same head.
        let state = unsafe { state.slice(head * size, size) };
        SCRATCH.with_borrow_mut(|strip| scan_head(cpu.isa, &call, head, state, strip));
    });
}

/// A row and some columns of a head's state.
struct Row<'a> {
    decay: f32,
    /// Δ
    step: f32,
    b: &'a [f32],
    c: &'a [f32],
    /// The columns' inputs.
    x: &'a [f32],
    /// The factor of the inputs in the output.
    d: f32,
    y: &'a mut [f32],
}

impl Call<'_> {
    /// A row of a head, columns `column..column + width`.
    ///
    /// # Safety
    /// Only the head's task may call it, and not while it holds these columns of the row.
    #[inline(always)]
    unsafe fn row(&self, head: usize, row: usize, gates: [f32; 2], column: usize, width: usize) -> Row<'_> {
        let ScanShape { heads, groups, width: whole, state, .. } = self.shape;
        let all = &self.xbc[row * self.shape.channels()..][..self.shape.channels()];
        let (x, bc) = all.split_at(heads * whole);
        let group = head / (heads / groups) * state;
        let at = head * whole + column;
        Row {
            decay: gates[0],
            step: gates[1],
            b: &bc[group..][..state],
            c: &bc[groups * state + group..][..state],
            x: &x[at..][..width],
            d: self.d[head],
            // SAFETY: upheld by the caller.
            y: unsafe { self.y.slice(row * heads * whole + at, width) },
        }
    }

    /// The decay e^(ΔA) and the step Δ.
    #[inline(always)]
    fn gates(&self, head: usize, row: usize) -> [f32; 2] {
        let step = softplus(self.dt[row * self.shape.heads + head] + self.bias[head]);
        [exp(step * self.a[head]), step]
    }
}

for_each_wide! {
    /// Processes all rows of a head.
    fn scan_head<W>(call: &Call, head: usize, state: &mut [f32], strip: &mut Aligned<f32>) {
        let ScanShape { width: whole, state: numbers, .. } = call.shape;
        let strip = strip.at_least(numbers * LANES);
        for first in (0..call.rows).step_by(ROWS_AT_ONCE) {
            let count = ROWS_AT_ONCE.min(call.rows - first);
            let mut gates = [[0.0; 2]; ROWS_AT_ONCE];
            (0..count).for_each(|i| gates[i] = call.gates(head, first + i));
            let mut column = 0;
            while column < whole {
                let left = whole - column;
                // A single row streams through the state, several rows use a contiguous copy of
                // columns.
                let width = match (count, left) {
                    (1, 64..) => 4 * LANES,
                    (_, LANES..) => LANES,
                    _ => 1,
                };
                let columns = &mut state[column..];
                let near = count > 1 && width == LANES && width < whole;
                if near {
                    let rows = columns.chunks(whole).zip(strip.chunks_exact_mut(width));
                    rows.for_each(|(columns, strip)| strip.copy_from_slice(&columns[..width]));
                }
                let (stride, state) = if near { (width, &mut *strip) } else { (whole, &mut *columns) };
                // SAFETY: this is compiled for the instruction set of `W`, this is the head's task,
                // and no row is borrowed twice.
                unsafe {
                    let row = |i: usize| call.row(head, first + i, gates[i], column, width);
                    let mut i = 0;
                    while i < count {
                        i += match (width / LANES, count - i) {
                            (4, _) => pass::<W, 1, 4>(state, stride, [row(i)]),
                            (1, 4..) if W::BLOCK >= 4 => {
                                pass::<W, 4, 1>(state, stride, [row(i), row(i + 1), row(i + 2), row(i + 3)])
                            }
                            (1, 2..) => pass::<W, 2, 1>(state, stride, [row(i), row(i + 1)]),
                            (1, _) => pass::<W, 1, 1>(state, stride, [row(i)]),
                            _ => one_column(state, stride, &mut row(i)),
                        };
                    }
                }
                if near {
                    let rows = columns.chunks_mut(whole).zip(strip.chunks_exact(width));
                    rows.for_each(|(columns, strip)| columns[..width].copy_from_slice(strip));
                }
                column += width;
            }
        }
    }
}

/// Applies T rows, one after the other, to N times sixteen columns, which begin where `state` does.
/// Returns T.
///
/// # Safety
/// The CPU has the instruction set of `W`.
#[inline(always)]
unsafe fn pass<W: Wide, const T: usize, const N: usize>(
    state: &mut [f32],
    stride: usize,
    rows: [Row; T],
) -> usize {
    let numbers = rows[0].b.len();
    assert!(numbers > 0 && (numbers - 1) * stride + N * LANES <= state.len());
    for row in &rows {
        assert!(row.b.len() == numbers && row.c.len() == numbers);
        assert!(row.x.len() == N * LANES && row.y.len() == N * LANES);
    }
    let state = state.as_mut_ptr();
    // SAFETY: upheld by the caller, and everything read and written exists, as just checked.
    unsafe {
        let mut written = [[W::splat(0.0); N]; T];
        let mut given = [[W::splat(0.0); N]; T];
        for t in 0..T {
            for n in 0..N {
                written[t][n] = W::splat(rows[t].step).mul(W::load(rows[t].x.as_ptr().add(n * LANES)));
            }
        }
        for i in 0..numbers {
            for n in 0..N {
                let place = state.add(i * stride + n * LANES);
                let mut held = W::load(place);
                for t in 0..T {
                    let (b, c) = (*rows[t].b.get_unchecked(i), *rows[t].c.get_unchecked(i));
                    held = W::splat(b).mul_add(written[t][n], W::splat(rows[t].decay).mul(held));
                    given[t][n] = W::splat(c).mul_add(held, given[t][n]);
                }
                held.store(place);
            }
        }
        for (t, row) in rows.into_iter().enumerate() {
            for n in 0..N {
                let x = W::load(row.x.as_ptr().add(n * LANES));
                W::splat(row.d).mul_add(x, given[t][n]).store(row.y.as_mut_ptr().add(n * LANES));
            }
        }
    }
    T
}

/// Applies one row to one column.
#[inline(always)]
fn one_column(state: &mut [f32], stride: usize, row: &mut Row) -> usize {
    let (written, mut given) = (row.step * row.x[0], 0f32);
    for ((&b, &c), held) in row.b.iter().zip(row.c).zip(state.iter_mut().step_by(stride)) {
        *held = b.mul_add(written, row.decay * *held);
        given = c.mul_add(*held, given);
    }
    row.y[0] = row.d.mul_add(row.x[0], given);
    1
}

#[cfg(test)]
mod tests;
