//! Converts the schema of a tool's arguments for a grammar, a jinx and a prompt.
//!
//! A schema may declare arguments elsewhere than in `properties`: in alternatives, in branches of a
//! condition, in a schema that the root refers to, or only by requiring them.
//! Formats that write each argument separately, and rules about the first one, use only the
//! `properties` of the root: so every declaration is copied there.
//! That permits nothing that the schema doesn't.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

/// Longest schema.
pub const BYTES: usize = 16 * 1024;
/// Keywords whose subschemas apply to the value itself.
const IN_PLACE: [&str; 13] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "required",
];
/// Keywords that don't narrow down what a schema permits.
const ANNOTATIONS: [&str; 8] =
    ["$schema", "$defs", "definitions", "title", "description", "default", "examples", "$comment"];
/// Keywords about keys that `properties` doesn't name.
const OTHERS: [&str; 4] =
    ["additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"];
/// Most subschemas to visit.
const MOST_SCHEMAS: usize = 256;
/// Most alternative schemas of one argument.
const MOST_OPTIONS: usize = 8;
/// Longest chain of references.
const MOST_REFERENCES: usize = 8;

/// The schema of a tool's arguments: that of an object with `properties`, without annotations that
/// only take up space.
/// It accepts only the arguments that it declares, unless it declares none or has constraints on
/// others.
///
/// # Errors
/// The reason why no calls can be made with it.
pub fn parameters(schema: &Value) -> Result<Value, String> {
    let size = schema.to_string().len();
    if size > BYTES {
        return Err(format!("its schema has {size} bytes, at most {BYTES} are taken"));
    }
    let mut root = match schema {
        Value::Null => {
            let (kind, properties) =
                (("type".to_owned(), json!("object")), ("properties".to_owned(), json!({})));
            Map::from_iter([kind, properties])
        }
        Value::Object(root) => inlined(root),
        _ => return Err("its schema is not that of an object".to_owned()),
    };
    let is_object = match root.get("type") {
        None => true,
        Some(Value::Array(types)) => types.iter().any(|name| name == "object"),
        Some(name) => name == "object",
    };
    if !is_object {
        return Err("its schema is not that of an object".to_owned());
    }
    root.insert("type".to_owned(), "object".into());
    root.shift_remove("title");
    if !draft_matters(&root) {
        root.shift_remove("$schema");
    }
    declare(&mut root);
    Ok(Value::Object(root))
}

/// A root that is only a reference, replaced by its target.
fn inlined(document: &Map<String, Value>) -> Map<String, Value> {
    let (whole, mut root) = (Value::Object(document.clone()), document.clone());
    for _ in 0..MOST_REFERENCES {
        let only = root.keys().all(|key| key == "$ref" || ANNOTATIONS.contains(&key.as_str()));
        let Some(target) = root.get("$ref").filter(|_| only).and_then(|reference| local(&whole, reference))
        else {
            break;
        };
        let Value::Object(target) = target else { break };
        // Below a nested identifier, references have another base.
        if target.contains_key("$id") || target.contains_key("id") {
            break;
        }
        let mut next = target.clone();
        // Other references still lead to these places.
        for key in ["$schema", "$defs", "definitions"] {
            match document.get(key) {
                Some(value) => drop(next.insert(key.to_owned(), value.clone())),
                None => drop(next.shift_remove(key)),
            }
        }
        root = next;
    }
    root
}

/// The target of a reference within the document.
fn local<'a>(document: &'a Value, reference: &Value) -> Option<&'a Value> {
    document.pointer(reference.as_str()?.strip_prefix('#')?).filter(|target| *target != document)
}

/// Whether a schema of an older draft has another meaning without its `$schema`.
fn draft_matters(root: &Map<String, Value>) -> bool {
    let draft = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let is_old = ["draft-04", "draft-06", "draft-07", "draft/2019-09"].iter().any(|old| draft.contains(old));
    is_old && differs(&Value::Object(root.clone()))
}

/// Whether a schema has a keyword whose meaning differs between drafts.
fn differs(schema: &Value) -> bool {
    match schema {
        Value::Array(items) => items.iter().any(differs),
        Value::Object(map) => {
            let narrows = |key: &String| key != "$ref" && !ANNOTATIONS.contains(&key.as_str());
            ["dependencies", "additionalItems", "$recursiveRef"].iter().any(|key| map.contains_key(*key))
                || map.get("items").is_some_and(Value::is_array)
                || ["exclusiveMinimum", "exclusiveMaximum"]
                    .iter()
                    .any(|key| map.get(*key).is_some_and(Value::is_boolean))
                || (map.contains_key("$ref") && map.keys().any(narrows))
                || map.values().any(differs)
        }
        _ => false,
    }
}

/// Adds every declaration in the schema to the `properties` of the root, and decides whether other
/// keys are permitted.
fn declare(root: &mut Map<String, Value>) {
    let named = root.contains_key("properties");
    let has_others = OTHERS.iter().any(|key| root.contains_key(*key));
    let closes = ["additionalProperties", "unevaluatedProperties"].iter().any(|key| root.contains_key(*key));
    let joins = IN_PLACE.iter().any(|key| *key != "required" && root.contains_key(*key));
    let mut properties = match root.get("properties") {
        Some(Value::Object(properties)) => properties.clone(),
        _ => Map::new(),
    };
    // A closed root is also closed for arguments declared elsewhere.
    if !closes {
        let document = Value::Object(root.clone());
        let mut found = Declared::default();
        found.collect(&document, root, Tells::All);
        for (name, schemas) in found.arguments() {
            properties.entry(name).or_insert(schemas);
        }
        let least = root.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
        let is_enough = least <= properties.len() as u64;
        if named && !joins && !has_others && is_enough {
            root.insert("additionalProperties".to_owned(), false.into());
        } else if !root.contains_key("patternProperties") && (properties.is_empty() || !is_enough) {
            root.insert("additionalProperties".to_owned(), true.into());
        }
    }
    root.insert("properties".to_owned(), properties.into());
}

/// How much a schema determines about the arguments that it declares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tells {
    /// Only their names: the schema is a condition.
    Names,
    /// Their types: the schema applies under a condition, and another may apply without it.
    Types,
    /// Their whole schemas.
    All,
}

/// The declarations in the schemas that apply to a root.
#[derive(Default)]
struct Declared {
    /// Each argument with its schemas.
    names: Vec<(String, Vec<Value>)>,
    /// References already followed.
    followed: HashSet<String>,
    seen: usize,
    /// Whether arguments may have other schemas than those under their names, because of keywords
    /// about all other keys.
    loose: bool,
}

impl Declared {
    /// Adds the declarations of a schema.
    fn collect(&mut self, document: &Value, schema: &Map<String, Value>, tells: Tells) {
        self.seen += 1;
        if self.seen > MOST_SCHEMAS {
            self.loose = true;
            return;
        }
        let object = |key: &str| schema.get(key).and_then(Value::as_object).into_iter().flatten();
        for (name, value) in object("properties") {
            self.name(name, declarable(value, tells));
        }
        let lists = [schema.get("required")].into_iter().flatten();
        let lists = lists.chain(
            ["dependentRequired", "dependencies"].iter().flat_map(|key| object(key).map(|(_, value)| value)),
        );
        for name in lists.filter_map(Value::as_array).flatten().filter_map(Value::as_str) {
            self.name(name, None);
        }
        self.loose |= OTHERS[..3].iter().any(|key| schema.get(*key).is_some_and(Value::is_object));
        for key in IN_PLACE {
            let Some(value) = schema.get(key) else { continue };
            let inner: Vec<&Value> = match key {
                "$ref" => {
                    let is_new = value.as_str().is_some_and(|text| self.followed.insert(text.to_owned()));
                    local(document, value).filter(|_| is_new).into_iter().collect()
                }
                "allOf" | "anyOf" | "oneOf" => value.as_array().into_iter().flatten().collect(),
                "dependentSchemas" | "dependencies" => {
                    value.as_object().into_iter().flat_map(Map::values).collect()
                }
                "if" | "then" | "else" => vec![value],
                _ => Vec::new(),
            };
            let inner_tells = match key {
                "if" => Tells::Names,
                "then" | "else" | "dependentSchemas" | "dependencies" => tells.min(Tells::Types),
                _ => tells,
            };
            for inner in inner.into_iter().filter_map(Value::as_object) {
                self.collect(document, inner, inner_tells);
            }
        }
    }

    fn name(&mut self, name: &str, schema: Option<Value>) {
        let at = self.names.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.names.push((name.to_owned(), Vec::new()));
            self.names.len() - 1
        });
        let schemas = &mut self.names[at].1;
        if let Some(schema) = schema.filter(|schema| !schemas.contains(schema)) {
            schemas.push(schema);
        }
    }

    /// Each argument, with a schema that is valid wherever one of its schemas is.
    fn arguments(self) -> Vec<(String, Value)> {
        let size = |schemas: &[Value]| schemas.iter().map(|schema| schema.to_string().len()).sum::<usize>();
        let all: usize = self.names.iter().map(|(_, schemas)| size(schemas)).sum();
        let loose = self.loose || all > BYTES;
        let one = |(name, mut schemas): (String, Vec<Value>)| {
            let schema = match schemas.len() {
                1 if !loose => schemas.swap_remove(0),
                2..=MOST_OPTIONS if !loose => json!({"anyOf": schemas}),
                _ => json!({}),
            };
            (name, schema)
        };
        self.names.into_iter().map(one).collect()
    }
}

/// The part of an argument's schema that may be declared at the root.
/// A schema that forbids the argument is left out: another alternative may allow it.
fn declarable(schema: &Value, tells: Tells) -> Option<Value> {
    let is_forbidden = *schema == Value::Bool(false) || *schema == json!({"not": {}});
    match tells {
        _ if is_forbidden => None,
        Tells::Names => None,
        Tells::All => Some(schema.clone()),
        Tells::Types => {
            let kept = ["type", "description"].iter();
            let kept = kept.filter_map(|key| Some(((*key).to_owned(), schema.get(*key)?.clone())));
            let kept: Map<String, Value> = kept.collect();
            kept.contains_key("type").then_some(kept.into())
        }
    }
}
