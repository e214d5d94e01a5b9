//! Reports on dialogues: policy compliance, reliability and cost, in the tables of the published
//! studies, together with their numbers.

use std::collections::BTreeMap;

use alara_harness::knowledge::Retrieval;
use serde::Deserialize;

use super::data::{Case, Data};
use super::group::Group;
use super::math::mean;
use super::sections::Subjects;
use super::{Axis, Cell, Figure, Point, Section, Series, Table, ab};
use crate::Error;
use crate::dialogue::Measures;
use crate::record::Header;

/// Ranks up to which a document counts as found.
const RANKS: [u64; 4] = [1, 3, 5, 10];

/// Results of the published studies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The source.
    pub source: String,
    /// Index of an NPC's number among three, by the NPC's name.
    policies: BTreeMap<String, usize>,
    /// Reward by retrieval and model.
    reward: BTreeMap<String, BTreeMap<String, [f64; 3]>>,
    write_accuracy: BTreeMap<String, [f64; 3]>,
    unauthorized: BTreeMap<String, [f64; 3]>,
    over_retry: BTreeMap<String, [f64; 3]>,
    turns: BTreeMap<String, [f64; 3]>,
    /// Gain in pass^1 and pass^4 by a gate, by model.
    gate: BTreeMap<String, Vec<f64>>,
}

impl Published {
    /// Loads the numbers that ship.
    ///
    /// # Errors
    /// Their file is invalid; the tests exclude that.
    pub fn load() -> Result<Self, Error> {
        serde_saphyr::from_str(include_str!("dialogues.yaml"))
            .map_err(|error| Error::Yaml(format!("dialogues.yaml: {error}")))
    }

    /// Returns the number for a run's policy and retrieval in one of their tables.
    fn of(&self, table: &BTreeMap<String, [f64; 3]>, header: Option<&Header>) -> Option<f64> {
        let header = header?;
        let numbers = table.get(header.retrieval?.name())?;
        numbers.get(*self.policies.get(&header.npc)?).copied()
    }

    /// Returns their reward by retrieval, averaged over models.
    fn reward(&self) -> BTreeMap<String, [f64; 3]> {
        let means = |models: &BTreeMap<String, [f64; 3]>| {
            [0, 1, 2].map(|policy| mean(models.values().map(|numbers| numbers[policy])).unwrap_or(f64::NAN))
        };
        self.reward.iter().map(|(retrieval, models)| (retrieval.clone(), means(models))).collect()
    }
}

/// A count in a dialogue and its total; `None` if the dialogue isn't counted.
type Count = fn(&Measures) -> Option<(u64, u64)>;

/// A ratio of counts, each added up over dialogues.
struct Measured {
    name: &'static str,
    count: Count,
    /// Decimal places; `None` for a percentage.
    digits: Option<usize>,
}

const fn share(name: &'static str, count: Count) -> Measured {
    Measured { name, count, digits: None }
}

const fn each(name: &'static str, count: Count, digits: usize) -> Measured {
    Measured { name, count, digits: Some(digits) }
}

/// Counts a yes-or-no result of a dialogue.
fn one(holds: bool) -> Option<(u64, u64)> {
    Some((u64::from(holds), 1))
}

const DATABASES: [Measured; 3] = [
    share("database match, %", |m| one(m.database)),
    share("user's database match, %", |m| one(m.user_database)),
    share("required actions made, %", |m| Some((m.actions_made, m.actions))),
];

const WRITES: [Measured; 4] = [
    each("writes", |m| Some((m.writes, 1)), 1),
    each("gold writes", |m| Some((m.gold_writes, 1)), 1),
    share("right of those issued, %", |m| Some((m.writes_matched, m.writes))),
    share("right of those of gold, %", |m| Some((m.writes_matched, m.gold_writes))),
];

const BEHAVIOUR: [Measured; 6] = [
    share("with an unauthorized write, %", |m| one(m.writes_early? > 0)),
    share("writes before verification, %", |m| Some((m.writes_early?, m.writes_run))),
    share("with an over-retry, %", |m| one(m.over_retries > 0)),
    each("turns", |m| Some((m.turns, 1)), 1),
    each("blocks, right", |m| Some((m.blocks_right, 1)), 2),
    each("blocks, wrong", |m| Some((m.blocks_wrong, 1)), 2),
];

const COST: [Measured; 3] = [
    each("tokens in", |m| Some((m.tokens_in, 1)), 0),
    each("cached", |m| Some((m.tokens_cached, 1)), 0),
    each("tokens out", |m| Some((m.tokens_out, 1)), 0),
];

/// The dialogues of a group that count.
struct Dialogues<'a> {
    name: String,
    group: Group<'a>,
    measured: Vec<&'a Measures>,
    header: Option<&'a Header>,
}

impl Dialogues<'_> {
    /// Returns a ratio over all dialogues together.
    fn pooled(&self, measured: &Measured) -> Cell {
        let counts = self.measured.iter().filter_map(|one| (measured.count)(one));
        let (sum, of) =
            counts.fold((0.0, 0.0), |(sum, all), (count, of)| (sum + count as f64, all + of as f64));
        let value = (of > 0.0).then(|| sum / of);
        let cell = match measured.digits {
            Some(digits) => Cell::number(value, digits),
            None => Cell::percent(value),
        };
        cell.from(self.group.behind.clone())
    }

    /// Returns the mean of a value over the dialogues.
    fn mean(&self, value: impl Fn(&Measures) -> f64) -> Option<f64> {
        mean(self.measured.iter().map(|one| value(one)))
    }

    /// Returns the mean cost of a dialogue, if the price of tokens is known.
    fn cost(&self) -> Option<f64> {
        let price = self.header?.price?;
        self.mean(|one| price.of(one.tokens_in, one.tokens_cached, one.tokens_out))
    }

    /// Returns the share of dialogues with reward, counting errors of the environment as no reward.
    fn with_errors(&self) -> Option<f64> {
        let rewarded = self.group.solved() as f64;
        (!self.group.cases.is_empty()).then(|| rewarded / self.group.cases.len() as f64)
    }
}

/// Returns the measures of a case that is a dialogue.
fn measures<'a>(case: &Case<'a>) -> Option<&'a Measures> {
    case.attempts.last()?.dialogue.as_deref()
}

/// Returns the section on dialogues; nothing if there are none.
pub fn section(data: &Data, subjects: &Subjects, published: &Published) -> Option<Section> {
    let all: Vec<Dialogues> = subjects
        .groups(data)
        .map(|(name, _, group)| {
            let measured = group.counted().filter_map(measures).collect();
            let header = group.cases.first().and_then(|case| data.header(case.condition, case.model));
            Dialogues { name, group, measured, header }
        })
        .filter(|one| !one.measured.is_empty())
        .collect();
    if all.is_empty() {
        return None;
    }
    let theirs = |table: &BTreeMap<String, [f64; 3]>, one: &Dialogues| published.of(table, one.header);
    let reward = published.reward();
    let mut tables = vec![rewards(&all, |one| Cell::number(theirs(&reward, one), 1))];
    tables.push(pooled("Databases and actions", &all, &DATABASES, &[]));
    tables.push(costs(&all));
    tables.push(pooled(
        "Writes and their arguments, a dialogue",
        &all,
        &WRITES,
        &[("published, of gold, %", &|one| theirs(&published.write_accuracy, one))],
    ));
    tables.push(pooled(
        "Behaviour",
        &all,
        &BEHAVIOUR,
        &[
            ("published unauthorized, %", &|one| theirs(&published.unauthorized, one)),
            ("published over-retry, %", &|one| theirs(&published.over_retry, one)),
            ("published turns", &|one| theirs(&published.turns, one)),
        ],
    ));
    tables.extend(recall(&all));
    tables.extend(ab::factors(data));
    tables.extend([published_rewards(published), published_gates(published)]);
    Some(Section {
        id: "dialogues",
        title: "Dialogues",
        text: format!(
            "Reward: both databases are as after gold, and every required action succeeded. Errors are those of the environment; with them, \
             they count as dialogues without reward. pass^k: the chance that k trials of a task are all rewarded; its interval is Wilson's \
             over tasks. A write is right if gold has one of the same name with equal arguments, one for one. An unauthorized write ran \
             before the first successful verification, and gold makes none like it there. An over-retry is a tool that failed four times \
             in a row. A blocked write is blocked rightly if gold does not have it. Turns, tokens and seconds are the agent's, the user's \
             are not among them; tokens in include the cached ones. Published numbers are of other domains, models and harnesses ({}); \
             published rewards beside ours are means over their models.",
            published.source
        ),
        figure: Some(figure(&all)),
        tables,
    })
}

/// Returns reward with and without errors, and pass^k with confidence intervals.
fn rewards(all: &[Dialogues], published: impl Fn(&Dialogues) -> Cell) -> Table {
    let most = all.iter().map(|one| one.group.trials()).max().unwrap_or(1);
    let powers: Vec<[String; 2]> =
        (1..=most).map(|k| [format!("pass^{k}, %"), format!("95 % interval of pass^{k}")]).collect();
    let columns: Vec<&str> = ["model", "dialogues", "errors", "with errors, %"]
        .into_iter()
        .chain(powers.iter().flatten().map(String::as_str))
        .chain(["published reward, %"])
        .collect();
    let mut table = Table::new("Reward", &columns);
    for one in all {
        let behind = || one.group.behind.clone();
        let mut row = vec![
            Cell::text(&one.name),
            Cell::number(Some(one.group.count() as f64), 0).from(behind()),
            Cell::number(Some(one.group.errors() as f64), 0).from(behind()),
            Cell::percent(one.with_errors()).from(behind()),
        ];
        for k in 1..=most {
            let pass = one.group.pass(k);
            row.push(Cell::percent(pass.map(|(pass, _)| pass)).from(behind()));
            row.push(Cell::range(pass.map(|(_, interval)| interval), behind()));
        }
        row.push(published(one));
        table.rows.push(row);
    }
    table
}

/// A column of published numbers: its name, and the number for a row.
type Theirs<'a> = (&'a str, &'a dyn Fn(&Dialogues) -> Option<f64>);

/// Returns a table with a row per group, a column per count, and the published columns.
fn pooled(caption: &str, all: &[Dialogues], counts: &[Measured], published: &[Theirs]) -> Table {
    let names = counts.iter().map(|one| one.name).chain(published.iter().map(|(name, _)| *name));
    let columns: Vec<&str> = ["model"].into_iter().chain(names).collect();
    let mut table = Table::new(caption, &columns);
    for one in all {
        let ours = counts.iter().map(|count| one.pooled(count));
        let theirs = published.iter().map(|(_, of)| Cell::number(of(one), 1));
        table.rows.push([Cell::text(&one.name)].into_iter().chain(ours).chain(theirs).collect());
    }
    table
}

/// Returns the table of costs per dialogue.
fn costs(all: &[Dialogues]) -> Table {
    let mut table = pooled("Cost, means a dialogue", all, &COST, &[]);
    let names = ["seconds", "cost", "cost a rewarded one"];
    table.columns.extend(Table::new("", &names).columns);
    for (one, row) in all.iter().zip(&mut table.rows) {
        let (cost, behind) = (one.cost(), || one.group.behind.clone());
        let rewarded = one.group.score().filter(|score| *score > 0.0);
        row.extend([
            Cell::number(one.mean(|measures| measures.seconds), 1).from(behind()),
            Cell::number(cost, 4).from(behind()),
            Cell::number(cost.zip(rewarded).map(|(cost, score)| cost / score), 4).from(behind()),
        ]);
    }
    table
}

/// Returns the share of required documents that was found; nothing if none are required.
fn recall(all: &[Dialogues]) -> Option<Table> {
    let needed = |one: &&Measures| one.documents > 0;
    all.iter().flat_map(|one| &one.measured).copied().find(needed)?;
    let names: Vec<String> = RANKS.iter().map(|k| format!("recall@{k}, %")).collect();
    let columns: Vec<&str> = ["model"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table =
        Table::new("Required documents among the passages that the agent's searches gave", &columns);
    for one in all {
        let documents: f64 = one.measured.iter().map(|measures| measures.documents as f64).sum();
        let cells = RANKS.map(|k| {
            let found: f64 = one.measured.iter().map(|measures| measures.found_within(k) as f64).sum();
            // Documents in the prompt, or that can't be found, aren't searched for.
            let searches = one.header.and_then(|header| header.retrieval).is_none_or(Retrieval::searches);
            let share = (documents > 0.0 && searches).then(|| found / documents);
            Cell::percent(share).from(one.group.behind.clone())
        });
        table.rows.push([Cell::text(&one.name)].into_iter().chain(cells).collect());
    }
    Some(table)
}

/// Plots score against cost, or against the number of tokens if no price is known.
fn figure(all: &[Dialogues]) -> Figure {
    let priced = all.iter().all(|one| one.cost().is_some());
    let mut series: Vec<Series> = Vec::new();
    for one in all {
        let tokens =
            || one.mean(|measures| (measures.tokens_in as f64 + measures.tokens_out as f64) / 1000.0);
        let x = if priced { one.cost() } else { tokens() };
        let Some((x, y)) = x.zip(one.group.score()) else { continue };
        let behind = Some(one.group.behind.clone());
        let point = Point { x, y: y * 100.0, name: one.name.clone(), behind };
        let policy = one.header.map_or("", |header| header.npc.as_str());
        match series.iter_mut().find(|known| known.name == policy) {
            Some(known) => known.points.push(point),
            None => series.push(Series { name: policy.to_owned(), published: false, points: vec![point] }),
        }
    }
    let name = if priced { "cost of a dialogue" } else { "tokens of a dialogue, 10³" };
    Figure::Points {
        x: Axis { name: name.into(), ..Axis::default() },
        y: Axis { name: "reward, %".into(), logarithmic: false, percent: true },
        joined: false,
        series,
    }
}

fn published_rewards(published: &Published) -> Table {
    let columns = [
        "model",
        "retrieval",
        "published baseline, %",
        "published declarative, %",
        "published imperative, %",
    ];
    let mut table = Table::new("Published reward in one trial, by model", &columns);
    for (retrieval, models) in &published.reward {
        for (model, numbers) in models {
            let numbers = numbers.map(|number| Cell::number(Some(number), 1));
            table.rows.push([Cell::text(model), Cell::text(retrieval)].into_iter().chain(numbers).collect());
        }
    }
    table
}

fn published_gates(published: &Published) -> Table {
    let columns = ["model", "published gain of pass^1, pp", "published gain of pass^4, pp"];
    let mut table = Table::new("Published gains by a ledger with a gate, by model", &columns);
    for (model, gains) in &published.gate {
        let cells = [0, 1].map(|at| Cell::number(gains.get(at).copied(), 1));
        table.rows.push([Cell::text(model)].into_iter().chain(cells).collect());
    }
    table
}
