//! The fast backend for the CPU: weights are the file's bytes where they lie, activations are in
//! memory that is used again, and the work is done by `alara_kernels`.
//! A row's result never depends on what else shares the step.

mod array;
mod experts;
mod kept;
mod weights;

use std::ops::Range;
use std::time::Duration;

use alara_kernels::{
    self as kernels, Activations, AttentionSpan, Cpu, DeltaForm, Format, Isa, Product, ThreadPool,
};

use smallvec::SmallVec;

use super::{
    AttentionShape, Backend, Choice, DeltaInput, DeltaShape, DeltaWeights, ExpertStacks, KvType, Numbers,
    Queries, ScanInput, ScanShape, ScanWeights, StackShape, StateShape, Step,
};
use crate::architecture::{Activation, Pairing};
use crate::cache::{BlockId, Layout, SlotId};
use crate::gguf::{TensorData, TensorType};
use crate::{Error, Result};

use array::Arena;
pub use array::Array;
pub use kept::{Kv, State};
pub use weights::{Matrix, Stack};

/// Computes on the CPU.
#[derive(Debug)]
pub struct Native {
    cpu: Cpu,
    arena: Arena,
    /// The rows that are being multiplied, and which array's contents and width they are.
    activations: Activations,
    prepared: Option<(u64, usize)>,
    delta: DeltaForm,
    /// What copies of state took, as [`Backend::saving`] tells.
    saving: Duration,
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
            // On a CPU chunks are no faster, and rows have the same bits however they are fed.
            delta: DeltaForm::Recurrent,
            saving: Duration::ZERO,
        }
    }

    /// With the best instruction set that the CPU has.
    pub fn with_threads(threads: usize) -> Self {
        Self::new(threads, Isa::best())
    }

    /// The same, but recurrent state advances in chunks of rows.
    pub fn chunked(mut self) -> Self {
        self.delta = DeltaForm::Chunked;
        self
    }

    /// Brings rows of `width` numbers into the form that products with `format` want; once for
    /// several products.
    fn prepare(&mut self, x: &Array, format: Format, width: usize) {
        let contents = Some((x.contents(), width));
        if self.prepared != contents || !self.activations.suits(format) {
            self.activations.prepare(&self.cpu, format, x.numbers(), width);
            self.prepared = contents;
        }
    }
}

impl Backend for Native {
    type Array = Array;
    type Matrix = Matrix;
    type Stack = Stack;
    type Vector = Vec<f32>;
    type Angles = Angles;
    type Kv = Kv;
    type State = State;

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

    fn state(&self, slots: usize, shape: &StateShape) -> Result<State> {
        Ok(State::new(slots, shape))
    }

    fn copy_block(&mut self, kv: &mut Kv, from: BlockId, to: BlockId) -> Result<()> {
        kv.copy_block(from, to);
        Ok(())
    }

    fn copy_state(&mut self, state: &mut State, from: SlotId, to: SlotId) -> Result<()> {
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

    fn save_state(&self, state: &State, slot: SlotId, out: &mut Vec<u8>) -> Result<()> {
        state.save(slot, out);
        Ok(())
    }

    fn load_state(&mut self, state: &mut State, slot: SlotId, bytes: &[u8]) -> Result<()> {
        state.load(slot, bytes);
        Ok(())
    }

    fn saving(&mut self) -> Duration {
        std::mem::take(&mut self.saving)
    }

    fn embed(&mut self, table: &Matrix, tokens: &[u32]) -> Result<Array> {
        let mut x = self.arena.array(tokens.len(), table.width());
        for (row, &token) in x.numbers_mut().chunks_exact_mut(table.width()).zip(tokens) {
            table.read(token as usize, row);
        }
        Ok(x)
    }

    fn matmuls<const N: usize>(&mut self, x: &Array, w: [&Matrix; N]) -> Result<[Array; N]> {
        let mut all = w.map(|w| (w, self.arena.array(x.rows(), w.out())));
        let mut products = all.each_mut().map(|(w, y)| Product::new(w.rows(), y.numbers_mut()));
        let mut first = 0;
        while first < N {
            self.prepare(x, w[first].rows().format, x.width());
            // Those that multiply with the same form of activations go together.
            let suit = |w: &&&Matrix| self.activations.suits(w.rows().format);
            let end = first + w[first..].iter().take_while(suit).count();
            kernels::matmul(&self.cpu, &mut self.activations, &mut products[first..end]);
            first = end;
        }
        Ok(all.map(|(_, y)| y))
    }

    fn stacked(&mut self, x: &Array, w: &Stack) -> Result<Array> {
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
        choice: &Choice<&Vec<f32>>,
        stacks: &ExpertStacks<&Stack, &Vec<f32>>,
    ) -> Result<Array> {
        let [bias, scales] = [choice.bias, choice.scales].map(|of| of.map_or(&[][..], Vec::as_slice));
        let routes = choice.routes(logits.numbers(), bias, scales);
        self.run_experts(x, &routes, stacks)
    }

    fn bias(&mut self, mut x: Array, bias: &Vec<f32>) -> Result<Array> {
        kernels::add_row(&self.cpu, x.numbers_mut(), bias);
        Ok(x)
    }

    fn add(&mut self, mut x: Array, y: &Array) -> Result<Array> {
        kernels::add(&self.cpu, x.numbers_mut(), y.numbers());
        Ok(x)
    }

    fn scale(&mut self, mut x: Array, factors: &[f32]) -> Result<Array> {
        // One factor for all is a factor for the only row.
        let row = if factors.len() == 1 { x.rows() * x.width() } else { x.width() };
        kernels::scale_rows(&self.cpu, x.numbers_mut(), row, factors);
        Ok(x)
    }

    fn split(&mut self, x: &Array, run: usize, at: usize) -> Result<(Array, Array)> {
        let runs = x.width() / run;
        let mut first = self.arena.array(x.rows(), runs * at);
        let mut second = self.arena.array(x.rows(), runs * (run - at));
        let parts =
            first.numbers_mut().chunks_exact_mut(at).zip(second.numbers_mut().chunks_exact_mut(run - at));
        for (run, (first, second)) in x.numbers().chunks_exact(run).zip(parts) {
            first.copy_from_slice(&run[..at]);
            second.copy_from_slice(&run[at..]);
        }
        Ok((first, second))
    }

    fn join(&mut self, a: &Array, a_run: usize, b: &Array, b_run: usize) -> Result<Array> {
        let mut x = self.arena.array(a.rows(), a.width() + b.width());
        let parts = a.numbers().chunks_exact(a_run).zip(b.numbers().chunks_exact(b_run));
        for (run, (a, b)) in x.numbers_mut().chunks_exact_mut(a_run + b_run).zip(parts) {
            run[..a_run].copy_from_slice(a);
            run[a_run..].copy_from_slice(b);
        }
        Ok(x)
    }

    fn norm(&mut self, x: &Array, weight: &Vec<f32>, epsilon: f32) -> Result<Array> {
        let mut y = self.arena.array(x.rows(), x.width());
        kernels::rms_norm(&self.cpu, x.numbers(), weight, epsilon, y.numbers_mut());
        Ok(y)
    }

    fn centre(&mut self, x: &Array) -> Result<Array> {
        let mut y = self.arena.array(x.rows(), x.width());
        kernels::centre(&self.cpu, x.numbers(), x.width(), y.numbers_mut());
        Ok(y)
    }

    fn angles(&mut self, cos: Vec<f32>, sin: Vec<f32>, rows: usize) -> Result<Angles> {
        Ok(Angles { half: cos.len() / rows.max(1), cos, sin })
    }

    fn rope(&mut self, mut x: Array, width: usize, angles: &Angles, pairing: Pairing) -> Result<Array> {
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
        state: &mut State,
        shape: &DeltaShape,
    ) -> Result<Array> {
        let DeltaInput { qkv, beta, alpha } = input;
        let mut mixed = self.arena.array(qkv.rows(), qkv.width());
        let mut y = self.arena.array(qkv.rows(), shape.value_heads * shape.value_width);
        let (cpu, form) = (&self.cpu, self.delta);
        self.saving += state.through(step, |rows, history, matrices| {
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
        state: &mut State,
        shape: &ScanShape,
    ) -> Result<Array> {
        let mut mixed = self.arena.array(xbc.rows(), xbc.width());
        let mut y = self.arena.array(xbc.rows(), shape.inner());
        let (cpu, bias) = (&self.cpu, weights.conv_bias.map(Vec::as_slice));
        self.saving += state.through(step, |rows, history, matrices| {
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
        state: &mut State,
        kernel: usize,
    ) -> Result<Array> {
        let width = bcx.width() / 3;
        let mut y = self.arena.array(bcx.rows(), width);
        let cpu = &self.cpu;
        self.saving += state.through(step, |rows, history, _| {
            let (before, after) =
                (&bcx.numbers()[of(&rows, bcx.width())], &mut y.numbers_mut()[of(&rows, width)]);
            kernels::short_conv(cpu, taps, kernel, width, history, before, after);
        });
        Ok(y)
    }

    fn group_norm(&mut self, x: &Array, weight: &Vec<f32>, groups: usize, epsilon: f32) -> Result<Array> {
        let mut y = self.arena.array(x.rows(), x.width());
        kernels::group_norm(&self.cpu, x.numbers(), weight, groups, epsilon, y.numbers_mut());
        Ok(y)
    }

    fn gated(&mut self, gate: &Array, mut up: Array, activation: Activation) -> Result<Array> {
        if gate.width() == 1 && up.width() != 1 {
            if activation != Activation::Sigmoid {
                return Err(Error::Backend {
                    operation: "gate".into(),
                    message: "only a sigmoid serves a whole row".into(),
                });
            }
            let factors: Vec<f32> = gate.numbers().iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
            return self.scale(up, &factors);
        }
        let mut y = self.arena.array(up.rows(), up.width());
        kernels::gated(&self.cpu, gate.numbers(), up.numbers_mut(), y.numbers_mut(), activation.into());
        Ok(y)
    }

    fn relu_squared(&mut self, mut x: Array) -> Result<Array> {
        kernels::relu_squared(&self.cpu, x.numbers_mut());
        Ok(x)
    }

    fn rows(&mut self, x: &Array, rows: &[usize]) -> Result<Array> {
        let mut y = self.arena.array(rows.len(), x.width());
        for (row, &at) in y.numbers_mut().chunks_exact_mut(x.width()).zip(rows) {
            row.copy_from_slice(&x.numbers()[at * x.width()..][..x.width()]);
        }
        Ok(y)
    }

    fn numbers_mut<'a>(&mut self, x: &'a mut Array) -> Result<Numbers<'a>> {
        Ok(Numbers::Here(x.numbers_mut()))
    }

    fn to_host(&mut self, x: &Array) -> Result<Vec<f32>> {
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

/// Whether matrices of this type can be computed with.
pub fn computes(kind: TensorType) -> bool {
    super::format(kind).is_some()
}
