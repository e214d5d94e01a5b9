//! From GGUF to tokens to logits to text.
//!
//! An [`Engine`] answers a [`Request`] with [`Event`]s; a [`Probe`] is the bare decoder, for
//! measuring.
//! The crate also exports the types that they use.
//! [`inspect`] examines model files, [`disk`] is the prefix cache's disk tier, and [`jinja`]
//! renders templates from any source.
//! The engine knows nothing of agents, uses no network, prints nothing and reads no environment.

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

// Requests and their results.
pub use alara_text::chat::{
    Format, Parsed, Parser, Reasoning, TemplateError, Turn, Written, generic_messages, written,
};
pub use alara_text::grammar::{GrammarError, SchemaError, fits, loosened, mismatch, violation};
pub use alara_text::request::{
    Biased, DraftUsage, Elsewhere, Event, Finish, GrammarUsage, Logprob, Message, Miss, Over,
    ReasoningEffort, Recovered, Request, Role, Sampling, SamplingOverrides, Segment, TokenLogprobs, Tool,
    ToolCall, ToolChoice, Until, Usage, Values,
};

// Devices and settings of the computation, and the bare decoder.
pub use backend::{Isa, KvType, Profile, Spent, default_threads, limits};
pub use cache::disk;
pub use device::Device;
pub use offload::{DeviceSummary, Offload};
pub use probe::{Probe, ProbeSettings, ProbeTurns};

pub use alara_text::{nearest, resembles};

/// Compiles the guide's example as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/embed.md")]
mod guide {}
