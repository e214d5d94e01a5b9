//! Optional sampling settings, of a request and of a model's file.

use crate::gguf::Gguf;
use crate::request::{Biased, Sampling};

/// Declares the optional settings once for all uses.
macro_rules! overrides {
    ($($name:ident: $type:ty,)*) => {
        /// Sampling settings that override those of the model's file, which override [`Sampling`]'s
        /// default.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[allow(missing_docs, reason = "as in `Sampling`")]
        pub struct SamplingOverrides {
            $(pub $name: Option<$type>,)*
        }

        impl SamplingOverrides {
            /// These settings, with those of `model` where one is missing.
            pub fn over(&self, model: &Sampling) -> Sampling {
                Sampling { $($name: self.$name.clone().unwrap_or_else(|| model.$name.clone()),)* }
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

overrides! {
    logit_bias: Vec<(Biased, f32)>,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    penalty_last_n: usize,
    dry_multiplier: f32,
    dry_base: f32,
    dry_allowed_length: usize,
    dry_penalty_last_n: usize,
    dry_sequence_breakers: Vec<String>,
    temperature: f32,
    dynatemp_range: f32,
    dynatemp_exponent: f32,
    top_k: usize,
    typical_p: f32,
    top_p: f32,
    min_p: f32,
    xtc_probability: f32,
    xtc_threshold: f32,
    mirostat: u8,
    mirostat_tau: f32,
    mirostat_eta: f32,
    seed: u64,
}

impl SamplingOverrides {
    /// Returns these settings, or `others` if none is set: recommendations belong together.
    #[must_use]
    pub fn or(self, others: &SamplingOverrides) -> SamplingOverrides {
        if self == SamplingOverrides::default() { others.clone() } else { self }
    }

    /// The settings that the file in `gguf` recommends, in its keys `general.sampling.*`.
    /// Ignores nonsensical values, and the order of the steps, which is fixed.
    /// Keys are named as in llama.cpp's `gguf-py/gguf/constants.py`.
    pub fn of(gguf: &Gguf) -> SamplingOverrides {
        let number = |name: &str, most: f32| {
            let value = gguf.metadata().f32(&format!("general.sampling.{name}")).ok().flatten();
            value.filter(|value| (0.0..=most).contains(value))
        };
        // A negative count means all tokens.
        let count = |name: &str, all: usize| {
            let value = gguf
                .metadata()
                .get(&format!("general.sampling.{name}"))
                .and_then(crate::gguf::Value::integer);
            value.map(|value| usize::try_from(value).unwrap_or(all))
        };
        SamplingOverrides {
            repetition_penalty: number("penalty_repeat", f32::MAX).filter(|&penalty| penalty > 0.0),
            penalty_last_n: count("penalty_last_n", usize::MAX),
            temperature: number("temp", f32::MAX),
            top_k: count("top_k", 0),
            top_p: number("top_p", 1.0),
            min_p: number("min_p", 1.0),
            xtc_probability: number("xtc_probability", 1.0),
            xtc_threshold: number("xtc_threshold", 1.0),
            mirostat: count("mirostat", 0).and_then(|version| u8::try_from(version).ok()).filter(|&v| v <= 2),
            mirostat_tau: number("mirostat_tau", f32::MAX),
            mirostat_eta: number("mirostat_eta", f32::MAX),
            ..SamplingOverrides::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Writer;

    #[test]
    fn a_files_recommendation_counts_where_no_request_overrides_it() {
        let file = Writer::new()
            .meta("general.sampling.temp", 0.6f32)
            .meta("general.sampling.top_k", 20i32)
            .meta("general.sampling.top_p", 0.95f32)
            .meta("general.sampling.min_p", 7.0f32)
            .meta("general.sampling.penalty_repeat", 1.1f32)
            .meta("general.sampling.penalty_last_n", -1i32)
            .meta("general.sampling.mirostat", 2i32)
            .meta("general.sampling.mirostat_tau", 3.0f32)
            .meta("general.sampling.xtc_probability", 1.5f32);
        let of =
            |writer: Writer| SamplingOverrides::of(&Gguf::from_vec("test", writer.bytes().unwrap()).unwrap());
        let model = of(file).over(&Sampling::default());
        let expected = Sampling {
            temperature: 0.6,
            top_k: 20,
            top_p: 0.95,
            repetition_penalty: 1.1,
            penalty_last_n: usize::MAX,
            mirostat: 2,
            mirostat_tau: 3.0,
            ..Sampling::default()
        };
        assert_eq!(model, expected);
        let asked =
            SamplingOverrides { temperature: Some(0.0), seed: Some(3), ..SamplingOverrides::default() };
        assert_eq!(asked.over(&model), Sampling { temperature: 0.0, seed: 3, ..expected.clone() });
        let all = Sampling { min_p: 0.1, ..Sampling::default() };
        assert_eq!(SamplingOverrides::from(all.clone()).over(&model), all);
        assert_eq!(of(Writer::new()), SamplingOverrides::default());
        let none = SamplingOverrides::default();
        assert_eq!(
            (none.clone().or(&asked), asked.clone().or(&SamplingOverrides::from(all))),
            (asked.clone(), asked)
        );
    }
}
