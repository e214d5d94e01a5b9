//! Correlations with the score, over models and over cases.

use std::collections::BTreeMap;

use super::data::{Case, Data};
use super::group::{Group, calls};
use super::math::pearson;
use super::sections::Subjects;
use super::{Axis, Cell, Figure, Point, Section, Selection, Series, Table};

/// A measure of a case, with its name.
type Measure = (&'static str, fn(&Case) -> f64);

const MEASURES: [Measure; 3] = [
    ("tool calls", calls),
    ("duration", |case| case.end.seconds),
    ("attempts", |case| f64::from(case.end.attempts)),
];

/// Returns the correlations, and a figure of general scores against ours.
pub fn section(data: &Data, subjects: &Subjects) -> Section {
    let groups: Vec<_> = subjects.groups(data).collect();
    let mut table = Table::new("", &["measure", "r over models", "n", "r over cases", "n"]);
    let mut row = |name: String, models: &[(f64, f64)], cases: &[(f64, f64)]| {
        table.rows.push(vec![
            Cell::text(name),
            Cell::number(pearson(models), 2).from(Selection::default()),
            Cell::number(Some(models.len() as f64), 0),
            Cell::number(pearson(cases), 2).from(Selection::default()),
            Cell::number((!cases.is_empty()).then_some(cases.len() as f64), 0),
        ]);
    };
    for (name, of) in MEASURES {
        let models: Vec<_> =
            groups.iter().filter_map(|(_, _, group)| group.mean(of).zip(group.score())).collect();
        let cases = data.cases.iter().filter(|case| case.counts());
        let cases: Vec<_> = cases.map(|case| (of(case), f64::from(u8::from(case.solved())))).collect();
        row(name.to_owned(), &models, &cases);
    }
    // Scores of different benchmarks aren't comparable: each gets its own row.
    let mut benchmarks: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
    for (name, model, group) in &groups {
        let facts = &data.models[*model].1;
        if let Some((x, score)) = facts.score.zip(group.score()) {
            let point = Point { x, y: score * 100.0, name: name.clone(), behind: Some(group.behind.clone()) };
            benchmarks.entry(&facts.benchmark).or_default().push(point);
        }
    }
    for (benchmark, points) in &benchmarks {
        let pairs: Vec<_> = points.iter().map(|point| (point.x, point.y)).collect();
        row(format!("general score ({})", named(benchmark)), &pairs, &[]);
    }
    let size = |(_, model, group): &(String, usize, Group)| {
        data.models[*model].1.parameters.map(f64::ln).zip(group.score())
    };
    row("size (log)".to_owned(), &groups.iter().filter_map(size).collect::<Vec<_>>(), &[]);
    let series: Vec<_> = benchmarks
        .into_iter()
        .map(|(benchmark, points)| Series { name: named(benchmark).to_owned(), published: false, points })
        .collect();
    let figure = (!series.is_empty()).then(|| Figure::Points {
        x: Axis { name: "general score, %".into(), ..Axis::default() },
        y: Axis { name: "score, %".into(), logarithmic: false, percent: true },
        joined: false,
        series,
    });
    Section {
        id: "correlation",
        title: "What goes with the score",
        text: "Pearson's r. Over models: the mean of each model, under each condition, against its score, from three on. Over cases: against solved or not, \
               models mixed. The study found that tool calls go with the score more than attempts or duration do, and that MMLU goes \
               with it in a line. General scores of different benchmarks don't compare: each benchmark has a row and a mark of its own."
            .into(),
        figure,
        tables: vec![table],
    }
}

/// Returns the display name of a benchmark.
fn named(benchmark: &str) -> &str {
    if benchmark.is_empty() { "benchmark not known" } else { benchmark }
}
