//! Sampling parameters of a request: their names, defaults, values and other names, in one table.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use Elsewhere::{Refused, Sent, Unsaid};
use Values::{Latest, Number, Own, Whole};

/// A sampling parameter, as whoever reads or writes parameters by name needs it.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name of its field, and in requests.
    pub name: &'static str,
    /// Another name that servers have for it.
    pub also: Option<&'static str>,
    /// Its key in a model's file, after `general.sampling.`.
    /// Keys are named as in llama.cpp's `gguf-py/gguf/constants.py`.
    pub gguf: Option<&'static str>,
    /// What it takes.
    pub values: Values,
    /// What happens to it if the model is behind an endpoint.
    pub elsewhere: Elsewhere,
}

impl Parameter {
    /// Its names in requests.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.also)
    }
}

/// What happens to a parameter if the model is behind an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// Endpoints know it.
    Sent,
    /// It turns on a step that endpoints don't have.
    Refused,
    /// It changes nothing unless such a step is on.
    Unsaid,
}

/// The values of a parameter; shown as words for error messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Numbers from the first to the second.
    Number(f32, f32),
    /// Whole numbers from 0 to this.
    Whole(u64),
    /// How many of the latest tokens count; -1 means all, as in llama.cpp.
    Latest,
    /// Values of the field's own type, in words.
    Own(&'static str),
}

/// Numbers without a bound of their own.
const ANY: Values = Number(0.0, 1e6);
const SHARE: Values = Number(0.0, 1.0);
const COUNT: Values = Whole(u64::MAX);

impl Values {
    /// Reads a value.
    ///
    /// # Errors
    /// It isn't one of these: the words for those that are.
    pub fn read<T: DeserializeOwned>(self, value: &Value) -> Result<T, String> {
        let is_one = match self {
            Number(least, most) => {
                value.as_f64().is_some_and(|number| (least..=most).contains(&(number as f32)))
            }
            Whole(most) => value.as_u64().is_some_and(|number| number <= most),
            Latest if value.as_i64() == Some(-1) => return self.read(&usize::MAX.into()),
            Latest => value.is_u64(),
            Own(_) => true,
        };
        let read = is_one.then(|| T::deserialize(value).ok()).flatten();
        read.ok_or_else(|| self.to_string())
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Number(least, most) if *most == f32::MAX => write!(f, "a number from {least} up"),
            Number(least, most) => write!(f, "a number from {least} to {most}"),
            Whole(u64::MAX) | Latest => f.write_str("a whole number of at least 0"),
            Whole(most) => write!(f, "a whole number from 0 to {most}"),
            Own(words) => f.write_str(words),
        }
    }
}

/// Declares the parameters: each row is a field of [`Sampling`] and of [`SamplingOverrides`], and
/// an entry of [`Sampling::PARAMETERS`].
macro_rules! parameters {
    (@maybe) => { None };
    (@maybe $text:literal) => { Some($text) };
    ($($(#[$meta:meta])* $name:ident: $type:ty = $default:expr, $values:expr, $elsewhere:expr
       $(, also $also:literal)? $(, gguf $key:literal)?;)*) => {
        /// How the next token is sampled from the logits.
        /// The steps apply in field order.
        ///
        /// `typical_p`, XTC and dynamic temperature come from llama.cpp.
        /// If any of them is on, the order is llama.cpp's too: the temperature comes after all
        /// truncating steps.
        /// Mirostat replaces all other truncating steps.
        /// Formulas: `src/llama-sampling.cpp` of llama.cpp.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Sampling {
            $($(#[$meta])* pub $name: $type,)*
        }

        impl Default for Sampling {
            fn default() -> Self {
                Sampling { $($name: $default,)* }
            }
        }

        impl Sampling {
            /// All parameters, in field order.
            pub const PARAMETERS: &[Parameter] = &[$(Parameter {
                name: stringify!($name),
                also: parameters!(@maybe $($also)?),
                gguf: parameters!(@maybe $($key)?),
                values: $values,
                elsewhere: $elsewhere,
            },)*];

            /// Returns the parameters that differ from the defaults.
            pub fn changed(&self) -> SamplingOverrides {
                let off = Sampling::default();
                SamplingOverrides { $($name: Some(&self.$name).filter(|own| **own != off.$name).cloned(),)* }
            }
        }

        /// Sampling parameters that override those of the model's file, which override
        /// [`Sampling`]'s default.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[allow(missing_docs, reason = "as in `Sampling`")]
        pub struct SamplingOverrides {
            $(#[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<$type>,)*
        }

        impl SamplingOverrides {
            /// Returns these parameters, with those of `model` where one is missing.
            pub fn over(&self, model: &Sampling) -> Sampling {
                Sampling { $($name: self.$name.as_ref().unwrap_or(&model.$name).clone(),)* }
            }

            /// Sets a parameter by its name; without a value, it is missing.
            ///
            /// # Errors
            /// No such parameter, or not its kind of value; the text describes a valid one.
            pub fn set(&mut self, name: &str, value: Option<&Value>) -> Result<(), String> {
                match name {
                    $(stringify!($name) => {
                        self.$name = value.map(|value| Values::read($values, value)).transpose()?;
                    })*
                    _ => return Err("the value of a sampling parameter".to_owned()),
                }
                Ok(())
            }

            /// Returns a parameter by its name; `None` if it is missing.
            pub fn get(&self, name: &str) -> Option<Value> {
                match name {
                    $(stringify!($name) => self.$name.as_ref().map(decimal),)*
                    _ => None,
                }
            }
        }

        impl From<Sampling> for SamplingOverrides {
            /// Sets all of them.
            fn from(sampling: Sampling) -> Self {
                SamplingOverrides { $($name: Some(sampling.$name),)* }
            }
        }
    };
}

parameters! {
    /// Added to the logits of tokens; [`BANNED`](Self::BANNED) or less makes them impossible.
    /// Tokens forced by the grammar or by the end of a reasoning budget ignore it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logit_bias: Vec<(Biased, f32)> = Vec::new(), Own("pairs of tokens and numbers"), Refused;
    /// Divides the logit of a seen token if positive, multiplies it if negative.
    /// 1 = off.
    repetition_penalty: f32 = 1.0, Number(0.01, 10.0), Sent, also "repeat_penalty", gguf "penalty_repeat";
    /// Subtracted once from the logit of each seen token.
    /// 0 = off.
    presence_penalty: f32 = 0.0, Number(-10.0, 10.0), Sent;
    /// Subtracted from the logit of a seen token once per occurrence.
    /// 0 = off.
    frequency_penalty: f32 = 0.0, Number(-10.0, 10.0), Sent;
    /// How many of the latest tokens the penalties consider.
    /// Default 64.
    penalty_last_n: usize = 64, Latest, Unsaid, also "repeat_last_n", gguf "penalty_last_n";
    /// DRY ("don't repeat yourself"): subtracted from the logit of a token that would extend a
    /// repetition.
    /// Multiplied by `dry_base` to the power of the repetition's length beyond
    /// `dry_allowed_length`.
    /// 0 = off.
    dry_multiplier: f32 = 0.0, ANY, Refused;
    /// Default 1.75; below 1 DRY is off.
    dry_base: f32 = 1.75, ANY, Unsaid;
    /// The length from which on a repetition is penalized.
    /// Default 2.
    dry_allowed_length: usize = 2, COUNT, Unsaid;
    /// How many of the latest tokens DRY considers.
    /// Default: all.
    dry_penalty_last_n: usize = usize::MAX, Latest, Unsaid;
    /// Texts that break repetitions, at most [`MOST_BREAKERS`](Self::MOST_BREAKERS).
    /// Only the first 40 bytes of each count.
    /// Default: a line feed, `:`, `"` and `*`.
    dry_sequence_breakers: Vec<String> =
        ["\n", ":", "\"", "*"].map(String::from).to_vec(), Own("a list of texts"), Unsaid;
    /// Divides the logits.
    /// 0 = always the most likely token.
    temperature: f32 = 0.0, Number(0.0, f32::MAX), Sent, gguf "temp";
    /// How far the temperature deviates below and above `temperature`: the more certain the model,
    /// the lower.
    /// 0 = off.
    dynatemp_range: f32 = 0.0, ANY, Refused;
    /// The exponent of the normalized entropy in the choice of the temperature.
    /// Default 1.
    dynatemp_exponent: f32 = 1.0, ANY, Unsaid;
    /// Keeps the k most likely tokens.
    /// 0 = all.
    top_k: usize = 0, COUNT, Sent, gguf "top_k";
    /// Locally typical sampling: keeps the tokens whose information is nearest to the entropy,
    /// until their probabilities sum to more than this.
    /// 1 = all.
    typical_p: f32 = 1.0, SHARE, Refused, also "typ_p";
    /// Keeps the fewest tokens whose probabilities sum to at least this.
    /// 1 = all.
    top_p: f32 = 1.0, SHARE, Sent, gguf "top_p";
    /// Drops tokens less likely than this share of the most likely one.
    /// 0 = none.
    min_p: f32 = 0.0, SHARE, Sent, gguf "min_p";
    /// XTC ("exclude top choices"): the probability, for each token, that the most likely choices
    /// are dropped.
    /// Of the tokens with a probability of at least `xtc_threshold` only the least likely is kept.
    /// 0 = off.
    xtc_probability: f32 = 0.0, SHARE, Refused, gguf "xtc_probability";
    /// Default 0.1; above 0.5 XTC is off.
    xtc_threshold: f32 = 0.1, SHARE, Unsaid, gguf "xtc_threshold";
    /// Keeps the text's surprise at `mirostat_tau` (arXiv 2007.14966); the value is the version, 1
    /// or 2.
    /// 0 = off.
    mirostat: u8 = 0, Whole(2), Refused, also "mirostat_mode", gguf "mirostat";
    /// The target surprise in bits per token.
    /// Default 5.
    mirostat_tau: f32 = 5.0, ANY, Unsaid, gguf "mirostat_tau";
    /// How fast Mirostat adapts.
    /// Default 0.1.
    mirostat_eta: f32 = 0.1, ANY, Unsaid, gguf "mirostat_eta";
    /// Seed of the random draws: equal seed, model and request give the same text.
    seed: u64 = 0, COUNT, Sent;
}

impl SamplingOverrides {
    /// Returns these parameters, or `others` if none is set: recommendations belong together.
    #[must_use]
    pub fn or(self, others: &SamplingOverrides) -> SamplingOverrides {
        if self == SamplingOverrides::default() { others.clone() } else { self }
    }

    /// Sets a parameter to what a person wrote.
    ///
    /// # Errors
    /// Those of [`set`](Self::set).
    pub fn write(&mut self, name: &str, text: &str) -> Result<(), String> {
        let whole = text.parse::<u64>().map(Value::from);
        let value = whole.or_else(|_| text.parse::<f64>().map(Value::from)).unwrap_or_default();
        self.set(name, Some(&value))
    }
}

/// Returns a value as JSON, a number with the fewest digits: 0.7 rather than 0.699999988079071.
fn decimal<T: Serialize>(value: &T) -> Value {
    let value = serde_json::to_value(value).unwrap_or_default();
    match value.as_f64().filter(|_| value.is_f64()) {
        Some(number) => (number as f32).to_string().parse::<f64>().map_or(Value::Null, Value::from),
        None => value,
    }
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

    /// Reads a temperature that a person wrote.
    ///
    /// # Errors
    /// It is none, in words.
    pub fn temperature(text: &str) -> Result<f32, String> {
        let mut read = SamplingOverrides::default();
        read.write("temperature", text).map_err(|wanted| format!("a temperature is {wanted}"))?;
        Ok(read.over(&Sampling::default()).temperature)
    }

    /// Returns the options for answer `index` of a request for several, with its own seed; the
    /// first answer keeps the request's seed.
    #[must_use]
    pub fn for_choice(&self, index: usize) -> Sampling {
        Sampling { seed: self.seed.wrapping_add(index as u64), ..self.clone() }
    }
}
