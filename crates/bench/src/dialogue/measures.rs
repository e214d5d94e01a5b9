//! The measures of an attempt at a dialogue, computed from its trace and from gold.
//!
//! All of them are counts, so that those of many attempts can be added up before the division.
//! Names and arguments of calls are those inside `call_tool`.
//! Unless stated otherwise, calls are those of the agent and of NPCs that it delegates to.

use std::collections::BTreeSet;

use alara_harness::trace::{Entry, Record};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::calls::{Call, Target, calls, is_of, missing};
use super::database::{Databases, canonical};
use super::gold::Gold;
use super::{Action, Dialogue, Side};

/// Number of successive failures of one tool that count as too many.
/// Source: over-retry rate of arXiv 2606.06923.
const TOO_MANY: usize = 4;

/// The measures of an attempt at a dialogue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measures {
    /// Whether both databases equal those after gold, and all required actions were made.
    /// Source: reward of tau2-bench, based on database and actions.
    pub reward: bool,
    /// Whether `database.json` equals that after gold.
    /// Source: database match of arXiv 2606.06923.
    pub database: bool,
    /// Whether `user.json` equals that after gold.
    pub user_database: bool,
    /// Number of required actions of both sides.
    pub actions: u64,
    /// Number of these with a successful call, each call counted once.
    /// Source: action check of tau2-bench.
    pub actions_made: u64,
    /// Number of issued writes, successful or not.
    pub writes: u64,
    /// Number of writes in the agent's gold.
    pub gold_writes: u64,
    /// Number of issued writes that are also in gold, with the same name and equal arguments,
    /// matched one to one.
    /// Divided by `writes`, it is the accuracy of the issued writes.
    /// Divided by `gold_writes`, it is the partial action reward of tau2-bench, which arXiv
    /// 2606.06923 calls write accuracy.
    pub writes_matched: u64,
    /// Number of writes that ran because nothing refused them, except the verification itself.
    pub writes_run: u64,
    /// Number of these before the first success of the verification, minus those that gold makes
    /// before it, matched one to one.
    /// `None` if the suite names no verification.
    /// Source: unauthorized writes of arXiv 2606.06923, which also counts those of gold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes_early: Option<u64>,
    /// Number of subtracted writes: early, but also early in gold.
    pub writes_early_gold: u64,
    /// How often a tool failed four times or more in a row, without another call in between.
    /// Source: over-retry rate of arXiv 2606.06923.
    pub over_retries: u64,
    /// Number of models' turns: trajectory length.
    pub turns: u64,
    /// Number of prompt tokens, including cached ones.
    pub tokens_in: u64,
    /// Number of prompt tokens whose keys and values were reused.
    pub tokens_cached: u64,
    /// Number of generated tokens.
    pub tokens_out: u64,
    /// Seconds spent in turns, from request to last token, and in calls.
    /// The time of NPCs that get work delegated is part of the call.
    pub seconds: f64,
    /// Number of writes refused by a gate or phase that aren't in gold.
    pub blocks_right: u64,
    /// Number of writes refused by a gate or phase that are in gold.
    pub blocks_wrong: u64,
    /// Number of documents that must be found.
    pub documents: u64,
    /// The best rank of each required document that was found, from 1, in ascending order: its
    /// position among the passages of one result.
    pub ranks: Vec<u64>,
}

impl Measures {
    /// Returns how many of the documents are among the first `k` passages of a result.
    pub fn found_within(&self, k: u64) -> u64 {
        self.ranks.iter().filter(|rank| **rank <= k).count() as u64
    }
}

/// Computes the measures of one attempt at a dialogue.
/// `after` are the databases at its end; `writes` returns whether a tool changes something.
pub fn of(
    entries: &[Entry],
    dialogue: &Dialogue,
    gold: &Gold,
    after: &Databases,
    writes: &dyn Fn(&str) -> bool,
) -> Measures {
    let same = |one: &Value, other: &Value| canonical(one) == canonical(other);
    let database = same(&gold.databases.database, &after.database);
    let user_database = same(&gold.databases.user, &after.user);
    let (mut actions, mut actions_made) = (0, 0);
    for side in [Side::Agent, Side::User] {
        let made: Vec<Call> = calls(entries, side).into_iter().filter(|call| call.ok).collect();
        let required = dialogue.actions.iter().filter(|action| action.required && action.by == side);
        let required: Vec<&Action> = required.collect();
        let lacking = missing(&required, |action| action.target(), made.iter().map(|call| &call.what));
        actions += required.len() as u64;
        actions_made += (required.len() - lacking.len()) as u64;
    }

    let calls = calls(entries, Side::Agent);
    let gold_calls = dialogue.actions.iter().filter(|action| action.by == Side::Agent).map(Action::target);
    let gold_calls: Vec<Target> = gold_calls.collect();
    let is_write = |target: &&Target| writes(&target.name);
    let issued: Vec<&Target> = calls.iter().map(|call| &call.what).filter(is_write).collect();
    let gold_writes: Vec<&Target> = gold_calls.iter().filter(is_write).collect();
    let unmatched = missing(&gold_writes, |write| (*write).clone(), issued.iter().copied()).len();
    let refused = calls.iter().filter(|call| call.blocked).map(|call| &call.what).filter(is_write);
    let (wrong, right): (Vec<&Target>, Vec<&Target>) = refused.partition(|write| gold_writes.contains(write));

    let verification = dialogue.verification.as_deref();
    let is_other = |target: &&Target| is_write(target) && Some(target.name.as_str()) != verification;
    let ran: Vec<&Call> = calls.iter().filter(|call| call.made).collect();
    let verifies = |call: &Call| call.ok && Some(call.what.name.as_str()) == verification;
    let early = ran.iter().take_while(|call| !verifies(call)).map(|call| &call.what).filter(is_other);
    let early: Vec<&Target> = early.collect();
    let gold_early = gold_calls.iter().take_while(|call| Some(call.name.as_str()) != verification);
    let gold_early = gold_early.filter(is_other);
    let unauthorized = missing(&early, |write| (*write).clone(), gold_early).len();
    let (early_gold, unauthorized) = match verification {
        Some(_) => (early.len() - unauthorized, Some(unauthorized as u64)),
        None => (0, None),
    };
    let ranks = ranks(entries, dialogue);
    let mut measures = Measures {
        reward: gold.held_against(dialogue, after, entries).is_ok(),
        database,
        user_database,
        actions,
        actions_made,
        writes: issued.len() as u64,
        gold_writes: gold_writes.len() as u64,
        writes_matched: (gold_writes.len() - unmatched) as u64,
        writes_run: ran.iter().map(|call| &call.what).filter(is_other).count() as u64,
        writes_early: unauthorized,
        writes_early_gold: early_gold as u64,
        over_retries: over_retries(&calls),
        blocks_right: right.len() as u64,
        blocks_wrong: wrong.len() as u64,
        documents: wanted(dialogue).len() as u64,
        ranks,
        ..Measures::default()
    };
    measures.add_turns(entries);
    measures
}

impl Measures {
    /// Adds the cost of the agent's turns and calls.
    fn add_turns(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| is_of(Side::Agent, &entry.scope)) {
            let direct = entry.scope.is_empty();
            match &*entry.record {
                Record::Assistant { usage, .. } => {
                    self.turns += 1;
                    self.tokens_in += usage.prompt_tokens as u64;
                    self.tokens_cached += usage.cached_tokens as u64;
                    self.tokens_out += usage.completion_tokens as u64;
                    if direct {
                        self.seconds += (usage.time_to_first_token + usage.decode_time).as_secs_f64();
                    }
                }
                Record::ToolResult { seconds, .. } if direct => self.seconds += seconds,
                _ => {}
            }
        }
    }
}

/// Counts how often one tool failed [`TOO_MANY`] times or more in a row.
fn over_retries(calls: &[Call]) -> u64 {
    let rows = calls.chunk_by(|one, next| !one.ok && !next.ok && one.what.name == next.what.name);
    rows.filter(|row| row.len() >= TOO_MANY).count() as u64
}

/// Returns the ids of the documents that must be found.
fn wanted(dialogue: &Dialogue) -> BTreeSet<&str> {
    dialogue.documents.iter().map(String::as_str).collect()
}

/// Returns the best rank of each required document that was found, in ascending order.
///
/// The result of the step `search` is a list of passages, each with the id of its `document`.
fn ranks(entries: &[Entry], dialogue: &Dialogue) -> Vec<u64> {
    let results = entries.iter().filter(|entry| is_of(Side::Agent, &entry.scope));
    let results = results.filter_map(|entry| match &*entry.record {
        Record::ToolResult { result, .. } if result.ok => {
            let mut found = Vec::new();
            passages(&result.output, &mut found);
            Some(found)
        }
        _ => None,
    });
    let results: Vec<Vec<String>> = results.collect();
    let rank = |id: &str| {
        let places = results.iter().filter_map(|found| found.iter().position(|document| document == id));
        places.min().map(|place| place as u64 + 1)
    };
    let mut ranks: Vec<u64> = wanted(dialogue).into_iter().filter_map(rank).collect();
    ranks.sort_unstable();
    ranks
}

/// Collects the documents of the passages in a result, in order; a jinx may have converted them to
/// text.
fn passages(output: &Value, found: &mut Vec<String>) {
    match output {
        Value::Object(map) => match (map.get("id"), map.get("document")) {
            (Some(Value::String(_)), Some(Value::String(document))) => found.push(document.clone()),
            _ => map.values().for_each(|value| passages(value, found)),
        },
        Value::Array(items) => items.iter().for_each(|item| passages(item, found)),
        Value::String(text) if text.starts_with(['[', '{']) => {
            if let Ok(value @ (Value::Array(_) | Value::Object(_))) = serde_json::from_str(text) {
                passages(&value, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
#[path = "measures_tests.rs"]
mod tests;
