//! Chooses the context length with which a model is loaded.

use alara_text::gguf::Gguf;
use alara_text::request::{Request, Role};

use super::{Engine, Options};
use crate::architecture::Architecture;
use crate::cache::CacheConfig;
use crate::facts::{Facts, Sizes};
use crate::memory::{self, MemoryBreakdown};
use crate::{Error, Result};

/// The smallest default context, unless the model was trained for less: enough for an agent's task,
/// affordable on a laptop.
const LEAST: usize = 16_384;
/// The largest default context on a GPU, or if the memory is unknown.
const MODEST: usize = 32_768;
/// Granularity, in tokens, of the search for a context that fits into memory.
const STEP: usize = 4096;

impl Engine {
    /// The context that a model is loaded with under these options; see [`Options::context`].
    ///
    /// # Errors
    /// If the model's sizes are missing or invalid, or the device can't be used.
    pub fn context_of(gguf: &Gguf, options: &Options) -> Result<usize> {
        context(gguf, &Architecture::of(gguf)?, options)
    }

    /// A note for the user if the context is shorter than requested.
    pub fn context_note(&self) -> Option<String> {
        let (name, trained) = (&self.name, self.trained_context);
        let asked = self.asked_context.filter(|asked| *asked > trained)?;
        Some(format!("{name} was trained for {trained} tokens; the context is that instead of {asked}"))
    }

    /// The error for a prompt with more tokens than the context.
    pub(super) fn too_long(&self, prompt: usize, context: usize) -> Error {
        Error::PromptTooLong { prompt, context, trained: self.trained_context }
    }

    /// Refuses requests that can't fit, by counting messages and bytes, before they are rendered
    /// and tokenized.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`].
    pub(super) fn check_size(&self, request: &Request) -> Result<()> {
        let context = self.context.min(self.capacity);
        let bytes = match (&request.prompt_ids, &request.prompt) {
            (Some(ids), _) if ids.len() > context => return Err(self.too_long(ids.len(), context)),
            (Some(_), _) => 0,
            (None, Some(prompt)) => prompt.len(),
            (None, None) => {
                // Templates put at least one mark around each.
                let parts = request.messages.len() + request.tools.len();
                if parts > context {
                    return Err(self.too_long(parts, context));
                }
                // Parts of the assistant's messages may be left out, such as reasoning.
                let others = request.messages.iter().filter(|message| message.role != Role::Assistant);
                let system = request.system.iter().map(|segment| segment.text.len());
                others.map(|message| message.content.len()).chain(system).sum()
            }
        };
        let fewest = self.tokenizer.fewest_tokens(bytes);
        if fewest > context { Err(self.too_long(fewest, context)) } else { Ok(()) }
    }
}

/// The capacity of the cache for a model under these options.
pub fn cache_config(
    gguf: &Gguf,
    architecture: &Architecture,
    options: &Options,
) -> Result<(usize, CacheConfig)> {
    let context = context(gguf, architecture, options)?;
    Ok((context, cache_of(gguf, architecture, options, context)?))
}

/// The context length that a model was trained for.
pub fn trained_context(gguf: &Gguf, architecture: &Architecture) -> Result<usize> {
    Ok(Sizes::of(&Facts::new(gguf, architecture)?)?.context)
}

/// The context length under these options: the requested one, at most what the model was trained
/// for;
/// by default as much of that as fits into memory.
pub fn context(gguf: &Gguf, architecture: &Architecture, options: &Options) -> Result<usize> {
    let trained = trained_context(gguf, architecture)?;
    match options.context {
        Some(0) => Err(Error::InvalidRequest { reason: "the context must be at least 1 token".into() }),
        Some(asked) => Ok(asked.min(trained)),
        None => affordable(gguf, architecture, options, trained),
    }
}

/// The longest context up to `trained` tokens that leaves memory for other programs.
/// On a GPU, which allocates its KV cache at once, it doesn't displace any layer to the CPU either.
fn affordable(gguf: &Gguf, architecture: &Architecture, options: &Options, trained: usize) -> Result<usize> {
    let least = trained.min(LEAST);
    if least == trained {
        return Ok(trained);
    }
    let gpu = if architecture.encoder { None } else { options.offload.budget()? };
    let most = match (&gpu, options.memory) {
        (None, Some(_)) => trained,
        _ => trained.min(MODEST),
    };
    let bytes = options.context_memory.or(options.memory.map(|memory| memory / 2)).unwrap_or(u64::MAX);
    // The host memory that a context takes, and the number of layers on the GPU with it.
    let takes = |context: usize| -> Result<(u64, usize)> {
        let config = cache_of(gguf, architecture, options, context)?;
        let breakdown = MemoryBreakdown::with_cache(gguf, architecture, &config, options.kv)?;
        let placed = gpu.and_then(|gpu| options.offload.place(gpu, &breakdown).ok());
        Ok(placed.map_or((breakdown.whole.total(), 0), |placed| (placed.host.total(), placed.layers)))
    };
    let layers = if gpu.is_some() { takes(least)?.1 } else { 0 };
    let fits = |context: usize| takes(context).map(|(host, on_gpu)| host <= bytes && on_gpu >= layers);
    if fits(most)? {
        return Ok(most);
    }
    let (mut low, mut high) = (least / STEP, most / STEP);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match fits(middle * STEP)? {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    Ok((low * STEP).max(least))
}

/// The cache for a context of this many tokens.
fn cache_of(
    gguf: &Gguf,
    architecture: &Architecture,
    options: &Options,
    context: usize,
) -> Result<CacheConfig> {
    let parallel = options.parallel.max(1);
    let room = options.kv_sequences.unwrap_or(parallel).max(1);
    let budgets = (options.kv_bytes, options.snapshot_bytes);
    memory::cache_config(gguf, architecture, (context, parallel, room), options.kv, budgets)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::backend::KvType;
    use crate::memory::MemoryEstimate;
    use alara_text::gguf::Writer;

    /// A tiny model trained for this many tokens.
    fn trained_for(tokens: u32) -> Gguf {
        let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch/qwen3-exact");
        let gguf = Gguf::open(&case.join("model.gguf")).unwrap();
        let gguf = Writer::copy_of(&gguf)
            .meta("qwen3.context_length", tokens)
            .meta("tokenizer.chat_template", "{{ messages }}");
        Gguf::from_vec("tiny", gguf.bytes().unwrap()).unwrap()
    }

    fn within(memory: u64) -> Options {
        Options { memory: Some(memory), threads: 1, ..Options::default() }
    }

    #[test]
    fn the_default_is_what_the_model_was_trained_for_as_far_as_memory_bears_it() {
        let of = |trained, options: &Options| Engine::context_of(&trained_for(trained), options).unwrap();
        let ample = within(1 << 40);
        for trained in [512, 16_384, 32_768, 40_000, 262_144] {
            assert_eq!(of(trained, &ample), trained as usize);
        }
        // Half of the memory is for other programs, and the previous default always stays
        // affordable.
        let gguf = trained_for(262_144);
        let takes = |context| MemoryEstimate::of(&gguf, context, 1, KvType::F16).unwrap().total();
        for context in [20_480, 65_536, 131_072] {
            assert_eq!(of(262_144, &within(2 * takes(context) + 2)), context);
            assert_eq!(of(262_144, &within(2 * takes(context) - 2)), context - STEP);
        }
        assert_eq!(of(262_144, &within(1)), LEAST);
        assert_eq!(of(8192, &within(1)), 8192);
        let share = Options { context_memory: Some(takes(65_536)), ..within(1 << 40) };
        assert_eq!(of(262_144, &share), 65_536);
        // Several sequences share this total.
        let several = Options { parallel: 4, ..within(2 * takes(131_072)) };
        let each = of(262_144, &several);
        assert!((28_672..=32_768).contains(&each), "{each}");
        // If the memory is unknown, the default is modest.
        assert_eq!(of(262_144, &Options::default()), MODEST);
    }

    #[test]
    fn a_context_that_is_asked_for_is_at_most_what_the_model_was_trained_for() {
        let asked = |tokens| Options { context: Some(tokens), threads: 1, ..Options::default() };
        let load = |tokens| Engine::load(&trained_for(512), &asked(tokens)).unwrap();
        let engine = load(4096);
        assert_eq!(engine.context(), 512);
        let note = "tiny was trained for 512 tokens; the context is that instead of 4096";
        assert_eq!(engine.context_note().as_deref(), Some(note));
        for tokens in [128, 512] {
            assert_eq!((load(tokens).context(), load(tokens).context_note()), (tokens, None));
        }
        let error = Engine::load(&trained_for(512), &asked(0)).err().unwrap().to_string();
        assert!(error.contains("at least 1 token"), "{error}");
    }

    /// Bytes of resident memory of this process.
    #[cfg(target_os = "linux")]
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_long_context_takes_no_memory_before_it_is_used() {
        let gguf = trained_for(262_144);
        let options = Options { kv_sequences: Some(16), kv: KvType::F32, ..within(1 << 40) };
        let takes = Engine::memory_estimate(&gguf, &options).unwrap().kv;
        assert!(takes > 1 << 30, "{takes}");
        let before = resident();
        let engine = Engine::load(&gguf, &options).unwrap();
        assert_eq!(engine.context(), 262_144);
        let more = resident().saturating_sub(before);
        assert!(more < takes / 4, "{more} of {takes} bytes are taken at once");
    }
}
