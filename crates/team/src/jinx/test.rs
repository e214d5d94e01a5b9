//! A jinx's own tests, from its file: inputs, and the expected results.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::template::{Scope, holds};
use crate::types::ToolResult;

/// A test of a jinx.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Test {
    /// Its name.
    pub id: String,
    /// The arguments.
    pub inputs: Map<String, Value>,
    /// The expectations, by their keys in the file.
    pub expected: Vec<Expected>,
}

/// An expectation about a result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// Whether it succeeds.
    Success(bool),
    /// A text that its output must contain.
    OutputContains(String),
    /// A text that its output must not contain.
    OutputNotContains(String),
    /// Its whole output.
    OutputEquals(String),
    /// A regular expression that must match somewhere in its output.
    OutputRegex(String),
    /// How long it may take, in milliseconds.
    MaxDurationMs(u64),
}

impl Test {
    /// The failed expectations of a result that took this long, in words; none if the test passes.
    pub fn judge(&self, result: &ToolResult, took: Duration) -> Vec<String> {
        self.expected.iter().filter_map(|expected| expected.judge(result, took)).collect()
    }
}

impl Expected {
    fn judge(&self, result: &ToolResult, took: Duration) -> Option<String> {
        let output = result.output_text();
        let (holds, wanted) = match self {
            Expected::Success(success) => {
                (result.ok == *success, if *success { "a success" } else { "a failure" }.to_owned())
            }
            Expected::OutputContains(part) => (output.contains(part), format!("an output with {part:?}")),
            Expected::OutputNotContains(part) => {
                (!output.contains(part), format!("an output without {part:?}"))
            }
            Expected::OutputEquals(whole) => (output == *whole, format!("the output {whole:?}")),
            Expected::OutputRegex(regex) => {
                let mut scope = Scope::default();
                scope.bind("output", &Value::from(&*output));
                scope.bind("regex", &Value::from(regex.as_str()));
                let found = holds("output is match(regex)", &scope);
                (found.unwrap_or(false), format!("an output like {regex:?}"))
            }
            Expected::MaxDurationMs(most) => {
                (took <= Duration::from_millis(*most), format!("an end within {most} ms"))
            }
        };
        let got = if result.ok { output } else { result.complaint() };
        (!holds).then(|| format!("expected {wanted}, got {got:?} after {} ms", took.as_millis()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_hold_is_told() {
        let check = |expected: Expected, holds: bool| {
            let test = Test { expected: vec![expected], ..Test::default() };
            let failures = test.judge(&ToolResult::succeeded("Stopping: done"), Duration::from_millis(20));
            assert_eq!(failures.is_empty(), holds, "{failures:?}");
        };
        check(Expected::Success(true), true);
        check(Expected::Success(false), false);
        check(Expected::OutputContains("done".into()), true);
        check(Expected::OutputContains("Done".into()), false);
        check(Expected::OutputNotContains("Done".into()), true);
        check(Expected::OutputNotContains("done".into()), false);
        check(Expected::OutputEquals("Stopping: done".into()), true);
        check(Expected::OutputEquals("done".into()), false);
        check(Expected::OutputRegex("^Stop.*ne$".into()), true);
        check(Expected::OutputRegex("^done".into()), false);
        check(Expected::OutputRegex("(".into()), false);
        check(Expected::MaxDurationMs(20), true);
        check(Expected::MaxDurationMs(19), false);
    }
}
