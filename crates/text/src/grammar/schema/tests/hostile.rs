//! Malicious schemas: small ones with a huge meaning, and large ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::chat::{Format, Turn};
use crate::request::{Request, Tool, ToolChoice, Until};

/// Time limit for one schema, compilation included, without optimization and on a busy machine;
/// most take a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// Thirty definitions, each of which refers twice to the one before.
fn doubling(double: impl Fn(Value) -> Value) -> Value {
    let mut definitions = json!({"d0": {"type": "string"}});
    for level in 1..=30 {
        definitions[format!("d{level}")] = double(json!({"$ref": format!("#/$defs/d{}", level - 1)}));
    }
    json!({"$ref": "#/$defs/d30", "$defs": definitions})
}

fn nested(depth: usize, wrap: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(json!({"type": "string"}), |inner, _| wrap(inner))
}

fn named(count: usize, schema: impl Fn(usize) -> Value) -> Value {
    (0..count).map(|index| (format!("p{index}"), schema(index))).collect::<serde_json::Map<_, _>>().into()
}

fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect::<Vec<_>>().into()
}

fn hostile() -> Vec<(&'static str, Value)> {
    let string = || json!({"type": "string"});
    let pair = |r: &Value| json!({"a": r, "b": r});
    let mut schemas = vec![
        ("doubling", doubling(|r| json!({"type": "object", "properties": pair(&r)}))),
        (
            "doubling, required",
            doubling(|r| json!({"type": "object", "properties": pair(&r), "required": ["a", "b"]})),
        ),
        (
            "doubling, closed",
            doubling(|r| json!({"type": "object", "properties": pair(&r), "additionalProperties": false})),
        ),
        ("tuples", doubling(|r| json!({"type": "array", "prefixItems": [r, r], "items": false}))),
        ("not", doubling(|r| json!({"not": r}))),
        ("not objects", doubling(|r| json!({"not": {"type": "object", "properties": pair(&r)}}))),
        ("if", doubling(|r| json!({"if": r, "then": r, "else": r}))),
        (
            "if objects",
            doubling(
                |r| json!({"if": {"properties": {"a": r}}, "then": {"properties": {"b": r}}, "else": r}),
            ),
        ),
        ("dependent", doubling(|r| json!({"type": "object", "dependentSchemas": pair(&r)}))),
        (
            "met with itself",
            doubling(|r| {
                let object = json!({"type": "object", "properties": pair(&r)});
                json!({"allOf": [object, object]})
            }),
        ),
        ("unevaluated", doubling(|r| json!({"properties": pair(&r), "unevaluatedProperties": false}))),
        ("patterns of keys", doubling(|r| json!({"patternProperties": {"^a": r, "^b": r}}))),
        (
            "names of keys",
            doubling(|r| json!({"properties": pair(&r), "propertyNames": {"enum": ["a", "b"]}})),
        ),
        (
            "chain",
            json!({"$ref": "#/$defs/p4999", "$defs": named(5000, |index| match index {
                0 => string(),
                index => json!({"$ref": format!("#/$defs/p{}", index - 1)}),
            })}),
        ),
        (
            "chain of objects",
            json!({"$ref": "#/$defs/p4999", "$defs": named(5000, |index| match index {
                0 => string(),
                index => json!({"properties": {"a": {"$ref": format!("#/$defs/p{}", index - 1)}}}),
            })}),
        ),
        (
            "possible one after the other",
            json!({
                "anyOf": list(3000, |index| json!({"$ref": format!("#/$defs/p{index}")})),
                "$defs": named(3000, |index| match index {
                    0 => string(),
                    index => json!({
                        "type": "object",
                        "properties": {"a": {"$ref": format!("#/$defs/p{}", index - 1)}},
                        "required": ["a"],
                    }),
                }),
            }),
        ),
        (
            "each in each",
            json!({"$ref": "#/$defs/p0", "$defs": named(100, |_| {
                json!({"properties": named(100, |index| json!({"$ref": format!("#/$defs/p{index}")}))})
            })}),
        ),
        (
            "cycle",
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        ),
        (
            "anchors",
            json!({
                "anyOf": list(2000, |index| json!({"$ref": format!("#x{index}")})),
                "$defs": named(2000, |index| json!({"$anchor": format!("x{index}"), "type": "null"})),
            }),
        ),
        (
            "one large, often",
            json!({
                "anyOf": list(4000, |_| json!({"allOf": [{"$ref": "#/$defs/a"}, string()]})),
                "$defs": {"a": {"properties": named(4000, |_| string())}},
            }),
        ),
        ("texts", json!({"enum": list(50_000, |index| json!(format!("value {index}")))})),
        ("numbers", json!({"enum": list(50_000, |index| json!(index))})),
        ("a long text", json!({"const": "x".repeat(2_000_000)})),
        ("not a long text", json!({"type": "string", "not": {"const": "x".repeat(20_000)}})),
        (
            "not many texts",
            json!({"type": "string", "not": {"enum": list(20_000, |index| json!(format!("v{index}")))}}),
        ),
        ("not many short texts", json!({"not": {"enum": list(3000, |index| json!(format!("{index}")))}})),
        ("objects", json!({"enum": list(10_000, |index| json!({"a": index, "b": [index, index]}))})),
        ("a long array", json!({"const": list(300_000, |_| json!(1))})),
        ("an array", json!({"const": list(5000, |_| json!(1))})),
        ("tuple", json!({"prefixItems": list(5000, |index| json!({"const": index})), "items": false})),
        (
            "different items",
            json!({"uniqueItems": true, "items": {"enum": list(3000, |index| json!(index))}}),
        ),
        ("names", json!({"type": "object", "properties": named(20_000, |_| string())})),
        ("needed names", json!({"required": list(20_000, |index| json!(format!("p{index}")))})),
        (
            "names and others",
            json!({"properties": named(5000, |_| string()), "additionalProperties": string()}),
        ),
        (
            "a long name and others",
            json!({"properties": {"k".repeat(1_000_000): string()}, "additionalProperties": string()}),
        ),
        (
            "names of two",
            json!({"allOf": [
                {"properties": named(4000, |_| string())},
                {"properties": named(4000, |_| json!({"minLength": 1}))},
            ]}),
        ),
        ("counted names", json!({"properties": named(1000, |_| string()), "minProperties": 1})),
        (
            "patterns",
            json!({"patternProperties": (0..1500)
                .map(|index| (format!("^a{index}_"), string()))
                .collect::<serde_json::Map<_, _>>()}),
        ),
        (
            "names among patterns",
            json!({
                "properties": named(2000, |_| string()),
                "patternProperties": (0..50)
                    .map(|index| (format!("^a{index}_"), string()))
                    .collect::<serde_json::Map<_, _>>(),
            }),
        ),
        (
            "product",
            json!({"allOf": list(12, |one| {
                json!({"anyOf": list(4, |other| json!({"required": [format!("a{one}{other}")]}))})
            })}),
        ),
        (
            "one of many",
            json!({"oneOf": list(300, |index| json!({"properties": {"k": {"const": index}}, "required": ["k"]}))}),
        ),
        ("types", json!({"type": list(100_000, |_| json!("string"))})),
        ("least items", nested(12, |inner| json!({"minItems": 60_000, "items": inner}))),
        ("a pattern with many words", {
            let words: Vec<String> = (0..20_000).map(|index| format!("word{index}x[0-9]")).collect();
            json!({"type": "string", "pattern": format!("^({})$", words.join("|"))})
        }),
        (
            "patterns at once",
            json!({"allOf": list(40, |index| {
                json!({"type": "string", "pattern": format!("a.*b{{{index}}}.*c")})
            })}),
        ),
        ("a factor", json!({"type": "integer", "multipleOf": 99_991})),
        ("nested arrays", nested(120, |inner| json!({"items": inner}))),
        ("nested objects", nested(120, |inner| json!({"properties": {"a": inner}}))),
        ("nested negations", nested(120, |inner| json!({"not": inner}))),
    ];
    for keyword in ["anyOf", "allOf", "oneOf"] {
        let a = |r: &Value| json!({"type": "object", "properties": {"a": r}, "required": ["a"]});
        let b = |r: &Value| json!({"type": "object", "properties": {"b": r}, "required": ["b"]});
        schemas.push((keyword, doubling(|r| json!({keyword: [r, r]}))));
        schemas.push((keyword, doubling(|r| json!({keyword: [a(&r), b(&r)]}))));
        schemas.push((keyword, doubling(|r| json!({keyword: [{"type": "array", "items": r}, a(&r)]}))));
        schemas.push((keyword, nested(120, |inner| json!({keyword: [inner]}))));
    }
    for expression in [
        format!("^{}a{}$", "(".repeat(3000), ")".repeat(3000)),
        format!("^{}a{}$", "(".repeat(30), "+)".repeat(30)),
        "^((a{1,1000}){1,1000}){1,1000}$".into(),
        "^[a-z]{1,100000}$".into(),
        "(a|b)*a(a|b){30}".into(),
        "^(\\p{L}|\\p{N}|[^a-z]){1,500}$".into(),
        format!("^{}$", "a?".repeat(5000)),
        format!("^({})*$", (0..2000).map(|index| format!("a{{{index}}}b")).collect::<Vec<_>>().join("|")),
    ] {
        schemas.push(("pattern", json!({"type": "string", "pattern": expression})));
    }
    schemas
}

fn tool(name: &str, parameters: Value) -> Tool {
    Tool { name: name.into(), description: String::new(), parameters, strict: false }
}

fn turn(format: &str, tools: Vec<Tool>) -> Turn {
    let (tool_choice, string_limit) = (ToolChoice::Required, Some(4000));
    let request = Request { tools, tool_choice, string_limit, ..Request::default() };
    Turn::new(Format::from_name(format).unwrap(), &request, "", "")
}

/// Each schema is enforced or refused quickly, and the process survives.
#[test]
fn hostile_schemas_are_honoured_or_refused_soon() {
    let grammar = Grammar::of_bytes();
    for (name, schema) in hostile() {
        let begun = Instant::now();
        let verdict = grammar.verdicts(&schema, &["\"x\""]);
        let (took, told) =
            (begun.elapsed(), verdict.map_or_else(|error| error.to_string(), |_| String::new()));
        assert!(took < PATIENCE, "{name} took {took:?}: {told:.200}");
        assert!(!told.contains("panic") && !told.contains("backtrace"), "{name}: {told:.200}");
    }
}

/// The same holds for parameters of tools, in every call format, where constraints that can't be
/// guaranteed are left out.
#[test]
fn hostile_parameters_are_honoured_or_loosened_soon() {
    let grammar = Grammar::of_bytes();
    for (name, schema) in hostile() {
        for format in ["hermes", "qwen-xml", "gemma4"] {
            let begun = Instant::now();
            let turn = turn(format, vec![tool("f", schema.clone())]);
            let told = grammar.constraint(&turn, &|_| None, &Until::default()).err();
            let took = begun.elapsed();
            // Keywords are removed one by one until a turn takes too long.
            assert!(took < 4 * PATIENCE, "{name} in {format} took {took:?}: {told:.200?}");
        }
    }
}

/// Validating a value against them, with a validator without limits, is quick too.
#[test]
fn values_are_held_to_hostile_schemas_soon() {
    let deep = (0..100).fold(json!("x"), |inner, _| json!({"a": inner.clone(), "b": 1}));
    for (name, schema) in hostile() {
        for value in [json!("x"), json!({"a": "x", "b": {"a": "x"}}), deep.clone()] {
            let begun = Instant::now();
            let told = mismatch(&schema, &value);
            let took = begun.elapsed();
            assert!(took < PATIENCE, "{name} took {took:?}: {told:.200?}");
        }
    }
    // A value that takes too much work is invalid; a cheap one is validated, however often it
    // repeats.
    let told = |schema: Value, value: Value| mismatch(&schema, &value).unwrap_or_default();
    assert!(told(doubling(|r| json!({"allOf": [r, r]})), json!("x")).contains("too much work"));
    let tree = json!({
        "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}, "v": {"type": "integer"}},
        "additionalProperties": false,
    });
    let grown =
        |leaf: Value| (0..12).fold(json!({"v": leaf}), |below, _| json!({"l": below, "r": below, "v": 1}));
    assert_eq!(told(tree.clone(), grown(json!(1))), "");
    assert!(told(tree, grown(json!("x"))).contains("/v: "));
}

/// A deadline and a disconnected client both end the work.
#[test]
fn compiling_ends_with_the_request() {
    let parameters = json!({"properties": {"a": {"type": "string"}}});
    let turn = turn("hermes", vec![tool("f", parameters)]);
    let over = [
        Until { deadline: Some(Instant::now()), ..Until::default() },
        Until { cancelled: Some(Arc::new(true.into())), ..Until::default() },
    ];
    let grammar = Grammar::of_bytes();
    for until in over {
        let error = grammar.constraint(&turn, &|_| None, &until).err();
        assert!(matches!(error, Some(crate::grammar::GrammarError::Over(_))), "{error:?}");
    }
    assert!(grammar.constraint(&turn, &|_| None, &Until::default()).is_ok());
}
