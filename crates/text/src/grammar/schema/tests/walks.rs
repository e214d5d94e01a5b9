//! Random walks: an independent validator accepts every text that a grammar permits.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

/// A text that the grammar of a schema permits, from random bytes, preferring those that close
/// values.
/// `None` if it doesn't end after some hundred bytes, or if llguidance refuses to build the
/// grammar.
fn walk(grammar: &Grammar, schema: &Value, seed: u64) -> Option<String> {
    let mut matcher = grammar.compile_schema(schema).map(|parser| Matcher::new(Ok(parser))).ok()?;
    let mut state = seed | 1;
    let mut text = Vec::new();
    while !matcher.is_stopped() && text.len() < 400 {
        let mask = matcher.compute_mask().unwrap();
        let bytes: Vec<u8> = (0..=255).filter(|&byte| mask.is_allowed(u32::from(byte))).collect();
        assert!(
            !bytes.is_empty() || matcher.is_accepting().unwrap(),
            "a dead end after {text:?} for {schema}"
        );
        let weight = |byte: u8| match byte {
            b'"' | b'}' | b']' | b',' => 24,
            b'a'..=b'z' | b'0'..=b'9' => 4,
            _ => 1,
        };
        let total: u64 = bytes.iter().map(|&byte| weight(byte)).sum();
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        let stop = matcher.is_accepting().unwrap() && (bytes.is_empty() || random.is_multiple_of(3));
        if stop {
            return String::from_utf8(text).ok();
        }
        let mut left = random % total;
        let byte = *bytes.iter().find(|&&byte| {
            let weight = weight(byte);
            let found = left < weight;
            left = left.saturating_sub(weight);
            found
        })?;
        matcher.consume_token(u32::from(byte)).unwrap();
        text.push(byte);
    }
    if matcher.is_stopped() { String::from_utf8(text).ok() } else { None }
}

/// Repeats walks; returns whether any walk came to its end.
fn all_walks_are_valid(schema: &Value, seed: u64, walks: u64) -> bool {
    let grammar = Grammar::of_bytes();
    let strict = strict(schema).unwrap();
    let validator = validator(schema);
    let mut ended = false;
    for walked in 0..walks {
        let Some(text) = walk(&grammar, &strict, seed.wrapping_add(walked * 7919)) else { continue };
        ended = true;
        let value: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} for {schema}"));
        assert!(validator.is_valid(&value), "{text} does not satisfy {schema}, written as {strict}");
    }
    ended
}

fn leaf() -> impl Strategy<Value = Value> {
    let bound =
        prop_oneof![(-12i64..12).prop_map(Value::from), (-8i32..8).prop_map(|n| json!(f64::from(n) / 4.0))];
    let number = (any::<bool>(), prop::option::of(bound.clone()), prop::option::of(bound), 0..4u8).prop_map(
        |(whole, low, high, kind)| {
            let mut schema = json!({"type": if whole { "integer" } else { "number" }});
            if let Some(low) = low {
                schema[if kind % 2 == 0 { "minimum" } else { "exclusiveMinimum" }] = low;
            }
            if let Some(high) = high {
                schema[if kind / 2 == 0 { "maximum" } else { "exclusiveMaximum" }] = high;
            }
            schema
        },
    );
    let patterns = ["^a", "[0-9]+$", "^(ab|c)*$", "\\d\\w", "^[^a-y]*$", "x.y", "^\\S+@\\S+$", "é|b"];
    let text = (0..3u8, prop::option::of(3..6u8), prop::option::of(prop::sample::select(patterns.to_vec())))
        .prop_map(|(min, max, pattern)| {
            let mut schema = json!({"type": "string", "minLength": min});
            if let Some(max) = max {
                schema["maxLength"] = max.into();
            }
            if let Some(pattern) = pattern {
                schema["pattern"] = pattern.into();
            }
            schema
        });
    let constants = vec![
        json!(null),
        json!(1),
        json!(2.5),
        json!("a"),
        json!("b\n"),
        json!([1]),
        json!({"a": "b"}),
        json!(false),
    ];
    prop_oneof![
        3 => number,
        3 => text,
        2 => prop::sample::subsequence(constants, 1..4).prop_map(|options| json!({"enum": options})),
        1 => prop::sample::select(vec![json!({"type": "boolean"}), json!({}), json!(true), json!({"multipleOf": 0.5}),
            json!({"type": ["integer", "null"], "multipleOf": 3}), json!({"not": {"const": "a"}}), json!({"type": "object"}),
            json!({"$ref": "#/$defs/list"}), json!({"$ref": "#/$defs/node"})]),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 24, 4, |inner| {
        let names = || prop::sample::subsequence(vec!["a", "b", "c"], 0..3);
        let some = prop::collection::vec(inner.clone(), 1..3);
        let object = (prop::collection::vec(inner.clone(), 3), names(), names(), 0..12u8, inner.clone())
            .prop_map(|(schemas, declared, required, kind, other)| {
                let properties: Map<String, Value> =
                    declared.iter().zip(schemas).map(|(name, schema)| ((*name).to_owned(), schema)).collect();
                let mut schema = json!({"properties": properties, "required": required});
                let (keyword, value) = match kind {
                    0 => ("additionalProperties", json!(false)),
                    1 => ("additionalProperties", other),
                    2 => ("minProperties", json!(1)),
                    3 => ("maxProperties", json!(1)),
                    4 => ("patternProperties", json!({"^[bx]": other})),
                    5 => ("propertyNames", json!({"maxLength": 1})),
                    6 => ("dependentRequired", json!({"a": ["b"]})),
                    7 => ("dependentSchemas", json!({"b": other})),
                    8 => ("not", json!({"required": ["c"]})),
                    _ => ("type", json!("object")),
                };
                schema[keyword] = value;
                schema
            });
        let array = (inner.clone(), some.clone(), 0..3u8, prop::option::of(2..4u8), any::<bool>()).prop_map(
            |(items, prefix, min, max, closed)| {
                let mut schema = json!({"type": "array", "items": items, "minItems": min});
                if closed {
                    schema["prefixItems"] = prefix.into();
                }
                if let Some(max) = max {
                    schema["maxItems"] = max.into();
                }
                schema
            },
        );
        let joined = (prop::sample::select(vec!["anyOf", "oneOf", "allOf"]), some, inner.clone()).prop_map(
            |(keyword, options, beside)| match beside {
                Value::Object(mut beside) if keyword != "allOf" => {
                    beside.insert(keyword.into(), options.into());
                    beside.into()
                }
                _ => json!({keyword: options}),
            },
        );
        let condition = (inner.clone(), inner.clone(), inner).prop_map(
            |(condition, then, otherwise)| json!({"if": condition, "then": then, "else": otherwise}),
        );
        prop_oneof![4 => object, 2 => array, 3 => joined, 1 => condition]
    })
}

#[test]
fn what_is_permitted_is_valid() {
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    let (refused, ended) = (Cell::new(0), Cell::new(0));
    let outcome = TestRunner::new(config).run(&(schema(), any::<u64>()), |(mut schema, seed)| {
        if schema.is_object() {
            schema["$defs"] = json!({
                "list": {"type": "array", "items": {"$ref": "#/$defs/list"}, "maxItems": 2},
                "node": {"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}, "b": {"type": "integer"}}},
            });
        }
        if strict(&schema).is_err() {
            refused.set(refused.get() + 1);
        } else if all_walks_are_valid(&schema, seed, 6) {
            ended.set(ended.get() + 1);
        }
        Ok(())
    });
    outcome.unwrap();
    println!("of 400 schemas {} were refused, and walks of {} came to an end", refused.get(), ended.get());
    assert!(ended.get() > 200);
}

#[test]
fn formats_are_what_they_claim() {
    let formats = [
        "date",
        "time",
        "date-time",
        "duration",
        "email",
        "idn-email",
        "hostname",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
        "iri",
        "uri-reference",
        "iri-reference",
        "uri-template",
        "json-pointer",
        "relative-json-pointer",
    ];
    for (seed, format) in formats.iter().enumerate() {
        let schema = json!({"type": "string", "format": format});
        assert!(all_walks_are_valid(&schema, seed as u64 + 1, 60), "{format}");
    }
    let examples = [
        ("date-time", "2026-07-01T12:00:00.5+02:00"),
        ("duration", "P1Y2M3DT4H5M6S"),
        ("email", "jane.doe+x@mail.example.com"),
        ("hostname", "a-b.example.com"),
        ("ipv4", "192.168.0.1"),
        ("ipv6", "2001:db8::1"),
        ("ipv6", "::"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
        ("uri", "https://user@example.com:8080/a/b?q=1#f"),
        ("uri", "mailto:a@b.c"),
        ("uri-reference", "../a/b?c"),
        ("json-pointer", "/a/~0b"),
    ];
    for (format, text) in examples {
        check(
            &json!({"type": "string", "format": format}),
            &[&format!("\"{text}\"")],
            &["\"not one, at all\""],
        );
    }
}

#[test]
fn patterns_mean_what_ecma_262_says() {
    let patterns = [
        "^\\+?[0-9]{3,12}$",
        "^(foo|bar(-[0-9]+)?)$",
        "[0-9]",
        "^a\\^\\$\\.\\[\\]\\(\\)\\|\\{\\}\\*\\+\\?b$",
        "^abc?d*efg+(hij)?kl$",
        "^[\\w|-|.]+@[\\w]+\\.[A-Za-z]{2,4}$",
        "^[A-Fa-f\\d]{4}$",
        "^/([^/]+(/[^/]+)*)?$",
        "^(?:(?:ab)+c)?d$",
        "^\\W\\D\\S$",
        "^[^\\W\\d]+$",
        "^\\u00e9\\x41\\t$",
        "^a{2}b{1,}c{0,2}?$",
        "^(?<year>[0-9]{4})-(x|y)$",
        "^\\p{Lu}\\p{L}*$",
        "^$|^a$",
        "^[a-]$",
        "^[-a]$",
        "^[\\]\\\\]$",
        "^[[]$",
        "^[&&a]$",
        "^(a|b$)",
        "(^a|b)",
        "^.$",
    ];
    for (seed, pattern) in patterns.iter().enumerate() {
        let schema = json!({"type": "string", "pattern": pattern});
        assert!(all_walks_are_valid(&schema, seed as u64 + 1, 40), "{pattern}");
    }
    for pattern in [
        "a(?!b)", "\\bword", "(a)\\1", "a^b", "x++", "[]a]", "(?i)a", "\\Aa", "a{,3}", "[z-a]", "*a",
        "\\ud800", "(a", "a)", "[a",
    ] {
        refused(&json!({"pattern": pattern}), "pattern at /pattern: ");
    }
}
