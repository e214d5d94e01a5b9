//! Two backends as one: the last blocks of a model, and what gives the logits, on a device; the
//! rest on the host.
//!
//! A verb runs where its weights are, or what it keeps.
//! Activations that lie on the other side are carried over, which a step does where the blocks on
//! the host end and where its logits are read; the table of embeddings stays on the host, which
//! looks up a row as fast as anybody.

mod side;

use std::cell::Cell;
use std::time::Duration;

pub use side::Side;
use side::{Carried, apart};

use super::{
    AttentionShape, Backend, Choice, DeltaInput, DeltaShape, DeltaWeights, ExpertStacks, Greatest, Heads,
    KvType, Numbers, Part, Queries, ScanInput, ScanShape, ScanWeights, StackShape, StateShape, Step, try_map,
};
use crate::Result;
use crate::architecture::{Activation, Pairing};
use crate::cache::{BlockId, Layout, SlotId};
use crate::gguf::{TensorData, TensorType};

/// Computes with `D` from block number `first` on, with `H` before.
#[derive(Debug)]
pub struct Split<D, H> {
    device: D,
    host: H,
    /// The first block on the device.
    first: usize,
    /// Whether the part that is being loaded goes there.
    on_device: Cell<bool>,
}

impl<D: Backend, H: Backend> Split<D, H> {
    /// Blocks from number `first` on, and the output, are the device's; all before is the host's.
    pub fn new(device: D, host: H, first: usize) -> Self {
        Split { device, host, first, on_device: Cell::new(false) }
    }

    fn device<'x>(&mut self, x: &'x Side<D::Array, H::Array>) -> Result<Carried<'x, D::Array>> {
        Ok(match x {
            Side::Device(x) => Carried::There(x),
            Side::Host(x) => {
                let rows = self.host.count(x);
                Carried::Over(self.device.upload(self.host.to_host(x)?, rows)?)
            }
        })
    }

    fn host<'x>(&mut self, x: &'x Side<D::Array, H::Array>) -> Result<Carried<'x, H::Array>> {
        Ok(match x {
            Side::Host(x) => Carried::There(x),
            Side::Device(x) => {
                let rows = self.device.count(x);
                Carried::Over(self.host.upload(self.device.to_host(x)?, rows)?)
            }
        })
    }

    fn own_device(&mut self, x: Side<D::Array, H::Array>) -> Result<D::Array> {
        if let Side::Device(x) = x {
            return Ok(x);
        }
        match self.device(&x)? {
            Carried::Over(x) => Ok(x),
            Carried::There(_) => Err(apart()),
        }
    }

    fn own_host(&mut self, x: Side<D::Array, H::Array>) -> Result<H::Array> {
        if let Side::Host(x) = x {
            return Ok(x);
        }
        match self.host(&x)? {
            Carried::Over(x) => Ok(x),
            Carried::There(_) => Err(apart()),
        }
    }
}

/// Runs a verb on the side where `$by` lies, as `$there`; the arrays named after it are carried to
/// that side first, by reference or whole.
macro_rules! at {
    ($self:ident, $by:expr, $there:pat, [$($x:ident),*], [$($own:ident),*], |$backend:ident| $verb:expr) => {
        match $by {
            Side::Device($there) => {
                $(let $x = $self.device($x)?;)*
                $(let $own = $self.own_device($own)?;)*
                let $backend = &mut $self.device;
                $verb.map(Side::Device)
            }
            Side::Host($there) => {
                $(let $x = $self.host($x)?;)*
                $(let $own = $self.own_host($own)?;)*
                let $backend = &mut $self.host;
                $verb.map(Side::Host)
            }
        }
    };
}

/// Runs a verb on the side where `$kept` lies.
macro_rules! kept {
    ($self:ident, $kept:expr, $it:pat, |$backend:ident| $verb:expr) => {
        match $kept {
            Side::Device($it) => {
                let $backend = &mut $self.device;
                $verb
            }
            Side::Host($it) => {
                let $backend = &mut $self.host;
                $verb
            }
        }
    };
}

/// Takes something to the side of the part that is being loaded.
macro_rules! taken {
    ($self:ident, |$backend:ident| $verb:expr) => {
        match $self.on_device.get() {
            true => {
                let $backend = &$self.device;
                $verb.map(|taken| taken.map(Side::Device))
            }
            false => {
                let $backend = &$self.host;
                $verb.map(|taken| taken.map(Side::Host))
            }
        }
    };
}

impl<D: Backend, H: Backend> Backend for Split<D, H> {
    type Array = Side<D::Array, H::Array>;
    type Matrix = Side<D::Matrix, H::Matrix>;
    type Stack = Side<D::Stack, H::Stack>;
    type Vector = Side<D::Vector, H::Vector>;
    /// On both sides: blocks of either rotate.
    type Angles = (D::Angles, H::Angles);
    type Kv = Side<D::Kv, H::Kv>;
    type State = Side<D::State, H::State>;

    fn is_row_invariant(&self) -> bool {
        self.device.is_row_invariant() && self.host.is_row_invariant()
    }

    fn begin(&self, part: Part) {
        self.on_device.set(part >= Part::Block(self.first));
        self.device.begin(part);
        self.host.begin(part);
    }

    fn joins_matrices(&self) -> bool {
        match self.on_device.get() {
            true => self.device.joins_matrices(),
            false => self.host.joins_matrices(),
        }
    }

    fn matrix(
        &self,
        data: TensorData,
        kind: TensorType,
        out: usize,
        width: usize,
    ) -> Result<Option<Self::Matrix>> {
        taken!(self, |backend| backend.matrix(data, kind, out, width))
    }

    fn stack(&self, data: TensorData, kind: TensorType, shape: StackShape) -> Result<Option<Self::Stack>> {
        taken!(self, |backend| backend.stack(data, kind, shape))
    }

    fn vector(&self, data: TensorData, kind: TensorType) -> Result<Option<Self::Vector>> {
        taken!(self, |backend| backend.vector(data, kind))
    }

    fn values(&self, vector: &Self::Vector) -> Result<Vec<f32>> {
        match vector {
            Side::Device(vector) => self.device.values(vector),
            Side::Host(vector) => self.host.values(vector),
        }
    }

    fn kv(&self, layout: Layout, shape: &AttentionShape, kind: KvType) -> Result<Self::Kv> {
        match self.on_device.get() {
            true => self.device.kv(layout, shape, kind).map(Side::Device),
            false => self.host.kv(layout, shape, kind).map(Side::Host),
        }
    }

    fn state(&self, slots: usize, shape: &StateShape) -> Result<Self::State> {
        match self.on_device.get() {
            true => self.device.state(slots, shape).map(Side::Device),
            false => self.host.state(slots, shape).map(Side::Host),
        }
    }

    fn copy_block(&mut self, kv: &mut Self::Kv, from: BlockId, to: BlockId) -> Result<()> {
        kept!(self, kv, kv, |backend| backend.copy_block(kv, from, to))
    }

    fn copy_state(&mut self, state: &mut Self::State, from: SlotId, to: SlotId) -> Result<()> {
        kept!(self, state, state, |backend| backend.copy_state(state, from, to))
    }

    fn saving(&mut self) -> Duration {
        self.device.saving() + self.host.saving()
    }

    fn save_rows(&self, kv: &Self::Kv, row: usize, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        match kv {
            Side::Device(kv) => self.device.save_rows(kv, row, rows, out),
            Side::Host(kv) => self.host.save_rows(kv, row, rows, out),
        }
    }

    fn load_rows(&mut self, kv: &mut Self::Kv, row: usize, rows: usize, bytes: &[u8]) -> Result<()> {
        kept!(self, kv, kv, |backend| backend.load_rows(kv, row, rows, bytes))
    }

    fn save_state(&self, state: &Self::State, slot: SlotId, out: &mut Vec<u8>) -> Result<()> {
        match state {
            Side::Device(state) => self.device.save_state(state, slot, out),
            Side::Host(state) => self.host.save_state(state, slot, out),
        }
    }

    fn load_state(&mut self, state: &mut Self::State, slot: SlotId, bytes: &[u8]) -> Result<()> {
        kept!(self, state, state, |backend| backend.load_state(state, slot, bytes))
    }

    fn embed(&mut self, table: &Self::Matrix, tokens: &[u32]) -> Result<Self::Array> {
        at!(self, table, table, [], [], |backend| backend.embed(table, tokens))
    }

    fn matmuls<const N: usize>(
        &mut self,
        x: &Self::Array,
        w: [&Self::Matrix; N],
    ) -> Result<[Self::Array; N]> {
        if let Some(Side::Device(_)) = w.first() {
            let (x, w) = (self.device(x)?, try_map(w, Side::device)?);
            return Ok(self.device.matmuls(&x, w)?.map(Side::Device));
        }
        let (x, w) = (self.host(x)?, try_map(w, Side::host)?);
        Ok(self.host.matmuls(&x, w)?.map(Side::Host))
    }

    fn stacked(&mut self, x: &Self::Array, w: &Self::Stack) -> Result<Self::Array> {
        at!(self, w, w, [x], [], |backend| backend.stacked(&x, w))
    }

    fn experts(
        &mut self,
        x: &Self::Array,
        logits: &Self::Array,
        choice: &Choice<&Self::Vector>,
        stacks: &ExpertStacks<&Self::Stack, &Self::Vector>,
    ) -> Result<Self::Array> {
        /// All of `choice` and `stacks`, through what takes each from its side.
        macro_rules! from {
            ($side:path) => {{
                let bias = |bias: Option<_>| bias.map($side).transpose();
                let Choice { count, used, router, groups, scale, .. } = *choice;
                let (of_choice, scales) = (bias(choice.bias)?, bias(choice.scales)?);
                let stacks = ExpertStacks {
                    gate: $side(stacks.gate)?,
                    up: stacks.up.map($side).transpose()?,
                    down: $side(stacks.down)?,
                    gate_bias: bias(stacks.gate_bias)?,
                    up_bias: bias(stacks.up_bias)?,
                    down_bias: bias(stacks.down_bias)?,
                    activation: stacks.activation,
                };
                (Choice { count, used, router, groups, bias: of_choice, scale, scales }, stacks)
            }};
        }
        match stacks.gate {
            Side::Device(_) => {
                let (x, logits, (choice, stacks)) =
                    (self.device(x)?, self.device(logits)?, from!(Side::device));
                self.device.experts(&x, &logits, &choice, &stacks).map(Side::Device)
            }
            Side::Host(_) => {
                let (x, logits, (choice, stacks)) = (self.host(x)?, self.host(logits)?, from!(Side::host));
                self.host.experts(&x, &logits, &choice, &stacks).map(Side::Host)
            }
        }
    }

    fn bias(&mut self, x: Self::Array, bias: &Self::Vector) -> Result<Self::Array> {
        at!(self, bias, bias, [], [x], |backend| backend.bias(x, bias))
    }

    /// On the side of `y`, which a block has just computed.
    fn add(&mut self, x: Self::Array, y: &Self::Array) -> Result<Self::Array> {
        at!(self, y, y, [], [x], |backend| backend.add(x, y))
    }

    fn scale(&mut self, x: Self::Array, factors: &[f32]) -> Result<Self::Array> {
        at!(self, x, x, [], [], |backend| backend.scale(x, factors))
    }

    fn split(&mut self, x: &Self::Array, run: usize, at: usize) -> Result<(Self::Array, Self::Array)> {
        match x {
            Side::Device(x) => self.device.split(x, run, at).map(|(a, b)| (Side::Device(a), Side::Device(b))),
            Side::Host(x) => self.host.split(x, run, at).map(|(a, b)| (Side::Host(a), Side::Host(b))),
        }
    }

    fn join(&mut self, a: &Self::Array, a_run: usize, b: &Self::Array, b_run: usize) -> Result<Self::Array> {
        at!(self, a, a, [b], [], |backend| backend.join(a, a_run, &b, b_run))
    }

    fn norm(&mut self, x: &Self::Array, weight: &Self::Vector, epsilon: f32) -> Result<Self::Array> {
        at!(self, weight, weight, [x], [], |backend| backend.norm(&x, weight, epsilon))
    }

    fn centre(&mut self, x: &Self::Array) -> Result<Self::Array> {
        at!(self, x, x, [], [], |backend| backend.centre(x))
    }

    fn add_norm(
        &mut self,
        x: Self::Array,
        y: &Self::Array,
        weight: &Self::Vector,
        epsilon: f32,
    ) -> Result<(Self::Array, Self::Array)> {
        match weight {
            Side::Device(weight) => {
                let (x, y) = (self.own_device(x)?, self.device(y)?);
                let (sum, normed) = self.device.add_norm(x, &y, weight, epsilon)?;
                Ok((Side::Device(sum), Side::Device(normed)))
            }
            Side::Host(weight) => {
                let (x, y) = (self.own_host(x)?, self.host(y)?);
                let (sum, normed) = self.host.add_norm(x, &y, weight, epsilon)?;
                Ok((Side::Host(sum), Side::Host(normed)))
            }
        }
    }

    fn angles(&mut self, cos: Vec<f32>, sin: Vec<f32>, rows: usize) -> Result<Self::Angles> {
        Ok((self.device.angles(cos.clone(), sin.clone(), rows)?, self.host.angles(cos, sin, rows)?))
    }

    fn rope(
        &mut self,
        x: Self::Array,
        width: usize,
        (on_device, on_host): &Self::Angles,
        pairing: Pairing,
    ) -> Result<Self::Array> {
        match x {
            Side::Device(x) => self.device.rope(x, width, on_device, pairing).map(Side::Device),
            Side::Host(x) => self.host.rope(x, width, on_host, pairing).map(Side::Host),
        }
    }

    fn append_and_attend(
        &mut self,
        Queries { q, k, v, sinks }: Queries<Self::Array, Self::Vector>,
        step: &Step,
        kv: &mut Self::Kv,
        shape: &AttentionShape,
    ) -> Result<Self::Array> {
        match kv {
            Side::Device(kv) => {
                let q = self.device(q)?;
                let [k, v] = try_map([k, v], |x| x.map(|x| self.device(x)).transpose())?;
                let sinks = sinks.map(Side::device).transpose()?;
                let queries: Queries<D::Array, D::Vector> =
                    Queries { q: &q, k: k.as_deref(), v: v.as_deref(), sinks };
                self.device.append_and_attend(queries, step, kv, shape).map(Side::Device)
            }
            Side::Host(kv) => {
                let q = self.host(q)?;
                let [k, v] = try_map([k, v], |x| x.map(|x| self.host(x)).transpose())?;
                let sinks = sinks.map(Side::host).transpose()?;
                let queries: Queries<H::Array, H::Vector> =
                    Queries { q: &q, k: k.as_deref(), v: v.as_deref(), sinks };
                self.host.append_and_attend(queries, step, kv, shape).map(Side::Host)
            }
        }
    }

    fn prepare_and_attend(
        &mut self,
        Heads { q, k, v, sinks, norms: [q_norm, k_norm], norms_last, angles, pairing, factors }: Heads<
            Self::Array,
            Self::Vector,
            Self::Angles,
        >,
        step: &Step,
        kv: &mut Self::Kv,
        shape: &AttentionShape,
    ) -> Result<Self::Array> {
        /// The norms, through what takes each from its side.
        macro_rules! norms {
            ($side:path) => {{
                let norm = |norm: Option<(_, f32)>| {
                    norm.map(|(weight, epsilon)| $side(weight).map(|weight| (weight, epsilon))).transpose()
                };
                [norm(q_norm)?, norm(k_norm)?]
            }};
        }
        match kv {
            Side::Device(kv) => {
                let [q, k, v] = try_map([q, k, v], |x| self.own_device(x))?;
                let (sinks, norms) = (sinks.map(Side::device).transpose()?, norms!(Side::device));
                let angles = angles.map(|angles| &angles.0);
                let heads = Heads { q, k, v, sinks, norms, norms_last, angles, pairing, factors };
                self.device.prepare_and_attend(heads, step, kv, shape).map(Side::Device)
            }
            Side::Host(kv) => {
                let [q, k, v] = try_map([q, k, v], |x| self.own_host(x))?;
                let (sinks, norms) = (sinks.map(Side::host).transpose()?, norms!(Side::host));
                let angles = angles.map(|angles| &angles.1);
                let heads = Heads { q, k, v, sinks, norms, norms_last, angles, pairing, factors };
                self.host.prepare_and_attend(heads, step, kv, shape).map(Side::Host)
            }
        }
    }

    fn delta(
        &mut self,
        DeltaInput { qkv, beta, alpha }: DeltaInput<Self::Array>,
        weights: &DeltaWeights<&Self::Vector>,
        step: &Step,
        state: &mut Self::State,
        shape: &DeltaShape,
    ) -> Result<Self::Array> {
        let DeltaWeights { conv, a, dt } = weights;
        match state {
            Side::Device(state) => {
                let [qkv, beta, alpha] = [self.device(qkv)?, self.device(beta)?, self.device(alpha)?];
                let weights = DeltaWeights { conv: conv.device()?, a: a.device()?, dt: dt.device()? };
                let input: DeltaInput<D::Array> = DeltaInput { qkv: &qkv, beta: &beta, alpha: &alpha };
                self.device.delta(input, &weights, step, state, shape).map(Side::Device)
            }
            Side::Host(state) => {
                let [qkv, beta, alpha] = [self.host(qkv)?, self.host(beta)?, self.host(alpha)?];
                let weights = DeltaWeights { conv: conv.host()?, a: a.host()?, dt: dt.host()? };
                let input: DeltaInput<H::Array> = DeltaInput { qkv: &qkv, beta: &beta, alpha: &alpha };
                self.host.delta(input, &weights, step, state, shape).map(Side::Host)
            }
        }
    }

    fn scan(
        &mut self,
        ScanInput { xbc, dt }: ScanInput<Self::Array>,
        weights: &ScanWeights<&Self::Vector>,
        step: &Step,
        state: &mut Self::State,
        shape: &ScanShape,
    ) -> Result<Self::Array> {
        /// The weights, through what takes each from its side.
        macro_rules! from {
            ($side:path) => {{
                let ScanWeights { conv, conv_bias, a, d, dt_bias } = *weights;
                let conv_bias = conv_bias.map($side).transpose()?;
                ScanWeights {
                    conv: $side(conv)?,
                    conv_bias,
                    a: $side(a)?,
                    d: $side(d)?,
                    dt_bias: $side(dt_bias)?,
                }
            }};
        }
        match state {
            Side::Device(state) => {
                let (xbc, dt) = (self.device(xbc)?, self.device(dt)?);
                let input: ScanInput<D::Array> = ScanInput { xbc: &xbc, dt: &dt };
                self.device.scan(input, &from!(Side::device), step, state, shape).map(Side::Device)
            }
            Side::Host(state) => {
                let (xbc, dt) = (self.host(xbc)?, self.host(dt)?);
                let input: ScanInput<H::Array> = ScanInput { xbc: &xbc, dt: &dt };
                self.host.scan(input, &from!(Side::host), step, state, shape).map(Side::Host)
            }
        }
    }

    fn short_conv(
        &mut self,
        bcx: &Self::Array,
        taps: &Self::Vector,
        step: &Step,
        state: &mut Self::State,
        kernel: usize,
    ) -> Result<Self::Array> {
        match state {
            Side::Device(state) => {
                let bcx = self.device(bcx)?;
                self.device.short_conv(&bcx, taps.device()?, step, state, kernel).map(Side::Device)
            }
            Side::Host(state) => {
                let bcx = self.host(bcx)?;
                self.host.short_conv(&bcx, taps.host()?, step, state, kernel).map(Side::Host)
            }
        }
    }

    fn group_norm(
        &mut self,
        x: &Self::Array,
        weight: &Self::Vector,
        groups: usize,
        epsilon: f32,
    ) -> Result<Self::Array> {
        at!(self, weight, weight, [x], [], |backend| backend.group_norm(&x, weight, groups, epsilon))
    }

    fn gated(&mut self, gate: &Self::Array, up: Self::Array, activation: Activation) -> Result<Self::Array> {
        at!(self, gate, gate, [], [up], |backend| backend.gated(gate, up, activation))
    }

    fn relu_squared(&mut self, x: Self::Array) -> Result<Self::Array> {
        match x {
            Side::Device(x) => self.device.relu_squared(x).map(Side::Device),
            Side::Host(x) => self.host.relu_squared(x).map(Side::Host),
        }
    }

    fn rows(&mut self, x: &Self::Array, rows: &[usize]) -> Result<Self::Array> {
        at!(self, x, x, [], [], |backend| backend.rows(x, rows))
    }

    fn wait(&mut self) -> Result<()> {
        self.host.wait()?;
        self.device.wait()
    }

    fn greatest(&mut self, x: &Self::Array, row: usize, count: usize, among: &[u32]) -> Result<Greatest> {
        kept!(self, x, x, |backend| backend.greatest(x, row, count, among))
    }

    fn numbers_mut<'a>(&mut self, x: &'a mut Self::Array) -> Result<Numbers<'a>> {
        kept!(self, x, x, |backend| backend.numbers_mut(x))
    }

    fn to_host(&mut self, x: &Self::Array) -> Result<Vec<f32>> {
        kept!(self, x, x, |backend| backend.to_host(x))
    }

    fn count(&self, x: &Self::Array) -> usize {
        match x {
            Side::Device(x) => self.device.count(x),
            Side::Host(x) => self.host.count(x),
        }
    }

    /// To the host: what a verb needs elsewhere is carried on.
    fn upload(&mut self, numbers: Vec<f32>, rows: usize) -> Result<Self::Array> {
        self.host.upload(numbers, rows).map(Side::Host)
    }
}
