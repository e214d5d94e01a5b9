//! Removes keywords that can't be guaranteed from schemas; the results are validated instead.

use serde_json::Value;

use super::validate::can_be_checked;
use super::{SchemaError, strict};

/// Most keywords that may be removed.
const MOST: usize = 32;

/// Retries `make` on a schema without the keywords that it refuses; `refusal` is the first.
/// Also returns the removed keywords.
/// The loosened schema permits all values of the original one, and [`violation`](super::violation)
/// detects any others.
///
/// # Errors
/// The refusal that removing a keyword doesn't resolve, or the first one if values can't be
/// validated.
pub(crate) fn loosen<T>(
    schema: &Value,
    refusal: SchemaError,
    mut make: impl FnMut(&Value) -> Result<T, SchemaError>,
) -> Result<(T, Vec<SchemaError>), SchemaError> {
    if !can_be_checked(schema) {
        return Err(refusal);
    }
    let (mut loose, mut left_out) = (schema.clone(), vec![refusal]);
    while let Some(latest) = left_out.last()
        && left_out.len() <= MOST
        && leave_out(&mut loose, &latest.pointer).is_some()
    {
        match make(&loose) {
            Ok(made) => return Ok((made, left_out)),
            Err(refusal) => left_out.push(refusal),
        }
    }
    // A keyword that is already removed isn't the cause.
    Err(left_out.swap_remove(left_out.len() - 1))
}

/// A schema without the keywords that can't be guaranteed, and the refusals of these keywords.
///
/// # Errors
/// [`SchemaError`] if removing keywords doesn't help.
pub fn loosened(schema: &Value) -> Result<(Value, Vec<SchemaError>), SchemaError> {
    match strict(schema) {
        Ok(_) => Ok((schema.clone(), Vec::new())),
        Err(refusal) => loosen(schema, refusal, |loose| strict(loose).map(|_| loose.clone())),
    }
}

/// Removes a keyword from a schema; inside a negation, removes the whole negation, since loosening
/// its content would tighten it.
/// `oneOf` becomes `anyOf`.
/// `None` if there is nothing to remove.
fn leave_out(schema: &mut Value, pointer: &str) -> Option<()> {
    let mut path: Vec<String> =
        pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~")).collect();
    let mut at = 0;
    let mut is_name = false;
    while at < path.len() {
        is_name = false;
        match path[at].as_str() {
            "not" | "if" | "oneOf" => path.truncate(at + 1),
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
            | "dependencies" => {
                at += 1;
                is_name = at < path.len();
            }
            _ => {}
        }
        at += 1;
    }
    let last = path.pop()?;
    let parent = path.iter().try_fold(schema, |value, key| match value {
        Value::Object(map) => map.get_mut(key),
        Value::Array(values) => values.get_mut(key.parse::<usize>().ok()?),
        _ => None,
    })?;
    match parent {
        // Below a keyword that maps names, the entry of the name is removed.
        Value::Object(map) if is_name => {
            let value = map.get_mut(&last).filter(|value| **value != Value::Bool(true))?;
            *value = Value::Bool(true);
        }
        // The values of one option are some of those that `anyOf` permits.
        Value::Object(map)
            if last == "oneOf"
                && !map.contains_key("anyOf")
                && map.get(&last).is_some_and(Value::is_array) =>
        {
            let options = map.shift_remove(&last)?;
            map.insert("anyOf".into(), options);
        }
        Value::Object(map) => drop(map.shift_remove(&last)?),
        Value::Array(values) => *values.get_mut(last.parse::<usize>().ok()?)? = Value::Bool(true),
        _ => return None,
    }
    Some(())
}
