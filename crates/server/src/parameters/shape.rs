//! The shape of an answer: a schema or a grammar, under the names of OpenAI and of other servers.

use alara_engine::{Request, Segment};
use serde_json::{Value, json};

use crate::fields::Fields;
use crate::refusal::Refusal;

/// The type of a field that shapes the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A JSON schema, or its text.
    Schema,
    /// Whether the answer must be a JSON object.
    Object,
    /// A grammar: GBNF (which xgrammar's EBNF is too) or Lark.
    Grammar,
    /// A regular expression.
    Regex,
    /// A list of texts.
    Choice,
}

/// Fields of a request other than `response_format`.
const FIELDS: [(&str, Kind); 11] = [
    // llama.cpp; SGLang uses a schema as text, TGI a grammar that names its own kind.
    ("json_schema", Kind::Schema),
    ("grammar", Kind::Grammar),
    // SGLang.
    ("regex", Kind::Regex),
    ("ebnf", Kind::Grammar),
    // vLLM before `structured_outputs`.
    ("guided_json", Kind::Schema),
    ("guided_json_object", Kind::Object),
    ("guided_regex", Kind::Regex),
    ("guided_choice", Kind::Choice),
    ("guided_grammar", Kind::Grammar),
    // text-generation-webui, TabbyAPI.
    ("grammar_string", Kind::Grammar),
    ("regex_pattern", Kind::Regex),
];

/// Fields of vLLM's `structured_outputs`, and of its older name `guided_decoding`.
const STRUCTURED: [(&str, Kind); 5] = [
    ("json", Kind::Schema),
    ("json_object", Kind::Object),
    ("regex", Kind::Regex),
    ("choice", Kind::Choice),
    ("grammar", Kind::Grammar),
];

/// Parses the shape of the answer, in any supported form.
///
/// # Errors
/// A field that isn't supported, by name.
pub fn response_format(fields: &mut Fields, request: &mut Request) -> Result<(), Refusal> {
    if let Some(format) = fields.object("response_format")? {
        self::format(format, request, true)?;
    }
    for name in ["structured_outputs", "guided_decoding"] {
        let Some(mut structured) = fields.object(name)? else { continue };
        structured.unsupported(&[("structural_tag", "")])?;
        shapes(&mut structured, &STRUCTURED, request)?;
        structured.end();
    }
    // NVIDIA's NIM puts vLLM's fields into a separate one.
    if let Some(mut extension) = fields.object("nvext")? {
        shapes(&mut extension, &FIELDS, request)?;
        extension.end();
    }
    shapes(fields, &FIELDS, request)
}

/// Parses the fields of a table.
fn shapes(fields: &mut Fields, table: &[(&str, Kind)], request: &mut Request) -> Result<(), Refusal> {
    for (name, kind) in table {
        shape(fields, name, *kind, request)?;
    }
    Ok(())
}

/// Parses one field.
fn shape(fields: &mut Fields, name: &str, kind: Kind, request: &mut Request) -> Result<(), Refusal> {
    match kind {
        Kind::Schema => {
            let schema = match fields.take(name) {
                None => return Ok(()),
                Some(Value::String(text)) if text.trim().is_empty() => return Ok(()),
                Some(Value::String(text)) => serde_json::from_str(&text).ok(),
                Some(schema) => Some(schema),
            };
            let schema = schema.ok_or_else(|| fields.refuse(name, "must be a JSON schema"))?;
            set(fields, name, &mut request.schema, schema)
        }
        Kind::Object => match fields.flag(name)? {
            Some(true) => set(fields, name, &mut request.schema, json!({"type": "object"})),
            _ => Ok(()),
        },
        Kind::Grammar if matches!(fields.get(name), Some(Value::Object(_))) => {
            let Some(given) = fields.object(name)? else { return Ok(()) };
            of_kind(given, request)
        }
        Kind::Grammar => match fields.text(name)?.filter(|grammar| !grammar.trim().is_empty()) {
            Some(grammar) => set(fields, name, &mut request.grammar, grammar),
            None => Ok(()),
        },
        Kind::Regex => match fields.text(name)?.filter(|regex| !regex.is_empty()) {
            Some(regex) => set(fields, name, &mut request.grammar, of_regex(&regex)),
            None => Ok(()),
        },
        Kind::Choice => {
            let Some(texts) = fields.list(name)? else { return Ok(()) };
            let texts: Option<Vec<&str>> = texts.iter().map(Value::as_str).collect();
            let texts = texts.filter(|texts| !texts.is_empty());
            let texts = texts.ok_or_else(|| fields.refuse(name, "must be a list of texts"))?;
            set(fields, name, &mut request.grammar, of_choice(&texts))
        }
    }
}

/// Returns the grammar for a choice among texts.
/// They form a single lexeme that shares common beginnings: separate rules would be tried one by
/// one.
fn of_choice(texts: &[&str]) -> String {
    let quoted: Vec<String> =
        texts.iter().filter(|text| !text.is_empty()).map(|text| json!(text).to_string()).collect();
    let may_be_empty = if quoted.len() < texts.len() { "?" } else { "" };
    match quoted.as_slice() {
        [] => "start: \"\"".to_owned(),
        _ => format!("start: CHOICE{may_be_empty}\nCHOICE: {}", quoted.join(" | ")),
    }
}

/// Parses TGI's grammar: `{"type": "json" | "regex" | "json_schema", "value": …}`.
fn of_kind(mut given: Fields, request: &mut Request) -> Result<(), Refusal> {
    let kind = match given.needed("type")?.as_str() {
        "json" | "json_object" => Kind::Schema,
        "regex" => Kind::Regex,
        "json_schema" => {
            let value = given.take("value").unwrap_or_default();
            let mut value = given.within(value, "value")?;
            json_schema(&mut value, request)?;
            value.end();
            given.end();
            return Ok(());
        }
        _ => return Err(given.refuse("type", "must be json, regex or json_schema")),
    };
    if !given.has("value") {
        return Err(given.refuse("value", "is missing"));
    }
    shape(&mut given, "value", kind, request)?;
    given.end();
    Ok(())
}

/// Sets the shape of the answer, unless another field has set it already.
fn set<T: PartialEq>(fields: &Fields, name: &str, place: &mut Option<T>, shape: T) -> Result<(), Refusal> {
    match place {
        Some(other) if *other != shape => {
            Err(fields.refuse(name, "and another field of this request shape the answer in two ways"))
        }
        _ => {
            *place = Some(shape);
            Ok(())
        }
    }
}

/// Returns the grammar for a regular expression that matches the whole text, without needing
/// anchors.
fn of_regex(regex: &str) -> String {
    let inner = regex.strip_prefix('^').unwrap_or(regex);
    let escaped = |rest: &str| rest.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
    let inner = inner.strip_suffix('$').filter(|rest| !escaped(rest)).unwrap_or(inner);
    // An anchor in one alternative applies only to that one.
    let regex = if has_alternatives(inner) { regex } else { inner };
    format!("start: /{}/", within_slashes(regex))
}

/// Whether a regular expression has alternatives outside groups.
fn has_alternatives(regex: &str) -> bool {
    let (mut depth, mut in_class, mut escaped) = (0_usize, false, false);
    for c in regex.chars() {
        match c {
            _ if escaped => {}
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth = depth.saturating_sub(1),
            '|' if !in_class && depth == 0 => return true,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    false
}

/// Escapes a regular expression for use between slashes.
fn within_slashes(regex: &str) -> String {
    let mut escaped = String::new();
    let mut inside = false;
    for c in regex.chars() {
        match c {
            '/' if !inside => escaped.push_str("\\/"),
            '\n' => escaped.push_str("\\n"),
            c => escaped.push(c),
        }
        inside = c == '\\' && !inside;
    }
    escaped
}

/// Parses a format; `nested` means that the schema and its settings are in a separate field.
///
/// # Errors
/// A field that isn't supported, by name.
pub fn format(mut format: Fields, request: &mut Request, nested: bool) -> Result<(), Refusal> {
    match format.needed("type")?.as_str() {
        "text" => {}
        "json_object" | "json" => {
            // As in llama.cpp, the schema may be here too; in TGI it is the `value`.
            for name in ["schema", "value"] {
                shape(&mut format, name, Kind::Schema, request)?;
            }
            request.schema.get_or_insert_with(|| json!({"type": "object"}));
        }
        "json_schema" if nested => {
            // In TGI it is the `value`.
            let name = if format.has("value") { "value" } else { "json_schema" };
            let given = format.take(name).unwrap_or_default();
            let mut given = format.within(given, name)?;
            json_schema(&mut given, request)?;
            given.end();
        }
        "json_schema" => json_schema(&mut format, request)?,
        // TGI, Together, LMDeploy.
        "regex" | "regex_schema" => {
            any(&mut format, ["value", "pattern", "regex_schema"], Kind::Regex, request)?;
        }
        // Fireworks, Together, MLC.
        "grammar" => any(&mut format, ["grammar", "value", "ebnf"], Kind::Grammar, request)?,
        _ => {
            return Err(format.refuse("type", "must be text, json_object, json_schema, regex or grammar"));
        }
    }
    format.end();
    Ok(())
}

/// Parses any of these fields, one of which must be present.
fn any(fields: &mut Fields, names: [&str; 3], kind: Kind, request: &mut Request) -> Result<(), Refusal> {
    if !names.iter().any(|name| fields.has(name)) {
        return Err(fields.refuse(names[0], "is missing"));
    }
    names.into_iter().try_for_each(|name| shape(fields, name, kind, request))
}

fn json_schema(given: &mut Fields, request: &mut Request) -> Result<(), Refusal> {
    let schema = given.take("schema").ok_or_else(|| given.refuse("schema", "is missing"))?;
    if let Some(text) = given.text("description")?.filter(|text| !text.trim().is_empty()) {
        request.system.push(Segment { name: "response_format".into(), text: text.trim().to_owned() });
    }
    // A text in LM Studio's guide.
    let said = given.get("strict").and_then(Value::as_str).and_then(|text| text.parse::<bool>().ok());
    if let Some(strict) = said {
        given.put("strict", strict.into());
    }
    let strict = given.flag("strict")?.unwrap_or(true);
    given.ignore(&["name"]);
    // An answer conforms to its schema, unless that is neither required nor possible.
    let loosened = if strict { None } else { alara_engine::loosened(&schema).ok() };
    request.schema = Some(loosened.map_or(schema, |(loose, _)| loose));
    Ok(())
}
