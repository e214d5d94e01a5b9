//! Tables of results: sums of the runs' records, by category.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::{Cost, Verdict};
use crate::run_file::RunRecords;

/// Sums over a set of finished tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// Number of tasks.
    pub tasks: u64,
    /// Number of solved tasks.
    pub solved: u64,
    /// Number of tasks solved in the first attempt.
    pub solved_first: u64,
    /// Number of tasks that ended with an error that wasn't the agent's; included in `tasks`.
    pub errors: u64,
    /// Number of attempts.
    pub attempts: u64,
    /// Cost of the models.
    #[serde(flatten)]
    pub cost: Cost,
    /// Generated tokens per second of decoding.
    pub tokens_per_second: f64,
    /// The share of prompt tokens that were reused, from 0 to 1.
    pub prefix_hit: f64,
    /// Total wall-clock time of the tasks.
    pub seconds: f64,
}

/// One row per category, in alphabetical order, and the sum of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// Rows by category.
    pub categories: BTreeMap<String, Row>,
    /// The sum.
    pub total: Row,
}

/// Adds up the finished tasks of `runs`.
pub fn table<'a>(runs: impl IntoIterator<Item = &'a RunRecords>) -> Table {
    let mut table = Table::default();
    for run in runs {
        for finished in &run.finished {
            let mut row = Row {
                tasks: 1,
                solved: u64::from(finished.verdict == Verdict::Solved),
                solved_first: u64::from(finished.verdict == Verdict::Solved && finished.attempts == 1),
                errors: u64::from(finished.verdict == Verdict::Error),
                attempts: u64::from(finished.attempts),
                seconds: finished.seconds,
                ..Row::default()
            };
            for attempt in run.attempts.iter().filter(|attempt| attempt.task == finished.task) {
                row.cost += attempt.cost;
            }
            table.categories.entry(finished.category.clone()).or_default().add(&row);
            table.total.add(&row);
        }
    }
    table
}

impl Row {
    fn add(&mut self, other: &Row) {
        self.tasks += other.tasks;
        self.solved += other.solved;
        self.solved_first += other.solved_first;
        self.errors += other.errors;
        self.attempts += other.attempts;
        self.cost += other.cost;
        self.seconds += other.seconds;
        self.tokens_per_second = self.cost.tokens_per_second();
        self.prefix_hit = self.cost.prefix_hit();
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let or_dash = |measured, value: String| if measured { value } else { "-".to_owned() };
        vec![
            name.to_owned(),
            self.tasks.to_string(),
            self.solved.to_string(),
            self.solved_first.to_string(),
            self.errors.to_string(),
            self.cost.tool_calls.to_string(),
            or_dash(self.cost.decode_seconds > 0.0, format!("{:.1}", self.tokens_per_second)),
            or_dash(self.cost.tokens_in > 0, format!("{:.0} %", self.prefix_hit * 100.0)),
            format!("{:.1} s", self.seconds),
        ]
    }
}

impl Table {
    /// Columns of [`Table::rows`].
    pub const COLUMNS: [&str; 9] = [
        "category",
        "tasks",
        "solved",
        "at first",
        "errors",
        "tool calls",
        "tokens/s",
        "prefix hit",
        "task time",
    ];

    /// Formats the table as text cells; the last row is the sum.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let categories = self.categories.iter().map(|(name, row)| row.cells(name));
        categories.chain([self.total.cells("all")]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_file::tests::{attempt, finished, header};

    #[test]
    fn adds_up_by_category() {
        let run = RunRecords {
            header: header(),
            attempts: vec![
                attempt("text-1", 1, Verdict::Solved),
                attempt("git-1", 1, Verdict::Failed),
                attempt("git-1", 2, Verdict::Solved),
                attempt("git-2", 1, Verdict::Failed),
                attempt("unfinished-1", 1, Verdict::Failed),
            ],
            finished: vec![
                finished("text-1", 1, Verdict::Solved),
                finished("git-1", 2, Verdict::Solved),
                finished("git-2", 1, Verdict::Failed),
                finished("data-1", 0, Verdict::Error),
            ],
        };
        let table = table([&run]);
        let text: Vec<String> = table.rows().iter().map(|row| row.join(" | ")).collect();
        insta::assert_snapshot!(text.join("\n"), @r"
        data | 1 | 0 | 0 | 1 | 0 | - | - | 0.0 s
        git | 2 | 1 | 0 | 0 | 6 | 60.0 | 60 % | 6.0 s
        text | 1 | 1 | 1 | 0 | 2 | 60.0 | 60 % | 2.0 s
        all | 4 | 2 | 1 | 1 | 8 | 60.0 | 60 % | 8.0 s
        ");
        insta::assert_snapshot!(serde_json::to_string(&table.categories["git"]).unwrap(), @r#"{"tasks":2,"solved":1,"solved_first":0,"errors":0,"attempts":3,"tool_calls":6,"tokens_in":300,"tokens_cached":180,"tokens_out":90,"decode_seconds":1.5,"tokens_per_second":60.0,"prefix_hit":0.6,"seconds":6.0}"#);
    }
}
