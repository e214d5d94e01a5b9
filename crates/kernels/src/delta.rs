//! The gated delta rule: attention whose memory of a sequence is one matrix per head.
//!
//! Each row and value head has a key k, a query q, a value v, a decay `e^g` and a rate β.
//! The state S `[key_width, value_width]` is corrected by the difference of v and S's prediction
//! for k.
//! Source: Yang, Kautz, Hatamizadeh, Gated Delta Networks, 2024.
//!
//! ```text
//! S ← e^g S;   δ = β (v - Sᵀk);   S ← S + k δᵀ;   y = Sᵀq
//! ```
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // Indices tell registers apart.

use std::cell::RefCell;
use std::ops::Range;

use crate::dense::{accumulate, dot, dots};
use crate::exp::{exp, sigmoid, softplus};
use crate::isa::for_each_isa;
use crate::thread_pool::Disjoint;
use crate::wide::{LANES, Wide, for_each_wide};
use crate::{Aligned, Cpu, Isa};

/// The heads of a delta layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaShape {
    /// Query and key heads (Hk).
    pub key_heads: usize,
    /// Value heads (Hv), each with a state.
    pub value_heads: usize,
    /// Whether the value heads of a key head are adjacent.
    /// If so, value head j uses key head j / (Hv / Hk), otherwise j mod Hk.
    pub grouped: bool,
    /// The numbers of a query and of a key.
    pub key_width: usize,
    /// The numbers of a value.
    pub value_width: usize,
    /// Number of rows covered by the convolution before the rule, including the current one.
    pub kernel: usize,
    /// The epsilon added to the sum of squares when queries and keys are normalized.
    pub epsilon: f32,
}

impl DeltaShape {
    /// Number of convolved channels: a row's queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_width + self.value_heads * self.value_width
    }

    /// The key head for a value head.
    #[inline(always)]
    pub fn key_head(&self, value_head: usize) -> usize {
        match self.grouped {
            true => value_head / (self.value_heads / self.key_heads),
            false => value_head % self.key_heads,
        }
    }

    /// Sizes of a sequence's state: the convolution's history, and a matrix for each value head.
    pub fn state_sizes(&self) -> (usize, usize) {
        ((self.kernel - 1) * self.channels(), self.value_heads * self.key_width * self.value_width)
    }
}

/// How the rows of a call are computed.
/// Both forms give equal results up to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaForm {
    /// Row by row: bitwise equal however a sequence is divided into calls.
    Recurrent,
    /// Up to 64 rows at a time.
    Chunked,
}

/// The rows of a chunk.
const CHUNK: usize = 64;

/// Rows that the recurrent form applies to some columns of a state, which stay in the L1 cache,
/// before moving to the next columns.
const ROWS_AT_ONCE: usize = 16;

/// How many columns of a state the recurrent form may process at a time, the most first.
/// They are enough that sums don't wait for each other, and few enough to stay in the L1 cache.
const WIDTHS: [usize; 4] = [4 * LANES, 2 * LANES, LANES, 1];

/// Columns of a state that the chunked form processes at a time, so that they stay in the L1 cache.
const STRIP: usize = 64;

thread_local! {
    /// A task's intermediate results.
    static SCRATCH: RefCell<Aligned<f32>> = const { RefCell::new(Aligned::new()) };
}

/// The gated delta rule over the rows of one sequence.
///
/// qkv: `[T, Hk * key_width | Hk * key_width | Hv * value_width]`; queries and keys are normalized
/// here:
/// their length becomes 1, and queries are divided by the square root of their width.
/// `beta, alpha: [T, Hv]`, raw; `a, dt: [Hv]`, a negative.
/// The rate is `sigmoid(beta)`, the logarithm of the decay `a softplus(alpha + dt)`.
/// `state: [Hv, key_width, value_width]`, zeros at the start of a sequence, is updated.
/// `y: [T, Hv * value_width]`.
///
/// # Panics
/// If the lengths don't match.
#[allow(clippy::too_many_arguments)] // What the rule is made of.
pub fn delta(
    cpu: &Cpu,
    shape: &DeltaShape,
    form: DeltaForm,
    qkv: &[f32],
    beta: &[f32],
    alpha: &[f32],
    a: &[f32],
    dt: &[f32],
    state: &mut [f32],
    y: &mut [f32],
) {
    let DeltaShape { key_heads, value_heads, key_width, value_width, .. } = *shape;
    assert!(key_heads > 0 && value_heads > 0 && key_width > 0 && value_width > 0, "delta: an empty part");
    assert!(!shape.grouped || value_heads.is_multiple_of(key_heads), "delta: heads in groups");
    assert!(qkv.len().is_multiple_of(shape.channels()), "delta: qkv");
    let rows = qkv.len() / shape.channels();
    assert!(beta.len() == rows * value_heads && alpha.len() == rows * value_heads, "delta: beta, alpha");
    assert!(a.len() == value_heads && dt.len() == value_heads, "delta: a, dt");
    assert_eq!(state.len(), value_heads * key_width * value_width, "delta: state");
    assert_eq!(y.len(), rows * value_heads * value_width, "delta: y");

    let call = Call { shape: *shape, rows, qkv, beta, alpha, a, dt, y: &Disjoint::new(y) };
    let state = Disjoint::new(state);
    let size = key_width * value_width;
    cpu.threads.run(value_heads, &|head| {
        // SAFETY: no two tasks have the same head.
        let state = unsafe { state.slice(head * size, size) };
        SCRATCH.with_borrow_mut(|scratch| match form {
            DeltaForm::Recurrent => recur(cpu.isa, cpu.isa, &call, head, state, scratch),
            DeltaForm::Chunked => {
                for first in (0..rows).step_by(CHUNK) {
                    let rows = first..rows.min(first + CHUNK);
                    advance(cpu.isa, cpu.isa, &call, head, rows, state, scratch);
                }
            }
        });
    });
}

/// Data shared by all tasks of a call.
/// A task processes one value head.
struct Call<'a> {
    shape: DeltaShape,
    rows: usize,
    qkv: &'a [f32],
    beta: &'a [f32],
    alpha: &'a [f32],
    a: &'a [f32],
    dt: &'a [f32],
    y: &'a Disjoint<'a, f32>,
}

impl Call<'_> {
    /// Normalizes the query and the key of a row for a value head.
    #[inline(always)]
    fn query_and_key(&self, isa: Isa, row: usize, head: usize, q: &mut [f32], k: &mut [f32]) {
        let DeltaShape { key_heads, key_width, epsilon, .. } = self.shape;
        let row = &self.qkv[row * self.shape.channels()..];
        let start = self.shape.key_head(head) * key_width;
        normalize(isa, &row[start..][..key_width], epsilon, 1.0 / (key_width as f32).sqrt(), q);
        normalize(isa, &row[key_heads * key_width + start..][..key_width], epsilon, 1.0, k);
    }

    #[inline(always)]
    fn value(&self, row: usize, head: usize) -> &[f32] {
        let DeltaShape { key_heads, key_width, value_width, .. } = self.shape;
        &self.qkv[row * self.shape.channels() + 2 * key_heads * key_width + head * value_width..]
            [..value_width]
    }

    /// The rate β.
    #[inline(always)]
    fn rate(&self, row: usize, head: usize) -> f32 {
        sigmoid(self.beta[row * self.shape.value_heads + head])
    }

    /// The decay e^g.
    #[inline(always)]
    fn decay(&self, row: usize, head: usize) -> f32 {
        let g = self.a[head] * softplus(self.alpha[row * self.shape.value_heads + head] + self.dt[head]);
        exp(g)
    }

    /// # Safety
    /// Only the head's task may call it, and not while it holds a row of this head.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // See `Disjoint`.
    unsafe fn y(&self, row: usize, head: usize) -> &mut [f32] {
        let DeltaShape { value_heads, value_width, .. } = self.shape;
        // SAFETY: upheld by the caller.
        unsafe { self.y.slice((row * value_heads + head) * value_width, value_width) }
    }
}

/// `y = scale x / sqrt(Σx² + epsilon)`
#[inline(always)]
fn normalize(isa: Isa, x: &[f32], epsilon: f32, scale: f32, y: &mut [f32]) {
    let scale = scale / (dot(isa, x, x) + epsilon).sqrt();
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x * scale;
    }
}

for_each_wide! {
    /// The recurrent form for one value head.
    fn recur<W>(isa: Isa, call: &Call, head: usize, state: &mut [f32], scratch: &mut Aligned<f32>) {
        let DeltaShape { key_width, value_width, .. } = call.shape;
        let scratch = scratch.at_least(2 * ROWS_AT_ONCE * key_width + key_width * WIDTHS[0]);
        let (queries, rest) = scratch.split_at_mut(ROWS_AT_ONCE * key_width);
        let (keys, strip) = rest.split_at_mut(ROWS_AT_ONCE * key_width);
        for first in (0..call.rows).step_by(ROWS_AT_ONCE) {
            let count = ROWS_AT_ONCE.min(call.rows - first);
            let mut gates = [[0.0; 3]; ROWS_AT_ONCE];
            for (i, gates) in gates[..count].iter_mut().enumerate() {
                let (q, k) = (&mut queries[i * key_width..][..key_width], &mut keys[i * key_width..][..key_width]);
                call.query_and_key(isa, first + i, head, q, k);
                *gates = [call.decay(first + i, head), call.rate(first + i, head), dot(isa, q, k)];
            }
            let mut column = 0;
            while column < value_width {
                let width = WIDTHS.into_iter().find(|&width| width <= value_width - column).unwrap_or(1);
                let columns = &mut state[column..];
                // Copy the columns if several rows use them: rows of the state, as stored, would
                // compete for few places of the L1 cache.
                let near = count > 1 && width < value_width;
                if near {
                    let rows = columns.chunks(value_width).zip(strip.chunks_exact_mut(width));
                    rows.for_each(|(columns, state)| state.copy_from_slice(&columns[..width]));
                }
                let (stride, state) = if near { (width, &mut *strip) } else { (value_width, &mut *columns) };
                let steps = |i: usize| {
                    let (q, k) = (&queries[i * key_width..][..key_width], &keys[i * key_width..][..key_width]);
                    let [decay, rate, both] = gates[i];
                    Step { stride, decay, rate, both, q, k }
                };
                // SAFETY: this is compiled for the instruction set of `W`, and this is the head's
                // task.
                unsafe {
                    let value = |i: usize| &call.value(first + i, head)[column..][..width];
                    let y = |i: usize| &mut call.y(first + i, head)[column..][..width];
                    match width / LANES {
                        4 => step_rows::<W, 4>(count, steps, value, y, state),
                        2 => step_rows::<W, 2>(count, steps, value, y, state),
                        1 => step_rows::<W, 1>(count, steps, value, y, state),
                        _ => (0..count).for_each(|i| steps(i).take_one(state, value(i)[0], &mut y(i)[0])),
                    }
                }
                if near {
                    let rows = columns.chunks_mut(value_width).zip(strip.chunks_exact(width));
                    rows.for_each(|(columns, state)| columns[..width].copy_from_slice(state));
                }
                column += width;
            }
        }
    }
}

/// Applies rows to N times sixteen columns of a state, which begin where `state` does.
/// Columns are independent.
/// The state after each row is read for the next row while it is in registers.
///
/// # Safety
/// The CPU has the instruction set of `W`.
#[inline(always)]
unsafe fn step_rows<'a, W: Wide, const N: usize>(
    rows: usize,
    steps: impl Fn(usize) -> Step<'a>,
    value: impl Fn(usize) -> &'a [f32],
    y: impl Fn(usize) -> &'a mut [f32],
    state: &mut [f32],
) {
    // SAFETY: upheld by the caller.
    unsafe {
        let mut step = steps(0);
        let mut seen = step.look::<W, N>(state);
        for i in 0..rows {
            let delta = step.output::<W, N>(seen, value(i), y(i));
            if i + 1 == rows {
                step.write(delta, state);
                return;
            }
            let next = steps(i + 1);
            seen = step.write_and_look(delta, &next, state);
            step = next;
        }
    }
}

for_each_isa! {
    /// The chunked form for one value head and a chunk of `rows`.
    /// With Γ_ij the decay from row j to row i, it solves for the updates of the state (D, one
    /// δ per row), row by row:
    ///
    /// ```text
    /// D_i = β_i (v_i - Γ_i Sᵀk_i - Σ_{j<i} Γ_ij (k_i·k_j) D_j)
    /// y_i = Γ_i Sᵀq_i + Σ_{j<=i} Γ_ij (q_i·k_j) D_j
    /// S ← Γ_n S + Σ_j Γ_nj k_j D_jᵀ
    /// ```
    fn advance(
        isa: Isa, call: &Call, head: usize, rows: Range<usize>, state: &mut [f32], scratch: &mut Aligned<f32>,
    ) {
        let DeltaShape { key_width, value_width, .. } = call.shape;
        let n = rows.len();
        let scratch = scratch.at_least(2 * n * key_width + 2 * n * n + 3 * n + n * STRIP + n.max(key_width));
        let (q, rest) = scratch.split_at_mut(n * key_width);
        let (k, rest) = rest.split_at_mut(n * key_width);
        let (of_k, rest) = rest.split_at_mut(n * n); // -β_i Γ_ij (k_i·k_j)
        let (of_q, rest) = rest.split_at_mut(n * n); // Γ_ij (q_i·k_j)
        let (rate, rest) = rest.split_at_mut(n);
        let (from_state, rest) = rest.split_at_mut(n); // Γ_i, of the state before the chunk
        let (decayed, rest) = rest.split_at_mut(n); // Γ_ij of the current row i, at the end Γ_nj
        let (deltas, weights) = rest.split_at_mut(n * STRIP);

        let mut decayed_by = 1.0;
        for i in 0..n {
            let (q_i, k_before) = (&mut q[i * key_width..][..key_width], &mut k[..(i + 1) * key_width]);
            call.query_and_key(isa, rows.start + i, head, q_i, &mut k_before[i * key_width..]);
            let (q_i, k_i) = (&*q_i, &k_before[i * key_width..]);
            rate[i] = call.rate(rows.start + i, head);
            let decay = call.decay(rows.start + i, head);
            decayed_by *= decay;
            from_state[i] = decayed_by;
            decayed[..i].iter_mut().for_each(|decayed| *decayed *= decay);
            decayed[i] = 1.0;
            let (of_k, of_q) = (&mut of_k[i * n..][..i], &mut of_q[i * n..][..=i]);
            dots(isa, k_i, k_before, key_width, of_k);
            dots(isa, q_i, k_before, key_width, of_q);
            of_k.iter_mut().zip(&*decayed).for_each(|(weight, decayed)| *weight *= -rate[i] * decayed);
            of_q.iter_mut().zip(&*decayed).for_each(|(weight, decayed)| *weight *= decayed);
        }

        for first in (0..value_width).step_by(STRIP) {
            let width = STRIP.min(value_width - first);
            for i in 0..n {
                let (before, delta) = deltas[..i * width + width].split_at_mut(i * width);
                let weights = &mut weights[..key_width];
                let value = &call.value(rows.start + i, head)[first..][..width];
                delta.iter_mut().zip(value).for_each(|(delta, value)| *delta = rate[i] * value);
                scale_into(weights, &k[i * key_width..], -rate[i] * from_state[i]);
                accumulate(isa, delta, weights, &state[first..], value_width);
                accumulate(isa, delta, &of_k[i * n..][..i], before, width);

                // SAFETY: this task owns the head.
                let y = &mut unsafe { call.y(rows.start + i, head) }[first..][..width];
                y.fill(0.0);
                scale_into(weights, &q[i * key_width..], from_state[i]);
                accumulate(isa, y, weights, &state[first..], value_width);
                accumulate(isa, y, &of_q[i * n..][..=i], deltas, width);
            }
            for (i, state) in state.chunks_exact_mut(value_width).enumerate() {
                let state = &mut state[first..][..width];
                state.iter_mut().for_each(|state| *state *= decayed_by);
                let weights = &mut weights[..n];
                for ((weight, k), decayed) in weights.iter_mut().zip(k.chunks_exact(key_width)).zip(&*decayed) {
                    *weight = k[i] * decayed;
                }
                accumulate(isa, state, weights, deltas, width);
            }
        }
    }
}

#[inline(always)]
fn scale_into(out: &mut [f32], x: &[f32], factor: f32) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = x * factor;
    }
}

/// One row of the recurrent form.
/// Its output is computed from the previous state, in the same pass as δ:
/// `y = Sᵀq + (q·k) δ` with the decayed S.
struct Step<'a> {
    stride: usize,
    decay: f32,
    rate: f32,
    /// q·k
    both: f32,
    q: &'a [f32],
    k: &'a [f32],
}

/// Sums over the rows of a state: Sᵀk and Sᵀq.
type Seen<W, const N: usize> = ([W; N], [W; N]);

impl Step<'_> {
    /// Computes the sums of N times sixteen columns.
    ///
    /// # Safety
    /// As [`step_rows`].
    #[inline(always)]
    unsafe fn look<W: Wide, const N: usize>(&self, state: &[f32]) -> Seen<W, N> {
        // SAFETY: upheld by the caller, and all rows of the state exist.
        unsafe {
            self.check::<N>(state);
            let state = state.as_ptr();
            let (mut predicted, mut output) = ([W::splat(0.0); N], [W::splat(0.0); N]);
            for (i, (&q, &k)) in self.q.iter().zip(self.k).enumerate() {
                let (q, k, row) = (W::splat(q), W::splat(k), state.add(i * self.stride));
                for n in 0..N {
                    let state = W::load(row.add(n * LANES));
                    predicted[n] = k.mul_add(state, predicted[n]);
                    output[n] = q.mul_add(state, output[n]);
                }
            }
            (predicted, output)
        }
    }

    /// Computes δ and writes `y`.
    ///
    /// # Safety
    /// As [`step_rows`].
    #[inline(always)]
    unsafe fn output<W: Wide, const N: usize>(
        &self,
        (predicted, output): Seen<W, N>,
        value: &[f32],
        y: &mut [f32],
    ) -> [W; N] {
        assert!(value.len() == N * LANES && y.len() == N * LANES);
        // SAFETY: upheld by the caller, and that many values and results exist.
        unsafe {
            let (decay, rate, both) = (W::splat(self.decay), W::splat(self.rate), W::splat(self.both));
            let forgotten = W::splat(-self.decay);
            let mut delta = [W::splat(0.0); N];
            for n in 0..N {
                delta[n] = rate.mul(forgotten.mul_add(predicted[n], W::load(value.as_ptr().add(n * LANES))));
                both.mul_add(delta[n], decay.mul(output[n])).store(y.as_mut_ptr().add(n * LANES));
            }
            delta
        }
    }

    /// `S ← e^g S + k δᵀ`
    ///
    /// # Safety
    /// As [`step_rows`].
    #[inline(always)]
    unsafe fn write<W: Wide, const N: usize>(&self, delta: [W; N], state: &mut [f32]) {
        // SAFETY: upheld by the caller, and all rows of the state exist.
        unsafe {
            self.check::<N>(state);
            let (state, decay) = (state.as_mut_ptr(), W::splat(self.decay));
            for (i, &k) in self.k.iter().enumerate() {
                let (k, row) = (W::splat(k), state.add(i * self.stride));
                for n in 0..N {
                    let state = row.add(n * LANES);
                    k.mul_add(delta[n], decay.mul(W::load(state))).store(state);
                }
            }
        }
    }

    /// [`Step::write`], followed by the sums for the next row.
    ///
    /// # Safety
    /// As [`step_rows`].
    #[inline(always)]
    unsafe fn write_and_look<W: Wide, const N: usize>(
        &self,
        delta: [W; N],
        next: &Step,
        state: &mut [f32],
    ) -> Seen<W, N> {
        assert!(next.k.len() == self.k.len() && next.q.len() == self.k.len());
        // SAFETY: upheld by the caller, and all rows of the state exist.
        unsafe {
            self.check::<N>(state);
            let (state, decay) = (state.as_mut_ptr(), W::splat(self.decay));
            let (mut predicted, mut output) = ([W::splat(0.0); N], [W::splat(0.0); N]);
            for i in 0..self.k.len() {
                let row = state.add(i * self.stride);
                let k = W::splat(*self.k.get_unchecked(i));
                let (next_q, next_k) =
                    (W::splat(*next.q.get_unchecked(i)), W::splat(*next.k.get_unchecked(i)));
                for n in 0..N {
                    let place = row.add(n * LANES);
                    let state = k.mul_add(delta[n], decay.mul(W::load(place)));
                    state.store(place);
                    predicted[n] = next_k.mul_add(state, predicted[n]);
                    output[n] = next_q.mul_add(state, output[n]);
                }
            }
            (predicted, output)
        }
    }

    /// Whether all rows of the state exist.
    #[inline(always)]
    fn check<const N: usize>(&self, state: &[f32]) {
        assert!(self.q.len() == self.k.len());
        assert!((self.k.len() - 1) * self.stride + N * LANES <= state.len());
    }

    /// The recurrent step for a single column.
    #[inline(always)]
    fn take_one(&self, state: &mut [f32], value: f32, y: &mut f32) {
        let (mut predicted, mut output) = (0f32, 0f32);
        for ((&q, &k), &state) in self.q.iter().zip(self.k).zip(state.iter().step_by(self.stride)) {
            predicted = k.mul_add(state, predicted);
            output = q.mul_add(state, output);
        }
        let delta = self.rate * (-self.decay).mul_add(predicted, value);
        *y = self.both.mul_add(delta, self.decay * output);
        for (&k, state) in self.k.iter().zip(state.iter_mut().step_by(self.stride)) {
            *state = k.mul_add(delta, self.decay * *state);
        }
    }
}

#[cfg(test)]
mod tests;
