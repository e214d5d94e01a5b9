//! The `messages` of a request.

use alara_engine::{Message, Role, Segment, ToolCall};
use serde_json::Value;

use crate::fields::Fields;
use crate::history::{History, parsed, tell_call};
use crate::refusal::Refusal;

/// Parses the messages: the leading system prompt, and the rest.
///
/// # Errors
/// A field that can't be parsed, by name.
pub fn read(fields: &mut Fields) -> Result<(Vec<Segment>, Vec<Message>), Refusal> {
    let mut history = History::default();
    for mut fields in fields.objects("messages")? {
        let message = message(&mut fields, &mut history)?;
        fields.end();
        history.add(message);
    }
    history.end()
}

fn message(fields: &mut Fields, history: &mut History) -> Result<Message, Refusal> {
    let role = match fields.needed("role")?.as_str() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" | "function" => Role::Tool,
        _ => return Err(fields.refuse("role", "must be system, developer, user, assistant or tool")),
    };
    let mut message = Message { role, content: content(fields, "content")?, ..Message::user("") };
    if role != Role::System {
        message.name = fields.text("name")?;
    }
    if role == Role::Assistant {
        message.reasoning_content = fields.text("reasoning_content")?.or(fields.text("reasoning")?);
        calls(fields, &mut message, history)?;
        if let Some(refusal) = fields.text("refusal")? {
            message.content += &refusal;
        }
        // Part of this server's own answers.
        fields.ignore(&["alara"]);
    }
    if role == Role::Tool {
        message.tool_call_id = fields.text("tool_call_id")?;
    }
    Ok(message)
}

/// Returns the text in the field `name`: a text, or a list of text parts.
///
/// # Errors
/// The field has other content, such as an image.
pub fn content(fields: &mut Fields, name: &str) -> Result<String, Refusal> {
    match fields.take(name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(Value::Array(parts)) => {
            let mut text = String::new();
            for (index, part) in parts.into_iter().enumerate() {
                let mut part = fields.within(part, &format!("{name}[{index}]"))?;
                let kind = part.needed("type")?;
                text += &match kind.as_str() {
                    "text" | "input_text" | "output_text" => part.needed("text")?,
                    "refusal" => part.needed("refusal")?,
                    _ => {
                        return Err(
                            part.refuse("type", &format!("is {kind}, but only text is understood here"))
                        );
                    }
                };
                part.ignore(&["annotations", "logprobs"]);
                part.end();
            }
            Ok(text)
        }
        Some(_) => Err(fields.refuse(name, "must be a string or an array of parts")),
    }
}

/// Parses the calls of an assistant's message; a call whose arguments aren't a JSON object is added
/// to the text.
fn calls(fields: &mut Fields, message: &mut Message, history: &mut History) -> Result<(), Refusal> {
    for mut call in fields.objects("tool_calls")? {
        call.ignore(&["type", "index"]);
        let id = call.needed("id")?;
        let function = call.take("function").unwrap_or_default();
        let mut function = call.within(function, "function")?;
        call.end();
        let name = function.needed("name")?;
        let arguments = function.take("arguments");
        function.end();
        match parsed(arguments) {
            Ok(arguments) => message.tool_calls.push(ToolCall { id, name, arguments }),
            Err(text) => {
                tell_call(message, &name, &text);
                history.record_written_call(id, name);
            }
        }
    }
    Ok(())
}
