//! Kinds of schemas that clients really send, in their largest sizes.

use std::time::{Duration, Instant};

use super::*;

/// Time limit for one schema, compilation included, without optimization and on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// A schema with a text that it permits, spaced as grammars write it, and a text that it forbids.
type Kind = (&'static str, Value, String, &'static str);

/// Variant `number` of an object; `kind` distinguishes the variants.
fn variant(number: usize, properties: usize) -> Value {
    let mut object = json!({"kind": {"const": format!("k{number}")}});
    for at in 0..properties {
        let schema = match at % 4 {
            0 => json!({"type": "string", "description": "a text"}),
            1 => json!({"type": "integer", "minimum": 0}),
            2 => json!({"type": "array", "items": {"type": "string"}}),
            _ => json!({"enum": ["a", "b", null]}),
        };
        object[format!("p{at}")] = schema;
    }
    json!({"type": "object", "properties": object, "required": ["kind"], "additionalProperties": false})
}

fn kinds() -> Vec<Kind> {
    let string = || json!({"type": "string"});
    let any_key = |pattern: &str| json!({"type": "object", "patternProperties": {pattern: string()}});
    let (map, wrong) = ("{\"a b\": \"c\"}", "{\"a\": 1}");
    let variants = |count, properties| (0..count).map(|at| variant(at, properties)).collect::<Vec<_>>();
    let names = |count| (0..count).map(|at| format!("name {at}")).collect::<Vec<_>>();
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
        "name": string(), "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["name"], "additionalProperties": false}}});
    let fields = |count: usize| (0..count).map(|at| (format!("f{at}"), string())).collect::<Map<_, _>>();
    let all: Vec<String> = fields(120).keys().map(|name| format!("\"{name}\": \"x\"")).collect();
    let required: Vec<String> = fields(120).keys().cloned().collect();
    let second = "{\"kind\": \"k1\", \"p1\": 7}";
    let mut kinds: Vec<Kind> = vec![
        ("every key by .*", any_key(".*"), map.into(), wrong),
        ("every key by nothing", any_key(""), map.into(), wrong),
        ("every key by ^.*$", any_key("^.*$"), map.into(), wrong),
        (
            "every key beside a pattern",
            json!({"type": "object", "patternProperties": {".*": string(), "^x-": {"maxLength": 3}}}),
            "{\"x-a\": \"abc\"}".into(),
            "{\"x-a\": \"abcd\"}",
        ),
        (
            "a pattern beside a length",
            json!({"type": "string", "pattern": "^[a-z ]+$", "maxLength": 5000}),
            format!("\"{}\"", "ab ".repeat(500)),
            "\"A\"",
        ),
        (
            "a pattern beside both lengths",
            json!({"type": "string", "pattern": "^\\S+$", "minLength": 1, "maxLength": 5000}),
            "\"abc\"".into(),
            "\"a b\"",
        ),
        ("an enum of 3000", json!({"enum": names(3000)}), "\"name 2999\"".into(), "\"name 3000\""),
        ("a tree", tree, "{\"name\": \"a\", \"children\": [{\"name\": \"b\"}]}".into(), "{\"children\": []}"),
        (
            "120 required properties",
            json!({"type": "object", "properties": fields(120), "required": required}),
            format!("{{{}}}", all.join(", ")),
            "{}",
        ),
        (
            "300 optional properties",
            json!({"type": "object", "properties": fields(300), "additionalProperties": false}),
            "{\"f0\": \"a\", \"f299\": \"b\"}".into(),
            "{\"f300\": \"b\"}",
        ),
        (
            "a list of variants",
            json!({"type": "array", "items": {"oneOf": variants(20, 10)}, "maxItems": 50}),
            format!("[{second}, {second}]"),
            "[{\"kind\": \"k20\"}]",
        ),
    ];
    for keyword in ["oneOf", "anyOf"] {
        let large = json!({keyword: variants(12, 40)});
        kinds.push(("large variants", large, second.into(), "{\"kind\": \"k12\"}"));
        let many = json!({keyword: variants(100, 8)});
        kinds.push(("many variants", many, second.into(), "{\"kind\": \"k100\"}"));
    }
    kinds
}

#[test]
fn kinds_of_real_schemas_are_honoured_soon() {
    let grammar = Grammar::of_bytes();
    for (name, schema, permitted, forbidden) in kinds() {
        let begun = Instant::now();
        let verdicts = grammar.verdicts(&schema, &[&permitted, forbidden]);
        let verdicts = verdicts.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(verdicts, [true, false], "{name}");
        assert!(begun.elapsed() < PATIENCE, "{name} took {:?}", begun.elapsed());
        let valid = |text: &str| validator(&schema).is_valid(&serde_json::from_str(text).unwrap());
        assert!(valid(&permitted) && !valid(forbidden), "{name}");
    }
}
