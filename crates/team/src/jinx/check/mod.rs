//! Static checks of jinxes: undefined names, steps that never run, calls that can't work, cycles.
//!
//! This module checks whole sets of jinxes.
//! It must not know how files are read or how steps are run.

mod calls;
mod cycles;
mod effects;
mod flow;
mod locations;
mod names;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;

use alara_text::nearest;

use super::{Jinx, Step};
use crate::types::{Diagnostic, Location, Severity};

use effects::effect;
pub use effects::reaches;
pub(crate) use locations::of_piece;
pub use names::{blocks, guarded, words};

/// Jinxes by name and by reference.
pub struct Known<'a> {
    jinxes: BTreeMap<&'a str, &'a Jinx>,
    /// Whether there is a jinx of this name whose file is unusable.
    unusable: &'a dyn Fn(&str) -> bool,
}

impl<'a> Known<'a> {
    /// A name takes precedence over a reference.
    pub fn new(jinxes: &'a [Jinx]) -> Self {
        let references = jinxes.iter().filter(|jinx| !jinx.reference.is_empty());
        let mut known: BTreeMap<&str, &Jinx> =
            references.map(|jinx| (jinx.reference.as_str(), jinx)).collect();
        known.extend(jinxes.iter().map(|jinx| (jinx.name.as_str(), jinx)));
        Known { jinxes: known, unusable: &|_| false }
    }

    /// The jinx with this name or reference.
    pub fn get(&self, name: &str) -> Option<&'a Jinx> {
        self.jinxes.get(name).copied()
    }

    /// Why a name refers to no jinx; nothing if that jinx's own file has the error.
    fn lack(&self, name: &str) -> Option<String> {
        let last = name.rsplit('/').next().unwrap_or(name);
        let hint = || hint(name, self.jinxes.keys().copied());
        (!(self.unusable)(last)).then(|| format!("there is no jinx `{name}`{}", hint()))
    }
}

/// Checks a set of jinxes, which may call each other, those whose files are `unusable`, and nothing
/// else.
/// `store` returns the keys of the team's store that a jinx should know, if the team declares any
/// and the jinx is its own.
/// A jinx from elsewhere may use other keys.
/// `text_of` returns the text of a file, to determine exact locations; without it they are those of
/// the steps.
pub fn check<'a>(
    jinxes: &[Jinx],
    unusable: &dyn Fn(&str) -> bool,
    store: &dyn Fn(&Jinx) -> &'a [&'a str],
    text_of: &dyn Fn(&Path) -> Option<String>,
) -> Vec<Diagnostic> {
    let known = Known { unusable, ..Known::new(jinxes) };
    let mut diagnostics = Vec::new();
    for jinx in jinxes {
        let mut report = Report { jinx, text_of, text: OnceCell::new(), diagnostics: &mut diagnostics };
        flow::check(jinx, &known, store(jinx), &mut report);
    }
    cycles::check(jinxes, &known, text_of, &mut diagnostics);
    diagnostics.sort_by(|left, right| (&left.path, left.location).cmp(&(&right.path, right.location)));
    diagnostics.dedup();
    diagnostics
}

/// Collects the diagnostics of one jinx.
struct Report<'a> {
    jinx: &'a Jinx,
    text_of: &'a dyn Fn(&Path) -> Option<String>,
    text: OnceCell<Option<String>>,
    diagnostics: &'a mut Vec<Diagnostic>,
}

impl Report<'_> {
    fn file(&self) -> Option<&str> {
        self.text.get_or_init(|| (self.text_of)(&self.jinx.path)).as_deref()
    }

    fn say(&mut self, severity: Severity, location: Location, message: String) {
        self.diagnostics.push(Diagnostic { path: self.jinx.path.clone(), location, severity, message });
    }

    /// Reports an error in a step as a whole.
    fn error(&mut self, step: &Step, message: String) {
        self.say(Severity::Error, step.location, message);
    }

    /// Warns of a step as a whole.
    fn warning(&mut self, step: &Step, message: String) {
        self.say(Severity::Warning, step.location, message);
    }

    /// Reports a name in one of a step's texts.
    fn name(&mut self, severity: Severity, step: Location, text: &str, name: &str, message: String) {
        let location = self.file().map_or(step, |file| locations::of_name(file, step, text, name));
        self.say(severity, location, message);
    }

    /// Reports a piece of one of a step's texts.
    fn piece(&mut self, step: Location, piece: &str, message: String) {
        let location = self.file().map_or(step, |file| locations::of_piece(file, step, piece));
        self.say(Severity::Error, location, message);
    }
}

fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
