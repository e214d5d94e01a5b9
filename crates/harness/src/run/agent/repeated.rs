//! Detects a model that makes the same call again and again without progress.

use alara_engine::ToolCall;

use crate::trace::alike;
use crate::types::ToolResult;

/// The longest unit that counts as repeated, how often it must recur at the end of a text, and the
/// least bytes that the repetition must have: about the thresholds at which the engine ends a turn.
/// Cost: an answer of 1 KiB of the same line is rejected.
const UNIT: usize = 300;
const TIMES: usize = 12;
const BYTES: usize = 1024;

/// Whether a text ends in the same words again and again.
pub(super) fn circles(text: &str) -> bool {
    let bytes = text.trim_end().as_bytes();
    (1..=UNIT).any(|unit| {
        let pairs = bytes.iter().rev().zip(bytes.iter().rev().skip(unit));
        let repeated = pairs.take_while(|(one, other)| one == other).count();
        repeated + unit >= BYTES.max(TIMES * unit)
    })
}

/// The latest call with its result, and how often that pair occurred in a row.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    latest: Option<(ToolCall, ToolResult)>,
    times: usize,
}

impl Repeated {
    /// Records a call and its result; returns how often the same call had the same result in a row,
    /// this time included.
    /// Another call or another result restarts the count: a model that asks for the time, or waits
    /// for something, isn't repeating itself.
    pub(super) fn note(&mut self, call: &ToolCall, result: &ToolResult) -> usize {
        let same = self.latest.as_ref().is_some_and(|(before, gave)| {
            before.name == call.name && before.arguments == call.arguments && alike(gave, result)
        });
        self.times = if same { self.times + 1 } else { 1 };
        self.latest = Some((call.clone(), result.clone()));
        self.times
    }
}

/// The note for the model with the result of a call that recurred this many times in a row.
pub(super) fn note(times: usize) -> String {
    match times {
        0 | 1 => String::new(),
        _ => "the same call gave the same result as before: it changed nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_goes_round_in_circles() {
        let line = "The file is a program. ";
        assert!(circles(&format!("I have fixed it. {}The file", line.repeat(60))));
        assert!(!circles(&line.repeat(20)), "so short it may be meant");
        assert!(!circles(&format!("{}And so on.", line.repeat(60))), "it has found its way out");
        let counted: String = (0..400).map(|number| format!("line {number}\n")).collect();
        assert!(!circles(&counted));
        assert!(!circles(""));
    }
}
