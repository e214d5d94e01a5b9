use jsonschema::Validator;
use llguidance::Matcher;
use serde_json::{Map, Value, json};

use super::*;
use crate::grammar::{Grammar, GrammarError};

mod cases;
mod faults;
mod fixtures;
mod hostile;
mod kinds;
mod walks;

fn validator(schema: &Value) -> Validator {
    jsonschema::options().should_validate_formats(true).build(schema).unwrap()
}

/// Checks which texts a schema permits and which it forbids.
fn check(schema: &Value, permitted: &[&str], forbidden: &[&str]) {
    let grammar = Grammar::of_bytes();
    let verdicts =
        |texts: &[&str]| grammar.verdicts(schema, texts).unwrap_or_else(|error| panic!("{error}: {schema}"));
    for (text, verdict) in permitted.iter().zip(verdicts(permitted)) {
        assert!(verdict, "{text} is not permitted by {schema}, {}", strict(schema).unwrap());
        let value = serde_json::from_str(text).unwrap();
        assert!(validator(schema).is_valid(&value), "{text} does not satisfy {schema}");
    }
    for (text, verdict) in forbidden.iter().zip(verdicts(forbidden)) {
        assert!(!verdict, "{text} is permitted by {schema}, {}", strict(schema).unwrap());
    }
}

/// Checks the message with which a schema is refused.
fn refused(schema: &Value, expected: &str) {
    let grammar = Grammar::of_bytes();
    let error = grammar.verdicts(schema, &[""]).expect_err(&schema.to_string()).to_string();
    let words = error.strip_prefix("the output schema can't be guaranteed: ").unwrap();
    assert!(words.starts_with(expected), "{error} for {schema}");
}
