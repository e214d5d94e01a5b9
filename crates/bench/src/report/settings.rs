//! Finds the settings in which runs differ, and names their conditions after them.

use std::collections::{BTreeMap, BTreeSet};

use alara_harness::knowledge::Retrieval;
use serde_json::{Value, json};

use super::data::RunSource;
use crate::record::{DEFAULT_CONDITION, Header};

/// The setting that distinguishes runs if no other one does: the hash of the team's whole content.
const TEAM_HASH: &str = "team hash";
/// A setting that also differs between trials.
const SEED: &str = "seed";
/// Maximum length of a value in a name, in characters.
const VALUE_CHARS: usize = 60;

/// Settings with display names, in reading order.
/// `null` if the run left a setting to the model or the team.
struct Settings(Vec<(String, Value)>);

impl Settings {
    fn of(header: &Header) -> Self {
        let option = |name: &str| header.engine.get(name).cloned().unwrap_or_default();
        let user = header.user.as_ref().map(|user| &user.name);
        let hash = header.team.hash.get(..8).unwrap_or(&header.team.hash);
        let mut all = vec![
            ("NPC".to_owned(), json!(header.npc)),
            ("team".to_owned(), json!(header.team.name)),
            ("user model".to_owned(), json!(user)),
            ("gate".to_owned(), json!(header.gate)),
            ("retrieval".to_owned(), json!(header.retrieval.map(Retrieval::name))),
            ("tool format".to_owned(), option("tool_format")),
            ("calls".to_owned(), json!(header.calls)),
            ("thinking".to_owned(), header.thinking.map_or_else(|| option("thinking"), Value::from)),
            ("retry".to_owned(), json!(header.policy.to_string())),
            ("timeout".to_owned(), json!(format!("{} s", header.timeout))),
            ("retry temperature".to_owned(), json!(header.retry_temperature)),
        ];
        let sampling = serde_json::to_value(&header.sampling).unwrap_or_default();
        // The number of threads depends on the machine.
        let told = ["tool_format", "thinking", "threads", "seed"];
        for (name, value) in [&sampling, &header.engine].into_iter().filter_map(Value::as_object).flatten() {
            if !told.contains(&name.as_str()) {
                all.push((name.replace('_', " "), value.clone()));
            }
        }
        all.push((TEAM_HASH.to_owned(), json!(hash)));
        all.push((SEED.to_owned(), json!(header.sampling.seed)));
        Settings(all)
    }

    fn get(&self, name: &str) -> &Value {
        self.0.iter().find(|(known, _)| known == name).map_or(&Value::Null, |(_, value)| value)
    }

    /// Returns the names of the settings that differ.
    fn differing<'a>(&'a self, other: &'a Settings) -> impl Iterator<Item = &'a str> {
        let names = self.0.iter().chain(&other.0).map(|(name, _)| name.as_str());
        names.filter(move |name| self.get(name) != other.get(name))
    }

    /// Returns the name of a condition distinguished by these settings.
    fn name(&self, condition: &str, telling: &[&str]) -> String {
        let own = Some(condition).filter(|name| *name != DEFAULT_CONDITION).map(str::to_owned);
        let chosen = telling.iter().filter_map(|name| Some(format!("{name} {}", text(self.get(name))?)));
        let parts: Vec<String> = own.into_iter().chain(chosen).collect();
        if parts.is_empty() { DEFAULT_CONDITION.to_owned() } else { parts.join(", ") }
    }
}

/// Formats a value for display; `None` if it was left to the model or the team.
fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::Bool(on) => (if *on { "on" } else { "off" }).to_owned(),
        Value::String(text) => text.clone(),
        // Numbers in a header have the precision of f32.
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map_or_else(String::new, |number| (number as f32).to_string())
        }
        Value::Object(named) => match named.get("name").and_then(Value::as_str) {
            Some(name) => name.to_owned(),
            None => value.to_string(),
        },
        other => other.to_string(),
    };
    Some(text.chars().take(VALUE_CHARS).collect())
}

/// Whether two runs have the same rules; their seeds may differ.
pub fn are_alike(first: &Header, second: &Header) -> bool {
    let (first, second) = (Settings::of(first), Settings::of(second));
    first.differing(&second).all(|name| name == SEED)
}

/// Returns the name of each run's condition, by the run's index: the name in the run, with other
/// settings that differ between the runs of one model.
pub fn condition_names(sources: &[RunSource]) -> Vec<String> {
    let all: Vec<Settings> = sources.iter().map(|source| Settings::of(&source.run.header)).collect();
    let mut names = vec![String::new(); sources.len()];
    let mut conditions: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, source) in sources.iter().enumerate() {
        conditions.entry(source.run.header.condition.as_str()).or_default().push(at);
    }
    for (condition, runs) in conditions {
        let mut telling = telling(sources, &all, &runs);
        let called = |at: usize, telling: &[&str]| all[at].name(condition, telling);
        // The team's hash means little to readers, so use it only if nothing else differs.
        let mut teams: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for &at in &runs {
            let team = sources[at].run.header.team.hash.as_str();
            teams.entry((model(&sources[at]), called(at, &telling))).or_default().insert(team);
        }
        if teams.values().any(|teams| teams.len() > 1) {
            telling.push(TEAM_HASH);
        }
        if is_seeded(sources, &runs, |at| called(at, &telling)) {
            telling.push(SEED);
        }
        for at in runs {
            names[at] = called(at, &telling);
        }
    }
    names
}

/// Returns the settings in which runs of one model differ, limited to those that mean something to
/// readers.
fn telling<'a>(sources: &'a [RunSource], all: &'a [Settings], runs: &[usize]) -> Vec<&'a str> {
    let mut firsts = BTreeMap::new();
    let mut differing = BTreeSet::new();
    for &at in runs {
        let first = *firsts.entry(model(&sources[at])).or_insert(at);
        differing.extend(all[first].differing(&all[at]));
    }
    // In reading order; a setting that only some of the runs have comes last.
    let mut telling: Vec<&str> = Vec::new();
    for name in runs.iter().flat_map(|&at| &all[at].0).map(|(name, _)| name.as_str()) {
        if differing.contains(name) && ![TEAM_HASH, SEED].contains(&name) && !telling.contains(&name) {
            telling.push(name);
        }
    }
    telling
}

/// Whether a task was run twice with a difference only in seeds, not explained by trials.
fn is_seeded(sources: &[RunSource], runs: &[usize], called: impl Fn(usize) -> String) -> bool {
    let mut seeds = BTreeMap::new();
    let mut twice = false;
    for &at in runs {
        let run = &sources[at].run;
        if run.header.trial != 1 {
            return false;
        }
        let (seed, name) = (run.header.sampling.seed, called(at));
        for end in &run.finished {
            let before = seeds.insert((model(&sources[at]), name.clone(), end.task.as_str()), seed);
            twice |= before.is_some_and(|before| before != seed);
        }
    }
    twice
}

/// Returns the name and the hash of a run's model.
fn model(source: &RunSource) -> (&str, &str) {
    let named = &source.run.header.model;
    (&named.name, &named.hash)
}

#[cfg(test)]
mod tests {
    use super::super::{report, tests};
    use super::*;

    /// The name of a condition, and what makes its run differ.
    type Changed<'a> = (&'a str, fn(&mut Header));

    /// Returns the names of conditions of runs of one model, each made by changing a header.
    fn conditions(changes: &[Changed]) -> Vec<String> {
        let run = |(condition, change): &Changed| {
            let mut source = tests::run("small", condition, 1, &[("a-1", 1)]);
            change(&mut source.run.header);
            source
        };
        let sources: Vec<RunSource> = changes.iter().map(run).collect();
        let report = report(&sources, tests::facts).unwrap();
        report.conditions
    }

    #[test]
    fn conditions_are_called_after_what_differs() {
        let nothing: fn(&mut Header) = |_| {};
        assert_eq!(
            conditions(&[
                ("default", nothing),
                ("default", |header| header.engine["tool_format"] = "code".into()),
                ("default", |header| header.calls = Some(alara_harness::calls::Calls::Forced)),
                ("default", |header| header.sampling.temperature = 0.6),
            ]),
            [
                "temperature 0",
                "tool format code, temperature 0",
                "calls forced, temperature 0",
                "temperature 0.6"
            ]
        );
        // A name from a sweep stays, with additions if it doesn't distinguish the runs.
        assert_eq!(
            conditions(&[
                ("fresh", nothing),
                ("feedback", |header| header.npc = "coder".into()),
                ("feedback", |header| header.thinking = Some(true)),
            ]),
            ["fresh", "feedback, NPC coder", "feedback, NPC worker, thinking on"]
        );
    }

    #[test]
    fn a_changed_team_and_a_seed_tell_apart_what_nothing_else_does() {
        let nothing: fn(&mut Header) = |_| {};
        let team: fn(&mut Header) = |header| header.team.hash = "123456789".into();
        assert_eq!(
            conditions(&[("default", nothing), ("default", team)]),
            ["team hash 00", "team hash 12345678"]
        );
        let coder: fn(&mut Header) = |header| {
            header.npc = "coder".into();
            header.team.hash = "11".into();
        };
        assert_eq!(conditions(&[("default", nothing), ("default", coder)]), ["NPC worker", "NPC coder"]);
        assert_eq!(
            conditions(&[("default", nothing), ("default", |header| header.sampling.seed = 7)]),
            ["seed 0", "seed 7"]
        );
        // The number of threads doesn't make another condition.
        let alike = |change: fn(&mut Header)| {
            let first = tests::run("small", "default", 1, &[]).run.header;
            let mut second = first.clone();
            change(&mut second);
            are_alike(&first, &second)
        };
        assert!(alike(|header| header.engine["threads"] = 9.into()) && alike(team) != alike(nothing));
    }
}
