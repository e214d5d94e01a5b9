//! Combines runs: the models and conditions, and the result of each task.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::settings;
use crate::Error;
use crate::record::{Attempt, DEFAULT_CONDITION, Finished, Header, Named, Verdict};
use crate::run_file::RunRecords;

/// A run and its file.
#[derive(Clone, Debug)]
pub struct RunSource {
    /// The run file.
    pub file: PathBuf,
    /// The records in it.
    pub run: RunRecords,
}

/// Facts about a model from outside its runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Facts {
    /// Display name.
    pub title: String,
    /// Model family; empty if unknown.
    pub family: String,
    /// Number of parameters, in billions; `None` if unknown.
    pub parameters: Option<f64>,
    /// A published score for general knowledge, in per cent.
    pub score: Option<f64>,
    /// The benchmark of that score.
    pub benchmark: String,
    /// The study's name of the model; empty if it isn't in the study.
    pub study: String,
}

/// Results of the published study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// The source.
    pub source: String,
    /// Number of tasks.
    pub tasks: u32,
    /// Tasks solved, by model.
    pub solved: BTreeMap<String, u32>,
    /// Per cent solved, by category.
    pub categories: BTreeMap<String, f64>,
    /// Percentage points that later attempts add, by category.
    pub gain: BTreeMap<String, f64>,
    /// Percentage of the solved tasks that were solved in the first attempt.
    pub first: f64,
}

impl Study {
    /// Returns the numbers that ship.
    ///
    /// # Errors
    /// Their file is invalid; the tests exclude that.
    pub fn published() -> Result<Self, Error> {
        serde_saphyr::from_str(include_str!("study.yaml"))
            .map_err(|error| Error::Yaml(format!("study.yaml: {error}")))
    }
}

/// A finished task of a run.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Index of the model.
    pub model: usize,
    /// Index of the condition.
    pub condition: usize,
    /// Index of its run.
    pub source: usize,
    /// Number of the trial, from 1.
    pub trial: u32,
    /// How it ended.
    pub end: &'a Finished,
    /// Its attempts in the run.
    pub attempts: &'a [&'a Attempt],
}

impl Case<'_> {
    /// Whether it was solved.
    pub fn solved(&self) -> bool {
        self.end.verdict == Verdict::Solved
    }

    /// Whether the case counts: it doesn't if the environment failed.
    pub fn counts(&self) -> bool {
        self.end.verdict != Verdict::Error
    }

    /// Whether one of the first `n` attempts solved it.
    pub fn solved_within(&self, n: u32) -> bool {
        self.solved() && self.end.attempts <= n
    }
}

/// All runs of a report, combined.
#[derive(Debug)]
pub struct Data<'a> {
    /// The runs.
    pub sources: &'a [RunSource],
    /// The models, with known facts about them.
    pub models: Vec<(Named, Facts)>,
    /// The conditions, in order of appearance.
    pub conditions: Vec<String>,
    /// The model of each run.
    pub run_models: Vec<usize>,
    /// The condition of each run.
    pub run_conditions: Vec<usize>,
    /// All cases.
    pub cases: Vec<Case<'a>>,
}

/// The attempts of each run, by task.
pub type ByTask<'a> = Vec<BTreeMap<&'a str, Vec<&'a Attempt>>>;

/// Groups the attempts of each run by task.
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
    /// Combines the runs.
    /// `facts` returns known facts about a model.
    ///
    /// # Errors
    /// The runs are of different suites, whose scores aren't comparable.
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
        // Names of several runs that differ in nothing but their files.
        let mut clashing: BTreeSet<String> = BTreeSet::new();
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
                // For an unknown model, use its file's metadata.
                if let Some(about) = header.about.as_ref().filter(|_| facts.title.is_empty()) {
                    facts.family.clone_from(&about.architecture);
                    facts.parameters = Some(about.parameters);
                }
                data.models.push((header.model.clone(), facts));
                data.models.len() - 1
            });
            // Whether the name already means other runs: with these tasks, or with other rules.
            let other = |condition: usize| {
                let again =
                    |end: &Finished| taken.contains(&(model, condition, header.trial, end.task.as_str()));
                source.run.finished.iter().any(again)
                    || rules.get(&(model, condition)).is_some_and(|known| !settings::are_alike(known, header))
            };
            let longer = name_by_file(&called, source);
            let mut name = called.clone();
            let mut number = 1;
            while data.conditions.iter().position(|known| *known == name).is_some_and(other) {
                name = if number == 1 { longer.clone() } else { format!("{longer} {number}") };
                number += 1;
            }
            if name != called {
                clashing.insert(called);
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
        for called in clashing {
            data.name_by_file(&called);
        }
        Ok(data)
    }

    /// Also names the first of several runs after its file, if it is the only one with this name.
    fn name_by_file(&mut self, called: &str) {
        let Some(at) = self.conditions.iter().position(|name| name == called) else { return };
        let mut runs = self.sources.iter().zip(&self.run_conditions).filter(|(_, of)| **of == at);
        let (Some((source, _)), None) = (runs.next(), runs.next()) else { return };
        let longer = name_by_file(called, source);
        let mut numbered =
            std::iter::once(longer.clone()).chain((2..).map(|number| format!("{longer} {number}")));
        let free = numbered.find(|name| !self.conditions.contains(name));
        self.conditions[at] = free.unwrap_or(longer);
    }

    /// Returns the header of the first run of a model under a condition.
    pub fn header(&self, condition: usize, model: usize) -> Option<&'a Header> {
        let mut runs = self.sources.iter().zip(&self.run_conditions);
        let is = |(source, at): &(&RunSource, &usize)| {
            **at == condition && source.run.header.model == self.models[model].0
        };
        runs.find(is).map(|(source, _)| &source.run.header)
    }

    /// Returns a model's label in tables: its short name, or a longer one if that isn't unique.
    pub fn label(&self, model: usize) -> String {
        label(&self.models, model)
    }
}

/// Returns the name of a condition with that of the run's file, if only this tells it from others.
fn name_by_file(called: &str, source: &RunSource) -> String {
    let stem = source.file.file_stem().unwrap_or_default().to_string_lossy();
    match called {
        DEFAULT_CONDITION => stem.into_owned(),
        name => format!("{name} {stem}"),
    }
}

/// Returns a model's label among all of them: its title or its short name.
/// If that isn't unique, it is the whole name, or else the name with the beginning of the hash.
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

/// Shortens the name of a model by common parts: the folder and extension of a file, the URL of an
/// endpoint.
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
