//! What mixes tokens in a block, with what it keeps of its sequences.

use super::{Attention, Delta, Mamba2, Mla, Rotation, ShortConv, Weights};
use crate::Result;
use crate::backend::{AttentionShape, Backend, KvType, StateShape, Step};
use crate::cache::{BlockId, Room, SlotId};
use crate::facts::Sizes;

/// A layer that mixes tokens; which one it is, is seen from the tensors.
#[derive(Debug)]
pub enum Mixer<B: Backend> {
    /// Grouped-query attention.
    Attention(Attention<B>, B::Kv),
    /// Multi-head latent attention.
    Mla(Mla<B>, B::Kv),
    /// Gated DeltaNet.
    Delta(Delta<B>, B::State),
    /// Mamba-2.
    Mamba2(Mamba2<B>, B::State),
    /// A short convolution.
    ShortConv(ShortConv<B>, B::State),
}

/// What a layer keeps of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A row for each token, or for those in its window.
    Rows {
        /// Whether only for those.
        windowed: bool,
        /// Bytes of a row.
        bytes: usize,
    },
    /// A state.
    State {
        /// Its bytes.
        bytes: usize,
    },
}

/// Where something that a layer keeps lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In rows of its blocks.
    Rows {
        /// The first.
        row: usize,
        /// How many.
        rows: usize,
    },
    /// In a slot.
    Slot(SlotId),
}

impl<B: Backend> Mixer<B> {
    /// Loads the layer of block number `layer` and makes room for what it keeps.
    ///
    /// # Errors
    /// If a key or tensor is missing or has another shape, or the backend has no room.
    pub fn load(weights: &Weights<B>, layer: usize, sizes: &Sizes, room: &Room, kv: KvType) -> Result<Self> {
        let has = |part: &str| weights.has(&format!("blk.{layer}.{part}"));
        let rows = |shape: &AttentionShape| weights.backend.kv(layout(shape, room), shape, kv);
        let state = |kept: StateShape| weights.backend.state(room.slots, &kept);
        Ok(if has("ssm_d") {
            let mamba = Mamba2::load(weights, layer, sizes)?;
            let state = state(mamba.kept())?;
            Mixer::Mamba2(mamba, state)
        } else if has("ssm_conv1d.weight") {
            let delta = Delta::load(weights, layer, sizes)?;
            let state = state(delta.kept())?;
            Mixer::Delta(delta, state)
        } else if has("shortconv.conv.weight") {
            let conv = ShortConv::load(weights, layer, sizes)?;
            let state = state(conv.kept())?;
            Mixer::ShortConv(conv, state)
        } else if has("attn_kv_a_mqa.weight") {
            let mla = Mla::load(weights, layer, sizes)?;
            let kv = rows(mla.shape())?;
            Mixer::Mla(mla, kv)
        } else {
            let attention = Attention::load(weights, layer, sizes)?;
            let kv = rows(attention.shape())?;
            Mixer::Attention(attention, kv)
        })
    }

    /// Whether the layer sees a window only.
    pub fn windowed(&self) -> bool {
        matches!(self, Mixer::Attention(layer, _) if layer.shape().window.is_some())
    }

    /// Whether the layer has recurrent state.
    pub fn recurrent(&self) -> bool {
        self.state().is_some()
    }

    /// What a layer with recurrent state keeps.
    fn state(&self) -> Option<StateShape> {
        match self {
            Mixer::Attention(..) | Mixer::Mla(..) => None,
            Mixer::Delta(layer, _) => Some(layer.kept()),
            Mixer::Mamba2(layer, _) => Some(layer.kept()),
            Mixer::ShortConv(layer, _) => Some(layer.kept()),
        }
    }

    /// The shape of a layer that attends.
    fn attention(&self) -> Option<&AttentionShape> {
        match self {
            Mixer::Attention(layer, _) => Some(layer.shape()),
            Mixer::Mla(layer, _) => Some(layer.shape()),
            Mixer::Delta(..) | Mixer::Mamba2(..) | Mixer::ShortConv(..) => None,
        }
    }

    /// Bytes that the layer would keep in `room`: keys and values, or recurrent state.
    pub fn keeps(&self, room: &Room, kv: KvType) -> u64 {
        let rows = self.attention().map_or(0, |shape| {
            let layout = layout(shape, room);
            let (key, value) = shape.kept();
            let tokens = (layout.blocks as u64).saturating_mul(layout.block_tokens as u64);
            tokens.saturating_mul((kv.bytes(key) + kv.bytes(value)) as u64)
        });
        let state = self.state().map_or(0, |kept| (room.slots as u64).saturating_mul(kept.bytes() as u64));
        rows.saturating_add(state)
    }

    /// Copies what block `from` holds to block `to`, if the layer keeps blocks.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn copy_block(&mut self, backend: &mut B, from: BlockId, to: BlockId) -> Result<()> {
        match self {
            Mixer::Attention(_, kv) | Mixer::Mla(_, kv) => backend.copy_block(kv, from, to),
            _ => Ok(()),
        }
    }

    /// Copies the recurrent state of slot `from` to slot `to`, if the layer has one.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn copy_state(&mut self, backend: &mut B, from: SlotId, to: SlotId) -> Result<()> {
        match self {
            Mixer::Delta(_, state) | Mixer::Mamba2(_, state) | Mixer::ShortConv(_, state) => {
                backend.copy_state(state, from, to)
            }
            Mixer::Attention(..) | Mixer::Mla(..) => Ok(()),
        }
    }

    /// What the layer keeps of a sequence, in a cache of type `kv`.
    pub fn kept(&self, kv: KvType) -> Kept {
        match (self.attention(), self.state()) {
            (Some(shape), _) => {
                let (key, value) = shape.kept();
                Kept::Rows { windowed: shape.window.is_some(), bytes: kv.bytes(key) + kv.bytes(value) }
            }
            (None, kept) => Kept::State { bytes: kept.map_or(0, |kept| kept.bytes()) },
        }
    }

    /// Appends what lies at `place` to `out`.
    ///
    /// # Errors
    /// If the backend fails, or the layer keeps something else.
    pub fn save(&self, backend: &B, place: Place, out: &mut Vec<u8>) -> Result<()> {
        match (self, place) {
            (Mixer::Attention(_, kv) | Mixer::Mla(_, kv), Place::Rows { row, rows }) => {
                backend.save_rows(kv, row, rows, out)
            }
            (
                Mixer::Delta(_, state) | Mixer::Mamba2(_, state) | Mixer::ShortConv(_, state),
                Place::Slot(slot),
            ) => backend.save_state(state, slot, out),
            _ => Err(misplaced()),
        }
    }

    /// Puts what [`Mixer::save`] gave at `place`.
    ///
    /// # Errors
    /// As [`Mixer::save`].
    pub fn load_back(&mut self, backend: &mut B, place: Place, bytes: &[u8]) -> Result<()> {
        match (self, place) {
            (Mixer::Attention(_, kv) | Mixer::Mla(_, kv), Place::Rows { row, rows }) => {
                backend.load_rows(kv, row, rows, bytes)
            }
            (
                Mixer::Delta(_, state) | Mixer::Mamba2(_, state) | Mixer::ShortConv(_, state),
                Place::Slot(slot),
            ) => backend.load_state(state, slot, bytes),
            _ => Err(misplaced()),
        }
    }

    /// `x: [T, D]` -> `[T, D]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(
        &mut self,
        backend: &mut B,
        x: &B::Array,
        step: &Step,
        rotation: &Rotation<B>,
    ) -> Result<B::Array> {
        match self {
            Mixer::Attention(layer, kv) => layer.apply(backend, x, step, rotation, kv),
            Mixer::Mla(layer, kv) => layer.apply(backend, x, step, rotation, kv),
            Mixer::Delta(layer, state) => layer.apply(backend, x, step, state),
            Mixer::Mamba2(layer, state) => layer.apply(backend, x, step, state),
            Mixer::ShortConv(layer, state) => layer.apply(backend, x, step, state),
        }
    }
}

fn misplaced() -> crate::Error {
    let message = "the layer keeps something else".to_owned();
    crate::Error::Backend { operation: "keep the prefix cache on disk".to_owned(), message }
}

/// The blocks of a layer.
fn layout(shape: &AttentionShape, room: &Room) -> crate::cache::Layout {
    if shape.window.is_some() { room.windowed } else { room.full }
}
