//! The calls of a dialogue, extracted from its trace, and their equality.

use std::collections::BTreeMap;

use alara_engine::ToolCall;
use alara_harness::hidden::{self, CALL};
use alara_harness::run::refusals;
use alara_harness::trace::{Entry, PERSON, Record};
use alara_harness::types::Verdict;
use serde_json::{Map, Value};

use super::database::normal;
use super::{Action, Side};

/// The conversation of a user played by an NPC.
pub const USER: &str = "@user";

/// An issued call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The tool and its arguments; for a hidden tool, those of the hidden tool itself.
    pub what: Target,
    /// Whether it succeeded.
    pub ok: bool,
    /// Whether the tool ran, because nothing refused it.
    pub made: bool,
    /// Whether a gate or phase refused it.
    pub blocked: bool,
    /// The result.
    pub output: Value,
}

/// The target of a call: tool and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The tool.
    pub name: String,
    /// The arguments, normalized so that equal ones are identical.
    pub arguments: Value,
}

impl Target {
    /// Returns the target of a call of `name`; for a hidden tool's call, that tool.
    pub fn of(name: &str, arguments: &Map<String, Value>) -> Self {
        let call = ToolCall { id: String::new(), name: name.to_owned(), arguments: arguments.clone() };
        let inner = (name == CALL).then(|| hidden::inner(&call).ok()).flatten();
        let ToolCall { name, arguments, .. } = inner.unwrap_or(call);
        Target { name, arguments: normal(&Value::Object(arguments)) }
    }
}

impl Action {
    /// Returns the target.
    pub fn target(&self) -> Target {
        Target::of(&self.name, &self.arguments)
    }
}

/// Whether a conversation belongs to this side.
pub fn is_of(side: Side, scope: &str) -> bool {
    let user = scope.starts_with(PERSON) || scope == USER || scope.starts_with(&format!("{USER}/"));
    user == (side == Side::User)
}

/// Returns the calls that a side issued, in order, without those in a jinx's steps.
pub fn calls(entries: &[Entry], side: Side) -> Vec<Call> {
    let mut begun: BTreeMap<&str, Begun> = BTreeMap::new();
    let mut calls = Vec::new();
    for entry in entries.iter().filter(|entry| is_of(side, &entry.scope)) {
        let scope = entry.scope.as_str();
        match &*entry.record {
            Record::ToolCall { .. } => drop(begun.insert(scope, Begun::default())),
            Record::Permission { verdict, .. } => {
                if let Some(begun) = begun.get_mut(scope) {
                    begun.denied |= *verdict == Verdict::Deny;
                    begun.blocked |= !refusals([&*entry.record]).is_empty();
                }
            }
            Record::ToolResult { call, result, .. } => {
                // A call that never began to run was answered only so that the turn could end.
                let begun = begun.remove(scope);
                let blocked = result.blocked.is_some() || begun.is_some_and(|begun| begun.blocked);
                calls.push(Call {
                    what: Target::of(&call.name, &call.arguments),
                    ok: result.ok,
                    made: !blocked && begun.is_some_and(|begun| !begun.denied),
                    blocked,
                    output: result.output.clone(),
                });
            }
            _ => {}
        }
    }
    calls
}

/// A running call.
#[derive(Clone, Copy, Default)]
struct Begun {
    denied: bool,
    blocked: bool,
}

/// Returns the elements of `wanted` without a matching call; each call matches one element.
pub fn missing<'a, T>(
    wanted: impl IntoIterator<Item = &'a T>,
    target: impl Fn(&T) -> Target,
    calls: impl IntoIterator<Item = &'a Target>,
) -> Vec<&'a T> {
    let mut calls: Vec<&Target> = calls.into_iter().collect();
    let mut lacking = Vec::new();
    for one in wanted {
        let meant = target(one);
        match calls.iter().position(|call| **call == meant) {
            Some(index) => drop(calls.swap_remove(index)),
            None => lacking.push(one),
        }
    }
    lacking
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use alara_harness::types::{Blocked, ToolResult};
    use serde_json::json;

    use super::*;

    pub(crate) fn entry(scope: &str, record: Record) -> Entry {
        Entry { scope: scope.to_owned(), record: Arc::new(record) }
    }

    pub(crate) fn map(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("{value} is no mapping") };
        map
    }

    /// Returns the records of a call with this result, refused by `by`.
    pub(crate) fn call(
        scope: &str,
        name: &str,
        arguments: Value,
        result: ToolResult,
        by: &str,
    ) -> Vec<Entry> {
        let call = ToolCall { id: "1".into(), name: name.into(), arguments: map(arguments) };
        let mut entries = vec![entry(scope, Record::ToolCall { call: call.clone() })];
        if !by.is_empty() {
            let record = Record::Permission { jinx: name.into(), verdict: Verdict::Deny, by: by.into() };
            entries.push(entry(scope, record));
        }
        entries.push(entry(scope, Record::ToolResult { call, result, text: String::new(), seconds: 0.0 }));
        entries
    }

    pub(crate) fn blocked() -> ToolResult {
        ToolResult::blocked(Blocked { rule: "r".into(), ..Blocked::default() })
    }

    #[test]
    fn calls_of_each_side() {
        let ok = || ToolResult::succeeded("x");
        let no = || ToolResult::failed("no");
        let never = Record::ToolResult {
            call: ToolCall { id: "9".into(), name: "late".into(), arguments: Map::new() },
            result: no(),
            text: String::new(),
            seconds: 0.0,
        };
        let entries = [
            call("", "get", json!({"id": 1.0}), ok(), ""),
            call("", "call_tool", json!({"tool": "file_1", "arguments": "{\"n\": 2}"}), blocked(), ""),
            call("call_3/work", "put", json!({}), no(), "the phase `verify`"),
            call("", "put", json!({}), no(), "the NPC's list"),
            call("@user", "phone", json!({}), ok(), ""),
            call("/", "phone", json!({"a": 1}), ok(), ""),
            vec![entry("", never)],
        ];
        let entries = entries.concat();
        let told = |side| -> Vec<String> {
            let calls = calls(&entries, side);
            let flags = |call: &Call| [call.ok, call.made, call.blocked].map(u8::from);
            calls
                .iter()
                .map(|call| format!("{}{} {:?}", call.what.name, call.what.arguments, flags(call)))
                .collect()
        };
        assert_eq!(
            told(Side::Agent),
            [
                "get{\"id\":1} [1, 1, 0]",
                "file_1{\"n\":2} [0, 0, 1]",
                "put{} [0, 0, 1]",
                "put{} [0, 0, 0]",
                "late{} [0, 0, 0]"
            ]
        );
        assert_eq!(told(Side::User), ["phone{} [1, 1, 0]", "phone{\"a\":1} [1, 1, 0]"]);
    }

    #[test]
    fn one_call_stands_for_one() {
        let target = |n: u64| Target::of("f", &map(json!({"n": n})));
        let wanted = [1, 2, 2];
        let calls = [target(2), target(3), target(1)];
        assert_eq!(missing(&wanted, |n| target(*n), &calls), [&2]);
    }
}
