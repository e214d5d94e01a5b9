//! A call that was made before with the same arguments is not made again.

use std::collections::BTreeSet;

use super::Optimizer;
use crate::jinx::check::{Text, blocks, effect, reaches, root, texts};
use crate::jinx::{Action, Step};
use crate::types::Effect;

impl Optimizer<'_> {
    pub(super) fn reuse(&mut self, steps: &mut [Step]) {
        for later in 1..steps.len() {
            let (before, rest) = steps.split_at(later);
            let Some(step) = rest.first().filter(|step| self.repeatable(step)) else { continue };
            let same = before.iter().enumerate().rev().find(|(_, other)| other.action == step.action);
            let Some((earlier, first)) = same else { continue };
            if !self.unchanged(first, &before[earlier + 1..]) {
                continue;
            }
            let name = first.name.clone();
            self.say(step.place, format!("the same call as `{name}`, so its result is used again"));
            let step = &mut steps[later];
            step.action = Action::Text { text: format!("{{{{ {name} }}}}").into() };
            (step.retry, step.cache, step.timeout) = (None, None, None);
        }
    }

    /// Whether a step is a call whose result may stand for that of a second one: it changes
    /// nothing, asks nobody and emits nothing.
    fn repeatable(&self, step: &Step) -> bool {
        let Action::Call { jinx, .. } = &step.action else { return false };
        let ends_run = self.known.get(jinx).is_none_or(|jinx| jinx.last);
        let matters = |action: &Action| matches!(action, Action::Llm(_) | Action::Emit { .. });
        !ends_run
            && effect(step, self.jinx, self.known) < Effect::Write
            && !reaches(step, self.known, &matters)
    }

    /// Whether nothing between two equal calls can make a difference.
    /// What reads may see another world after anything that takes time; what only computes may not.
    fn unchanged(&self, first: &Step, between: &[Step]) -> bool {
        let good = first.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !good || first.name.is_empty() {
            return false;
        }
        let reads = effect(first, self.jinx, self.known) == Effect::Read;
        let quick = |step: &Step| {
            matches!(&step.action, Action::Text { .. } | Action::Set { .. } | Action::Emit { .. })
        };
        let calm = between.iter().all(|step| {
            let store = |action: &Action| matches!(action, Action::Set { set } if set.keys().any(|path| root(path) == "store"));
            effect(step, self.jinx, self.known) < Effect::Write
                && !reaches(step, self.known, &store)
                && (!reads || quick(step))
        });
        let Ok(used) = texts(first).into_iter().map(Text::uses).collect::<Result<Vec<_>, _>>() else {
            return false;
        };
        let used: BTreeSet<&str> = used.iter().flatten().map(|used| root(&used.path)).collect();
        let mut bound = BTreeSet::new();
        between.iter().for_each(|step| binds(step, &mut bound));
        let kept = !bound.contains(first.name.as_str());
        bound.extend(["output", first.name.as_str()]);
        calm && kept && used.is_disjoint(&bound)
    }
}

/// The names that a step binds or sets, with those inside of it.
fn binds<'a>(step: &'a Step, names: &mut BTreeSet<&'a str>) {
    if !step.name.is_empty() {
        names.insert(&step.name);
    }
    match &step.action {
        Action::Set { set } => names.extend(set.keys().map(|path| root(path))),
        Action::For { variable, .. } => {
            names.insert(variable);
        }
        _ => {}
    }
    blocks(&step.action).into_iter().flatten().for_each(|step| binds(step, names));
}
