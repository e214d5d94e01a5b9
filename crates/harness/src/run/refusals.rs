//! The policies that refused calls in a run.

use std::collections::BTreeMap;

use alara_policy::decision::{self, LIST};

use crate::trace::Record;
use crate::types::Verdict;

/// Whether the last call of a run that could have changed something was refused.
/// `changes` tells whether the tool of this name may change anything; `None` if that is unknown.
pub fn last_change_refused<'r>(
    records: impl IntoIterator<Item = &'r Record>,
    changes: impl Fn(&str) -> Option<bool>,
) -> bool {
    let (mut refused, mut denied) = (false, false);
    for record in records {
        match record {
            Record::Permission { jinx, verdict: Verdict::Deny, by } => {
                // A tool that a model made up would have changed nothing.
                denied |= changes(jinx).unwrap_or(by != LIST);
            }
            Record::ToolResult { result, .. } => refused |= std::mem::take(&mut denied) && !result.ok,
            Record::Changed { .. } => refused = false,
            _ => {}
        }
    }
    refused
}

/// How often each rule of a gate, each phase and each hook refused a call, as `rule NAME`,
/// `phase NAME` and `hook NAME`.
pub fn refusals<'r>(records: impl IntoIterator<Item = &'r Record>) -> BTreeMap<String, u64> {
    let refused_by = |record: &Record| match record {
        Record::ToolResult { result, .. } | Record::Jinx { result, .. } => {
            result.blocked.as_ref().map(|blocked| format!("rule {}", blocked.rule))
        }
        Record::Permission { verdict: Verdict::Deny, by, .. } => decision::refuser(by),
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
            assert_eq!(last_change_refused(records, changes), expected, "{records:?}");
        };
        let (changed, write) = (Record::Changed { files: 1 }, result("write", true));
        let [first, second] = [denied("write"), result("write", false)];
        check(&[], false);
        check(&[first.clone(), second.clone()], true);
        check(&[changed.clone(), write.clone(), first.clone(), second.clone()], true);
        check(&[first.clone(), second.clone(), changed, write], false);
        // A read, a failed call or a command that only looks doesn't make up for a refusal.
        let (read, failed) = (result("read", true), result("write", false));
        check(&[first.clone(), second.clone(), read, failed.clone()], true);
        check(&[first.clone(), second.clone(), result("shell", true)], true);
        // Nor does the success of the call that contains the refused one.
        check(&[first.clone(), second, result("delegate", true)], true);
        // A refused read and a failure are no refused changes.
        check(&[denied("read"), result("read", false), failed], false);
        let invented =
            Record::Permission { jinx: "invented".into(), verdict: Verdict::Deny, by: LIST.to_owned() };
        check(&[invented, result("invented", false)], false);
        // A jinx may catch a refusal within it.
        check(&[first, result("jinx", true)], false);
    }

    #[test]
    fn counts_by_rule_phase_and_hook() {
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
            permission(Verdict::Deny, "the phase `verify`"),
            permission(Verdict::Deny, "the hook `guard`"),
            permission(Verdict::Deny, "team.ctx:3"),
            result("open"),
        ];
        let expected = [("hook guard", 1), ("phase verify", 1), ("rule open", 1), ("rule own", 2)];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(refusals(&records), BTreeMap::from(expected));
    }
}
