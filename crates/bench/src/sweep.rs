//! Sweeps: models × conditions × trials over a suite, as defined in a `.bench` file, and their
//! division into shards.
//!
//! Each combination is one run with its own file.
//! An A/B test is a sweep with two conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use alara_engine::Sampling;
use alara_harness::calls::Calls;
use alara_harness::knowledge::{Knowledge, Retrieval};
use alara_harness::source::{self, Source};
use alara_harness::{Team, yaml};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};

use crate::Error;
use crate::policy::{Retry, RetryPolicy, Rule, RuleOverride};
use crate::price::Price;
use crate::record::DEFAULT_CONDITION;

/// A `.bench` file.
/// All keys are optional.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sweep {
    /// The suite, relative to the file; `None` for the one that ships.
    pub suite: Option<PathBuf>,
    /// The models, as for `-m`; if empty, the default model.
    pub models: Vec<String>,
    /// The conditions to compare; the first is the A of an A/B test.
    /// If empty, the command line describes the only condition.
    pub conditions: Vec<Condition>,
    /// Number of repetitions: trial n has the seed `seed` + n - 1.
    pub trials: Option<NonZeroU32>,
    /// Seed from which all sampling seeds are derived.
    pub seed: Option<u64>,
    /// Only tasks of these categories.
    pub categories: Vec<String>,
    /// Only tasks with these ids.
    pub tasks: Vec<String>,
    /// Price of a million tokens of a model, by its name in `models`; `*` applies to all others.
    pub prices: BTreeMap<String, Price>,
}

/// The stock jinx that searches a team's documents.
const KB_SEARCH: &str = "kb_search";
/// The key of [`Sweep::prices`] for all models without their own.
const ANY: &str = "*";

/// A contradiction in a sweep.
pub(crate) struct Wrong {
    /// The affected name in the file.
    pub name: String,
    /// The problem and its remedy.
    pub message: String,
}

/// Returns the names that occur more than once.
fn twice(names: impl Iterator<Item = String>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(name.clone())).collect()
}

/// The rules for the agents' work, in a file or on the command line; a file's missing ones come
/// from the command line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, clap::Args)]
#[group(skip)]
#[serde(default, deny_unknown_fields)]
pub struct Condition {
    /// Name in reports.
    #[arg(skip = DEFAULT_CONDITION)]
    pub name: String,
    /// A team's directory or name [default: the built-in team alara]
    #[arg(short, long)]
    pub team: Option<String>,
    // If the NPCs of a team differ in their instructions, prefer `policy` in a file.
    /// The NPC that works on the tasks [default: the team's forenpc]
    #[arg(short, long)]
    #[serde(alias = "policy")]
    pub npc: Option<String>,
    /// Whether the team's gates apply [default: on]
    #[arg(long, value_name = "on|off", value_parser = on_off)]
    #[serde(deserialize_with = "switch")]
    pub gate: Option<bool>,
    /// How to search the team's documents [default: as set in its files]
    #[arg(long, value_name = "none|golden|bm25|embedding|hybrid")]
    pub retrieval: Option<Retrieval>,
    /// Maximum number of attempts per task [default: 1; 5 for a sweep, as in the published study]
    #[arg(long, value_name = "N", value_parser = positive::<NonZeroU32>)]
    pub attempts: Option<NonZeroU32>,
    /// How another attempt begins: with the check's output in the same conversation, with
    /// everything reset, or as in the published study
    #[arg(long, default_value = "feedback", value_name = "feedback|fresh|paper")]
    pub retry: Option<Retry>,
    /// Rules for single categories.
    #[arg(skip)]
    pub categories: BTreeMap<String, RuleOverride>,
    /// Time limit per task in seconds, for all its attempts together
    #[arg(long, default_value = "360", value_name = "SECONDS", value_parser = positive::<NonZeroU64>)]
    pub timeout: Option<NonZeroU64>,
    /// Sampling temperature; 0 always takes the most likely token
    #[arg(long, default_value = "0", value_parser = Sampling::temperature)]
    pub temperature: Option<f32>,
    /// Minimum temperature of later attempts: the most likely mistake would only be repeated
    #[arg(long, default_value = "1", value_parser = Sampling::temperature)]
    pub retry_temperature: Option<f32>,
    /// Whether reasoning models reason; on the command line an option of the model.
    #[arg(skip)]
    pub thinking: Option<bool>,
    /// Whether each turn is a call, as for `run` [default: the NPC's, else forced where the prompt
    /// describes how to write calls, auto otherwise]
    #[arg(long, value_name = "free|auto|forced|thought")]
    pub calls: Option<Calls>,
}

/// Parses a number that isn't 0.
///
/// # Errors
/// A message for any other text.
pub fn positive<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "a number from 1 up is wanted".to_owned())
}

/// Parses `on` or `off`, which YAML 1.1 turns into booleans.
fn switch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    struct Switch;
    impl Visitor<'_> for Switch {
        type Value = Option<bool>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("`on` or `off`")
        }

        fn visit_bool<E: serde::de::Error>(self, on: bool) -> Result<Option<bool>, E> {
            Ok(Some(on))
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Option<bool>, E> {
            on_off(text).map(Some).map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Switch).map_err(D::Error::custom)
}

/// Parses `on` or `off`.
///
/// # Errors
/// A message for any other text.
pub fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("it is `on` or `off`, not `{text}`")),
    }
}

impl Sweep {
    /// Reads a `.bench` file.
    ///
    /// # Errors
    /// The file can't be read, has unknown keys, names something twice, or has a condition without
    /// a name.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = source::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let source = Source { path: path.to_owned(), text };
        let mut sweep: Sweep = yaml::read(&source).map_err(|wrong| Error::Yaml(wrong.plain()))?;
        if let Some(wrong) = sweep.problems().into_iter().next() {
            return Err(Error::Sweep { path: path.to_owned(), problem: wrong.message });
        }
        sweep.locate(path);
        Ok(sweep)
    }

    /// Makes the suite relative to the current directory instead of the file at `path`.
    pub(crate) fn locate(&mut self, path: &Path) {
        if let (Some(suite), Some(folder)) = (&mut self.suite, path.parent()) {
            *suite = folder.join(&*suite);
        }
    }

    /// Returns problems that the types don't exclude.
    pub(crate) fn problems(&self) -> Vec<Wrong> {
        let mut problems = Vec::new();
        let mut wrong = |name: &str, message: String| problems.push(Wrong { name: name.to_owned(), message });
        for name in twice(self.models.iter().cloned()) {
            let message = format!("the model `{name}` occurs twice: leave one out, --trials repeats runs");
            wrong(&name, message);
        }
        let models: BTreeSet<&String> = self.models.iter().collect();
        for name in twice(models.into_iter().map(|name| file_name(name))) {
            let message = format!("two models would write the same files, {name}.…: run them one by one");
            wrong("models", message);
        }
        for name in twice(self.conditions.iter().map(|condition| condition.name.clone())) {
            wrong(&name, format!("the condition `{name}` occurs twice: give one of them another name"));
        }
        for (name, price) in &self.prices {
            if !price.is_valid() {
                wrong(name, format!("the price of `{name}` has amounts that are no numbers from 0 up"));
            }
            if name != ANY && !self.models.contains(name) {
                let message = format!(
                    "`{name}` has a price and is none of `models`: write it as there, or `*` for all"
                );
                wrong(name, message);
            }
        }
        for condition in &self.conditions {
            let name = &condition.name;
            if name.is_empty() || *name != file_name(name) {
                let message = format!(
                    "`{name}` is no name of a condition: use letters, digits, `_` and `-`, since files are named after it"
                );
                wrong(if name.is_empty() { "conditions" } else { name }, message);
            }
            for temperature in [condition.temperature, condition.retry_temperature].into_iter().flatten() {
                if let Err(message) = Sampling::temperature(&temperature.to_string()) {
                    wrong(name, format!("{name}: {message}, not {temperature}"));
                }
            }
        }
        // Duplicates have been reported already.
        if problems.is_empty() {
            let once = Sweep { trials: None, ..self.clone() }.runs(&Condition::default());
            for name in twice(once.iter().map(|run| run.file(Shard::ALL))) {
                let message = format!(
                    "two runs would write the same file, {name}: name models or conditions otherwise"
                );
                problems.push(Wrong { name: "conditions".to_owned(), message });
            }
        }
        problems
    }

    /// Returns the runs of this sweep, grouped by model, so that each model is loaded once.
    /// `default` comes from the command line.
    pub fn runs(&self, default: &Condition) -> Vec<SweepRun> {
        let models: Vec<Option<&String>> = match self.models.is_empty() {
            true => vec![None],
            false => self.models.iter().map(Some).collect(),
        };
        let conditions: Vec<Condition> = match self.conditions.is_empty() {
            true => vec![default.clone()],
            false => self.conditions.iter().map(|condition| condition.or(default)).collect(),
        };
        let trials = self.trials.map_or(1, NonZeroU32::get);
        let mut runs = Vec::new();
        for model in models {
            let price = model.and_then(|model| self.prices.get(model)).or_else(|| self.prices.get(ANY));
            for condition in &conditions {
                runs.extend((1..=trials).map(|trial| SweepRun {
                    price: price.copied(),
                    model: model.cloned(),
                    condition: condition.clone(),
                    trial,
                    seed: self.seed.unwrap_or(0).wrapping_add(u64::from(trial) - 1),
                }));
            }
        }
        runs
    }
}

impl Condition {
    /// Completes this condition with values from `other`.
    fn or(&self, other: &Condition) -> Condition {
        Condition {
            name: self.name.clone(),
            team: self.team.clone().or_else(|| other.team.clone()),
            npc: self.npc.clone().or_else(|| other.npc.clone()),
            gate: self.gate.or(other.gate),
            retrieval: self.retrieval.or(other.retrieval),
            retry: self.retry.or(other.retry),
            attempts: self.attempts.or(other.attempts),
            categories: other
                .categories
                .iter()
                .chain(&self.categories)
                .map(|(k, v)| (k.clone(), *v))
                .collect(),
            timeout: self.timeout.or(other.timeout),
            temperature: self.temperature.or(other.temperature),
            retry_temperature: self.retry_temperature.or(other.retry_temperature),
            thinking: self.thinking.or(other.thinking),
            calls: self.calls.or(other.calls),
        }
    }

    /// Changes the team according to `gate` and `retrieval`.
    ///
    /// # Errors
    /// The condition sets a retrieval, but the team has no documents.
    pub fn apply(&self, team: &mut Team) -> Result<(), Error> {
        if self.gate == Some(false) {
            ungated(team);
        }
        match self.retrieval {
            Some(retrieval) if !found_by(team, retrieval) => {
                Err(Error::NoKnowledge { team: team.name.clone(), retrieval })
            }
            _ => Ok(()),
        }
    }

    /// Returns the sampling parameters, but for the seed.
    pub fn sampling(&self) -> Sampling {
        let off = Sampling::default();
        Sampling { temperature: self.temperature.unwrap_or(off.temperature), ..off }
    }

    /// Returns how often to try tasks, and how.
    /// The default is five attempts with feedback.
    pub fn policy(&self) -> RetryPolicy {
        const FIVE: NonZeroU32 = NonZeroU32::new(5).unwrap();
        let rule = Rule { retry: self.retry.unwrap_or_default(), attempts: self.attempts.unwrap_or(FIVE) };
        let categories = self.categories.iter().map(|(name, own_rule)| (name.clone(), own_rule.to(rule)));
        RetryPolicy { rule, categories: categories.collect() }
    }
}

/// Removes the gates from a team and its sub-teams.
/// A gate that can't be read still keeps its NPC from working.
fn ungated(team: &mut Team) {
    team.npcs.iter_mut().for_each(|npc| npc.gate.gates.clear());
    team.teams.iter_mut().for_each(ungated);
}

/// Sets the retrieval of a team and its sub-teams; returns whether they have any documents.
fn found_by(team: &mut Team, retrieval: Retrieval) -> bool {
    if !retrieval.searches() {
        // Don't offer a tool that can't be used.
        team.npcs.iter_mut().for_each(|npc| npc.jinxes.retain(|name| name != KB_SEARCH));
    }
    let npcs = team.npcs.iter_mut().map(|npc| &mut npc.knowledge);
    let mut set = |knowledge: &mut Knowledge| knowledge.retrieval = retrieval;
    let all: Vec<&mut Knowledge> = npcs.chain([&mut team.knowledge]).flatten().collect();
    let mut any = !all.is_empty();
    all.into_iter().for_each(&mut set);
    for team in &mut team.teams {
        any |= found_by(team, retrieval);
    }
    any
}

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepRun {
    /// The model, as for `-m`; `None` for the default model.
    pub model: Option<String>,
    /// The rules.
    pub condition: Condition,
    /// Number of the trial, from 1.
    pub trial: u32,
    /// The run's seed.
    pub seed: u64,
    /// Price of the model's tokens; `None` if unknown.
    pub price: Option<Price>,
}

impl SweepRun {
    /// Returns the name of its run file.
    pub fn file(&self, shard: Shard) -> String {
        let model = self.model.as_deref().map_or_else(|| "model".to_owned(), file_name);
        let condition = match self.condition.name.as_str() {
            "" => DEFAULT_CONDITION,
            name => name,
        };
        format!("{model}.{condition}.{}{}.jsonl", self.trial, shard.suffix())
    }
}

/// Converts a name for use in a file name.
fn file_name(name: &str) -> String {
    let name = name.strip_suffix(".gguf").unwrap_or(name);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    // Keep single dots inside, as in `qwen3.5-4b`; not at the start, where they hide files, nor two
    // in a row.
    let text: String = name.chars().map(|c| if c == '.' { c } else { plain(c) }).collect();
    text.trim_start_matches('.').replace("..", "_")
}

/// A part of the work: the `number`th of `of` equal parts, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

impl Shard {
    /// All of the work.
    pub const ALL: Shard = Shard { number: 1, of: 1 };

    /// Returns which of `count` pieces of work, in order, belong to this shard: consecutive ones,
    /// so that few models are loaded.
    pub fn range(self, count: usize) -> Range<usize> {
        let at = |number: usize| (count as u128 * number as u128 / self.of as u128) as usize;
        at(self.number - 1)..at(self.number)
    }

    fn suffix(self) -> String {
        if self == Shard::ALL { String::new() } else { format!(".{}of{}", self.number, self.of) }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers =
            text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Shard { number, of }),
            _ => Err("it is a number and how many there are, as 1/4 to 4/4".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Sweep, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bench");
        std::fs::write(&path, text).unwrap();
        Sweep::load(&path)
    }

    #[test]
    fn runs_are_models_by_conditions_by_trials() {
        let sweep = load(
            "models: [a/b.gguf, qwen3:8b]\nconditions:\n  - {name: one, retry: fresh}\n  - name: two\n    attempts: 2\n    \
             categories: {git: {attempts: 1}}\ntrials: 2\nseed: 7\n",
        );
        let default = Condition { attempts: NonZeroU32::new(3), ..Condition::default() };
        let runs = sweep.unwrap().runs(&default);
        let text: Vec<String> = runs
            .iter()
            .map(|run| {
                let (policy, seed) = (run.condition.policy(), run.seed);
                let (rule, git) = (policy.rule, policy.of("git"));
                let file = run.file("2/3".parse().unwrap());
                format!("{file} {} {} {} {seed}", rule.retry, rule.attempts, git.attempts)
            })
            .collect();
        insta::assert_snapshot!(text.join("\n"), @r"
        a_b.one.1.2of3.jsonl fresh 3 3 7
        a_b.one.2.2of3.jsonl fresh 3 3 8
        a_b.two.1.2of3.jsonl feedback 2 1 7
        a_b.two.2.2of3.jsonl feedback 2 1 8
        qwen3_8b.one.1.2of3.jsonl fresh 3 3 7
        qwen3_8b.one.2.2of3.jsonl fresh 3 3 8
        qwen3_8b.two.1.2of3.jsonl feedback 2 1 7
        qwen3_8b.two.2.2of3.jsonl feedback 2 1 8
        ");
        let alone = Sweep::default().runs(&Condition::default());
        assert_eq!((alone.len(), alone[0].file(Shard::ALL).as_str()), (1, "model.default.1.jsonl"));
    }

    #[test]
    fn conditions_name_policy_gate_and_retrieval() {
        let text = "models: [a, b]\nprices: {a: {in: 1, cached: 0.5, out: 2}, '*': {in: 3, cached: 3, out: 3}}\nconditions:\n\
                    - {name: one, policy: imperative, gate: off, retrieval: none}\n\
                    - {name: two, npc: baseline, gate: on, retrieval: hybrid}\n- {name: three, gate: 'off'}\n- {name: four}\n";
        let default = Condition { npc: Some("clerk".into()), gate: Some(true), ..Condition::default() };
        let runs = load(text).unwrap().runs(&default);
        let told: Vec<String> = runs
            .iter()
            .map(|run| {
                let Condition { npc, gate, retrieval, .. } = &run.condition;
                let retrieval = retrieval.map_or("-", Retrieval::name);
                format!(
                    "{} {} {retrieval} {}",
                    npc.as_deref().unwrap(),
                    gate.unwrap(),
                    run.price.unwrap().input
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "imperative false none 1",
                "baseline true hybrid 1",
                "clerk false - 1",
                "clerk true - 1",
                "imperative false none 3",
                "baseline true hybrid 3",
                "clerk false - 3",
                "clerk true - 3"
            ]
        );
    }

    #[test]
    fn a_condition_changes_its_team() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("team.ctx", "context: x\nforenpc: a\nknowledge: {folder: docs}\ngate: own\n");
        write("docs/a.md", "# A\n");
        write("own.gate", "rules:\n  little:\n    tools: put\n    need: args.n == 1\n    reason: too much\n");
        write("a.npc", "name: a\nprimary_directive: Work.\njinxes: [put, kb_search]\n");
        write("jinxes/put.jinx", "jinx_name: put\ndescription: Puts.\ninputs: [n]\nsteps:\n- return: done\n");
        let team = || Team::load(folder.path()).unwrap();
        let told = |condition: &Condition| {
            let mut team = team();
            condition.apply(&mut team).unwrap();
            (team.npcs[0].gate.gates.len(), team.npcs[0].jinxes.len(), team.knowledge.unwrap().retrieval)
        };
        assert_eq!(told(&Condition::default()), (1, 2, Retrieval::Bm25), "{:?}", team().diagnostics);
        let golden = Some(Retrieval::Golden);
        let changed = Condition { gate: Some(false), retrieval: golden, ..Condition::default() };
        assert_eq!(told(&changed), (0, 1, Retrieval::Golden));
        assert_eq!(told(&Condition { gate: Some(true), ..Condition::default() }).0, 1);
        let mut bare = Team { knowledge: None, ..team() };
        bare.npcs.iter_mut().for_each(|npc| npc.knowledge = None);
        let error = changed.apply(&mut bare).unwrap_err().to_string();
        assert!(error.contains("retrieval `golden`") && error.contains("knowledge"), "{error}");
    }

    #[test]
    fn wrong_files_are_refused() {
        let check = |text: &str, words: &str| {
            let error = load(text).unwrap_err().to_string();
            assert!(error.contains("a.bench") && error.contains(words), "{error}");
        };
        check("model: [a]\n", "model");
        check("models: [a, b, a]\n", "the model `a` occurs twice");
        check("models: [a/b, 'a:b']\n", "two models would write the same files, a_b");
        check("conditions: [{name: x}, {name: x}]\n", "the condition `x` occurs twice");
        check("models: [a, a.b]\nconditions: [{name: c}, {name: b.c}]\n", "the same file, a.b.c.1.jsonl");
        check("conditions: [{retry: fresh}]\n", "`` is no name");
        check("conditions: [{name: a/b}]\n", "`a/b` is no name");
        check("conditions: [{name: a, retry: again}]\n", "again");
        check("conditions: [{name: a, temperature: -1}]\n", "a temperature is");
        check("conditions: [{name: a, tries: 1}]\n", "tries");
        check("conditions: [{name: a, gate: ajar}]\n", "`on` or `off`");
        check("conditions: [{name: a, retrieval: luck}]\n", "luck");
        check("conditions: [{name: a, policy: x, npc: y}]\n", "npc");
        check("models: [a]\nprices: {b: {in: 1, cached: 1, out: 1}}\n", "`b` has a price and is none of");
        check("prices: {'*': {in: -1, cached: 1, out: 1}}\n", "no numbers from 0 up");
        check("prices: {'*': {in: 1}}\n", "cached");
        check("trials: 0\n", "a.bench");
        check("seed: 1\nseed: 2\n", "seed");
    }

    #[test]
    fn shards_take_everything_once() {
        for count in [0, 1, 7, 115, 2530] {
            for of in 1..=9 {
                let parts = (1..=of).map(|number| Shard { number, of }.range(count));
                let all: Vec<usize> = parts.clone().flatten().collect();
                assert_eq!(all, (0..count).collect::<Vec<_>>());
                assert!(parts.into_iter().all(|part| part.len() <= count / of + 1));
            }
        }
        for text in ["0/2", "3/2", "1", "a/b", "1/0"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
