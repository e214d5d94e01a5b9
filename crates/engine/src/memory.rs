//! Estimates the memory of a model before it is loaded.
//!
//! Weights count as stored, since they are used from the map; the cache counts as allocated;
//! the rest is estimated.
//! Memory that hasn't been touched isn't resident, so a process is smaller at first.

use std::fmt;

use alara_text::gguf::{Gguf, TensorInfo, TensorType};
use alara_text::prompt_lookup;

use crate::architecture::Architecture;
use crate::backend::KvType;
use crate::backend::native::Native;
use crate::cache::{BLOCK_TOKENS, CacheConfig};
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::facts::{Facts, Sizes, block_of};
use crate::schedule::STEP_TOKENS;
use crate::{Error, Result};

/// Memory of a running model in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// The tensors in use.
    pub weights: u64,
    /// Keys and values.
    pub kv: u64,
    /// Recurrent state.
    pub state: u64,
    /// Activations of one step, vectors in f32, the tokenizer, the program.
    pub working: u64,
}

/// The memory estimate of a model, broken down by parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryBreakdown {
    /// The total on a CPU.
    pub whole: MemoryEstimate,
    /// Each block's share, without working memory.
    pub blocks: Vec<MemoryShare>,
    /// The output's share.
    pub output: MemoryShare,
    /// Working memory of a step on a GPU: activations, partial results of attention, logits.
    pub scratch: u64,
    /// Additional memory of attention if it is composed of candle's operations: scores, keys and
    /// values in f32.
    pub scores: u64,
}

/// The memory of a part of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryShare {
    /// Its tensors in the CPU's form.
    pub weights: u64,
    /// Its tensors in the GPU's form.
    pub on_gpu: u64,
    /// Keys and values.
    pub kv: u64,
    /// Recurrent state.
    pub state: u64,
}

/// How many copies of attention scores, `[H, T, tokens]`, candle's operations hold at once: the
/// products, the masked scores, the softmax.
const SCORES: u64 = 3;

/// Positions per row of partial results in the attention kernels: splits of 128, for up to 16 rows.
const SPLIT: u64 = 128 / 16;

/// The program's memory without a model.
const PROGRAM: u64 = 16 << 20;

/// Memory of a vocabulary entry in tokenizer and grammar, including merges.
/// About 400 bytes were measured for a tokenizer with 152 thousand entries, the rest is an
/// estimate.
const VOCABULARY_ENTRY: u64 = 600;

/// Memory that becomes resident when a single row is read: the system maps this much around an
/// address.
const ROW_NEIGHBOURHOOD: u64 = 64 << 10;

/// Default memory for snapshots of recurrent and windowed state, in bytes.
pub const SNAPSHOT_BYTES: u64 = 512 << 20;

/// Fewest and most snapshots, regardless of their size.
/// Fewer would lose an agent's static text while it works, and more are hardly ever used.
const SNAPSHOTS: (u64, u64) = (4, 64);

/// The cache for this many tokens in each of this many running sequences, with room for this many
/// in total, within two byte budgets.
/// The first budget is for keys and values, the second for snapshots.
///
/// # Errors
/// If the model's sizes are missing or invalid.
pub fn cache_config(
    gguf: &Gguf,
    architecture: &Architecture,
    (context, sequences, room): (usize, usize, usize),
    kv: KvType,
    (kv_bytes, snapshot_bytes): (Option<u64>, u64),
) -> Result<CacheConfig> {
    let window = Sizes::of(&Facts::new(gguf, architecture)?)?.window;
    let of_tokens = |tokens| CacheConfig::new(tokens, sequences, STEP_TOKENS, window).with_context(context);
    let config = of_tokens(context.saturating_mul(room));
    let nothing = CacheConfig::new(1, 1, 1, window);
    // Problems with the model are reported when it is actually loaded.
    let Ok(decoder) = Decoder::load_as(gguf, architecture, Native::with_threads(1), &nothing, kv) else {
        return Ok(config);
    };
    let ample = CacheConfig::new(1 << 30, 1, 1, window);
    let held = |snapshots: usize| {
        let (kv, state) = decoder.cache_bytes(&ample.with_snapshots(snapshots), kv);
        kv.saturating_add(state)
    };
    let each = held(2).saturating_sub(held(1));
    let fit = snapshot_bytes.checked_div(each).unwrap_or(0).clamp(SNAPSHOTS.0, SNAPSHOTS.1) as usize;
    let fit = fit.max(sequences.saturating_add(1));
    let Some(most) = kv_bytes else { return Ok(config.with_snapshots(fit)) };
    // The largest cache that fits the budget.
    let of = |blocks: usize| of_tokens(blocks * BLOCK_TOKENS).with_snapshots(fit);
    let (mut low, mut high) = (1, config.full.blocks);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match decoder.cache_bytes(&of(middle), kv).0 <= most {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    Ok(of(low))
}

impl MemoryEstimate {
    /// The estimate for the model in `gguf` with a cache for `sequences` sequences of `context`
    /// tokens.
    ///
    /// # Errors
    /// Any error of loading the model.
    pub fn of(gguf: &Gguf, context: usize, sequences: usize, kv: KvType) -> Result<Self> {
        let architecture = Architecture::of(gguf)?;
        let config =
            cache_config(gguf, &architecture, (context, sequences, sequences), kv, (None, SNAPSHOT_BYTES))?;
        Self::with_cache(gguf, &architecture, &config, kv)
    }

    /// The estimate for the model in `gguf` with a given cache.
    ///
    /// # Errors
    /// As [`MemoryEstimate::of`].
    pub fn with_cache(
        gguf: &Gguf,
        architecture: &Architecture,
        config: &CacheConfig,
        kv: KvType,
    ) -> Result<Self> {
        Ok(MemoryBreakdown::with_cache(gguf, architecture, config, kv)?.whole)
    }

    /// The total.
    pub fn total(&self) -> u64 {
        [self.kv, self.state, self.working].into_iter().fold(self.weights, u64::saturating_add)
    }

    /// Refuses a model that needs more than `available` bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn check(self, file: &str, context: usize, available: u64) -> Result<()> {
        if self.total() <= available {
            return Ok(());
        }
        let (needs, remedy) = (self.to_string(), self.remedy(available));
        Err(Error::OutOfMemory { file: file.into(), needs, context, available: shown(available), remedy })
    }

    /// A suggestion if `available` bytes are not enough.
    pub fn remedy(&self, available: u64) -> &'static str {
        // A context with an eighth of the keys and values is still useful.
        if self.total().saturating_sub(self.kv).saturating_add(self.kv / 8) <= available {
            "take a smaller context (--ctx) or keep keys and values in eight bits (--kv q8_0)"
        } else {
            "take a file of a smaller quantization, or a smaller model"
        }
    }
}

impl MemoryBreakdown {
    /// The breakdown for the model in `gguf` with a given cache.
    ///
    /// # Errors
    /// As [`MemoryEstimate::of`].
    pub fn with_cache(
        gguf: &Gguf,
        architecture: &Architecture,
        config: &CacheConfig,
        kv: KvType,
    ) -> Result<Self> {
        if architecture.encoder {
            return Self::of_encoder(gguf, architecture, config.context);
        }
        let facts = Facts::new(gguf, architecture)?;
        let sizes = Sizes::of(&facts)?;
        // Weights stay in the map, so this costs almost nothing but detects all errors in them.
        let nothing = CacheConfig::new(1, 1, 1, sizes.window);
        let decoder = Decoder::load_as(gguf, architecture, Native::with_threads(1), &nothing, kv)?;
        let tokens = (config.full.blocks as u64).saturating_mul(config.full.block_tokens as u64);
        let rows = tokens.min((STEP_TOKENS + prompt_lookup::MAX_DRAFT_TOKENS) as u64);
        let tied = facts.tensor("output.weight").is_none();
        let table = facts.tensor("token_embd.weight").map(|info| info.name.as_str());
        let is_table = |info: &TensorInfo| Some(info.name.as_str()) == table;
        let by_rows = |info: &TensorInfo| info.bytes.min(rows * ROW_NEIGHBOURHOOD);
        let per_layer = |info: &TensorInfo| info.name == "per_layer_token_embd.weight";
        let only_by_rows = |info: &TensorInfo| is_table(info) && !tied || per_layer(info);

        let used = || gguf.tensors().filter(|info| !facts.ignores(&info.name, &sizes));
        let weights = used().map(|info| if only_by_rows(info) { by_rows(info) } else { info.bytes });
        let caches = decoder.cache_bytes_by_layer(config, kv);
        let mut blocks: Vec<MemoryShare> =
            caches.iter().map(|&(kv, state)| MemoryShare { kv, state, ..MemoryShare::default() }).collect();
        let mut output = MemoryShare::default();
        for info in used() {
            let share = match block_of(&info.name) {
                Some(block) => &mut blocks[block],
                None if only_by_rows(info) => continue,
                // A table that is also the output is still read by rows in place.
                None if is_table(info) => {
                    output.weights += info.bytes - by_rows(info);
                    output.on_gpu += on_gpu(info);
                    continue;
                }
                None => &mut output,
            };
            share.weights = share.weights.saturating_add(info.bytes);
            share.on_gpu = share.on_gpu.saturating_add(on_gpu(info));
        }

        let vectors = used().filter(|info| is_vector(info)).map(|info| 4 * info.values());
        let vocabulary = decoder.vocabulary() as u64;
        let activations = rows * 4 * activations(&facts, used(), &sizes)?;
        let fixed = PROGRAM + vocabulary * VOCABULARY_ENTRY + vectors.sum::<u64>() + activations;
        // Logits, in the step and in the sampler's form.
        let logits = (config.sequences as u64).saturating_mul(3).saturating_mul(8 * vocabulary);
        let logits = logits.saturating_add(prompt_lookup::MAX_DRAFT_TOKENS as u64 * 8 * vocabulary);
        let sum = |of: fn(&(u64, u64)) -> u64| caches.iter().map(of).fold(0, u64::saturating_add);
        // For one sequence, which may have all tokens: keys and values in f32, and the scores.
        let each = || (0..sizes.layers).map(|layer| (sizes.kv_heads[layer], sizes.widths_of(layer)));
        let widths = each().map(|(heads, (key, value))| heads * (key + value)).max().unwrap_or(0) as u64;
        let widest = each().map(|(_, (key, value))| key.max(value)).max().unwrap_or(0) as u64;
        let scores = (SCORES * rows * sizes.heads as u64).saturating_add(2 * widths).saturating_mul(4);
        let partial = 4 * sizes.heads as u64 * (widest + 2);
        let partials = partial.saturating_mul(tokens.div_ceil(SPLIT));
        let outputs = (config.sequences as u64)
            .saturating_add(prompt_lookup::MAX_DRAFT_TOKENS as u64)
            .saturating_mul(4 * vocabulary);
        Ok(MemoryBreakdown {
            whole: MemoryEstimate {
                weights: weights.fold(0, u64::saturating_add),
                kv: sum(|bytes| bytes.0),
                state: sum(|bytes| bytes.1),
                working: fixed.saturating_add(logits),
            },
            blocks,
            output,
            scratch: activations.saturating_add(partials).saturating_add(outputs),
            scores: scores.saturating_mul(tokens),
        })
    }
}

impl MemoryBreakdown {
    /// The breakdown for an encoder for texts of `context` tokens, which doesn't use a GPU.
    fn of_encoder(gguf: &Gguf, architecture: &Architecture, context: usize) -> Result<Self> {
        let facts = Facts::new(gguf, architecture)?;
        let sizes = Sizes::of(&facts)?;
        let encoder = Encoder::load(gguf, architecture, Native::with_threads(1), context)?;
        let vectors = gguf.tensors().filter(|info| is_vector(info)).map(|info| 4 * info.values());
        let activations = encoder.rows() as u64 * 4 * activations(&facts, gguf.tensors(), &sizes)?;
        let vocabulary = encoder.vocabulary() as u64;
        let whole = MemoryEstimate {
            weights: gguf.tensors().map(|info| info.bytes).fold(0, u64::saturating_add),
            kv: encoder.kv_bytes(),
            state: 0,
            working: PROGRAM + vocabulary * VOCABULARY_ENTRY + vectors.sum::<u64>() + activations,
        };
        Ok(MemoryBreakdown { whole, ..MemoryBreakdown::default() })
    }
}

/// Bytes of a tensor on a GPU: floats in f32, other types as stored.
fn on_gpu(info: &TensorInfo) -> u64 {
    let floats = matches!(info.kind, TensorType::F32 | TensorType::F16 | TensorType::BF16);
    if floats || is_vector(info) { info.values().saturating_mul(4) } else { info.bytes }
}

impl fmt::Display for MemoryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} weights, {} KV cache", shown(self.total()), shown(self.weights), shown(self.kv))?;
        if self.state > 0 {
            write!(f, ", {} recurrent state", shown(self.state))?;
        }
        write!(f, ", {} for computing)", shown(self.working))
    }
}

/// Formats a number of bytes for messages.
pub(crate) fn shown(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib if mib < 1024.0 => format!("{mib:.1} MiB"),
        mib => format!("{:.1} GiB", mib / 1024.0),
    }
}

/// Whether a tensor is converted to numbers outside of the map.
fn is_vector(info: &TensorInfo) -> bool {
    let name = &info.name;
    let table = [".ssm_conv1d.weight", ".shortconv.conv.weight", ".ssm_norm.weight", ".ssm_a", ".ssm_d"];
    info.shape.len() < 2 || name.ends_with(".bias") || table.iter().any(|table| name.ends_with(table))
}

/// Number of live activations per row:
/// the results of a block's different matrices, the residual stream before and after its norm, and
/// once more the widest.
/// Buffers are reused for equal sizes, and are at most a quarter too large.
fn activations<'a>(
    facts: &Facts,
    tensors: impl Iterator<Item = &'a TensorInfo>,
    sizes: &Sizes,
) -> Result<u64> {
    let experts = facts.maybe("expert_used_count")?.unwrap_or(1) as u64;
    let mut kinds: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for info in tensors.filter(|info| info.shape.len() > 1 && !is_vector(info)) {
        let Some((_, kind)) = info.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
            continue;
        };
        let times = match info.shape.get(2) {
            None => 1,
            Some(_) if kind.contains("_exps") => experts,
            Some(&heads) => heads,
        };
        let given = kinds.entry(kind).or_default();
        *given = info.shape[1].saturating_mul(times).max(*given);
    }
    let widest = kinds.values().copied().max().unwrap_or(0);
    Ok(kinds.values().sum::<u64>() + 2 * sizes.width as u64 + widest)
}

#[cfg(test)]
mod tests;
