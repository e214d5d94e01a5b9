//! The inner request, independent of the wire format.

use std::hash::{BuildHasher, Hasher, RandomState};

use alara_engine::{Request, Sampling, SamplingOverrides};

use tokio::time::Instant;

use crate::keep::KeepAlive;

/// A request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InnerRequest {
    /// The model, or an NPC used as one.
    pub model: Option<String>,
    /// The NPC, if it is named separately.
    pub npc: Option<String>,
    /// The turn, without sampling parameters.
    pub request: Request,
    /// The request's sampling parameters; the model's apply for the rest.
    pub draws: SamplingOverrides,
    /// Sampling parameters if neither the request nor the model's file has any.
    /// `None` for the usual defaults.
    pub sampling: Option<Sampling>,
    /// The number of answers; more than one only if the format supports it.
    pub choices: usize,
    /// How long the model stays loaded afterwards.
    pub keep_alive: Option<KeepAlive>,
    /// The deadline, if the time limit began earlier.
    pub deadline: Option<Instant>,
    /// Whether to stream the answer.
    pub stream: bool,
    /// Whether to include timings.
    pub timings: bool,
    /// Whether a stream includes the NPC's own calls, and its text around them.
    pub events: bool,
    /// Whether a stream sends the client the questions that an NPC's run asks a person.
    pub ask: bool,
    /// The key for being asked, if no token is required.
    pub key: String,
    /// Ignored parts of the request, for the header `Warning` and the log.
    pub ignored: Vec<String>,
}

impl InnerRequest {
    /// Returns the sampling parameters for a model whose file recommends `model`.
    pub fn sampling(&self, model: &Sampling) -> Sampling {
        let otherwise = self.sampling.as_ref().filter(|_| *model == Sampling::default());
        self.draws.over(otherwise.unwrap_or(model))
    }

    /// Returns a setting that only a model supports, not an NPC with its own tools.
    pub fn not_for_npcs(&self) -> Option<&'static str> {
        let Request { stop, ignore_eos, grammar, logprobs, .. } = &self.request;
        match () {
            () if self.choices > 1 => Some("n"),
            () if grammar.is_some() => Some("grammar"),
            () if logprobs.is_some() => Some("logprobs"),
            () if !stop.is_empty() => Some("stop"),
            () if *ignore_eos => Some("ignore_eos"),
            () if self.request.is_raw() => Some("prompt"),
            () => None,
        }
    }
}

/// Returns a random number.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns an unguessable name, such as the id of an answer.
pub fn id(prefix: &str) -> String {
    format!("{prefix}{:016x}{:016x}", random(), random())
}
