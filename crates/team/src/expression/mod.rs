//! Expressions over known facts: the language of gates' rules and of phases' conditions.
//!
//! It is a subset of the language of jinxes (minijinja's), with the same words and precedence:
//!
//! | | |
//! |---|---|
//! | literals | `'text'`, `"text"`, `3`, `-1.5`, `true`, `false`, `none`, `[a, b]` |
//! | paths | `orders[args.id].status`, `args.items[0].name` |
//! | comparisons | `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in` |
//! | logic | `and`, `or`, `not`, `( )` |
//! | tests | `is defined`, `is undefined`, `is none`, `is startingwith('a')`, `is endingwith('a')`, each with `is not` |
//! | filters | `length`, `lower`, `map(attribute='name')` |
//! | arithmetic | `+`, `-`, `*` |
//! | calls that were made, in conditions of phases only | `ok('get_*')`, `failed('get_*')` |
//! | the other side's words, where these are counted | `said('date of birth')` |
//!
//! There are no loops, so that the size of an expression bounds its work.
//! An unknown value is neither true nor false, see [`Names::truth`].
//! This module must not know who asks: a rule or a condition.

mod evaluate;
mod parse;

use std::fmt;

use serde_json::Value;

pub use evaluate::{Names, Seen, Truth};

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A value.
    Literal(Value),
    /// A list of values.
    List(Vec<Expression>),
    /// The value at a path.
    Path(Vec<Key>),
    /// A negation.
    Not(Box<Expression>),
    /// Whether both are true.
    And(Box<Expression>, Box<Expression>),
    /// Whether at least one is true.
    Or(Box<Expression>, Box<Expression>),
    /// A comparison of two values.
    Compare(Comparison, Box<Expression>, Box<Expression>),
    /// A test of a value.
    Test(Test, Box<Expression>),
    /// A filter applied to a value.
    Filter(Filter, Box<Expression>),
    /// Arithmetic on two numbers.
    Compute(Sign, Box<Expression>, Box<Expression>),
    /// The number of events that match a text; as a condition: whether there is one.
    Count(Counter, String),
}

/// The events that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// `ok('pattern')`: successful calls of matching tools.
    Ok,
    /// `failed('pattern')`: failed calls of matching tools.
    Failed,
    /// `said('words')`: whether the other side's last message contains these words.
    Said,
}

impl Counter {
    /// All counters.
    pub const ALL: [Counter; 3] = [Counter::Ok, Counter::Failed, Counter::Said];
    /// The counters of calls.
    pub const CALLS: [Counter; 2] = [Counter::Ok, Counter::Failed];

    /// The function's name.
    pub fn name(self) -> &'static str {
        match self {
            Counter::Ok => "ok",
            Counter::Failed => "failed",
            Counter::Said => "said",
        }
    }
}

/// A component of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    /// `.name`, or the name that a path begins with.
    Name(String),
    /// `[expression]`.
    Of(Expression),
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `in`
    In,
    /// `not in`
    NotIn,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Comparison::Equal => "==",
            Comparison::Unequal => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
            Comparison::In => "in",
            Comparison::NotIn => "not in",
        })
    }
}

/// A test of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// Whether it is known; the only test that an unknown value can answer.
    Defined,
    /// Whether it is null.
    None,
    /// Whether the text begins with this one.
    StartingWith(String),
    /// Whether the text ends with this one.
    EndingWith(String),
}

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// The number of characters, items or keys.
    Length,
    /// The text in lower case.
    Lower,
    /// The value of this key in each item of a list.
    Map(String),
}

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Times,
}

impl Expression {
    /// Calls `look` with this and every expression in it, including those inside paths.
    pub fn walk<'a>(&'a self, look: &mut dyn FnMut(&'a Expression)) {
        look(self);
        match self {
            Expression::Literal(_) | Expression::Count(..) => {}
            Expression::List(items) => items.iter().for_each(|item| item.walk(look)),
            Expression::Path(keys) => {
                for key in keys {
                    if let Key::Of(inner) = key {
                        inner.walk(look);
                    }
                }
            }
            Expression::Not(inner) | Expression::Test(_, inner) | Expression::Filter(_, inner) => {
                inner.walk(look);
            }
            Expression::And(left, right)
            | Expression::Or(left, right)
            | Expression::Compare(_, left, right)
            | Expression::Compute(_, left, right) => {
                left.walk(look);
                right.walk(look);
            }
        }
    }

    /// Calls `look` with every path in it, including those inside paths.
    pub fn paths<'a>(&'a self, look: &mut dyn FnMut(&'a [Key])) {
        self.walk(&mut |expression| {
            if let Expression::Path(keys) = expression {
                look(keys);
            }
        });
    }

    /// The events that it counts.
    pub fn counts(&self) -> Vec<(Counter, &str)> {
        let mut found = Vec::new();
        self.walk(&mut |expression| {
            if let Expression::Count(counter, pattern) = expression {
                found.push((*counter, pattern.as_str()));
            }
        });
        found
    }
}

/// A path as written in an expression.
pub fn written(keys: &[Key]) -> String {
    let mut text = String::new();
    for key in keys {
        match key {
            Key::Name(name) if text.is_empty() => text += name,
            Key::Name(name) => text += &format!(".{name}"),
            Key::Of(Expression::Path(inner)) => text += &format!("[{}]", written(inner)),
            Key::Of(Expression::Literal(value)) => text += &format!("[{value}]"),
            Key::Of(_) => text += "[…]",
        }
    }
    text
}

/// Whether a tool's name matches a pattern, in which `*` matches any characters, or none.
pub fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        // The first match leaves the most for the later parts.
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests;
