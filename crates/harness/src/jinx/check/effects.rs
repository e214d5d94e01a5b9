//! What steps do to the world, as far as it can be told without running them.

use super::Known;
use super::names::blocks;
use crate::jinx::{Action, Effect, Jinx, Step, Tools};

/// The effect of a step of `jinx`. A program's, a model's with tools and that of a change of the store are the jinx's own; a call's is
/// what the called jinx says.
pub fn effect(step: &Step, jinx: &Jinx, known: &Known) -> Effect {
    match &step.action {
        Action::Bash { .. } | Action::Python { .. } => jinx.effect,
        Action::Llm(llm) if llm.tools != Tools::None => jinx.effect,
        Action::Set { set } if set.keys().any(|path| path.starts_with("store.")) => jinx.effect,
        Action::Call { jinx, .. } => known.get(jinx).map_or(Effect::Write, |jinx| jinx.effect),
        other => {
            let steps = blocks(other).into_iter().flatten();
            steps.map(|step| effect(step, jinx, known)).max().unwrap_or(Effect::None)
        }
    }
}

/// Whether a model or a person is asked in a step, or in a jinx that it calls: then it matters in which order and how often it runs.
pub fn asks(step: &Step, known: &Known) -> bool {
    fn look(step: &Step, known: &Known, seen: &mut Vec<String>) -> bool {
        match &step.action {
            Action::Llm(_) => true,
            Action::Call { jinx: name, .. } => {
                let Some(jinx) = known.get(name) else { return true };
                if jinx.permission.is_some() {
                    return true;
                }
                if seen.contains(&jinx.name) {
                    return false;
                }
                seen.push(jinx.name.clone());
                jinx.steps.iter().any(|step| look(step, known, seen))
            }
            other => blocks(other).into_iter().flatten().any(|step| look(step, known, seen)),
        }
    }
    look(step, known, &mut Vec::new())
}
