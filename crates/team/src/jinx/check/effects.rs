//! The effects of steps, as far as they are known without running them.

use super::Known;
use super::names::blocks;
use crate::jinx::{Action, Jinx, Step, Tools};
use crate::types::Effect;

/// The effect of a step of `jinx`.
/// A program, and a model with tools, has the effect of the jinx.
/// A step that sets a key of the store writes.
/// A call has the effect of the called jinx.
pub fn effect(step: &Step, jinx: &Jinx, known: &Known) -> Effect {
    match &step.action {
        Action::Bash { background: Some(_), .. } | Action::Jobs { .. } => Effect::Write,
        Action::Bash { .. } | Action::Python { .. } => jinx.effect,
        Action::Search(_) => Effect::Read,
        Action::Llm(llm) if llm.tools != Tools::None => jinx.effect,
        Action::Set { set } if set.keys().any(|path| path.starts_with("store.")) => Effect::Write,
        Action::Call { jinx, .. } => known.get(jinx).map_or(Effect::Write, |jinx| jinx.effect),
        other => {
            let steps = blocks(other).into_iter().flatten();
            steps.map(|step| effect(step, jinx, known)).max().unwrap_or(Effect::None)
        }
    }
}

/// Whether a step, or a jinx that it calls, performs an action of a kind.
/// Jinxes that can't be inspected might: unknown ones, and those that a person may be asked about.
pub fn reaches(step: &Step, known: &Known, kind: &dyn Fn(&Action) -> bool) -> bool {
    fn look(step: &Step, known: &Known, kind: &dyn Fn(&Action) -> bool, seen: &mut Vec<String>) -> bool {
        if kind(&step.action) {
            return true;
        }
        let Action::Call { jinx, .. } = &step.action else {
            return blocks(&step.action).into_iter().flatten().any(|step| look(step, known, kind, seen));
        };
        match known.get(jinx) {
            Some(jinx) if jinx.permission.is_some() || (!jinx.trusted && !jinx.env.is_empty()) => true,
            Some(jinx) if seen.contains(&jinx.name) => false,
            Some(jinx) => {
                seen.push(jinx.name.clone());
                jinx.steps.iter().any(|step| look(step, known, kind, seen))
            }
            None => true,
        }
    }
    look(step, known, kind, &mut Vec::new())
}
