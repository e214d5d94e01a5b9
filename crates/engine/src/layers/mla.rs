//! Multi-head latent attention in its absorbed form.
//! The cache holds one row per token: a compressed key that also serves as the value, and a rotated
//! part that all heads share.
//! Source: DeepSeek-AI 2024, <https://arxiv.org/abs/2405.04434>.

use super::{Linear, Norm, Rotation, Weights, rope_width, score_factor};
use crate::Result;
use crate::backend::{AttentionShape, Backend, Queries, Step};
use crate::facts::Sizes;

/// One latent attention layer.
#[derive(Debug)]
pub struct Mla<B: Backend> {
    /// Projection to the compressed query, and its norm; `None` if queries aren't compressed.
    q_down: Option<(Linear<B>, Norm<B>)>,
    q_up: Linear<B>,
    /// Projection to the compressed key and the shared rotated part.
    kv_down: Linear<B>,
    kv_norm: Norm<B>,
    /// Maps a head's query to the space of compressed keys.
    /// `[H, rank, E - rope]`
    keys: B::Stack,
    /// Maps a head's weighted sum back from it.
    /// `[H, value_width, rank]`
    values: B::Stack,
    output: Linear<B>,
    /// E, width of a head's query before it is absorbed.
    head: usize,
    /// Number of its elements that rotate, the last ones.
    rope: usize,
    /// Width of the compressed key.
    rank: usize,
    shape: AttentionShape,
}

impl<B: Backend> Mla<B> {
    /// Loads the layer of block number `layer`; the tensors determine its widths.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn load(weights: &Weights<B>, layer: usize, sizes: &Sizes) -> Result<Self> {
        let Sizes { width, heads, norm_epsilon, .. } = *sizes;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let rope = rope_width(weights.facts, sizes.key_width)?;
        let (up, q_down) = if weights.has(&name("attn_q_a.weight")) {
            let rank = weights.dimension(&name("attn_q_a_norm.weight"), 0)?;
            let down = Linear::load(weights, &name("attn_q_a"), rank, width)?;
            (name("attn_q_b"), Some((down, Norm::load(weights, &name("attn_q_a_norm"), rank, norm_epsilon)?)))
        } else {
            (name("attn_q"), None)
        };
        let [q_rank, queries] = [0, 1].map(|at| weights.dimension(&format!("{up}.weight"), at));
        let (q_rank, queries) = (q_rank?, queries?);
        let rank = weights.dimension(&name("attn_kv_a_norm.weight"), 0)?;
        let head = queries / heads;
        let value = weights.dimension(&name("attn_v_b.weight"), 1)?;
        if head <= rope {
            let reason = format!("{rope} elements rotate, but a head has {head}");
            return Err(weights.facts.invalid("rope.dimension_count", &reason));
        }
        let stack = |part, out, width| weights.stack(&name(part), heads, out, width, 0..out);
        Ok(Mla {
            q_up: Linear::load(weights, &up, heads * head, if q_down.is_some() { q_rank } else { width })?,
            q_down,
            kv_down: Linear::load(weights, &name("attn_kv_a_mqa"), rank + rope, width)?,
            kv_norm: Norm::load(weights, &name("attn_kv_a_norm"), rank, norm_epsilon)?,
            keys: stack("attn_k_b.weight", rank, head - rope)?,
            values: stack("attn_v_b.weight", value, rank)?,
            output: Linear::load(weights, &name("attn_output"), width, heads * value)?,
            head,
            rope,
            rank,
            shape: AttentionShape {
                heads,
                kv_heads: 1,
                key_width: rank + rope,
                value_width: rank,
                values_in_keys: true,
                scale: score_factor(weights.facts)? / (head as f32).sqrt(),
                softcap: sizes.attention_cap,
                window: None,
                chunked: false,
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
        let Mla { head, rope, rank, .. } = *self;
        let first = self.q_down.as_ref().map_or(&self.q_up, |(down, _)| down);
        let [mut q, k] = Linear::apply_all([first, &self.kv_down], backend, x)?;
        if let Some((_, norm)) = &self.q_down {
            q = norm.apply(backend, &q)?;
            q = self.q_up.apply(backend, &q)?;
        }
        let (plain, rotated) = backend.split(&q, head, head - rope)?;
        let rotated = rotation.apply(backend, rotated, rope)?;
        let absorbed = backend.stacked(&plain, &self.keys)?; // [T, H * rank]
        let q = backend.join(&absorbed, rank, &rotated, rope)?;

        let (compressed, rotated) = backend.split(&k, rank + rope, rank)?;
        let compressed = self.kv_norm.apply(backend, &compressed)?;
        let rotated = rotation.apply(backend, rotated, rope)?;
        let k = backend.join(&compressed, rank, &rotated, rope)?;

        let queries = Queries { q: &q, k: Some(&k), v: None, sinks: None };
        let mixed = backend.append_and_attend(queries, step, kv, &self.shape)?; // [T, H * rank]
        let values = backend.stacked(&mixed, &self.values)?;
        self.output.apply(backend, &values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;
    use crate::backend::native::Native;
    use crate::backend::{KvType, Span};
    use crate::cache::{Layout, SlotId};
    use crate::facts::Facts;
    use crate::layers::Rope;
    use alara_text::gguf::Gguf;

    /// The product `[rows, out]` of `x: [rows, width]` and a matrix `[out, width]`.
    fn product(x: &[f32], w: &[f32], width: usize) -> Vec<f32> {
        let dot =
            |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>();
        x.chunks(width).flat_map(|x| w.chunks(width).map(move |w| dot(x, w) as f32)).collect()
    }

    /// Compares with keys and values of every head computed from the compressed key, as such models
    /// were trained.
    #[test]
    fn the_absorbed_form_gives_what_the_expanded_one_gives() {
        let path = "../../tests/fixtures/arch/deepseek2-glm47flash-exact/model.gguf";
        let gguf = Gguf::open(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let architecture = Architecture::of(&gguf).unwrap();
        let facts = Facts::new(&gguf, &architecture).unwrap();
        let sizes = Sizes::of(&facts).unwrap();
        let mut backend = Native::with_threads(1);
        let weights = Weights { facts: &facts, backend: &backend };
        let mla = Mla::load(&weights, 2, &sizes).unwrap();
        let rope = Rope::load(&weights, mla.rope, 13).unwrap();
        let floats = |name: &str| {
            let data = gguf.data(gguf.tensor(&format!("blk.2.{name}.weight")).unwrap());
            data.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect::<Vec<f32>>()
        };
        let (keys, values) = (floats("attn_k_b"), floats("attn_v_b"));
        let (rows, heads) = (13, sizes.heads);
        let span = Span { rows, past: 0, blocks: vec![0], windowed: vec![], slot: SlotId(0), saves: vec![] };
        let step = Step { tokens: (0..13).collect(), spans: vec![span], outputs: vec![] };
        let rotation = rope.at(&mut backend, &step).unwrap();
        let table = Weights { facts: &facts, backend: &backend }.matrix("token_embd.weight", 512, 64);
        let x = backend.embed(&table.unwrap().unwrap(), &step.tokens).unwrap();

        let mut kv = backend.kv(Layout { blocks: 1, block_tokens: 32 }, &mla.shape, KvType::F32).unwrap();
        let y = mla.apply(&mut backend, &x, &step, &rotation, &mut kv).unwrap();
        let found = backend.to_host(&y).unwrap();

        let Mla { head, rope: rotated, rank, .. } = mla;
        let plain = head - rotated;
        let (q_down, q_norm) = mla.q_down.as_ref().unwrap();
        let q = q_down.apply(&mut backend, &x).unwrap();
        let q = q_norm.apply(&mut backend, &q).unwrap();
        let q = mla.q_up.apply(&mut backend, &q).unwrap();
        let (q_plain, q_rotated) = backend.split(&q, head, plain).unwrap();
        let q_rotated = rotation.apply(&mut backend, q_rotated, rotated).unwrap();
        let k = mla.kv_down.apply(&mut backend, &x).unwrap();
        let (compressed, k_rotated) = backend.split(&k, rank + rotated, rank).unwrap();
        let compressed = mla.kv_norm.apply(&mut backend, &compressed).unwrap();
        let k_rotated = rotation.apply(&mut backend, k_rotated, rotated).unwrap();
        let value = values.len() / heads / rank;
        let mut mixed = vec![0.0; rows * heads * value];
        for h in 0..heads {
            // k_b is stored as [rank, plain] per head: the key of a head is its transpose times the
            // compressed key.
            let of_head = &keys[h * rank * plain..][..rank * plain];
            let transposed: Vec<f32> =
                (0..plain).flat_map(|i| (0..rank).map(move |r| of_head[r * plain + i])).collect();
            let k_plain = product(compressed.numbers(), &transposed, rank);
            let v = product(compressed.numbers(), &values[h * value * rank..][..value * rank], rank);
            for t in 0..rows {
                let score = |s: usize| {
                    let plain_part = (0..plain).map(|i| {
                        f64::from(q_plain.numbers()[(t * heads + h) * plain + i] * k_plain[s * plain + i])
                    });
                    let rotated_part = (0..rotated).map(|i| {
                        f64::from(
                            q_rotated.numbers()[(t * heads + h) * rotated + i]
                                * k_rotated.numbers()[s * rotated + i],
                        )
                    });
                    plain_part.chain(rotated_part).sum::<f64>() / (head as f64).sqrt()
                };
                let scores: Vec<f64> = (0..=t).map(score).collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
                let sum: f64 = powers.iter().sum();
                for i in 0..value {
                    let terms = powers.iter().enumerate().map(|(s, p)| p / sum * f64::from(v[s * value + i]));
                    mixed[(t * heads + h) * value + i] = terms.sum::<f64>() as f32;
                }
            }
        }
        let expected = product(&mixed, &floats("attn_output"), heads * value);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
    }
}
