//! Arguments that are written without quotes: their types come from the tool's schema.

use serde_json::{Map, Value};

use super::literal;

/// The JSON types that a schema permits, by their names in JSON Schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Types(u8);

const NAMES: [&str; 7] = ["string", "integer", "number", "boolean", "null", "object", "array"];
const STRING: u8 = 1;
/// How many nested references are followed.
const DEPTH: usize = 16;
/// How many schemas are examined for one argument.
const MOST_SCHEMAS: usize = 256;

impl Types {
    const ALL: Types = Types(0x7f);

    /// The types that `schema` permits; all if it doesn't restrict them.
    /// References are resolved from `root`.
    pub(crate) fn of(schema: &Value, root: &Value) -> Self {
        Self::within(schema, root, DEPTH)
    }

    /// The types that a tool's parameters permit for the argument `key`.
    pub(crate) fn of_argument(parameters: &Value, key: &str) -> Self {
        let additional = parameters.get("additionalProperties").filter(|schema| schema.is_object());
        match (Self::declared(parameters, parameters, key, &mut { MOST_SCHEMAS }), additional) {
            (Some(types), _) => types,
            (None, Some(schema)) => Types::of(schema, parameters),
            (None, None) => Self::ALL,
        }
    }

    /// The types that an object schema permits for a key, directly or through its subschemas: those
    /// that all parts permit, or of alternatives any that has the key.
    /// `None` if the schema doesn't declare the key.
    fn declared(schema: &Value, root: &Value, key: &str, left: &mut usize) -> Option<Self> {
        *left = left.checked_sub(1)?;
        let list = |keyword: &str| schema.get(keyword).and_then(Value::as_array).into_iter().flatten();
        let own = schema.get("properties").and_then(|all| all.get(key));
        let mut found: Vec<Types> = own.map(|property| Self::of(property, root)).into_iter().collect();
        let target = schema.get("$ref").and_then(|target| resolve(target, root));
        for part in target.into_iter().chain(list("allOf")) {
            found.extend(Self::declared(part, root, key, left));
        }
        for keyword in ["anyOf", "oneOf"] {
            let options: Vec<Types> =
                list(keyword).filter_map(|option| Self::declared(option, root, key, left)).collect();
            found.extend(options.into_iter().reduce(|a, b| Types(a.0 | b.0)));
        }
        found.into_iter().reduce(|a, b| Types(a.0 & b.0))
    }

    fn within(schema: &Value, root: &Value, depth: usize) -> Self {
        let Some(depth) = depth.checked_sub(1) else { return Self::ALL };
        let Value::Object(map) = schema else { return Self::ALL };
        let named = |name: &Value| {
            let name = name.as_str().unwrap_or_default();
            let bit = NAMES.iter().position(|known| *known == name).map_or(0, |at| 1 << at);
            // Every integer is a number.
            if name == "number" { bit | 1 << 1 } else { bit }
        };
        let mut types = Self::ALL;
        match map.get("type") {
            Some(Value::Array(names)) => types.0 &= names.iter().fold(0, |all, name| all | named(name)),
            Some(name) => types.0 &= named(name),
            None => {}
        }
        if let Some(Value::Array(values)) = map.get("enum") {
            types.0 &= values.iter().fold(0, |all, value| all | Self::type_of(value).0);
        }
        if let Some(value) = map.get("const") {
            types.0 &= Self::type_of(value).0;
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(options)) = map.get(key) {
                types.0 &= options.iter().fold(0, |all, option| all | Self::within(option, root, depth).0);
            }
        }
        for option in map.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            types.0 &= Self::within(option, root, depth).0;
        }
        if let Some(target) = map.get("$ref").and_then(|target| resolve(target, root)) {
            types.0 &= Self::within(target, root, depth).0;
        }
        types
    }

    fn type_of(value: &Value) -> Self {
        Types(match value {
            Value::String(_) => STRING,
            Value::Number(number) if number.is_f64() => 1 << 2,
            Value::Number(_) => 1 << 1,
            Value::Bool(_) => 1 << 3,
            Value::Null => 1 << 4,
            Value::Object(_) => 1 << 5,
            Value::Array(_) => 1 << 6,
        })
    }

    /// Whether strings are permitted.
    pub(super) fn string(self) -> bool {
        self.0 & STRING != 0
    }

    /// Whether only strings are permitted.
    pub(crate) fn only_string(self) -> bool {
        self.0 == STRING
    }

    /// Whether all of `others` are permitted.
    pub(crate) fn contains_all(self, others: Types) -> bool {
        self.0 & others.0 == others.0
    }

    fn contains(self, value: &Value) -> bool {
        // JSON integers may exceed 64 bits.
        let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
        self.0 & (Self::type_of(value).0 | u8::from(whole) << 1) != 0
    }
}

/// The subschema of `root` that a local reference names.
pub(crate) fn resolve<'a>(reference: &Value, root: &'a Value) -> Option<&'a Value> {
    root.pointer(&reference.as_str()?.strip_prefix('#')?.replace("%25", "%"))
}

/// Reads `text` as a value of one of the types: as JSON or as Python, else as a string.
/// `None` if it is neither.
pub(super) fn read(text: &str, types: Types) -> Option<Value> {
    let string = || Some(Value::String(text.to_owned()));
    if types.only_string() {
        return string();
    }
    match literal::value(text) {
        Some(value) if !value.is_string() && types.contains(&value) => Some(value),
        _ if types.string() => string(),
        // A value of an unexpected type, if it is any.
        value => value,
    }
}

/// The name of a value's type, for formats that write it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
        Value::Object(_) => "object",
        Value::Array(_) => "array",
    }
}

/// Parses a JSON object.
pub(super) fn object(text: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_decide_how_a_text_is_read() {
        let check = |schema: Value, text: &str, expected: Value| {
            let parameters = json!({"$ref": "#/$defs/root", "$defs": {
                "root": {"allOf": [{"properties": {"a": schema}}, {"properties": {"b": {}}}]},
                "count": {"type": "integer"},
            }});
            let read = read(text, Types::of_argument(&parameters, "a"));
            assert_eq!(read.unwrap_or_else(|| json!("unreadable")), expected, "{text}");
        };
        check(json!({"type": "string"}), "12", json!("12"));
        check(json!({"type": "integer"}), " 12 ", json!(12));
        check(json!({"type": "number"}), "1.5", json!(1.5));
        check(json!({"$ref": "#/$defs/count"}), "7", json!(7));
        check(json!({"type": ["string", "boolean"]}), "True", json!(true));
        check(json!({"type": ["string", "boolean"]}), "12", json!("12"));
        check(json!({"enum": ["1", "2"]}), "1", json!("1"));
        check(json!({"anyOf": [{"const": 1}, {"const": "one"}]}), "1", json!(1));
        check(json!({"type": "array"}), "[1, 'a']", json!([1, "a"]));
        check(json!({}), "{\"x\": null}", json!({"x": null}));
        check(json!({}), "free text", json!("free text"));
        check(json!({"type": "object"}), "no object", json!("unreadable"));
        check(json!({"type": ["string", "integer"]}), "18446744073709551616", json!(18446744073709551616.0));
    }
}
