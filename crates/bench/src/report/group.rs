//! A set of cases and its statistics.

use std::collections::{BTreeMap, BTreeSet};

use super::Selection;
use super::data::{Case, Data};
use super::math::{mean, pass_hat, wilson};
use crate::record::Cost;

/// Cases, and the selection that they come from.
pub struct Group<'a> {
    /// The cases.
    pub cases: Vec<&'a Case<'a>>,
    /// Selects the attempts in the cases.
    pub behind: Selection,
}

impl<'a> Group<'a> {
    /// Returns the cases of `data` selected by `behind`, ignoring any attempts and verdicts in it.
    pub fn of(data: &'a Data<'a>, behind: Selection) -> Self {
        let is = |case: &Case| {
            let family = &data.models[case.model].1.family;
            behind.model.is_none_or(|model| model == case.model)
                && behind.condition.is_none_or(|condition| condition == case.condition)
                && behind.family.as_ref().is_none_or(|wanted| wanted == family)
                && behind.category.as_ref().is_none_or(|wanted| *wanted == case.end.category)
                && behind.difficulty.as_ref().is_none_or(|wanted| *wanted == case.end.difficulty.to_string())
        };
        Group { cases: data.cases.iter().filter(|case| is(case)).collect(), behind }
    }

    /// Returns the cases that count.
    pub fn counted(&self) -> impl Iterator<Item = &'a Case<'a>> {
        self.cases.iter().copied().filter(|case| case.counts())
    }

    /// Returns the number of these.
    pub fn count(&self) -> usize {
        self.counted().count()
    }

    /// Returns the number of solved cases.
    pub fn solved(&self) -> usize {
        self.counted().filter(|case| case.solved()).count()
    }

    /// Returns the number of cases that ended with an error that wasn't the agent's.
    pub fn errors(&self) -> usize {
        self.cases.len() - self.count()
    }

    /// Returns the solved share; `None` without cases.
    pub fn score(&self) -> Option<f64> {
        mean(self.counted().map(|case| f64::from(u8::from(case.solved()))))
    }

    /// Returns the share solved by one of the first `n` attempts.
    pub fn within(&self, n: u32) -> Option<f64> {
        mean(self.counted().map(|case| f64::from(u8::from(case.solved_within(n)))))
    }

    /// Returns how much attempts after the first add to the score, in percentage points.
    pub fn gain(&self) -> Option<f64> {
        self.score().zip(self.within(1)).map(|(all, first)| (all - first) * 100.0)
    }

    /// Returns the 95 % interval of the score, by Wilson's method over the tasks.
    /// All cases of one task count as one: its trials are similar, and so is its difficulty for
    /// several models or conditions.
    /// That is conservative: the interval is never too narrow.
    pub fn interval(&self) -> Option<(f64, f64)> {
        let tasks: BTreeSet<_> = self.counted().map(|case| case.end.task.as_str()).collect();
        self.score().map(|score| wilson(score, tasks.len() as f64))
    }

    /// Returns the number of solved trials, and of all trials, by task.
    fn by_task(&self) -> BTreeMap<&'a str, (u64, u64)> {
        let mut tasks: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for case in self.counted() {
            let (solved, trials) = tasks.entry(&case.end.task).or_default();
            *solved += u64::from(case.solved());
            *trials += 1;
        }
        tasks
    }

    /// Returns the number of trials that every task has.
    pub fn trials(&self) -> u64 {
        self.by_task().values().map(|(_, trials)| *trials).min().unwrap_or(0)
    }

    /// Returns pass^k, averaged over tasks, and its 95 % interval, by Wilson's method over the
    /// tasks; `None` if a task has fewer than k trials.
    /// A mean of numbers from 0 to 1 varies at most as much as a share with the same mean, so the
    /// interval is never too narrow.
    pub fn pass(&self, k: u64) -> Option<(f64, (f64, f64))> {
        let tasks = self.by_task();
        let pass = tasks.values().map(|&(solved, trials)| (k <= trials).then(|| pass_hat(solved, trials, k)));
        let pass = mean(pass.collect::<Option<Vec<f64>>>()?)?;
        Some((pass, wilson(pass, tasks.len() as f64)))
    }

    /// Returns the cost of all attempts.
    pub fn cost(&self) -> Cost {
        let mut cost = Cost::default();
        self.cases.iter().flat_map(|case| case.attempts).for_each(|attempt| cost += attempt.cost);
        cost
    }

    /// Returns the mean of a case's `value` over the cases that count.
    pub fn mean(&self, value: impl Fn(&Case) -> f64) -> Option<f64> {
        mean(self.counted().map(value))
    }

    /// Returns the selection of these attempts, with a change.
    pub fn select(&self, change: impl FnOnce(&mut Selection)) -> Selection {
        let mut behind = self.behind.clone();
        change(&mut behind);
        behind
    }
}

/// Returns the number of tool calls in all attempts of a case.
pub fn calls(case: &Case) -> f64 {
    case.attempts.iter().map(|attempt| attempt.cost.tool_calls as f64).sum()
}
