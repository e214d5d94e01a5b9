//! What a template makes of messages' texts: found out by rendering probes, once, and held against
//! every prompt.
//!
//! Some templates read a content only as a list of parts and print nothing for a text; some leave a
//! role out.
//! Neither says so.

use jiff::civil::DateTime;
use serde_json::{Map, Value, json};

use super::ChatTemplate;

/// The text that probes say: nothing that templates contain.
const PROBE: &str = "Qzvxkw";
/// The time of probes.
const NOON: DateTime = jiff::civil::datetime(2026, 1, 1, 12, 0, 0, 0);
/// How many words of a text are looked for that doesn't occur as it is.
const WORDS: usize = 32;
/// How many messages that don't stand in the prompt as they are may be looked for word by word.
const MISSES: usize = 64;

/// How a template reads what is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The roles whose content it reads only as parts.
    parts: [bool; ROLES.len()],
    /// It prints no system message.
    pub without_system: bool,
}

const ROLES: [&str; 4] = ["user", "system", "assistant", "tool"];

impl Reading {
    /// Renders a conversation for each role, with a text and, if that is not printed, with a part.
    pub(super) fn of(template: &ChatTemplate) -> Self {
        let mut reading = Reading::default();
        let prints = |reading: Reading, role: &str| {
            let mut messages = conversation(role);
            reading.give_parts(&mut messages);
            let tool =
                json!({"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}});
            let mut variables = Map::new();
            variables.insert("messages".into(), messages.into());
            if role == "tool" {
                variables.insert("tools".into(), json!([{"type": "function", "function": tool}]));
            }
            variables.insert("add_generation_prompt".into(), true.into());
            template.render_values(&variables, NOON).is_ok_and(|prompt| prompt.contains(PROBE))
        };
        for (index, role) in ROLES.into_iter().enumerate() {
            if prints(reading, role) {
                continue;
            }
            let mut other = reading;
            other.parts[index] = true;
            if prints(other, role) {
                reading = other;
            } else if role == "system" {
                reading.without_system = prints(reading, "user");
            }
        }
        reading
    }

    /// Makes parts of the texts of those roles that are read only so.
    pub(super) fn give_parts(self, messages: &mut [Value]) {
        for message in messages {
            let role =
                message["role"].as_str().and_then(|role| ROLES.iter().position(|known| *known == role));
            if role.is_some_and(|role| self.parts[role]) && message["content"].is_string() {
                message["content"] = json!([{"type": "text", "text": message["content"].take()}]);
            }
        }
    }
}

/// The shortest conversation in which `role` says the probe.
fn conversation(role: &str) -> Vec<Value> {
    let says = |role: &str, text: &str| json!({"role": role, "content": text});
    let call = json!({"type": "function", "id": "call00001", "function": {"name": "f", "arguments": {}}});
    match role {
        "system" => vec![says("system", PROBE), says("user", "a")],
        "assistant" => vec![says("user", "a"), says("assistant", PROBE), says("user", "b")],
        "tool" => vec![
            says("user", "a"),
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
            json!({"role": "tool", "content": PROBE, "name": "f", "tool_call_id": "call00001"}),
        ],
        _ => vec![says("user", PROBE)],
    }
}

/// The first message whose text does not stand in the prompt: its role and its text.
/// Templates may trim a text, escape it, take thoughts out of it or leave out what stands beside a
/// call.
/// So of a text that does not occur as it is, half the words must.
pub(super) fn lost<'a>(messages: &'a [Value], prompt: &str) -> Option<(&'a str, &'a str)> {
    // Messages stand in their order, so that all are looked for in one pass.
    // Only the system's may stand anywhere.
    let (mut from, mut misses) = (0, 0);
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        let texts: Vec<&str> = match &message["content"] {
            Value::String(text) => vec![text],
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            _ => Vec::new(),
        };
        let assistant = role == "assistant";
        if assistant && message.get("tool_calls").is_some() {
            continue;
        }
        for text in texts {
            let text = text.trim();
            // What precedes the last line, or the end of thoughts in it, may be thoughts.
            let last = text.lines().next_back().unwrap_or_default();
            let last = last.rsplit("</think>").next().unwrap_or_default();
            let shown = if assistant { last.trim() } else { text };
            let start = if role == "system" { 0 } else { from };
            // Each goes through the whole prompt.
            if misses > MISSES {
                return None;
            }
            match prompt[start..].find(shown) {
                Some(at) if role != "system" => from = start + at + shown.len(),
                Some(_) => {}
                None if prompt.contains(shown) || mostly(shown, prompt) => misses += 1,
                None => return Some((role, text)),
            }
        }
    }
    None
}

/// Whether at least half of the words stand in the prompt.
fn mostly(text: &str, prompt: &str) -> bool {
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let looked_for = words.iter().step_by(words.len().div_ceil(WORDS).max(1));
    let (found, all) =
        looked_for.fold((0, 0), |(found, all), word| (found + usize::from(prompt.contains(word)), all + 1));
    2 * found >= all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_prompt_leaves_out_is_found() {
        let check = |messages: Value, prompt: &str, expected: Option<(&str, &str)>| {
            let messages: Vec<Value> = serde_json::from_value(messages).unwrap();
            assert_eq!(lost(&messages, prompt), expected, "{prompt}");
        };
        let message = |role: &str, text: &str| json!({"role": role, "content": text});
        check(json!([message("user", " Hi there\n")]), "<user>Hi there<end>", None);
        check(json!([message("user", "Hi there")]), "<user><end>", Some(("user", "Hi there")));
        check(json!([message("tool", "{\"a\": \"b\n\"}")]), r#"<tool>"{\"a\": \"b\n\"}""#, None);
        check(json!([message("assistant", "<think>Hm.</think>\n\nYes.")]), "<assistant>Yes.", None);
        check(json!([message("assistant", "Hm, or no</think> Yes.")]), "<assistant>Yes.", None);
        check(json!([message("assistant", "No.")]), "<assistant>", Some(("assistant", "No.")));
        let call = json!({"role": "assistant", "content": "I look.", "tool_calls": [{}]});
        check(json!([call]), "<call>", None);
        // The same words again are looked for behind the first.
        check(json!([message("user", "one two"), message("user", "one two")]), "<user>one two<end>", None);
        check(json!([message("user", "u"), message("system", "S")]), "<system>S<user>u", None);
        let part = json!([{"type": "text", "text": "words"}]);
        check(json!([{"role": "user", "content": part}]), "<user>", Some(("user", "words")));
    }
}
