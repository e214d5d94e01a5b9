//! Python's operators as filters: those that minijinja evaluates without limits, and `%` on
//! strings.

use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior};

use super::budget::{ITEM, charge, failed, printed};
use super::format;

/// A number in Python's arithmetic.
#[derive(Clone, Copy)]
enum Number {
    Whole(i128),
    Float(f64),
}

/// Two numbers of the same kind.
enum Pair {
    Whole(i128, i128),
    Float(f64, f64),
}

pub(super) fn add_to(environment: &mut Environment) {
    environment.add_filter("_add", add);
    environment.add_filter("_cat", cat);
    environment.add_filter("_mul", mul);
    environment.add_filter("_mod", modulo);
    environment.add_filter("_sub", |left: &Value, right: &Value| {
        arithmetic("-", left, right, i128::checked_sub, |a, b| Some(a - b))
    });
    environment.add_filter("_div", |left: &Value, right: &Value| {
        let quotient = |a: f64, b: f64| (b != 0.0).then(|| a / b);
        match pair(left, right) {
            Some(Pair::Whole(a, b)) => quotient(a as f64, b as f64).map(Value::from),
            Some(Pair::Float(a, b)) => quotient(a, b).map(Value::from),
            None => return Err(unsupported("/", left, right)),
        }
        .ok_or_else(|| impossible("/", left, right))
    });
    environment.add_filter("_floordiv", |left: &Value, right: &Value| {
        let whole = |a: i128, b: i128| {
            let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
            if rest != 0 && (rest < 0) != (b < 0) { quotient.checked_sub(1) } else { Some(quotient) }
        };
        arithmetic("//", left, right, whole, |a, b| (b != 0.0).then(|| (a / b).floor()))
    });
    environment.add_filter("_pow", |left: &Value, right: &Value| {
        if let Some(Pair::Whole(a, b)) = pair(left, right)
            && b < 0
            && a != 0
        {
            return Ok(Value::from((a as f64).powf(b as f64)));
        }
        let whole = |a: i128, b: i128| a.checked_pow(u32::try_from(b).ok()?);
        arithmetic("**", left, right, whole, |a, b| Some(a.powf(b)))
    });
}

fn number(value: &Value) -> Option<Number> {
    match value.kind() {
        ValueKind::Bool => Some(Number::Whole(i128::from(value.is_true()))),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok().map(Number::Whole),
        ValueKind::Number => f64::try_from(value.clone()).ok().map(Number::Float),
        _ => None,
    }
}

fn pair(left: &Value, right: &Value) -> Option<Pair> {
    let float = |number| match number {
        Number::Whole(whole) => whole as f64,
        Number::Float(float) => float,
    };
    Some(match (number(left)?, number(right)?) {
        (Number::Whole(left), Number::Whole(right)) => Pair::Whole(left, right),
        (left, right) => Pair::Float(float(left), float(right)),
    })
}

fn arithmetic(
    sign: &str,
    left: &Value,
    right: &Value,
    whole: impl Fn(i128, i128) -> Option<i128>,
    float: impl Fn(f64, f64) -> Option<f64>,
) -> Result<Value, Error> {
    match pair(left, right) {
        Some(Pair::Whole(a, b)) => whole(a, b).map(integer),
        Some(Pair::Float(a, b)) => float(a, b).map(Value::from),
        None => return Err(unsupported(sign, left, right)),
    }
    .ok_or_else(|| impossible(sign, left, right))
}

fn integer(whole: i128) -> Value {
    i64::try_from(whole).map_or_else(|_| Value::from(whole), Value::from)
}

fn unsupported(sign: &str, left: &Value, right: &Value) -> Error {
    let (left, right) = (left.kind(), right.kind());
    failed(format!("tried to use {sign} operator on unsupported types {left} and {right}"))
}

fn impossible(sign: &str, left: &Value, right: &Value) -> Error {
    failed(format!("unable to calculate {left} {sign} {right}"))
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// A list, or a tuple if `of` is one.
fn list(items: Vec<Value>, of: &Value) -> Value {
    if of.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) }
}

fn add(state: &mut State, left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        charge(state, a.len() + b.len())?;
        return Ok(Value::from([a, b].concat()));
    }
    if is_list(left) && is_list(right) && left.is_tuple() == right.is_tuple() {
        let count = left.len().unwrap_or(0).saturating_add(right.len().unwrap_or(0));
        charge(state, count.saturating_mul(ITEM))?;
        return Ok(list(left.try_iter()?.chain(right.try_iter()?).collect(), left));
    }
    arithmetic("+", left, right, i128::checked_add, |a, b| Some(a + b))
}

fn cat(state: &mut State, left: &Value, right: &Value) -> Result<Value, Error> {
    let strict =
        matches!(state.undefined_behavior(), UndefinedBehavior::Strict | UndefinedBehavior::SemiStrict);
    if strict && (left.is_undefined() || right.is_undefined()) {
        return Err(ErrorKind::UndefinedError.into());
    }
    let mut text = super::text(state, left)?;
    text += &super::text(state, right)?;
    charge(state, text.len())?;
    Ok(Value::from(text))
}

fn mul(state: &mut State, left: &Value, right: &Value) -> Result<Value, Error> {
    let sized = |value: &Value| value.as_str().is_some() || is_list(value);
    let (repeated, count) = match (sized(left), sized(right)) {
        (true, false) => (left, right),
        (false, true) => (right, left),
        _ => return arithmetic("*", left, right, i128::checked_mul, |a, b| Some(a * b)),
    };
    let Some(Number::Whole(count)) = number(count) else { return Err(unsupported("*", left, right)) };
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    if let Some(text) = repeated.as_str() {
        charge(state, text.len().saturating_mul(count))?;
        return Ok(Value::from(if text.is_empty() { String::new() } else { text.repeat(count) }));
    }
    let items: Vec<Value> = repeated.try_iter()?.collect();
    charge(state, items.len().saturating_mul(count).saturating_mul(ITEM))?;
    let count = if items.is_empty() { 0 } else { count };
    Ok(list(std::iter::repeat_n(items, count).flatten().collect(), repeated))
}

fn modulo(state: &mut State, left: &Value, right: &Value) -> Result<Value, Error> {
    if let Some(text) = left.as_str() {
        let mut arguments = match right.kind() {
            _ if right.is_tuple() => right.try_iter()?.collect(),
            _ => vec![right.clone()],
        };
        printed(state, right)?;
        return format::percent(state, text, &mut arguments);
    }
    let whole = |a: i128, b: i128| {
        let rest = a.checked_rem(b)?;
        Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
    };
    let float = |a: f64, b: f64| {
        let rest = (b != 0.0).then(|| a % b)?;
        Some(if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest })
    };
    arithmetic("%", left, right, whole, float)
}
