//! How much memory a model takes, told before it is loaded.
//!
//! Weights count as stored, for they are used where the file is mapped; what is kept of sequences
//! counts as it is made; the rest is estimated.
//! What has not been used yet takes no memory, so a process is smaller at first.

use std::fmt;

use crate::architecture::Architecture;
use crate::backend::KvType;
use crate::backend::native::Native;
use crate::cache::{BLOCK_TOKENS, Room};
use crate::decoder::Decoder;
use crate::draft;
use crate::facts::{Facts, Sizes, block_of};
use crate::gguf::{Gguf, TensorInfo, TensorType};
use crate::schedule::STEP_TOKENS;
use crate::{Error, Result};

/// Bytes that a model takes while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The tensors that are used.
    pub weights: u64,
    /// Keys and values.
    pub kv: u64,
    /// Recurrent state.
    pub state: u64,
    /// Activations of one step, vectors in f32, the tokenizer, the program.
    pub working: u64,
}

/// What a model takes, by its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// All of it on a CPU.
    pub whole: Footprint,
    /// What of that each block takes; without the room for computing.
    pub blocks: Vec<Share>,
    /// What of it the output takes.
    pub output: Share,
    /// A step on a GPU: activations, partial results of attention, logits.
    pub scratch: u64,
    /// What attention holds beside that where it is composed of candle's operations: scores, keys
    /// and values in f32.
    pub scores: u64,
}

/// What a part of a model takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Its tensors as they are used on a CPU.
    pub weights: u64,
    /// Its tensors as they are held on a GPU.
    pub on_gpu: u64,
    /// Keys and values.
    pub kv: u64,
    /// Recurrent state.
    pub state: u64,
}

/// How often candle's operations hold the scores of attention at a time, `[H, T, tokens]`: as
/// products, with what may not be seen, as shares.
const SCORES: u64 = 3;

/// Positions for each row of partial results that attention's own kernels hold: splits of 128, for
/// up to 16 rows.
const SPLIT: u64 = 128 / 16;

/// The program without a model.
const PROGRAM: u64 = 16 << 20;

/// What an entry of the vocabulary takes in tokenizer and grammar, merges included: some 400 bytes
/// were seen of a tokenizer with 152 thousand, the rest is an estimate.
const VOCABULARY_ENTRY: u64 = 600;

/// What a row that is read alone brings into memory: the system maps as much around an address.
const ROW_NEIGHBOURHOOD: u64 = 64 << 10;

/// Bytes that snapshots of recurrent and windowed state take unless the caller says otherwise.
pub const SNAPSHOT_BYTES: u64 = 512 << 20;

/// How many snapshots there is room for, whatever they take: fewer would lose the static text of an
/// agent as it works, and more than so many are hardly ever gone on from.
const SNAPSHOTS: (u64, u64) = (4, 64);

/// Room for so many tokens of each of so many sequences, as far as keys and values take no more
/// than the first budget of bytes, and for as many snapshots as the second one holds.
///
/// # Errors
/// If the model's sizes are missing or wrong.
pub fn room(
    gguf: &Gguf,
    architecture: &Architecture,
    (context, sequences): (usize, usize),
    kv: KvType,
    (kv_bytes, snapshot_bytes): (Option<u64>, u64),
) -> Result<Room> {
    let window = Sizes::of(&Facts::new(gguf, architecture)?)?.window;
    let of_tokens = |tokens| Room::new(tokens, sequences, STEP_TOKENS, window).of_sequences(context);
    let room = of_tokens(context.saturating_mul(sequences));
    let nothing = Room::new(1, 1, 1, window);
    // What is wrong with the model is told when it is loaded in earnest.
    let Ok(decoder) = Decoder::load_as(gguf, architecture, Native::with_threads(1), &nothing, kv) else {
        return Ok(room);
    };
    let ample = Room::new(1 << 30, 1, 1, window);
    let held = |snapshots: usize| {
        let (kv, state) = decoder.keeps(&ample.keeping(snapshots), kv);
        kv.saturating_add(state)
    };
    let each = held(2).saturating_sub(held(1));
    let fit = snapshot_bytes.checked_div(each).unwrap_or(0).clamp(SNAPSHOTS.0, SNAPSHOTS.1) as usize;
    let fit = fit.max(sequences.saturating_add(1));
    let Some(most) = kv_bytes else { return Ok(room.keeping(fit)) };
    // The largest room that keeps within it.
    let of = |blocks: usize| of_tokens(blocks * BLOCK_TOKENS).keeping(fit);
    let (mut low, mut high) = (1, room.full.blocks);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match decoder.keeps(&of(middle), kv).0 <= most {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    Ok(of(low))
}

impl Footprint {
    /// Of the model in `gguf` with room for `sequences` sequences of `context` tokens.
    ///
    /// # Errors
    /// As [`Decoder::load_as`]: whatever stands against loading the model.
    pub fn of(gguf: &Gguf, context: usize, sequences: usize, kv: KvType) -> Result<Self> {
        let architecture = Architecture::of(gguf)?;
        let room = room(gguf, &architecture, (context, sequences), kv, (None, SNAPSHOT_BYTES))?;
        Self::in_room(gguf, &architecture, &room, kv)
    }

    /// Of the model in `gguf` in a given room.
    ///
    /// # Errors
    /// As [`Footprint::of`].
    pub fn in_room(gguf: &Gguf, architecture: &Architecture, room: &Room, kv: KvType) -> Result<Self> {
        Ok(Parts::in_room(gguf, architecture, room, kv)?.whole)
    }

    /// All of it.
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

    /// What to do where `available` bytes are not enough.
    pub fn remedy(&self, available: u64) -> &'static str {
        // An eighth of the keys and values is a context that is worth having.
        if self.total().saturating_sub(self.kv).saturating_add(self.kv / 8) <= available {
            "take a smaller context (--ctx) or keep keys and values in eight bits (--kv q8_0)"
        } else {
            "take a file of a smaller quantization, or a smaller model"
        }
    }
}

impl Parts {
    /// Of the model in `gguf` in a given room.
    ///
    /// # Errors
    /// As [`Footprint::of`].
    pub fn in_room(gguf: &Gguf, architecture: &Architecture, room: &Room, kv: KvType) -> Result<Self> {
        let facts = Facts::new(gguf, architecture)?;
        let sizes = Sizes::of(&facts)?;
        // Weights stay in the map, so this costs next to nothing but tells all that is wrong with
        // them.
        let nothing = Room::new(1, 1, 1, sizes.window);
        let decoder = Decoder::load_as(gguf, architecture, Native::with_threads(1), &nothing, kv)?;
        let tokens = (room.full.blocks as u64).saturating_mul(room.full.block_tokens as u64);
        let rows = tokens.min((STEP_TOKENS + draft::MOST) as u64);
        let tied = facts.tensor("output.weight").is_none();
        let table = facts.tensor("token_embd.weight").map(|info| info.name.as_str());
        let is_table = |info: &TensorInfo| Some(info.name.as_str()) == table;
        let by_rows = |info: &TensorInfo| info.bytes.min(rows * ROW_NEIGHBOURHOOD);
        let per_layer = |info: &TensorInfo| info.name == "per_layer_token_embd.weight";
        let only_by_rows = |info: &TensorInfo| is_table(info) && !tied || per_layer(info);

        let used = || gguf.tensors().filter(|info| !facts.ignores(&info.name, &sizes));
        let weights = used().map(|info| if only_by_rows(info) { by_rows(info) } else { info.bytes });
        let kept = decoder.each_keeps(room, kv);
        let mut blocks: Vec<Share> =
            kept.iter().map(|&(kv, state)| Share { kv, state, ..Share::default() }).collect();
        let mut output = Share::default();
        for info in used() {
            let share = match block_of(&info.name) {
                Some(block) => &mut blocks[block],
                None if only_by_rows(info) => continue,
                // A table that is the output too goes on being read by rows where it is.
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
        // Logits, in the step and as the sampler takes them.
        let logits = (room.sequences as u64).saturating_mul(3).saturating_mul(8 * vocabulary);
        let logits = logits.saturating_add(draft::MOST as u64 * 8 * vocabulary);
        let sum = |of: fn(&(u64, u64)) -> u64| kept.iter().map(of).fold(0, u64::saturating_add);
        // Of one sequence, which may have all tokens: keys and values in f32, and the scores.
        let each = || (0..sizes.layers).map(|layer| (sizes.kv_heads[layer], sizes.widths_of(layer)));
        let widths = each().map(|(heads, (key, value))| heads * (key + value)).max().unwrap_or(0) as u64;
        let widest = each().map(|(_, (key, value))| key.max(value)).max().unwrap_or(0) as u64;
        let scores = (SCORES * rows * sizes.heads as u64).saturating_add(2 * widths).saturating_mul(4);
        let partial = 4 * sizes.heads as u64 * (widest + 2);
        let partials = partial.saturating_mul(tokens.div_ceil(SPLIT));
        let outputs =
            (room.sequences as u64).saturating_add(draft::MOST as u64).saturating_mul(4 * vocabulary);
        Ok(Parts {
            whole: Footprint {
                weights: weights.fold(0, u64::saturating_add),
                kv: sum(|kept| kept.0),
                state: sum(|kept| kept.1),
                working: fixed.saturating_add(logits),
            },
            blocks,
            output,
            scratch: activations.saturating_add(partials).saturating_add(outputs),
            scores: scores.saturating_mul(tokens),
        })
    }
}

/// Bytes of a tensor as a GPU holds it: floats in f32, all else as stored.
fn on_gpu(info: &TensorInfo) -> u64 {
    let floats = matches!(info.kind, TensorType::F32 | TensorType::F16 | TensorType::BF16);
    if floats || is_vector(info) { info.values().saturating_mul(4) } else { info.bytes }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} weights, {} KV cache", shown(self.total()), shown(self.weights), shown(self.kv))?;
        if self.state > 0 {
            write!(f, ", {} recurrent state", shown(self.state))?;
        }
        write!(f, ", {} for computing)", shown(self.working))
    }
}

/// Bytes for people.
pub(crate) fn shown(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib if mib < 1024.0 => format!("{mib:.1} MiB"),
        mib => format!("{:.1} GiB", mib / 1024.0),
    }
}

/// Whether a tensor is held as numbers beside the map.
fn is_vector(info: &TensorInfo) -> bool {
    let name = &info.name;
    let table = [".ssm_conv1d.weight", ".shortconv.conv.weight", ".ssm_norm.weight", ".ssm_a", ".ssm_d"];
    info.shape.len() < 2 || name.ends_with(".bias") || table.iter().any(|table| name.ends_with(table))
}

/// Numbers of a row's activations that live at once: what the different matrices of a block give,
/// the residual stream before and after its norm, and once more the widest, which is worked on.
/// Buffers of one size serve others of that size, and are at most a quarter too large.
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
