//! The sections of a report: each poses a question, answered by tables and a figure.

use std::collections::{BTreeMap, BTreeSet};

use super::data::{Case, Data, Study};
use super::group::{Group, calls};
use super::math::{mean, pearson};
use super::{
    Axis, Bar, Cell, Figure, Point, Section, Selection, Series, Table, ab, correlations, dialogues,
    is_script, refusals,
};

/// Returns all sections that apply to these runs.
pub fn all(data: &Data, study: &Study, published: &dialogues::Published) -> Vec<Section> {
    let subjects = Subjects::of(data);
    let mut sections = vec![
        scores(data, &subjects, study),
        sizes(data, &subjects, study),
        categories(data, &subjects, study),
        difficulties(data, &subjects),
        attempts(data, &subjects, study),
        tools(data, &subjects),
        correlations::section(data, &subjects),
        speed(data, &subjects),
    ];
    // Of gold solutions and junk alone, there is nothing to say by size.
    sections.retain(|section| section.id != "size" || !section.tables.is_empty());
    sections.extend(refusals::section(data, &subjects));
    sections.extend(trials(data, &subjects));
    sections.extend(dialogues::section(data, &subjects, published));
    sections.extend(ab::section(data));
    sections.push(runs(data));
    sections
}

/// The rows of most tables: models, under each of their conditions.
pub struct Subjects(Vec<(usize, usize)>);

impl Subjects {
    fn of(data: &Data) -> Self {
        let all: BTreeSet<_> = data.cases.iter().map(|case| (case.model, case.condition)).collect();
        Subjects(all.into_iter().collect())
    }

    /// Returns the name and the cases of each row.
    pub fn groups<'a>(&'a self, data: &'a Data<'a>) -> impl Iterator<Item = (String, usize, Group<'a>)> + 'a {
        self.0.iter().map(|&(model, condition)| {
            let behind = Selection { model: Some(model), condition: Some(condition), ..Selection::default() };
            (self.name(data, model, condition), model, Group::of(data, behind))
        })
    }

    fn name(&self, data: &Data, model: usize, condition: usize) -> String {
        let label = data.label(model);
        match self.0.iter().filter(|(other, _)| *other == model).count() {
            1 => label,
            _ => format!("{label}, {}", data.conditions[condition]),
        }
    }
}

/// Returns the study's result for a model, in per cent.
fn published(data: &Data, study: &Study, model: usize) -> Option<f64> {
    let solved = study.solved.get(&data.models[model].1.study)?;
    Some(f64::from(*solved) * 100.0 / f64::from(study.tasks))
}

fn scores(data: &Data, subjects: &Subjects, study: &Study) -> Section {
    let columns = [
        "model",
        "family",
        "size, 10⁹",
        "cases",
        "solved",
        "errors",
        "score, %",
        "95 % interval",
        "first attempt, %",
        "published, %",
    ];
    let mut table = Table::new("", &columns);
    let mut bars = Vec::new();
    let mut groups: Vec<_> = subjects.groups(data).collect();
    groups.sort_by(|a, b| b.2.score().unwrap_or(-1.0).total_cmp(&a.2.score().unwrap_or(-1.0)));
    for (name, model, group) in groups {
        let (facts, all) = (&data.models[model].1, group.behind.clone());
        let interval = group.interval().map(|(low, high)| (low * 100.0, high * 100.0));
        let range = interval.map_or_else(|| "–".to_owned(), |(low, high)| format!("{low:.1} – {high:.1}"));
        let with = |verdict| group.select(|behind| behind.verdict = Some(verdict));
        let published = published(data, study, model);
        let first = group.select(|behind| behind.within = Some(1));
        table.rows.push(vec![
            Cell::text(&name),
            Cell::text(&facts.family),
            Cell::number(facts.parameters, if facts.parameters < Some(0.1) { 3 } else { 1 }),
            Cell::number(Some(group.count() as f64), 0).from(all.clone()),
            Cell::number(Some(group.solved() as f64), 0).from(with("solved")),
            Cell::number(Some(group.errors() as f64), 0).from(with("error")),
            Cell::percent(group.score()).from(all.clone()),
            Cell { text: range, value: None, behind: Some(all.clone()) },
            Cell::percent(group.within(1)).from(first),
            Cell::number(published, 1),
        ]);
        if let Some(score) = group.score() {
            bars.push(Bar { name, value: score * 100.0, interval, published, behind: all });
        }
    }
    let both = |model: usize| {
        let group = Group::of(data, Selection { model: Some(model), ..Selection::default() });
        published(data, study, model).zip(group.score())
    };
    let compared: Vec<(f64, f64)> = (0..data.models.len()).filter_map(both).collect();
    let agreement = match pearson(&compared) {
        Some(r) => format!(" Over {} models, ours and theirs correlate with r = {r:.2}.", compared.len()),
        None => String::new(),
    };
    Section {
        id: "score",
        title: "Score by model",
        text: format!(
            "The share of cases (a task in a trial) that ended solved, after all attempts. Cases that ended with an error of the \
             environment count neither for nor against. The interval is Wilson's over the tasks; trials of one task count as one. \
             Published numbers are those of another suite, harness and machine ({}).{agreement}",
            study.source
        ),
        figure: Some(Figure::Bars { axis: "score, %".into(), bars }),
        tables: vec![table],
    }
}

fn sizes(data: &Data, subjects: &Subjects, study: &Study) -> Section {
    let mut table = Table::new("", &["family", "models", "cases", "score, %", "published, %"]);
    // Gold solutions and junk have no mean.
    let models = data.models.iter().filter(|(model, _)| !is_script(model));
    let families: BTreeSet<&str> = models.map(|(_, facts)| facts.family.as_str()).collect();
    let mut series = Vec::new();
    for family in families {
        let models: Vec<usize> =
            (0..data.models.len()).filter(|&at| data.models[at].1.family == family).collect();
        let behind = Selection { family: Some(family.to_owned()), ..Selection::default() };
        let group = Group::of(data, behind.clone());
        let theirs = mean(models.iter().filter_map(|&model| published(data, study, model)));
        let name = if family.is_empty() { "not known" } else { family };
        table.rows.push(vec![
            Cell::text(name),
            Cell::number(Some(models.len() as f64), 0).from(behind.clone()),
            Cell::number(Some(group.count() as f64), 0).from(behind.clone()),
            Cell::percent(group.score()).from(behind),
            Cell::number(theirs, 1),
        ]);
        let sized = |published: bool| {
            let mut points: Vec<Point> = subjects
                .groups(data)
                .filter(|(_, model, _)| models.contains(model))
                .filter_map(|(name, model, group)| {
                    let x = data.models[model].1.parameters?;
                    let (y, behind) = match published {
                        false => (group.score()? * 100.0, Some(group.behind.clone())),
                        true => (self::published(data, study, model)?, None),
                    };
                    Some(Point { x, y, name, behind })
                })
                .collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            Series { name: name.to_owned(), published, points }
        };
        series.extend([sized(false), sized(true)].into_iter().filter(|one| !one.points.is_empty()));
    }
    let bounds = [
        (0.0, 2.0, "under 2"),
        (2.0, 6.0, "2 to 6"),
        (6.0, 16.0, "6 to 16"),
        (16.0, f64::MAX, "16 and more"),
    ];
    let mut by_size = Table::new(
        "By size, in thousands of millions of parameters",
        &["size", "models", "score, %", "published, %"],
    );
    for (low, high, name) in bounds {
        let is =
            |model: &usize| data.models[*model].1.parameters.is_some_and(|size| (low..high).contains(&size));
        let models: Vec<usize> = (0..data.models.len()).filter(is).collect();
        if models.is_empty() {
            continue;
        }
        let of = |model: &usize| {
            Group::of(data, Selection { model: Some(*model), ..Selection::default() }).score()
        };
        by_size.rows.push(vec![
            Cell::text(name),
            Cell::number(Some(models.len() as f64), 0),
            Cell::percent(mean(models.iter().filter_map(of))),
            Cell::number(mean(models.iter().filter_map(|&model| published(data, study, model))), 1),
        ]);
    }
    let figure = (!series.is_empty()).then(|| Figure::Points {
        x: Axis { name: "parameters, 10⁹".into(), logarithmic: true, percent: false },
        y: Axis { name: "score, %".into(), logarithmic: false, percent: true },
        joined: true,
        series,
    });
    let tables = [table, by_size].into_iter().filter(|table| !table.rows.is_empty()).collect();
    Section {
        id: "size",
        title: "Score by family and size",
        text: "Means over models; family and size are the catalog's, else those of the model's file.".into(),
        figure,
        tables,
    }
}

/// Returns the names given by `of`, each once, in alphabetical order.
pub fn names<'a>(data: &'a Data, of: impl Fn(&'a Case<'a>) -> String) -> Vec<String> {
    let names: BTreeSet<String> = data.cases.iter().map(of).collect();
    names.into_iter().collect()
}

fn categories(data: &Data, subjects: &Subjects, study: &Study) -> Section {
    let columns = [
        "category",
        "cases",
        "solved",
        "score, %",
        "95 % interval",
        "published, %",
        "first attempt, %",
        "gain by retry, pp",
        "published gain, pp",
    ];
    let mut table = Table::new("All models", &columns);
    let mut bars = Vec::new();
    let categories = names(data, |case| case.end.category.clone());
    for name in &categories {
        let behind = Selection { category: Some(name.clone()), ..Selection::default() };
        let group = Group::of(data, behind.clone());
        let (score, first) = (group.score(), group.within(1));
        let interval = group.interval().map(|(low, high)| (low * 100.0, high * 100.0));
        let range = interval.map_or_else(|| "–".to_owned(), |(low, high)| format!("{low:.1} – {high:.1}"));
        let published = study.categories.get(name).copied();
        table.rows.push(vec![
            Cell::text(name),
            Cell::number(Some(group.count() as f64), 0).from(behind.clone()),
            Cell::number(Some(group.solved() as f64), 0).from(group.select(|b| b.verdict = Some("solved"))),
            Cell::percent(score).from(behind.clone()),
            Cell { text: range, value: None, behind: Some(behind.clone()) },
            Cell::number(published, 1),
            Cell::percent(first).from(group.select(|b| b.within = Some(1))),
            Cell::number(group.gain(), 1).from(behind.clone()),
            Cell::number(study.gain.get(name).copied(), 1),
        ]);
        if let Some(score) = score {
            bars.push(Bar { name: name.clone(), value: score * 100.0, interval, published, behind });
        }
    }
    let mut tables = vec![table];
    if subjects.0.len() > 1 {
        tables.push(heat(data, subjects, "Score, %, by model and category", &categories, |behind, name| {
            behind.category = Some(name.to_owned());
        }));
    }
    Section {
        id: "category",
        title: "Score and gain by category",
        text: "The gain by retry is what attempts after the first add, in percentage points of all cases: where it is small, a further \
               attempt is better spent on a clean start. Cases of all models and conditions; in the interval, all cases of one task \
               count as one, since what is hard for one model is often hard for the next."
            .into(),
        figure: Some(Figure::Bars { axis: "score, %".into(), bars }),
        tables,
    }
}

/// Returns a table of scores: one row per subject, one column per name.
fn heat(
    data: &Data,
    subjects: &Subjects,
    caption: &str,
    names: &[String],
    narrow: impl Fn(&mut Selection, &str),
) -> Table {
    let columns: Vec<&str> = ["model"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table = Table { heat: true, ..Table::new(caption, &columns) };
    for (name, _, group) in subjects.groups(data) {
        let mut row = vec![Cell::text(name)];
        row.extend(names.iter().map(|name| {
            let part = Group::of(data, group.select(|behind| narrow(behind, name)));
            let score = part.score().map(|score| score * 100.0);
            Cell::number(score, 0).from(part.behind)
        }));
        table.rows.push(row);
    }
    table
}

fn difficulties(data: &Data, subjects: &Subjects) -> Section {
    let present = names(data, |case| case.end.difficulty.to_string());
    let order = ["easy", "medium", "hard"];
    let names: Vec<String> =
        order.into_iter().map(str::to_owned).filter(|name| present.contains(name)).collect();
    let table = heat(data, subjects, "Score, %", &names, |behind, name| {
        behind.difficulty = Some(name.to_owned());
    });
    Section { id: "difficulty", title: "Score by difficulty", tables: vec![table], ..Section::default() }
}

fn attempts(data: &Data, subjects: &Subjects, study: &Study) -> Section {
    // More columns would be unreadable.
    let most = data.sources.iter().map(|source| source.run.header.policy.most().get()).max();
    let most = most.unwrap_or(1).min(20);
    let numbers: Vec<String> = (1..=most).map(|n| format!("within {n}")).collect();
    let columns: Vec<&str> = ["model"]
        .into_iter()
        .chain(numbers.iter().map(String::as_str))
        .chain(["gain, pp", "first among solved, %", "published first, %"])
        .collect();
    let mut table = Table::new("Score, %, when only so many attempts count", &columns);
    let mut series = Vec::new();
    let all = ("all".to_owned(), usize::MAX, Group::of(data, Selection::default()));
    for (name, model, group) in subjects.groups(data).chain([all]) {
        let within = |n: u32| group.within(n).map(|share| share * 100.0);
        let select = |n: u32| group.select(|behind| behind.within = Some(n));
        let mut row = vec![Cell::text(&name)];
        row.extend((1..=most).map(|n| Cell::number(within(n), 1).from(select(n))));
        let solved: Vec<f64> = group
            .counted()
            .filter(|case| case.solved())
            .map(|case| f64::from(u8::from(case.end.attempts == 1)))
            .collect();
        row.extend([
            Cell::number(group.gain(), 1).from(group.behind.clone()),
            Cell::percent(mean(solved)).from(group.select(|behind| behind.verdict = Some("solved"))),
            Cell::number((model == usize::MAX).then_some(study.first), 0),
        ]);
        table.rows.push(row);
        let points = (1..=most).filter_map(|n| {
            Some(Point { x: f64::from(n), y: within(n)?, name: name.clone(), behind: Some(select(n)) })
        });
        let points = points.collect();
        if model != usize::MAX {
            series.push(Series { name, published: false, points });
        }
    }
    let figure = (most > 1).then(|| Figure::Points {
        x: Axis { name: "attempts".into(), ..Axis::default() },
        y: Axis { name: "score, %".into(), logarithmic: false, percent: true },
        joined: true,
        series,
    });
    Section {
        id: "attempt",
        title: "Score by attempt",
        text: "How much further attempts bring: the gain is the score after all attempts less that within the first, whatever rule a \
               category has. The published share of first attempts is the study's, over all its models."
            .into(),
        figure,
        tables: vec![table],
    }
}

fn tools(data: &Data, subjects: &Subjects) -> Section {
    let columns = [
        "model",
        "calls, solved",
        "calls, failed",
        "seconds, solved",
        "seconds, failed",
        "tokens out, solved",
        "tokens out, failed",
        "attempts, solved",
        "attempts, failed",
    ];
    let mut table = Table::new("Means a case", &columns);
    for (name, _, group) in subjects.groups(data) {
        let mut row = vec![Cell::text(name)];
        type Of = fn(&Case) -> f64;
        let out: Of = |case| case.attempts.iter().map(|attempt| attempt.cost.tokens_out as f64).sum();
        let of: [(Of, usize); 4] =
            [(calls, 1), (|case| case.end.seconds, 1), (out, 0), (|case| f64::from(case.end.attempts), 2)];
        for (value, digits) in of {
            for (solved, verdict) in [(true, "solved"), (false, "failed")] {
                let values = group.counted().filter(|case| case.solved() == solved).map(value);
                let select = group.select(|behind| behind.verdict = Some(verdict));
                row.push(Cell::number(mean(values), digits).from(select));
            }
        }
        table.rows.push(row);
    }
    Section {
        id: "tools",
        title: "Tool calls in success and failure",
        text: "What a case took, all its attempts together.".into(),
        figure: None,
        tables: vec![table],
    }
}

fn speed(data: &Data, subjects: &Subjects) -> Section {
    let columns = [
        "model",
        "tokens/s",
        "first token, s",
        "prefix hit, %",
        "tokens in",
        "cached",
        "tokens out",
        "seconds a case",
    ];
    let mut table = Table::new("", &columns);
    for (name, _, group) in subjects.groups(data) {
        let (cost, all) = (group.cost(), group.behind.clone());
        let ttft = mean(group.cases.iter().flat_map(|case| case.attempts).filter_map(|attempt| attempt.ttft));
        let measured = |value: f64| (value > 0.0).then_some(value);
        let row = [
            Cell::number(measured(cost.tokens_per_second()), 1),
            Cell::number(ttft, 2),
            Cell::percent(measured(cost.tokens_in as f64).map(|_| cost.prefix_hit())),
            Cell::number(Some(cost.tokens_in as f64), 0),
            Cell::number(Some(cost.tokens_cached as f64), 0),
            Cell::number(Some(cost.tokens_out as f64), 0),
            Cell::number(group.mean(|case| case.end.seconds), 1),
        ];
        table
            .rows
            .push([Cell::text(name)].into_iter().chain(row.map(|cell| cell.from(all.clone()))).collect());
    }
    Section {
        id: "speed",
        title: "Speed and prefix hits",
        text: "Tokens/s is decoding alone; the first token is the first of each attempt; a prefix hit is a token of a prompt that was \
               not computed again."
            .into(),
        figure: None,
        tables: vec![table],
    }
}

/// Reports how consistent the agents are; nothing for a single trial.
fn trials(data: &Data, subjects: &Subjects) -> Option<Section> {
    let mut counts: BTreeMap<_, u32> = BTreeMap::new();
    for case in data.cases.iter().filter(|case| case.counts()) {
        *counts.entry((case.model, case.condition, &case.end.task)).or_default() += 1;
    }
    let most = counts.into_values().max().filter(|most| *most > 1)?;
    let names: Vec<String> = (1..=most).map(|k| format!("pass^{k}, %")).collect();
    let columns = |first: &[&'static str]| -> Vec<&str> {
        first.iter().copied().chain(names.iter().map(String::as_str)).collect()
    };
    let mut table = Table::new("", &columns(&["model", "pass@1, %"]));
    let mut intervals = Table::new("95 % intervals", &columns(&["model"]));
    let mut series = Vec::new();
    for (name, _, group) in subjects.groups(data) {
        let all = group.behind.clone();
        let pass: Vec<_> = (1..=u64::from(most)).map(|k| group.pass(k)).collect();
        let mut row = vec![Cell::text(&name), Cell::percent(group.score()).from(all.clone())];
        row.extend(pass.iter().map(|pass| Cell::percent(pass.map(|(pass, _)| pass)).from(all.clone())));
        table.rows.push(row);
        let ranges = pass.iter().map(|pass| Cell::range(pass.map(|(_, interval)| interval), all.clone()));
        intervals.rows.push([Cell::text(&name)].into_iter().chain(ranges).collect());
        let points = (1u32..).zip(&pass).filter_map(|(k, pass)| {
            let y = pass.map(|(pass, _)| pass * 100.0)?;
            Some(Point { x: f64::from(k), y, name: name.clone(), behind: Some(all.clone()) })
        });
        let points = points.collect();
        series.push(Series { name, published: false, points });
    }
    Some(Section {
        id: "trials",
        title: "Steadiness over trials",
        text: "pass@1: the share of cases that were solved. pass^k: the chance that k trials of a task are all solved, C(s,k)/C(n,k), \
               the mean over tasks; only as far as every task has k trials. Intervals are Wilson's over tasks."
            .into(),
        figure: Some(Figure::Points {
            x: Axis { name: "k".into(), ..Axis::default() },
            y: Axis { name: "pass^k, %".into(), logarithmic: false, percent: true },
            joined: true,
            series,
        }),
        tables: vec![table, intervals],
    })
}

/// Lists the runs and their machines.
fn runs(data: &Data) -> Section {
    let columns = [
        "file",
        "model",
        "model hash",
        "condition",
        "retry",
        "trial",
        "seed",
        "tasks",
        "parallel",
        "started",
        "version",
        "machine",
    ];
    let mut table = Table::new("", &columns);
    for (at, source) in data.sources.iter().enumerate() {
        let header = &source.run.header;
        let machine = &header.machine;
        let processor = if machine.cpu.is_empty() { &machine.arch } else { &machine.cpu };
        let tasks = format!("{}/{}", source.run.finished.len(), header.tasks.len());
        let text = [
            source.file.display().to_string(),
            data.label(data.run_models[at]),
            header.model.hash.get(..12).unwrap_or("–").to_owned(),
            data.conditions[data.run_conditions[at]].clone(),
            header.policy.to_string(),
            header.trial.to_string(),
            header.sampling.seed.to_string(),
            tasks,
            header.parallel.to_string(),
            header.started.clone(),
            header.version.clone(),
            format!("{}, {} of {processor}", machine.os, machine.cpus),
        ];
        table.rows.push(text.map(Cell::text).into());
    }
    Section {
        id: "runs",
        title: "Runs",
        text: "What was run, as the headers of the run files have it.".into(),
        figure: None,
        tables: vec![table],
    }
}
