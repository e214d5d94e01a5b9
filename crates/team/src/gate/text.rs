//! Texts that contain expressions: the message of a refusal, and the place of a fact in the ledger.

use serde_json::Value;

use crate::expression::{Expression, Names, Seen};

/// The replacement for an unknown fact in a text.
const UNKNOWN: &str = "unknown";

/// A text with `{{ expression }}` in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Plain(String),
    Value(Expression),
}

impl Text {
    /// Parses a text.
    ///
    /// # Errors
    /// An expression in it is invalid or not closed.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains("{%") || text.contains("{#") {
            return Err("only `{{ … }}` has a meaning here, no `{% … %}`".to_owned());
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(begin) = rest.find("{{") {
            let inside = &rest[begin + 2..];
            let end = inside.find("}}").ok_or("a `{{` has no `}}`")?;
            if begin > 0 {
                pieces.push(Piece::Plain(rest[..begin].to_owned()));
            }
            pieces.push(Piece::Value(Expression::parse(&inside[..end])?));
            rest = &inside[end + 2..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Plain(rest.to_owned()));
        }
        Ok(Text(pieces))
    }

    /// The text with its values filled in; unknown values and failed expressions are marked as
    /// such.
    pub fn fill(&self, names: &Names) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Plain(plain) => text += plain,
                Piece::Value(expression) => match names.value(expression, &mut Seen::default()) {
                    Ok(Some(value)) => text += &shown(&value),
                    Ok(None) | Err(_) => text += UNKNOWN,
                },
            }
        }
        text
    }

    /// Its beginning, before the first value.
    pub fn beginning(&self) -> &str {
        match self.0.first() {
            Some(Piece::Plain(plain)) => plain,
            _ => "",
        }
    }

    /// The expressions in it.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Value(expression) => Some(expression),
            Piece::Plain(_) => None,
        })
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The place of a fact in a ledger, with expressions: `orders.{{ args.id }}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place(Vec<Text>);

impl Place {
    /// Parses a place.
    ///
    /// # Errors
    /// A part is empty, an expression is invalid, or it doesn't begin with a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('[') && !text.contains("{{") {
            let example = "orders.{{ args.id }}";
            return Err(format!("`{text}`: a path has points, and braces around values: {example}"));
        }
        let mut parts = vec![Text::default()];
        for piece in Text::parse(text.trim())?.0 {
            // A value is one part, whatever it contains.
            let Piece::Plain(plain) = piece else {
                parts.last_mut().into_iter().for_each(|part| part.0.push(piece.clone()));
                continue;
            };
            for (index, plain) in plain.split('.').enumerate() {
                if index > 0 {
                    parts.push(Text::default());
                }
                if let Some(part) = parts.last_mut().filter(|_| !plain.is_empty()) {
                    part.0.push(Piece::Plain(plain.to_owned()));
                }
            }
        }
        let place = Place(parts);
        if place.0.iter().any(|part| part.0.is_empty()) {
            return Err(format!("`{text}` has an empty part: a path is written as orders.{{{{ args.id }}}}"));
        }
        match place.root() {
            Some(root) if ["args", "result"].contains(&root) => {
                Err(format!("a path of the ledger can't begin with `{root}`, which is the call's"))
            }
            Some(root) if !root.contains(|c: char| !c.is_alphanumeric() && c != '_') => Ok(place),
            _ => Err(format!("`{text}` does not begin with a plain name, as `orders.…` does")),
        }
    }

    /// The name that it begins with.
    pub fn root(&self) -> Option<&str> {
        self.shape().next().flatten()
    }

    /// Its parts; `None` for a computed one.
    pub fn shape(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.0.iter().map(|part| match part.0.as_slice() {
            [Piece::Plain(plain)] => Some(plain.as_str()),
            _ => None,
        })
    }

    /// The path for a call.
    ///
    /// # Errors
    /// A part is missing, or neither text nor number.
    pub fn path(&self, names: &Names) -> Result<Vec<String>, String> {
        self.0.iter().map(|part| part.part(names)).collect()
    }

    /// The expressions in it.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.0.iter().flat_map(Text::expressions)
    }
}

impl Text {
    fn part(&self, names: &Names) -> Result<String, String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Plain(plain) => text += plain,
                Piece::Value(expression) => {
                    let mut seen = Seen::default();
                    match names.value(expression, &mut seen)?.as_deref() {
                        Some(Value::String(part)) if !part.is_empty() => text += part,
                        Some(Value::Number(part)) => text += &part.to_string(),
                        Some(other) => return Err(format!("`{other}` can't be a part of a path")),
                        None => return Err(format!("there is no `{}`", seen.unknown.join("`, `"))),
                    }
                }
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_one_part_of_a_path() {
        let arguments = json!({"id": "a.b", "n": 7, "list": []});
        let names = Names::of(arguments.as_object().unwrap());
        let path = |text: &str| Place::parse(text).and_then(|place| place.path(&names));
        assert_eq!(path("orders.{{ args.id }}.items").unwrap(), ["orders", "a.b", "items"]);
        assert_eq!(path("o.n{{ args.n }}").unwrap(), ["o", "n7"]);
        assert_eq!(path("o.{{ args.nothing }}").unwrap_err(), "there is no `args.nothing`");
        assert_eq!(path("o.{{ args.list }}").unwrap_err(), "`[]` can't be a part of a path");
        assert!(path("o..x").unwrap_err().contains("has an empty part"));
        assert!(path("{{ args.id }}.x").unwrap_err().contains("does not begin with a plain name"));
        assert!(path("args.x").unwrap_err().contains("which is the call's"));
        assert_eq!(path("o.{{ args.id").unwrap_err(), "a `{{` has no `}}`");
    }

    #[test]
    fn what_is_not_known_is_told() {
        let arguments = json!({"id": 7});
        let names = Names::of(arguments.as_object().unwrap());
        let text = Text::parse("order {{ args.id }} is {{ orders[args.id].status }}").unwrap();
        assert_eq!(text.fill(&names), "order 7 is unknown");
        assert!(Text::parse("{% if a %}").is_err());
    }
}
