//! Steps that only read and don't need each other's results run side by side.

use super::Optimizer;
use crate::jinx::check::{Text, effect, reaches, root, texts, words};
use crate::jinx::{Action, Step, Steps};
use crate::types::Effect;

/// Words of bash programs that may look at any variable, or run something that does.
const LOOKS_AROUND: [&str; 22] = [
    "awk", "bash", "compgen", "declare", "env", "eval", "exec", "export", "jq", "make", "node", "npm",
    "perl", "printenv", "python", "python3", "ruby", "set", "sh", "source", "typeset", "xargs",
];

impl Optimizer<'_> {
    pub(super) fn group(&mut self, steps: &mut Steps) {
        let mut grouped = Steps::new();
        let mut group: Steps = Vec::new();
        for step in std::mem::take(steps) {
            if !self.may_wait(&step) || group.iter().any(|before| needs(&step, before)) {
                self.close(&mut group, &mut grouped);
            }
            match self.may_wait(&step) {
                true => group.push(step),
                false => grouped.push(step),
            }
        }
        self.close(&mut group, &mut grouped);
        *steps = grouped;
    }

    fn close(&mut self, group: &mut Steps, grouped: &mut Steps) {
        if group.len() < 2 {
            grouped.append(group);
            return;
        }
        let names = group.iter().map(|step| format!("`{}`", step.name)).collect::<Vec<_>>().join(", ");
        let place = group.first().map(|step| step.place).unwrap_or_default();
        self.say(place, format!("{names} run side by side: they only read, and none needs another's result"));
        grouped.push(Step {
            name: String::new(),
            action: Action::Together { steps: std::mem::take(group) },
            retry: None,
            cache: None,
            timeout: None,
            place,
        });
    }

    /// Whether a step is worth it and changes nothing.
    /// Models answer in the order of the file, and so are people asked.
    fn may_wait(&self, step: &Step) -> bool {
        let works = matches!(&step.action, Action::Bash { .. } | Action::Python { .. } | Action::Call { .. });
        works
            && effect(step, self.jinx, self.known) < Effect::Write
            && !reaches(step, self.known, &|action| matches!(action, Action::Llm(_)))
    }
}

/// Whether a step may look at the result of one before it, or has the same name.
fn needs(step: &Step, before: &Step) -> bool {
    let results = [before.name.as_str(), "output"];
    let looks =
        |code: &str, around: bool| around || results.iter().any(|name| words(code, name).next().is_some());
    let implicit = match &step.action {
        Action::Bash { code } => {
            let around = LOOKS_AROUND.iter().any(|word| words(code, word).next().is_some());
            looks(code, around || code.contains("${!") || code.contains("./"))
        }
        // `output` is also what a program gives; whether it is read before can't be told by its
        // words.
        Action::Python { code } => {
            let around = ["context", "globals", "locals", "vars", "eval", "exec"];
            looks(code, around.iter().any(|word| words(code, word).next().is_some()))
        }
        _ => false,
    };
    let uses = texts(step).into_iter().map(Text::uses);
    let explicit = uses
        .into_iter()
        .any(|used| used.map_or(true, |used| used.iter().any(|used| results.contains(&root(&used.path)))));
    implicit || explicit || step.name == before.name
}
