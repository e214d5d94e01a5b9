//! What refused calls in a run, counted.

use std::collections::BTreeMap;

use crate::trace::Record;
use crate::types::Verdict;

/// What a trace says that a call was refused by, if it was by a phase.
pub(super) fn by_phase(phase: &str) -> String {
    format!("the phase `{phase}`")
}

/// How often each rule of a gate and each phase refused a call, as `rule NAME` and `phase NAME`.
pub fn refusals<'r>(records: impl IntoIterator<Item = &'r Record>) -> BTreeMap<String, u64> {
    let refused_by = |record: &Record| match record {
        Record::ToolResult { result, .. } | Record::Jinx { result, .. } => {
            result.blocked.as_ref().map(|blocked| format!("rule {}", blocked.rule))
        }
        Record::Permission { verdict: Verdict::Deny, by, .. } => {
            let phase = by.strip_prefix("the phase `")?.strip_suffix('`')?;
            Some(format!("phase {phase}"))
        }
        _ => None,
    };
    let mut counts = BTreeMap::new();
    for name in records.into_iter().filter_map(refused_by) {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use alara_engine::ToolCall;

    use super::*;
    use crate::types::{Blocked, ToolResult};

    #[test]
    fn counts_by_rule_and_phase() {
        let result = |rule: &str| {
            let call = ToolCall { id: "1".into(), name: "f".into(), arguments: serde_json::Map::new() };
            let result = ToolResult::blocked(Blocked { rule: rule.into(), ..Blocked::default() });
            Record::ToolResult { call, result, text: String::new(), seconds: 0.0 }
        };
        let permission =
            |verdict, by: &str| Record::Permission { jinx: "f".into(), verdict, by: by.to_owned() };
        let step = Record::Jinx {
            jinx: "f".into(),
            place: "work".into(),
            arguments: serde_json::Map::new(),
            result: ToolResult::blocked(Blocked { rule: "own".into(), ..Blocked::default() }),
            seconds: 0.0,
        };
        let records = [
            permission(Verdict::Deny, "the rule `own` of shop.gate"),
            result("own"),
            step,
            permission(Verdict::Allow, "shop.gate"),
            permission(Verdict::Deny, &by_phase("verify")),
            permission(Verdict::Deny, "team.ctx:3"),
            result("open"),
        ];
        let expected = [("phase verify", 1), ("rule open", 1), ("rule own", 2)];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(refusals(&records), BTreeMap::from(expected));
    }
}
