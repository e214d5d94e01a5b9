use serde_json::json;

use super::*;

#[test]
fn examples_are_the_smallest_that_fit() {
    let check = |schema: Value, expected: Value| {
        let mut example = Example { root: &schema, open: Vec::new(), left: SCHEMAS };
        assert_eq!(example.value(&schema, "text", 0), expected, "{schema}");
    };
    let object = |properties: Value| json!({"type": "object", "properties": properties, "required": ["a"]});
    check(json!({}), json!("Hello there"));
    check(json!({"type": "object"}), json!({}));
    check(object(json!({"b": {}, "a": {"type": "string"}})), json!({"a": "blue"}));
    check(
        object(json!({"a": {"properties": {"b": {}, "c": {}}, "required": ["c"]}})),
        json!({"a": {"c": "blue"}}),
    );
    check(json!({"required": ["path"]}), json!({"path": "notes.txt"}));
    check(
        json!({"properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2}),
        json!({"a": "blue", "b": "blue"}),
    );
    check(json!({"minProperties": 2, "additionalProperties": {"const": 1}}), json!({"key0": 1, "key1": 1}));
    check(
        json!({"minProperties": 1, "patternProperties": {"^x[0-9]$": {"type": "null"}}}),
        json!({"x1": null}),
    );

    check(json!({"type": "string", "enum": ["x", "y"], "default": "y"}), json!("y"));
    check(json!({"type": "string", "default": null}), json!("Hello there"));
    check(json!({"type": ["null", "string"], "default": null}), json!(null));
    check(json!({"examples": [7, "seven"], "type": "string"}), json!("seven"));
    check(json!({"const": {"a": 1}}), json!({"a": 1}));
    check(json!({"type": ["null", "integer"]}), json!(1));
    check(json!({"type": "null"}), json!(null));
    check(json!({"type": "boolean"}), json!(true));

    check(json!({"type": "integer"}), json!(1));
    check(json!({"type": "integer", "minimum": 5}), json!(5));
    check(json!({"type": "integer", "exclusiveMinimum": 5, "multipleOf": 4}), json!(8));
    check(json!({"type": "integer", "minimum": 5, "exclusiveMinimum": true}), json!(6));
    check(json!({"type": "integer", "maximum": -3}), json!(-3));
    check(json!({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}), json!(0.5));
    check(json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5}), json!(0.25));
    check(json!({"multipleOf": 0.1, "maximum": 0.75}), json!(0.1));

    check(json!({"type": "array"}), json!([]));
    check(json!({"items": {"type": "integer"}}), json!([1]));
    check(json!({"items": {"type": "integer"}, "minItems": 3, "uniqueItems": true}), json!([1, 2, 3]));
    check(json!({"items": {"enum": ["x", "y"]}, "minItems": 2, "uniqueItems": true}), json!(["x", "y"]));
    check(json!({"prefixItems": [{"type": "integer"}, {"const": "b"}], "items": false}), json!([1, "b"]));
    check(json!({"items": {}, "maxItems": 0}), json!([]));

    check(json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}), json!(1));
    check(json!({"allOf": [{"minimum": 2}, {"maximum": 9}], "type": "integer"}), json!(2));
    check(
        json!({"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}),
        json!({"a": "blue", "b": "blue"}),
    );
    check(
        json!({"properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["b"]}, {"required": ["a"]}]}),
        json!({"b": "blue"}),
    );
    let tree = json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "properties": {
                "children": {"items": {"$ref": "#/$defs/node"}},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["children", "next"],
        }},
    });
    check(tree, json!({"children": [], "next": null}));
}

#[test]
fn endless_schemas_have_an_end() {
    let check = |schema: Value| drop(arguments(&schema));
    check(
        json!({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#"}}, "required": ["a", "b", "c"]}),
    );
    check(json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}], "$ref": "#"}));
    check(
        json!({"properties": {"a": {"items": {"$ref": "#/properties/a"}, "minItems": 999}}, "required": ["a"]}),
    );
    check(
        json!({"properties": {"a": {"minLength": 999_999_999, "pattern": "((a{256}){256}){256}"}}, "required": ["a"]}),
    );
}

fn shared(path: &str) -> Option<String> {
    let path = crate::absent::shared(&format!("fixtures/{path}"))?;
    Some(std::fs::read_to_string(path).unwrap())
}

fn is_valid(schema: &Value, example: &Value) -> Option<bool> {
    let validator = jsonschema::options().should_validate_formats(true).build(schema).ok()?;
    Some(validator.is_valid(example))
}

#[test]
fn examples_of_real_tools_are_valid() {
    let Some(scenarios) = shared("chat/scenarios.json") else { return };
    let scenarios: Value = serde_json::from_str(&scenarios).unwrap();
    let mut seen = 0;
    for tool in
        scenarios.as_object().unwrap().values().flat_map(|scenario| scenario["tools"].as_array()).flatten()
    {
        let parameters = &tool["function"]["parameters"];
        let example = Value::Object(arguments(parameters));
        assert_eq!(is_valid(parameters, &example), Some(true), "{example} for {parameters}");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

/// Covers schemas of all kinds, beyond those that tools use.
#[test]
fn examples_of_most_schemas_are_valid() {
    let Some(cases) = shared("schema/cases.jsonl") else { return };
    let (mut valid, mut wrong) = (0, Vec::new());
    for line in cases.split_terminator('\n') {
        let case: Value = serde_json::from_str(line).unwrap();
        let schema = &case["schema"];
        let mut example = Example { root: schema, open: Vec::new(), left: SCHEMAS };
        let value = example.value(schema, "text", 0);
        match is_valid(schema, &value) {
            Some(true) => valid += 1,
            Some(false) => wrong.push(format!("{}: {value} for {schema}", case["id"])),
            None => {}
        }
    }
    println!("{valid} examples are valid, {} are not: {wrong:#?}", wrong.len());
    assert!(valid >= 225, "{valid}");
}
