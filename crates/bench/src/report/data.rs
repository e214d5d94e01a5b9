//! Runs side by side: which models under which conditions, and how each task went.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::settings;
use crate::Error;
use crate::record::{Attempt, DEFAULT_CONDITION, Finished, Header, Named, Verdict};
use crate::run_file::RunRecords;

/// A run and where it lies.
#[derive(Clone, Debug)]
pub struct RunSource {
    /// The run file.
    pub file: PathBuf,
    /// What it holds.
    pub run: RunRecords,
}

/// What is known of a model beside its runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Facts {
    /// What people call it.
    pub title: String,
    /// Of which models it is one; empty = not known.
    pub family: String,
    /// In thousands of millions; `None` = not known.
    pub parameters: Option<f64>,
    /// A published score in general knowledge, per cent.
    pub score: Option<f64>,
    /// Of which benchmark.
    pub benchmark: String,
    /// Under which name the study knows it; empty = it does not.
    pub study: String,
}

/// What the published study found.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Where it was published.
    pub source: String,
    /// How many tasks.
    pub tasks: u32,
    /// Tasks solved, by model.
    pub solved: BTreeMap<String, u32>,
    /// Per cent solved, by category.
    pub categories: BTreeMap<String, f64>,
    /// Percentage points that later attempts add, by category.
    pub gain: BTreeMap<String, f64>,
    /// Per cent of the solved tasks that the first attempt solved.
    pub first: f64,
}

impl Study {
    /// The numbers that ship.
    ///
    /// # Errors
    /// Their file is wrong; the tests exclude that.
    pub fn published() -> Result<Self, Error> {
        serde_saphyr::from_str(include_str!("study.yaml"))
            .map_err(|error| Error::Yaml(format!("study.yaml: {error}")))
    }
}

/// A task of a run that came to its end.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Index of the model.
    pub model: usize,
    /// Index of the condition.
    pub condition: usize,
    /// Index of its run.
    pub source: usize,
    /// From 1.
    pub trial: u32,
    /// How it ended.
    pub end: &'a Finished,
    /// Where its attempts begin in the run, and how many there are.
    pub attempts: &'a [&'a Attempt],
}

impl Case<'_> {
    /// Whether it was solved.
    pub fn solved(&self) -> bool {
        self.end.verdict == Verdict::Solved
    }

    /// Whether it says something about the agent: not where the environment failed.
    pub fn counts(&self) -> bool {
        self.end.verdict != Verdict::Error
    }

    /// Whether one of the first `n` attempts solved it.
    pub fn solved_within(&self, n: u32) -> bool {
        self.solved() && self.end.attempts <= n
    }
}

/// All runs of a report, taken apart.
#[derive(Debug)]
pub struct Data<'a> {
    /// The runs.
    pub sources: &'a [RunSource],
    /// The models, with what is known of them.
    pub models: Vec<(Named, Facts)>,
    /// The conditions, in the order in which they come.
    pub conditions: Vec<String>,
    /// The model of each run.
    pub run_models: Vec<usize>,
    /// The condition of each run.
    pub run_conditions: Vec<usize>,
    /// All cases.
    pub cases: Vec<Case<'a>>,
}

/// The attempts of a run, by task.
pub type ByTask<'a> = Vec<BTreeMap<&'a str, Vec<&'a Attempt>>>;

/// The attempts of the runs, by task.
pub fn by_task(sources: &[RunSource]) -> ByTask<'_> {
    sources
        .iter()
        .map(|source| {
            let mut tasks: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
            for attempt in &source.run.attempts {
                tasks.entry(attempt.task.as_str()).or_default().push(attempt);
            }
            tasks
        })
        .collect()
}

impl<'a> Data<'a> {
    /// Takes the runs apart.
    /// `facts` tells what is known of a model.
    ///
    /// # Errors
    /// Runs of different suites: their scores don't compare.
    pub fn new(
        sources: &'a [RunSource],
        by_task: &'a ByTask<'a>,
        facts: impl Fn(&Named) -> Facts,
    ) -> Result<Self, Error> {
        let mut data = Data {
            sources,
            models: Vec::new(),
            conditions: Vec::new(),
            run_models: Vec::new(),
            run_conditions: Vec::new(),
            cases: Vec::new(),
        };
        let mut taken = BTreeSet::new();
        let mut rules: BTreeMap<(usize, usize), &Header> = BTreeMap::new();
        let names = settings::condition_names(sources);
        for (index, (source, called)) in sources.iter().zip(names).enumerate() {
            let header = &source.run.header;
            let first = &sources[0].run.header.suite;
            if header.suite.hash != first.hash {
                return Err(Error::OtherSuite {
                    first: sources[0].file.clone(),
                    second: source.file.clone(),
                });
            }
            let model = data.models.iter().position(|(known, _)| *known == header.model);
            let model = model.unwrap_or_else(|| {
                let mut facts = facts(&header.model);
                // Of what nobody else knows, its file tells.
                if let Some(about) = header.about.as_ref().filter(|_| facts.title.is_empty()) {
                    facts.family.clone_from(&about.architecture);
                    facts.parameters = Some(about.parameters);
                }
                data.models.push((header.model.clone(), facts));
                data.models.len() - 1
            });
            // Whether the name means other runs already: with these tasks, or with other rules.
            let other = |condition: usize| {
                let again =
                    |end: &Finished| taken.contains(&(model, condition, header.trial, end.task.as_str()));
                source.run.finished.iter().any(again)
                    || rules.get(&(model, condition)).is_some_and(|known| !settings::are_alike(known, header))
            };
            let stem = source.file.file_stem().unwrap_or_default().to_string_lossy();
            let longer = match called.as_str() {
                DEFAULT_CONDITION => stem.into_owned(),
                name => format!("{name} {stem}"),
            };
            let mut name = called;
            let mut number = 1;
            while data.conditions.iter().position(|known| *known == name).is_some_and(other) {
                name = if number == 1 { longer.clone() } else { format!("{longer} {number}") };
                number += 1;
            }
            let condition = position(&mut data.conditions, &name);
            rules.entry((model, condition)).or_insert(header);
            data.run_models.push(model);
            data.run_conditions.push(condition);
            for end in &source.run.finished {
                if !taken.insert((model, condition, header.trial, end.task.as_str())) {
                    continue;
                }
                let attempts = by_task[index].get(end.task.as_str()).map_or(&[][..], Vec::as_slice);
                let trial = header.trial;
                data.cases.push(Case { model, condition, source: index, trial, end, attempts });
            }
        }
        Ok(data)
    }

    /// The header of the first run of a model under a condition.
    pub fn header(&self, condition: usize, model: usize) -> Option<&'a Header> {
        let mut runs = self.sources.iter().zip(&self.run_conditions);
        let is = |(source, at): &(&RunSource, &usize)| {
            **at == condition && source.run.header.model == self.models[model].0
        };
        runs.find(is).map(|(source, _)| &source.run.header)
    }

    /// What tables call a model: its short name, or more of it where two have the same.
    pub fn label(&self, model: usize) -> String {
        label(&self.models, model)
    }
}

/// What a model is called among all of them: by its title or its short name.
/// Where two models have the same, it is the whole name, else with the beginning of the hash.
pub fn label(models: &[(Named, Facts)], model: usize) -> String {
    let short = |(named, facts): &(Named, Facts)| match facts.title.as_str() {
        "" => short_name(&named.name).to_owned(),
        title => title.to_owned(),
    };
    let (named, name) = (&models[model].0, short(&models[model]));
    let others = || models.iter().enumerate().filter(move |(at, _)| *at != model).map(|(_, other)| other);
    if others().all(|other| short(other) != name) {
        return name;
    }
    match (others().any(|(other, _)| other.name == named.name), named.hash.get(..8)) {
        (true, Some(hash)) => format!("{name} {hash}"),
        _ => named.name.clone(),
    }
}

/// The name of a model without what all or most have in common: the folder and the ending of a
/// file, the address of an endpoint.
fn short_name(name: &str) -> &str {
    if let Some((_, model)) = name.rsplit_once('#').filter(|(_, model)| !model.is_empty()) {
        return model;
    }
    let file = name.rsplit(['/', '\\']).next().filter(|file| !file.is_empty()).unwrap_or(name);
    file.strip_suffix(".gguf").filter(|stem| !stem.is_empty()).unwrap_or(file)
}

fn position(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}
