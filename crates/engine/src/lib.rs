//! GGUF to tokens to logits to text.
//!
//! An [`Engine`] answers a [`Request`] with [`Event`]s; a [`Probe`] is the bare decoder, for
//! measuring.
//! Beside them stand the values that they take and give.
//! [`inspect`] looks into model files, [`disk`] is the prefix cache's tier of files, and [`jinja`]
//! renders templates from anywhere.
//! The engine knows nothing of agents, does no network, prints nothing and reads no environment.

#[cfg(test)]
#[path = "../../../tests/absent.rs"]
mod absent;
mod architecture;
mod backend;
mod cache;
mod checkpoint;
mod decoder;
mod device;
mod embedding;
mod encoder;
mod engine;
mod error;
mod facts;
pub mod inspect;
mod layers;
mod logits;
mod memory;
mod offload;
mod placement;
mod pool;
mod probe;
mod role;
mod schedule;
mod sequence;

pub use alara_text::file;
pub use alara_text::gguf::{Gguf, GgufError};
pub use alara_text::jinja;
pub use engine::{EmbedInput, Embeddings, Engine, Events, Options, PromptToken, Prompts};
pub use error::{CheckpointError, DeviceProblem, Error, Result};
// Any file of a model, or the folder of a checkpoint.
pub use checkpoint::{WEIGHTS, open};

// What a request says, and what comes of it.
pub use alara_text::chat::{
    Format, Parsed, Parser, Reasoning, TemplateError, Turn, Written, generic_messages, written,
};
pub use alara_text::grammar::{GrammarError, SchemaError, fits, loosened, mismatch, violation};
pub use alara_text::request::{
    Biased, DraftUsage, Event, Finish, GrammarUsage, Logprob, Message, Miss, Over, ReasoningEffort,
    Recovered, Request, Role, Sampling, Segment, TokenLogprobs, Tool, ToolCall, ToolChoice, Until, Usage,
};
pub use alara_text::sampling_overrides::SamplingOverrides;

// Where and how a model computes, and the bare decoder.
pub use backend::{Isa, KvType, Profile, Spent, default_threads, limits};
pub use cache::disk;
pub use device::Device;
pub use offload::{DeviceSummary, Offload};
pub use probe::{Probe, ProbeSettings, ProbeTurns};

pub use alara_text::{nearest, resembles};

/// The guide's example is compiled with the crate's own.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/embed.md")]
mod guide {}
