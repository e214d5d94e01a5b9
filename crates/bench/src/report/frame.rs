//! Runs as flat rows, for programs that make their own tables and drawings.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use super::Selection;
use super::data::{Data, Facts, RunSource, by_task};
use super::group::Group;
use crate::Error;
use crate::record::{Cost, Named, Verdict};
use crate::task::Difficulty;

/// Value of [`SummaryRow::category`] for all categories together.
pub const ALL: &str = "all";

/// Attempts, and summaries of them.
#[derive(Clone, Debug, Serialize)]
pub struct Frame {
    /// One row per attempt at a finished task.
    pub attempts: Vec<AttemptRow>,
    /// One row per category, and one for `all`, for each model under each of its conditions.
    pub summary: Vec<SummaryRow>,
}

/// An attempt.
#[derive(Clone, Debug, Serialize)]
pub struct AttemptRow {
    /// The suite; with the beginning of its hash if others have the same name.
    pub suite: String,
    /// The model.
    pub model: String,
    /// The condition.
    pub condition: String,
    /// Number of the trial, from 1.
    pub trial: u32,
    /// The task.
    pub task: String,
    /// Its category.
    pub category: String,
    /// Its difficulty.
    pub difficulty: Difficulty,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// How it ended.
    pub verdict: Verdict,
    /// Why it wasn't solved; empty if it was.
    pub reason: String,
    /// Wall-clock time, including verification.
    pub seconds: f64,
    /// Seconds from the first request to its first token; `None` if there was none.
    pub ttft: Option<f64>,
    /// Generated tokens per second of decoding.
    pub tokens_per_second: f64,
    /// Cost of the model.
    #[serde(flatten)]
    pub cost: Cost,
    /// The seed of its sampler.
    pub seed: u64,
    /// The run file.
    pub file: PathBuf,
    /// Path of the trace, relative to the run file; empty if there is none.
    pub trace: String,
}

/// Summary of the cases of a model under a condition.
/// A case is a task in a trial.
#[derive(Clone, Debug, Serialize)]
pub struct SummaryRow {
    /// The suite; with the beginning of its hash if others have the same name.
    pub suite: String,
    /// The model.
    pub model: String,
    /// The condition.
    pub condition: String,
    /// The category, or `all`.
    pub category: String,
    /// Number of cases that count, since the environment didn't fail.
    pub cases: usize,
    /// Number of these that were solved.
    pub solved: usize,
    /// Number of cases that ended with an error of the environment, and don't affect the score.
    pub errors: usize,
    /// The solved share, from 0 to 1; `None` without cases.
    pub score: Option<f64>,
    /// Lower bound of its 95 % interval, by Wilson's method over the tasks.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
    /// The share solved in the first attempt.
    pub first_attempt: Option<f64>,
    /// Mean seconds per case.
    pub seconds: Option<f64>,
    /// Generated tokens per second of decoding.
    pub tokens_per_second: f64,
    /// The share of prompt tokens that were reused, from 0 to 1.
    pub prefix_hit: f64,
    /// Cost of the model.
    #[serde(flatten)]
    pub cost: Cost,
}

/// Returns the runs as rows, suite by suite, since scores of different suites aren't comparable.
/// Models and conditions are named as in a [report](super::report()).
///
/// # Errors
/// None: `Data` refuses only runs of several suites.
pub fn frame(sources: &[RunSource]) -> Result<Frame, Error> {
    let suites = super::by_suite(sources.to_vec());
    let suite = |runs: &Vec<RunSource>| runs[0].run.header.suite.clone();
    let mut whole = Frame { attempts: Vec::new(), summary: Vec::new() };
    for (at, runs) in suites.iter().enumerate() {
        let Named { name, hash } = suite(runs);
        let is_other = |(other, runs): (usize, &Vec<RunSource>)| other != at && suite(runs).name == name;
        let name = match suites.iter().enumerate().any(is_other) {
            true => format!("{name} {}", hash.get(..8).unwrap_or(&hash)),
            false => name,
        };
        let Frame { attempts, summary } = of_suite(&name, runs)?;
        whole.attempts.extend(attempts);
        whole.summary.extend(summary);
    }
    Ok(whole)
}

/// Returns the runs of the suite of this name as rows.
fn of_suite(suite: &str, sources: &[RunSource]) -> Result<Frame, Error> {
    let tasks = by_task(sources);
    let data = Data::new(sources, &tasks, |_| Facts::default())?;
    let attempts = data.cases.iter().flat_map(|case| {
        case.attempts.iter().map(|attempt| AttemptRow {
            suite: suite.to_owned(),
            model: data.label(case.model),
            condition: data.conditions[case.condition].clone(),
            trial: case.trial,
            task: attempt.task.clone(),
            category: case.end.category.clone(),
            difficulty: case.end.difficulty,
            attempt: attempt.attempt,
            verdict: attempt.verdict,
            reason: attempt.reason.clone(),
            seconds: attempt.seconds,
            ttft: attempt.ttft,
            tokens_per_second: attempt.tokens_per_second,
            cost: attempt.cost,
            seed: attempt.seed,
            file: sources[case.source].file.clone(),
            trace: attempt.trace.clone(),
        })
    });
    let mut summary = Vec::new();
    let subjects: BTreeSet<_> = data.cases.iter().map(|case| (case.model, case.condition)).collect();
    for (model, condition) in subjects {
        let of = |category: Option<&str>| {
            let category = category.map(str::to_owned);
            let behind = Selection {
                model: Some(model),
                condition: Some(condition),
                category,
                ..Selection::default()
            };
            Group::of(&data, behind)
        };
        let all = of(None);
        let categories: BTreeSet<&str> = all.cases.iter().map(|case| case.end.category.as_str()).collect();
        let groups = categories.iter().map(|name| (*name, of(Some(name)))).chain([(ALL, of(None))]);
        summary.extend(groups.map(|(category, group)| {
            let (interval, cost) = (group.interval(), group.cost());
            SummaryRow {
                suite: suite.to_owned(),
                model: data.label(model),
                condition: data.conditions[condition].clone(),
                category: category.to_owned(),
                cases: group.count(),
                solved: group.solved(),
                errors: group.errors(),
                score: group.score(),
                low: interval.map(|(low, _)| low),
                high: interval.map(|(_, high)| high),
                first_attempt: group.within(1),
                seconds: group.mean(|case| case.end.seconds),
                tokens_per_second: cost.tokens_per_second(),
                prefix_hit: cost.prefix_hit(),
                cost,
            }
        }));
    }
    Ok(Frame { attempts: attempts.collect(), summary })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_file::RunRecords;
    use crate::run_file::tests::{attempt, finished, header};

    #[test]
    fn suites_are_told_apart() {
        let source = |suite: &str, hash: &str| {
            let mut header = header();
            header.suite = Named { name: suite.into(), hash: hash.into() };
            let attempts = vec![attempt("git-1", 1, Verdict::Solved)];
            let run = RunRecords { header, attempts, finished: vec![finished("git-1", 1, Verdict::Solved)] };
            RunSource { file: format!("{hash}.jsonl").into(), run }
        };
        let sources = [source("a", "123456789"), source("b", "1"), source("a", "2"), source("b", "1")];
        let frame = frame(&sources).unwrap();
        let suites: Vec<&str> = frame.attempts.iter().map(|row| row.suite.as_str()).collect();
        assert_eq!(suites, ["a 12345678", "b", "b", "a 2"]);
        let suites: Vec<&str> = frame.summary.iter().map(|row| row.suite.as_str()).collect();
        assert_eq!(suites, ["a 12345678", "a 12345678", "b", "b", "b", "b", "a 2", "a 2"]);
    }

    #[test]
    fn rows_of_attempts_and_what_they_add_up_to() {
        let source = |condition: &str, verdict: Verdict| {
            let mut header = header();
            header.condition = condition.into();
            let run = RunRecords {
                header,
                attempts: vec![
                    attempt("git-1", 1, Verdict::Failed),
                    attempt("git-1", 2, verdict),
                    attempt("text-1", 1, Verdict::Solved),
                    attempt("begun-1", 1, Verdict::Failed),
                ],
                finished: vec![
                    finished("git-1", 2, verdict),
                    finished("text-1", 1, Verdict::Solved),
                    finished("text-2", 0, Verdict::Error),
                ],
            };
            RunSource { file: format!("{condition}.jsonl").into(), run }
        };
        let frame = frame(&[source("a", Verdict::Solved), source("b", Verdict::Failed)]).unwrap();
        let told = |row: &AttemptRow| {
            (row.condition.clone(), row.task.clone(), row.attempt, row.file.display().to_string())
        };
        let attempts: Vec<_> = frame.attempts.iter().map(told).collect();
        assert_eq!(attempts.len(), 6, "what has no end is left out");
        assert_eq!(attempts[4], ("b".into(), "git-1".into(), 2, "b.jsonl".into()));
        let summary: Vec<String> = frame
            .summary
            .iter()
            .map(|row| {
                let SummaryRow { condition, category, cases, solved, errors, .. } = row;
                let [score, low, high, first] = [row.score, row.low, row.high, row.first_attempt]
                    .map(|share| share.map_or("-".into(), |share| format!("{share:.3}")));
                format!("{condition} {category} {solved}/{cases} {errors} {score} {low} {high} {first}")
            })
            .collect();
        insta::assert_snapshot!(summary.join("\n"), @r"
        a git 1/1 0 1.000 0.207 1.000 0.000
        a text 1/1 1 1.000 0.207 1.000 1.000
        a all 2/2 1 1.000 0.342 1.000 0.500
        b git 0/1 0 0.000 0.000 0.793 0.000
        b text 1/1 1 1.000 0.207 1.000 1.000
        b all 1/2 1 0.500 0.095 0.905 0.500
        ");
    }
}
