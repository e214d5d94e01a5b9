//! Keys and values of a file, with typed getters.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::shown;
use super::{Array, GgufError, Strings, Value};

/// An ordered map from keys to values, which keeps its file's name for error messages.
///
/// The typed getters return `None` for an absent key and an error for a value of another type.
/// Integers of any width are converted if the value fits; an integer is accepted where a float is
/// expected, but not the reverse.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    file: Arc<str>,
    entries: Vec<(String, Value)>,
    by_key: HashMap<String, usize>,
}

impl Metadata {
    pub(super) fn set_file(&mut self, file: Arc<str>) {
        self.file = file;
    }

    /// Appends a key; returns false and changes nothing if it exists.
    pub(super) fn insert(&mut self, key: &str, value: Value) -> bool {
        if self.by_key.contains_key(key) {
            return false;
        }
        self.by_key.insert(key.to_owned(), self.entries.len());
        self.entries.push((key.to_owned(), value));
        true
    }

    /// The value of a key, of any type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.by_key.get(key).map(|&i| &self.entries[i].1)
    }

    /// All keys and values in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A non-negative integer.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, "a whole number", |value| u64::try_from(value.integer()?).ok())
    }

    /// A non-negative integer of at most 32 bits, for example a token id.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.typed(key, "a whole number below 2^32", |value| u32::try_from(value.integer()?).ok())
    }

    /// A number.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "a number", |value| match value {
            Value::F32(v) => Some(*v),
            Value::F64(v) => Some(*v as f32),
            other => other.integer().map(|v| v as f32),
        })
    }

    /// A bool.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "a bool", |value| match value {
            Value::Bool(v) => Some(*v),
            _ => None,
        })
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "a string", |value| match value {
            Value::String(v) => Some(v.as_str()),
            _ => None,
        })
    }

    /// An array of strings; not copied.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>, GgufError> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::String(v)) => Some(v),
            _ => None,
        })
    }

    /// An array of non-negative integers.
    pub fn u64s(&self, key: &str) -> Result<Option<Vec<u64>>, GgufError> {
        fn all<T: Copy>(values: &[T]) -> Option<Vec<u64>>
        where
            u64: TryFrom<T>,
        {
            values.iter().map(|&v| u64::try_from(v).ok()).collect()
        }
        self.typed(key, "an array of whole numbers", |value| match value {
            Value::Array(Array::U8(v)) => all(v),
            Value::Array(Array::I8(v)) => all(v),
            Value::Array(Array::U16(v)) => all(v),
            Value::Array(Array::I16(v)) => all(v),
            Value::Array(Array::U32(v)) => all(v),
            Value::Array(Array::I32(v)) => all(v),
            Value::Array(Array::U64(v)) => Some(v.clone()),
            Value::Array(Array::I64(v)) => all(v),
            _ => None,
        })
    }

    /// An array of bytes, signed or unsigned in the file.
    pub fn bytes(&self, key: &str) -> Result<Option<Vec<u8>>, GgufError> {
        self.typed(key, "an array of bytes", |value| match value {
            Value::Array(Array::U8(v)) => Some(v.clone()),
            Value::Array(Array::I8(v)) => Some(v.iter().map(|&byte| byte.cast_unsigned()).collect()),
            _ => None,
        })
    }

    /// An array of floats.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        self.typed(key, "an array of numbers", |value| match value {
            Value::Array(Array::F32(v)) => Some(v.clone()),
            Value::Array(Array::F64(v)) => Some(v.iter().map(|&v| v as f32).collect()),
            _ => None,
        })
    }

    /// An array of bools.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, GgufError> {
        self.typed(key, "an array of bools", |value| match value {
            Value::Array(Array::Bool(v)) => Some(v.clone()),
            _ => None,
        })
    }

    /// The error for a required key that is absent:
    /// `metadata.u64(key)?.ok_or_else(|| metadata.missing(key))?`.
    pub fn missing(&self, key: &str) -> GgufError {
        GgufError::MissingKey { file: self.file.to_string(), key: key.to_owned() }
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| GgufError::KeyType {
            file: self.file.to_string(),
            key: key.to_owned(),
            found: found(value),
            expected,
        })
    }
}

fn found(value: &Value) -> String {
    let name = value.type_name();
    match value {
        Value::String(text) => format!("the string \"{}\"", shown(text)),
        Value::Bool(v) => format!("the bool {v}"),
        Value::F32(v) => format!("the f32 {v}"),
        Value::F64(v) => format!("the f64 {v}"),
        Value::Array(_) => format!("an {name}"),
        other => match other.integer() {
            Some(v) => format!("the {name} {v}"),
            None => format!("a {name}"),
        },
    }
}
