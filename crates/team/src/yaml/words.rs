//! Describes an error in a YAML text in terms of the file.
//! The library's own messages mention Rust's types and its options.

use alara_text::nearest;
use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

/// The error, without its location.
pub(super) fn message(error: &Error) -> String {
    match error.without_snippet() {
        Error::AliasError { error, .. } => message(error),
        Error::MultipleDocuments { .. } => {
            "a second YAML document begins here, but a file is one: leave out the line `---` before it, or put it into a file of its own".to_owned()
        }
        Error::UnknownAnchor { .. } => {
            "this alias has no anchor: what `*name` repeats is marked `&name` before it".to_owned()
        }
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "the YAML is too large, nested too deeply or repeats too much by aliases: write less into one file"
                .to_owned()
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key `{key}` occurs twice: leave one out")
        }
        Error::DuplicateMappingKey { key: None, .. } => "a key occurs twice: leave one out".to_owned(),
        Error::NullIntoString { .. } => "this must be a text, not nothing".to_owned(),
        Error::InvalidScalar { ty, .. } => format!("this must be {}", kind(ty)),
        Error::SerdeInvalidType { unexpected, expected, .. }
        | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            format!("this must be {}, not {}", kind(expected), found(unexpected))
        }
        Error::Unexpected { expected, .. } => format!("this must be {}", kind(expected)),
        Error::SerdeUnknownField { field, expected, .. } => {
            let near = nearest(field, expected.iter().copied());
            let near = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
            format!("unknown key `{field}`{near} (known: {})", expected.join(", "))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            format!("`{variant}` is none of {}", expected.join(", "))
        }
        Error::SerdeMissingField { field, .. } => format!("the key `{field}` is missing"),
        other => UserMessageFormatter.format_message(other).into_owned(),
    }
}

/// A type of Rust or of serde, in the words for values in a file.
fn kind(expected: &str) -> &str {
    let expected = expected.strip_prefix("a nonzero ").map_or((expected, false), |rest| (rest, true));
    match expected {
        ("u8" | "u16" | "u32" | "u64" | "usize", true) => "a whole number above 0",
        ("u8" | "u16" | "u32" | "u64" | "u128" | "usize", false) => "a whole number, 0 or more",
        ("i8" | "i16" | "i32" | "i64" | "i128" | "isize", _) => "a whole number",
        ("f32" | "f64" | "float" | "floating point", _) => "a number",
        ("bool" | "boolean" | "a boolean", _) => "true or false",
        ("string" | "a string" | "string scalar" | "path string", _) => "a text",
        ("a sequence" | "sequence" | "sequence start", _) => "a list",
        ("a map" | "mapping" | "mapping start", _) => "a mapping",
        (name, _) if name.starts_with("struct ") => "a mapping",
        (name, _) if name.starts_with("enum ") => "a word",
        (other, _) => other,
    }
}

/// The value that serde found, as written in the file.
fn found(unexpected: &str) -> String {
    let value =
        |before: &str| unexpected.strip_prefix(before).map(|value| value.trim_matches(['`', '"']).to_owned());
    match unexpected {
        "unit value" | "Option value" | "null" => "nothing".to_owned(),
        "sequence" => "a list".to_owned(),
        "map" => "a mapping".to_owned(),
        _ => ["integer ", "floating point ", "boolean ", "string "]
            .into_iter()
            .find_map(value)
            .map_or_else(|| unexpected.to_owned(), |value| format!("`{value}`")),
    }
}
