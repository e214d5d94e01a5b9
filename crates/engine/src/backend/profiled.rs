//! The native backend, with a look at the clock around every verb.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use alara_kernels::{Cpu, Isa, ThreadPool};

use super::native::{Angles, Array, Kv, Matrix, Native, Stack, State};
use super::{
    AttentionShape, Backend, Choice, DeltaInput, DeltaShape, DeltaWeights, ExpertStacks, KvType, Numbers,
    Queries, ScanInput, ScanShape, ScanWeights, StackShape, StateShape, Step,
};
use crate::Result;
use crate::architecture::{Activation, Pairing};
use crate::cache::{BlockId, Layout, SlotId};
use crate::gguf::{TensorData, TensorType};

/// What one kind of operation took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// How often it was done.
    pub calls: u64,
    /// How long, in all.
    pub time: Duration,
    /// Bytes of weights, keys, values and state that it had to read and write; activations don't
    /// count.
    pub bytes: u64,
    /// Multiplications and additions of weights' and activations' integers.
    pub operations: u64,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Spent) {
        self.calls += other.calls;
        self.time += other.time;
        self.bytes += other.bytes;
        self.operations += other.operations;
    }
}

/// What the machine does at most with `threads` threads and `isa`: bytes read and operations on
/// 8-bit integers, each a second.
/// Takes about a second and 256 MiB.
pub fn limits(threads: usize, isa: Isa) -> (f64, f64) {
    let cpu = Cpu::new(isa, ThreadPool::new(threads));
    (alara_kernels::read_bandwidth(&cpu), alara_kernels::integer_peak(&cpu))
}

/// What each operation took, by name.
/// Clones share one record.
#[derive(Clone, Debug, Default)]
pub struct Profile(Arc<Mutex<BTreeMap<String, Spent>>>);

impl Profile {
    /// What was spent since the last time that this was asked, by operation.
    pub fn take(&self) -> BTreeMap<String, Spent> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, name: &str, time: Duration, (bytes, operations): (u64, u64)) {
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *record.entry(name.to_owned()).or_default() += Spent { calls: 1, time, bytes, operations };
    }
}

/// What stands around a verb: a clock, or in tests a device that may refuse.
pub trait Around: std::fmt::Debug {
    /// Does `verb`, which is called `name` and worth so many bytes and operations.
    ///
    /// # Errors
    /// Those of the verb, and its own.
    fn run<T>(&mut self, name: &str, cost: (u64, u64), verb: impl FnOnce() -> Result<T>) -> Result<T>;
}

impl Around for Profile {
    fn run<T>(&mut self, name: &str, cost: (u64, u64), verb: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = verb();
        self.add(name, start.elapsed(), cost);
        result
    }
}

/// Does what the native backend does, with something around every verb: by default what keeps a
/// [`Profile`] of it.
#[derive(Debug)]
pub struct Profiled<W = Profile> {
    inner: Native,
    around: W,
    /// How the layers made so far keep keys and values.
    kv: std::cell::Cell<KvType>,
}

impl<W: Around> Profiled<W> {
    /// Has `around` stand around what `inner` does.
    pub fn new(inner: Native, around: W) -> Self {
        Profiled { inner, around, kv: std::cell::Cell::default() }
    }

    /// Does `work`, which is called `name` and worth so many bytes and operations.
    fn timed<T>(
        &mut self,
        name: &str,
        cost: (u64, u64),
        work: impl FnOnce(&mut Native) -> Result<T>,
    ) -> Result<T> {
        let Profiled { inner, around, .. } = self;
        around.run(name, cost, || work(inner))
    }
}

/// Bytes of the states of a step's sequences, read and written.
fn passes(shape: StateShape, step: &Step) -> (u64, u64) {
    ((2 * shape.bytes() * step.spans.len()) as u64, 0)
}

impl<W: Around> Backend for Profiled<W> {
    type Array = Array;
    type Matrix = Matrix;
    type Stack = Stack;
    type Vector = Vec<f32>;
    type Angles = Angles;
    type Kv = Kv;
    type State = State;

    fn is_row_invariant(&self) -> bool {
        self.inner.is_row_invariant()
    }

    fn matrix(&self, data: TensorData, kind: TensorType, out: usize, width: usize) -> Result<Option<Matrix>> {
        self.inner.matrix(data, kind, out, width)
    }

    fn stack(&self, data: TensorData, kind: TensorType, shape: StackShape) -> Result<Option<Stack>> {
        self.inner.stack(data, kind, shape)
    }

    fn vector(&self, data: TensorData, kind: TensorType) -> Result<Option<Vec<f32>>> {
        self.inner.vector(data, kind)
    }

    fn values(&self, vector: &Vec<f32>) -> Result<Vec<f32>> {
        self.inner.values(vector)
    }

    fn kv(&self, layout: Layout, shape: &AttentionShape, kind: KvType) -> Result<Kv> {
        self.kv.set(kind);
        self.inner.kv(layout, shape, kind)
    }

    fn state(&self, slots: usize, shape: &StateShape) -> Result<State> {
        self.inner.state(slots, shape)
    }

    fn copy_block(&mut self, kv: &mut Kv, from: BlockId, to: BlockId) -> Result<()> {
        self.inner.copy_block(kv, from, to)
    }

    fn copy_state(&mut self, state: &mut State, from: SlotId, to: SlotId) -> Result<()> {
        self.inner.copy_state(state, from, to)
    }

    fn saving(&mut self) -> Duration {
        self.inner.saving()
    }

    fn embed(&mut self, table: &Matrix, tokens: &[u32]) -> Result<Array> {
        self.timed("embed", (0, 0), |inner| inner.embed(table, tokens))
    }

    fn matmuls<const N: usize>(&mut self, x: &Array, w: [&Matrix; N]) -> Result<[Array; N]> {
        let mut names: Vec<&str> = w.iter().map(|w| w.rows().format.name()).collect();
        names.dedup();
        let cost = w.iter().fold((0, 0), |(bytes, operations), w| {
            let products = 2 * x.rows() * w.out() * w.width();
            (bytes + w.rows().bytes.len() as u64, operations + products as u64)
        });
        self.timed(&format!("matmul {}", names.join(", ")), cost, |inner| inner.matmuls(x, w))
    }

    fn stacked(&mut self, x: &Array, w: &Stack) -> Result<Array> {
        let bytes: usize = (0..w.count()).map(|at| w.rows(at).bytes.len()).sum();
        let cost = (bytes as u64, 2 * (x.rows() * w.count() * w.out() * w.width()) as u64);
        self.timed(&format!("stacked {}", w.format().name()), cost, |inner| inner.stacked(x, w))
    }

    fn experts(
        &mut self,
        x: &Array,
        logits: &Array,
        choice: &Choice<&Vec<f32>>,
        stacks: &ExpertStacks<&Stack, &Vec<f32>>,
    ) -> Result<Array> {
        let routes = choice.routes(logits.numbers(), choice.bias.map_or(&[], Vec::as_slice), &[]);
        let chosen: std::collections::BTreeSet<u32> = routes.experts.iter().copied().collect();
        let all = [stacks.gate, stacks.down].into_iter().chain(stacks.up);
        let cost = all.fold((0, 0), |(bytes, operations), w| {
            let matrix = w.rows(0).bytes.len() * chosen.len();
            let products = 2 * routes.experts.len() * w.out() * w.width();
            (bytes + matrix as u64, operations + products as u64)
        });
        self.timed(&format!("experts {}", stacks.gate.format().name()), cost, |inner| {
            inner.experts(x, logits, choice, stacks)
        })
    }

    fn bias(&mut self, x: Array, bias: &Vec<f32>) -> Result<Array> {
        self.timed("bias", (0, 0), |inner| inner.bias(x, bias))
    }

    fn add(&mut self, x: Array, y: &Array) -> Result<Array> {
        self.timed("add", (0, 0), |inner| inner.add(x, y))
    }

    fn scale(&mut self, x: Array, factors: &[f32]) -> Result<Array> {
        self.timed("scale", (0, 0), |inner| inner.scale(x, factors))
    }

    fn split(&mut self, x: &Array, run: usize, at: usize) -> Result<(Array, Array)> {
        self.timed("split and join", (0, 0), |inner| inner.split(x, run, at))
    }

    fn join(&mut self, a: &Array, a_run: usize, b: &Array, b_run: usize) -> Result<Array> {
        self.timed("split and join", (0, 0), |inner| inner.join(a, a_run, b, b_run))
    }

    fn norm(&mut self, x: &Array, weight: &Vec<f32>, epsilon: f32) -> Result<Array> {
        self.timed("norm", (0, 0), |inner| inner.norm(x, weight, epsilon))
    }

    fn centre(&mut self, x: &Array) -> Result<Array> {
        self.timed("norm", (0, 0), |inner| inner.centre(x))
    }

    fn angles(&mut self, cos: Vec<f32>, sin: Vec<f32>, rows: usize) -> Result<Angles> {
        self.inner.angles(cos, sin, rows)
    }

    fn rope(&mut self, x: Array, width: usize, angles: &Angles, pairing: Pairing) -> Result<Array> {
        self.timed("rope", (0, 0), |inner| inner.rope(x, width, angles, pairing))
    }

    fn append_and_attend(
        &mut self,
        queries: Queries<Array, Vec<f32>>,
        step: &Step,
        kv: &mut Kv,
        shape: &AttentionShape,
    ) -> Result<Array> {
        let (keys, values) = shape.cached();
        let row = self.kv.get().bytes(keys) + if values > 0 { self.kv.get().bytes(values) } else { 0 };
        let seen = step.spans.iter().map(|span| match shape.window {
            Some(window) => (span.past + span.rows).min(window + span.rows),
            None => span.past + span.rows,
        });
        let cost = ((row * seen.sum::<usize>()) as u64, 0);
        self.timed("attention", cost, |inner| inner.append_and_attend(queries, step, kv, shape))
    }

    fn delta(
        &mut self,
        input: DeltaInput<Array>,
        weights: &DeltaWeights<&Vec<f32>>,
        step: &Step,
        state: &mut State,
        shape: &DeltaShape,
    ) -> Result<Array> {
        let cost = passes(StateShape::from(shape), step);
        self.timed("delta rule", cost, |inner| inner.delta(input, weights, step, state, shape))
    }

    fn scan(
        &mut self,
        input: ScanInput<Array>,
        weights: &ScanWeights<&Vec<f32>>,
        step: &Step,
        state: &mut State,
        shape: &ScanShape,
    ) -> Result<Array> {
        let cost = passes(StateShape::from(shape), step);
        self.timed("scan", cost, |inner| inner.scan(input, weights, step, state, shape))
    }

    fn short_conv(
        &mut self,
        bcx: &Array,
        taps: &Vec<f32>,
        step: &Step,
        state: &mut State,
        kernel: usize,
    ) -> Result<Array> {
        let cost = passes(StateShape::convolved(kernel, bcx.width() / 3), step);
        self.timed("short convolution", cost, |inner| inner.short_conv(bcx, taps, step, state, kernel))
    }

    fn group_norm(&mut self, x: &Array, weight: &Vec<f32>, groups: usize, epsilon: f32) -> Result<Array> {
        self.timed("norm", (0, 0), |inner| inner.group_norm(x, weight, groups, epsilon))
    }

    fn gated(&mut self, gate: &Array, up: Array, activation: Activation) -> Result<Array> {
        self.timed("gate", (0, 0), |inner| inner.gated(gate, up, activation))
    }

    fn relu_squared(&mut self, x: Array) -> Result<Array> {
        self.timed("gate", (0, 0), |inner| inner.relu_squared(x))
    }

    fn rows(&mut self, x: &Array, rows: &[usize]) -> Result<Array> {
        self.inner.rows(x, rows)
    }

    fn numbers_mut<'a>(&mut self, x: &'a mut Array) -> Result<Numbers<'a>> {
        self.inner.numbers_mut(x)
    }

    fn to_host(&mut self, x: &Array) -> Result<Vec<f32>> {
        self.timed("to host", (0, 0), |inner| inner.to_host(x))
    }

    fn count(&self, x: &Array) -> usize {
        self.inner.count(x)
    }

    fn upload(&mut self, numbers: Vec<f32>, rows: usize) -> Result<Array> {
        self.inner.upload(numbers, rows)
    }
}
