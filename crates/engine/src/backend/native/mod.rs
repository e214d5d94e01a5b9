//! The fast CPU backend: uses weights in place as the file's bytes and activations in reused
//! memory, and computes with `alara_kernels`.
//! A row's result never depends on the other rows of the step.

mod array;
mod cache;
mod experts;
mod weights;

use std::collections::BTreeSet;
use std::ops::Range;
#[cfg(test)]
use std::sync::{Arc, atomic::AtomicU64};
use std::time::Duration;

use alara_kernels::{
    self as kernels, Activations, AttentionSpan, Cpu, DeltaForm, Format, Isa, Product, ThreadPool,
};
use alara_text::gguf::{TensorData, TensorType};

use smallvec::SmallVec;

use super::profile::{Profile, Timer};
use super::{
    AttentionShape, Backend, DeltaInput, DeltaShape, DeltaWeights, ExpertStacks, HostNumbers, KvType,
    Queries, Routing, ScanInput, ScanShape, ScanWeights, Span, StackShape, StateShape, Step,
};
use crate::architecture::{Activation, Pairing};
use crate::cache::{BlockId, Layout, SlotId};
use crate::{Error, Result};

use array::Arena;
pub use array::Array;
pub use cache::{Kv, RecurrentState};
pub use weights::{Matrix, Stack};

/// Computes on the CPU.
#[derive(Debug)]
pub struct Native {
    cpu: Cpu,
    arena: Arena,
    /// The rows being multiplied, and the array contents and width that they come from.
    activations: Activations,
    prepared: Option<(u64, usize)>,
    delta: DeltaForm,
    /// Time spent on copies of state, see [`Backend::snapshot_time`].
    snapshot_time: Duration,
    /// Records the cost of each op, if present.
    profile: Option<Profile>,
    /// Most bytes of keys and values that attention may read, to simulate full device memory.
    #[cfg(test)]
    memory: Option<Arc<AtomicU64>>,
}

/// Cosines and sines, `[T, half]` each.
#[derive(Debug)]
pub struct Angles {
    cos: Vec<f32>,
    sin: Vec<f32>,
    half: usize,
}

impl Native {
    /// Computes with `threads` threads and the instruction set `isa`.
    pub fn new(threads: usize, isa: Isa) -> Self {
        Native {
            cpu: Cpu::new(isa, ThreadPool::new(threads)),
            arena: Arena::default(),
            activations: Activations::default(),
            prepared: None,
            // On a CPU chunks are no faster, and rows are bitwise equal however they are fed.
            delta: DeltaForm::Recurrent,
            snapshot_time: Duration::ZERO,
            profile: None,
            #[cfg(test)]
            memory: None,
        }
    }

    /// With the best instruction set that the CPU has.
    pub fn with_threads(threads: usize) -> Self {
        Self::new(threads, Isa::best())
    }

    /// Returns the backend, recording the cost of each op in `profile`.
    #[must_use]
    pub fn profiled(self, profile: Profile) -> Self {
        Native { profile: Some(profile), ..self }
    }

    /// Returns the backend, failing as if device memory were full when attention reads more than
    /// `memory` bytes of keys and values.
    #[cfg(test)]
    pub fn with_memory(self, memory: &Arc<AtomicU64>) -> Self {
        Native { memory: Some(memory.clone()), ..self }
    }

    /// A timer for an op, stopped on drop.
    fn timed(&self, op: &str) -> Timer {
        Timer::start(self.profile.as_ref(), op)
    }

    /// A timer for an op that reads and writes the states of a step's sequences.
    fn timed_state(&self, op: &str, shape: StateShape, step: &Step) -> Timer {
        self.timed(op).with(|| (String::new(), 2 * shape.bytes() * step.spans.len(), 0))
    }

    /// The error of attention that exceeds the simulated memory.
    #[cfg(test)]
    fn check_memory(&self, bytes: usize) -> Result<()> {
        let full = |most: &Arc<AtomicU64>| bytes as u64 > most.load(std::sync::atomic::Ordering::Relaxed);
        match self.memory.as_ref().is_some_and(full) {
            true => Err(crate::device::failed("attention", "CUDA_ERROR_OUT_OF_MEMORY")),
            false => Ok(()),
        }
    }

    /// Returns the backend, with recurrent state advancing in chunks of rows.
    #[cfg(test)]
    pub fn chunked(mut self) -> Self {
        self.delta = DeltaForm::Chunked;
        self
    }

    /// Converts rows of `width` numbers to the form that products with `format` need; done once for
    /// several products.
    fn prepare(&mut self, x: &Array, format: Format, width: usize) {
        let contents = Some((x.contents(), width));
        if self.prepared != contents || !self.activations.suits(format) {
            self.activations.prepare(&self.cpu, format, x.numbers(), width);
            self.prepared = contents;
        }
    }

    /// As [`Backend::gated`], without a timer of its own.
    fn gate_rows(&self, gate: &Array, mut up: Array, activation: Activation) -> Result<Array> {
        if gate.width() == 1 && up.width() != 1 {
            if activation != Activation::Sigmoid {
                return Err(Error::Backend {
                    operation: "gate".into(),
                    message: "only a sigmoid serves a whole row".into(),
                });
            }
            let factors: Vec<f32> = gate.numbers().iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
            let width = up.width();
            kernels::scale_rows(&self.cpu, up.numbers_mut(), width, &factors);
            return Ok(up);
        }
        let mut y = self.arena.array(up.rows(), up.width());
        kernels::gated(&self.cpu, gate.numbers(), up.numbers_mut(), y.numbers_mut(), activation.into());
        Ok(y)
    }
}

impl Backend for Native {
    type Array = Array;
    type Matrix = Matrix;
    type Stack = Stack;
    type Vector = Vec<f32>;
    type Angles = Angles;
    type Kv = Kv;
    type Recurrent = RecurrentState;

    fn is_row_invariant(&self) -> bool {
        self.delta == DeltaForm::Recurrent
    }

    fn matrix(&self, data: TensorData, kind: TensorType, out: usize, width: usize) -> Result<Option<Matrix>> {
        Ok(Matrix::new(data, kind, out, width))
    }

    fn stack(&self, data: TensorData, kind: TensorType, shape: StackShape) -> Result<Option<Stack>> {
        Ok(Stack::new(data, kind, shape))
    }

    fn vector(&self, data: TensorData, kind: TensorType) -> Result<Option<Vec<f32>>> {
        Ok(super::numbers(&data, kind))
    }

    fn values(&self, vector: &Vec<f32>) -> Result<Vec<f32>> {
        Ok(vector.clone())
    }

    fn kv(&self, layout: Layout, shape: &AttentionShape, kind: KvType) -> Result<Kv> {
        Kv::new(layout, shape, kind)
    }

    fn state(&self, slots: usize, shape: &StateShape) -> Result<RecurrentState> {
        Ok(RecurrentState::new(slots, shape))
    }

    fn copy_block(&mut self, kv: &mut Kv, from: BlockId, to: BlockId) -> Result<()> {
        kv.copy_block(from, to);
        Ok(())
    }

    fn copy_state(&mut self, state: &mut RecurrentState, from: SlotId, to: SlotId) -> Result<()> {
        state.copy(from, to);
        Ok(())
    }

    fn save_rows(&self, kv: &Kv, row: usize, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        kv.save(row, rows, out);
        Ok(())
    }

    fn load_rows(&mut self, kv: &mut Kv, row: usize, rows: usize, bytes: &[u8]) -> Result<()> {
        kv.load(row, rows, bytes);
        Ok(())
    }

    fn save_state(&self, state: &RecurrentState, slot: SlotId, out: &mut Vec<u8>) -> Result<()> {
        state.save(slot, out);
        Ok(())
    }

    fn load_state(&mut self, state: &mut RecurrentState, slot: SlotId, bytes: &[u8]) -> Result<()> {
        state.load(slot, bytes);
        Ok(())
    }

    fn snapshot_time(&mut self) -> Duration {
        std::mem::take(&mut self.snapshot_time)
    }

    fn embed(&mut self, table: &Matrix, tokens: &[u32]) -> Result<Array> {
        let _timer = self.timed("embed");
        let mut x = self.arena.array(tokens.len(), table.width());
        for (row, &token) in x.numbers_mut().chunks_exact_mut(table.width()).zip(tokens) {
            table.read(token as usize, row);
        }
        Ok(x)
    }

    fn matmuls<const N: usize>(&mut self, x: &Array, w: [&Matrix; N]) -> Result<[Array; N]> {
        let _timer = self.timed("matmul").with(|| {
            let mut formats = w.map(|w| w.rows().format.name()).to_vec();
            formats.dedup();
            let bytes = w.iter().map(|w| w.rows().bytes.len()).sum();
            let operations = w.iter().map(|w| 2 * x.rows() * w.out() * w.width()).sum();
            (formats.join(", "), bytes, operations)
        });
        let mut all = w.map(|w| (w, self.arena.array(x.rows(), w.out())));
        let mut products = all.each_mut().map(|(w, y)| Product::new(w.rows(), y.numbers_mut()));
        let mut first = 0;
        while first < N {
            self.prepare(x, w[first].rows().format, x.width());
            // Matrices that use the same form of activations are multiplied together.
            let suit = |w: &&&Matrix| self.activations.suits(w.rows().format);
            let end = first + w[first..].iter().take_while(suit).count();
            kernels::matmul(&self.cpu, &mut self.activations, &mut products[first..end]);
            first = end;
        }
        Ok(all.map(|(_, y)| y))
    }

    fn stacked(&mut self, x: &Array, w: &Stack) -> Result<Array> {
        let _timer = self.timed("stacked").with(|| {
            let bytes = (0..w.count()).map(|at| w.rows(at).bytes.len()).sum();
            (w.format().name().to_owned(), bytes, 2 * x.rows() * w.count() * w.out() * w.width())
        });
        let (rows, count, out) = (x.rows(), w.count(), w.out());
        self.prepare(x, w.format(), w.width());
        let parts: Vec<u32> =
            (0..count).flat_map(|at| (0..rows).map(move |row| (row * count + at) as u32)).collect();
        let mut by_matrix = self.arena.array(count * rows, out);
        let results = by_matrix.numbers_mut().chunks_exact_mut(rows * out);
        let mut products: Vec<Product> = results
            .zip(parts.chunks_exact(rows))
            .enumerate()
            .map(|(at, (y, parts))| Product::of_rows(w.rows(at), parts, y))
            .collect();
        kernels::matmul(&self.cpu, &mut self.activations, &mut products);
        drop(products);
        let mut y = self.arena.array(rows, count * out);
        for (part, y) in y.numbers_mut().chunks_exact_mut(out).enumerate() {
            let from = (part % count * rows + part / count) * out;
            y.copy_from_slice(&by_matrix.numbers()[from..from + out]);
        }
        Ok(y)
    }

    fn experts(
        &mut self,
        x: &Array,
        logits: &Array,
        routing: &Routing<&Vec<f32>>,
        stacks: &ExpertStacks<&Stack, &Vec<f32>>,
    ) -> Result<Array> {
        let timer = self.timed("experts");
        let [bias, scales] = [routing.bias, routing.scales].map(|of| of.map_or(&[][..], Vec::as_slice));
        let routed = routing.route(logits.numbers(), bias, scales);
        let _timer = timer.with(|| {
            let chosen = routed.experts.iter().collect::<BTreeSet<_>>().len();
            let all = || [stacks.gate, stacks.down].into_iter().chain(stacks.up);
            let bytes = all().map(|w| w.rows(0).bytes.len() * chosen).sum();
            let operations = all().map(|w| 2 * routed.experts.len() * w.out() * w.width()).sum();
            (stacks.gate.format().name().to_owned(), bytes, operations)
        });
        self.run_experts(x, &routed, stacks)
    }

    fn bias(&mut self, mut x: Array, bias: &Vec<f32>) -> Result<Array> {
        let _timer = self.timed("bias");
        kernels::add_row(&self.cpu, x.numbers_mut(), bias);
        Ok(x)
    }

    fn add(&mut self, mut x: Array, y: &Array) -> Result<Array> {
        let _timer = self.timed("add");
        kernels::add(&self.cpu, x.numbers_mut(), y.numbers());
        Ok(x)
    }

    fn scale(&mut self, mut x: Array, factors: &[f32]) -> Result<Array> {
        let _timer = self.timed("scale");
        // A single factor for all rows is treated as the factor of one row.
        let row = if factors.len() == 1 { x.rows() * x.width() } else { x.width() };
        kernels::scale_rows(&self.cpu, x.numbers_mut(), row, factors);
        Ok(x)
    }

    fn split(&mut self, x: &Array, group: usize, at: usize) -> Result<(Array, Array)> {
        let _timer = self.timed("split and join");
        let groups = x.width() / group;
        let mut first = self.arena.array(x.rows(), groups * at);
        let mut second = self.arena.array(x.rows(), groups * (group - at));
        let parts =
            first.numbers_mut().chunks_exact_mut(at).zip(second.numbers_mut().chunks_exact_mut(group - at));
        for (group, (first, second)) in x.numbers().chunks_exact(group).zip(parts) {
            first.copy_from_slice(&group[..at]);
            second.copy_from_slice(&group[at..]);
        }
        Ok((first, second))
    }

    fn join(&mut self, a: &Array, a_group: usize, b: &Array, b_group: usize) -> Result<Array> {
        let _timer = self.timed("split and join");
        let mut x = self.arena.array(a.rows(), a.width() + b.width());
        let parts = a.numbers().chunks_exact(a_group).zip(b.numbers().chunks_exact(b_group));
        for (group, (a, b)) in x.numbers_mut().chunks_exact_mut(a_group + b_group).zip(parts) {
            group[..a_group].copy_from_slice(a);
            group[a_group..].copy_from_slice(b);
        }
        Ok(x)
    }

    fn norm(&mut self, x: &Array, weight: &Vec<f32>, epsilon: f32) -> Result<Array> {
        let _timer = self.timed("norm");
        let mut y = self.arena.array(x.rows(), x.width());
        kernels::rms_norm(&self.cpu, x.numbers(), weight, epsilon, y.numbers_mut());
        Ok(y)
    }

    fn centre(&mut self, x: &Array) -> Result<Array> {
        let _timer = self.timed("norm");
        let mut y = self.arena.array(x.rows(), x.width());
        kernels::centre(&self.cpu, x.numbers(), x.width(), y.numbers_mut());
        Ok(y)
    }

    fn angles(&mut self, cos: Vec<f32>, sin: Vec<f32>, rows: usize) -> Result<Angles> {
        Ok(Angles { half: cos.len() / rows.max(1), cos, sin })
    }

    fn rope(&mut self, mut x: Array, width: usize, angles: &Angles, pairing: Pairing) -> Result<Array> {
        let _timer = self.timed("rope");
        let Angles { cos, sin, half } = angles;
        let (row, adjacent) = (x.width(), pairing == Pairing::Adjacent);
        kernels::rope(&self.cpu, x.numbers_mut(), row, width, cos, sin, *half, adjacent);
        Ok(x)
    }

    fn append_and_attend(
        &mut self,
        queries: Queries<Array, Vec<f32>>,
        step: &Step,
        kv: &mut Kv,
        shape: &AttentionShape,
    ) -> Result<Array> {
        let before = |span: &Span| shape.window.map_or(span.past, |window| window.min(span.past));
        let bytes = kv.bytes_of(step.spans.iter().map(|span| span.rows + before(span)).sum());
        #[cfg(test)]
        self.check_memory(bytes)?;
        let _timer = self.timed("attention").with(|| (String::new(), bytes, 0));
        let Queries { q, k, v, sinks } = queries;
        let mut row = 0;
        for span in &step.spans {
            let rows = |x: &'_ Array| row * x.width()..(row + span.rows) * x.width();
            let values = v.map(|v| &v.numbers()[rows(v)]);
            if let Some(k) = k {
                kv.append(&self.cpu, span, span.blocks_for(shape.window), &k.numbers()[rows(k)], values);
            }
            row += span.rows;
        }
        let spans: SmallVec<[AttentionSpan; 8]> = step
            .spans
            .iter()
            .map(|span| AttentionSpan {
                rows: span.rows,
                past: span.past,
                blocks: span.blocks_for(shape.window),
            })
            .collect();
        let mut y = self.arena.array(q.rows(), shape.heads * shape.value_width);
        kernels::attend(
            &self.cpu,
            shape,
            &kv.keys,
            kv.values.as_ref(),
            kv.block_tokens,
            &spans,
            sinks.map(Vec::as_slice),
            q.numbers(),
            y.numbers_mut(),
        );
        Ok(y)
    }

    fn delta(
        &mut self,
        input: DeltaInput<Array>,
        weights: &DeltaWeights<&Vec<f32>>,
        step: &Step,
        state: &mut RecurrentState,
        shape: &DeltaShape,
    ) -> Result<Array> {
        let _timer = self.timed_state("delta rule", StateShape::from(shape), step);
        let DeltaInput { qkv, beta, alpha } = input;
        let mut mixed = self.arena.array(qkv.rows(), qkv.width());
        let mut y = self.arena.array(qkv.rows(), shape.value_heads * shape.value_width);
        let (cpu, form) = (&self.cpu, self.delta);
        self.snapshot_time += state.through(step, |rows, history, matrices| {
            let [channels, heads, out] =
                [qkv.width(), shape.value_heads, y.width()].map(|width| of(&rows, width));
            let (before, after) = (&qkv.numbers()[channels.clone()], &mut mixed.numbers_mut()[channels]);
            kernels::conv(cpu, weights.conv, None, shape.kernel, qkv.width(), history, before, after);
            kernels::delta(
                cpu,
                shape,
                form,
                after,
                &beta.numbers()[heads.clone()],
                &alpha.numbers()[heads],
                weights.a,
                weights.dt,
                matrices,
                &mut y.numbers_mut()[out],
            );
        });
        Ok(y)
    }

    fn scan(
        &mut self,
        ScanInput { xbc, dt }: ScanInput<Array>,
        weights: &ScanWeights<&Vec<f32>>,
        step: &Step,
        state: &mut RecurrentState,
        shape: &ScanShape,
    ) -> Result<Array> {
        let _timer = self.timed_state("scan", StateShape::from(shape), step);
        let mut mixed = self.arena.array(xbc.rows(), xbc.width());
        let mut y = self.arena.array(xbc.rows(), shape.inner());
        let (cpu, bias) = (&self.cpu, weights.conv_bias.map(Vec::as_slice));
        self.snapshot_time += state.through(step, |rows, history, matrices| {
            let [channels, heads, out] = [xbc.width(), shape.heads, y.width()].map(|width| of(&rows, width));
            let (before, after) = (&xbc.numbers()[channels.clone()], &mut mixed.numbers_mut()[channels]);
            kernels::conv(cpu, weights.conv, bias, shape.kernel, xbc.width(), history, before, after);
            kernels::scan(
                cpu,
                shape,
                after,
                &dt.numbers()[heads],
                weights.a,
                weights.d,
                weights.dt_bias,
                matrices,
                &mut y.numbers_mut()[out],
            );
        });
        Ok(y)
    }

    fn short_conv(
        &mut self,
        bcx: &Array,
        taps: &Vec<f32>,
        step: &Step,
        state: &mut RecurrentState,
        kernel: usize,
    ) -> Result<Array> {
        let _timer =
            self.timed_state("short convolution", StateShape::convolved(kernel, bcx.width() / 3), step);
        let width = bcx.width() / 3;
        let mut y = self.arena.array(bcx.rows(), width);
        let cpu = &self.cpu;
        self.snapshot_time += state.through(step, |rows, history, _| {
            let (before, after) =
                (&bcx.numbers()[of(&rows, bcx.width())], &mut y.numbers_mut()[of(&rows, width)]);
            kernels::short_conv(cpu, taps, kernel, width, history, before, after);
        });
        Ok(y)
    }

    fn group_norm(&mut self, x: &Array, weight: &Vec<f32>, groups: usize, epsilon: f32) -> Result<Array> {
        let _timer = self.timed("norm");
        let mut y = self.arena.array(x.rows(), x.width());
        kernels::group_norm(&self.cpu, x.numbers(), weight, groups, epsilon, y.numbers_mut());
        Ok(y)
    }

    fn gated(&mut self, gate: &Array, up: Array, activation: Activation) -> Result<Array> {
        let _timer = self.timed("gate");
        self.gate_rows(gate, up, activation)
    }

    fn relu_squared(&mut self, mut x: Array) -> Result<Array> {
        let _timer = self.timed("gate");
        kernels::relu_squared(&self.cpu, x.numbers_mut());
        Ok(x)
    }

    fn gelu_erf(&mut self, mut x: Array) -> Result<Array> {
        let _timer = self.timed("gate");
        kernels::gelu_erf(&self.cpu, x.numbers_mut());
        Ok(x)
    }

    fn rows(&mut self, x: &Array, rows: &[usize]) -> Result<Array> {
        let mut y = self.arena.array(rows.len(), x.width());
        for (row, &at) in y.numbers_mut().chunks_exact_mut(x.width()).zip(rows) {
            row.copy_from_slice(&x.numbers()[at * x.width()..][..x.width()]);
        }
        Ok(y)
    }

    fn numbers_mut<'a>(&mut self, x: &'a mut Array) -> Result<HostNumbers<'a>> {
        Ok(HostNumbers::InPlace(x.numbers_mut()))
    }

    fn to_host(&mut self, x: &Array) -> Result<Vec<f32>> {
        let _timer = self.timed("to host");
        Ok(x.numbers().to_vec())
    }

    fn count(&self, x: &Array) -> usize {
        x.rows()
    }

    fn upload(&mut self, numbers: Vec<f32>, rows: usize) -> Result<Array> {
        let mut x = self.arena.array(rows, numbers.len() / rows.max(1));
        x.numbers_mut().copy_from_slice(&numbers);
        Ok(x)
    }
}

/// The numbers of `rows` in an array of this width.
fn of(rows: &Range<usize>, width: usize) -> Range<usize> {
    rows.start * width..rows.end * width
}

/// Whether matrices of this type are supported.
pub fn computes(kind: TensorType) -> bool {
    super::format(kind).is_some()
}
