//! Suggestions for names that do not exist.

pub use alara_engine::nearest;

use crate::error::Error;

/// The error for a name that is not among the known ones.
pub fn unknown<'a>(what: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    let hint = nearest(name, known.iter().copied()).map(|near| format!(", did you mean `{near}`?"));
    Error::Unknown {
        what,
        name: name.to_owned(),
        hint: hint.unwrap_or_default(),
        known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
    }
}
