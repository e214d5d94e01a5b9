//! Reports which gate rules and phases refused agents' calls.

use std::collections::BTreeMap;

use super::data::{Case, Data};
use super::sections::{Subjects, names};
use super::{Cell, Section, Table};

/// Returns the section on refused calls; nothing if there are none.
pub fn section(data: &Data, subjects: &Subjects) -> Option<Section> {
    let columns = |first| [first, "refused by", "calls", "cases", "of these solved"];
    let mut by_model = Table::new("By model", &columns("model"));
    for (name, _, group) in subjects.groups(data) {
        fill(&mut by_model, &name, &group.cases);
    }
    let mut by_task = Table::new("By task, of all models", &columns("task"));
    for task in names(data, |case| case.end.task.clone()) {
        let cases: Vec<&Case> = data.cases.iter().filter(|case| case.end.task == task).collect();
        fill(&mut by_task, &task, &cases);
    }
    (!by_model.rows.is_empty()).then(|| Section {
        id: "refusals",
        title: "Calls that rules and phases refused",
        text: "Calls that a rule of a gate or the phase of a conversation did not let through, whoever of the team made them, in all \
               attempts; the cases in which that happened, and how many of these ended solved."
            .into(),
        figure: None,
        tables: vec![by_model, by_task],
    })
}

/// Number of refused calls, and of cases with such calls.
#[derive(Clone, Copy, Default)]
struct Count {
    calls: u64,
    cases: u64,
    solved: u64,
}

/// Counts the refused calls in these cases, by what refused them.
fn counts(cases: &[&Case]) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for case in cases {
        let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
        for (by, count) in case.attempts.iter().flat_map(|attempt| &attempt.refusals) {
            let calls = calls.entry(by).or_default();
            *calls = calls.saturating_add(*count);
        }
        for (by, calls) in calls {
            let count = counts.entry(by.to_owned()).or_default();
            count.calls = count.calls.saturating_add(calls);
            count.cases += 1;
            count.solved += u64::from(case.solved());
        }
    }
    counts
}

fn fill(table: &mut Table, name: &str, cases: &[&Case]) {
    for (by, Count { calls, cases, solved }) in counts(cases) {
        let numbers = [calls, cases, solved].map(|number| Cell::number(Some(number as f64), 0));
        let names = [Cell::text(name), Cell::text(by)];
        table.rows.push(names.into_iter().chain(numbers).collect());
    }
}
