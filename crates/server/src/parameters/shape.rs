//! The shape of an answer: a schema, or a grammar, by the names of OpenAI and of other servers.

use alara_engine::{Request, Segment};
use serde_json::{Value, json};

use crate::fields::Fields;
use crate::refusal::Refusal;

/// What a field holds that shapes the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A JSON schema, or its text.
    Schema,
    /// Whether any JSON object is wanted.
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
    // llama.cpp; SGLang has the schema as text, TGI a grammar that says of which kind it is.
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

/// Fields of vLLM's `structured_outputs` and of `guided_decoding`, as it was called.
const STRUCTURED: [(&str, Kind); 5] = [
    ("json", Kind::Schema),
    ("json_object", Kind::Object),
    ("regex", Kind::Regex),
    ("choice", Kind::Choice),
    ("grammar", Kind::Grammar),
];

/// Reads what shapes the answer, in whatever way.
///
/// # Errors
/// What can't be honoured, by the field's name.
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
    // NVIDIA's NIM has vLLM's fields in one of its own.
    if let Some(mut extension) = fields.object("nvext")? {
        shapes(&mut extension, &FIELDS, request)?;
        extension.end();
    }
    shapes(fields, &FIELDS, request)
}

/// Reads the fields of a table.
fn shapes(fields: &mut Fields, table: &[(&str, Kind)], request: &mut Request) -> Result<(), Refusal> {
    for (name, kind) in table {
        shape(fields, name, *kind, request)?;
    }
    Ok(())
}

/// Reads one field.
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

/// The grammar of one of some texts.
/// They are one lexeme, whose texts share their beginnings: as many rules would be tried one by
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

/// A grammar as TGI has it: `{"type": "json" | "regex" | "json_schema", "value": …}`.
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

/// Sets what shapes the answer, unless something else does already.
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

/// The grammar of what a regular expression matches in full, for which it needs no anchors.
fn of_regex(regex: &str) -> String {
    let inner = regex.strip_prefix('^').unwrap_or(regex);
    let escaped = |rest: &str| rest.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
    let inner = inner.strip_suffix('$').filter(|rest| !escaped(rest)).unwrap_or(inner);
    // The anchor of an alternative holds for that one alone.
    let regex = if has_alternatives(inner) { regex } else { inner };
    format!("start: /{}/", within_slashes(regex))
}

/// Whether a regular expression has alternatives outside of groups.
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

/// A regular expression as it stands between slashes.
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

/// Reads a format; `nested`: a schema and what is said of it stand in a field of their own.
///
/// # Errors
/// What can't be honoured, by the field's name.
pub fn format(mut format: Fields, request: &mut Request, nested: bool) -> Result<(), Refusal> {
    match format.needed("type")?.as_str() {
        "text" => {}
        "json_object" | "json" => {
            // As llama.cpp has it, a schema may stand there too; with TGI it is the `value`.
            for name in ["schema", "value"] {
                shape(&mut format, name, Kind::Schema, request)?;
            }
            request.schema.get_or_insert_with(|| json!({"type": "object"}));
        }
        "json_schema" if nested => {
            // With TGI it is the `value`.
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

/// Reads any of these fields, one of which must be there.
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
    // LM Studio's guide has it as text.
    let said = given.get("strict").and_then(Value::as_str).and_then(|text| text.parse::<bool>().ok());
    if let Some(strict) = said {
        given.put("strict", strict.into());
    }
    let strict = given.flag("strict")?.unwrap_or(true);
    given.ignore(&["name"]);
    // An answer is valid for its schema, unless that is not asked for and can't be.
    let loosened = if strict { None } else { alara_engine::loosened(&schema).ok() };
    request.schema = Some(loosened.map_or(schema, |(loose, _)| loose));
    Ok(())
}
