//! What somebody asks for, whatever the wire format: the one inner request.

use std::hash::{BuildHasher, Hasher, RandomState};

use alara_engine::{Request, Sampling, SamplingOverrides};

use tokio::time::Instant;

use crate::keep::KeepAlive;

/// What somebody asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InnerRequest {
    /// The model, or an NPC as one.
    pub model: Option<String>,
    /// The NPC, if it is named apart.
    pub npc: Option<String>,
    /// The turn, but for how tokens are drawn.
    pub request: Request,
    /// What it says of that; the rest is as the model has it.
    pub draws: SamplingOverrides,
    /// How tokens are drawn where neither the request nor the model's file says so.
    /// `None` = as ever.
    pub sampling: Option<Sampling>,
    /// How many answers there are to be, more than one only where the format has a place for it.
    pub choices: usize,
    /// How long the model stays loaded afterwards.
    pub keep_alive: Option<KeepAlive>,
    /// When its time is over, where it began before this.
    pub deadline: Option<Instant>,
    /// Whether the answer comes in pieces.
    pub stream: bool,
    /// Whether the answer tells how long it took.
    pub timings: bool,
    /// Whether a stream tells the calls that an NPC makes itself, and what it says beside them.
    pub events: bool,
    /// Whether a stream asks its client what an NPC's run would ask a person.
    pub ask: bool,
    /// The key with which a client may be asked, where no token is needed.
    pub key: String,
    /// What of the request is not honoured, for the header `Warning` and the log.
    pub ignored: Vec<String>,
}

impl InnerRequest {
    /// How tokens are drawn by a model whose file recommends `model`.
    pub fn sampling(&self, model: &Sampling) -> Sampling {
        let otherwise = self.sampling.as_ref().filter(|_| *model == Sampling::default());
        self.draws.over(otherwise.unwrap_or(model))
    }

    /// What stands there that only a model can honour, not an NPC that works with its own tools.
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

/// A number that is another one each time.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A name that nobody guesses, as the ids of answers are.
pub fn id(prefix: &str) -> String {
    format!("{prefix}{:016x}{:016x}", random(), random())
}
