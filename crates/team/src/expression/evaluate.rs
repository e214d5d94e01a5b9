//! Evaluates expressions over facts that may be unknown.
//!
//! An unknown value is neither true nor false, as in Kleene's strong three-valued logic:
//! `and` with a false operand is false and `or` with a true operand is true, whatever the other
//! operand is.
//! Every other operation on an unknown value is unknown; only `is defined` tests for it.
//! So a result that is true or false stays the same, whatever the unknown value turns out to be.
//!
//! If all values are known, an expression has the value that minijinja gives it, or it is an error:
//! values of different types are never silently compared, and only true and false are conditions.
//! This module must not know where facts come from.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

use super::{Comparison, Counter, Expression, Filter, Key, Sign, Test, written};
use crate::ledger::{Found, Ledger, look_up, short};

/// The names that expressions can use.
#[derive(Clone, Copy, Default)]
pub struct Names<'a> {
    arguments: Option<&'a Map<String, Value>>,
    result: Option<&'a Value>,
    values: Option<&'a Map<String, Value>>,
    counts: Option<&'a Counts<'a>>,
    ledgers: &'a [&'a Ledger],
}

/// How many events match a text; `None` if they aren't counted here.
pub type Counts<'a> = dyn Fn(Counter, &str) -> Option<u64> + 'a;

/// A value that may be part of another one.
type Part<'a> = Cow<'a, Value>;

/// The truth of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It is true.
    True,
    /// It is false.
    False,
    /// It depends on an unknown value.
    Unknown,
}

impl Truth {
    fn of(value: bool) -> Self {
        if value { Truth::True } else { Truth::False }
    }

    fn not(self) -> Self {
        match self {
            Truth::True => Truth::False,
            Truth::False => Truth::True,
            Truth::Unknown => Truth::Unknown,
        }
    }

    fn value<'a>(self) -> Option<Part<'a>> {
        match self {
            Truth::Unknown => None,
            known => Some(Cow::Owned((known == Truth::True).into())),
        }
    }
}

/// The facts that an evaluation used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Facts of the ledger, by path.
    pub facts: Map<String, Value>,
    /// Unknown paths.
    pub unknown: Vec<String>,
    /// Those among them that were known before a write.
    pub stale: Vec<String>,
}

impl Seen {
    fn miss(&mut self, path: String, stale: bool) {
        if stale && !self.stale.contains(&path) {
            self.stale.push(path.clone());
        }
        if !self.unknown.contains(&path) {
            self.unknown.push(path);
        }
    }
}

impl<'a> Names<'a> {
    /// The names of a call: its arguments, as `args`.
    pub fn of(arguments: &'a Map<String, Value>) -> Self {
        Names { arguments: Some(arguments), ..Names::default() }
    }

    /// Adds the call's result, as `result`.
    #[must_use]
    pub(crate) fn with_result(self, result: &'a Value) -> Self {
        Names { result: Some(result), ..self }
    }

    /// Adds these names; they override those of a ledger.
    #[must_use]
    pub fn with_values(self, values: &'a Map<String, Value>) -> Self {
        Names { values: Some(values), ..self }
    }

    /// Adds event counts.
    #[must_use]
    pub fn with_counts(self, counts: &'a Counts<'a>) -> Self {
        Names { counts: Some(counts), ..self }
    }

    /// Adds ledgers, whose roots are names.
    /// A path is known if one of them knows it.
    #[must_use]
    pub(crate) fn with_ledgers(self, ledgers: &'a [&'a Ledger]) -> Self {
        Names { ledgers, ..self }
    }

    /// The value at a path, and whether the path belongs to a ledger.
    fn find(&self, path: &[String]) -> (Found<'a>, bool) {
        let known = |value: Option<&'a Value>| value.map_or(Found::Unknown, Found::Known);
        let Some((root, rest)) = path.split_first() else { return (Found::Unknown, false) };
        if let Some(arguments) = self.arguments.filter(|_| root == "args") {
            let value = rest.split_first().and_then(|(name, rest)| look_up(arguments.get(name)?, rest));
            return (known(value), false);
        }
        if let Some(result) = self.result.filter(|_| root == "result") {
            return (known(look_up(result, rest)), false);
        }
        if let Some(value) = self.values.and_then(|values| values.get(root)) {
            return (known(look_up(value, rest)), false);
        }
        let mut found = Found::Unknown;
        for ledger in self.ledgers {
            match ledger.find(path) {
                known @ Found::Known(_) => return (known, true),
                Found::Stale => found = Found::Stale,
                Found::Unknown => {}
            }
        }
        (found, true)
    }

    fn count(&self, counter: Counter, pattern: &str) -> Result<u64, String> {
        let counted = self.counts.and_then(|counts| counts(counter, pattern));
        counted.ok_or_else(|| match counter {
            Counter::Ok | Counter::Failed => "calls are only counted in conditions of phases".to_owned(),
            Counter::Said => "what was said is only known to users of dialogues".to_owned(),
        })
    }

    /// Whether a condition is true.
    ///
    /// # Errors
    /// It compares or computes values of the wrong types, or it isn't a condition.
    pub fn truth(&self, expression: &'a Expression, seen: &mut Seen) -> Result<Truth, String> {
        match expression {
            Expression::Not(inner) => Ok(self.truth(inner, seen)?.not()),
            Expression::And(left, right) => match self.truth(left, seen)? {
                Truth::False => Ok(Truth::False),
                Truth::True => self.truth(right, seen),
                Truth::Unknown => Ok(match self.truth(right, seen)? {
                    Truth::False => Truth::False,
                    Truth::True | Truth::Unknown => Truth::Unknown,
                }),
            },
            Expression::Or(left, right) => match self.truth(left, seen)? {
                Truth::True => Ok(Truth::True),
                Truth::False => self.truth(right, seen),
                Truth::Unknown => Ok(match self.truth(right, seen)? {
                    Truth::True => Truth::True,
                    Truth::False | Truth::Unknown => Truth::Unknown,
                }),
            },
            Expression::Compare(comparison, left, right) => {
                let (left, right) = (self.value(left, seen)?, self.value(right, seen)?);
                let (Some(left), Some(right)) = (left, right) else { return Ok(Truth::Unknown) };
                compare(*comparison, &left, &right).map(Truth::of)
            }
            Expression::Test(Test::Defined, inner) => {
                let Expression::Path(keys) = &**inner else {
                    return Err("only of a path it can be asked whether it is defined".to_owned());
                };
                // A path that isn't defined is no missing fact; an unknown key is one.
                let Some(path) = self.path(keys, seen)? else { return Ok(Truth::Unknown) };
                Ok(Truth::of(matches!(self.find(&path).0, Found::Known(_))))
            }
            Expression::Test(test, inner) => {
                let Some(value) = self.value(inner, seen)? else { return Ok(Truth::Unknown) };
                tested(test, &value).map(Truth::of)
            }
            Expression::Count(counter, pattern) => Ok(Truth::of(self.count(*counter, pattern)? > 0)),
            other => match self.value(other, seen)?.as_deref() {
                None => Ok(Truth::Unknown),
                Some(Value::Bool(value)) => Ok(Truth::of(*value)),
                Some(value) => Err(format!(
                    "`{}` is no condition: compare it, or ask whether it `is defined`",
                    short(value)
                )),
            },
        }
    }

    /// The value of an expression; `None` if it is unknown.
    ///
    /// # Errors
    /// As [`Names::truth`].
    pub fn value(&self, expression: &'a Expression, seen: &mut Seen) -> Result<Option<Part<'a>>, String> {
        match expression {
            Expression::Literal(value) => Ok(Some(Cow::Borrowed(value))),
            Expression::List(items) => {
                let mut values = Some(Vec::new());
                for item in items {
                    let value = self.value(item, seen)?;
                    values = values.zip(value).map(|(mut values, value)| {
                        values.push(value.into_owned());
                        values
                    });
                }
                Ok(values.map(|values| Cow::Owned(values.into())))
            }
            Expression::Path(keys) => {
                let Some(path) = self.path(keys, seen)? else { return Ok(None) };
                let (found, ledger) = self.find(&path);
                let stale = found == Found::Stale;
                match found {
                    Found::Known(value) => {
                        if ledger {
                            seen.facts.insert(path.join("."), value.clone());
                        }
                        Ok(Some(Cow::Borrowed(value)))
                    }
                    Found::Unknown | Found::Stale => {
                        seen.miss(path.join("."), stale);
                        Ok(None)
                    }
                }
            }
            Expression::Filter(filter, inner) => {
                let Some(value) = self.value(inner, seen)? else { return Ok(None) };
                filtered(filter, &value).map(|value| Some(Cow::Owned(value)))
            }
            Expression::Compute(sign, left, right) => {
                let (left, right) = (self.value(left, seen)?, self.value(right, seen)?);
                let (Some(left), Some(right)) = (left, right) else { return Ok(None) };
                computed(*sign, &left, &right).map(|value| Some(Cow::Owned(value)))
            }
            Expression::Count(counter, pattern) => {
                Ok(Some(Cow::Owned(self.count(*counter, pattern)?.into())))
            }
            Expression::Not(_)
            | Expression::And(..)
            | Expression::Or(..)
            | Expression::Compare(..)
            | Expression::Test(..) => Ok(self.truth(expression, seen)?.value()),
        }
    }

    /// A path with its keys filled in; `None` if one of them is unknown.
    fn path(&self, keys: &'a [Key], seen: &mut Seen) -> Result<Option<Vec<String>>, String> {
        let mut path = Vec::with_capacity(keys.len());
        for key in keys {
            path.push(match key {
                Key::Name(name) => name.clone(),
                Key::Of(expression) => match self.value(expression, seen)?.as_deref() {
                    Some(Value::String(key)) => key.clone(),
                    Some(Value::Number(key)) => key.to_string(),
                    Some(other) => {
                        return Err(format!("`{}` can't be a key in `{}`", short(other), written(keys)));
                    }
                    None => return Ok(None),
                },
            });
        }
        Ok(Some(path))
    }
}

/// The type of a value, in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

fn compare(comparison: Comparison, left: &Value, right: &Value) -> Result<bool, String> {
    use std::cmp::Ordering;
    let wrong = || {
        Err(format!(
            "`{} {comparison} {}`: {} and {} can't be compared",
            short(left),
            short(right),
            kind(left),
            kind(right)
        ))
    };
    match comparison {
        Comparison::Equal | Comparison::Unequal => match equal(left, right) {
            Some(equal) => Ok(equal == (comparison == Comparison::Equal)),
            None => wrong(),
        },
        Comparison::In | Comparison::NotIn => {
            let found = match (left, right) {
                (Value::String(part), Value::String(whole)) => Some(whole.contains(part.as_str())),
                (Value::String(key), Value::Object(map)) => Some(map.contains_key(key)),
                (item, Value::Array(items)) => {
                    let compared: Vec<bool> = items.iter().filter_map(|other| equal(item, other)).collect();
                    (!compared.is_empty() || items.is_empty()).then(|| compared.contains(&true))
                }
                _ => None,
            };
            match found {
                Some(found) => Ok(found == (comparison == Comparison::In)),
                None => wrong(),
            }
        }
        Comparison::Less | Comparison::LessOrEqual | Comparison::Greater | Comparison::GreaterOrEqual => {
            let order = match (left, right) {
                (Value::Number(left), Value::Number(right)) => order(left, right),
                (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
                _ => None,
            };
            let Some(order) = order else { return wrong() };
            Ok(match comparison {
                Comparison::Less => order == Ordering::Less,
                Comparison::LessOrEqual => order != Ordering::Greater,
                Comparison::Greater => order == Ordering::Greater,
                _ => order != Ordering::Less,
            })
        }
    }
}

/// Whether two values are equal; `None` if they have different types.
/// Null compares with every type: it means that there is no value.
fn equal(left: &Value, right: &Value) -> Option<bool> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => Some(order(left, right)? == std::cmp::Ordering::Equal),
        (Value::Null, right) => Some(right.is_null()),
        (_, Value::Null) => Some(false),
        (Value::Array(left), Value::Array(right)) => Some(
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| equal(left, right) == Some(true)),
        ),
        (Value::Object(left), Value::Object(right)) => Some(
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, left)| right.get(key).is_some_and(|right| equal(left, right) == Some(true))),
        ),
        (left, right) if std::mem::discriminant(left) == std::mem::discriminant(right) => Some(left == right),
        _ => None,
    }
}

fn order(left: &Number, right: &Number) -> Option<std::cmp::Ordering> {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn tested(test: &Test, value: &Value) -> Result<bool, String> {
    let text =
        || value.as_str().ok_or_else(|| format!("`{}` is no text, it is {}", short(value), kind(value)));
    match test {
        Test::Defined => Ok(true),
        Test::None => Ok(value.is_null()),
        Test::StartingWith(start) => Ok(text()?.starts_with(start.as_str())),
        Test::EndingWith(end) => Ok(text()?.ends_with(end.as_str())),
    }
}

fn filtered(filter: &Filter, value: &Value) -> Result<Value, String> {
    let wrong = |what: &str| Err(format!("`{}` is {what}, it is {}", short(value), kind(value)));
    match (filter, value) {
        (Filter::Length, Value::String(text)) => Ok(text.chars().count().into()),
        (Filter::Length, Value::Array(items)) => Ok(items.len().into()),
        (Filter::Length, Value::Object(map)) => Ok(map.len().into()),
        (Filter::Length, _) => wrong("without a length"),
        (Filter::Lower, Value::String(text)) => Ok(text.to_lowercase().into()),
        (Filter::Lower, _) => wrong("no text"),
        (Filter::Map(key), Value::Array(items)) => {
            let values = items.iter().map(|item| {
                let missing = || format!("`{}` has no `{key}`", short(item));
                item.get(key).cloned().ok_or_else(missing)
            });
            values.collect::<Result<Vec<_>, _>>().map(Value::from)
        }
        (Filter::Map(_), _) => wrong("no list"),
    }
}

fn computed(sign: Sign, left: &Value, right: &Value) -> Result<Value, String> {
    let (Value::Number(left), Value::Number(right)) = (left, right) else {
        let wrong = if left.is_number() { right } else { left };
        return Err(format!("`{}` is no number, it is {}", short(wrong), kind(wrong)));
    };
    let exact = left.as_i64().zip(right.as_i64()).and_then(|(left, right)| match sign {
        Sign::Plus => left.checked_add(right),
        Sign::Minus => left.checked_sub(right),
        Sign::Times => left.checked_mul(right),
    });
    if let Some(exact) = exact {
        return Ok(exact.into());
    }
    let (left, right) = (left.as_f64().unwrap_or(f64::NAN), right.as_f64().unwrap_or(f64::NAN));
    let value = match sign {
        Sign::Plus => left + right,
        Sign::Minus => left - right,
        Sign::Times => left * right,
    };
    Number::from_f64(value).map(Value::Number).ok_or_else(|| "the number is too large".to_owned())
}
