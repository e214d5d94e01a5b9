//! Jinja for untrusted templates: chat templates of model files, files of teams, jinxes.
//!
//! An environment in which values behave as in Python's Jinja2, and no template can crash the
//! process.
//! Time is limited by minijinja's fuel, memory by a budget derived from the fuel (`budget`), and
//! depth before compilation (`source`).
//! Callers of [`environment`] must pass each template through [`bounded`] first.
//! Knows nothing of chats, teams and jinxes.

mod budget;
mod filters;
mod format;
mod methods;
mod operators;
mod source;

use minijinja::value::{Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State};

use budget::{charge_new, kept, printed};
pub use source::{MARKS, Marks, Refused, bounded, bounded_expression};

/// How deep macros may call each other, in minijinja's units (a macro takes a few).
/// This is deeper than any schema, and far from overflowing a thread's stack even in a debug build.
const RECURSION: usize = 200;

/// The environment, without fuel: [`Environment::set_fuel`] bounds both time and memory.
/// The limits only apply to templates rewritten by [`bounded`].
pub fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_recursion_limit(RECURSION);
    environment.set_unknown_method_callback(methods::call);
    minijinja_contrib::add_to_environment(&mut environment);
    // Debug errors would copy all variables.
    environment.set_debug(false);
    environment.remove_global("debug");
    environment.set_formatter(|out, state, value| {
        let value = printable(state, value)?;
        minijinja::escape_formatter(out, state, &value)
    });
    filters::add_to(&mut environment);
    operators::add_to(&mut environment);
    environment.add_filter("_text", |state: &mut State, _: &Value, bytes: usize| {
        budget::charge(state, bytes).map(|()| false)
    });
    environment.add_filter("_made", |state: &mut State, value: Value| charge_new(state, value));
    environment.add_filter("_keep", |state: &mut State, value: Value| kept(state, value, false));
    environment.add_filter("_store", |state: &mut State, value: Value| kept(state, value, true));
    for name in ["range", "dict"] {
        let function = match name {
            "range" => Value::from_function(minijinja::functions::range),
            _ => Value::from_function(minijinja::functions::dict),
        };
        environment.add_function(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            let value = function.call(state, &args.into_values())?;
            charge_new(state, value)
        });
    }
    environment.add_test("callable", |value: &Value| {
        let called = |name: &str| name.contains("Function") || name.contains("Macro");
        // Python's undefined values are callable, though calls fail.
        value.is_undefined() || value.as_object().is_some_and(|object| called(object.type_name()))
    });
    environment
}

/// Charges the printing of a value, and returns it as Python prints it.
/// Custom formatters have to call it.
///
/// # Errors
/// If the value is too large, or nested too deep.
pub fn printable(state: &mut State, value: &Value) -> Result<Value, Error> {
    printed(state, value)?;
    Ok(as_float(value).map_or_else(|| value.clone(), |number| Value::from(float(number))))
}

/// Charges the printing of a value with this many bytes between its items, which may include
/// indentation.
///
/// # Errors
/// As [`printable`].
pub fn printable_apart(state: &mut State, value: &Value, between: usize) -> Result<(), Error> {
    let size = printed(state, value)?;
    budget::charge(state, size.items.saturating_mul(between).saturating_mul(8))
}

/// A value as converted by `str`.
fn text(state: &mut State, value: &Value) -> Result<String, Error> {
    Ok(printable(state, value)?.to_string())
}

/// The value of a float, whose Python format differs.
fn as_float(value: &Value) -> Option<f64> {
    let is_float = value.kind() == ValueKind::Number && !value.is_integer();
    is_float.then(|| f64::try_from(value.clone()).ok()).flatten()
}

/// Python's `repr` of a float: the shortest digits that read back the same.
/// Below 1e-4 and from 1e16 on it has an exponent of at least two digits.
pub(crate) fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (Some((digits, exponent)), true) = (scientific.split_once('e'), value.is_finite()) else {
        return value.to_string();
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        format!("{value:?}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}

#[cfg(test)]
mod tests;
