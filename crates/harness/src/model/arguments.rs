//! Parses the arguments of calls that models write without a constraint: JSON, more or less.
//!
//! Unreadable arguments are passed on as [`UNREAD`].
//! So the call is recorded, shown to the model again as JSON that every server accepts, and
//! answered with the error.
//! It never runs.

use serde_json::{Map, Value};

/// The only argument of a call with unreadable arguments: their text.
/// No input of a jinx has such a name.
const UNREAD: &str = "unreadable arguments";

/// The parsed arguments of a text, or the text itself as [`UNREAD`].
pub(crate) fn read(text: &str) -> Map<String, Value> {
    object(text).unwrap_or_else(|_| Map::from_iter([(UNREAD.to_owned(), text.into())]))
}

/// The error in unreadable arguments; `None` if they were readable.
pub(crate) fn flaw(arguments: &Map<String, Value>) -> Option<String> {
    unread(arguments).and_then(|text| object(text).err())
}

fn unread(arguments: &Map<String, Value>) -> Option<&str> {
    arguments.get(UNREAD).filter(|_| arguments.len() == 1)?.as_str()
}

/// Parses an object, encoded once or several times; an empty text and `null` are an empty object.
fn object(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(text).map_err(|error| error.to_string())? {
        Value::Null => Ok(Map::new()),
        Value::String(text) => object(&text),
        // A model may imitate how the call was shown to it.
        Value::Object(arguments) => match unread(&arguments) {
            Some(text) => object(text),
            None => Ok(arguments),
        },
        Value::Array(_) => Err("they are a list".to_owned()),
        other => Err(format!("they are {other}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_that_mean_an_object() {
        let check = |text: &str, expected: Value| {
            assert_eq!(Value::Object(read(text)), expected, "{text}");
            assert_eq!(flaw(&read(text)), None, "{text}");
        };
        let echo = json!({"command": "echo \"hi\""});
        check(&echo.to_string(), echo.clone());
        check(&format!(" {echo}\n"), echo.clone());
        check(&json!(echo.to_string()).to_string(), echo.clone());
        check(&json!(json!(echo.to_string()).to_string()).to_string(), echo.clone());
        check(&json!({UNREAD: echo.to_string()}).to_string(), echo);
        for nothing in ["", " \n", "null", "{}", "\"\"", "\"{}\"", "\"null\""] {
            check(nothing, json!({}));
        }
    }

    #[test]
    fn arguments_that_can_not_be_read_say_why() {
        let check = |text: &str, reason: &str| {
            let arguments = read(text);
            assert_eq!(Value::Object(arguments.clone()), json!({UNREAD: text}));
            let flaw = flaw(&arguments).unwrap();
            assert!(flaw.starts_with(reason), "{text}: {flaw}");
        };
        check(r#"{"command": "echo hi",}"#, "trailing comma at line 1 column 23");
        check(r#"{"command": "echo hi"} and so on"#, "trailing characters at line 1 column 24");
        check("{} {}", "trailing characters");
        check(r#"{"command": "ec"#, "EOF while parsing a string");
        check("{'command': 'echo hi'}", "key must be a string at line 1 column 2");
        check("[]", "they are a list");
        check("7", "they are 7");
        check("ls -l", "expected value at line 1 column 1");
        check("\"ls -l\"", "expected value at line 1 column 1");
        check(&json!(r#"{"command": "echo hi",}"#).to_string(), "trailing comma");
        // A tool may have an argument of that name together with others, or one that isn't text.
        assert_eq!(flaw(&Map::from_iter([(UNREAD.to_owned(), json!(1))])), None);
    }
}
