//! The one forward pass.
//!
//! Dimension letters, here and everywhere: T tokens in the step, S sequences, D width, H query heads, K key and value
//! heads, E head width, F feed-forward width, V vocabulary, L layers.

use crate::architecture::{Architecture, Sizes};
use crate::backend::{Backend, KvType, Step};
use crate::cache::{BlockId, Layout};
use crate::gguf::Gguf;
use crate::layers::{Attention, Ffn, Norm, Rope, Weights};
use crate::{Error, Result};

/// A loaded model and the keys and values of its sequences.
#[derive(Debug)]
pub struct Decoder<B: Backend> {
    backend: B,
    embedding: B::Matrix,
    blocks: Vec<Block<B>>,
    norm: Norm<B>,
    /// `None`: the embedding serves as output too.
    output: Option<B::Matrix>,
    rope: Rope,
    kv: Vec<B::Kv>,
    vocabulary: usize,
}

#[derive(Debug)]
struct Block<B: Backend> {
    attn_in: Option<Norm<B>>,
    attention: Attention<B>,
    attn_out: Option<Norm<B>>,
    ffn_in: Option<Norm<B>>,
    ffn: Ffn<B>,
    ffn_out: Option<Norm<B>>,
}

impl<B: Backend> Decoder<B> {
    /// Loads the model in `gguf` and makes room for keys and values.
    ///
    /// # Errors
    /// If the architecture is unknown, a size or tensor is missing or wrong, or the backend has no room.
    pub fn load(gguf: &Gguf, backend: B, layout: Layout, kv: KvType) -> Result<Self> {
        let architecture = Architecture::of(gguf)?;
        let sizes = Sizes::of(gguf, &architecture)?;
        let weights = Weights { gguf, backend: &backend };
        let table = gguf.tensor("token_embd.weight").ok_or_else(|| weights.missing("token_embd.weight"))?;
        let vocabulary = table.shape.get(1).copied().unwrap_or(1) as usize;
        let embedding = weights.matrix("token_embd.weight", vocabulary, sizes.width)?;
        let blocks = (0..sizes.layers)
            .map(|layer| Block::load(&weights, &format!("blk.{layer}."), &architecture, &sizes))
            .collect::<Result<Vec<_>>>()?;
        let norm = Norm::load(&weights, "output_norm", sizes.width, sizes.norm_epsilon)?;
        let output = weights.matrix("output.weight", vocabulary, sizes.width)?;
        let rope = Rope::load(&weights, &architecture, &sizes)?;
        let embedding = embedding.ok_or_else(|| weights.missing("token_embd.weight"))?;
        let shape = Attention::<B>::shape(&sizes);
        let kv = blocks.iter().map(|_| backend.kv(layout, &shape, kv)).collect::<Result<Vec<_>>>()?;
        Ok(Decoder { backend, embedding, blocks, norm, output, rope, kv, vocabulary })
    }

    /// V, the number of logits in a row.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Copies the keys and values of block `from` to block `to` in every layer.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<()> {
        self.kv.iter_mut().try_for_each(|kv| self.backend.copy_block(kv, from, to))
    }

    /// Computes one step: writes the keys and values of its tokens, gives the logits of its output rows. `[S, V]`
    ///
    /// # Errors
    /// If a token is out of range or the backend fails.
    pub fn forward(&mut self, step: &Step) -> Result<Vec<f32>> {
        let backend = &mut self.backend;
        if let Some(&token) = step.tokens.iter().find(|&&token| token as usize >= self.vocabulary) {
            return Err(Error::TokenOutOfRange { token, vocabulary: self.vocabulary });
        }
        let angles = self.rope.angles(backend, step)?;
        let mut x = backend.embed(&self.embedding, &step.tokens)?; // [T, D]
        for (block, kv) in self.blocks.iter().zip(&mut self.kv) {
            let h = normed(backend, block.attn_in.as_ref(), &x)?;
            let y =
                block.attention.apply(backend, h.as_ref().unwrap_or(&x), step, &self.rope, &angles, kv)?;
            let h = normed(backend, block.attn_out.as_ref(), &y)?;
            x = backend.add(x, h.as_ref().unwrap_or(&y))?;
            let h = normed(backend, block.ffn_in.as_ref(), &x)?;
            let y = block.ffn.apply(backend, h.as_ref().unwrap_or(&x))?;
            let h = normed(backend, block.ffn_out.as_ref(), &y)?;
            x = backend.add(x, h.as_ref().unwrap_or(&y))?;
        }
        if step.outputs.is_empty() {
            return Ok(Vec::new());
        }
        let last = backend.rows(&x, &step.outputs)?; // [S, D]
        let last = self.norm.apply(backend, &last)?;
        let logits = backend.matmul(&last, self.output.as_ref().unwrap_or(&self.embedding))?;
        backend.to_host(&logits)
    }
}

impl<B: Backend> Block<B> {
    fn load(weights: &Weights<B>, prefix: &str, architecture: &Architecture, sizes: &Sizes) -> Result<Self> {
        let norm = |slot: &Option<String>| match slot {
            Some(name) => {
                Norm::load(weights, &format!("{prefix}{name}"), sizes.width, sizes.norm_epsilon).map(Some)
            }
            None => Ok(None),
        };
        let slots = &architecture.norms;
        Ok(Block {
            attn_in: norm(&slots.attn_in)?,
            attention: Attention::load(weights, prefix, sizes)?,
            attn_out: norm(&slots.attn_out)?,
            ffn_in: norm(&slots.ffn_in)?,
            ffn: Ffn::load(weights, prefix, sizes.width, architecture.activation)?,
            ffn_out: norm(&slots.ffn_out)?,
        })
    }
}

/// `x` after a norm; `None` where there is no norm.
fn normed<B: Backend>(backend: &mut B, norm: Option<&Norm<B>>, x: &B::Array) -> Result<Option<B::Array>> {
    norm.map(|norm| norm.apply(backend, x)).transpose()
}
