//! Combines two backends: the last blocks of a model and the output run on a device, the rest on
//! the host.
//!
//! An op runs on the side of its weights or its cache.
//! Activations on the other side are transferred: after the last block on the host, and where
//! logits are read.
//! The embedding table stays on the host, which looks up a row as fast as a device.

mod side;

use std::cell::Cell;
use std::time::Duration;

pub use side::Side;

use alara_text::gguf::{TensorData, TensorType};

use super::{
    AttentionShape, Backend, DeltaInput, DeltaShape, DeltaWeights, ExpertStacks, Heads, HostNumbers, KvType,
    Queries, Routing, ScanInput, ScanShape, ScanWeights, Section, StackShape, StateShape, Step, TopK,
    try_map,
};
use crate::Result;
use crate::architecture::{Activation, Pairing};
use crate::cache::{BlockId, Layout, SlotId};

/// Computes blocks from number `first` on with `D`, earlier ones with `H`.
#[derive(Debug)]
pub struct Split<D, H> {
    device: D,
    host: H,
    /// The first block on the device.
    first: usize,
    /// Whether the section being loaded belongs to the device.
    on_device: Cell<bool>,
}

impl<D: Backend, H: Backend> Split<D, H> {
    /// Assigns blocks from number `first` on and the output to the device, everything before to the
    /// host.
    pub fn new(device: D, host: H, first: usize) -> Self {
        Split { device, host, first, on_device: Cell::new(false) }
    }
}

/// Runs `$op` on the side of `$by`, which is bound to `$it` there.
/// The functions of that side, `side::device` or `side::host`, are bound to `$here`.
macro_rules! on {
    ($by:expr, |$here:ident, $it:pat_param| $op:expr) => {
        match $by {
            Side::Device($it) => {
                use side::device as $here;
                $op
            }
            Side::Host($it) => {
                use side::host as $here;
                $op
            }
        }
    };
}

/// Like `on!`, for an op that returns an array; transfers the arrays in brackets to that side
/// first, by reference or by value.
macro_rules! at {
    ($self:ident, $by:expr, [$($x:ident),*], [$($own:ident),*], |$backend:ident, $it:pat_param| $op:expr) => {
        on!($by, |here, $it| {
            $(let $x = here::array($self, $x)?;)*
            $(let $own = here::owned($self, $own)?;)*
            let $backend = here::backend($self);
            $op.map(here::wrap)
        })
    };
}

/// Loads something on the side of the current section.
macro_rules! load {
    ($self:ident, |$backend:ident, $wrap:ident| $op:expr) => {
        match $self.on_device.get() {
            true => {
                use Side::Device as $wrap;
                let $backend = &$self.device;
                $op
            }
            false => {
                use Side::Host as $wrap;
                let $backend = &$self.host;
                $op
            }
        }
    };
}

impl<D: Backend, H: Backend> Backend for Split<D, H> {
    type Array = Side<D::Array, H::Array>;
    type Matrix = Side<D::Matrix, H::Matrix>;
    type Stack = Side<D::Stack, H::Stack>;
    type Vector = Side<D::Vector, H::Vector>;
    /// Present on both sides, since blocks of both rotate.
    type Angles = (D::Angles, H::Angles);
    type Kv = Side<D::Kv, H::Kv>;
    type Recurrent = Side<D::Recurrent, H::Recurrent>;

    fn is_row_invariant(&self) -> bool {
        self.device.is_row_invariant() && self.host.is_row_invariant()
    }

    fn begin(&self, section: Section) {
        self.on_device.set(section >= Section::Block(self.first));
        self.device.begin(section);
        self.host.begin(section);
    }

    fn joins_matrices(&self) -> bool {
        if self.on_device.get() { self.device.joins_matrices() } else { self.host.joins_matrices() }
    }

    fn matrix(
        &self,
        data: TensorData,
        kind: TensorType,
        out: usize,
        width: usize,
    ) -> Result<Option<Self::Matrix>> {
        load!(self, |backend, wrap| Ok(backend.matrix(data, kind, out, width)?.map(wrap)))
    }

    fn stack(&self, data: TensorData, kind: TensorType, shape: StackShape) -> Result<Option<Self::Stack>> {
        load!(self, |backend, wrap| Ok(backend.stack(data, kind, shape)?.map(wrap)))
    }

    fn vector(&self, data: TensorData, kind: TensorType) -> Result<Option<Self::Vector>> {
        load!(self, |backend, wrap| Ok(backend.vector(data, kind)?.map(wrap)))
    }

    fn values(&self, vector: &Self::Vector) -> Result<Vec<f32>> {
        match vector {
            Side::Device(vector) => self.device.values(vector),
            Side::Host(vector) => self.host.values(vector),
        }
    }

    fn kv(&self, layout: Layout, shape: &AttentionShape, kind: KvType) -> Result<Self::Kv> {
        load!(self, |backend, wrap| backend.kv(layout, shape, kind).map(wrap))
    }

    fn state(&self, slots: usize, shape: &StateShape) -> Result<Self::Recurrent> {
        load!(self, |backend, wrap| backend.state(slots, shape).map(wrap))
    }

    fn copy_block(&mut self, kv: &mut Self::Kv, from: BlockId, to: BlockId) -> Result<()> {
        on!(kv, |here, kv| here::backend(self).copy_block(kv, from, to))
    }

    fn copy_state(&mut self, state: &mut Self::Recurrent, from: SlotId, to: SlotId) -> Result<()> {
        on!(state, |here, state| here::backend(self).copy_state(state, from, to))
    }

    fn snapshot_time(&mut self) -> Duration {
        self.device.snapshot_time() + self.host.snapshot_time()
    }

    fn save_rows(&self, kv: &Self::Kv, row: usize, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        match kv {
            Side::Device(kv) => self.device.save_rows(kv, row, rows, out),
            Side::Host(kv) => self.host.save_rows(kv, row, rows, out),
        }
    }

    fn load_rows(&mut self, kv: &mut Self::Kv, row: usize, rows: usize, bytes: &[u8]) -> Result<()> {
        on!(kv, |here, kv| here::backend(self).load_rows(kv, row, rows, bytes))
    }

    fn save_state(&self, state: &Self::Recurrent, slot: SlotId, out: &mut Vec<u8>) -> Result<()> {
        match state {
            Side::Device(state) => self.device.save_state(state, slot, out),
            Side::Host(state) => self.host.save_state(state, slot, out),
        }
    }

    fn load_state(&mut self, state: &mut Self::Recurrent, slot: SlotId, bytes: &[u8]) -> Result<()> {
        on!(state, |here, state| here::backend(self).load_state(state, slot, bytes))
    }

    fn embed(&mut self, table: &Self::Matrix, tokens: &[u32]) -> Result<Self::Array> {
        at!(self, table, [], [], |backend, table| backend.embed(table, tokens))
    }

    fn matmuls<const N: usize>(
        &mut self,
        x: &Self::Array,
        w: [&Self::Matrix; N],
    ) -> Result<[Self::Array; N]> {
        on!(w[0], |here, _| {
            let (x, w) = (here::array(self, x)?, try_map(w, here::weight)?);
            Ok(here::backend(self).matmuls(&x, w)?.map(here::wrap))
        })
    }

    fn stacked(&mut self, x: &Self::Array, w: &Self::Stack) -> Result<Self::Array> {
        at!(self, w, [x], [], |backend, w| backend.stacked(&x, w))
    }

    fn experts(
        &mut self,
        x: &Self::Array,
        logits: &Self::Array,
        routing: &Routing<&Self::Vector>,
        stacks: &ExpertStacks<&Self::Stack, &Self::Vector>,
    ) -> Result<Self::Array> {
        on!(stacks.gate, |here, _| {
            let (x, logits) = (here::array(self, x)?, here::array(self, logits)?);
            let routing = routing.clone().try_map(here::weight)?;
            let stacks = stacks.clone().try_map(here::weight, here::weight)?;
            here::backend(self).experts(&x, &logits, &routing, &stacks).map(here::wrap)
        })
    }

    fn bias(&mut self, x: Self::Array, bias: &Self::Vector) -> Result<Self::Array> {
        at!(self, bias, [], [x], |backend, bias| backend.bias(x, bias))
    }

    /// Runs on the side of `y`, which a block has just computed.
    fn add(&mut self, x: Self::Array, y: &Self::Array) -> Result<Self::Array> {
        at!(self, y, [], [x], |backend, y| backend.add(x, y))
    }

    fn scale(&mut self, x: Self::Array, factors: &[f32]) -> Result<Self::Array> {
        at!(self, x, [], [], |backend, x| backend.scale(x, factors))
    }

    fn split(&mut self, x: &Self::Array, group: usize, at: usize) -> Result<(Self::Array, Self::Array)> {
        on!(x, |here, x| {
            let (a, b) = here::backend(self).split(x, group, at)?;
            Ok((here::wrap(a), here::wrap(b)))
        })
    }

    fn join(
        &mut self,
        a: &Self::Array,
        a_group: usize,
        b: &Self::Array,
        b_group: usize,
    ) -> Result<Self::Array> {
        at!(self, a, [b], [], |backend, a| backend.join(a, a_group, &b, b_group))
    }

    fn norm(&mut self, x: &Self::Array, weight: &Self::Vector, epsilon: f32) -> Result<Self::Array> {
        at!(self, weight, [x], [], |backend, weight| backend.norm(&x, weight, epsilon))
    }

    fn centre(&mut self, x: &Self::Array) -> Result<Self::Array> {
        at!(self, x, [], [], |backend, x| backend.centre(x))
    }

    fn add_norm(
        &mut self,
        x: Self::Array,
        y: &Self::Array,
        weight: &Self::Vector,
        epsilon: f32,
    ) -> Result<(Self::Array, Self::Array)> {
        on!(weight, |here, weight| {
            let (x, y) = (here::owned(self, x)?, here::array(self, y)?);
            let (sum, normed) = here::backend(self).add_norm(x, &y, weight, epsilon)?;
            Ok((here::wrap(sum), here::wrap(normed)))
        })
    }

    fn angles(&mut self, cos: Vec<f32>, sin: Vec<f32>, rows: usize) -> Result<Self::Angles> {
        Ok((self.device.angles(cos.clone(), sin.clone(), rows)?, self.host.angles(cos, sin, rows)?))
    }

    fn rope(
        &mut self,
        x: Self::Array,
        width: usize,
        angles: &Self::Angles,
        pairing: Pairing,
    ) -> Result<Self::Array> {
        on!(x, |here, x| {
            here::backend(self).rope(x, width, here::angles(angles), pairing).map(here::wrap)
        })
    }

    fn append_and_attend(
        &mut self,
        Queries { q, k, v, sinks }: Queries<Self::Array, Self::Vector>,
        step: &Step,
        kv: &mut Self::Kv,
        shape: &AttentionShape,
    ) -> Result<Self::Array> {
        on!(kv, |here, kv| {
            let q = here::array(self, q)?;
            let [k, v] = try_map([k, v], |x| x.map(|x| here::array(self, x)).transpose())?;
            let sinks = sinks.map(here::weight).transpose()?;
            let queries = Queries { q: &*q, k: k.as_deref(), v: v.as_deref(), sinks };
            here::backend(self).append_and_attend(queries, step, kv, shape).map(here::wrap)
        })
    }

    fn prepare_and_attend(
        &mut self,
        Heads { q, k, v, sinks, norms, norms_last, angles, pairing, factors }: Heads<
            Self::Array,
            Self::Vector,
            Self::Angles,
        >,
        step: &Step,
        kv: &mut Self::Kv,
        shape: &AttentionShape,
    ) -> Result<Self::Array> {
        on!(kv, |here, kv| {
            let [q, k, v] = try_map([q, k, v], |x| here::owned(self, x))?;
            let sinks = sinks.map(here::weight).transpose()?;
            let norms = try_map(norms, |norm| {
                norm.map(|(weight, epsilon)| Ok((here::weight(weight)?, epsilon))).transpose()
            })?;
            let angles = angles.map(here::angles);
            let heads = Heads { q, k, v, sinks, norms, norms_last, angles, pairing, factors };
            here::backend(self).prepare_and_attend(heads, step, kv, shape).map(here::wrap)
        })
    }

    fn delta(
        &mut self,
        DeltaInput { qkv, beta, alpha }: DeltaInput<Self::Array>,
        weights: &DeltaWeights<&Self::Vector>,
        step: &Step,
        state: &mut Self::Recurrent,
        shape: &DeltaShape,
    ) -> Result<Self::Array> {
        on!(state, |here, state| {
            let [qkv, beta, alpha] = try_map([qkv, beta, alpha], |x| here::array(self, x))?;
            let input = DeltaInput { qkv: &*qkv, beta: &*beta, alpha: &*alpha };
            let weights = weights.clone().try_map(here::weight)?;
            here::backend(self).delta(input, &weights, step, state, shape).map(here::wrap)
        })
    }

    fn scan(
        &mut self,
        ScanInput { xbc, dt }: ScanInput<Self::Array>,
        weights: &ScanWeights<&Self::Vector>,
        step: &Step,
        state: &mut Self::Recurrent,
        shape: &ScanShape,
    ) -> Result<Self::Array> {
        on!(state, |here, state| {
            let (xbc, dt) = (here::array(self, xbc)?, here::array(self, dt)?);
            let input = ScanInput { xbc: &*xbc, dt: &*dt };
            let weights = weights.clone().try_map(here::weight)?;
            here::backend(self).scan(input, &weights, step, state, shape).map(here::wrap)
        })
    }

    fn short_conv(
        &mut self,
        bcx: &Self::Array,
        taps: &Self::Vector,
        step: &Step,
        state: &mut Self::Recurrent,
        kernel: usize,
    ) -> Result<Self::Array> {
        on!(state, |here, state| {
            let (bcx, taps) = (here::array(self, bcx)?, here::weight(taps)?);
            here::backend(self).short_conv(&bcx, taps, step, state, kernel).map(here::wrap)
        })
    }

    fn group_norm(
        &mut self,
        x: &Self::Array,
        weight: &Self::Vector,
        groups: usize,
        epsilon: f32,
    ) -> Result<Self::Array> {
        at!(self, weight, [x], [], |backend, weight| backend.group_norm(&x, weight, groups, epsilon))
    }

    fn gated(&mut self, gate: &Self::Array, up: Self::Array, activation: Activation) -> Result<Self::Array> {
        at!(self, gate, [], [up], |backend, gate| backend.gated(gate, up, activation))
    }

    fn relu_squared(&mut self, x: Self::Array) -> Result<Self::Array> {
        at!(self, x, [], [], |backend, x| backend.relu_squared(x))
    }

    fn gelu_erf(&mut self, x: Self::Array) -> Result<Self::Array> {
        at!(self, x, [], [], |backend, x| backend.gelu_erf(x))
    }

    fn rows(&mut self, x: &Self::Array, rows: &[usize]) -> Result<Self::Array> {
        at!(self, x, [], [], |backend, x| backend.rows(x, rows))
    }

    fn wait(&mut self) -> Result<()> {
        self.host.wait()?;
        self.device.wait()
    }

    fn top_k(&mut self, x: &Self::Array, row: usize, k: usize, mask: &[u32]) -> Result<TopK> {
        on!(x, |here, x| here::backend(self).top_k(x, row, k, mask))
    }

    fn numbers_mut<'a>(&mut self, x: &'a mut Self::Array) -> Result<HostNumbers<'a>> {
        on!(x, |here, x| here::backend(self).numbers_mut(x))
    }

    fn to_host(&mut self, x: &Self::Array) -> Result<Vec<f32>> {
        on!(x, |here, x| here::backend(self).to_host(x))
    }

    fn count(&self, x: &Self::Array) -> usize {
        match x {
            Side::Device(x) => self.device.count(x),
            Side::Host(x) => self.host.count(x),
        }
    }

    /// Uploads to the host; ops on the device transfer it when needed.
    fn upload(&mut self, numbers: Vec<f32>, rows: usize) -> Result<Self::Array> {
        self.host.upload(numbers, rows).map(Side::Host)
    }
}
