//! The policies that refused calls in a run.

use std::collections::BTreeMap;

use crate::trace::Record;
use crate::types::Verdict;

/// The name that a trace records for a refusal because the tool isn't on the NPC's list.
pub(super) const LIST: &str = "the NPC's list";

/// The name that a trace records for a refusal by a phase.
pub(super) fn by_phase(phase: &str) -> String {
    format!("the phase `{phase}`")
}

/// Whether the last call of a run that could have changed something was refused.
/// `changes` tells whether the tool of this name may change anything; `None` if that is unknown.
/// `surely` tells whether its success means a change: a command may only look.
pub fn last_change_refused<'r>(
    records: impl IntoIterator<Item = &'r Record>,
    changes: impl Fn(&str) -> Option<bool>,
    surely: impl Fn(&str) -> bool,
) -> bool {
    let (mut refused, mut denied) = (false, false);
    for record in records {
        match record {
            Record::Permission { jinx, verdict: Verdict::Deny, by } => {
                // A tool that a model made up would have changed nothing.
                denied |= changes(jinx).unwrap_or(by != LIST);
            }
            Record::ToolResult { call, result, .. } => match std::mem::take(&mut denied) {
                true => refused |= !result.ok,
                false => refused &= !(result.ok && surely(&call.name)),
            },
            _ => {}
        }
    }
    refused
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
    fn the_last_change_counts() {
        let result = |name: &str, ok: bool| {
            let call = ToolCall { id: "1".into(), name: name.into(), arguments: serde_json::Map::new() };
            let result = if ok { ToolResult::succeeded("") } else { ToolResult::failed("no") };
            Record::ToolResult { call, result, text: String::new(), seconds: 0.0 }
        };
        let denied = |name: &str| Record::Permission {
            jinx: name.to_owned(),
            verdict: Verdict::Deny,
            by: "an answer".to_owned(),
        };
        let changes = |name: &str| (name != "invented").then_some(name != "read");
        let check = |records: &[Record], expected| {
            let surely = |name: &str| name == "write";
            assert_eq!(last_change_refused(records, changes, surely), expected, "{records:?}");
        };
        let (write, no) = (result("write", true), [denied("write"), result("write", false)]);
        let [first, second] = no.clone();
        check(&[], false);
        check(&no, true);
        check(&[write.clone(), first.clone(), second.clone()], true);
        check(&[first.clone(), second.clone(), write], false);
        // A read, or a failed call, doesn't make up for a refusal.
        let (read, failed) = (result("read", true), result("write", false));
        check(&[first.clone(), second.clone(), read.clone(), failed.clone()], true);
        // A refused read and a failure are no refused changes.
        check(&[denied("read"), result("read", false), failed], false);
        let invented =
            Record::Permission { jinx: "invented".into(), verdict: Verdict::Deny, by: LIST.to_owned() };
        check(&[invented, result("invented", false)], false);
        // A command may only have looked.
        check(&[first.clone(), second.clone(), result("shell", true)], true);
        // A jinx may catch a refusal within it.
        check(&[first, result("jinx", true)], false);
    }

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
