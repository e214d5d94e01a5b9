//! A/B tests: compares each condition with the first, by the tasks in both.

use std::collections::BTreeMap;

use alara_harness::knowledge::Retrieval;

use super::data::{Case, Data};
use super::math::{Paired, paired};
use super::{Cell, Section, Selection, Table};
use crate::record::Header;

/// Columns of a comparison.
const COLUMNS: [&str; 11] = [
    "model",
    "A",
    "B",
    "pairs",
    "A, %",
    "B, %",
    "difference, pp",
    "95 % interval",
    "A better",
    "B better",
    "p",
];

/// Returns the comparison; nothing for a single condition.
pub fn section(data: &Data) -> Option<Section> {
    if data.conditions.len() < 2 {
        return None;
    }
    let mut table = Table::new("", &COLUMNS);
    let all = (0..data.models.len()).map(Some).chain((data.models.len() > 1).then_some(None));
    for model in all {
        for b in 1..data.conditions.len() {
            table.rows.extend(row(data, model, 0, b));
        }
    }
    (!table.rows.is_empty()).then(|| Section {
        id: "ab",
        title: "Conditions compared",
        text: "A pair is a task, in the trials that both conditions did; in the row of all models, with all of them together, since what \
               is hard for one is often hard for the next. Tasks that lack a trial or a model which others have are left out. p: how often a difference this large would come \
               by chance if the conditions were alike (exact sign-flip test over the pairs; with one trial, McNemar's)."
            .into(),
        figure: None,
        tables: vec![table],
    })
}

fn row(data: &Data, model: Option<usize>, a: usize, b: usize) -> Option<Vec<Cell>> {
    let side = |case: &Case| [a, b].iter().position(|condition| *condition == case.condition);
    let found = compared(data, |case| {
        let ours = model.is_none_or(|model| model == case.model);
        Some((side(case).filter(|_| ours)?, Pair { model: case.model, trial: case.trial, rest: 0 }))
    })?;
    let behind = |condition: usize| Selection { model, condition: Some(condition), ..Selection::default() };
    let name = model.map_or_else(|| "all".to_owned(), |model| data.label(model));
    let (a_name, b_name) = (data.conditions[a].as_str(), data.conditions[b].as_str());
    let both = Selection { model, ..Selection::default() };
    Some(found.cells([&name, a_name, b_name], [behind(a), behind(b)], &both))
}

/// Properties that both sides of a pair share, in addition to the task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    model: usize,
    trial: u32,
    /// Any other property, as a number.
    rest: usize,
}

/// A comparison, and the shares solved on both sides.
struct Compared {
    found: Paired,
    shares: [f64; 2],
}

/// Compares cases by task; `side` returns the side of a case, 0 or 1, and its pair's key.
fn compared(data: &Data, side: impl Fn(&Case) -> Option<(usize, Pair)>) -> Option<Compared> {
    // For each task, which of its cases each side solved.
    let mut tasks: BTreeMap<&str, [BTreeMap<Pair, bool>; 2]> = BTreeMap::new();
    for case in data.cases.iter().filter(|case| case.counts()) {
        let Some((side, pair)) = side(case) else { continue };
        tasks.entry(&case.end.task).or_default()[side].insert(pair, case.solved());
    }
    let mut pairs = Vec::new();
    for [left, right] in tasks.values() {
        let both = || left.keys().filter(|pair| right.contains_key(*pair));
        let solved = |side: &BTreeMap<Pair, bool>| both().filter(|pair| side[*pair]).count() as u32;
        pairs.push((both().count() as u32, solved(left), solved(right)));
    }
    // Count only pairs with all trials, so that all have equal weight.
    let trials = pairs.iter().map(|pair| pair.0).max()?;
    let pairs: Vec<(u32, u32)> =
        pairs.into_iter().filter(|pair| pair.0 == trials).map(|(_, a, b)| (a, b)).collect();
    let found = paired(&pairs, trials)?;
    let share = |side: fn(&(u32, u32)) -> u32| {
        let solved: u32 = pairs.iter().map(side).sum();
        f64::from(solved) / f64::from(trials) / pairs.len() as f64
    };
    Some(Compared { found, shares: [share(|pair| pair.0), share(|pair| pair.1)] })
}

impl Compared {
    /// Returns a row: three names, and the numbers with the attempts behind them.
    fn cells(&self, names: [&str; 3], sides: [Selection; 2], both: &Selection) -> Vec<Cell> {
        let Compared { found, shares } = self;
        let (low, high) = found.interval;
        let p = if found.p < 0.001 { "< 0.001".to_owned() } else { format!("{:.3}", found.p) };
        let [a, b] = sides;
        let count = |count: usize| Cell::number(Some(count as f64), 0).from(both.clone());
        let signed = |value: f64| format!("{:+.1}", value * 100.0);
        let numbers = [
            count(found.pairs),
            Cell::percent(Some(shares[0])).from(a),
            Cell::percent(Some(shares[1])).from(b),
            Cell {
                text: signed(found.difference),
                value: Some(found.difference * 100.0),
                behind: Some(both.clone()),
            },
            Cell {
                text: format!("{} – {}", signed(low), signed(high)),
                value: None,
                behind: Some(both.clone()),
            },
            count(found.a_better),
            count(found.b_better),
            Cell { text: p, value: Some(found.p), behind: Some(both.clone()) },
        ];
        names.map(Cell::text).into_iter().chain(numbers).collect()
    }
}

/// The factors in which conditions of dialogues differ.
const FACTORS: [&str; 3] = ["policy", "gate", "retrieval"];

/// Returns the values of [`FACTORS`] for a condition.
fn values(header: &Header) -> [String; 3] {
    let gate = header.gate.map_or("as the team has it", |on| if on { "on" } else { "off" });
    let retrieval = header.retrieval.map_or("as the team has it", Retrieval::name);
    [header.npc.clone(), gate.to_owned(), retrieval.to_owned()]
}

/// Compares each value of policy, gate and retrieval with the first, over pairs with equal values
/// of the other two; nothing for factors that don't vary.
pub fn factors(data: &Data) -> Option<Table> {
    let columns: Vec<&str> = ["what differs"].into_iter().chain(COLUMNS.into_iter().skip(1)).collect();
    let mut table = Table::new("Reward by policy, gate and retrieval, compared", &columns);
    // By condition; each condition has one policy, whichever model follows it.
    let of = |condition: usize| {
        let models = 0..data.models.len();
        models.into_iter().find_map(|model| data.header(condition, model)).map(values).unwrap_or_default()
    };
    let conditions: Vec<[String; 3]> = (0..data.conditions.len()).map(of).collect();
    for (factor, name) in FACTORS.into_iter().enumerate() {
        let mut known: Vec<&String> = Vec::new();
        for one in &conditions {
            if !known.contains(&&one[factor]) {
                known.push(&one[factor]);
            }
        }
        // Represents the values of the other two by the first condition that has them.
        let others = |condition: usize| {
            let same = |one: &[String; 3]| {
                (0..FACTORS.len()).all(|at| at == factor || one[at] == conditions[condition][at])
            };
            conditions.iter().position(same).unwrap_or(condition)
        };
        for b in known.iter().skip(1) {
            let found = compared(data, |case| {
                let side =
                    [known[0], b].iter().position(|value| **value == conditions[case.condition][factor])?;
                Some((side, Pair { model: case.model, trial: case.trial, rest: others(case.condition) }))
            });
            let all = Selection::default();
            let cells = |found: Compared| found.cells([name, known[0], b], [all.clone(), all.clone()], &all);
            table.rows.extend(found.map(cells));
        }
    }
    (!table.rows.is_empty()).then_some(table)
}
