//! The effect of each keyword.

use super::*;

#[test]
fn types_and_constants() {
    check(&json!(true), &["1", "[]", "{\"a\": [null, \"x\"]}"], &["", "[1,2]", "{\"a\":1}", " 1"]);
    check(&json!({"type": "null"}), &["null"], &["0", "\"null\""]);
    check(&json!({"type": "boolean"}), &["true", "false"], &["null", "True"]);
    check(&json!({"type": ["string", "null"]}), &["\"\"", "null"], &["false"]);
    check(&json!({"const": {"a": [1, "x"]}}), &["{\"a\": [1, \"x\"]}"], &["{\"a\": [1]}", "{}"]);
    check(
        &json!({"enum": ["a", 1, 2.5, null, true]}),
        &["\"a\"", "1", "2.5", "null", "true"],
        &["2", "false"],
    );
    check(&json!({"enum": ["a", "b", 3], "type": "string"}), &["\"a\""], &["3"]);
    check(&json!({"enum": ["日本", "\u{1f600}\n"]}), &["\"日本\"", "\"\u{1f600}\\n\""], &["\"\\u65e5本\""]);
}

#[test]
fn numbers() {
    check(
        &json!({"type": "integer"}),
        &["0", "-7", "9007199254740991"],
        &["-0", "1.0", "1e3", "01", "+1", "9007199254740992"],
    );
    check(
        &json!({"type": "number"}),
        &["0", "-0.5", "3.14", "-7", "0.0"],
        &["-0", "-0.0", "1e999", ".5", "1."],
    );
    check(&json!({"type": "integer", "minimum": 1, "maximum": 14}), &["1", "14"], &["0", "15", "-1", "1.5"]);
    check(
        &json!({"type": "integer", "exclusiveMinimum": 1.5, "exclusiveMaximum": 4}),
        &["2", "3"],
        &["1", "4"],
    );
    check(
        &json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 3, "exclusiveMinimum": true}),
        &["4"],
        &["3"],
    );
    // A number must not round onto an exclusive bound.
    check(
        &json!({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}),
        &["0.1", "0.5"],
        &["0", "0.0", "-0.1"],
    );
    check(&json!({"type": "number", "exclusiveMinimum": 3, "maximum": 3.5}), &["3.25"], &["3", "3.0", "3.6"]);
    check(
        &json!({"type": "number", "minimum": -2.5, "exclusiveMaximum": 0}),
        &["-2.5", "-0.1"],
        &["0", "-0", "-2.6"],
    );
    check(&json!({"type": "integer", "multipleOf": 12, "minimum": 0}), &["0", "24"], &["25", "-12"]);
    check(&json!({"type": "number", "multipleOf": 0.25}), &["0.25", "-1.25"], &["0.3"]);
    check(
        &json!({"type": "integer", "allOf": [{"multipleOf": 4}, {"multipleOf": 6}]}),
        &["12", "-24"],
        &["6", "4"],
    );
    check(
        &json!({"type": "integer", "maximum": 9_223_372_036_854_775_807i64}),
        &["5"],
        &["9223372036854775808"],
    );
    check(&json!({"type": "integer", "not": {"const": 5}, "minimum": 4, "maximum": 6}), &["4", "6"], &["5"]);
    refused(&json!({"const": 9_007_199_254_740_993i64}), "const at /const: ");
    refused(
        &json!({"minimum": 9_007_199_254_740_993i64}),
        "minimum at /minimum: the number can't be held exactly",
    );
    refused(&json!({"multipleOf": 0}), "multipleOf at /multipleOf: ");
    refused(&json!({"type": "number", "minimum": 2, "maximum": 1}), "no value satisfies the schema");
}

#[test]
fn strings() {
    check(
        &json!({"type": "string", "minLength": 2, "maxLength": 3}),
        &["\"ab\"", "\"日本語\""],
        &["\"a\"", "\"abcd\""],
    );
    check(&json!({"type": "string"}), &["\"\\n\\\"\\\\é\""], &["\"\\u00e9\"", "\"\\/\"", "\"\n\"", "'a'"]);
    check(
        &json!({"type": "string", "pattern": "^[A-Z]{2}$"}),
        &["\"AB\""],
        &["\"ABC\"", "\"xABx\"", "\"A\""],
    );
    check(&json!({"type": "string", "pattern": "b"}), &["\"abc\"", "\"b\""], &["\"ac\""]);
    check(&json!({"pattern": "^a|b|c$"}), &["\"ax\"", "\"xbx\"", "\"xc\"", "1"], &["\"xa\"", "\"cx\""]);
    check(&json!({"enum": ["aa", "b"], "pattern": "^a"}), &["\"aa\""], &["\"b\""]);
    check(
        &json!({"type": "string", "not": {"enum": ["root", ""]}}),
        &["\"roo\"", "\"roots\""],
        &["\"root\"", "\"\""],
    );
    check(
        &json!({"allOf": [{"pattern": "^a"}, {"pattern": "z$"}, {"type": "string"}]}),
        &["\"az\""],
        &["\"ab\""],
    );
    check(
        &json!({"type": "string", "format": "date"}),
        &["\"2024-02-29\""],
        &["\"2023-02-29\"", "\"2024-13-01\""],
    );
    check(&json!({"type": "string", "format": "int32"}), &["\"x\""], &["1"]);
    refused(&json!({"format": "regex"}), "format at /format: ");
    refused(&json!({"pattern": "a(?=b)"}), "pattern at /pattern: look-around");
    refused(&json!({"pattern": "^(a$"}), "pattern at /pattern: a parenthesis is not closed");
    refused(&json!({"maxLength": -1}), "maxLength at /maxLength: a count is expected");
}

#[test]
fn arrays() {
    check(
        &json!({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}),
        &["[1]", "[1, 2]"],
        &["[]", "[1, 2, 3]", "[\"a\"]", "[1,2]"],
    );
    check(
        &json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false}),
        &["[]", "[\"a\"]", "[\"a\", 1]"],
        &["[1]", "[\"a\", 1, 2]"],
    );
    check(
        &json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"const": 1}], "additionalItems": {"const": 2}}),
        &["[]", "[1, 2, 2]"],
        &["[2]", "[1, 1]"],
    );
    check(
        &json!({"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": true, "minItems": 2}),
        &["[\"b\", \"a\"]", "[1, \"a\", \"b\"]"],
        &["[\"a\", \"a\"]", "[\"a\"]"],
    );
    check(&json!({"type": "array", "uniqueItems": true, "maxItems": 1}), &["[]", "[{}]"], &["[1, 1]"]);
    refused(
        &json!({"properties": {"s": {"type": "array", "uniqueItems": true}}}),
        "uniqueItems at /properties/s/uniqueItems: ",
    );
    refused(&json!({"contains": {"const": 1}}), "contains at /contains: ");
    refused(&json!({"unevaluatedItems": false}), "unevaluatedItems at /unevaluatedItems: ");
}

#[test]
fn objects() {
    let closed =
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]});
    check(
        &closed,
        &["{\"a\": 1}", "{\"a\": 1, \"b\": {\"c\": 2}}"],
        &["{}", "{\"a\": 1, \"c\": 2}", "{\"b\": 1, \"a\": 1}"],
    );
    check(&json!({"type": "object"}), &["{}", "{\"x\": 1}"], &["{\"x\":1}", "{\"x\": 1,}"]);
    check(
        &json!({"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": {"type": "string"}}),
        &["{\"a\": 1, \"b\": \"x\"}", "{\"b\": \"x\"}"],
        &["{\"b\": \"x\", \"a\": 2}", "{\"b\": 1}"],
    );
    check(
        &json!({"type": "object", "patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": false}),
        &["{}", "{\"x-a\": \"1\"}"],
        &["{\"x-a\": 1}", "{\"y\": \"1\"}"],
    );
    // A pattern that lists names.
    check(
        &json!({"type": "object", "patternProperties": {"^(a|b)$": {"const": 1}, "^b$": {}}, "additionalProperties": false}),
        &["{\"a\": 1, \"b\": 1}"],
        &["{\"b\": 2}", "{\"c\": 1}"],
    );
    check(
        &json!({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 1, "maxProperties": 2}),
        &["{\"a\": 1}", "{\"b\": 1, \"c\": 1}"],
        &["{}", "{\"a\": 1, \"b\": 1, \"c\": 1}"],
    );
    check(
        &json!({"type": "object", "minProperties": 1, "maxProperties": 2}),
        &["{\"a\": 1}"],
        &["{}", "{\"a\": 1, \"b\": 2, \"c\": 3}"],
    );
    check(
        &json!({"type": "object", "propertyNames": {"enum": ["a", "b"]}}),
        &["{}", "{\"a\": 1}"],
        &["{\"c\": 1}"],
    );
    check(&json!({"type": "object", "propertyNames": {"maxLength": 2}}), &["{\"ab\": 1}"], &["{\"abc\": 1}"]);
    check(&json!({"type": "object", "propertyNames": {"pattern": "^a"}}), &["{\"ab\": 1}"], &["{\"b\": 1}"]);
    check(
        &json!({"type": "object", "required": ["a"]}),
        &["{\"a\": 1}", "{\"a\": 1, \"b\": 1}"],
        &["{}", "{\"b\": 1}"],
    );
    // A key may be written twice, so that two different keys can't be enforced.
    refused(&json!({"type": "object", "minProperties": 2}), "no value satisfies the schema");
    refused(
        &json!({"type": "object", "required": true}),
        "required at /required: an array of names is expected",
    );
    check(
        &json!({"type": "object", "properties": {"ab": {"type": "object"}}, "patternProperties": {"^a": {"minProperties": 1}}}),
        &["{\"ab\": {\"x\": 1}, \"ac\": 1}"],
        &["{\"ab\": 1}", "{\"ac\": {}}", "{\"b\": 1}"],
    );
    refused(
        &json!({"patternProperties": {"^a": {}, "b$": {"const": 1}}}),
        "patternProperties at /patternProperties: a key may match several",
    );
}

#[test]
fn alternatives() {
    check(&json!({"anyOf": [{"type": "integer"}, {"const": "x"}]}), &["1", "\"x\""], &["null"]);
    check(
        &json!({"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        &["{\"a\": 1}", "{\"b\": 1}", "{\"a\": 1, \"b\": 1}"],
        &["{}"],
    );
    check(
        &json!({"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        &["{\"a\": 1}", "{\"b\": 1}"],
        &["{}", "{\"a\": 1, \"b\": 1}"],
    );
    check(&json!({"oneOf": [{"type": "number", "minimum": 3}, {"enum": [2, 3]}]}), &["2", "4"], &["3", "1"]);
    check(
        &json!({"oneOf": [
            {"type": "object", "properties": {"k": {"const": 1}, "a": {}}, "additionalProperties": false},
            {"type": "object", "properties": {"k": {"const": 2}, "b": {}}, "additionalProperties": false}]}),
        &["{\"k\": 1}", "{\"k\": 2, \"b\": 0}", "{\"a\": 1}"],
        &["{}", "{\"k\": 1, \"b\": 0}"],
    );
    check(
        &json!({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {}}}], "type": "object"}),
        &["{\"a\": 1, \"b\": 2}"],
        &["{\"b\": 2}", "{\"a\": 1, \"c\": 2}"],
    );
    check(&json!({"not": {"type": ["object", "array"]}}), &["1", "\"\""], &["{}", "[]"]);
    check(&json!({"type": "object", "not": {"required": ["a"]}}), &["{}", "{\"b\": 1}"], &["{\"a\": 1}"]);
    refused(
        &json!({"oneOf": [{"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}]}),
        "oneOf at /oneOf: options 0 and 1 may both hold",
    );
    refused(&json!({"items": {"not": {"pattern": "a"}}}), "not at /items/not: ");
}

#[test]
fn conditions() {
    let member = json!({"type": "object", "properties": {"member": {"type": "boolean"}, "number": {"type": "string"}},
        "required": ["member"], "if": {"properties": {"member": {"const": true}}},
        "then": {"required": ["number"]}, "else": {"properties": {"number": {"maxLength": 1}}}});
    check(
        &member,
        &[
            "{\"member\": true, \"number\": \"12\"}",
            "{\"member\": false}",
            "{\"member\": false, \"number\": \"1\"}",
        ],
        &["{\"member\": true}", "{\"member\": false, \"number\": \"12\"}"],
    );
    let properties = json!({"a": {}, "b": {}, "c": {"type": "integer"}});
    check(
        &json!({"type": "object", "properties": properties, "dependentRequired": {"a": ["b"]}}),
        &["{}", "{\"b\": 1}", "{\"a\": 1, \"b\": 1}"],
        &["{\"a\": 1}"],
    );
    check(
        &json!({"type": "object", "properties": properties, "dependentSchemas": {"a": {"properties": {"c": {"minimum": 7}}}}}),
        &["{\"c\": 1}", "{\"a\": 1, \"c\": 7}"],
        &["{\"a\": 1, \"c\": 6}"],
    );
    check(
        &json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": properties,
            "dependencies": {"a": ["b"], "b": {"required": ["c"]}}}),
        &["{}", "{\"c\": 1}", "{\"a\": 1, \"b\": 1, \"c\": 1}"],
        &["{\"a\": 1}", "{\"a\": 1, \"b\": 1}"],
    );
    check(
        &json!({"type": "object", "allOf": [{"properties": {"a": {}}}], "properties": {"b": {}}, "unevaluatedProperties": false}),
        &["{\"b\": 1, \"a\": 1}"],
        &["{\"c\": 1}"],
    );
}

#[test]
fn references() {
    check(
        &json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
            "next": {"$ref": "#/$defs/node"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}}),
        &["{}", "{\"next\": {\"next\": {}}}", "{\"kids\": [{}, {\"kids\": []}]}"],
        &["{\"next\": 1}", "{\"kids\": [1]}"],
    );
    let named = |extra: Value| json!({"properties": {"a": extra}, "required": ["a"], "type": "object", "$defs": {"a/b": {"type": "integer"}}});
    check(&named(json!({"$ref": "#/$defs/a~1b", "minimum": 3})), &["{\"a\": 3}"], &["{\"a\": 2}"]);
    check(
        &named(json!({"$ref": "#/$defs/a~1b", "default": {"not": 1}})),
        &["{\"a\": 3}"],
        &["{\"a\": \"x\"}"],
    );
    check(
        &json!({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "type": "string",
            "definitions": {"a": {"type": "integer"}}}),
        &["1"],
        &["\"x\""],
    );
    check(
        &json!({"$id": "https://example.com/a.json", "$ref": "https://example.com/a.json#/$defs/b", "$defs": {"b": {"const": 1}}}),
        &["1"],
        &["2"],
    );
    check(&json!({"$ref": "#b", "$defs": {"x": {"$anchor": "b", "const": 1}}}), &["1"], &["2"]);
    refused(
        &json!({"$ref": "https://example.com/other.json"}),
        "$ref at /$ref: https://example.com/other.json is not in",
    );
    refused(&json!({"$ref": "#/$defs/none"}), "$ref at /$ref: ");
    refused(&json!({"$dynamicRef": "#a"}), "$dynamicRef at /$dynamicRef: ");
}

#[test]
fn what_only_annotates_is_dropped() {
    let schema = json!({"type": "object", "title": "T", "x-order": [1], "markdownDescription": "m", "$comment": "c", "nullable": true,
        "properties": {"not": {"type": "string", "deprecated": true, "examples": ["a"], "contentEncoding": "base64"}}});
    check(&schema, &["{}", "{\"not\": \"x\"}"], &["null"]);
    let written = strict(&schema).unwrap().to_string();
    assert!(!written.contains("markdown") && !written.contains("x-order"), "{written}");
}

#[test]
fn bombs_are_refused_in_time() {
    let start = std::time::Instant::now();
    let deep = (0..200).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    refused(&deep, "items at /items");
    let options: Vec<Value> = (0..40).map(|n| json!({"required": [format!("k{n}")]})).collect();
    let products: Vec<Value> = (0..6).map(|_| json!({"anyOf": options})).collect();
    refused(
        &json!({"type": "object", "allOf": products}),
        "allOf at /allOf: the schema has too many combinations",
    );
    let tree =
        |name: &str| json!({"type": "object", "properties": {"child": {"$ref": format!("#/$defs/{name}")}}});
    let trees = json!({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": tree("a"), "b": tree("b")}});
    refused(&trees, "allOf at /allOf: schemas nest more than");
    refused(&json!({"$ref": "#"}), "it refers to itself");
    refused(&json!({"anyOf": [{"$ref": "#"}, {"type": "string"}]}), "it refers to itself");
    let endless = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
    refused(&endless, "no value satisfies the schema");
    let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
    let many: Map<String, Value> = keys.iter().map(|key| (key.clone(), json!({}))).collect();
    refused(
        &json!({"type": "object", "properties": many, "minProperties": 15}),
        "minProperties at /minProperties: ",
    );
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());

    let words: Vec<String> = (0..5000).map(|n| format!("word {n}")).collect();
    check(&json!({"enum": words}), &["\"word 4999\""], &["\"word 5000\""]);
}

#[test]
fn arguments_are_closed_objects() {
    let verdict = |parameters: Value, text: &str| {
        let grammar = Grammar::of_bytes();
        let schema = arguments(&parameters, None).unwrap();
        let mut matcher = grammar.compile_schema(&schema).map(|parser| Matcher::new(Ok(parser))).unwrap();
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        matcher.try_consume_tokens(&tokens).unwrap() == tokens.len()
            && (matcher.is_stopped() || matcher.is_accepting().unwrap())
    };
    let check = |parameters: Value, permitted: &str, forbidden: &str| {
        assert!(verdict(parameters.clone(), permitted), "{parameters} {permitted}");
        assert!(!verdict(parameters.clone(), forbidden), "{parameters} {forbidden}");
    };
    for none in [json!({}), json!(null), json!({"type": "object"}), json!({"properties": {}})] {
        check(none, "{}", "{\"a\": 1}");
    }
    check(json!({"type": "object", "additionalProperties": true}), "{\"a\": 1}", "[]");
    check(json!({"properties": {"a": {"type": "object"}}}), "{\"a\": {\"b\": 1}}", "{\"b\": 1}");
    check(json!({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {}}}}}), "{\"a\": 1}", "null");
    let refusal = arguments(&json!({"type": "string"}), None).unwrap_err();
    assert_eq!(refusal.to_string(), "no value satisfies the schema");
}

#[test]
fn properties_are_independent_or_refused() {
    let flat = |parameters: Value| {
        properties(&parameters, Together::Exactly, None).map(|properties| {
            let list = properties
                .iter()
                .map(|property| format!("{}{}", property.name, if property.required { "!" } else { "" }));
            list.collect::<Vec<_>>().join(" ")
        })
    };
    let check = |parameters: Value, expected: &str| assert_eq!(flat(parameters).unwrap(), expected);
    check(json!(null), "");
    check(json!({"properties": {"a": {}, "b": {"type": "string"}, "n": false}, "required": ["b"]}), "a b!");
    check(json!({"properties": {"a": {}}, "additionalProperties": true, "required": ["z"]}), "a z!");
    check(
        json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "properties": {"a": {"$ref": "#"}}}}}),
        "a",
    );
    check(
        json!({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}, "required": ["a"]}]}),
        "a! b",
    );
    let check = |parameters: Value, keyword: &str| {
        let refusal = flat(parameters).unwrap_err();
        assert_eq!((refusal.pointer, refusal.keyword.as_str()), (format!("/{keyword}"), keyword));
    };
    check(
        json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}}),
        "anyOf",
    );
    check(json!({"properties": {"a": {}}, "minProperties": 1}), "minProperties");
    check(json!({"patternProperties": {"^x": {}}}), "patternProperties");
    check(json!({"additionalProperties": {"type": "string"}}), "additionalProperties");
    check(json!({"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}}), "dependentRequired");

    let node = json!({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}});
    let [property] = &properties(&node, Together::Exactly, None).unwrap()[..] else { panic!() };
    assert!(property.schema["$defs"]["0"].is_object(), "{}", property.schema);
}
