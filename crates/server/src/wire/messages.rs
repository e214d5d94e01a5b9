//! The conversation of a request.

use std::collections::HashMap;

use alara_engine::{Message, Role, Segment, ToolCall};
use serde_json::{Map, Value};

use super::Refusal;
use super::fields::Fields;

/// Reads the messages: the system prompt that they begin with, and the rest.
pub fn read(messages: Vec<Value>) -> Result<(Vec<Segment>, Vec<Message>), Refusal> {
    if messages.is_empty() {
        return Err(Refusal::invalid("messages", "`messages` is empty"));
    }
    let mut system = Vec::new();
    let mut rest: Vec<Message> = Vec::new();
    // The tools that were called, by the ids of the calls.
    let mut called: HashMap<String, String> = HashMap::new();
    for (index, value) in messages.into_iter().enumerate() {
        let mut fields = Fields::of(value, &format!("messages[{index}]"))?;
        let mut message = message(&mut fields)?;
        match message.role {
            Role::System if rest.is_empty() => {
                system.push(Segment { name: "system".into(), text: message.content.trim().to_owned() });
                fields.ignore(&["name"]);
                fields.end()?;
                continue;
            }
            Role::System => {
                return Err(fields.refuse("role", "is a system message, which can only stand first"));
            }
            Role::Tool => {
                // Clients leave out the name; templates want it.
                message.name = message.tool_call_id.as_ref().and_then(|id| called.get(id)).cloned();
                if message.name.is_none() {
                    return Err(fields.refuse("tool_call_id", "belongs to no call of the messages before"));
                }
                fields.ignore(&["name"]);
            }
            Role::User | Role::Assistant => message.name = fields.text("name")?,
        }
        fields.end()?;
        called.extend(message.tool_calls.iter().map(|call| (call.id.clone(), call.name.clone())));
        rest.push(message);
    }
    system.retain(|segment: &Segment| !segment.text.is_empty());
    Ok((system, rest))
}

fn message(fields: &mut Fields) -> Result<Message, Refusal> {
    let role = match fields.needed("role")?.as_str() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => return Err(fields.refuse("role", "must be system, developer, user, assistant or tool")),
    };
    let mut message = Message { role, content: content(fields)?, ..Message::user("") };
    if role == Role::Assistant {
        message.reasoning_content = fields.text("reasoning_content")?.or(fields.text("reasoning")?);
        message.tool_calls = calls(fields)?;
        if let Some(refusal) = fields.text("refusal")? {
            message.content += &refusal;
        }
        // What answers of other servers carry along.
        fields.only("annotations", &[Value::Array(Vec::new())], "can't be honoured; leave it out")?;
        fields.ignore(&["alara"]);
    }
    if role == Role::Tool {
        message.tool_call_id = Some(fields.needed("tool_call_id")?);
    }
    Ok(message)
}

/// A text, or a list of parts that are texts.
fn content(fields: &mut Fields) -> Result<String, Refusal> {
    match fields.take("content") {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(Value::Array(parts)) => {
            let place = fields.place("content");
            let texts = parts.into_iter().enumerate().map(|(index, part)| {
                let mut part = Fields::of(part, &format!("{place}[{index}]"))?;
                let kind = part.needed("type")?;
                match kind.as_str() {
                    "text" | "refusal" => {
                        let text = part.needed(&kind)?;
                        part.end()?;
                        Ok(text)
                    }
                    _ => Err(part.refuse("type", &format!("is {kind}, but only text is understood here"))),
                }
            });
            texts.collect()
        }
        Some(_) => Err(fields.refuse("content", "must be a string or an array of parts")),
    }
}

fn calls(fields: &mut Fields) -> Result<Vec<ToolCall>, Refusal> {
    let place = fields.place("tool_calls");
    let calls = fields.list("tool_calls")?.unwrap_or_default().into_iter().enumerate();
    let calls = calls.map(|(index, call)| {
        let mut call = Fields::of(call, &format!("{place}[{index}]"))?;
        call.only("type", &["function".into()], "must be function")?;
        call.ignore(&["index"]);
        let id = call.needed("id")?;
        let function = call.take("function").unwrap_or_default();
        let mut function = Fields::of(function, &call.place("function"))?;
        call.end()?;
        let name = function.needed("name")?;
        let text = function.text("arguments")?.unwrap_or_default();
        let arguments: Map<String, Value> = match text.trim() {
            "" => Map::new(),
            text => serde_json::from_str(text)
                .map_err(|error| function.refuse("arguments", &format!("is no JSON object: {error}")))?,
        };
        function.end()?;
        Ok(ToolCall { id, name, arguments })
    });
    calls.collect()
}
