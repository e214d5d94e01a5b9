//! The records of the shared fixture: the grammar permits no text that its validator refused.

use std::time::{Duration, Instant};

use super::*;

fn records(file: &str) -> Option<Vec<Value>> {
    let path = crate::absent::shared(&format!("fixtures/schema/{file}"))?;
    let text = std::fs::read_to_string(path).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Advances by a text; `None` if it isn't permitted.
fn spell(mut matcher: Matcher, text: &str) -> Option<Matcher> {
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    (matcher.try_consume_tokens(&tokens).ok()? == tokens.len()).then_some(matcher)
}

/// Advances by a value with our separators, in any order of its keys.
fn spell_value(matcher: Matcher, value: &Value) -> Option<Matcher> {
    let separator = |index: usize| if index == 0 { "" } else { ", " };
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let spelled = items.clone().try_fold(spell(matcher, "[")?, |matcher, (index, item)| {
                spell_value(spell(matcher, separator(index))?, item)
            });
            spell(spelled?, "]")
        }
        Value::Object(map) => {
            let keys: Vec<&String> = map.keys().collect();
            spell_keys(&spell(matcher, "{")?, map, &keys)
        }
        other => spell(matcher, &other.to_string()),
    }
}

fn spell_keys(matcher: &Matcher, map: &Map<String, Value>, keys: &[&String]) -> Option<Matcher> {
    if keys.is_empty() {
        return spell(matcher.clone(), "}");
    }
    let comma = if keys.len() == map.len() { "" } else { ", " };
    keys.iter().enumerate().find_map(|(index, key)| {
        let spelled = spell(matcher.clone(), &format!("{comma}{}: ", json!(key)))?;
        let others = [&keys[..index], &keys[index + 1..]].concat();
        spell_keys(&spell_value(spelled, &map[*key])?, map, &others)
    })
}

/// Records with valid texts that can't be written in any order of keys, and why.
const STRICTER: [(&str, &str); 8] = [
    ("llama.cpp-converter-test/array with empty items", "a number has an exponent"),
    ("llama.cpp-converter-test/regexp with top-level alternation", "a string has a control character"),
    ("llama.cpp-converter-test/anyOf", "the option that holds does not declare the key"),
    ("maskbench/Github_easy---o51165", "both options hold, and each declares one of the keys"),
    ("maskbench/Github_medium---o23087", "a key is not declared"),
    ("maskbench/JME_39", "no key is declared"),
    ("maskbench/Github_hard---o41350", "a key is not declared"),
    ("maskbench/Github_hard---o41349", "a key is not declared"),
];

#[test]
fn no_invalid_text_is_permitted() {
    let Some(records) = records("cases.jsonl") else { return };
    let bytes = Grammar::of_bytes();
    let mut reading = Duration::ZERO;
    let (mut refusals, mut permitted, mut beyond) = (Vec::new(), 0, Vec::new());
    for record in &records {
        let (schema, id) = (&record["schema"], &record["id"]);
        let texts = |kind: &str| -> Vec<String> {
            record[kind]
                .as_array()
                .into_iter()
                .flatten()
                .map(|text| text.as_str().unwrap().to_owned())
                .collect()
        };
        let start = Instant::now();
        let outcome = strict(schema);
        reading += start.elapsed();
        if let Err(refusal) = outcome {
            assert!(!refusal.keyword.is_empty(), "{id}: {refusal}");
            refusals.push(format!("{id}: {refusal}"));
            continue;
        }
        let wrong = [texts("invalid"), texts("malformed")].concat();
        for (text, verdict) in wrong.iter().zip(bytes.verdicts(schema, &wrong).unwrap()) {
            assert!(!verdict, "{id} permits {text}");
        }
        let matcher = Matcher::new(Ok(bytes.compile_schema(&strict(schema).unwrap()).unwrap()));
        let is_permitted = |text: &String| {
            let value = serde_json::from_str(text).ok()?;
            let mut spelled = spell_value(matcher.clone(), &value)?;
            (spelled.is_stopped() || spelled.is_accepting().unwrap()).then_some(())
        };
        for text in &wrong {
            assert!(is_permitted(text).is_none(), "{id} permits {text} in our spelling");
        }
        for text in texts("valid") {
            match is_permitted(&text) {
                Some(()) => permitted += 1,
                None => {
                    let reason = STRICTER.iter().find(|(known, _)| id == known).map(|(_, reason)| reason);
                    let reason = reason.unwrap_or_else(|| panic!("{id} does not permit {text}"));
                    beyond.push(format!("{id}: {reason}: {text}"));
                }
            }
        }
    }
    println!("{} schemas, {} refused:\n{}", records.len(), refusals.len(), refusals.join("\n"));
    println!("{permitted} valid texts permitted, {} not:\n{}", beyond.len(), beyond.join("\n"));
    println!("reading takes {:?} a schema", reading / records.len() as u32);
    // llguidance 1.9.1 alone refuses 43.
    assert!(refusals.len() <= 6 && beyond.len() <= 11);
}

#[test]
fn bad_schemas_are_refused() {
    for record in records("bad_schemas.jsonl").into_iter().flatten() {
        assert!(strict(&record["schema"]).is_err(), "{record}");
    }
}
