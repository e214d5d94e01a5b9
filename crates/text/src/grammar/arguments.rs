//! The grammar of a call's arguments, in every encoding that formats use.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::cost::Judge;
use super::json::{RUN, parts};
use super::schema;
use super::schema::{Property, Together};
use super::turn::{Token, escape, quote, without};
use super::{GrammarError, SchemaError, schema_error};
use crate::chat::formats::{Encoding, Format, Tagged, Types, is_bare_key, literal, resolve, type_name};
use crate::request::Tool;

/// A part of a rule.
pub(super) enum Term {
    Literal(String),
    Rule(String),
}

/// Longest text of a grammar, in bytes.
const LONGEST: usize = super::bounds::LONGEST;

/// Rules of a Lark grammar.
pub(super) struct Rules<'a> {
    token: Token<'a>,
    judge: Judge<'a>,
    /// Most characters of a string in arguments if the schema sets no limit.
    pub(super) string_limit: Option<usize>,
    /// The constraints that were left out of the tools' schemas.
    pub(super) loosened: Vec<String>,
    /// How many schemas enclose the current one.
    pub(super) depth: usize,
    rules: Vec<String>,
    /// Total length of the rules, in bytes.
    size: usize,
    values: usize,
    /// Rules of the current schema's subschemas, by the references to them.
    pub(super) named: HashMap<String, String>,
    /// Rules and lexemes by their bodies, for deduplication.
    known: HashMap<String, String>,
}

type Terms = Result<Vec<Term>, GrammarError>;

impl<'a> Rules<'a> {
    pub(super) fn new(token: Token<'a>, judge: Judge<'a>) -> Self {
        let (string_limit, loosened) = (None, Vec::new());
        Rules {
            token,
            judge,
            string_limit,
            loosened,
            depth: 0,
            rules: Vec::new(),
            size: 0,
            values: 0,
            named: HashMap::new(),
            known: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, name: &str, body: &str) {
        let rule = format!("{name}: {body}");
        self.size += rule.len();
        self.rules.push(rule);
    }

    /// Checks that size and time permit more rules.
    ///
    /// # Errors
    /// The exhausted limit.
    pub(super) fn go_on(&self) -> Result<(), SchemaError> {
        if self.size > LONGEST {
            return Err(SchemaError::of_whole(format!("its grammar is longer than {} MiB", LONGEST >> 20)));
        }
        if self.judge.until.is_over() {
            return Err(SchemaError::of_whole(
                "its grammar takes more time than there is; simplify it".into(),
            ));
        }
        Ok(())
    }

    /// Checks that a lexeme, given by its body, isn't too expensive for the keyword at `place`.
    ///
    /// # Errors
    /// If it is.
    pub(super) fn afford(&self, lexeme: &str, place: &str) -> Result<(), SchemaError> {
        self.go_on()?;
        (self.judge.lexeme)(lexeme).map_err(|reason| SchemaError::new(place, reason))
    }

    pub(super) fn into_text(self) -> String {
        self.rules.join("\n")
    }

    /// A new name, for a rule that is defined later.
    pub(super) fn fresh_rule(&mut self) -> String {
        self.values += 1;
        format!("v{}", self.values)
    }

    /// Adds a rule with this body, unless it exists; returns its name.
    pub(super) fn rule(&mut self, attributes: &str, body: &str) -> String {
        let key = format!("{attributes}: {body}");
        if let Some(name) = self.known.get(&key) {
            return name.clone();
        }
        let name = self.fresh_rule();
        self.add(&format!("{name}{attributes}"), body);
        self.known.insert(key, name.clone());
        name
    }

    /// Adds a lexeme with this body, unless it exists; returns its name.
    pub(super) fn lexeme(&mut self, body: &str) -> String {
        if let Some(name) = self.known.get(body) {
            return name.clone();
        }
        self.values += 1;
        let name = format!("V{}", self.values);
        self.add(&name, body);
        self.known.insert(body.to_owned(), name.clone());
        name
    }

    /// A literal of `text`, in which special tokens are matched by their ids.
    /// Empty for an empty text.
    pub(super) fn literal(&self, text: &str) -> String {
        let mut parts: Vec<String> = Vec::new();
        let (mut plain, mut rest) = (0, 0);
        while let Some(at) = text[rest..].find(['<', '[', ']', '｜']).map(|at| rest + at) {
            // The markers of all families end with one of these characters.
            let ends =
                text[at..].char_indices().skip(1).filter(|(_, end)| ['>', ']', '[', '｜'].contains(end));
            let found = ends
                .map(|(end, last)| &text[at..at + end + last.len_utf8()])
                .find_map(|marker| Some((marker.len(), (self.token)(marker)?)));
            match found {
                Some((length, id)) => {
                    if plain < at {
                        parts.push(quote(&text[plain..at]));
                    }
                    parts.push(format!("<[{id}]>"));
                    rest = at + length;
                    plain = rest;
                }
                None => rest = at + text[at..].chars().next().map_or(1, char::len_utf8),
            }
        }
        if plain < text.len() {
            parts.push(quote(&text[plain..]));
        }
        parts.join(" ")
    }

    /// Concatenates the parts; adjacent texts become one.
    pub(super) fn sequence(&self, parts: &[Term]) -> String {
        let mut text = String::new();
        let mut out: Vec<String> = Vec::new();
        for part in parts {
            match part {
                Term::Literal(more) => text.push_str(more),
                Term::Rule(rule) => {
                    out.push(self.literal(&std::mem::take(&mut text)));
                    out.push(rule.clone());
                }
            }
        }
        out.push(self.literal(&text));
        out.retain(|part| !part.is_empty());
        if out.is_empty() { "\"\"".into() } else { out.join(" ") }
    }

    /// The grammar of the arguments of `tool`.
    /// Unless the tool is strict, keywords that can't be guaranteed are left out.
    pub(super) fn arguments(&mut self, encoding: Encoding, tool: &Tool, format: &Format) -> Terms {
        let strict = self.exact_arguments(encoding, tool, format, Together::Exactly);
        let refusal = match strict {
            Err(refusal) if !tool.strict => refusal,
            outcome => return outcome.map_err(|refusal| schema_error(tool, refusal)),
        };
        // Dependent arguments are permitted in any combination; everything else stays left out.
        let mut dependent = Some(refusal.clone()).filter(SchemaError::is_dependence);
        let mut make = |parameters: &Value, first: Together| {
            let tool = Tool { parameters: parameters.clone(), ..tool.clone() };
            let made = self.exact_arguments(encoding, &tool, format, first);
            match made {
                Err(refusal) if refusal.is_dependence() => {
                    dependent.get_or_insert(refusal);
                    self.exact_arguments(encoding, &tool, format, Together::Loosely)
                }
                made => made,
            }
        };
        let together = if refusal.is_dependence() { Together::Loosely } else { Together::Exactly };
        let made =
            if together == Together::Loosely { make(&tool.parameters, together) } else { Err(refusal) };
        let (parts, left_out) = match made {
            Ok(parts) => (parts, Vec::new()),
            Err(refusal) => {
                let make = |parameters: &Value| make(parameters, Together::Exactly);
                schema::loosen(&tool.parameters, refusal, make)
                    .map_err(|refusal| schema_error(tool, refusal))?
            }
        };
        let name = &tool.name;
        let left_out = dependent.into_iter().chain(left_out);
        self.loosened.extend(left_out.map(|refusal| format!("tool {name}: {refusal}")));
        Ok(parts)
    }

    fn exact_arguments(
        &mut self,
        encoding: Encoding,
        tool: &Tool,
        format: &Format,
        together: Together,
    ) -> Result<Vec<Term>, SchemaError> {
        self.go_on()?;
        if encoding == Encoding::Json {
            let schema = schema::arguments(&tool.parameters, self.string_limit)?;
            return Ok(vec![Term::Rule(self.json(&schema)?)]);
        }
        let mut items = Vec::new();
        for property in schema::properties(&tool.parameters, together, self.string_limit)? {
            self.named.clear();
            let refuse = |reason: String| {
                let pointer = schema::child("/properties", &property.name);
                SchemaError { pointer, keyword: property.name.clone(), reason }
            };
            if !format.expresses_key(&property.name) {
                return Err(refuse(format!("the {} format can't express the key", format.name)));
            }
            let key = |text: &str| Term::Literal(format!("{}{text}", property.name));
            let item = match encoding {
                Encoding::Tagged(tagged) if !reads_back(tagged, tool, &property) => {
                    Err(SchemaError::of_whole("the schema tells its type in too roundabout a way".into()))
                }
                Encoding::Tagged(tagged) => self.tagged(tagged, &property.name, &property.schema),
                Encoding::Keywords => {
                    self.json(&property.schema).map(|value| self.sequence(&[key("="), Term::Rule(value)]))
                }
                _ => {
                    let value = self.braces(&property.schema, &property.schema, 0);
                    value.map(|value| self.sequence(&[key(":"), Term::Rule(value)]))
                }
            };
            // A refusal of a keyword keeps its place.
            let item = item.map_err(|refusal| match refusal.pointer.as_str() {
                "" => refuse(format!(
                    "the {} format can't express {}: {}",
                    format.name,
                    quote(&property.name),
                    refusal.reason
                )),
                _ => refusal,
            })?;
            items.push((self.rule("", &item), property.required));
        }
        let body = match encoding {
            Encoding::Tagged(_) => {
                let item =
                    |(rule, required): &(String, bool)| format!("{rule}{}", if *required { "" } else { "?" });
                items.iter().map(item).collect::<Vec<_>>().join(" ")
            }
            Encoding::Keywords => self.separated(&items, ", "),
            _ => format!("\"{{\" {} \"}}\"", self.separated(&items, ",")),
        };
        Ok(vec![Term::Rule(self.rule("", if body.is_empty() { "\"\"" } else { &body }))])
    }

    /// The items in their order, of which optional ones may be absent, with `separator` between
    /// those present.
    pub(super) fn separated(&mut self, items: &[(String, bool)], separator: &str) -> String {
        let following: Vec<String> = items
            .iter()
            .map(|(item, required)| {
                let item = format!("{} {item}", quote(separator));
                if *required { item } else { format!("({item})?") }
            })
            .collect();
        let mut options = Vec::new();
        for (index, (item, required)) in items.iter().enumerate() {
            let rest = self.run(&following, index + 1, 0, following.len());
            options.push(format!("{item} {rest}"));
            if *required {
                return format!("({})", options.join(" | "));
            }
        }
        if options.is_empty() { String::new() } else { format!("({})?", options.join(" | ")) }
    }

    /// The parts from `low` to `high`, without those before `from`, concatenated.
    /// Each half is a rule, so that a part is spelled out once, whatever precedes it, and rules
    /// don't nest deeply.
    fn run(&mut self, parts: &[String], from: usize, low: usize, high: usize) -> String {
        match high - low {
            0 => String::new(),
            _ if from >= high => String::new(),
            1 => parts[low].clone(),
            _ => {
                let middle = low.midpoint(high);
                let both =
                    [self.run(parts, from, low, middle), self.run(parts, from, middle, high)].join(" ");
                if from <= low { self.rule("", both.trim()) } else { both }
            }
        }
    }

    /// `<key>value</key>`, in the format's own tags.
    fn tagged(&mut self, tagged: &Tagged, key: &str, schema: &Value) -> Result<String, SchemaError> {
        let distinct = tagged.string != tagged.other;
        let (strings, other) = split(schema);
        let both = !strings.is_empty() && other.is_some();
        let mut options = Vec::new();
        for string in &strings {
            let head = format!("{}{key}{}", tagged.open, tagged.string);
            let value = self.raw_string(string, tagged, both && !distinct)?;
            options.push(self.sequence(&[Term::Literal(head), value]));
        }
        if let Some(other) = &other {
            for (name, schema) in by_type(other, tagged) {
                let head = format!("{}{key}{}", tagged.open, tagged.other.replace("{type}", name));
                let value = self.json(&schema)?;
                options.push(self.sequence(&[
                    Term::Literal(head),
                    Term::Rule(value),
                    Term::Literal(tagged.close.into()),
                ]));
            }
        }
        Ok(format!("({})", options.join(" | ")))
    }

    /// A string without quotes, and the text that closes it.
    /// `unlike_json` excludes texts that would be read as a value of another type.
    pub(super) fn raw_string(
        &mut self,
        schema: &Value,
        tagged: &Tagged,
        unlike_json: bool,
    ) -> Result<Term, SchemaError> {
        let close = self.literal(tagged.close);
        let end = tagged.close.trim();
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            let texts: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            if let Some(text) = texts.iter().find(|text| text.contains(end)) {
                return Err(unfit(format!("{} contains {}", quote(text), quote(end))));
            }
            // A text that could be read as a value of another type is ambiguous.
            let texts = texts.iter().filter(|text| !unlike_json || !looks_like_json(text));
            let texts: Vec<String> = texts
                .map(|text| self.sequence(&[Term::Literal(format!("{text}{}", tagged.close))]))
                .collect();
            if texts.is_empty() {
                return Err(unfit("all its strings read like other values"));
            }
            return Ok(Term::Rule(self.rule("", &texts.join(" | "))));
        }
        // A terminal must not be empty.
        let is_token = close.starts_with("<[");
        let mut terms = vec![without(&[end], if is_token { '+' } else { '*' })];
        if unlike_json {
            terms.push(r#"~/\s*([-+.0-9\[{"'<](?s:.*)|true|false|null|True|False|None)\s*/"#.into());
        }
        let parts = parts(schema);
        let bound = |part: &Value, key: &str| part.get(key).and_then(Value::as_u64);
        let plain = |part: &Value| part.get("pattern").is_none() && bound(part, "minLength").is_none();
        if let [part] = parts
            && let Some(most) = bound(part, "maxLength").filter(|&most| most > RUN && plain(part))
            && !is_token
            && !unlike_json
        {
            // The first closing text ends a value, whatever whitespace precedes it; this avoids
            // searching the whole value.
            let tail = self.literal(tagged.close.trim_start().strip_prefix(end).unwrap_or_default());
            let value = self.rule(&format!("[suffix={}]", quote(end)), &format!("/(?s:.{{0,{most}}})/"));
            return Ok(Term::Rule(format!("{value} {tail}")));
        }
        let (mut empty, mut judged) = (true, None);
        for part in parts {
            let (least, most) = (bound(part, "minLength").unwrap_or(0), bound(part, "maxLength"));
            if least > 0 || most.is_some() {
                let most = most.map(|most| most.to_string()).unwrap_or_default();
                terms.push(format!("/(?s:.{{{least},{most}}})/"));
            }
            if let Some(pattern) = part.get("pattern").and_then(Value::as_str) {
                let whole = pattern.strip_prefix('^').and_then(|pattern| pattern.strip_suffix('$'));
                terms.push(format!("/{}/", whole.unwrap_or(pattern).replace('/', "\\/")));
                judged = part.get("$comment").and_then(Value::as_str);
            }
            if let Some(values) = part.get("enum").and_then(Value::as_array) {
                let texts: Vec<String> = values.iter().filter_map(Value::as_str).map(escape).collect();
                terms.push(format!("/({})/", texts.join("|")));
            }
            empty &= least == 0 && part.get("pattern").is_none() && part.get("enum").is_none();
        }
        let value = terms.join(" & ");
        if let Some(place) = judged {
            self.afford(&value, place)?;
        }
        Ok(Term::Rule(if is_token {
            format!("{}{} {close}", self.lexeme(&value), if empty { "?" } else { "" })
        } else {
            self.rule(&format!("[suffix={}]", quote(tagged.close)), &value)
        }))
    }

    /// A value with bare keys and marked strings.
    fn braces(&mut self, schema: &Value, root: &Value, depth: usize) -> Result<String, SchemaError> {
        if depth > 32 {
            return Err(unfit("it is nested too deeply"));
        }
        if let Some(reference) = schema.get("$ref") {
            let pointer = reference.to_string();
            if let Some(rule) = self.named.get(&pointer) {
                return Ok(rule.clone());
            }
            let target = resolve(reference, root).ok_or_else(|| unfit(format!("{pointer} leads nowhere")))?;
            let rule = self.fresh_rule();
            self.named.insert(pointer, rule.clone());
            let body = self.braces(target, root, depth + 1)?;
            self.add(&rule, &body);
            return Ok(rule);
        }
        let values = schema.get("enum").and_then(Value::as_array).cloned();
        if let Some(values) = values {
            let render =
                |value: &Value| crate::chat::formats::braces(value).map_err(|error| unfit(error.to_string()));
            let options: Vec<String> = values
                .iter()
                .map(|value| {
                    let text = render(value)?;
                    match literal(&text).as_ref() == Some(value) {
                        true => Ok(self.sequence(&[Term::Literal(text)])),
                        false => Err(unfit(format!("it can't have the value {value}"))),
                    }
                })
                .collect::<Result<_, SchemaError>>()?;
            return Ok(self.rule("", &options.join(" | ")));
        }
        if let Some(options) = schema.get("anyOf").and_then(Value::as_array).cloned() {
            let options: Vec<String> = options
                .iter()
                .map(|option| self.braces(option, root, depth + 1))
                .collect::<Result<_, _>>()?;
            return Ok(self.rule("", &options.join(" | ")));
        }
        let known = |keys: &[&str]| -> Result<(), SchemaError> {
            let ignored = ["type", "$defs", "$comment"];
            let keys = [keys, &ignored].concat();
            let found =
                schema.as_object().and_then(|map| map.keys().find(|key| !keys.contains(&key.as_str())));
            found.map_or(Ok(()), |key| Err(unfit(format!("`{key}` is not supported by this format"))))
        };
        match schema.get("type") {
            _ if is_string(schema) => {
                let quote = Tagged { open: "", string: "", other: "", close: "<|\"|>" };
                let value = self.raw_string(schema, &quote, false)?;
                let body = self.sequence(&[Term::Literal(quote.close.into()), value]);
                Ok(self.rule("", &body))
            }
            Some(Value::String(name)) if name == "object" => {
                known(&["properties", "required", "additionalProperties"])?;
                let required = |key: &String| {
                    let list = schema.get("required").and_then(Value::as_array);
                    list.is_some_and(|list| list.iter().any(|name| name == key))
                };
                let mut items = Vec::new();
                for (key, value) in schema.get("properties").and_then(Value::as_object).unwrap_or(&Map::new())
                {
                    if !is_bare_key(key) {
                        return Err(unfit(format!("it can't have the key {}", quote(key))));
                    }
                    let value = self.braces(value, root, depth + 1)?;
                    let item = self.sequence(&[Term::Literal(format!("{key}:")), Term::Rule(value)]);
                    items.push((self.rule("", &item), required(key)));
                }
                let body = self.separated(&items, ",");
                Ok(self.rule("", &format!("\"{{\" {body} \"}}\"")))
            }
            Some(Value::String(name)) if name == "array" => {
                known(&["items", "minItems", "maxItems"])?;
                let items = schema.get("items").ok_or_else(|| unfit("an array without `items`"))?;
                let item = self.braces(items, root, depth + 1)?;
                let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
                let (least, most) = (bound("minItems").unwrap_or(0), bound("maxItems"));
                if most == Some(0) {
                    return Ok(self.rule("", "\"[]\""));
                }
                let more = match most {
                    Some(1) => String::new(),
                    Some(most) => format!("(\",\" {item}){{{},{}}}", least.saturating_sub(1), most - 1),
                    None => format!("(\",\" {item}){{{},}}", least.saturating_sub(1)),
                };
                let list = format!("{item} {more}");
                let list = if least == 0 { format!("({list})?") } else { list };
                Ok(self.rule("", &format!("\"[\" {list} \"]\"")))
            }
            Some(Value::String(_)) => self.json(schema),
            _ => Err(unfit("a value without a `type`")),
        }
    }
}

/// An error for what a format can't express.
pub(super) fn unfit(reason: impl Into<String>) -> SchemaError {
    SchemaError::of_whole(reason.into())
}

/// Whether the parser, which uses the tool's own schema, reads a written value as the intended one.
fn reads_back(tagged: &Tagged, tool: &Tool, property: &Property) -> bool {
    let meant = Types::of(&property.schema, &property.schema);
    let read = Types::of_argument(&tool.parameters, &property.name);
    let distinct = tagged.string != tagged.other;
    distinct || if meant.only_string() { read.only_string() } else { read.contains_all(meant) }
}

/// Whether a written schema permits strings other than an enumeration.
fn is_string(schema: &Value) -> bool {
    parts(schema).iter().any(|part| part.get("type").is_some_and(|name| name == "string"))
}

/// Splits a written schema into the parts for strings and the part for other values.
fn split(schema: &Value) -> (Vec<Value>, Option<Value>) {
    let (mut strings, mut others) = (Vec::new(), Vec::new());
    let mut open = vec![schema];
    let mut followed = Vec::new();
    while let Some(option) = open.pop() {
        if let Some(reference) = option.get("$ref") {
            if !followed.contains(&reference) {
                followed.push(reference);
                open.extend(resolve(reference, schema));
            }
        } else if let Some(options) = option.get("anyOf").and_then(Value::as_array) {
            open.extend(options.iter().rev());
        } else if let Some(values) = option.get("enum").and_then(Value::as_array) {
            let (texts, rest): (Vec<Value>, Vec<Value>) = values.iter().cloned().partition(Value::is_string);
            strings.extend((!texts.is_empty()).then(|| json!({"enum": texts})));
            others.extend((!rest.is_empty()).then(|| json!({"enum": rest})));
        } else if is_string(option) {
            strings.push(option.clone());
        } else {
            others.push(option.clone());
        }
    }
    let other = (!others.is_empty()).then(|| {
        let mut other = if others.len() == 1 { others.swap_remove(0) } else { json!({"anyOf": others}) };
        if let Some(definitions) = schema.get("$defs") {
            other["$defs"] = definitions.clone();
        }
        other
    });
    (strings, other)
}

/// Splits a written schema by the types that the tag names; unchanged if it names none.
fn by_type(schema: &Value, tagged: &Tagged) -> Vec<(&'static str, Value)> {
    if !tagged.other.contains("{type}") {
        return vec![("", schema.clone())];
    }
    let options =
        schema.get("anyOf").and_then(Value::as_array).map_or(std::slice::from_ref(schema), Vec::as_slice);
    let mut typed: Vec<(&'static str, Value)> = Vec::new();
    for option in options {
        let mut option = option.clone();
        if let Some(definitions) = schema.get("$defs") {
            option["$defs"] = definitions.clone();
        }
        match option.get("enum").and_then(Value::as_array).cloned() {
            Some(values) => {
                for value in values {
                    typed.push((type_name(&value), json!({"enum": [value]})));
                }
            }
            None => {
                let example = match option.get("type").and_then(Value::as_str) {
                    Some("boolean") => json!(true),
                    Some("null") => Value::Null,
                    Some("object") => json!({}),
                    Some("array") => json!([]),
                    _ => json!(0),
                };
                typed.push((type_name(&example), option));
            }
        }
    }
    typed
}

fn looks_like_json(text: &str) -> bool {
    let text = text.trim();
    text.starts_with(|first: char| first.is_ascii_digit() || "-+.[{\"'<".contains(first))
        || ["true", "false", "null", "True", "False", "None"].contains(&text)
}
