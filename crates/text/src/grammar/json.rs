//! The grammar of JSON that is valid for a schema written by [`schema`](super::schema).
//!
//! Strings, numbers and constants are lexemes; arrays and objects are rules; equal ones share one
//! rule, even across tools.
//! A long string is split into runs of characters, so that the lexer needs no state for each
//! position in it.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::arguments::Rules;
use super::cost::Judge;
use super::turn::quote;
use super::{SchemaError, decimal, text};
use crate::chat::json::dumps;

/// Most characters in one run of a long string.
pub(super) const RUN: u64 = 256;
/// Most characters of a key that the schema doesn't name, if strings are limited.
const KEY: u64 = 64;
/// How deep rules may nest: llguidance recurses into them.
const DEEPEST: usize = 160;
/// How many array items with a schema each may be optional: each nests in the one before.
const MOST_OPTIONAL: usize = 128;
/// Total length of the names that a key must not have, in bytes: they form one expression.
const NAMES: usize = 32_768;

/// The Lark grammar of the values of a written schema.
///
/// # Errors
/// If the grammar is too expensive.
pub(super) fn lark(schema: &Value, judge: Judge) -> Result<String, SchemaError> {
    let mut rules = Rules::new(&|_| None, judge);
    let rule = rules.json(schema)?;
    rules.add("start", &rule);
    Ok(rules.into_text())
}

impl Rules<'_> {
    /// Adds a rule for the values of a written schema; returns its name.
    ///
    /// # Errors
    /// If it is too expensive, or nests too deep.
    pub(super) fn json(&mut self, schema: &Value) -> Result<String, SchemaError> {
        let outer = std::mem::take(&mut self.named);
        self.depth = 0;
        let rule = self.value(schema, schema);
        self.named = outer;
        rule
    }

    fn value(&mut self, schema: &Value, root: &Value) -> Result<String, SchemaError> {
        self.go_on()?;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(broken(format!("schemas nest more than {DEEPEST} deep, references followed")));
        }
        let rule = self.value_within(schema, root);
        self.depth -= 1;
        rule
    }

    fn value_within(&mut self, schema: &Value, root: &Value) -> Result<String, SchemaError> {
        if let Some(pointer) = schema.get("$ref").and_then(Value::as_str) {
            return self.definition(pointer, root);
        }
        if let Some(options) = schema.get("anyOf").and_then(Value::as_array) {
            let options: Result<Vec<_>, _> = options.iter().map(|option| self.value(option, root)).collect();
            return Ok(self.rule("", &options?.join(" | ")));
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return self.constants(values);
        }
        let parts = parts(schema);
        match parts.iter().find_map(|part| part.get("type")?.as_str()) {
            Some("null") => Ok(self.lexeme("\"null\"")),
            Some("boolean") => Ok(self.lexeme("/true|false/")),
            Some("integer" | "number") => self.number(schema),
            Some("string") => self.string(parts),
            Some("array") => self.array(schema, root),
            Some("object") => self.object(schema, root),
            _ => Err(broken("a schema has no type")),
        }
    }

    fn definition(&mut self, pointer: &str, root: &Value) -> Result<String, SchemaError> {
        if let Some(rule) = self.named.get(pointer) {
            return Ok(rule.clone());
        }
        let target = pointer.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        let target = target.ok_or_else(|| broken(format!("{pointer} leads nowhere")))?;
        let rule = self.fresh_rule();
        self.named.insert(pointer.into(), rule.clone());
        let body = self.value(target, root)?;
        self.add(&rule, &body);
        Ok(rule)
    }

    fn constants(&mut self, values: &[Value]) -> Result<String, SchemaError> {
        let texts: Result<Vec<String>, _> = values.iter().map(|value| Ok(quote(&dumps(value)?))).collect();
        let texts = texts.map_err(|error: serde_json::Error| broken(error.to_string()))?;
        Ok(self.lexeme(&texts.join(" | ")))
    }

    fn number(&mut self, schema: &Value) -> Result<String, SchemaError> {
        if schema.get("multipleOf").is_some() {
            return Ok(self.rule("", &format!("%json {schema}")));
        }
        let (Some(Value::Number(low)), Some(Value::Number(high))) =
            (schema.get("minimum"), schema.get("maximum"))
        else {
            return Err(broken("a number has no bounds"));
        };
        let whole = schema["type"] == "integer";
        let regex = decimal::between(low, high, whole)
            .ok_or_else(|| broken("its numbers have more places than are written"))?;
        Ok(self.lexeme(&format!("/{regex}/")))
    }

    fn string(&mut self, parts: &[Value]) -> Result<String, SchemaError> {
        if let [part] = parts
            && part.get("pattern").is_none()
            && part.get("minLength").is_none()
            && let Some(most) = part.get("maxLength").and_then(Value::as_u64).filter(|&most| most > RUN)
        {
            return Ok(self.long_string(most));
        }
        let (mut terms, mut judged) = (Vec::new(), Vec::new());
        for part in parts {
            let bound = |key: &str| part.get(key).and_then(Value::as_u64);
            let (least, most) = (bound("minLength").unwrap_or(0), bound("maxLength"));
            if least > 0 || most.is_some() {
                let most = most.map_or(String::new(), |most| most.to_string());
                terms.push(format!("/{}{{{least},{most}}}/", text::ANY));
            }
            if let Some(pattern) = part.get("pattern").and_then(Value::as_str) {
                let whole = pattern.strip_prefix('^').and_then(|pattern| pattern.strip_suffix('$'));
                terms.push(format!("/{}/", text::quoted(whole.unwrap_or(pattern)).map_err(broken)?));
                judged.extend(part.get("$comment").and_then(Value::as_str));
            }
            if let Some(values) = part.get("enum").and_then(Value::as_array) {
                let texts: Vec<String> = values.iter().filter_map(Value::as_str).map(text::literal).collect();
                terms.push(format!("/{}/", texts.join("|")));
            }
        }
        if terms.is_empty() {
            terms.push(format!("/{}*/", text::ANY));
        }
        let body = format!("\"\\\"\" ({}) \"\\\"\"", terms.join(" & "));
        if let Some(place) = judged.last() {
            self.afford(&body, place)?;
        }
        Ok(self.lexeme(&body))
    }

    /// A string of up to `most` characters, which is more than a run.
    /// Shorter strings are one lexeme, like constants.
    /// In longer ones whole runs follow one another, then a short one that ends with the quote.
    fn long_string(&mut self, most: u64) -> String {
        let any = text::ANY;
        let tail = |most: u64| format!("/{any}{{0,{most}}}\\x{{22}}/");
        let (runs, left) = (most / RUN - 1, most % RUN);
        let whole = self.lexeme(&format!("/\\x{{22}}{any}{{0,{}}}\\x{{22}}/", RUN - 1));
        let head = self.lexeme(&format!("/\\x{{22}}{any}{{{RUN}}}/"));
        let last = self.lexeme(&tail(left));
        let rest = if runs == 0 {
            last
        } else {
            let run = self.lexeme(&format!("/{any}{{{RUN}}}/"));
            let short = self.lexeme(&tail(RUN - 1));
            let fewer = repeat(&run, 0, Some(runs - 1));
            format!("({fewer} {short} | {run}{{{runs}}} {last})")
        };
        self.rule("", &format!("{whole} | {head} {rest}"))
    }

    fn array(&mut self, schema: &Value, root: &Value) -> Result<String, SchemaError> {
        let empty = Vec::new();
        let prefix = schema.get("prefixItems").and_then(Value::as_array).unwrap_or(&empty);
        let prefix: Vec<String> =
            prefix.iter().map(|item| self.value(item, root)).collect::<Result<_, SchemaError>>()?;
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let (least, most) = (bound("minItems").unwrap_or(0), bound("maxItems"));
        let beyond = |count: u64| count.saturating_sub(prefix.len() as u64);
        let mut items = match schema.get("items") {
            None | Some(Value::Bool(false)) => String::new(),
            Some(_) if most.is_some_and(|most| beyond(most) == 0) => String::new(),
            Some(item) => {
                let item = self.value(item, root)?;
                if prefix.is_empty() {
                    let more =
                        repeat(&format!("\", \" {item}"), least.saturating_sub(1), most.map(|most| most - 1));
                    format!("{item} {more}")
                } else {
                    repeat(&format!("\", \" {item}"), beyond(least), most.map(beyond))
                }
            }
        };
        // An item that requires the one before it nests in it; required items follow one another.
        let needed = (least.max(1) as usize).min(prefix.len());
        if prefix.len() - needed > MOST_OPTIONAL {
            return Err(broken(format!("more than {MOST_OPTIONAL} items of an array may be missing")));
        }
        for item in prefix[needed..].iter().rev() {
            items = format!("{}?", self.rule("", &format!("\", \" {item} {items}")));
        }
        if needed > 0 {
            items = format!("{} {items}", prefix[..needed].join(" \", \" "));
        }
        let items = match items.as_str() {
            "" => String::new(),
            items if least == 0 => format!("({items})?"),
            items => items.into(),
        };
        Ok(self.rule("", &format!("\"[\" {items} \"]\"")))
    }

    fn object(&mut self, schema: &Value, root: &Value) -> Result<String, SchemaError> {
        let map = |key: &str| schema.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let properties = map("properties");
        let mut items = Vec::new();
        for (name, value) in properties.iter().filter(|(_, value)| **value != Value::Bool(false)) {
            let value = self.value(value, root)?;
            let item = self.rule("", &format!("{} \": \" {value}", quote(&json!(name).to_string())));
            items.push((item, required.iter().any(|needed| needed == name)));
        }
        let count = items.iter().filter(|(_, required)| *required).count() as u64;
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let least = bound("minProperties").unwrap_or(0).saturating_sub(count);
        let most = bound("maxProperties").map(|most| most.saturating_sub(count));
        let others = self.others(schema, &properties, &map("patternProperties"), root)?;
        if !others.is_empty() && most != Some(0) {
            let other = self.rule("", &others.join(" | "));
            let more = repeat(&format!("\", \" {other}"), least.saturating_sub(1), most.map(|most| most - 1));
            items.push((self.rule("", &format!("{other} {more}")), least > 0));
        }
        let body = self.separated(&items, ", ");
        Ok(self.rule("", &format!("\"{{\" {body} \"}}\"")))
    }

    /// Keys that aren't properties, with their values: one alternative for each pattern, and one
    /// for all others.
    fn others(
        &mut self,
        schema: &Value,
        properties: &Map<String, Value>,
        patterns: &Map<String, Value>,
        root: &Value,
    ) -> Result<Vec<String>, SchemaError> {
        let mut taken: Vec<String> = properties.keys().map(|name| text::literal(name)).collect();
        let mut options = Vec::new();
        let mut option = |self_: &mut Self, key: String, taken: &[String], value: &Value| {
            if *value == Value::Bool(false) {
                return Ok(());
            }
            if taken.iter().map(String::len).sum::<usize>() > NAMES {
                return Err(broken("an object has too many names to tell its other keys from them"));
            }
            let mut body = format!("/{key}/");
            if self_.string_limit.is_some() {
                let _ = write!(body, " & /{}{{0,{KEY}}}/", text::ANY);
            }
            if !taken.is_empty() {
                let _ = write!(body, " & ~/{}/", taken.join("|"));
            }
            let key = format!("\"\\\"\" ({body}) \"\\\"\"");
            if !patterns.is_empty() {
                let place = schema.get("$comment").and_then(Value::as_str).unwrap_or_default();
                self_.afford(&key, place)?;
            }
            let key = self_.lexeme(&key);
            options.push(format!("{key} \": \" {}", self_.value(value, root)?));
            Ok::<(), SchemaError>(())
        };
        let named = taken.clone();
        for (pattern, value) in patterns {
            let whole = pattern.strip_prefix('^').and_then(|pattern| pattern.strip_suffix('$'));
            let key = text::quoted(whole.unwrap_or(pattern)).map_err(broken)?;
            taken.push(key.clone());
            option(self, key, &named, value)?;
        }
        let rest = schema.get("additionalProperties").unwrap_or(&Value::Bool(false));
        option(self, format!("{}*", text::ANY), &taken, rest)?;
        Ok(options)
    }
}

/// The conjuncts of a written schema.
pub(super) fn parts(schema: &Value) -> &[Value] {
    schema.get("allOf").and_then(Value::as_array).map_or(std::slice::from_ref(schema), Vec::as_slice)
}

/// The error for a schema that `schema` never writes: a bug, but no reason to permit anything.
fn broken(reason: impl Into<String>) -> SchemaError {
    SchemaError::of_whole(reason.into())
}

fn repeat(item: &str, least: u64, most: Option<u64>) -> String {
    match (least, most) {
        (_, Some(0)) => String::new(),
        (0, None) => format!("({item})*"),
        (least, most) => {
            format!("({item}){{{least},{}}}", most.map_or(String::new(), |most| most.to_string()))
        }
    }
}
