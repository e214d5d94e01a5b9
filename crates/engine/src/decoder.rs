//! The forward pass of all decoder models.
//!
//! Dimension letters, here and everywhere: T tokens in the step, S sequences, L layers, V
//! vocabulary.
//! D width, H query heads, K key and value heads, E head width, F feed-forward width.
//!
//! Sequences share a step, and every row has its own position: one sequence alone takes the same
//! path.
//! Each step checks afterwards that the mapped file has not changed, and fails if it has: no token
//! comes from lost weights.

use std::time::Duration;

use alara_text::gguf::Gguf;

use crate::architecture::Architecture;
use crate::backend::{Backend, HostNumbers, KvType, Section, Step, TopK, try_map};
use crate::cache::{BlockId, CacheConfig, SlotId};
use crate::facts::{Facts, Sizes};
use crate::layers::{
    CacheSlice, Experts, Ffn, LayerCache, Norm, PerLayer, PerLayerInput, PerLayerTable, Rope, Rotation,
    TokenMixer, Weights, normed, rope_width, windowed_rope_width,
};
use crate::{Error, Result};

/// A loaded model and its cache.
#[derive(Debug)]
pub struct Decoder<B: Backend> {
    /// The file that the weights come from.
    gguf: Gguf,
    backend: B,
    embedding: B::Matrix,
    embedding_scale: f32,
    /// Per-layer embeddings.
    per_layer: Option<PerLayerTable<B>>,
    blocks: Vec<Block<B>>,
    norm: Norm<B>,
    output: B::Matrix,
    logit_scale: f32,
    logit_cap: Option<f32>,
    rope: Rope,
    /// For windowed layers, if they differ.
    windowed_rope: Option<Rope>,
    vocabulary: usize,
    width: usize,
    kv: KvType,
}

#[derive(Debug)]
struct Block<B: Backend> {
    attn_in: Option<Norm<B>>,
    token_mixer: TokenMixer<B>,
    attn_out: Option<Norm<B>>,
    ffn_in: Option<Norm<B>>,
    /// `None` if the block only has a token mixer.
    ffn: Option<FeedForward<B>>,
    ffn_out: Option<Norm<B>>,
    /// Whether the token mixer and the feed-forward layer read the same input.
    parallel: bool,
    /// Multiplies what each adds to the residual stream.
    residual_scale: f32,
    /// Adds the block's own embeddings.
    per_layer: Option<PerLayer<B>>,
    /// Multiplies the residual stream at the end.
    output_scale: Option<f32>,
}

/// The results of a block's token mixer: the residual stream, its own contribution, if separate,
/// and its input, for a parallel feed-forward layer.
/// `[T, D]` each
#[derive(Debug)]
struct MixerOutput<A> {
    x: A,
    y: Option<A>,
    input: Option<A>,
}

/// The feed-forward layer; the tensors present determine its kind.
#[derive(Debug)]
enum FeedForward<B: Backend> {
    Dense(Ffn<B>),
    Experts(Experts<B>),
}

/// Observes the residual stream after each block: number of the block, and `[T, D]`.
pub type Observer<'a> = &'a mut dyn FnMut(usize, Vec<f32>);

impl<B: Backend> Decoder<B> {
    /// As [`Decoder::load_as`], with the built-in architecture file.
    ///
    /// # Errors
    /// As [`Decoder::load_as`], or if the architecture is unknown.
    #[cfg(test)]
    pub fn load(gguf: &Gguf, backend: B, config: &CacheConfig, kv: KvType) -> Result<Self> {
        Self::load_as(gguf, &Architecture::of(gguf)?, backend, config, kv)
    }

    /// Loads the model in `gguf`, according to its architecture file, and allocates the caches of
    /// sequences.
    ///
    /// # Errors
    /// If a size or tensor is missing, invalid or unsupported, or the backend runs out of memory.
    pub fn load_as(
        gguf: &Gguf,
        architecture: &Architecture,
        backend: B,
        config: &CacheConfig,
        kv: KvType,
    ) -> Result<Self> {
        let facts = Facts::new(gguf, architecture)?;
        if architecture.encoder {
            return Err(Error::Encoder { model: gguf.name().into() });
        }
        let sizes = Sizes::of(&facts)?;
        let weights = Weights { facts: &facts, backend: &backend };
        let vocabulary = weights.dimension("token_embd.weight", 1)?;
        weights.backend.begin(Section::Input);
        let embedding = weights.required_matrix("token_embd.weight", vocabulary, sizes.width)?;
        let per_layer = PerLayerTable::load(&weights, vocabulary, &sizes)?;
        let blocks = (0..sizes.layers)
            .map(|layer| {
                weights.backend.begin(Section::Block(layer));
                Block::load(&weights, layer, &sizes, config, kv)
            })
            .collect::<Result<Vec<_>>>()?;
        weights.backend.begin(Section::Output);
        let norm = Norm::load(&weights, "output_norm", sizes.width, sizes.norm_epsilon)?;
        let norm = norm.of_kind(architecture.norm);
        // A table that serves as both is loaded twice: the two may be on different devices, and on
        // a CPU they share their bytes.
        let output = match weights.matrix("output.weight", vocabulary, sizes.width)? {
            Some(output) => output,
            None => weights.required_matrix("token_embd.weight", vocabulary, sizes.width)?,
        };
        let rotated = rope_width(&facts, sizes.key_width)?;
        let rope = Rope::load(&weights, rotated, config.context)?;
        let windowed_rope = match sizes.window {
            Some(_) => {
                let rotated = windowed_rope_width(&facts, &sizes)?;
                Some(Rope::load_windowed(&weights, rotated, config.context)?)
            }
            None => None,
        };
        let windowed_rope = windowed_rope.filter(|windowed| *windowed != rope);
        facts.check_all_read(&sizes)?;
        let mut decoder = Decoder {
            embedding_scale: sizes.embedding_scale,
            logit_scale: sizes.logit_scale,
            logit_cap: sizes.logit_cap,
            gguf: gguf.clone(),
            backend,
            embedding,
            per_layer,
            blocks,
            norm,
            output,
            rope,
            windowed_rope,
            vocabulary,
            width: sizes.width,
            kv,
        };
        // Steps may run on another thread, for which all data must be ready.
        decoder.backend.wait()?;
        gguf.check_unchanged()?;
        Ok(decoder)
    }

    /// Bytes of the layers' caches for `config`: keys and values, and recurrent state.
    pub fn cache_bytes(&self, config: &CacheConfig, kv: KvType) -> (u64, u64) {
        self.cache_bytes_by_layer(config, kv).into_iter().fold(
            (0, 0),
            |(rows, state): (u64, u64), (of_rows, of_state)| {
                (rows.saturating_add(of_rows), state.saturating_add(of_state))
            },
        )
    }

    /// Bytes of each block's caches for `config`: keys and values, and recurrent state.
    pub fn cache_bytes_by_layer(&self, config: &CacheConfig, kv: KvType) -> Vec<(u64, u64)> {
        let token_mixers = self.blocks.iter().map(|block| &block.token_mixer);
        token_mixers.map(|token_mixer| token_mixer.cache_bytes(config, kv)).collect()
    }

    /// Whether a row's result never depends on the other rows of its step.
    pub fn is_row_invariant(&self) -> bool {
        self.backend.is_row_invariant()
    }

    /// V, the number of logits in a row.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// D, the width of a state.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Whether a layer has recurrent state.
    pub fn recurrent(&self) -> bool {
        self.blocks.iter().any(|block| block.token_mixer.recurrent())
    }

    /// Copies block `from` to block `to`, either in every windowed layer or in every other one.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn copy_block(&mut self, from: BlockId, to: BlockId, windowed: bool) -> Result<()> {
        let token_mixers = self.blocks.iter_mut().map(|block| &mut block.token_mixer);
        let mut group = token_mixers.filter(|token_mixer| token_mixer.windowed() == windowed);
        group.try_for_each(|token_mixer| token_mixer.copy_block(&mut self.backend, from, to))
    }

    /// Copies the recurrent state in slot `from` to slot `to`, in every layer that has one.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn copy_state(&mut self, from: SlotId, to: SlotId) -> Result<()> {
        self.blocks.iter_mut().try_for_each(|block| block.token_mixer.copy_state(&mut self.backend, from, to))
    }

    /// Time that steps since the last call spent on copying recurrent state for snapshots.
    pub fn snapshot_time(&mut self) -> Duration {
        self.backend.snapshot_time()
    }

    /// The caches of a sequence, each with its block number.
    pub fn caches(&self) -> Vec<(usize, LayerCache)> {
        let blocks = self.blocks.iter().enumerate();
        blocks
            .flat_map(|(layer, block)| block.token_mixer.caches(self.kv).map(move |cache| (layer, cache)))
            .collect()
    }

    /// Appends the contents of block number `layer`'s cache at `slice` to `out`.
    ///
    /// # Errors
    /// If the backend doesn't support it.
    pub fn save(&self, layer: usize, slice: CacheSlice, out: &mut Vec<u8>) -> Result<()> {
        self.blocks[layer].token_mixer.save(&self.backend, slice, out)
    }

    /// Restores bytes saved by [`Decoder::save`] to `slice`.
    ///
    /// # Errors
    /// If the backend doesn't support it.
    pub fn load_back(&mut self, layer: usize, slice: CacheSlice, bytes: &[u8]) -> Result<()> {
        self.blocks[layer].token_mixer.load_back(&mut self.backend, slice, bytes)
    }

    /// Computes one step: extends the cache by its tokens, and returns the logits of its output
    /// rows, for [`Decoder::read`].
    /// `None` if there are no such rows.
    /// All work is done when it returns.
    ///
    /// # Errors
    /// If a token is out of range, the backend fails, or the model's file was changed after
    /// opening.
    pub fn forward(&mut self, step: &Step, observer: Option<Observer>) -> Result<Option<B::Array>> {
        self.compute(step, observer).map_err(|error| match error {
            Error::DeviceMemory { operation, .. } => {
                let longest = step.spans.iter().map(|span| span.past + span.rows).max().unwrap_or(0);
                Error::DeviceMemory { operation, step: Some((step.tokens.len(), longest)) }
            }
            error => error,
        })
    }

    /// As [`Decoder::forward`], but returns the output rows' states after the last norm, before
    /// they become logits.
    /// `[rows, D]`
    ///
    /// # Errors
    /// As [`Decoder::forward`].
    pub fn states(&mut self, step: &Step) -> Result<Vec<f32>> {
        let states = self.normed(step, None);
        self.gguf.check_unchanged()?;
        match states? {
            Some(states) => self.backend.to_host(&states),
            None => Ok(Vec::new()),
        }
    }

    /// Copies the result of [`Decoder::forward`] to the host.
    /// `[rows, V]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn read(&mut self, logits: Option<&B::Array>) -> Result<Vec<f32>> {
        let Some(logits) = logits else { return Ok(Vec::new()) };
        let mut logits = self.backend.to_host(logits)?;
        self.cap(&mut logits);
        Ok(logits)
    }

    /// The result of [`Decoder::forward`], modifiable on the host.
    /// Call it at most once per result, since a logit cap is applied in place.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn read_mut<'a>(&mut self, logits: &'a mut B::Array) -> Result<HostNumbers<'a>> {
        let mut logits = self.backend.numbers_mut(logits)?;
        self.cap(&mut logits);
        Ok(logits)
    }

    fn cap(&self, logits: &mut [f32]) {
        if let Some(cap) = self.logit_cap {
            logits.iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
        }
    }

    /// [`Backend::top_k`] of the result of [`Decoder::forward`].
    /// Also `None` if logits are capped, since a cap can make different logits equal.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn top_k(&mut self, logits: &B::Array, row: usize, k: usize, mask: &[u32]) -> Result<TopK> {
        match self.logit_cap {
            None => self.backend.top_k(logits, row, k, mask),
            Some(_) => Ok(None),
        }
    }

    fn compute(&mut self, step: &Step, observer: Option<Observer>) -> Result<Option<B::Array>> {
        let logits = self.logits(step, observer);
        // Weights that were lost meanwhile read as zeros: no token may result from them.
        self.gguf.check_unchanged()?;
        let logits = logits?;
        // Attribute the time and the errors of the computation to this step.
        self.backend.wait()?;
        Ok(logits)
    }

    fn logits(&mut self, step: &Step, observer: Option<Observer>) -> Result<Option<B::Array>> {
        let Some(mut h) = self.normed(step, observer)? else { return Ok(None) };
        if self.logit_scale != 1.0 {
            h = self.backend.scale(h, &[self.logit_scale])?;
        }
        self.backend.matmul(&h, &self.output).map(Some)
    }

    /// Computes the output rows after the last norm.
    /// `[S, D]`
    fn normed(&mut self, step: &Step, mut observer: Option<Observer>) -> Result<Option<B::Array>> {
        let backend = &mut self.backend;
        if let Some(&token) = step.tokens.iter().find(|&&token| token as usize >= self.vocabulary) {
            return Err(Error::TokenOutOfRange { token, vocabulary: self.vocabulary });
        }
        let rotation = self.rope.at(backend, step)?;
        let windowed = self.windowed_rope.as_ref().map(|rope| rope.at(backend, step)).transpose()?;
        let embed =
            |backend: &mut B| match (backend.embed(&self.embedding, &step.tokens)?, self.embedding_scale) {
                (x, 1.0) => Ok(x),
                (x, scale) => backend.scale(x, &[scale]),
            };
        let mut x = embed(backend)?; // [T, D]
        let mut own = match &self.per_layer {
            Some(table) => Some((table, PerLayerInput::new(step, embed(backend)?))),
            None => None,
        };
        let layers = self.blocks.len();
        // Whether `x` has all rows of the step, rather than only its outputs.
        let mut whole = true;
        // The latest block's result is added together with the next norm, in one pass over both.
        let mut more = None;
        for layer in 0..layers {
            let (earlier, rest) = self.blocks.split_at_mut(layer);
            let block = &mut rest[0];
            let shared_kv = block.token_mixer.source().and_then(|source| earlier[source].token_mixer.kv());
            let rotation = windowed.as_ref().filter(|_| block.token_mixer.windowed()).unwrap_or(&rotation);
            let mut mixed = block.mix(backend, x, more.as_ref(), step, rotation, shared_kv)?;
            // After the last mixer rows are independent, so rows without wanted logits are dropped;
            // an observer needs all rows.
            if layer + 1 == layers && observer.is_none() {
                if step.outputs.is_empty() {
                    return Ok(None);
                }
                let MixerOutput { x, y, input } = mixed;
                let [y, input] =
                    try_map([y, input], |part| part.map(|part| outputs(backend, part, step)).transpose())?;
                mixed = MixerOutput { x: outputs(backend, x, step)?, y, input }; // [S, D]
                if let Some((_, own)) = &mut own {
                    *own = own.rows(backend, &step.outputs)?;
                }
                whole = false;
            }
            let (sum, y) = block.feed_forward(backend, mixed)?;
            (x, more) = block.finish(backend, sum, y, own.as_ref())?;
            if let Some(observer) = &mut observer {
                if let Some(y) = more.take() {
                    x = backend.add(x, &y)?;
                }
                observer(layer, backend.to_host(&x)?);
            }
        }
        Ok(Some(match &more {
            Some(more) => self.norm.after_add(backend, x, more)?.1,
            None if step.outputs.is_empty() => return Ok(None),
            None => {
                let x = if whole { outputs(backend, x, step)? } else { x };
                self.norm.apply(backend, &x)?
            }
        }))
    }
}

/// Selects the rows of `x: [T, D]` whose logits are wanted.
/// `[S, D]`
fn outputs<B: Backend>(backend: &mut B, x: B::Array, step: &Step) -> Result<B::Array> {
    if step.outputs.len() == step.tokens.len() { Ok(x) } else { backend.rows(&x, &step.outputs) }
}

impl<B: Backend> Block<B> {
    fn load(
        weights: &Weights<B>,
        layer: usize,
        sizes: &Sizes,
        config: &CacheConfig,
        kv: KvType,
    ) -> Result<Self> {
        let architecture = weights.facts.architecture;
        let norm = |slot: &Option<String>| match slot {
            Some(name) => {
                let name = format!("blk.{layer}.{name}");
                let norm = Norm::load(weights, &name, sizes.width, sizes.norm_epsilon);
                norm.map(|norm| Some(norm.of_kind(architecture.norm)))
            }
            None => Ok(None),
        };
        let slots = &architecture.norms;
        let token_mixer = TokenMixer::load(weights, layer, sizes, config, kv)?;
        let ffn = if weights.has(&format!("blk.{layer}.ffn_gate_inp.weight")) {
            Some(FeedForward::Experts(Experts::load(weights, layer, sizes)?))
        } else if weights.facts.lacks("feed_forward_length", layer)? {
            None
        } else {
            let activation = architecture.activation;
            Some(FeedForward::Dense(Ffn::load(weights, layer, "", sizes.width, activation)?))
        };
        // A block of one layer has a single norm before it.
        let (attn_in, ffn_in) = match (token_mixer.is_empty(), &ffn) {
            (false, Some(_)) => (norm(&slots.attn_in)?, norm(&slots.ffn_in)?),
            (false, None) => (norm(&slots.attn_in)?, None),
            (true, Some(_)) => (None, norm(&slots.attn_in)?),
            (true, None) => {
                let reason = format!("block {layer} has no layer at all");
                return Err(weights.facts.invalid("feed_forward_length", &reason));
            }
        };
        Ok(Block {
            attn_in,
            token_mixer,
            attn_out: norm(&slots.attn_out)?,
            ffn_in,
            ffn,
            ffn_out: norm(&slots.ffn_out)?,
            parallel: architecture.parallel,
            residual_scale: sizes.residual_scale,
            per_layer: PerLayer::load(weights, layer, sizes)?,
            output_scale: match weights.vector(&format!("blk.{layer}.layer_output_scale.weight"), 1)? {
                Some(scale) => weights.backend.values(&scale)?.first().copied(),
                None => None,
            },
        })
    }

    /// Applies the token mixer to the sum of `x` and `more: [T, D]`.
    fn mix(
        &mut self,
        backend: &mut B,
        x: B::Array,
        more: Option<&B::Array>,
        step: &Step,
        rotation: &Rotation<B>,
        shared_kv: Option<&mut B::Kv>,
    ) -> Result<MixerOutput<B::Array>> {
        let (x, h) = summed(backend, self.attn_in.as_ref(), x, more)?;
        let y = self.token_mixer.apply(backend, h.as_ref().unwrap_or(&x), step, rotation, shared_kv)?;
        let y = y.map(|y| self.added(backend, self.attn_out.as_ref(), y)).transpose()?;
        Ok(MixerOutput { x, y, input: h.filter(|_| self.parallel) })
    }

    /// Applies the feed-forward layer to all rows or some: returns two arrays `[T, D]` whose sum is
    /// the residual stream.
    fn feed_forward(
        &self,
        backend: &mut B,
        mixed: MixerOutput<B::Array>,
    ) -> Result<(B::Array, Option<B::Array>)> {
        let MixerOutput { x, y: more, input } = mixed;
        let Some(ffn) = &self.ffn else { return Ok((x, more)) };
        let (x, h) = match input {
            Some(input) => (x, Some(input)),
            None => summed(backend, self.ffn_in.as_ref(), x, more.as_ref())?,
        };
        let y = match ffn {
            FeedForward::Dense(ffn) => ffn.apply(backend, h.as_ref().unwrap_or(&x))?,
            FeedForward::Experts(experts) => experts.apply(backend, &x, h.as_ref().unwrap_or(&x))?,
        };
        let y = self.added(backend, self.ffn_out.as_ref(), y)?;
        let y = match more.filter(|_| self.parallel) {
            Some(more) => backend.add(y, &more)?,
            None => y,
        };
        Ok((x, Some(y)))
    }

    /// The final operations of a block: `x`, `more: [T, D]`, whose sum is the residual stream ->
    /// two such arrays.
    fn finish(
        &self,
        backend: &mut B,
        mut x: B::Array,
        mut more: Option<B::Array>,
        own: Option<&(&PerLayerTable<B>, PerLayerInput<B>)>,
    ) -> Result<(B::Array, Option<B::Array>)> {
        if self.per_layer.is_none() && self.output_scale.is_none() {
            return Ok((x, more));
        }
        if let Some(more) = more.take() {
            x = backend.add(x, &more)?;
        }
        if let (Some(layer), Some((table, input))) = (&self.per_layer, own) {
            let y = layer.apply(backend, &x, table, input)?;
            x = backend.add(x, &y)?;
        }
        match self.output_scale {
            Some(scale) => Ok((backend.scale(x, &[scale])?, None)),
            None => Ok((x, None)),
        }
    }

    /// The contribution to the residual stream for a layer's result `y`.
    fn added(&self, backend: &mut B, norm: Option<&Norm<B>>, y: B::Array) -> Result<B::Array> {
        let y = normed(backend, norm, &y)?.unwrap_or(y);
        if self.residual_scale == 1.0 { Ok(y) } else { backend.scale(y, &[self.residual_scale]) }
    }
}

/// `x + more`, and its norm; `None` without a norm.
fn summed<B: Backend>(
    backend: &mut B,
    norm: Option<&Norm<B>>,
    x: B::Array,
    more: Option<&B::Array>,
) -> Result<(B::Array, Option<B::Array>)> {
    match (norm, more) {
        (Some(norm), Some(more)) => norm.after_add(backend, x, more).map(|(x, h)| (x, Some(h))),
        (norm, None) => normed(backend, norm, &x).map(|h| (x, h)),
        (None, Some(more)) => backend.add(x, more).map(|x| (x, None)),
    }
}

#[cfg(test)]
impl Decoder<crate::backend::native::Native> {
    /// Bytes allocated by the backend: keys and values, and recurrent state.
    pub fn allocated(&self) -> (u64, u64) {
        self.blocks
            .iter()
            .map(|block| block.token_mixer.allocated())
            .fold((0, 0), |(rows, state), (more, of_state)| (rows + more, state + of_state))
    }
}
