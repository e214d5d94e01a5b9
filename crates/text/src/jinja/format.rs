//! Formatting with `%` and `str.format`: minijinja does it, after the size of the result is limited
//! here.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Kwargs, Value};
use minijinja::{Error, State};

use super::budget::{charge, failed, printed};

/// The widest field.
pub(super) const WIDEST: usize = 10_000;

/// `text % arguments`.
pub(super) fn percent(state: &mut State, text: &str, arguments: &mut [Value]) -> Result<Value, Error> {
    // A mapping is recognized by its keys.
    if let [mapping] = arguments
        && mapping.kind() == minijinja::value::ValueKind::Map
        && text.contains("%(")
    {
        let pairs: Vec<(String, Value)> = mapping
            .try_iter()?
            .filter_map(|key| Some((key.as_str()?.to_owned(), mapping.get_item(&key).ok()?)))
            .collect();
        *mapping = Kwargs::from_iter(pairs).into();
    }
    bound(state, text, '%', arguments)?;
    format(FormatStyle::Printf, text, arguments).map(Value::from)
}

/// `text.format(arguments)`.
pub(super) fn braces(state: &mut State, text: &str, arguments: &[Value]) -> Result<Value, Error> {
    bound(state, text, '{', arguments)?;
    format(FormatStyle::StrFormat, text, arguments).map(Value::from)
}

/// Charges the largest possible result: each field as wide as the widest, and as long as the
/// longest argument.
fn bound(state: &mut State, text: &str, mark: char, arguments: &[Value]) -> Result<(), Error> {
    let mut widest = 512;
    for digits in text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()) {
        widest = widest.max(digits.parse().unwrap_or(usize::MAX));
    }
    let mut longest = 0;
    for argument in arguments {
        longest = longest.max(printed(state, argument)?.bytes);
        // A width may come from an argument.
        if let Some(number) =
            argument.as_i64().filter(|_| text.contains('*') || mark == '{' && text.contains(":{"))
        {
            widest = widest.max(usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX));
        }
    }
    if widest > WIDEST {
        return Err(failed(format!("a field is at most {WIDEST} characters wide")));
    }
    let fields = text.matches(mark).count();
    charge(state, text.len().saturating_add(fields.saturating_mul(widest.saturating_add(longest))))
}
