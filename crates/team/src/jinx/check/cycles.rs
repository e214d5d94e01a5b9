//! Finds jinxes that call themselves, directly or through others.
//! Work that a model delegates to an NPC is no call.

use std::cell::OnceCell;
use std::path::Path;

use super::names::blocks;
use super::{Known, Report};
use crate::jinx::{Action, Jinx, Step};
use crate::types::Diagnostic;

/// Reports each cycle once, at its first call.
pub fn check(
    jinxes: &[Jinx],
    known: &Known,
    text_of: &dyn Fn(&Path) -> Option<String>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let mut done = Vec::new();
    for jinx in jinxes {
        let mut walk = Walk { known, path: Vec::new(), done: &mut done, found: Vec::new() };
        walk.jinx(jinx);
        for (jinx, step, cycle) in walk.found {
            let mut report = Report { jinx, text_of, text: OnceCell::new(), diagnostics };
            report.error(step, format!("a jinx can't call itself: {cycle}"));
        }
    }
}

struct Walk<'a, 'w> {
    known: &'w Known<'a>,
    /// The jinxes on the current path, each with the call that leads on.
    path: Vec<(&'a Jinx, Option<&'a Step>)>,
    /// The names of jinxes that are done.
    done: &'w mut Vec<&'a str>,
    found: Vec<(&'a Jinx, &'a Step, String)>,
}

impl<'a> Walk<'a, '_> {
    fn jinx(&mut self, jinx: &'a Jinx) {
        if let Some(start) = self.path.iter().position(|(on, _)| on.name == jinx.name) {
            let names = self.path[start..].iter().map(|(on, _)| on.name.as_str()).chain([jinx.name.as_str()]);
            let cycle = names.collect::<Vec<_>>().join(" → ");
            if let (first, Some(step)) = self.path[start] {
                self.found.push((first, step, cycle));
            }
            return;
        }
        if self.done.contains(&jinx.name.as_str()) {
            return;
        }
        self.path.push((jinx, None));
        self.steps(&jinx.steps);
        self.path.pop();
        self.done.push(&jinx.name);
    }

    fn steps(&mut self, steps: &'a [Step]) {
        for step in steps {
            if let Action::Call { jinx, .. } = &step.action
                && let Some(called) = self.known.get(jinx)
            {
                if let Some((_, call)) = self.path.last_mut() {
                    *call = Some(step);
                }
                self.jinx(called);
            }
            blocks(&step.action).into_iter().for_each(|steps| self.steps(steps));
        }
    }
}
