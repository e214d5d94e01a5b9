//! The conversation of a request, independent of the wire format.

use std::collections::HashMap;

use alara_engine::{Message, Role, Segment};
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// A conversation, read message by message from any wire format.
/// Accepts any history: parts that no template supports are moved to a supported place, or
/// converted to text.
#[derive(Debug, Default)]
pub struct History {
    system: Vec<Segment>,
    messages: Vec<Message>,
    /// System messages after the first answer, which wait for the user's next turn:
    /// templates support them only at the beginning.
    late: Vec<String>,
    /// Names of the called tools, by call id.
    called: HashMap<String, String>,
    /// Names of calls converted to text, by call id; their results are converted too.
    told: HashMap<String, String>,
}

impl History {
    /// Starts after earlier messages.
    pub fn after(messages: Vec<Message>) -> Self {
        let mut history = History::default();
        for message in messages {
            history.add(message);
        }
        history
    }

    /// Adds a system message.
    pub fn system(&mut self, text: &str) {
        let text = system_text(text);
        match () {
            () if text.is_empty() => {}
            // Also behind the question, where Claude Code puts lists that never change: in the
            // user's turn they would not be cached, and drown the question.
            () if self.messages.iter().all(|message| message.role == Role::User) => {
                self.system.push(Segment { name: "system".into(), text: text.to_owned() });
            }
            () => self.late.push(text.to_owned()),
        }
    }

    /// Adds any other message.
    /// Derives a result's tool name from its call.
    pub fn add(&mut self, mut message: Message) {
        match message.role {
            Role::User => {
                let late = std::mem::take(&mut self.late);
                message.content = late.into_iter().chain([message.content]).collect::<Vec<_>>().join("\n\n");
            }
            Role::Assistant => self.place_late(),
            Role::Tool => {
                let id = message.tool_call_id.clone().unwrap_or_default();
                message.name = self.called.get(&id).cloned().or(message.name);
                let known = self.called.contains_key(&id) && !self.told.contains_key(&id);
                if !known {
                    let name =
                        self.told.get(&id).cloned().or(message.name).unwrap_or_else(|| "a tool".into());
                    return self.add(Message::user(format!("The result of {name}:\n{}", message.content)));
                }
            }
            Role::System => return self.system(&message.content),
        }
        self.called.extend(message.tool_calls.iter().map(|call| (call.id.clone(), call.name.clone())));
        self.messages.push(message);
    }

    /// Adds a message, if there is one.
    pub fn extend(&mut self, message: Option<Message>) {
        if let Some(message) = message {
            self.add(message);
        }
    }

    /// Records that the call `id` of `name` was converted to text.
    pub fn record_written_call(&mut self, id: String, name: String) {
        self.told.insert(id, name);
    }

    /// Moves late system messages into the user's turn: the latest one, if it hasn't been answered.
    fn place_late(&mut self) {
        let late = std::mem::take(&mut self.late).join("\n\n");
        match self.messages.last_mut() {
            _ if late.is_empty() => {}
            Some(last) if last.role == Role::User => last.content = format!("{late}\n\n{}", last.content),
            _ => self.messages.push(Message::user(late)),
        }
    }

    /// Returns the system prompt and the other messages.
    ///
    /// # Errors
    /// There are no messages.
    pub fn end(mut self) -> Result<(Vec<Segment>, Vec<Message>), Refusal> {
        if self.messages.is_empty() && self.system.is_empty() {
            return Err(Refusal::invalid("messages", "`messages` is empty"));
        }
        self.place_late();
        Ok((self.system, self.messages))
    }
}

/// Returns a system text without leading header lines, which clients add for a service and which
/// differ each time, such as `x-anthropic-billing-header: cc_version=2.1; cch=a1b2;`.
pub fn system_text(text: &str) -> &str {
    let mut text = text.trim();
    loop {
        let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
        if !is_header(line.trim()) {
            return text;
        }
        text = rest.trim_start();
    }
}

/// Whether a line is a service's header: `x-NAME:`, followed by pairs of names and values.
fn is_header(line: &str) -> bool {
    let Some((name, value)) = line.split_once(':') else { return false };
    let pairs = value.split(';').map(str::trim).filter(|pair| !pair.is_empty());
    let is_pair = |pair: &str| pair.split_once('=').is_some_and(|(name, _)| !name.contains(' '));
    name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("x-"))
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && pairs.clone().next().is_some()
        && pairs.into_iter().all(is_pair)
}

/// Adds a call whose arguments aren't a JSON object to a message's text.
pub fn tell_call(message: &mut Message, name: &str, arguments: &str) {
    let between = if message.content.is_empty() { "" } else { "\n\n" };
    message.content += &format!("{between}A call of {name} with {arguments}");
}

/// Parses a call's arguments: an object, or its JSON text.
///
/// # Errors
/// The text, if it isn't a JSON object.
pub fn parsed(arguments: Option<Value>) -> Result<Map<String, Value>, String> {
    match arguments {
        None => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(Map::new()),
        Some(Value::String(text)) => serde_json::from_str(&text).map_err(|_| text),
        Some(other) => Err(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_for_services_are_no_part_of_a_system_prompt() {
        let check = |text: &str, expected: &str| assert_eq!(system_text(text), expected, "{text}");
        let header = "x-anthropic-billing-header: cc_version=2.1.36.abc; cc_entrypoint=cli; cch=0f3a9;";
        check(header, "");
        check(&format!("{header}\nYou are Claude."), "You are Claude.");
        check(&format!("\n{header}\r\n\n{header}\n\nYou\nare."), "You\nare.");
        check("X-Request-Id: id=5\nHello.", "Hello.");
        // Text meant for the model remains.
        for text in [
            "You are a clerk.",
            "x-rays: you know all about them.",
            "x-ray: dose=low is what you say; never guess.",
            "x:",
            "x-a:",
            "Hello.\nx-anthropic-billing-header: cch=1;",
            "\u{e9}-a: b=c",
        ] {
            check(text, text);
        }
    }
}
