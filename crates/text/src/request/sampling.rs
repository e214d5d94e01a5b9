//! How tokens are sampled, as a request says it.

use serde::{Deserialize, Serialize};

/// How the next token is sampled from the logits.
/// The steps apply in the order of the fields.
///
/// `typical_p`, XTC and dynamic temperature are llama.cpp's.
/// Once one of them is on the order is llama.cpp's too: the temperature comes after all that
/// truncates.
/// Mirostat truncates in place of all other steps that do.
/// Formulas: `src/llama-sampling.cpp` of llama.cpp.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Added to the logits of tokens; [`BANNED`](Self::BANNED) or less makes them impossible.
    /// A token that the grammar or the end of a reasoning budget forces comes all the same.
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
    /// How many of the latest tokens the penalties look at.
    /// Default 64.
    pub penalty_last_n: usize,
    /// DRY ("don't repeat yourself"): subtracted from the logit of a token that would prolong a
    /// repetition.
    /// It counts times `dry_base` to the power of the repetition's length beyond
    /// `dry_allowed_length`.
    /// 0 = off.
    pub dry_multiplier: f32,
    /// Default 1.75; below 1 DRY is off.
    pub dry_base: f32,
    /// From which length on a repetition costs.
    /// Default 2.
    pub dry_allowed_length: usize,
    /// How many of the latest tokens DRY looks at.
    /// Default: all.
    pub dry_penalty_last_n: usize,
    /// Texts that no repetition reaches across, at most [`MOST_BREAKERS`](Self::MOST_BREAKERS).
    /// Of each the first 40 bytes count.
    /// Default: a line feed, `:`, `"` and `*`.
    pub dry_sequence_breakers: Vec<String>,
    /// Divides the logits.
    /// 0 = always the most likely token.
    pub temperature: f32,
    /// How far the temperature goes below and above `temperature`, the more certain the model is,
    /// the lower.
    /// 0 = off.
    pub dynatemp_range: f32,
    /// The power of the normalised entropy by which the temperature is chosen.
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
    /// XTC ("exclude top choices"): how likely it is, at each token, that the most likely ones are
    /// dropped.
    /// Of those with a probability of at least `xtc_threshold` only the last is left.
    /// 0 = off.
    pub xtc_probability: f32,
    /// Default 0.1; above 0.5 XTC is off.
    pub xtc_threshold: f32,
    /// Keeps the surprise of the text at `mirostat_tau` (arXiv 2007.14966): 1 or 2 is the version.
    /// 0 = off.
    pub mirostat: u8,
    /// The surprise, in bits a token.
    /// Default 5.
    pub mirostat_tau: f32,
    /// How fast Mirostat adapts.
    /// Default 0.1.
    pub mirostat_eta: f32,
    /// Seed of the random draws: the same seed, model and request give the same text.
    pub seed: u64,
}

/// What a logit bias is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Biased {
    /// A token, by its id.
    Token(u32),
    /// Every token of a text, as it is tokenized alone.
    Text(String),
}

impl Sampling {
    /// The bias that makes a token impossible, as OpenAI's API has it.
    pub const BANNED: f32 = -100.0;
    /// Most texts of `dry_sequence_breakers`: each takes a look at the whole vocabulary.
    pub const MOST_BREAKERS: usize = 64;

    /// The same for answer number `index` to a request for several: with a seed of its own, for the
    /// first the request's.
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
