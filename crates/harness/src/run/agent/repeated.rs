//! Notices when a model makes the same call again and again, and nothing comes of it.

use alara_engine::ToolCall;

use crate::trace::alike;
use crate::types::ToolResult;

/// The latest call with its result, and how often both came in a row.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    latest: Option<(ToolCall, ToolResult)>,
    times: usize,
}

impl Repeated {
    /// Takes note of a call and its result; gives how often the same call had the same result in a
    /// row, this time included.
    /// Another call or another result begins anew: who asks for the time, or waits for something,
    /// does not repeat himself.
    pub(super) fn note(&mut self, call: &ToolCall, result: &ToolResult) -> usize {
        let same = self.latest.as_ref().is_some_and(|(before, gave)| {
            before.name == call.name && before.arguments == call.arguments && alike(gave, result)
        });
        self.times = if same { self.times + 1 } else { 1 };
        self.latest = Some((call.clone(), result.clone()));
        self.times
    }
}

/// The note for the model beside the result of a call that came so often in a row.
pub(super) fn note(times: usize) -> String {
    match times {
        0 | 1 => String::new(),
        _ => "the same call gave the same result as before: it changed nothing".to_owned(),
    }
}
