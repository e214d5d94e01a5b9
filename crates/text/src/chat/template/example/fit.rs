//! Whether a value fits a schema, as far as can be seen without descending, and candidate numbers.

use serde_json::Value;

use super::{Keywords, count, strings};

/// Whether `value` has the type and is within the bounds of `schema`.
/// Ignores patterns and items.
pub(super) fn admits(schema: &Keywords, value: &Value) -> bool {
    let at_least = |size: usize, key: &str| count(schema, key).is_none_or(|least| size >= least);
    let at_most = |size: usize, key: &str| count(schema, key).is_none_or(|most| size <= most);
    let fits = match value {
        Value::Object(map) => {
            strings(schema.get("required")).all(|name| map.contains_key(name))
                && at_least(map.len(), "minProperties")
        }
        Value::Array(items) => at_least(items.len(), "minItems") && at_most(items.len(), "maxItems"),
        Value::String(text) => {
            let length = text.chars().count();
            at_least(length, "minLength") && at_most(length, "maxLength")
        }
        Value::Number(number) => number.as_f64().is_some_and(|number| in_bounds(schema, number)),
        Value::Bool(_) | Value::Null => true,
    };
    let one_of =
        |key: &str| schema.get(key).and_then(Value::as_array).is_none_or(|list| list.contains(value));
    let of_type = match schema.get("type") {
        Some(Value::String(kind)) => is(value, kind),
        Some(Value::Array(_)) => strings(schema.get("type")).any(|kind| is(value, kind)),
        _ => true,
    };
    fits && of_type && one_of("enum") && schema.get("const").is_none_or(|only| only == value)
}

fn is(value: &Value, kind: &str) -> bool {
    match value {
        Value::Object(_) => kind == "object",
        Value::Array(_) => kind == "array",
        Value::String(_) => kind == "string",
        Value::Bool(_) => kind == "boolean",
        Value::Null => kind == "null",
        Value::Number(number) => {
            kind == "number"
                || kind == "integer" && number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
    }
}

fn bound(schema: &Keywords, key: &str) -> Option<f64> {
    schema.get(key).and_then(Value::as_f64)
}

fn in_bounds(schema: &Keywords, number: f64) -> bool {
    // In draft 4 the exclusive bounds are boolean modifiers of the others.
    let strictly = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let above = |low: f64| if strictly("exclusiveMinimum") { number > low } else { number >= low };
    let below = |high: f64| if strictly("exclusiveMaximum") { number < high } else { number <= high };
    let multiple = |step: f64| {
        let times = number / step;
        (times - times.round()).abs() < 1e-9
    };
    bound(schema, "minimum").is_none_or(above)
        && bound(schema, "maximum").is_none_or(below)
        && bound(schema, "exclusiveMinimum").is_none_or(|low| number > low)
        && bound(schema, "exclusiveMaximum").is_none_or(|high| number < high)
        && bound(schema, "multipleOf").is_none_or(multiple)
}

/// Numbers that are likely to fit, the most natural first.
pub(super) fn numbers(schema: &Keywords) -> impl Iterator<Item = Value> {
    let low = bound(schema, "minimum").or(bound(schema, "exclusiveMinimum"));
    let high = bound(schema, "maximum").or(bound(schema, "exclusiveMaximum"));
    let step = bound(schema, "multipleOf").filter(|step| *step > 0.0).unwrap_or(1.0);
    let from_low = low.map(|low| (low / step).ceil() * step).map(|first| [first, first + step]);
    let from_high = high.map(|high| (high / step).floor() * step).map(|last| [last, last - step]);
    let between = low.zip(high).map(|(low, high)| f64::midpoint(low, high));
    let near = [from_low, from_high].into_iter().flatten().flatten();
    [1.0, step, 0.0].into_iter().chain(near).chain(low.into_iter().chain(high)).chain(between).map(plain)
}

/// The number as an integer if it is one.
fn plain(number: f64) -> Value {
    // Below 2^53 all integers are exact.
    if number.fract() == 0.0 && number.abs() < 9e15 {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}

/// A value that differs from `value`, for a list with distinct items.
pub(super) fn other(schema: &Value, value: &Value, index: usize) -> Value {
    if let Some(value) = schema["enum"].get(index) {
        return value.clone();
    }
    match value {
        Value::String(text) => format!("{text}{}", index + 1).into(),
        Value::Number(number) => number.as_f64().map_or(Value::Null, |number| plain(number + index as f64)),
        Value::Bool(value) => (!value).into(),
        value => value.clone(),
    }
}
