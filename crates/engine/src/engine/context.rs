//! How long a context a model is loaded with.

use alara_text::gguf::Gguf;
use alara_text::request::{Request, Role};

use super::{Engine, Options};
use crate::architecture::Architecture;
use crate::cache::CacheConfig;
use crate::facts::{Facts, Sizes};
use crate::memory::{self, MemoryBreakdown};
use crate::{Error, Result};

/// The smallest default context, unless the model was trained for less: enough for an agent's
/// task, affordable on a laptop.
const LEAST: usize = 16_384;
/// The largest default context on a GPU, or where the memory is unknown.
const MODEST: usize = 32_768;
/// Tokens by which contexts differ that are tried for whether memory holds them.
const STEP: usize = 4096;

impl Engine {
    /// The context that a model is loaded with by these options; see [`Options::context`].
    ///
    /// # Errors
    /// The model's sizes are missing or wrong, or the device can't be used.
    pub fn context_of(gguf: &Gguf, options: &Options) -> Result<usize> {
        context(gguf, &Architecture::of(gguf)?, options)
    }

    /// A note for the user if the context is shorter than was asked for.
    pub fn context_note(&self) -> Option<String> {
        let (name, trained) = (&self.name, self.trained_context);
        let asked = self.asked_context.filter(|asked| *asked > trained)?;
        Some(format!("{name} was trained for {trained} tokens; the context is that instead of {asked}"))
    }

    /// The refusal of a prompt that has more tokens than the context.
    pub(super) fn too_long(&self, prompt: usize, context: usize) -> Error {
        Error::PromptTooLong { prompt, context, trained: self.trained_context }
    }

    /// Refuses what can't become a prompt that fits, by counting its messages and bytes: before it
    /// is rendered and tokenized.
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
                // Templates put marks around each.
                let parts = request.messages.len() + request.tools.len();
                if parts > context {
                    return Err(self.too_long(parts, context));
                }
                // What the assistant said may be left out, such as its thoughts.
                let others = request.messages.iter().filter(|message| message.role != Role::Assistant);
                let system = request.system.iter().map(|segment| segment.text.len());
                others.map(|message| message.content.len()).chain(system).sum()
            }
        };
        let fewest = self.tokenizer.fewest_tokens(bytes);
        if fewest > context { Err(self.too_long(fewest, context)) } else { Ok(()) }
    }
}

/// The context that the options mean for a model, and the room that its sequences need.
pub fn cache_config(
    gguf: &Gguf,
    architecture: &Architecture,
    options: &Options,
) -> Result<(usize, CacheConfig)> {
    let context = context(gguf, architecture, options)?;
    Ok((context, cache_of(gguf, architecture, options, context)?))
}

/// Tokens that a model was trained for.
pub fn trained_context(gguf: &Gguf, architecture: &Architecture) -> Result<usize> {
    Ok(Sizes::of(&Facts::new(gguf, architecture)?)?.context)
}

/// The context that the options mean for a model: what they say, at most what it was trained for;
/// else as much of that as memory bears.
pub fn context(gguf: &Gguf, architecture: &Architecture, options: &Options) -> Result<usize> {
    let trained = trained_context(gguf, architecture)?;
    match options.context {
        Some(0) => Err(Error::InvalidRequest { reason: "the context must be at least 1 token".into() }),
        Some(asked) => Ok(asked.min(trained)),
        None => affordable(gguf, architecture, options, trained),
    }
}

/// The longest context up to `trained` tokens that leaves memory for others.
/// On a GPU, which takes the memory of its KV cache at once, it moves no layer to the CPU either.
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
    // What a context takes of the host, and how many layers are on the GPU with it.
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

/// The cache for a context of so many tokens.
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

    /// A tiny model that was trained for so many tokens.
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
        // Half of the memory is others', and what was affordable before always is.
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
        // Several at a time have as much of it in all.
        let several = Options { parallel: 4, ..within(2 * takes(131_072)) };
        let each = of(262_144, &several);
        assert!((28_672..=32_768).contains(&each), "{each}");
        // If the memory is unknown, the context is modest.
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

    /// Bytes of memory that this process has touched.
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
