//! Memory budget of one rendering: a number of bytes per permitted instruction.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Bytes of values per unit of fuel.
const BYTES: usize = 64;
/// Fuel if the environment sets none.
const FUEL: u64 = 100_000;
/// The largest share of the budget for one value, as a divisor.
const PART: usize = 8;
/// How deep values may nest that are printed or stored.
const DEPTH: usize = 100;
/// How many list items are charged at a time.
const PIECE: usize = 64;
/// Bytes charged for an item of a list or mapping.
pub(super) const ITEM: usize = 24;

/// The bytes allocated by a rendering.
struct Made(usize);

/// Charges this many bytes.
pub(super) fn charge(state: &mut State, bytes: usize) -> Result<(), Error> {
    let fuel = state.fuel_levels().map_or(FUEL, |(used, left)| used.saturating_add(left));
    let all = usize::try_from(fuel).unwrap_or(usize::MAX).saturating_mul(BYTES);
    let Made(made) = state.get_or_insert_extension(Made(0));
    *made = made.saturating_add(bytes);
    if bytes > all / PART || *made > all {
        return Err(failed("it makes larger values than a template may"));
    }
    Ok(())
}

/// Charges a new value; its contents already exist.
/// Lazy values are evaluated now, once: nested lazy values would repeat work that isn't counted.
pub(super) fn charge_new(state: &mut State, value: Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::Iterable {
        let (mut items, mut charged) = (Vec::new(), 0);
        for item in value.try_iter()? {
            items.push(item);
            if items.len() - charged == PIECE {
                charged += PIECE;
                charge(state, PIECE * ITEM)?;
            }
        }
        charge(state, (items.len() - charged) * ITEM)?;
        return Ok(Value::from(items));
    }
    let bytes = match (value.as_str(), value.len()) {
        (Some(text), _) => text.len(),
        (None, Some(items)) => items.saturating_mul(ITEM),
        (None, None) => 0,
    };
    charge(state, bytes)?;
    Ok(value)
}

/// Charges the printing of a value with all its contents.
/// This ensures that the value is neither large nor deep, so that minijinja, which has no limits,
/// can print it.
pub(super) fn printed(state: &mut State, value: &Value) -> Result<Size, Error> {
    let mut size = Size::default();
    // Most values are strings.
    if let Some(text) = value.as_str() {
        size.bytes = text.len();
        charge(state, size.bytes)?;
        return Ok(size);
    }
    let mut charged = 0;
    size.add(value, DEPTH, &mut |bytes| {
        let more = bytes - charged;
        // In large steps, since the walk itself must end.
        if more > 4096 {
            charged = bytes;
            charge(state, more)?;
        }
        Ok(())
    })?;
    charge(state, size.bytes - charged)?;
    Ok(size)
}

/// Charges a value that is stored under a name, or in a namespace.
/// It must not be so deep, nor contain itself, that comparing or dropping it overflows the stack.
pub(super) fn kept(state: &mut State, value: Value, in_namespace: bool) -> Result<Value, Error> {
    let mut steps = 0;
    let result = check(&value, DEPTH, in_namespace, &mut steps);
    charge(state, steps)?;
    result.map(|()| value)
}

/// Checks a value and its contents; nested (`within`) it can't be a namespace, since only
/// namespaces can come to contain themselves.
fn check(value: &Value, depth: usize, within: bool, steps: &mut usize) -> Result<(), Error> {
    *steps += 1;
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
        return Ok(());
    }
    if depth == 0 {
        return Err(failed("a value is nested too deep"));
    }
    if within && is_namespace(value) {
        return Err(failed("a namespace can't be kept in another value"));
    }
    let map = value.kind() == ValueKind::Map;
    for item in value.try_iter()? {
        let item = if map { value.get_item(&item)? } else { item };
        check(&item, depth - 1, true, steps)?;
    }
    Ok(())
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

/// The size of a value when printed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Approximate number of bytes.
    pub bytes: usize,
    /// Number of values.
    pub items: usize,
}

impl Size {
    fn add(
        &mut self,
        value: &Value,
        depth: usize,
        charge: &mut impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.items += 1;
        self.bytes += value.as_str().map_or(8, |text| text.len() + 4);
        charge(self.bytes)?;
        if depth == 0 {
            return Err(failed("a value is nested too deep"));
        }
        let map = value.kind() == ValueKind::Map;
        if !map && !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
            return Ok(());
        }
        for item in value.try_iter()? {
            if map {
                self.add(&value.get_item(&item)?, depth - 1, charge)?;
            }
            self.add(&item, depth - 1, charge)?;
        }
        Ok(())
    }
}

/// An error with this message.
pub(super) fn failed(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}
