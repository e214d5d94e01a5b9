//! Sampling options that may be left out, of a request and of a model's file.

use crate::gguf::Gguf;
use crate::request::Sampling;

/// Sampling options that override those of the model's file, which override [`Sampling`]'s default.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "as in `Sampling`")]
pub struct SamplingOverrides {
    pub repetition_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub penalty_last_n: Option<usize>,
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub seed: Option<u64>,
}

impl SamplingOverrides {
    /// What the file in `gguf` recommends, in its keys `general.sampling.*`.
    /// Values that make no sense are left out, and keys that there is no such step for (the order
    /// of the steps, XTC, Mirostat).
    /// Names as `gguf-py/gguf/constants.py` of llama.cpp has them.
    pub fn of(gguf: &Gguf) -> SamplingOverrides {
        let number = |name: &str, most: f32| {
            let value = gguf.metadata().f32(&format!("general.sampling.{name}")).ok().flatten();
            value.filter(|value| (0.0..=most).contains(value))
        };
        // Below 0: of all tokens.
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
            ..SamplingOverrides::default()
        }
    }

    /// These, and `model` where one is left out.
    pub fn over(&self, model: &Sampling) -> Sampling {
        Sampling {
            repetition_penalty: self.repetition_penalty.unwrap_or(model.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(model.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(model.frequency_penalty),
            penalty_last_n: self.penalty_last_n.unwrap_or(model.penalty_last_n),
            temperature: self.temperature.unwrap_or(model.temperature),
            top_k: self.top_k.unwrap_or(model.top_k),
            top_p: self.top_p.unwrap_or(model.top_p),
            min_p: self.min_p.unwrap_or(model.min_p),
            seed: self.seed.unwrap_or(model.seed),
        }
    }
}

impl From<Sampling> for SamplingOverrides {
    /// All are set.
    fn from(sampling: Sampling) -> Self {
        SamplingOverrides {
            repetition_penalty: Some(sampling.repetition_penalty),
            presence_penalty: Some(sampling.presence_penalty),
            frequency_penalty: Some(sampling.frequency_penalty),
            penalty_last_n: Some(sampling.penalty_last_n),
            temperature: Some(sampling.temperature),
            top_k: Some(sampling.top_k),
            top_p: Some(sampling.top_p),
            min_p: Some(sampling.min_p),
            seed: Some(sampling.seed),
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
            .meta("general.sampling.mirostat", 2i32);
        let of =
            |writer: Writer| SamplingOverrides::of(&Gguf::from_vec("test", writer.bytes().unwrap()).unwrap());
        let model = of(file).over(&Sampling::default());
        let expected = Sampling {
            temperature: 0.6,
            top_k: 20,
            top_p: 0.95,
            repetition_penalty: 1.1,
            penalty_last_n: usize::MAX,
            ..Sampling::default()
        };
        assert_eq!(model, expected);
        let asked =
            SamplingOverrides { temperature: Some(0.0), seed: Some(3), ..SamplingOverrides::default() };
        assert_eq!(asked.over(&model), Sampling { temperature: 0.0, seed: 3, ..expected });
        let all = Sampling { min_p: 0.1, ..Sampling::default() };
        assert_eq!(SamplingOverrides::from(all.clone()).over(&model), all);
        assert_eq!(of(Writer::new()), SamplingOverrides::default());
    }
}
