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
    /// Over each head, before the rotation.
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
        let linear =
            |name: &str, out: usize, width: usize| Linear::load(weights, &format!("{prefix}{name}"), out, width);
        let norm = |name: &str| Norm::maybe(weights, &format!("{prefix}{name}"), key_width, norm_epsilon);
        Ok(Attention {
            q: linear("attn_q", heads * key_width, width)?,
            k: linear("attn_k", kv_heads * key_width, width)?,
            v: linear("attn_v", kv_heads * value_width, width)?,
            output: linear("attn_output", width, heads * value_width)?,
            q_norm: norm("attn_q_norm")?,
            k_norm: norm("attn_k_norm")?,
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
