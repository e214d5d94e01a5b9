//! The sampling parameters that a model's file recommends.

use serde_json::Value;

use crate::gguf::Gguf;
use crate::request::{Sampling, SamplingOverrides, Values};

impl SamplingOverrides {
    /// Returns the parameters that the file in `gguf` recommends, in its keys `general.sampling.*`.
    /// Ignores nonsensical values, and the order of the steps, which is fixed.
    pub fn of(gguf: &Gguf) -> SamplingOverrides {
        let mut found = SamplingOverrides::default();
        for parameter in Sampling::PARAMETERS {
            let Some(key) = parameter.gguf.map(|key| format!("general.sampling.{key}")) else { continue };
            // A negative count means all tokens.
            let whole = |least: i128| {
                let number = gguf.metadata().get(&key)?.integer()?.max(least);
                i64::try_from(number).ok().map(Value::from)
            };
            let value = match parameter.values {
                Values::Number(..) => gguf.metadata().f32(&key).ok().flatten().map(Value::from),
                Values::Latest => whole(-1),
                _ => whole(0),
            };
            let _ = found.set(parameter.name, value.as_ref());
        }
        found
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
