//! Parses a result that is text, if it comes from an external tool.

use alara_text::nearest;
use regex_automata::PatternID;
use regex_automata::meta::Regex;
use serde_json::{Map, Value};

use crate::jinx::Kind;

/// Most records of a text.
const RECORDS: usize = 10_000;
/// Most characters of a key.
const KEY: usize = 64;

/// How the text of a result is parsed.
#[derive(Clone, Debug, Default)]
pub enum Form {
    /// Not at all.
    #[default]
    Plain,
    /// JSON.
    Json,
    /// Lines of `key: value`: a list of mappings from key to text.
    /// A blank line, a number or dash at the beginning of a line, or a repeated key begins the next
    /// record.
    Records,
    /// The named groups of a regular expression: a mapping from name to text.
    Regex(String, Regex),
}

impl PartialEq for Form {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Form::Regex(left, _), Form::Regex(right, _)) => left == right,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Form {
    /// The form with this name; a regular expression comes with its text.
    ///
    /// # Errors
    /// There is no such form.
    pub fn named(name: &str, regex: Option<&str>) -> Result<Self, String> {
        match (name, regex) {
            ("json", None) => Ok(Form::Json),
            ("records", None) => Ok(Form::Records),
            ("regex", Some(text)) => {
                let regex = Regex::new(text).map_err(|_| format!("`{text}` is no regular expression"))?;
                if names(&regex).next().is_none() {
                    return Err(format!("`{text}` has no named group such as (?<id>\\d+)"));
                }
                Ok(Form::Regex(text.to_owned(), regex))
            }
            ("regex", None) => Err("`parse: regex` needs the key `regex` with the expression".to_owned()),
            ("json" | "records", Some(_)) => Err("the key `regex` is for `parse: regex`".to_owned()),
            _ => {
                let near = nearest(name, ["json", "records", "regex"].into_iter());
                let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
                Err(format!("a text can't be read as `{name}`{hint} (known: json, records, regex)"))
            }
        }
    }

    /// Whether all parsed values are text, which is then converted to the declared types.
    pub fn is_text(&self) -> bool {
        matches!(self, Form::Records | Form::Regex(..))
    }

    /// Parses an output; one that isn't text was already parsed by the tool.
    ///
    /// # Errors
    /// The text doesn't have this form.
    pub fn read(&self, output: &Value) -> Result<Value, String> {
        let Value::String(text) = output else { return Ok(output.clone()) };
        match self {
            Form::Plain => Ok(output.clone()),
            Form::Json => {
                serde_json::from_str(text).map_err(|error| format!("the result is no JSON: {error}"))
            }
            Form::Records => records(text),
            Form::Regex(source, regex) => {
                let mut captures = regex.create_captures();
                regex.captures(text, &mut captures);
                if !captures.is_match() {
                    return Err(format!("the regular expression `{source}` does not fit the result"));
                }
                let found = names(regex).filter_map(|name| {
                    let span = captures.get_group_by_name(name)?;
                    Some((name.to_owned(), Value::from(text.get(span.range())?)))
                });
                Ok(Value::Object(found.collect()))
            }
        }
    }
}

fn names(regex: &Regex) -> impl Iterator<Item = &str> {
    regex.group_info().pattern_names(PatternID::ZERO).flatten()
}

fn records(text: &str) -> Result<Value, String> {
    let mut records: Vec<Map<String, Value>> = vec![Map::new()];
    let mut begins = false;
    for line in text.lines() {
        let (line, marked) = unmarked(line.trim());
        let Some((key, value)) = pair(line) else {
            // A heading or a line between records.
            begins |= line.is_empty() || line.starts_with("--") || marked;
            continue;
        };
        let last = records.last().is_some_and(Map::is_empty);
        let again = records.last().is_some_and(|record| record.contains_key(key));
        if !last && (begins || marked || again) {
            records.push(Map::new());
        }
        begins = false;
        if records.len() > RECORDS {
            return Err(format!("the result has more than {RECORDS} records"));
        }
        if let Some(record) = records.last_mut() {
            record.insert(key.to_owned(), value.into());
        }
    }
    records.retain(|record| !record.is_empty());
    if records.is_empty() {
        return Err("the result has no line such as `key: value`".to_owned());
    }
    Ok(records.into_iter().map(Value::Object).collect())
}

/// A line without the number or dash at its beginning, and whether there was one.
fn unmarked(line: &str) -> (&str, bool) {
    if let Some(rest) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
        return (rest.trim_start(), true);
    }
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let rest = line[digits..].strip_prefix(". ").or_else(|| line[digits..].strip_prefix(") "));
    match rest {
        Some(rest) if digits > 0 => (rest.trim_start(), true),
        _ => (line, false),
    }
}

fn pair(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let (key, value) = (key.trim(), value.trim());
    let fits = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-');
    (!key.is_empty() && !value.is_empty() && key.chars().all(fits) && key.chars().count() <= KEY)
        .then_some((key, value))
}

/// A text converted to a type; `None` if it doesn't fit.
pub fn typed(text: &str, kind: Kind) -> Option<Value> {
    let value = match kind {
        Kind::String | Kind::Any => return Some(text.into()),
        Kind::Integer => Value::from(text.parse::<i64>().ok()?),
        Kind::Number => serde_json::from_str(text).ok()?,
        Kind::Boolean => Value::from(text.to_lowercase().parse::<bool>().ok()?),
        Kind::Array | Kind::Object => serde_json::from_str(text).ok()?,
    };
    kind.holds(&value).then_some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn records_of_texts() {
        let check = |text: &str, expected: Value| {
            assert_eq!(Form::Records.read(&json!(text)).unwrap(), expected, "{text}");
        };
        let two = json!([{"id": "1", "name": "A: b"}, {"id": "2", "name": "C"}]);
        check(
            "Found 2 record(s) in 'users':\n\n1. id: 1\n   name: A: b\n\n2. id: 2\n   name: C\n",
            two.clone(),
        );
        check("id: 1\nname: A: b\nid: 2\nname: C", two.clone());
        check("- id: 1\n  name: A: b\n- id: 2\n  name: C", two.clone());
        check("id: 1\nname: A: b\n---\nid: 2\nname: C", two);
        check("Record ID: x-1\nnote:\nrest", json!([{"Record ID": "x-1"}]));
        assert!(Form::Records.read(&json!("No records found.")).is_err());
        assert_eq!(Form::Records.read(&json!({"a": 1})).unwrap(), json!({"a": 1}));
    }

    #[test]
    fn groups_of_a_regular_expression() {
        let form = Form::named("regex", Some(r"order (?<id>\d+) is (?<status>\w+)(?<note> now)?")).unwrap();
        assert_eq!(
            form.read(&json!("Your order 7 is shipped.")).unwrap(),
            json!({"id": "7", "status": "shipped"})
        );
        assert!(form.read(&json!("nothing")).unwrap_err().contains("does not fit the result"));
        assert!(Form::named("regex", Some("a+")).unwrap_err().contains("no named group"));
        assert!(Form::named("regex", Some("(")).unwrap_err().contains("is no regular expression"));
        assert!(Form::named("regex", None).is_err() && Form::named("json", Some("a")).is_err());
        assert!(Form::named("jsno", None).unwrap_err().contains("did you mean `json`?"));
    }

    #[test]
    fn texts_become_what_their_types_say() {
        assert_eq!(typed("12.5", Kind::Number), Some(json!(12.5)));
        assert_eq!(typed("12", Kind::Integer), Some(json!(12)));
        assert_eq!(typed("12.5", Kind::Integer), None);
        assert_eq!(typed("True", Kind::Boolean), Some(json!(true)));
        assert_eq!(typed("'x'", Kind::Number), None);
        assert_eq!(typed("[1]", Kind::Array), Some(json!([1])));
        assert_eq!(typed("007", Kind::String), Some(json!("007")));
    }
}
