//! Grouped-query attention: project, norm, rotate, append to the cache, attend, project.

use super::{Linear, Norm, Rope, Weights};
use crate::Result;
use crate::architecture::Sizes;
use crate::backend::{AttentionShape, Backend, Step};

/// One attention layer.
#[derive(Debug)]
pub struct Attention<B: Backend> {
    q: Linear<B>,
    k: Linear<B>,
    v: Linear<B>,
    output: Linear<B>,
    /// Before the rotation.
    q_norm: Option<Norm<B>>,
    k_norm: Option<Norm<B>>,
    shape: AttentionShape,
}

impl<B: Backend> Attention<B> {
    /// Loads the layer of block `prefix`, for example `blk.0.`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn load(weights: &Weights<B>, prefix: &str, sizes: &Sizes) -> Result<Self> {
        let Sizes { width, heads, kv_heads, key_width, value_width, norm_epsilon, .. } = *sizes;
        let (q_out, k_out, v_out) = (heads * key_width, kv_heads * key_width, kv_heads * value_width);
        let fused = weights.gguf.tensor(&format!("{prefix}attn_qkv.weight")).is_some();
        // Fused rows are those of q, then k, then v.
        let projection = |name: &str, start: usize, out: usize| {
            if fused {
                let name = format!("{prefix}attn_qkv");
                Linear::load_rows(weights, &name, q_out + k_out + v_out, width, start..start + out)
            } else {
                Linear::load(weights, &format!("{prefix}{name}"), out, width)
            }
        };
        // As long as a head: over each head. As long as the projection: over all heads together.
        let norm = |name: &str, all: usize| {
            let name = format!("{prefix}{name}");
            let len =
                weights.gguf.tensor(&format!("{name}.weight")).and_then(|info| info.shape.first().copied());
            let width = if len == Some(all as u64) { all } else { key_width };
            Norm::maybe(weights, &name, width, norm_epsilon)
        };
        Ok(Attention {
            q: projection("attn_q", 0, q_out)?,
            k: projection("attn_k", q_out, k_out)?,
            v: projection("attn_v", q_out + k_out, v_out)?,
            output: Linear::load(weights, &format!("{prefix}attn_output"), width, heads * value_width)?,
            q_norm: norm("attn_q_norm", q_out)?,
            k_norm: norm("attn_k_norm", k_out)?,
            shape: Self::shape(sizes),
        })
    }

    /// The layer's shape, from which its part of the cache is made.
    pub fn shape(sizes: &Sizes) -> AttentionShape {
        AttentionShape {
            heads: sizes.heads,
            kv_heads: sizes.kv_heads,
            key_width: sizes.key_width,
            value_width: sizes.value_width,
            scale: 1.0 / (sizes.key_width as f32).sqrt(),
        }
    }

    /// `x: [T, D]` -> `[T, D]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(
        &self,
        backend: &mut B,
        x: &B::Array,
        step: &Step,
        rope: &Rope,
        angles: &B::Angles,
        kv: &mut B::Kv,
    ) -> Result<B::Array> {
        let mut q = self.q.apply(backend, x)?;
        let mut k = self.k.apply(backend, x)?;
        let v = self.v.apply(backend, x)?;
        if let Some(norm) = &self.q_norm {
            q = norm.apply(backend, &q)?;
        }
        if let Some(norm) = &self.k_norm {
            k = norm.apply(backend, &k)?;
        }
        let q = rope.apply(backend, &q, self.shape.key_width, angles)?;
        let k = rope.apply(backend, &k, self.shape.key_width, angles)?;
        let mixed = backend.append_and_attend(&q, &k, &v, step, kv, &self.shape)?;
        self.output.apply(backend, &mixed)
    }
}
