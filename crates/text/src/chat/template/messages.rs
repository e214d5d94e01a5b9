//! A request's conversation as the values that chat templates read, in the shape that Hugging Face
//! defined.
//!
//! Templates differ in what they can read; [`Dialect`] determines from a template's text what to
//! pass instead.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Value, json};

use crate::request::{Message, Request, Role, Tool, ToolCall};

/// How a template deviates from the usual way of reading a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    /// It reads `reasoning_content` as `thinking`.
    pub thinking: bool,
    /// It reads reasoning as a part of the content.
    pub chunks: bool,
    /// It writes harmony messages: a turn that calls has either thoughts or text, and reasoning has
    /// an effort.
    pub harmony: bool,
    /// It prints only a message's first call, or refuses several.
    pub one_call: bool,
    /// Ids of calls must have nine characters.
    pub nine: bool,
    /// It reads `tools` as `xml_tools`.
    pub xml_tools: bool,
    /// It prints no tools.
    pub without_tools: bool,
    /// It prints no calls.
    pub without_calls: bool,
    /// It has no place for results.
    pub without_results: bool,
    /// It refuses a system message.
    pub without_system: bool,
    /// It refuses turns that don't alternate.
    pub alternating: bool,
}

impl Dialect {
    /// The dialect of a template that looks up `variables`.
    pub(super) fn of(source: &str, variables: &HashSet<String>) -> Self {
        let has = |text: &str| source.contains(text);
        let (tools, xml_tools) = (variables.contains("tools"), variables.contains("xml_tools"));
        let (without_tools, without_calls) = (!tools && !xml_tools, !has("tool_calls"));
        Dialect {
            thinking: has("message.thinking"),
            chunks: has("[THINK]") && has("'thinking'"),
            harmony: has("<|channel|>analysis"),
            one_call: has("tool_calls[0]"),
            nine: has("[CALL_ID]") || has("length != 9"),
            xml_tools: xml_tools && !tools,
            without_tools,
            without_calls,
            // A template without either may still print messages of any role.
            without_results: (without_tools || without_calls) && !has("'tool'") && !has("\"tool\""),
            without_system: has("System role not supported"),
            alternating: has("must alternate"),
        }
    }

    /// Returns the dialect; if `described`, tools, calls and results aren't left to the template.
    pub(super) fn without(self, described: bool) -> Self {
        Dialect {
            xml_tools: self.xml_tools && !described,
            without_tools: self.without_tools || described,
            without_calls: self.without_calls || described,
            without_results: self.without_results || described,
            ..self
        }
    }

    /// The request's messages, the system prompt first.
    pub(super) fn messages(self, request: &Request) -> Vec<Value> {
        let system: Vec<&str> = request.system.iter().map(|segment| segment.text.as_str()).collect();
        let system = (!system.is_empty()).then(|| json!({"role": "system", "content": system.join("\n\n")}));
        let messages = match self.one_call {
            true => Cow::Owned(one_call_each(&request.messages)),
            false => Cow::Borrowed(&request.messages),
        };
        system.into_iter().chain(messages.iter().map(|message| self.message(message))).collect()
    }

    fn message(self, message: &Message) -> Value {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        let mut value = json!({"role": role, "content": message.content});
        if let Some(reasoning) = &message.reasoning_content {
            value["reasoning_content"] = reasoning.as_str().into();
            if self.thinking {
                value["thinking"] = reasoning.as_str().into();
            }
            if self.harmony && !message.tool_calls.is_empty() && !reasoning.is_empty() {
                value["content"] = "".into();
            }
            if self.chunks && !reasoning.is_empty() {
                let thinking = json!({"type": "thinking", "thinking": reasoning});
                let text =
                    (!message.content.is_empty()).then(|| json!({"type": "text", "text": message.content}));
                value["content"] = std::iter::once(thinking).chain(text).collect();
            }
        }
        if !message.tool_calls.is_empty() {
            value["tool_calls"] = message.tool_calls.iter().map(|call| self.call(call)).collect();
        }
        if let Some(id) = &message.tool_call_id {
            value["tool_call_id"] = self.id(id).into();
        }
        if let Some(name) = &message.name {
            value["name"] = name.as_str().into();
        }
        value
    }

    fn call(self, call: &ToolCall) -> Value {
        let function = json!({"name": call.name, "arguments": call.arguments});
        json!({"type": "function", "id": self.id(&call.id), "function": function})
    }

    /// The id, or nine letters and digits derived from it.
    fn id(self, id: &str) -> Cow<'_, str> {
        if !self.nine || id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Cow::Borrowed(id);
        }
        // FNV-1a is independent of library versions: prompts must not differ between runs.
        let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let digit = |_| {
            let digit = char::from_digit((hash % 36) as u32, 36).unwrap_or('0');
            hash /= 36;
            digit
        };
        Cow::Owned((0..9).map(digit).collect())
    }
}

/// Returns the conversation with one message, and its result, for each call.
fn one_call_each(messages: &[Message]) -> Vec<Message> {
    let mut out = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while let Some((message, after)) = rest.split_first() {
        rest = after;
        if message.tool_calls.len() < 2 {
            out.push(message.clone());
            continue;
        }
        let results = rest.iter().take_while(|message| message.role == Role::Tool).count();
        let (results, after) = rest.split_at(results);
        rest = after;
        let mut results: Vec<&Message> = results.iter().collect();
        for (index, call) in message.tool_calls.iter().enumerate() {
            // The first message keeps the text and the reasoning.
            let base = if index == 0 { message.clone() } else { Message::assistant("", Vec::new()) };
            out.push(Message { tool_calls: vec![call.clone()], ..base });
            let mine = |result: &&Message| result.tool_call_id.as_deref() == Some(&call.id);
            if let Some(at) = results.iter().position(mine) {
                out.push(results.remove(at).clone());
            }
        }
        out.extend(results.into_iter().cloned());
    }
    out
}

pub(super) fn tool_value(tool: &Tool) -> Value {
    let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
    json!({"type": "function", "function": function})
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Dialect = Dialect {
        thinking: false,
        chunks: false,
        harmony: false,
        one_call: false,
        nine: false,
        xml_tools: false,
        without_tools: false,
        without_calls: false,
        without_results: false,
        without_system: false,
        alternating: false,
    };

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "f".into(), arguments: serde_json::Map::new() }
    }

    #[test]
    fn calls_are_told_apart_where_a_message_may_have_one() {
        let (a, b) = (call("a"), call("b"));
        let both = Message {
            reasoning_content: Some("hm".into()),
            ..Message::assistant("x", vec![a.clone(), b.clone()])
        };
        let result = |call: &ToolCall| Message::tool_result(call, format!("of {}", call.id));
        let messages = [Message::user("q"), both.clone(), result(&b), result(&a), Message::user("r")];
        let expected = [
            Message::user("q"),
            Message { tool_calls: vec![a.clone()], ..both },
            result(&a),
            Message::assistant("", vec![b.clone()]),
            result(&b),
            Message::user("r"),
        ];
        assert_eq!(one_call_each(&messages), expected);
        assert_eq!(one_call_each(&expected), expected);
    }

    #[test]
    fn ids_get_nine_characters_where_they_must() {
        let check = |dialect: Dialect, id: &str, expected: &str| assert_eq!(dialect.id(id), expected);
        let nine = Dialect { nine: true, ..PLAIN };
        check(PLAIN, "call_0", "call_0");
        check(nine, "call00001", "call00001");
        check(nine, "call_0", "i5vp5silp");
        assert_ne!(nine.id("call_0"), nine.id("call_1"));
        assert_eq!(nine.id("").len(), 9);
    }

    #[test]
    fn harmony_has_thoughts_or_text() {
        let harmony = Dialect { thinking: true, harmony: true, ..PLAIN };
        let answer =
            Message { reasoning_content: Some("hm".into()), ..Message::assistant("x", vec![call("a")]) };
        let value = harmony.message(&answer);
        assert_eq!((&value["thinking"], &value["content"]), (&json!("hm"), &json!("")));
        let value = harmony.message(&Message { tool_calls: Vec::new(), ..answer });
        assert_eq!((&value["thinking"], &value["content"]), (&json!("hm"), &json!("x")));
    }
}
