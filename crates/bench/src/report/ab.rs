//! A/B: each condition against the first, by the tasks that both did.

use std::collections::BTreeMap;

use super::data::Data;
use super::math::paired;
use super::{Cell, Section, Selection, Table};

/// The comparison; nothing with a single condition.
pub fn section(data: &Data) -> Option<Section> {
    if data.conditions.len() < 2 {
        return None;
    }
    let columns = [
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
    let mut table = Table::new("", &columns);
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
    // By task: which trials of which models each condition solved.
    type Side = BTreeMap<(usize, u32), bool>;
    let mut tasks: BTreeMap<&str, [Side; 2]> = BTreeMap::new();
    for case in
        data.cases.iter().filter(|case| case.counts() && model.is_none_or(|model| model == case.model))
    {
        let Some(side) = [a, b].iter().position(|condition| *condition == case.condition) else { continue };
        let task = tasks.entry(&case.end.task).or_default();
        task[side].insert((case.model, case.trial), case.solved());
    }
    let mut pairs = Vec::new();
    for [left, right] in tasks.values() {
        let both = || left.keys().filter(|trial| right.contains_key(*trial));
        let solved = |side: &Side| both().filter(|trial| side[*trial]).count() as u32;
        pairs.push((both().count() as u32, solved(left), solved(right)));
    }
    // A pair counts only if it has all trials, so that all weigh the same.
    let trials = pairs.iter().map(|pair| pair.0).max()?;
    let pairs: Vec<(u32, u32)> =
        pairs.into_iter().filter(|pair| pair.0 == trials).map(|(_, a, b)| (a, b)).collect();
    let found = paired(&pairs, trials)?;
    let share = |side: fn(&(u32, u32)) -> u32| {
        let solved: u32 = pairs.iter().map(side).sum();
        Some(f64::from(solved) / f64::from(trials) / pairs.len() as f64)
    };
    let behind = |condition: usize| Selection { model, condition: Some(condition), ..Selection::default() };
    let both = Selection { model, ..Selection::default() };
    let name = model.map_or_else(|| "all".to_owned(), |model| data.label(model));
    let (low, high) = found.interval;
    let p = if found.p < 0.001 { "< 0.001".to_owned() } else { format!("{:.3}", found.p) };
    Some(vec![
        Cell::text(name),
        Cell::text(&data.conditions[a]),
        Cell::text(&data.conditions[b]),
        Cell::number(Some(found.pairs as f64), 0).from(both.clone()),
        Cell::percent(share(|pair| pair.0)).from(behind(a)),
        Cell::percent(share(|pair| pair.1)).from(behind(b)),
        Cell {
            text: format!("{:+.1}", found.difference * 100.0),
            value: Some(found.difference * 100.0),
            behind: Some(both.clone()),
        },
        Cell {
            text: format!("{:+.1} – {:+.1}", low * 100.0, high * 100.0),
            value: None,
            behind: Some(both.clone()),
        },
        Cell::number(Some(found.a_better as f64), 0).from(both.clone()),
        Cell::number(Some(found.b_better as f64), 0).from(both.clone()),
        Cell { text: p, value: Some(found.p), behind: Some(both) },
    ])
}
