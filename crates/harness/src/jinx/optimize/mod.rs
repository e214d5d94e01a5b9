//! The same jinxes with less to do: branches that are never taken go, adjacent `set`s become one, a
//! call that was just made is not made again, steps that only read and don't need each other run
//! side by side.
//!
//! What a jinx gives, emits and changes stays the same; that it takes less calls and less time
//! shows in the trace.
//! This module must not know how steps are run.

mod reuse;
mod simplify;
mod together;

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::check::Known;
use super::{Action, Jinx, Step, Steps};
use crate::types::Location;

/// Something that was optimised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Optimization {
    /// The file.
    pub path: PathBuf,
    /// The step.
    #[serde(flatten)]
    pub place: Location,
    /// What was done, and why.
    pub message: String,
}

impl fmt::Display for Optimization {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Optimization { path, place: Location { line, column }, message } = self;
        write!(f, "{}:{line}:{column}: {message}", path.display())
    }
}

/// Optimises jinxes that call each other and nothing else.
/// Returns what was done, in the order of the jinxes.
pub fn optimize(jinxes: &mut [Jinx]) -> Vec<Optimization> {
    let before = jinxes.to_vec();
    let known = Known::new(&before);
    let mut made = Vec::new();
    for (jinx, as_it_was) in jinxes.iter_mut().zip(&before) {
        let mut optimize = Optimizer { jinx: as_it_was, known: &known, made: &mut made };
        optimize.block(&mut jinx.steps, false);
    }
    made
}

/// A jinx while it is optimised.
struct Optimizer<'a> {
    jinx: &'a Jinx,
    known: &'a Known<'a>,
    made: &'a mut Vec<Optimization>,
}

impl Optimizer<'_> {
    /// Optimises steps that run one after the other, first those in them.
    /// In what runs `beside` other work nothing is to be won by running it side by side.
    fn block(&mut self, steps: &mut Steps, beside: bool) {
        for step in steps.iter_mut() {
            self.inside(step, beside);
        }
        self.simplify(steps);
        self.fuse(steps);
        self.reuse(steps);
        if !beside {
            self.group(steps);
        }
    }

    fn inside(&mut self, step: &mut Step, beside: bool) {
        match &mut step.action {
            Action::When { then, otherwise, .. } => {
                self.block(then, beside);
                self.block(otherwise, beside);
            }
            Action::For { steps, parallel, .. } => {
                // A loop whose steps give results gives a list, even if none of them runs.
                let same = |before: &Steps, after: &Steps| simplify::gives(before) == simplify::gives(after);
                let named = !step.name.is_empty();
                self.block_if(steps, beside || *parallel, |before, after| named || same(before, after));
            }
            Action::Try { steps, catch, finally } => {
                self.block(steps, beside);
                // Whether a failure is caught depends on whether there are steps, though none of
                // them may do anything.
                let same = |before: &Steps, after: &Steps| before.is_empty() == after.is_empty();
                self.block_if(catch, beside, same);
                self.block_if(finally, beside, same);
            }
            _ => {}
        }
    }

    /// As [`Optimizer::block`], unless what comes of it is not `allowed`: before, after.
    fn block_if(&mut self, steps: &mut Steps, beside: bool, allowed: impl Fn(&Steps, &Steps) -> bool) {
        let (before, count) = (steps.clone(), self.made.len());
        self.block(steps, beside);
        if !allowed(&before, steps) {
            *steps = before;
            self.made.truncate(count);
        }
    }

    fn say(&mut self, place: Location, message: impl Into<String>) {
        self.made.push(Optimization { path: self.jinx.path.clone(), place, message: message.into() });
    }
}

#[cfg(test)]
mod tests;
