//! An encoder: a forward pass in which every token attends to all others of its text, for
//! embeddings.
//!
//! A block adds the result of attention and normalizes the sum, then does so for the feed-forward
//! layer.
//! Nothing is cached between steps.
//! Source: Devlin et al. 2018, <https://arxiv.org/abs/1810.04805>.
//!
//! Dimension letters are as in `decoder.rs`.

use alara_text::gguf::Gguf;

use crate::architecture::{Architecture, NormKind};
use crate::backend::{AttentionShape, Backend, KvType, Queries, Section, Span, Step};
use crate::cache::{BLOCK_TOKENS, Layout, SlotId};
use crate::facts::{Facts, Sizes};
use crate::layers::{Ffn, Linear, Norm, Rope, Rotation, Weights, rope_width};
use crate::schedule::STEP_TOKENS;
use crate::{Error, Result};

/// A loaded encoder.
#[derive(Debug)]
pub struct Encoder<B: Backend> {
    gguf: Gguf,
    backend: B,
    embedding: B::Matrix,
    /// Embeddings of the text's number, first or second; here it is always the first.
    types: Option<B::Matrix>,
    /// Embeddings of the position.
    positions: Option<B::Matrix>,
    norm: LayerNorm<B>,
    blocks: Vec<Block<B>>,
    rope: Option<Rope>,
    /// Keys and values of the current layer.
    kv: B::Kv,
    /// Number of blocks of [`BLOCK_TOKENS`] tokens in it.
    kv_blocks: usize,
    kv_bytes: u64,
    vocabulary: usize,
    width: usize,
}

#[derive(Debug)]
struct Block<B: Backend> {
    attention: Attention<B>,
    attn_out: LayerNorm<B>,
    ffn: Ffn<B>,
    ffn_out: LayerNorm<B>,
}

/// Attention of every row to all rows of its text.
#[derive(Debug)]
struct Attention<B: Backend> {
    q: Linear<B>,
    k: Linear<B>,
    v: Linear<B>,
    output: Linear<B>,
    shape: AttentionShape,
}

/// A layer norm, with a bias if the file has one.
#[derive(Debug)]
struct LayerNorm<B: Backend> {
    norm: Norm<B>,
    bias: Option<B::Vector>,
}

impl<B: Backend> Encoder<B> {
    /// Loads the model in `gguf`, according to its architecture file, for texts of up to `context`
    /// tokens.
    ///
    /// # Errors
    /// If a size or tensor is missing, invalid or unsupported, or the backend runs out of memory.
    pub fn load(gguf: &Gguf, architecture: &Architecture, backend: B, context: usize) -> Result<Self> {
        let facts = Facts::new(gguf, architecture)?;
        let sizes = Sizes::of(&facts)?;
        let weights = Weights { facts: &facts, backend: &backend };
        weights.backend.begin(Section::Input);
        let table = |name: &str| match weights.has(name) {
            true => weights.matrix(name, weights.dimension(name, 1)?, sizes.width),
            false => Ok(None),
        };
        let vocabulary = weights.dimension("token_embd.weight", 1)?;
        let embedding = weights.required_matrix("token_embd.weight", vocabulary, sizes.width)?;
        let (types, positions) = (table("token_types.weight")?, table("position_embd.weight")?);
        if positions.is_some() && weights.dimension("position_embd.weight", 1)? < context {
            return Err(facts.invalid("context_length", "position_embd.weight has fewer positions"));
        }
        let norm = LayerNorm::load(&weights, "token_embd_norm", &sizes)?;
        let blocks = (0..sizes.layers)
            .map(|layer| {
                weights.backend.begin(Section::Block(layer));
                Block::load(&weights, layer, &sizes)
            })
            .collect::<Result<Vec<_>>>()?;
        let rope = match sizes.rotates.iter().any(|&rotates| rotates) {
            true => Some(Rope::load(&weights, rope_width(&facts, sizes.key_width)?, context)?),
            false => None,
        };
        facts.check_all_read(&sizes)?;
        let shape = attention_shape(&facts, &sizes)?;
        let kv_blocks = context.max(STEP_TOKENS).div_ceil(BLOCK_TOKENS);
        let layout = Layout { blocks: kv_blocks, block_tokens: BLOCK_TOKENS };
        let (key, value) = shape.cached();
        let mut encoder = Encoder {
            kv: weights.backend.kv(layout, &shape, KvType::F32)?,
            kv_blocks,
            kv_bytes: KvType::F32.bytes(kv_blocks * BLOCK_TOKENS * (key + value)) as u64,
            gguf: gguf.clone(),
            backend,
            embedding,
            types,
            positions,
            norm,
            blocks,
            rope,
            vocabulary,
            width: sizes.width,
        };
        encoder.backend.wait()?;
        gguf.check_unchanged()?;
        Ok(encoder)
    }

    /// V, the size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// D, the width of a state.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Most rows of a step.
    pub fn rows(&self) -> usize {
        self.kv_blocks * BLOCK_TOKENS
    }

    /// Bytes of keys and values.
    pub fn kv_bytes(&self) -> u64 {
        self.kv_bytes
    }

    /// How many of the first texts, with these lengths, fit into one step.
    pub fn fitting(&self, lengths: impl Iterator<Item = usize>) -> usize {
        let mut left = self.kv_blocks;
        let fits = |length: &usize| {
            let rest = left.checked_sub(length.div_ceil(BLOCK_TOKENS));
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        lengths.take_while(fits).count()
    }

    /// The states after the last block for texts that fit into one step, concatenated.
    /// `[T, D]`
    ///
    /// # Errors
    /// If a token is out of range, the backend fails, or the model's file was changed after
    /// opening.
    pub fn forward(&mut self, texts: &[&[u32]]) -> Result<Vec<f32>> {
        let states = self.compute(texts);
        // Weights that were lost meanwhile read as zeros: no result may depend on them.
        self.gguf.check_unchanged()?;
        states
    }

    fn compute(&mut self, texts: &[&[u32]]) -> Result<Vec<f32>> {
        let step = step(texts);
        let every = sees_all(&step);
        if let Some(&token) = step.tokens.iter().find(|&&token| token as usize >= self.vocabulary) {
            return Err(Error::TokenOutOfRange { token, vocabulary: self.vocabulary });
        }
        let Encoder { backend, kv, .. } = self;
        let mut x = backend.embed(&self.embedding, &step.tokens)?; // [T, D]
        if let Some(types) = &self.types {
            let of_first = backend.embed(types, &vec![0; step.tokens.len()])?;
            x = backend.add(x, &of_first)?;
        }
        if let Some(positions) = &self.positions {
            let at: Vec<u32> = step.positions().map(|position| position as u32).collect();
            let at = backend.embed(positions, &at)?;
            x = backend.add(x, &at)?;
        }
        let rotation = self.rope.as_ref().map(|rope| rope.at(backend, &step)).transpose()?;
        x = self.norm.apply(backend, &x)?;
        for block in &self.blocks {
            let y = block.attention.apply(backend, &x, (&step, &every), rotation.as_ref(), kv)?;
            x = backend.add(x, &y)?;
            x = block.attn_out.apply(backend, &x)?;
            let y = block.ffn.apply(backend, &x)?;
            x = backend.add(x, &y)?;
            x = block.ffn_out.apply(backend, &x)?;
        }
        backend.to_host(&x)
    }
}

impl<B: Backend> Block<B> {
    fn load(weights: &Weights<B>, layer: usize, sizes: &Sizes) -> Result<Self> {
        let architecture = weights.facts.architecture;
        let norm = |slot: &Option<String>| {
            let name = slot.as_deref().unwrap_or_default();
            LayerNorm::load(weights, &format!("blk.{layer}.{name}"), sizes)
        };
        Ok(Block {
            attention: Attention::load(weights, layer, sizes)?,
            attn_out: norm(&architecture.norms.attn_out)?,
            ffn: Ffn::load(weights, layer, "", sizes.width, architecture.activation)?,
            ffn_out: norm(&architecture.norms.ffn_out)?,
        })
    }
}

impl<B: Backend> Attention<B> {
    fn load(weights: &Weights<B>, layer: usize, sizes: &Sizes) -> Result<Self> {
        let shape = attention_shape(weights.facts, sizes)?;
        let (q_out, (k_out, v_out)) = (shape.heads * shape.key_width, shape.cached());
        let fused = format!("blk.{layer}.attn_qkv");
        let is_fused = weights.has(&format!("{fused}.weight"));
        // Fused rows are q, then k, then v.
        let projection = |name: &str, start: usize, out: usize| match is_fused {
            true => {
                Linear::load_rows(weights, &fused, q_out + k_out + v_out, sizes.width, start..start + out)
            }
            false => Linear::load(weights, &format!("blk.{layer}.{name}"), out, sizes.width),
        };
        Ok(Attention {
            q: projection("attn_q", 0, q_out)?,
            k: projection("attn_k", q_out, k_out)?,
            v: projection("attn_v", q_out + k_out, v_out)?,
            output: Linear::load(
                weights,
                &format!("blk.{layer}.attn_output"),
                sizes.width,
                shape.heads * shape.value_width,
            )?,
            shape,
        })
    }

    /// `x: [T, D]` -> `[T, D]`
    ///
    /// Backends attend causally, so they are called twice.
    /// The first call writes keys and values; the second treats each row as if it were at the end
    /// of its text.
    fn apply(
        &self,
        backend: &mut B,
        x: &B::Array,
        (step, every): (&Step, &Step),
        rotation: Option<&Rotation<B>>,
        kv: &mut B::Kv,
    ) -> Result<B::Array> {
        let [mut q, mut k, v] = Linear::apply_all([&self.q, &self.k, &self.v], backend, x)?;
        if let Some(rotation) = rotation {
            q = rotation.apply(backend, q, self.shape.key_width)?;
            k = rotation.apply(backend, k, self.shape.key_width)?;
        }
        let written = Queries { q: &q, k: Some(&k), v: Some(&v), sinks: None };
        backend.append_and_attend(written, step, kv, &self.shape)?;
        let queries = Queries { q: &q, k: None, v: None, sinks: None };
        let y = backend.append_and_attend(queries, every, kv, &self.shape)?;
        self.output.apply(backend, &y)
    }
}

impl<B: Backend> LayerNorm<B> {
    fn load(weights: &Weights<B>, name: &str, sizes: &Sizes) -> Result<Self> {
        let norm = Norm::load(weights, name, sizes.width, sizes.norm_epsilon)?.of_kind(NormKind::Layer);
        Ok(LayerNorm { norm, bias: weights.vector(&format!("{name}.bias"), sizes.width)? })
    }

    fn apply(&self, backend: &mut B, x: &B::Array) -> Result<B::Array> {
        let y = self.norm.apply(backend, x)?;
        match &self.bias {
            Some(bias) => backend.bias(y, bias),
            None => Ok(y),
        }
    }
}

/// The shape of attention, equal in all blocks.
fn attention_shape(facts: &Facts, sizes: &Sizes) -> Result<AttentionShape> {
    let Some(&kv_heads) = sizes.kv_heads.first().filter(|first| sizes.kv_heads.iter().all(|of| of == *first))
    else {
        return Err(facts.invalid("attention.head_count_kv", "blocks of an encoder must have the same"));
    };
    Ok(AttentionShape {
        heads: sizes.heads,
        kv_heads,
        key_width: sizes.key_width,
        value_width: sizes.value_width,
        values_in_keys: false,
        scale: sizes.query_scale,
        softcap: None,
        window: None,
        chunked: false,
    })
}

/// A step with all tokens of some texts, each text in separate blocks.
fn step(texts: &[&[u32]]) -> Step {
    let mut step = Step::default();
    let mut block = 0;
    for text in texts {
        step.tokens.extend_from_slice(text);
        let end = block + text.len().div_ceil(BLOCK_TOKENS) as u32;
        let blocks = (block..end).collect();
        block = end;
        step.spans.push(span(text.len(), 0, blocks));
    }
    step
}

/// A step with each row on its own as the last of its text, so that it attends to the whole text.
fn sees_all(step: &Step) -> Step {
    let rows = step.spans.iter().flat_map(|text| {
        (0..text.rows).map(|_| span(1, text.rows - 1, text.blocks.clone())).collect::<Vec<_>>()
    });
    Step { tokens: step.tokens.clone(), spans: rows.collect(), outputs: Vec::new() }
}

fn span(rows: usize, past: usize, blocks: Vec<u32>) -> Span {
    Span { rows, past, blocks, windowed: Vec::new(), slot: SlotId::default(), saves: Vec::new() }
}
