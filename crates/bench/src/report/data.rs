//! Runs side by side: which models under which conditions, and how each task went.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
            run_conditions: Vec::new(),
            cases: Vec::new(),
        };
        let mut taken = BTreeSet::new();
        let mut rules = BTreeMap::new();
        for (index, source) in sources.iter().enumerate() {
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
            // The same tasks a second time, or under other rules: runs that nobody told apart by a
            // name.
            let other = |condition: usize| {
                let again =
                    |end: &Finished| taken.contains(&(model, condition, header.trial, end.task.as_str()));
                source.run.finished.iter().any(again)
                    || rules.get(&(model, condition)).is_some_and(|known| *known != configuration(header))
            };
            let stem = source.file.file_stem().unwrap_or_default().to_string_lossy();
            let longer = match header.condition.as_str() {
                DEFAULT_CONDITION => stem.into_owned(),
                name => format!("{name} {stem}"),
            };
            let mut name = header.condition.clone();
            let mut number = 1;
            while data.conditions.iter().position(|known| *known == name).is_some_and(other) {
                name = if number == 1 { longer.clone() } else { format!("{longer} {number}") };
                number += 1;
            }
            let condition = position(&mut data.conditions, &name);
            rules.entry((model, condition)).or_insert_with(|| configuration(header));
            data.run_conditions.push(condition);
            for end in &source.run.finished {
                if !taken.insert((model, condition, header.trial, end.task.as_str())) {
                    continue;
                }
                let attempts = by_task[index].get(end.task.as_str()).map_or(&[][..], Vec::as_slice);
                let trial = header.trial;
                data.cases.push(Case { model, condition, trial, end, attempts });
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

    /// What tables call a model: its name, with the beginning of its hash where two have the same.
    pub fn label(&self, model: usize) -> String {
        let (named, facts) = &self.models[model];
        let name = if facts.title.is_empty() { &named.name } else { &facts.title };
        let same = |(other, other_facts): &&(Named, Facts)| {
            let other = if other_facts.title.is_empty() { &other.name } else { &other_facts.title };
            other == name
        };
        match self.models.iter().filter(same).count() {
            1 => name.clone(),
            _ => format!("{name} {}", named.hash.get(..8).unwrap_or("?")),
        }
    }
}

/// The rules of a run: runs of one condition have the same.
/// On how many threads it ran is its machine's affair.
fn configuration(header: &Header) -> serde_json::Value {
    let mut engine = header.engine.clone();
    engine.as_object_mut().map(|engine| engine.remove("threads"));
    serde_json::json!({
        "policy": header.policy,
        "temperature": header.sampling.temperature,
        "retry_temperature": header.retry_temperature,
        "thinking": header.thinking,
        "calls": header.calls,
        "timeout": header.timeout,
        "team": header.team,
        "npc": header.npc,
        "gate": header.gate,
        "retrieval": header.retrieval,
        "engine": engine,
    })
}

fn position(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}
