//! Tests whether a condition can be true, on samples of all the values that it uses.
//!
//! The samples are the numbers in it and their neighbours, facts that can and can't be true, short
//! and long queues.
//! A condition that no sample makes true is never true; one that uses too many values counts as
//! possible.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::Condition;
use super::condition::{Uses, values};
use crate::expression::{Counter, Names, Truth};

/// Most samples to try for a condition.
const SAMPLES: usize = 4096;
/// A number larger than any that conditions compare with.
const MANY: u64 = 1_000_000;

/// Whether a condition is true for any sample; `facts` are those that can be true, `tools` tells
/// which patterns a call may match.
///
/// # Errors
/// It can't be evaluated for any sample.
pub fn met(
    condition: &Condition,
    uses: &Uses,
    facts: &BTreeSet<String>,
    tools: &dyn Fn(&str) -> bool,
) -> Result<bool, String> {
    let around = |number: &u64| [number.saturating_sub(1), *number, number + 1];
    let numbers: BTreeSet<u64> =
        [0, 1, MANY].into_iter().chain(uses.numbers.iter().flat_map(around)).collect();
    let numbers: Vec<Value> = numbers.into_iter().map(Value::from).collect();
    // Each value that is used, and its samples.
    let mut counted = Vec::new();
    for (counter, pattern) in &uses.counted {
        counted.push((
            (*counter, pattern.clone()),
            if tools(pattern) { numbers.clone() } else { vec![0.into()] },
        ));
    }
    let mut named: Vec<(String, Vec<Value>)> = Vec::new();
    for name in &uses.names {
        let samples = match name.as_str() {
            "turns" | "answers" => numbers.clone(),
            "queue" => queues(&uses.numbers),
            fact if facts.contains(fact) => vec![true.into(), false.into()],
            // A fact that can't be true.
            _ => vec![false.into()],
        };
        named.push((name.clone(), samples));
    }
    let sizes = counted
        .iter()
        .map(|(_, samples)| samples.len())
        .chain(named.iter().map(|(_, samples)| samples.len()));
    let sizes: Vec<usize> = sizes.collect();
    let Some(all) =
        sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size).filter(|all| *all <= SAMPLES))
    else {
        return Ok(true);
    };
    let mut wrong = None;
    let mut computed = false;
    for sample in 0..all {
        let mut rest = sample;
        let mut pick = |samples: &[Value]| {
            let value = samples[rest % samples.len()].clone();
            rest /= samples.len();
            value
        };
        let counts: BTreeMap<(Counter, String), u64> = counted
            .iter()
            .map(|(what, samples)| (what.clone(), pick(samples).as_u64().unwrap_or_default()))
            .collect();
        let names: Map<String, Value> =
            named.iter().map(|(name, samples)| (name.clone(), pick(samples))).collect();
        let count = |counter: Counter, pattern: &str| {
            Some(counts.get(&(counter, pattern.to_owned())).copied().unwrap_or_default())
        };
        match condition.truth(&Names::default().with_values(&names).with_counts(&count)) {
            Ok(Truth::True) => return Ok(true),
            Ok(_) => computed = true,
            Err(error) => wrong = Some(error),
        }
    }
    match wrong {
        Some(error) if !computed => Err(error),
        // A future fact in a ledger decides.
        _ => Ok(uses.ledger),
    }
}

/// Queues of the lengths that a condition may test for.
fn queues(numbers: &BTreeSet<u64>) -> Vec<Value> {
    let lengths = [0, 1].into_iter().chain(numbers.iter().flat_map(|number| [*number, number + 1]));
    let lengths: BTreeSet<usize> =
        lengths.map(|number| usize::try_from(number.min(30)).unwrap_or(30)).collect();
    let tasks = |length: &usize| vec!["x".to_owned(); *length];
    let of = |pending: &usize, done: &usize| {
        values(&tasks(pending), &tasks(done), 0, 0).remove("queue").unwrap_or_default()
    };
    lengths
        .iter()
        .flat_map(|pending| lengths.iter().map(|done| of(pending, done)).collect::<Vec<_>>())
        .collect()
}
