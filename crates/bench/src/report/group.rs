//! A set of cases and what it adds up to.

use std::collections::{BTreeMap, BTreeSet};

use super::Selection;
use super::data::{Case, Data};
use super::math::{mean, pass_hat, wilson};
use crate::record::Cost;

/// Cases, and how they were chosen.
pub struct Group<'a> {
    /// The cases.
    pub cases: Vec<&'a Case<'a>>,
    /// Which attempts they consist of.
    pub behind: Selection,
}

impl<'a> Group<'a> {
    /// The cases of `data` for which `behind` holds; attempts and verdicts in it don't choose among
    /// cases.
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

    /// Those that say something about the agent.
    pub fn counted(&self) -> impl Iterator<Item = &'a Case<'a>> {
        self.cases.iter().copied().filter(|case| case.counts())
    }

    /// How many of them.
    pub fn count(&self) -> usize {
        self.counted().count()
    }

    /// How many were solved.
    pub fn solved(&self) -> usize {
        self.counted().filter(|case| case.solved()).count()
    }

    /// How many ended with an error that was not the agent's.
    pub fn errors(&self) -> usize {
        self.cases.len() - self.count()
    }

    /// The share that was solved; `None` of nothing.
    pub fn score(&self) -> Option<f64> {
        mean(self.counted().map(|case| f64::from(u8::from(case.solved()))))
    }

    /// The share that one of the first `n` attempts solved.
    pub fn within(&self, n: u32) -> Option<f64> {
        mean(self.counted().map(|case| f64::from(u8::from(case.solved_within(n)))))
    }

    /// What attempts after the first add to the score, in percentage points.
    pub fn gain(&self) -> Option<f64> {
        self.score().zip(self.within(1)).map(|(all, first)| (all - first) * 100.0)
    }

    /// The 95 % interval of the score, Wilson's over the tasks.
    /// All cases of one task count as one: its trials are much alike, and so is how hard it is for
    /// several models or conditions.
    /// That is cautious: the interval is never too narrow for it.
    pub fn interval(&self) -> Option<(f64, f64)> {
        let tasks: BTreeSet<_> = self.counted().map(|case| case.end.task.as_str()).collect();
        self.score().map(|score| wilson(score, tasks.len() as f64))
    }

    /// By task, how many of its trials were solved and how many there are.
    fn by_task(&self) -> BTreeMap<&'a str, (u64, u64)> {
        let mut tasks: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for case in self.counted() {
            let (solved, trials) = tasks.entry(&case.end.task).or_default();
            *solved += u64::from(case.solved());
            *trials += 1;
        }
        tasks
    }

    /// How many trials every task has.
    pub fn trials(&self) -> u64 {
        self.by_task().values().map(|(_, trials)| *trials).min().unwrap_or(0)
    }

    /// pass^k, the mean over tasks, and its 95 % interval, Wilson's over the tasks; `None` if a
    /// task has fewer than k trials.
    /// A mean of numbers from 0 to 1 varies at most as a share with the same mean does: the
    /// interval is never too narrow for it.
    pub fn pass(&self, k: u64) -> Option<(f64, (f64, f64))> {
        let tasks = self.by_task();
        let pass = tasks.values().map(|&(solved, trials)| (k <= trials).then(|| pass_hat(solved, trials, k)));
        let pass = mean(pass.collect::<Option<Vec<f64>>>()?)?;
        Some((pass, wilson(pass, tasks.len() as f64)))
    }

    /// What all attempts cost.
    pub fn cost(&self) -> Cost {
        let mut cost = Cost::default();
        self.cases.iter().flat_map(|case| case.attempts).for_each(|attempt| cost += attempt.cost);
        cost
    }

    /// The mean of a case's `value` over those that count.
    pub fn mean(&self, value: impl Fn(&Case) -> f64) -> Option<f64> {
        mean(self.counted().map(value))
    }

    /// How these attempts are chosen, with a change.
    pub fn select(&self, change: impl FnOnce(&mut Selection)) -> Selection {
        let mut behind = self.behind.clone();
        change(&mut behind);
        behind
    }
}

/// Tool calls of all attempts of a case.
pub fn calls(case: &Case) -> f64 {
    case.attempts.iter().map(|attempt| attempt.cost.tool_calls as f64).sum()
}
