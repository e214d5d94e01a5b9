//! The token mixer of a block: attention or a layer with recurrent state, and its cache.

use super::{Attention, Delta, Mamba2, Mla, Rotation, ShortConv, Weights};
use crate::Result;
use crate::backend::{AttentionShape, Backend, KvType, StateShape, Step};
use crate::cache::{BlockId, CacheConfig, SlotId};
use crate::facts::Sizes;

/// The token mixer of a block: one layer, two parallel ones whose results are summed, or none.
/// The tensors present determine which.
#[derive(Debug)]
pub struct TokenMixer<B: Backend> {
    layers: Vec<Layer<B>>,
}

/// A layer of the token mixer, and its cache.
#[derive(Debug)]
enum Layer<B: Backend> {
    /// Grouped-query attention.
    Attention(Attention<B>, B::Kv),
    /// Attention to the keys and values of an earlier block, which has this number.
    Sharing(Attention<B>, usize),
    /// Multi-head latent attention.
    Mla(Mla<B>, B::Kv),
    /// Gated DeltaNet.
    Delta(Delta<B>, B::Recurrent),
    /// Mamba-2.
    Mamba2(Mamba2<B>, B::Recurrent),
    /// A short convolution.
    ShortConv(ShortConv<B>, B::Recurrent),
}

/// A layer's cache of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerCache {
    /// Keys and values: one row per token, or per token in its window.
    Kv {
        /// Whether only tokens in the window count.
        windowed: bool,
        /// Bytes per row.
        bytes: usize,
    },
    /// Recurrent state.
    Recurrent {
        /// Size in bytes.
        bytes: usize,
    },
}

/// The location of a piece of a layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSlice {
    /// In rows of its blocks.
    Rows {
        /// The first row.
        row: usize,
        /// Number of rows.
        rows: usize,
    },
    /// In a slot.
    Slot(SlotId),
}

impl<B: Backend> TokenMixer<B> {
    /// Loads the layers of block number `layer` and allocates their caches.
    ///
    /// # Errors
    /// If a key or tensor is missing or has another shape, or the backend runs out of memory.
    pub fn load(
        weights: &Weights<B>,
        layer: usize,
        sizes: &Sizes,
        config: &CacheConfig,
        kv: KvType,
    ) -> Result<Self> {
        let has = |part: &str| weights.has(&format!("blk.{layer}.{part}"));
        let rows = |shape: &AttentionShape| weights.backend.kv(layout(shape, config), shape, kv);
        let state = |shape: StateShape| weights.backend.state(config.slots, &shape);
        let mut layers = Vec::new();
        if has("ssm_d") {
            let mamba = Mamba2::load(weights, layer, sizes)?;
            let state = state(mamba.state_shape())?;
            layers.push(Layer::Mamba2(mamba, state));
        } else if has("ssm_conv1d.weight") {
            let delta = Delta::load(weights, layer, sizes)?;
            let state = state(delta.state_shape())?;
            layers.push(Layer::Delta(delta, state));
        } else if has("shortconv.conv.weight") {
            let conv = ShortConv::load(weights, layer, sizes)?;
            let state = state(conv.state_shape())?;
            layers.push(Layer::ShortConv(conv, state));
        }
        // Files mark a block without layers by zero key heads.
        if has("attn_kv_a_mqa.weight") {
            let mla = Mla::load(weights, layer, sizes)?;
            let kv = rows(mla.shape())?;
            layers.push(Layer::Mla(mla, kv));
        } else if has("attn_output.weight")
            || layers.is_empty() && !weights.facts.lacks("attention.head_count_kv", layer)?
        {
            let attention = Attention::load(weights, layer, sizes)?;
            layers.push(match sizes.keys_of[layer] {
                source if source != layer => Layer::Sharing(attention, source),
                _ => {
                    let kv = rows(attention.shape())?;
                    Layer::Attention(attention, kv)
                }
            });
        }
        Ok(TokenMixer { layers })
    }

    /// Whether there are no layers.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The block whose keys and values a layer reads, if not its own.
    pub fn source(&self) -> Option<usize> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Sharing(_, source) => Some(*source),
            _ => None,
        })
    }

    /// The KV cache of the attention layer.
    pub fn kv(&mut self) -> Option<&mut B::Kv> {
        self.layers.iter_mut().find_map(|layer| match layer {
            Layer::Attention(_, kv) => Some(kv),
            _ => None,
        })
    }

    /// Whether a layer has windowed attention.
    pub fn windowed(&self) -> bool {
        self.layers.iter().any(Layer::windowed)
    }

    /// Whether a layer has recurrent state.
    pub fn recurrent(&self) -> bool {
        self.layers.iter().any(|layer| layer.state().is_some())
    }

    /// Bytes of the layers' caches for `config`: of keys and values, and of recurrent state.
    pub fn cache_bytes(&self, config: &CacheConfig, kv: KvType) -> (u64, u64) {
        let each = self.layers.iter().map(|layer| layer.cache_bytes(config, kv));
        each.fold((0, 0), |(rows, state), (more_rows, more_state): (u64, u64)| {
            (more_rows.saturating_add(rows), more_state.saturating_add(state))
        })
    }

    /// Copies block `from` to block `to`, in layers that have blocks.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn copy_block(&mut self, backend: &mut B, from: BlockId, to: BlockId) -> Result<()> {
        self.layers.iter_mut().try_for_each(|layer| match layer {
            Layer::Attention(_, kv) | Layer::Mla(_, kv) => backend.copy_block(kv, from, to),
            _ => Ok(()),
        })
    }

    /// Copies the recurrent state in slot `from` to slot `to`, in layers that have one.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn copy_state(&mut self, backend: &mut B, from: SlotId, to: SlotId) -> Result<()> {
        self.layers.iter_mut().try_for_each(|layer| match layer {
            Layer::Delta(_, state) | Layer::Mamba2(_, state) | Layer::ShortConv(_, state) => {
                backend.copy_state(state, from, to)
            }
            Layer::Attention(..) | Layer::Sharing(..) | Layer::Mla(..) => Ok(()),
        })
    }

    /// The layers' caches of a sequence, with keys and values of type `kv`: rows at most once, and
    /// a state at most once.
    pub fn caches(&self, kv: KvType) -> impl Iterator<Item = LayerCache> {
        self.layers.iter().filter_map(move |layer| layer.cache(kv))
    }

    /// Appends the contents of the cache at `slice` to `out`.
    ///
    /// # Errors
    /// If the backend fails, or no layer has such a cache.
    pub fn save(&self, backend: &B, slice: CacheSlice, out: &mut Vec<u8>) -> Result<()> {
        for layer in &self.layers {
            match (layer, slice) {
                (Layer::Attention(_, kv) | Layer::Mla(_, kv), CacheSlice::Rows { row, rows }) => {
                    return backend.save_rows(kv, row, rows, out);
                }
                (
                    Layer::Delta(_, state) | Layer::Mamba2(_, state) | Layer::ShortConv(_, state),
                    CacheSlice::Slot(slot),
                ) => return backend.save_state(state, slot, out),
                _ => {}
            }
        }
        Err(no_such_cache())
    }

    /// Restores bytes saved by [`TokenMixer::save`] to `slice`.
    ///
    /// # Errors
    /// As [`TokenMixer::save`].
    pub fn load_back(&mut self, backend: &mut B, slice: CacheSlice, bytes: &[u8]) -> Result<()> {
        for layer in &mut self.layers {
            match (layer, slice) {
                (Layer::Attention(_, kv) | Layer::Mla(_, kv), CacheSlice::Rows { row, rows }) => {
                    return backend.load_rows(kv, row, rows, bytes);
                }
                (
                    Layer::Delta(_, state) | Layer::Mamba2(_, state) | Layer::ShortConv(_, state),
                    CacheSlice::Slot(slot),
                ) => return backend.load_state(state, slot, bytes),
                _ => {}
            }
        }
        Err(no_such_cache())
    }

    /// The sum of the layers' results; `None` without layers.
    /// `shared_kv` is the KV cache of [`TokenMixer::source`].
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
        mut shared_kv: Option<&mut B::Kv>,
    ) -> Result<Option<B::Array>> {
        let mut sum = None;
        for layer in &mut self.layers {
            let y = layer.apply(backend, x, step, rotation, shared_kv.as_deref_mut())?;
            sum = Some(match sum {
                Some(sum) => backend.add(sum, &y)?,
                None => y,
            });
        }
        Ok(sum)
    }
}

impl<B: Backend> Layer<B> {
    fn windowed(&self) -> bool {
        let shape = match self {
            Layer::Sharing(layer, _) => Some(layer.shape()),
            _ => self.attention(),
        };
        shape.is_some_and(|shape| shape.window.is_some())
    }

    /// The shape of the layer with keys and values of its own.
    fn attention(&self) -> Option<&AttentionShape> {
        match self {
            Layer::Attention(layer, _) => Some(layer.shape()),
            Layer::Mla(layer, _) => Some(layer.shape()),
            Layer::Sharing(..) | Layer::Delta(..) | Layer::Mamba2(..) | Layer::ShortConv(..) => None,
        }
    }

    /// The shape of a layer's recurrent state.
    fn state(&self) -> Option<StateShape> {
        match self {
            Layer::Attention(..) | Layer::Sharing(..) | Layer::Mla(..) => None,
            Layer::Delta(layer, _) => Some(layer.state_shape()),
            Layer::Mamba2(layer, _) => Some(layer.state_shape()),
            Layer::ShortConv(layer, _) => Some(layer.state_shape()),
        }
    }

    fn cache_bytes(&self, config: &CacheConfig, kv: KvType) -> (u64, u64) {
        let rows = self.attention().map_or(0, |shape| {
            let layout = layout(shape, config);
            let (key, value) = shape.cached();
            let tokens = (layout.blocks as u64).saturating_mul(layout.block_tokens as u64);
            tokens.saturating_mul((kv.bytes(key) + kv.bytes(value)) as u64)
        });
        let of_slot = self.state().map_or(0, |shape| shape.bytes() as u64);
        (rows, of_slot.saturating_mul(config.slots as u64))
    }

    fn cache(&self, kv: KvType) -> Option<LayerCache> {
        let rows = self.attention().map(|shape| {
            let (key, value) = shape.cached();
            LayerCache::Kv { windowed: shape.window.is_some(), bytes: kv.bytes(key) + kv.bytes(value) }
        });
        rows.or_else(|| self.state().map(|shape| LayerCache::Recurrent { bytes: shape.bytes() }))
    }

    fn apply(
        &mut self,
        backend: &mut B,
        x: &B::Array,
        step: &Step,
        rotation: &Rotation<B>,
        shared_kv: Option<&mut B::Kv>,
    ) -> Result<B::Array> {
        match self {
            Layer::Attention(layer, kv) => layer.apply(backend, x, step, rotation, kv),
            Layer::Sharing(layer, source) => match shared_kv {
                Some(kv) => layer.apply(backend, x, step, rotation, kv),
                None => Err(nothing_shared(*source)),
            },
            Layer::Mla(layer, kv) => layer.apply(backend, x, step, rotation, kv),
            Layer::Delta(layer, state) => layer.apply(backend, x, step, state),
            Layer::Mamba2(layer, state) => layer.apply(backend, x, step, state),
            Layer::ShortConv(layer, state) => layer.apply(backend, x, step, state),
        }
    }
}

#[cfg(test)]
impl TokenMixer<crate::backend::native::Native> {
    /// Bytes allocated by the backend: keys and values, and recurrent state.
    pub fn allocated(&self) -> (u64, u64) {
        self.layers.iter().fold((0, 0), |(rows, state), layer| match layer {
            Layer::Attention(_, kv) | Layer::Mla(_, kv) => (rows + kv.bytes() as u64, state),
            Layer::Sharing(..) => (rows, state),
            Layer::Delta(_, of_layer) | Layer::Mamba2(_, of_layer) | Layer::ShortConv(_, of_layer) => {
                (rows, state + of_layer.bytes() as u64)
            }
        })
    }
}

fn nothing_shared(source: usize) -> crate::Error {
    let message = format!("block {source} has no keys and values to share");
    crate::Error::Backend { operation: "attend".to_owned(), message }
}

fn no_such_cache() -> crate::Error {
    let message = "no layer of the block keeps such".to_owned();
    crate::Error::Backend { operation: "keep the prefix cache on disk".to_owned(), message }
}

/// The block layout for a layer.
fn layout(shape: &AttentionShape, config: &CacheConfig) -> crate::cache::Layout {
    if shape.window.is_some() { config.windowed } else { config.full }
}
