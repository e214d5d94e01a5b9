//! Hidden tools: tools that an NPC may call only after it has read their names in a document.
//!
//! Neither its prompt nor its grammar names them, as a list of names would.
//! An NPC with such tools has two built-in ones: [`UNLOCK`] takes a name, any text, and returns the
//! inputs of the tool of this name; [`CALL`] calls it.
//! A name that the NPC may not unlock gets the same answer as a name that doesn't exist.
//!
//! The unlocked tools are folded from a conversation's records.
//! The prompt stays the same afterwards; only the constraint on [`CALL`] changes (see
//! [`Request::bound`](alara_text::request::Request::bound)).
//!
//! This module must not know how tools run, nor where conversations are recorded.

use alara_text::grammar::violation;
use alara_text::request::{Tool, ToolCall};
use serde_json::{Map, Value, json};

use crate::types::ToolResult;

/// The tool that unlocks another one.
pub const UNLOCK: &str = "unlock_tool";
/// The tool that calls unlocked tools.
pub const CALL: &str = "call_tool";
/// The argument of [`UNLOCK`], and the key of the tool's name in its result.
const NAME: &str = "name";
/// The arguments of [`CALL`].
const TOOL: &str = "tool";
const ARGUMENTS: &str = "arguments";
/// Most characters of a name.
const NAME_LENGTH: usize = 100;
/// The least characters of a suffix that can't be guessed; half of them are digits.
const SUFFIX: usize = 4;

/// Whether it is one of the two built-in tools.
pub fn is_built_in(name: &str) -> bool {
    [UNLOCK, CALL].contains(&name)
}

/// The two built-in tools, as the model sees them: the same whatever is hidden and unlocked.
pub fn tools() -> [Tool; 2] {
    let name =
        |description: &str| json!({"type": "string", "maxLength": NAME_LENGTH, "description": description});
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    [
        Tool {
            name: UNLOCK.to_owned(),
            description: "Unlock a tool that a document names; the result says what it does and takes".into(),
            parameters: object(json!({NAME: name("Its exact name")}), &[NAME]),
            strict: true,
        },
        Tool {
            name: CALL.to_owned(),
            description: "Call a tool that was unlocked".into(),
            parameters: object(
                json!({
                    TOOL: name("Its exact name"),
                    ARGUMENTS: {"type": "object", "description": "Its arguments, as told when it was unlocked"},
                }),
                &[TOOL, ARGUMENTS],
            ),
            strict: false,
        },
    ]
}

/// The result of a call of [`UNLOCK`], for an NPC that may unlock the tools `hidden`.
pub fn unlock(hidden: &[Tool], arguments: &Map<String, Value>) -> ToolResult {
    let [unlock, _] = tools();
    if let Some(violation) = violation(&unlock.parameters, arguments) {
        return ToolResult::failed(format!("the arguments don't fit the schema of `{UNLOCK}`: {violation}"));
    }
    let name = arguments.get(NAME).and_then(Value::as_str).unwrap_or_default().trim();
    match hidden.iter().find(|tool| tool.name == name) {
        Some(tool) => ToolResult::succeeded(describe(tool)),
        None => ToolResult::failed(format!(
            "no tool to unlock is called `{name}`: the documents tell the exact names"
        )),
    }
}

/// The description of an unlocked tool for the model.
pub fn describe(tool: &Tool) -> Value {
    json!({NAME: tool.name, "description": tool.description, "parameters": tool.parameters})
}

/// The tool that a call of [`UNLOCK`] with this result has unlocked.
pub fn unlocked<'r>(call: &ToolCall, result: &'r ToolResult) -> Option<&'r str> {
    (call.name == UNLOCK && result.ok).then(|| result.output.get(NAME)?.as_str()).flatten()
}

/// The constraint on the arguments of [`CALL`] for a call of this tool.
pub fn bound(tool: &Tool) -> Value {
    json!({
        "type": "object",
        "properties": {TOOL: {"type": "string", "enum": [tool.name]}, ARGUMENTS: tool.parameters},
        "required": [TOOL, ARGUMENTS],
        "additionalProperties": false,
    })
}

/// The arguments of [`CALL`] that call `tool` with these arguments.
pub fn wrapped(tool: &str, arguments: &Map<String, Value>) -> Map<String, Value> {
    Map::from_iter([(TOOL.to_owned(), tool.into()), (ARGUMENTS.to_owned(), Value::Object(arguments.clone()))])
}

/// Whether arguments have the form of [`wrapped`], so that `arguments` holds those of the inner
/// call.
pub(crate) fn is_wrapped(arguments: &Map<String, Value>) -> bool {
    let of = |name: &str| arguments.get(name);
    arguments.len() == 2
        && of(TOOL).is_some_and(Value::is_string)
        && of(ARGUMENTS).is_some_and(Value::is_object)
}

/// The arguments of [`CALL`] that hold the inner call's name and arguments.
pub const PLACES: (&str, &str) = (TOOL, ARGUMENTS);

/// The tool that a call of [`CALL`] names.
pub fn named(call: &ToolCall) -> Option<&str> {
    (call.name == CALL).then(|| call.arguments.get(TOOL)?.as_str().map(str::trim)).flatten()
}

/// The inner call of a call of [`CALL`], with the same id.
///
/// # Errors
/// Its arguments don't name a tool or contain no arguments.
pub fn inner(call: &ToolCall) -> Result<ToolCall, String> {
    let known = |name: &&String| [TOOL, ARGUMENTS].contains(&name.as_str());
    if let Some(other) = call.arguments.keys().find(|name| !known(name)) {
        return Err(format!("`{CALL}` has no argument `{other}`; it takes: {TOOL}, {ARGUMENTS}"));
    }
    let Some(name) = named(call) else {
        return Err(format!("`{CALL}` is to name the tool that it calls in its argument `{TOOL}`"));
    };
    let arguments = match call.arguments.get(ARGUMENTS) {
        None | Some(Value::Null) => Some(Map::new()),
        Some(Value::Object(arguments)) => Some(arguments.clone()),
        // Models without a grammar often encode the object again as text.
        Some(Value::String(text)) if text.trim().is_empty() => Some(Map::new()),
        Some(Value::String(text)) => serde_json::from_str(text).ok(),
        Some(_) => None,
    };
    let arguments = arguments.ok_or_else(|| {
        format!("the argument `{ARGUMENTS}` of `{CALL}` is to be a JSON object: the arguments of the tool")
    })?;
    Ok(ToolCall { id: call.id.clone(), name: name.to_owned(), arguments })
}

/// The answer about a tool that wasn't unlocked, whether or not it exists.
pub fn locked(name: &str) -> String {
    format!("`{name}` is not unlocked: call `{UNLOCK}` with its exact name first")
}

/// The answer to a call of an unlocked tool by its own name.
pub fn by_call(name: &str) -> String {
    let call = json!({TOOL: name, ARGUMENTS: {}});
    format!("`{name}` is called by `{CALL}`, as in {call}")
}

/// Whether a tool's name ends in a text that can't be guessed: `file_dispute_4821`.
pub fn is_unguessable(name: &str) -> bool {
    let Some((_, suffix)) = name.rsplit_once(['_', '-']) else { return false };
    let digits = suffix.chars().filter(char::is_ascii_digit).count();
    suffix.len() >= SUFFIX && digits * 2 >= suffix.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Tool {
        let parameters =
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        Tool { name: name.into(), description: "Does it".into(), parameters, strict: false }
    }

    fn map(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("{value} is no object") };
        map
    }

    fn call(name: &str, arguments: Value) -> ToolCall {
        ToolCall { id: "7".into(), name: name.into(), arguments: map(arguments) }
    }

    #[test]
    fn names_that_nobody_guesses() {
        let check = |name: &str, expected| assert_eq!(is_unguessable(name), expected, "{name}");
        check("file_dispute_4821", true);
        check("file-dispute-x7k2", true);
        check("close_7f3e9b", true);
        check("close_account", false);
        check("close_step1", false);
        check("close_v2", false);
        check("close4821", false);
        check("close_", false);
    }

    #[test]
    fn unlocking_tells_what_it_takes_or_that_there_is_nothing() {
        let hidden = [tool("a_1111"), tool("b_2222")];
        let unlock = |arguments: Value| unlock(&hidden, &map(arguments));
        let opened = unlock(json!({"name": " b_2222 "}));
        assert_eq!((opened.ok, &opened.output["parameters"]), (true, &tool("").parameters));
        assert_eq!(unlocked(&call(UNLOCK, json!({})), &opened), Some("b_2222"));
        assert_eq!(unlocked(&call("other", json!({})), &opened), None);
        let closed = unlock(json!({"name": "c_3333"}));
        assert_eq!(closed.error, "no tool to unlock is called `c_3333`: the documents tell the exact names");
        assert_eq!(unlocked(&call(UNLOCK, json!({})), &closed), None);
        assert!(unlock(json!({"tool": "b_2222"})).error.contains("don't fit the schema of `unlock_tool`"));
        assert!(unlock(json!({"name": 2})).error.contains("don't fit the schema of `unlock_tool`"));
    }

    #[test]
    fn the_call_within() {
        let check = |arguments: Value, expected: Result<Value, &str>| {
            let found = inner(&call(CALL, arguments.clone()));
            match expected {
                Ok(expected) => {
                    let found = found.unwrap();
                    assert_eq!((found.id.as_str(), found.name.as_str()), ("7", "a_1111"));
                    assert_eq!(Value::Object(found.arguments), expected, "{arguments}");
                }
                Err(expected) => assert!(found.unwrap_err().contains(expected), "{arguments}"),
            }
        };
        check(json!({"tool": "a_1111", "arguments": {"n": 1}}), Ok(json!({"n": 1})));
        check(json!({"tool": "a_1111", "arguments": "{\"n\": 1}"}), Ok(json!({"n": 1})));
        check(json!({"tool": "a_1111", "arguments": " "}), Ok(json!({})));
        check(json!({"tool": "a_1111"}), Ok(json!({})));
        check(json!({"tool": "a_1111", "arguments": [1]}), Err("a JSON object"));
        check(json!({"tool": "a_1111", "arguments": "n = 1"}), Err("a JSON object"));
        check(json!({"tool": "a_1111", "n": 1}), Err("no argument `n`"));
        check(json!({"arguments": {}}), Err("is to name the tool"));
        let wrapped = wrapped("a_1111", &map(json!({"n": 1})));
        assert!(is_wrapped(&wrapped));
        assert_eq!(
            inner(&ToolCall { arguments: wrapped.clone(), ..call(CALL, json!({})) }).unwrap().arguments["n"],
            1
        );
        assert_eq!(violation(&bound(&tool("a_1111")), &wrapped), None);
        assert!(violation(&bound(&tool("b_2222")), &wrapped).is_some());
        assert!(violation(&tools()[1].parameters, &wrapped).is_none());
    }
}
