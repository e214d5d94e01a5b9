//! What mixes tokens in a block, with what it keeps of its sequences.

use super::{Attention, Delta, Mla, Rotation, Weights};
use crate::Result;
use crate::backend::{AttentionShape, Backend, KvType, Step};
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
        Ok(if has("ssm_conv1d.weight") {
            let delta = Delta::load(weights, layer, sizes)?;
            let state = weights.backend.state(room.slots, delta.shape())?;
            Mixer::Delta(delta, state)
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
        matches!(self, Mixer::Delta(..))
    }

    /// Bytes that the layer would keep in `room`: keys and values, or recurrent state.
    pub fn keeps(&self, room: &Room, kv: KvType) -> u64 {
        let rows = |shape: &AttentionShape| {
            let layout = layout(shape, room);
            let (key, value) = shape.kept();
            let tokens = (layout.blocks as u64).saturating_mul(layout.block_tokens as u64);
            tokens.saturating_mul((kv.bytes(key) + kv.bytes(value)) as u64)
        };
        match self {
            Mixer::Attention(layer, _) => rows(layer.shape()),
            Mixer::Mla(layer, _) => rows(layer.shape()),
            Mixer::Delta(layer, _) => {
                let (history, matrices) = layer.shape().kept();
                (room.slots as u64).saturating_mul(4 * (history + matrices) as u64)
            }
        }
    }

    /// Copies what block `from` holds to block `to`, if the layer keeps blocks.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn copy_block(&mut self, backend: &mut B, from: BlockId, to: BlockId) -> Result<()> {
        match self {
            Mixer::Attention(_, kv) | Mixer::Mla(_, kv) => backend.copy_block(kv, from, to),
            Mixer::Delta(..) => Ok(()),
        }
    }

    /// Copies the recurrent state of slot `from` to slot `to`, if the layer has one.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn copy_state(&mut self, backend: &mut B, from: SlotId, to: SlotId) -> Result<()> {
        match self {
            Mixer::Delta(_, state) => backend.copy_state(state, from, to),
            Mixer::Attention(..) | Mixer::Mla(..) => Ok(()),
        }
    }

    /// What the layer keeps of a sequence, in a cache of type `kv`.
    pub fn kept(&self, kv: KvType) -> Kept {
        let rows = |shape: &AttentionShape| {
            let (key, value) = shape.kept();
            Kept::Rows { windowed: shape.window.is_some(), bytes: kv.bytes(key) + kv.bytes(value) }
        };
        match self {
            Mixer::Attention(layer, _) => rows(layer.shape()),
            Mixer::Mla(layer, _) => rows(layer.shape()),
            Mixer::Delta(layer, _) => {
                let (history, matrices) = layer.shape().kept();
                Kept::State { bytes: 4 * (history + matrices) }
            }
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
            (Mixer::Delta(_, state), Place::Slot(slot)) => backend.save_state(state, slot, out),
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
            (Mixer::Delta(_, state), Place::Slot(slot)) => backend.load_state(state, slot, bytes),
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
