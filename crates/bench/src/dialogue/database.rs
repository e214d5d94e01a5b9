//! The databases of a dialogue: JSON files in the work directory, which can be patched, written and
//! compared.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

/// The database of the agent's tools.
pub const DATABASE: &str = "database.json";
/// The user's own database.
pub const USER: &str = "user.json";
/// Maximum size, in bytes, of a database to read, since an agent may have written anything.
const BYTES: u64 = 64 << 20;
/// The largest range in which floating-point numbers represent all integers.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// Both databases of a dialogue; null if there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Databases {
    /// Contents of `database.json`.
    pub database: Value,
    /// Contents of `user.json`.
    pub user: Value,
}

impl Databases {
    /// Writes the databases to a task's folder.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn lay(&self, work: &Path) -> io::Result<()> {
        for (file, value) in [(DATABASE, &self.database), (USER, &self.user)] {
            if !value.is_null() {
                fs::write(work.join(file), canonical(value))?;
            }
        }
        Ok(())
    }

    /// Reads the current databases.
    ///
    /// # Errors
    /// A file isn't JSON, or can't be read.
    pub fn read(work: &Path) -> Result<Self, String> {
        Ok(Databases { database: read(work, DATABASE)?, user: read(work, USER)? })
    }
}

fn read(work: &Path, name: &str) -> Result<Value, String> {
    let path = work.join(name);
    // Don't follow an agent's link, or wait for its pipe.
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Value::Null),
        Ok(found) if found.is_file() && found.len() <= BYTES => {}
        Ok(found) if found.is_file() => return Err(format!("{name} has more than {BYTES} bytes")),
        Ok(_) => return Err(format!("{name} is no file any more")),
        Err(error) => return Err(format!("{name} can't be read: {error}")),
    }
    let mut text = Vec::new();
    let file = fs::File::open(&path).and_then(|file| file.take(BYTES).read_to_end(&mut text));
    file.map_err(|error| format!("{name} can't be read: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| format!("{name} is no JSON any more: {error}"))
}

/// Applies the merge patch `patch` to `base`: null removes a key.
/// Source: RFC 7396.
pub fn merged(base: Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else { return patch.clone() };
    let mut target = match base {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    for (key, change) in changes {
        if change.is_null() {
            target.shift_remove(key);
        } else {
            let old = target.get_mut(key).map_or(Value::Null, Value::take);
            target.insert(key.clone(), merged(old, change));
        }
    }
    Value::Object(target)
}

/// Normalizes a value so that equal values are identical: sorted keys, integers without a fraction.
pub fn normal(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            Value::Object(entries.into_iter().map(|(key, value)| (key.clone(), normal(value))).collect())
        }
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
            Some(float) if float.fract() == 0.0 && float.abs() < WHOLE => {
                Value::Number(Number::from(float as i64))
            }
            _ => value.clone(),
        },
        other => other.clone(),
    }
}

/// Returns canonical JSON: [`normal`], without spaces.
pub fn canonical(value: &Value) -> String {
    normal(value).to_string()
}

/// Returns the SHA-256 of canonical JSON, in hexadecimal.
pub fn hash(value: &Value) -> String {
    format!("{:x}", Sha256::digest(canonical(value)))
}

/// Returns the first difference between two values: path, first value, second value.
pub fn difference(first: &Value, second: &Value) -> Option<(String, Value, Value)> {
    walk("", &normal(first), &normal(second))
}

fn walk(path: &str, first: &Value, second: &Value) -> Option<(String, Value, Value)> {
    let deeper = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (first, second) {
        (Value::Object(one), Value::Object(two)) => one.keys().chain(two.keys()).find_map(|key| {
            let (one, two) = (one.get(key), two.get(key));
            walk(&deeper(key), one.unwrap_or(&Value::Null), two.unwrap_or(&Value::Null))
                // A missing null is a difference too.
                .or_else(|| (one.is_some() != two.is_some()).then(|| (deeper(key), Value::Null, Value::Null)))
        }),
        (Value::Array(one), Value::Array(two)) if one.len() == two.len() => {
            let mut pairs = one.iter().zip(two).enumerate();
            pairs.find_map(|(index, (one, two))| walk(&deeper(&index.to_string()), one, two))
        }
        _ if first == second => None,
        _ => Some((path.to_owned(), first.clone(), second.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_are_those_of_rfc_7396() {
        // Appendix A of the RFC.
        for (base, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            assert_eq!(merged(base.clone(), &patch), expected, "{base} {patch}");
        }
    }

    #[test]
    fn equal_values_have_one_hash() {
        let text = r#"{"b": [1.0, 2.5, -0.0], "a": {"z": "é", "y": null}}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(canonical(&value), r#"{"a":{"y":null,"z":"é"},"b":[1,2.5,0]}"#);
        // printf '{"a":{"y":null,"z":"é"},"b":[1,2.5,0]}' | sha256sum
        assert_eq!(hash(&value), SUM);
        assert_ne!(hash(&json!({"a": "1"})), hash(&json!({"a": 1})));
    }

    const SUM: &str = "dcae0bf31e0bc16f5735c77aa430dcfc4a21e43312ebaae13f28dc366729a079";

    #[test]
    fn a_difference_has_a_place() {
        let check = |first: Value, second: Value, expected: Option<&str>| {
            let found = difference(&first, &second);
            assert_eq!(found.as_ref().map(|(path, ..)| path.as_str()), expected, "{first} {second}");
            assert_eq!(found.is_none(), hash(&first) == hash(&second));
        };
        check(json!({"a": 1.0, "b": 2}), json!({"b": 2, "a": 1}), None);
        check(json!({"u": {"u7": {"email": "x"}}}), json!({"u": {"u7": {"email": "y"}}}), Some("u.u7.email"));
        check(json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]}), Some("a.1.b"));
        check(json!({"a": [1]}), json!({"a": [1, 2]}), Some("a"));
        check(json!({"a": null}), json!({}), Some("a"));
        check(json!(null), json!({}), Some(""));
    }

    #[test]
    fn files_of_an_agent_are_read_with_care() {
        let folder = tempfile::tempdir().unwrap();
        let databases = Databases { database: json!({"b": 1, "a": 2}), user: Value::Null };
        databases.lay(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(DATABASE)).unwrap(), r#"{"a":2,"b":1}"#);
        assert_eq!(Databases::read(folder.path()).unwrap(), databases);
        fs::write(folder.path().join(USER), "{").unwrap();
        assert!(Databases::read(folder.path()).unwrap_err().starts_with("user.json is no JSON any more"));
        fs::remove_file(folder.path().join(USER)).unwrap();
        fs::create_dir(folder.path().join(USER)).unwrap();
        assert_eq!(Databases::read(folder.path()).unwrap_err(), "user.json is no file any more");
    }
}
