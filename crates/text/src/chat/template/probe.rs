//! How a template prints the texts of messages: determined once by rendering probes, and checked
//! for every prompt.
//!
//! Some templates read a content only as a list of parts and print nothing for a text; some omit a
//! role.
//! Neither raises an error.

use jiff::civil::DateTime;
use serde_json::{Map, Value, json};

use super::ChatTemplate;

/// The text of probes; no template contains it.
const PROBE: &str = "Qzvxkw";
/// The current time in probes.
const NOON: DateTime = jiff::civil::datetime(2026, 1, 1, 12, 0, 0, 0);
/// How many words to look for of a text that doesn't occur verbatim.
const WORDS: usize = 32;
/// How many messages that aren't in the prompt verbatim may be searched word by word.
const MISSES: usize = 64;

/// How a template reads the texts of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The roles whose content it reads only as parts.
    parts: [bool; ROLES.len()],
    /// It prints no system message.
    pub without_system: bool,
}

const ROLES: [&str; 4] = ["user", "system", "assistant", "tool"];

impl Reading {
    /// Renders a conversation for each role, with a text and, if that isn't printed, with a part.
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

    /// Converts texts to parts for those roles that are read only as parts.
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

/// The shortest conversation in which `role` sends the probe.
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

/// The role and the text of the first message whose text isn't in the prompt.
/// Templates may trim a text, escape it, remove reasoning from it or leave out text next to a call.
/// So if a text doesn't occur verbatim, half of its words must.
pub(super) fn lost<'a>(messages: &'a [Value], prompt: &str) -> Option<(&'a str, &'a str)> {
    // Messages occur in order, so that one pass finds all of them.
    // Only the system message may be anywhere.
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
            // Everything before the last line, or before the end of reasoning in it, may be
            // reasoning.
            let last = text.lines().next_back().unwrap_or_default();
            let last = last.rsplit("</think>").next().unwrap_or_default();
            let shown = if assistant { last.trim() } else { text };
            let start = if role == "system" { 0 } else { from };
            // Each such search reads the whole prompt.
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

/// Whether at least half of the words occur in the prompt.
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
        // A repeated text has to occur again, after the first.
        check(json!([message("user", "one two"), message("user", "one two")]), "<user>one two<end>", None);
        check(json!([message("user", "u"), message("system", "S")]), "<system>S<user>u", None);
        let part = json!([{"type": "text", "text": "words"}]);
        check(json!([{"role": "user", "content": part}]), "<user>", Some(("user", "words")));
    }
}
