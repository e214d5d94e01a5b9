//! What never runs is left out, and `set`s that follow each other become one.

use super::Optimizer;
use crate::jinx::check::{blocks, constant};
use crate::jinx::{Action, Step, Steps};

impl Optimizer<'_> {
    /// Leaves out branches that are never taken, and what stands after the end of the jinx.
    pub(super) fn simplify(&mut self, steps: &mut Steps) {
        let mut kept = Steps::new();
        let mut left = std::mem::take(steps).into_iter();
        for mut step in left.by_ref() {
            let own = step.retry.is_none() && step.timeout.is_none();
            match &mut step.action {
                Action::When { when, then, otherwise } if own && constant(when).is_some() => {
                    let always = constant(when) == Some(true);
                    let taken = if always { then } else { otherwise };
                    let rest = match (taken.is_empty(), always) {
                        (true, _) => "nothing of it is left",
                        (false, true) => "`then` takes its place",
                        (false, false) => "`else` takes its place",
                    };
                    self.say(step.place, format!("`{when}` is always {always}: {rest}"));
                    kept.append(taken);
                }
                _ => kept.push(step),
            }
            if kept.last().is_some_and(ends) {
                break;
            }
        }
        let rest = left.len();
        if let Some(first) = left.next() {
            let what = if rest == 1 {
                "this is left out".to_owned()
            } else {
                format!("these {rest} steps are left out")
            };
            self.say(first.place, format!("{what}: the step before ends the jinx"));
        }
        *steps = kept;
    }

    /// Makes one `set` of several, as long as they set different paths.
    pub(super) fn fuse(&mut self, steps: &mut Steps) {
        let mut fused = Steps::new();
        for step in std::mem::take(steps) {
            let plain = |step: &Step| step.name.is_empty() && step.retry.is_none() && step.timeout.is_none();
            match (fused.last_mut(), step) {
                (
                    Some(before @ Step { action: Action::Set { .. }, .. }),
                    Step {
                        action: Action::Set { set: more }, name, retry: None, timeout: None, place, ..
                    },
                ) if plain(before) && name.is_empty() && differ(&before.action, &more) => {
                    if let Action::Set { set } = &mut before.action {
                        set.extend(more);
                    }
                    self.say(place, "one step with the `set` before it");
                }
                (_, step) => fused.push(step),
            }
        }
        *steps = fused;
    }
}

fn differ(action: &Action, more: &serde_json::Map<String, serde_json::Value>) -> bool {
    matches!(action, Action::Set { set } if more.keys().all(|path| !set.contains_key(path)))
}

/// Whether a step surely ends the jinx.
fn ends(step: &Step) -> bool {
    let any = |steps: &[Step]| steps.iter().any(ends);
    match &step.action {
        Action::Return { .. } => true,
        Action::When { then, otherwise, .. } => any(then) && any(otherwise),
        Action::Try { steps, catch, finally } => {
            let passes = catch.is_empty() && !finally.is_empty();
            any(finally) || (any(steps) && (passes || any(catch)))
        }
        _ => false,
    }
}

/// Whether any of the steps gives a result.
pub(super) fn gives(steps: &[Step]) -> bool {
    steps.iter().any(|step| match &step.action {
        Action::Bash { .. }
        | Action::Python { .. }
        | Action::Text { .. }
        | Action::Llm(_)
        | Action::Call { .. } => true,
        Action::For { .. } if !step.name.is_empty() => true,
        Action::Try { steps, catch, .. } => gives(steps) || gives(catch),
        other => blocks(other).into_iter().any(gives),
    })
}
