//! Regression tests, each named after its bug.

use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

/// A decimal without trailing zeros.
fn decimal(units: i64, places: u32) -> String {
    let unit = 10i64.pow(places);
    let (whole, fraction) = (units.abs() / unit, units.abs() % unit);
    let sign = if units < 0 { "-" } else { "" };
    let text = format!("{sign}{whole}.{fraction:0width$}", width = places as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn numbers_end() {
    let bytes = Grammar::of_bytes();
    for (schema, digit) in [
        (json!({"type": "number"}), b'0'),
        (json!({"type": "integer"}), b'9'),
        (json!({"type": "number", "minimum": 0.5}), b'9'),
        (json!({"type": "number", "exclusiveMaximum": -3}), b'1'),
        (json!({"type": "number", "minimum": 0, "maximum": 1}), b'0'),
        (json!({"type": "integer", "minimum": 20_000_000_000_000_000_i64}), b'7'),
        (json!({}), b'4'),
    ] {
        let parser = bytes.compile_schema(&strict(&schema).unwrap()).unwrap();
        let mut matcher = Matcher::new(Ok(parser));
        let mut text = String::new();
        for first in [b"1", b"-", b"2"] {
            if matcher.try_consume_tokens(&[u32::from(first[0])]).unwrap() == 1 {
                text.push(first[0] as char);
                break;
            }
        }
        // A model that writes digits endlessly, and a point only when no digit is permitted.
        while !matcher.is_stopped() && text.len() < 80 {
            let mask = matcher.compute_mask().unwrap();
            let wanted = [digit, b'0', b'9', b'.'];
            let Some(&byte) = wanted.iter().find(|&&byte| mask.is_allowed(u32::from(byte))) else { break };
            matcher.consume_token(u32::from(byte)).unwrap();
            text.push(byte as char);
        }
        assert!(
            text.len() < 40 && (matcher.is_stopped() || matcher.is_accepting().unwrap()),
            "{text} for {schema}"
        );
        let value = parsed(&text);
        assert!(value.as_f64().is_some_and(f64::is_finite), "{text}");
        assert!(validator(&schema).is_valid(&value), "{text} for {schema}");
    }
}

#[test]
fn ordinary_decimals_can_be_written() {
    let check = |limits: Value, permitted: &[&str], forbidden: &[&str]| {
        let mut schema = limits;
        schema["type"] = "number".into();
        super::check(&schema, permitted, forbidden);
    };
    check(
        json!({"exclusiveMinimum": 0, "exclusiveMaximum": 1}),
        &["0.9", "0.99", "0.5", "0.000001", "0.90"],
        &["0", "1", "1.0", "0.0", "-0.1"],
    );
    check(json!({"maximum": 9.75}), &["9.7", "9.75", "9.750", "9", "-100.25"], &["9.76", "9.751", "10"]);
    check(json!({"maximum": 1.25}), &["1.2", "1.25", "1", "-7"], &["1.3", "1.26"]);
    check(json!({"exclusiveMaximum": 100}), &["99.9", "99.99", "99"], &["100", "100.0"]);
    check(json!({"minimum": -9.75}), &["-9.7", "-9.75", "0"], &["-9.76", "-10"]);
    check(json!({"minimum": 0.5, "maximum": 0.55}), &["0.5", "0.54", "0.55"], &["0.4", "0.56"]);
    check(json!({"minimum": 0, "maximum": 1e-9}), &["0", "0.0000000005"], &["0.1", "0.00000001"]);
    check(json!({"maximum": 9.75, "multipleOf": 0.05}), &["9.7", "9.75", "9.05", "9"], &["9.8", "9.71"]);
}

#[test]
fn decimals_are_judged_as_by_a_validator() {
    let bound = || prop::option::of((-2_000_000i64..2_000_000, 0..5u32));
    let steps = || {
        prop::option::weighted(
            0.3,
            prop::sample::select(vec!["1", "2", "3", "7", "12", "0.5", "0.25", "0.125"]),
        )
    };
    let value = || (-3_000_000i64..3_000_000, 0..6u32);
    let values = (prop::collection::vec(value(), 12), 0..5u32);
    let config = ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() };
    let cases = (bound(), bound(), any::<[bool; 3]>(), steps(), values);
    let outcome =
        TestRunner::new(config).run(&cases, |(low, high, [open, closed, whole], step, (values, near))| {
            let mut schema = json!({"type": if whole { "integer" } else { "number" }});
            let mut texts: Vec<String> =
                values.into_iter().map(|(units, places)| decimal(units, places)).collect();
            for (bound, open, keywords) in [
                (low, open, ["minimum", "exclusiveMinimum"]),
                (high, closed, ["maximum", "exclusiveMaximum"]),
            ] {
                let Some((units, places)) = bound else { continue };
                schema[keywords[usize::from(open)]] = parsed(&decimal(units, places));
                // Values near a bound, with fewer or more digits.
                for units in [units - 1, units, units + 1] {
                    texts.push(decimal(units, places));
                    texts.push(decimal(units.div_euclid(10), places.saturating_sub(1)));
                    texts.push(decimal(units * 10i64.pow(near) + 1, places + near));
                }
            }
            if let Some(step) = step {
                schema["multipleOf"] = parsed(step);
            }
            let validator = validator(&schema);
            let verdicts = match Grammar::of_bytes().verdicts(&schema, &texts) {
                Ok(verdicts) => verdicts,
                Err(GrammarError::Schema { .. }) => vec![false; texts.len()],
                Err(error) => panic!("{error}"),
            };
            for (text, permitted) in texts.iter().zip(verdicts) {
                prop_assert_eq!(permitted, validator.is_valid(&parsed(text)), "{} for {}", text, schema);
            }
            let odd = ["1e3", "-0", "-0.0", "01", "+1", ".5", "1.", "1E2"];
            let odd = Grammar::of_bytes().verdicts(&schema, &odd).unwrap_or_default();
            prop_assert!(odd.iter().all(|permitted| !permitted));
            Ok(())
        });
    outcome.unwrap();
}

#[test]
fn what_costs_too_much_is_found_before_the_answer() {
    let schema = json!({"type": "object", "properties": {"mail":
        {"type": "string", "format": "email", "pattern": "@example\\.com$"}}, "required": ["mail"]});
    let texts = ["{\"mail\": \"jane.doe@example.com\"}", "{\"mail\": \"jane.doe@example.org\"}"];
    // The schema is enforced or refused with a place, but never fails later.
    match Grammar::of_bytes().verdicts(&schema, &texts) {
        Ok(verdicts) => assert_eq!(verdicts, [true, false]),
        Err(error) => {
            let expected = "the output schema can't be guaranteed: pattern at /properties/mail/pattern: ";
            assert!(error.to_string().starts_with(expected), "{error}");
        }
    }
}

#[test]
fn schemas_that_double_are_answered_at_once() {
    let start = Instant::now();
    let mut definitions = Map::new();
    definitions.insert("d0".into(), json!({"type": "string"}));
    for level in 1..=30 {
        let below = json!({"$ref": format!("#/$defs/d{}", level - 1)});
        definitions.insert(
            format!("d{level}"),
            json!({"type": "object", "properties": {"a": below, "b": below}, "patternProperties": {"^x": below}}),
        );
    }
    let schema = json!({"$ref": "#/$defs/d30", "$defs": definitions});
    check(&schema, &["{}", "{\"a\": {\"b\": {\"a\": {}}}}"], &["{\"a\": 1}", "{\"c\": {}}"]);
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());

    // Nested alternatives that have to be spelled out.
    let mut inner = json!({"type": "string"});
    for _ in 0..6 {
        let properties: Map<String, Value> = (0..6).map(|n| (format!("k{n}"), inner.clone())).collect();
        inner = json!({"type": "object", "properties": properties, "minProperties": 3, "maxProperties": 3});
    }
    refused(&inner, "");
    let long: Map<String, Value> = (1..=400)
        .map(|n| {
            (
                format!("d{n}"),
                json!({"type": "object", "properties": {"a": {"$ref": format!("#/$defs/d{}", n - 1)}}}),
            )
        })
        .chain([("d0".to_owned(), json!({"type": "string"}))])
        .collect();
    refused(&json!({"$ref": "#/$defs/d400", "$defs": long}), "schemas nest more than");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn keywords_that_can_not_be_guaranteed_are_left_out() {
    let check = |schema: Value, loose: Value, places: &[&str]| {
        let (found, left_out) = loosened(&schema).unwrap();
        assert_eq!(found, loose, "{schema}");
        assert_eq!(left_out.iter().map(|refusal| refusal.pointer.as_str()).collect::<Vec<_>>(), places);
    };
    let set = json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true});
    let list = json!({"type": "array", "items": {"type": "string"}});
    let of = |schema: &Value| json!({"type": "object", "properties": {"a": schema}});
    check(of(&list), of(&list), &[]);
    check(of(&set), of(&list), &["/properties/a/uniqueItems"]);
    let looks = |pattern: &str| json!({"type": "object", "properties": {"a": set, "b": {"type": "string", "pattern": pattern}}});
    check(
        looks("^(?!\\.)(?!.*\\.\\.)[a-z.]+@[a-z.]+$"),
        json!({"type": "object", "properties": {"a": list, "b": {"type": "string"}}}),
        &["/properties/b/pattern", "/properties/a/uniqueItems"],
    );
    // In a negation, removing a keyword would tighten the schema.
    check(json!({"not": {"type": "string", "pattern": "a(?=b)"}}), json!({}), &["/not/pattern"]);
    // A schema that isn't understood can't be validated against either.
    for bad in
        [json!({"type": "kaboom"}), json!({"pattern": "^(a$"}), json!({"$ref": "https://example.com/x.json"})]
    {
        assert!(loosened(&bad).is_err(), "{bad}");
    }
    let arguments = |value: Value| value.as_object().cloned().unwrap();
    assert_eq!(violation(&of(&set), &arguments(json!({"a": ["x", "y"]}))), None);
    let message = violation(&of(&set), &arguments(json!({"a": ["x", "x"]}))).unwrap();
    assert!(message.starts_with("/a: "), "{message}");
}
