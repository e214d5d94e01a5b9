//! The shape of an answer: a schema, or a grammar, by the names of OpenAI, vLLM and llama.cpp.

use alara_engine::{Request, Segment};
use serde_json::{Value, json};

use crate::fields::Fields;
use crate::refusal::Refusal;

/// Reads the schema of the answer, in the way of OpenAI or vLLM.
///
/// # Errors
/// What can't be honoured, by the field's name.
pub fn response_format(fields: &mut Fields, request: &mut Request) -> Result<(), Refusal> {
    if let Some(format) = fields.object("response_format")? {
        self::format(format, request, true)?;
    }
    if let Some(mut structured) = fields.object("structured_outputs")? {
        structured.unsupported(&[("structural_tag", "")])?;
        guided(&mut structured, "json", request)?;
        shapes(&mut structured, ["grammar", "regex", "choice"], request)?;
        structured.end();
    }
    // As llama.cpp's server has it.
    if let Some(schema) = fields.take("json_schema") {
        request.schema = Some(schema);
    }
    guided(fields, "guided_json", request)?;
    shapes(fields, ["grammar", "", ""], request)?;
    shapes(fields, ["guided_grammar", "guided_regex", "guided_choice"], request)
}

/// A grammar, a regular expression or a choice of texts, in the fields of these names.
fn shapes(
    fields: &mut Fields,
    [grammar, regex, choice]: [&str; 3],
    request: &mut Request,
) -> Result<(), Refusal> {
    if let Some(grammar) = fields.text(grammar)?.filter(|grammar| !grammar.trim().is_empty()) {
        request.grammar = Some(grammar);
    }
    if let Some(regex) = fields.text(regex)? {
        request.grammar = Some(format!("start: /{}/", within_slashes(&regex)));
    }
    if let Some(texts) = fields.list(choice)? {
        let quoted: Option<Vec<String>> =
            texts.iter().map(|text| text.as_str().map(|text| json!(text).to_string())).collect();
        let quoted = quoted.filter(|quoted| !quoted.is_empty());
        let quoted = quoted.ok_or_else(|| fields.refuse(choice, "must be a list of texts"))?;
        request.grammar = Some(format!("start: {}", quoted.join(" | ")));
    }
    Ok(())
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

/// A schema as vLLM takes it: itself, or as JSON text.
fn guided(fields: &mut Fields, name: &str, request: &mut Request) -> Result<(), Refusal> {
    let schema = match fields.take(name) {
        None => return Ok(()),
        Some(Value::String(text)) => serde_json::from_str(&text).ok(),
        Some(schema) => Some(schema),
    };
    request.schema = Some(schema.ok_or_else(|| fields.refuse(name, "must be a JSON schema"))?);
    Ok(())
}

/// Reads a format; `nested`: a schema and what is said of it stand in a field of their own.
///
/// # Errors
/// What can't be honoured, by the field's name.
pub fn format(mut format: Fields, request: &mut Request, nested: bool) -> Result<(), Refusal> {
    match format.needed("type")?.as_str() {
        "text" => {}
        "json_object" => {
            // As llama.cpp has it, a schema may stand there too.
            let schema = format.take("schema");
            request.schema = Some(schema.unwrap_or_else(|| json!({"type": "object"})));
        }
        "json_schema" if nested => {
            let given = format.take("json_schema").unwrap_or_default();
            let mut given = format.within(given, "json_schema")?;
            json_schema(&mut given, request)?;
            given.end();
        }
        "json_schema" => json_schema(&mut format, request)?,
        _ => return Err(format.refuse("type", "must be text, json_object or json_schema")),
    }
    format.end();
    Ok(())
}

fn json_schema(given: &mut Fields, request: &mut Request) -> Result<(), Refusal> {
    let schema = given.take("schema").ok_or_else(|| given.refuse("schema", "is missing"))?;
    if let Some(text) = given.text("description")?.filter(|text| !text.trim().is_empty()) {
        request.system.push(Segment { name: "response_format".into(), text: text.trim().to_owned() });
    }
    let strict = given.flag("strict")?.unwrap_or(true);
    given.ignore(&["name"]);
    // An answer is valid for its schema, unless that is not asked for and can't be.
    let loosened = if strict { None } else { alara_engine::loosened(&schema).ok() };
    request.schema = Some(loosened.map_or(schema, |(loose, _)| loose));
    Ok(())
}
