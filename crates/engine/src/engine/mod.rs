//! The engine's public interface: loads a model and generates turns.
//! One thread owns the model and serves all requests together.

mod context;
mod described;
mod embed;
mod events;
mod fit;
mod load;
mod prompts;
mod sampling;
mod segments;
mod serve;
mod template;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use alara_text::chat::ChatTemplate;
use alara_text::chat::formats::{Format, Parser, Turn};
use alara_text::gguf::Gguf;
use alara_text::grammar::{Grammar, to_lark};
use alara_text::prompt_lookup::PromptLookup;
use alara_text::repetition::{CallLog, CycleDetector};
use alara_text::request::{Request, Sampling, SamplingOverrides};
use alara_text::stop::StopTexts;
use alara_text::tokenizer::Tokenizer;

use crate::architecture::Architecture;
#[cfg(feature = "candle")]
use crate::backend::candle::Candle;
use crate::backend::native::Native;
#[cfg(feature = "candle")]
use crate::backend::split::Split;
use crate::backend::{Isa, KvType, default_threads};
use crate::cache::disk;
use crate::device::Device;
use crate::embedding::Pooling;
use crate::memory::{self, MemoryEstimate};
use crate::offload::{Model, Offload, ResolvedDevice};
use crate::pool::SequenceData;
use crate::sequence::{Listener, Logprobs, PromptLogprobs, ReasoningBudget, Recovery, Sequence};
use crate::{Error, Result};
use context::{cache_config, trained_context};
use described::{Described, described};
pub use embed::{EmbedInput, Embeddings};
pub use events::Events;
use fit::{begin_with, check, consistent};
use load::{Start, resolve};
pub use prompts::{PromptToken, Prompts};
use sampling::Breakers;
use segments::Segments;
use serve::Job;
pub use template::{Chosen, chat_template};

/// Bytes of host memory for static prefixes that a GPU evicts.
const HOST_BYTES: u64 = 1 << 30;

/// How to run a model.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most tokens of a sequence, limited to the context that the model was trained for.
    /// Default: what the model was trained for, reduced to fit `context_memory`, but at least
    /// 16384; on a GPU, and if `memory` is unknown, at most 32768.
    /// Cost: memory for keys and values, allocated as used.
    pub context: Option<usize>,
    /// Most bytes that the model with the default context may take.
    /// Default: half of `memory`.
    pub context_memory: Option<u64>,
    /// Number of sequences running at once.
    /// Default 1.
    pub parallel: usize,
    /// Number of full-length sequences that fit into the KV cache; shorter ones share the room.
    /// If it exceeds `parallel`, later turns find more of their keys and values cached.
    /// If it is less, long running sequences wait for each other.
    /// Default: `parallel`.
    pub kv_sequences: Option<usize>,
    /// Most bytes for keys and values: fewer than `context` and `kv_sequences` require make
    /// sequences wait for each other, and limit the longest one.
    /// Default: as many as they require.
    pub kv_bytes: Option<u64>,
    /// The number format of keys and values.
    /// Default f16.
    pub kv: KvType,
    /// The tool-call format, instead of the one detected from the chat template.
    pub tool_format: Option<&'static Format>,
    /// Bytes for snapshots of recurrent and windowed state, without which models with such state
    /// can't continue from where prompts diverge.
    /// Default 512 MiB, but always at least four snapshots.
    pub snapshot_bytes: u64,
    /// Which device computes, and which part of the model it holds.
    /// Default: the CPU.
    pub offload: Offload,
    /// Bytes of host memory for static prefixes that a GPU evicts.
    /// Default 1 GiB; unused without a GPU.
    pub host_bytes: u64,
    /// Threads that compute on the CPU.
    /// Default: one per core, or two per core with fewer than four.
    pub threads: usize,
    /// The instruction set.
    /// Default: the best that the CPU supports.
    pub isa: Isa,
    /// Source of a chat template that replaces the file's.
    pub chat_template: Option<String>,
    /// Whether to reason, for requests that don't specify it; `None` = the template's default.
    pub thinking: Option<bool>,
    /// Sampling settings for requests without their own, if the file recommends none.
    /// Default: empty.
    pub sampling: SamplingOverrides,
    /// Whether a step computes several tokens of a sequence: those forced by the grammar, and draft
    /// tokens of prompt lookup, which it verifies.
    /// Gives the same answers faster.
    /// Default true.
    /// Draft tokens only work on the CPU, where the logits of a token don't depend on the other
    /// rows of its step.
    pub drafts: bool,
    /// Whether sequences keep decoding steadily during the prefill of others, which limits steps to
    /// few rows.
    /// Default true.
    /// Turning it off speeds up complete answers, for example in benchmarks.
    pub steady: bool,
    /// Also keeps static prefixes on disk, so that later runs need not recompute them.
    /// `None`, the default: no disk cache.
    pub disk: Option<disk::Options>,
    /// Bytes that the model may take: a model that needs more is refused before loading.
    /// `None`, the default: no limit.
    pub memory: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            context: None,
            context_memory: None,
            parallel: 1,
            kv_sequences: None,
            kv_bytes: None,
            kv: KvType::F16,
            tool_format: None,
            snapshot_bytes: memory::SNAPSHOT_BYTES,
            offload: Offload::cpu(),
            host_bytes: HOST_BYTES,
            threads: default_threads(),
            isa: Isa::best(),
            chat_template: None,
            sampling: SamplingOverrides::default(),
            thinking: None,
            drafts: true,
            steady: true,
            disk: None,
            memory: None,
        }
    }
}

/// A loaded model.
pub struct Engine {
    name: String,
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    /// Other call formats, which the prompt describes.
    described: Vec<Described>,
    template_note: Option<String>,
    placement_note: Option<String>,
    /// Texts that end every turn, if the model's family has no token for it.
    stops: Vec<String>,
    thinking: Option<bool>,
    /// The sampling recommended by the file.
    sampling: Sampling,
    /// Texts that message contents must not forge.
    control: Vec<String>,
    format: Option<&'static Format>,
    format_chosen: bool,
    parameters: u64,
    /// Whether a step computes several tokens of a sequence, and whether these include draft
    /// tokens.
    drafts: bool,
    speculates: bool,
    /// The instruction set for scanning logits on the host.
    isa: Isa,
    grammar: Grammar,
    segments: Segments,
    breakers: Breakers,
    context: usize,
    /// The context length that the model was trained for.
    trained_context: usize,
    /// The requested context length.
    asked_context: Option<usize>,
    /// Capacity of the KV cache in tokens.
    capacity: usize,
    /// Number of tokens now in the KV cache, in whole blocks.
    used: Arc<AtomicUsize>,
    /// Whether the model only makes embeddings.
    encoder: bool,
    /// How states are pooled to embeddings; `None` if the model makes none.
    pooling: Option<Pooling>,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Loads the model in `gguf`.
    ///
    /// # Errors
    /// If the architecture, tokenizer, template or a weight is missing, unknown or invalid.
    /// Also if the model needs more memory than it may take.
    pub fn load(gguf: &Gguf, options: &Options) -> Result<Self> {
        Self::load_by(gguf, options, |start, resolved| {
            let Options { threads, isa, .. } = *start.options;
            let native = || Native::new(threads, isa);
            match resolved {
                ResolvedDevice::Cpu => start.on(native(), 0),
                #[cfg(feature = "candle")]
                ResolvedDevice::Candle(device) => start.on(Candle::on(device), 0),
                #[cfg(feature = "candle")]
                ResolvedDevice::Gpu(gpu, placement) => {
                    let (first, host_bytes) = (placement.of - placement.layers, start.options.host_bytes);
                    start.on(Split::new(Candle::on(gpu.handle), native(), first), host_bytes)
                }
            }
        })
    }

    /// Loads the model with the caller's backend: `begin` starts the thread that owns it.
    fn load_by(
        gguf: &Gguf,
        options: &Options,
        begin: impl FnOnce(Start, ResolvedDevice) -> Result<(JoinHandle<()>, bool)>,
    ) -> Result<Self> {
        let architecture = Architecture::of(gguf)?;
        let (context, config) = cache_config(gguf, &architecture, options)?;
        let model = Model { gguf, architecture: &architecture, config: &config, kv: options.kv, context };
        let resolved = resolve(&model, options)?;
        if let Some(available) = options.memory {
            resolved.host(&model.breakdown()?, options.host_bytes).check(gguf.name(), context, available)?;
        }
        let tokenizer = Arc::new(crate::architecture::tokenizer(gguf)?);
        let vocabulary = tokenizer.clone();
        let grammar = Grammar::new(move || vocabulary.env());
        // An encoder has no conversations, and its file has no template.
        let given = if architecture.encoder { Some("") } else { options.chat_template.as_deref() };
        let chosen = chat_template(gguf, &tokenizer, given)?;
        let control = tokenizer.control_texts().map(String::from).collect();
        let template = chosen.template;
        let format = options.tool_format.or_else(|| template.format());
        let parameters = gguf.tensors().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.values()));
        if let Some(format) = options.tool_format {
            check(format, &tokenizer, gguf.name())?;
        }

        let template = match format {
            Some(format) => template.with_calls(format),
            None => template,
        };
        let marks: Vec<&str> = tokenizer.marks().collect();
        let template = template.with_marks(marks.iter().copied());

        let (jobs, queue) = mpsc::channel();
        let used = Arc::<AtomicUsize>::default();
        let start = Start { model, options, tokenizer: &tokenizer, queue, used: used.clone() };
        let note =
            match architecture.encoder && !matches!(options.offload.device, Device::Cpu | Device::Candle) {
                true => Some(format!("{} is an encoder, which the CPU computes", gguf.name())),
                false => resolved.note(),
            };
        let (thread, invariant) = begin(start, resolved)?;
        Ok(Engine {
            name: gguf.name().into(),
            parameters,
            format,
            format_chosen: options.tool_format.is_some(),
            drafts: options.drafts,
            speculates: options.drafts && invariant,
            isa: options.isa,
            grammar,
            tokenizer,
            template,
            described: described(),
            template_note: chosen.note,
            placement_note: note,
            stops: chosen.family.map(|family| family.stops.clone()).unwrap_or_default(),
            thinking: options.thinking,
            sampling: SamplingOverrides::of(gguf).or(&options.sampling).over(&Sampling::default()),
            control,
            segments: Segments::default(),
            breakers: Breakers::default(),
            context,
            trained_context: trained_context(gguf, &architecture)?,
            asked_context: options.context,
            capacity: config.full.blocks * config.full.block_tokens,
            used,
            encoder: architecture.encoder,
            pooling: Pooling::of(gguf, &architecture)?,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Waits for work that [`load`](Self::load) left to other threads.
    /// Requests only wait for it where necessary; benchmarks should call this, since the work takes
    /// processor time.
    pub fn settle(&self) {
        self.grammar.prepare();
    }

    /// The host memory that the model in `gguf` takes when loaded with these options.
    ///
    /// # Errors
    /// As [`MemoryEstimate::of`], [`Error::OutOfMemory`] if that exceeds the limit, and errors of
    /// the device.
    pub fn memory_estimate(gguf: &Gguf, options: &Options) -> Result<MemoryEstimate> {
        let architecture = Architecture::of(gguf)?;
        let (context, config) = cache_config(gguf, &architecture, options)?;
        let model = Model { gguf, architecture: &architecture, config: &config, kv: options.kv, context };
        let estimate = resolve(&model, options)?.host(&model.breakdown()?, options.host_bytes);
        if let Some(available) = options.memory {
            estimate.check(gguf.name(), context, available)?;
        }
        Ok(estimate)
    }

    /// The model's name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A note for the user about the chat template: that the file's isn't used, and why.
    pub fn template_note(&self) -> Option<&str> {
        self.template_note.as_deref()
    }

    /// A note for the user about the vocabulary: special tokens that the file names but the
    /// vocabulary doesn't have.
    pub fn tokenizer_note(&self) -> Option<&str> {
        self.tokenizer.note()
    }

    /// A note for the user about the placement of the model: how much of it is on a GPU.
    pub fn placement_note(&self) -> Option<&str> {
        self.placement_note.as_deref()
    }

    /// The default sampling: as the file recommends (`general.sampling.*`), otherwise
    /// [`Options::sampling`].
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Whether the model is an encoder, which makes embeddings and generates no text.
    pub fn is_encoder(&self) -> bool {
        self.encoder
    }

    /// The number of tokens now in the KV cache, in whole blocks, and its capacity.
    pub fn cached(&self) -> (usize, usize) {
        (self.used.load(Ordering::Relaxed), self.capacity)
    }

    /// Most tokens of a sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The vocabulary.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The source of the chat template.
    pub fn template(&self) -> &str {
        self.template.source()
    }

    /// The text of the rendered prompt for `request`; texts that only read like control tokens are
    /// unchanged.
    ///
    /// # Errors
    /// If the template refuses the request.
    pub fn prompt(&self, request: &Request) -> Result<String> {
        let (prompt, _) = self.renderer(request)?.prompt(&self.completed(request))?;
        let placeholders = prompt.placeholders.iter();
        Ok(placeholders.fold(prompt.text, |text, (stand_in, plain)| text.replace(*stand_in, plain)))
    }

    /// The tokens of the rendered prompt for `request`.
    ///
    /// # Errors
    /// If the template refuses the request, or the vocabulary has no tokens for it.
    pub fn prompt_tokens(&self, request: &Request) -> Result<Vec<u32>> {
        let (_, tokens) = self.renderer(request)?.prompt(&self.completed(request))?;
        Ok(tokens)
    }

    /// The call format; `None` if the chat template shows an unknown one.
    pub fn format(&self) -> Option<&'static Format> {
        self.format
    }

    /// Whether [`Options::tool_format`] selected the format.
    pub fn format_is_chosen(&self) -> bool {
        self.format_chosen
    }

    /// How many parameters the model has.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// The request with defaults from the engine's options.
    fn completed<'r>(&self, request: &'r Request) -> Cow<'r, Request> {
        let mut request = Cow::Borrowed(request);
        if request.thinking.is_none() && self.thinking.is_some() {
            request.to_mut().thinking = self.thinking;
        }
        request
    }

    /// Starts to generate a turn for `request`.
    /// Dropping the events cancels it.
    ///
    /// # Errors
    /// Before generating: if the request contradicts itself, or the template refuses it.
    /// Also if a tool's schema can't be enforced, or the prompt doesn't fit the context.
    pub fn generate(&self, request: &Request) -> Result<Events> {
        let started = Instant::now();
        let by = self.renderer(request)?;
        if !request.tools.is_empty() {
            if self.format.is_none() && request.tool_format.is_none() {
                return Err(Error::NoToolFormat { model: self.name.clone() });
            }
            check(by.format, &self.tokenizer, &self.name)?;
        }
        self.check_size(request)?;
        let request = self.completed(request);
        let request = request.as_ref();
        let (prompt, tokens) = by.prompt(request)?;
        if tokens.is_empty() {
            return Err(Error::InvalidRequest { reason: "the prompt is empty".into() });
        }
        consistent(request)?;
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= self.tokenizer.len()) {
            return Err(Error::TokenOutOfRange { token, vocabulary: self.tokenizer.len() });
        }
        if tokens.len() >= self.context {
            return Err(self.too_long(tokens.len(), self.context));
        }
        if tokens.len() >= self.capacity {
            return Err(Error::OutOfBlocks { capacity: self.capacity });
        }
        let asked = by.turn(request, &prompt);
        let shaped = match (&request.schema, &request.grammar) {
            (Some(schema), _) => Some(asked.clone().in_json(schema)),
            (None, Some(grammar)) => Some(asked.clone().in_grammar(&to_lark(grammar)?)),
            (None, None) => None,
        };
        let sampler = self.breakers.sampler(&request.sampling, &self.tokenizer, &request.until)?;
        let sampler = sampler.with_isa(self.isa);
        let prefix = self.segments.prefix(by, request, &prompt, &tokens);
        let left = self.context.min(self.capacity) - tokens.len();
        let (sender, receiver) = mpsc::channel();
        let cancelled = Arc::new(AtomicBool::new(false));
        let least = usize::from(!request.is_raw());
        let limit = tokens.len() + request.max_tokens.unwrap_or(left).clamp(least, left);
        let sequence = |turn: &Turn| -> Result<Sequence> {
            let mut data = SequenceData::new(tokens.clone(), prefix.clone());
            data.single = !self.drafts;
            data.noted = request.prompt_logprobs.map(|_| 0);
            let mut constraint =
                self.grammar.constraint(turn, &|text| self.tokenizer.id(text), &request.until)?;
            let mut parser = Parser::new(turn);
            // Show control tokens, since some files label the tags of calls as such.
            let mut text = self.tokenizer.stream().with_special();
            if turn.raw || turn.has_shape() {
                // The beginning is decoded exactly as its tokens are.
                text = text.continuing();
            }
            if !prompt.continuation.is_empty() {
                // The caller knows this part, so its results aren't reported.
                drop(parser.push(&prompt.continuation));
                let tokens = self.tokenizer.encode_within(&prompt.continuation)?;
                tokens.iter().for_each(|&token| drop(text.push(token)));
                begin_with(constraint.as_mut(), &tokens)?;
            }
            Ok(Sequence {
                data,
                limit,
                lookup: self.speculates.then(|| PromptLookup::new(limit)),
                sampler: sampler.clone(),
                endless: request.ignore_eos,
                logprobs: request.logprobs.map(|top| Logprobs::new(top, request.prompt_logprobs.is_some())),
                prompt_logprobs: request
                    .prompt_logprobs
                    .map(|top| PromptLogprobs::new(top, tokens[0], &self.tokenizer)),
                constraint,
                answer: Vec::new().into_iter(),
                parser,
                // Text with a grammar ends by itself, and may contain any text.
                stop: match turn.has_shape() || request.ignore_eos {
                    true => StopTexts::new(&request.stop, &[]),
                    false => StopTexts::new(&request.stop, &self.stops),
                },
                text,
                tokenizer: self.tokenizer.clone(),
                next_call: request.messages.iter().map(|message| message.tool_calls.len()).sum(),
                events: Listener::new(sender.clone()),
                cancelled: cancelled.clone(),
                until: request.until.clone(),
                started,
                sampled_at: None,
                reasoning: self.reasoning(turn, request.reasoning_tokens)?,
                closer: if turn.may_call() { self.closer(turn.format)? } else { Vec::new() },
                must_call: turn.must_call(),
                calls: CallLog::default(),
                cycles: CycleDetector::default(),
                in_call: false,
            })
        };
        let mut first = sequence(&asked)?;
        if let Some(answer) = &request.answer {
            let answer = by.answer(request, answer, &tokens)?;
            first.limit = limit.min(tokens.len() + answer.len().max(1));
            first.constraint = None;
            first.answer = answer.into_iter();
        } else if let Some(shaped) = &shaped {
            let answer = sequence(shaped)?;
            if asked.permitted().next().is_none() {
                first = answer;
            } else if !asked.must_call() {
                let tools = asked.permitted().cloned().collect();
                let recovery = Recovery::new(tools, asked.parallel_tool_calls, first.next_call);
                first.events.otherwise(answer, recovery);
            }
        } else if asked.may_call() && !asked.must_call() && prompt.continuation.is_empty() {
            let tools = asked.permitted().cloned().collect();
            let again = sequence(&asked.clone().that_must_call()).ok();
            first.events.recover(Recovery::new(tools, asked.parallel_tool_calls, first.next_call), again);
        }
        let jobs = self.jobs.as_ref().ok_or(Error::Stopped)?;
        jobs.send(Job::Turn(Box::new(first))).map_err(|_| Error::Stopped)?;
        Ok(Events { receiver, cancelled, ended: false })
    }

    /// The tokens that close a string in a call.
    fn closer(&self, format: &Format) -> Result<Vec<u32>> {
        let text = format.end_of_string();
        Ok(match self.tokenizer.id(text) {
            Some(token) => vec![token],
            None => self.tokenizer.encode_within(text)?,
        })
    }

    fn reasoning(&self, turn: &Turn, tokens: Option<usize>) -> Result<ReasoningBudget> {
        let end = match (tokens, turn.end_of_reasoning()) {
            (Some(_), Some(text)) => self.tokenizer.encode_within(text)?,
            _ => Vec::new(),
        };
        Ok(ReasoningBudget { left: tokens.filter(|_| !end.is_empty()), end })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The thread ends when the channel closes and the running turns have ended.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod draft_tests;
#[cfg(test)]
mod embed_tests;
#[cfg(test)]
mod full_tests;
#[cfg(test)]
#[cfg(unix)]
mod lost_tests;
#[cfg(test)]
mod parameter_tests;
#[cfg(test)]
mod tests;
