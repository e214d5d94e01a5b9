//! Sampling options of a request.

use serde::{Deserialize, Serialize};

/// How the next token is sampled from the logits.
/// The steps apply in field order.
///
/// `typical_p`, XTC and dynamic temperature come from llama.cpp.
/// If any of them is on, the order is llama.cpp's too: the temperature comes after all truncating
/// steps.
/// Mirostat replaces all other truncating steps.
/// Formulas: `src/llama-sampling.cpp` of llama.cpp.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Added to the logits of tokens; [`BANNED`](Self::BANNED) or less makes them impossible.
    /// Tokens forced by the grammar or by the end of a reasoning budget ignore it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logit_bias: Vec<(Biased, f32)>,
    /// Divides the logit of a seen token if positive, multiplies it if negative.
    /// 1 = off.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of each seen token.
    /// 0 = off.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a seen token once per occurrence.
    /// 0 = off.
    pub frequency_penalty: f32,
    /// How many of the latest tokens the penalties consider.
    /// Default 64.
    pub penalty_last_n: usize,
    /// DRY ("don't repeat yourself"): subtracted from the logit of a token that would extend a
    /// repetition.
    /// Multiplied by `dry_base` to the power of the repetition's length beyond
    /// `dry_allowed_length`.
    /// 0 = off.
    pub dry_multiplier: f32,
    /// Default 1.75; below 1 DRY is off.
    pub dry_base: f32,
    /// The length from which on a repetition is penalized.
    /// Default 2.
    pub dry_allowed_length: usize,
    /// How many of the latest tokens DRY considers.
    /// Default: all.
    pub dry_penalty_last_n: usize,
    /// Texts that break repetitions, at most [`MOST_BREAKERS`](Self::MOST_BREAKERS).
    /// Only the first 40 bytes of each count.
    /// Default: a line feed, `:`, `"` and `*`.
    pub dry_sequence_breakers: Vec<String>,
    /// Divides the logits.
    /// 0 = always the most likely token.
    pub temperature: f32,
    /// How far the temperature deviates below and above `temperature`: the more certain the model,
    /// the lower.
    /// 0 = off.
    pub dynatemp_range: f32,
    /// The exponent of the normalized entropy in the choice of the temperature.
    /// Default 1.
    pub dynatemp_exponent: f32,
    /// Keeps the k most likely tokens.
    /// 0 = all.
    pub top_k: usize,
    /// Locally typical sampling: keeps the tokens whose information is nearest to the entropy,
    /// until their probabilities sum to more than this.
    /// 1 = all.
    pub typical_p: f32,
    /// Keeps the fewest tokens whose probabilities sum to at least this.
    /// 1 = all.
    pub top_p: f32,
    /// Drops tokens less likely than this share of the most likely one.
    /// 0 = none.
    pub min_p: f32,
    /// XTC ("exclude top choices"): the probability, for each token, that the most likely choices
    /// are dropped.
    /// Of the tokens with a probability of at least `xtc_threshold` only the least likely is kept.
    /// 0 = off.
    pub xtc_probability: f32,
    /// Default 0.1; above 0.5 XTC is off.
    pub xtc_threshold: f32,
    /// Keeps the text's surprise at `mirostat_tau` (arXiv 2007.14966); the value is the version, 1
    /// or 2.
    /// 0 = off.
    pub mirostat: u8,
    /// The target surprise in bits per token.
    /// Default 5.
    pub mirostat_tau: f32,
    /// How fast Mirostat adapts.
    /// Default 0.1.
    pub mirostat_eta: f32,
    /// Seed of the random draws: equal seed, model and request give the same text.
    pub seed: u64,
}

/// The target of a logit bias.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Biased {
    /// A token, by its id.
    Token(u32),
    /// Every token of a text, tokenized on its own.
    Text(String),
}

impl Sampling {
    /// The bias that makes a token impossible, as in OpenAI's API.
    pub const BANNED: f32 = -100.0;
    /// Most texts in `dry_sequence_breakers`: each requires a scan of the whole vocabulary.
    pub const MOST_BREAKERS: usize = 64;

    /// Returns the options for answer `index` of a request for several, with its own seed; the
    /// first answer keeps the request's seed.
    #[must_use]
    pub fn for_choice(&self, index: usize) -> Sampling {
        Sampling { seed: self.seed.wrapping_add(index as u64), ..self.clone() }
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            logit_bias: Vec::new(),
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: usize::MAX,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(String::from).to_vec(),
            temperature: 0.0,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 0,
            typical_p: 1.0,
            top_p: 1.0,
            min_p: 0.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            seed: 0,
        }
    }
}
