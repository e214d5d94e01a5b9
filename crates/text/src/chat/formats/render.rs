//! Renders a call as its format writes it.

use serde_json::{Map, Value};

use super::literal::QUOTE;
use super::value::type_name;
use super::{Encoding, Format, Keys, Piece, Tagged, fences};
use crate::chat::json::dumps;
use crate::request::ToolCall;

type Rendered = serde_json::Result<String>;

impl Format {
    /// A call as the family's template prints it in the history, without the texts between or
    /// around all calls of a turn.
    ///
    /// # Errors
    /// If the arguments can't be written as JSON.
    pub fn render_call(&self, call: &ToolCall) -> Rendered {
        self.render(call, 0)
    }

    /// The calls of a turn, with the texts between and around them.
    ///
    /// # Errors
    /// If the arguments can't be written as JSON.
    pub fn render_calls(&self, calls: &[ToolCall]) -> Rendered {
        let rendered: Vec<String> = calls
            .iter()
            .enumerate()
            .map(|(index, call)| self.render(call, index))
            .collect::<Result<_, _>>()?;
        Ok(format!("{}{}{}", self.calls.open, rendered.join(self.calls.separator), self.calls.close))
    }

    fn render(&self, call: &ToolCall, index: usize) -> Rendered {
        let mut text = String::new();
        for piece in self.call {
            match piece {
                Piece::Text(literal) => text.push_str(literal),
                Piece::Name => text.push_str(&call.name),
                Piece::Id { .. } => text.push_str(&call.id),
                Piece::NumberedId if call.id.contains(':') => text.push_str(&call.id),
                Piece::NumberedId => text.push_str(&format!("functions.{}:{index}", call.name)),
                Piece::Language => text.push_str(&fences::render(&call.name, &call.arguments)?),
                Piece::Number => text.push_str(&(index + 1).to_string()),
                Piece::Object(keys) => text.push_str(&object(keys, call)?),
                Piece::Arguments(encoding) => text.push_str(&arguments(*encoding, &call.arguments)?),
            }
        }
        Ok(text)
    }
}

fn object(keys: &Keys, call: &ToolCall) -> Rendered {
    let mut object = Map::new();
    object.insert(keys.name.into(), call.name.as_str().into());
    object.insert(keys.arguments.into(), call.arguments.clone().into());
    if let Some((key, _)) = keys.id {
        object.insert(key.into(), call.id.as_str().into());
    }
    dumps(&object)
}

fn arguments(encoding: Encoding, arguments: &Map<String, Value>) -> Rendered {
    let each = |write: &dyn Fn(&str, &Value) -> Rendered| -> serde_json::Result<Vec<String>> {
        arguments.iter().map(|(key, value)| write(key, value)).collect()
    };
    Ok(match encoding {
        Encoding::Json => dumps(arguments)?,
        Encoding::Tagged(tagged) => each(&|key, value| argument(tagged, key, value))?.concat(),
        // The whole block is rendered together with its first line.
        Encoding::Fence => String::new(),
        Encoding::Keywords => each(&|key, value| Ok(format!("{key}={}", dumps(value)?)))?.join(", "),
        Encoding::Braces => braces(&Value::Object(arguments.clone()))?,
    })
}

fn argument(tagged: &Tagged, key: &str, value: &Value) -> Rendered {
    let (after, value) = match value {
        Value::String(text) => (tagged.string.to_owned(), text.clone()),
        value => (tagged.other.replace("{type}", type_name(value)), dumps(value)?),
    };
    Ok(format!("{}{key}{after}{value}{}", tagged.open, tagged.close))
}

/// Renders a value with bare keys and marked strings.
pub(crate) fn braces(value: &Value) -> Rendered {
    Ok(match value {
        Value::String(text) => format!("{QUOTE}{text}{QUOTE}"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(braces).collect::<Result<_, _>>()?;
            format!("[{}]", items.join(","))
        }
        Value::Object(items) => {
            let item = |(key, value): (&String, &Value)| Ok(format!("{key}:{}", braces(value)?));
            let items: Vec<String> = items.iter().map(item).collect::<serde_json::Result<_>>()?;
            format!("{{{}}}", items.join(","))
        }
        value => dumps(value)?,
    })
}
