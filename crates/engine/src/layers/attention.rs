//! Grouped-query attention: project, norm, rotate, append to the cache, attend, project.

use super::{Linear, Norm, Rotation, Weights, normed};
use crate::Result;
use crate::architecture::{Activation, NormKind, QkNorm};
use crate::backend::{AttentionShape, Backend, Heads, Queries, Step};
use crate::facts::Sizes;

/// One attention layer.
#[derive(Debug)]
pub struct Attention<B: Backend> {
    q: Linear<B>,
    /// Projections to keys and values; `None` to read those of another block.
    own: Option<(Linear<B>, Values<B>)>,
    output: Linear<B>,
    q_norm: Option<Norm<B>>,
    k_norm: Option<Norm<B>>,
    /// Whether heads are normalized after the rotation.
    norms_last: bool,
    /// Whether queries and keys are rotated.
    rotates: bool,
    /// Whether each head's query is followed by a gate of the same width for the head's result.
    gated: bool,
    /// An extra score per head, whose share of the attention is discarded.
    sinks: Option<B::Vector>,
    temperature: Option<Temperature>,
    shape: AttentionShape,
}

/// The source of values.
#[derive(Debug)]
enum Values<B: Backend> {
    /// A projection, with an optional norm over each head.
    Own(Linear<B>, Option<Norm<B>>),
    /// The input of keys, normalized.
    OfKeys(Norm<B>),
}

/// Sharpens attention at distant positions: queries are multiplied by
/// `1 + scale * ln(1 + floor((position + offset) / step))`.
#[derive(Clone, Copy, Debug)]
struct Temperature {
    scale: f32,
    step: usize,
    offset: usize,
}

impl<B: Backend> Attention<B> {
    /// Loads the layer of block number `layer`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn load(weights: &Weights<B>, layer: usize, sizes: &Sizes) -> Result<Self> {
        let Sizes { width, heads, norm_epsilon, .. } = *sizes;
        let kv_heads = sizes.kv_heads[sizes.keys_of[layer]];
        let (key_width, value_width) = sizes.widths_of(layer);
        if kv_heads == 0 {
            let reason = format!("block {layer} attends, but has none");
            return Err(weights.facts.invalid("attention.head_count_kv", &reason));
        }
        let prefix = format!("blk.{layer}.");
        let fused = weights.has(&format!("{prefix}attn_qkv.weight"));
        let (k_out, v_out) = (kv_heads * key_width, kv_heads * value_width);
        let (architecture, rotates) = (weights.facts.architecture, sizes.rotates[layer]);
        let gated = !fused
            && weights.dimension(&format!("{prefix}attn_q.weight"), 1)? == 2 * heads * key_width
            && value_width == key_width;
        let q_out = heads * key_width * if gated { 2 } else { 1 };
        // Fused rows are q, then k, then v.
        let projection = |name: &str, start: usize, out: usize| {
            if fused {
                let name = format!("{prefix}attn_qkv");
                Linear::load_rows(weights, &name, q_out + k_out + v_out, width, start..start + out)
            } else {
                Linear::load(weights, &format!("{prefix}{name}"), out, width)
            }
        };
        // With the length of a head: over each head.
        // With the length of the projection: over all heads together.
        let norm = |name: &str, all: usize| {
            let name = format!("{prefix}{name}");
            let len = weights.facts.tensor(&format!("{name}.weight")).and_then(|info| info.shape.first());
            let width = if len == Some(&(all as u64)) { all } else { key_width };
            match architecture.qk_norm {
                // Heads that don't rotate have no norm.
                QkNorm::WeightlessAfterRope if !rotates => Ok(None),
                QkNorm::WeightlessAfterRope => Norm::weightless(weights, key_width, norm_epsilon).map(Some),
                // Nor do those of models with layer norms, since no kernel supports that.
                _ if architecture.norm == NormKind::Layer => Ok(None),
                _ => Norm::maybe(weights, &name, width, norm_epsilon),
            }
        };
        let values = || {
            let norm = match architecture.value_norm {
                true => Some(Norm::weightless(weights, value_width, norm_epsilon)?),
                false => None,
            };
            let has = fused || key_width != value_width || weights.has(&format!("{prefix}attn_v.weight"));
            match norm {
                Some(norm) if !has => Ok(Values::OfKeys(norm)),
                norm => projection("attn_v", q_out + k_out, v_out).map(|v| Values::Own(v, norm)),
            }
        };
        Ok(Attention {
            q: projection("attn_q", 0, q_out)?,
            own: match sizes.keys_of[layer] == layer {
                true => Some((projection("attn_k", q_out, k_out)?, values()?)),
                false => None,
            },
            output: Linear::load(weights, &format!("{prefix}attn_output"), width, heads * value_width)?,
            q_norm: norm("attn_q_norm", heads * key_width)?,
            k_norm: norm("attn_k_norm", k_out)?,
            norms_last: architecture.qk_norm != QkNorm::BeforeRope,
            rotates,
            gated,
            sinks: weights.vector(&format!("{prefix}attn_sinks.weight"), heads)?,
            temperature: Temperature::load(weights, layer, sizes)?,
            shape: AttentionShape {
                heads,
                kv_heads,
                key_width,
                value_width,
                values_in_keys: false,
                scale: sizes.query_scale,
                softcap: sizes.attention_cap,
                window: sizes.window_of(layer),
                chunked: architecture.chunked_window && sizes.window_of(layer).is_some(),
            },
        })
    }

    /// The layer's shape, which determines its part of the cache.
    pub fn shape(&self) -> &AttentionShape {
        &self.shape
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
        rotation: &Rotation<B>,
        kv: &mut B::Kv,
    ) -> Result<B::Array> {
        let width = self.shape.key_width;
        let (mut q, own) = match &self.own {
            Some((k, Values::Own(v, norm))) => {
                let [q, k, v] = Linear::apply_all([&self.q, k, v], backend, x)?;
                let v = normed(backend, norm.as_ref(), &v)?.unwrap_or(v);
                (q, Some((k, v)))
            }
            Some((k, Values::OfKeys(norm))) => {
                let [q, k] = Linear::apply_all([&self.q, k], backend, x)?;
                let v = norm.apply(backend, &k)?;
                (q, Some((k, v)))
            }
            None => (self.q.apply(backend, x)?, None),
        };
        let mut gate = None;
        if self.gated {
            let (queries, gates) = backend.split(&q, 2 * width, width)?;
            (q, gate) = (queries, Some(gates));
        }
        let factors = self.temperature.map_or_else(Vec::new, |temperature| temperature.factors(step));
        let sinks = self.sinks.as_ref();
        let mut mixed = match own {
            Some((k, v)) => {
                let heads = Heads {
                    q,
                    k,
                    v,
                    sinks,
                    norms: [&self.q_norm, &self.k_norm].map(|norm| norm.as_ref().map(Norm::parts)),
                    norms_last: self.norms_last,
                    angles: self.rotates.then(|| rotation.angles()),
                    pairing: rotation.pairing(),
                    factors,
                };
                backend.prepare_and_attend(heads, step, kv, &self.shape)?
            }
            None => {
                let q = self.ready(backend, q, rotation, &factors)?;
                let queries = Queries { q: &q, k: None, v: None, sinks };
                backend.append_and_attend(queries, step, kv, &self.shape)?
            }
        };
        if let Some(gate) = &gate {
            mixed = backend.gated(gate, mixed, Activation::Sigmoid)?;
        }
        self.output.apply(backend, &mixed)
    }

    /// Prepares queries for keys of another block.
    fn ready(
        &self,
        backend: &mut B,
        mut q: B::Array,
        rotation: &Rotation<B>,
        factors: &[f32],
    ) -> Result<B::Array> {
        for norms in [!self.norms_last, self.norms_last] {
            match &self.q_norm {
                Some(norm) if norms => q = norm.apply(backend, &q)?,
                _ if !norms && self.rotates => q = rotation.apply(backend, q, self.shape.key_width)?,
                _ => {}
            }
        }
        if factors.is_empty() { Ok(q) } else { backend.scale(q, factors) }
    }
}

impl Temperature {
    /// The temperature of block number `layer`: if only some layers rotate, the others have one.
    fn load<B: Backend>(weights: &Weights<B>, layer: usize, sizes: &Sizes) -> Result<Option<Self>> {
        let facts = weights.facts;
        let Some(scale) = facts.number("attention.temperature_scale")?.filter(|&scale| scale != 0.0) else {
            return Ok(None);
        };
        let step = match facts.maybe("attention.temperature_length")? {
            Some(step) => step,
            None => facts.size("rope.scaling.original_context_length")?,
        };
        let offset = facts.maybe("attention.temperature_offset")?.unwrap_or(0);
        let has = !sizes.rotates[layer] || sizes.rotates.iter().all(|&rotates| rotates);
        Ok(has.then_some(Temperature { scale, step, offset }))
    }

    /// The factors of each row's queries; empty if there are none.
    fn factors(self, step: &Step) -> Vec<f32> {
        let factors: Vec<f32> = step.positions().map(|position| self.at(position)).collect();
        if factors.iter().all(|&factor| factor == 1.0) { Vec::new() } else { factors }
    }

    fn at(self, position: usize) -> f32 {
        1.0 + self.scale * (((position + self.offset) / self.step) as f32).ln_1p()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temperature_grows_where_a_stretch_is_full() {
        let of = |offset, position| Temperature { scale: 0.1, step: 8192, offset }.at(position);
        assert_eq!([of(0, 0), of(0, 8191), of(1, 0), of(1, 8190)], [1.0; 4]);
        for (found, stretches) in [(of(0, 8192), 2f32), (of(1, 8191), 2.0), (of(1, 16383), 3.0)] {
            assert!((found - 1.0 - 0.1 * stretches.ln()).abs() < 1e-6, "{found}");
        }
    }
}
