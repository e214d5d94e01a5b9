//! Static checks of a whole team.

use std::path::Path;

use alara_text::nearest;
use serde_json::Value;

use super::{Team, stock, syntax};
use crate::jinx::check::blocks;
use crate::jinx::{Action, Jinx, Llm, Step, check, read_in_part};
use crate::skill;
use crate::source::Source;
use crate::types::{Diagnostic, Location, Severity};

impl Team {
    /// All problems in the files of the team and of its sub-teams, by file and location.
    /// This includes the results of analysing their jinxes.
    pub fn check(&self) -> Vec<Diagnostic> {
        let mut found = self.diagnostics.clone();
        self.analyse(&mut found);
        // The jinxes of a team also belong to its sub-teams.
        found.sort_by(|left, right| {
            let key = |one: &Diagnostic| (one.path.clone(), one.location, one.message.clone());
            key(left).cmp(&key(right))
        });
        found.dedup();
        found
    }

    /// Whether an NPC of the team or of one below lists a jinx.
    fn reaches(&self, jinx: &str) -> bool {
        self.npcs.iter().any(|npc| npc.jinxes.iter().any(|name| name == jinx))
            || self.teams.iter().any(|team| team.reaches(jinx))
    }

    /// Warns of steps that ask an NPC that the team doesn't have.
    fn addressed(&self, jinx: &Jinx, steps: &[Step], found: &mut Vec<Diagnostic>) {
        for step in steps {
            if let Action::Llm(Llm { npc: Some(Value::String(name)), .. }) = &step.action
                && !name.contains("{{")
                && self.member(name).is_none()
            {
                let known = self.members(None).into_iter().map(|(name, _)| name);
                let near = nearest(name, known).map(|near| format!(", did you mean `{near}`?"));
                let message = format!("the team has no NPC `{name}`{}", near.unwrap_or_default());
                let (path, location, severity) = (jinx.path.clone(), step.location, Severity::Warning);
                found.push(Diagnostic { path, location, severity, message });
            }
            blocks(&step.action).into_iter().for_each(|steps| self.addressed(jinx, steps, found));
        }
    }

    /// The readable parts of the team's unusable jinxes.
    fn broken_jinxes(&self) -> Vec<Jinx> {
        let errors = self.diagnostics.iter().filter(|problem| problem.severity == Severity::Error);
        let files = errors.map(|problem| &problem.path);
        let mut files: Vec<_> =
            files.filter(|path| path.extension().is_some_and(|ending| ending == "jinx")).collect();
        files.dedup();
        let sources = files.into_iter().filter_map(|path| Source::from_file(path).ok());
        sources.filter_map(|source| read_in_part(&source, &mut Vec::new())).collect()
    }

    /// Whether everything that is wrong in the file of an unusable jinx is before its steps, so
    /// that these are known.
    fn reads_the_steps_of(&self, jinx: &Jinx) -> bool {
        let first = jinx.steps.iter().map(|step| step.location.line).min();
        let errors = self.diagnostics.iter().filter(|problem| problem.path == jinx.path);
        first.is_some_and(|first| {
            errors
                .filter(|problem| problem.severity == Severity::Error)
                .all(|problem| problem.location.line < first)
        })
    }

    fn analyse(&self, found: &mut Vec<Diagnostic>) {
        let store: Vec<&str> = self.store.keys().map(String::as_str).collect();
        let is_own = |jinx: &Jinx| self.directory.as_ref().is_none_or(|own| jinx.path.starts_with(own));
        let (all, none): (&[&str], &[&str]) = (&store, &[]);
        let keys = |jinx: &Jinx| if is_own(jinx) { all } else { none };
        let unusable = |name: &str| unusable(name, &self.diagnostics).is_some();
        found.extend(check(&self.jinxes, &unusable, &keys, &text_of));
        // The programs of an unusable file are checked all the same.
        let broken = self.broken_jinxes();
        let own = self.jinxes.iter().filter(|jinx| is_own(jinx));
        found.extend(syntax::check(own.chain(&broken), &text_of));
        for jinx in broken.iter().filter(|jinx| self.reads_the_steps_of(jinx)) {
            let with_it: Vec<Jinx> = self.jinxes.iter().chain([jinx]).cloned().collect();
            let all = check(&with_it, &unusable, &keys, &text_of);
            found.extend(all.into_iter().filter(|problem| problem.path == jinx.path));
            self.addressed(jinx, &jinx.steps, found);
        }
        let own = |jinx: &&Jinx| self.directory.is_some() && is_own(jinx);
        let undescribed = |jinx: &&Jinx| jinx.description.is_empty() && self.reaches(&jinx.name);
        found.extend(self.jinxes.iter().filter(own).filter(undescribed).map(undescribed_jinx));
        for jinx in self.jinxes.iter().filter(own) {
            self.addressed(jinx, &jinx.steps, found);
        }
        for jinx in self.jinxes.iter().filter(own).filter(|jinx| jinx.hidden && !self.reaches(&jinx.name)) {
            let message = format!(
                "no NPC can unlock the hidden jinx `{}`: list it under `jinxes` of those that may",
                jinx.name
            );
            let (path, severity) = (jinx.path.clone(), Severity::Warning);
            found.push(Diagnostic { path, location: Location::default(), severity, message });
        }
        self.teams.iter().for_each(|team| team.analyse(found));
    }
}

/// The diagnostic for a jinx without a description.
pub(super) fn undescribed_jinx(jinx: &Jinx) -> Diagnostic {
    let message = format!("`{}` has no `description`: a model chooses its tools by theirs", jinx.name);
    let (path, severity) = (jinx.path.clone(), Severity::Warning);
    Diagnostic { path, location: Location::default(), severity, message }
}

/// The file of a jinx or an NPC of this name, if one of the errors is about it.
/// Then a reference to the name is correct, and the file's own error tells what to fix.
pub(super) fn unusable<'a>(name: &str, diagnostics: &'a [Diagnostic]) -> Option<&'a Path> {
    let named = |path: &Path| match path.file_name().is_some_and(|file| file == skill::FILE) {
        true => path.parent().and_then(Path::file_name).is_some_and(|folder| folder == name),
        false => {
            let ending = path.extension().and_then(|ending| ending.to_str());
            matches!(ending, Some("jinx" | "npc" | "md")) && path.file_stem().is_some_and(|stem| stem == name)
        }
    };
    let errors = diagnostics.iter().filter(|problem| problem.severity == Severity::Error);
    errors.map(|problem| problem.path.as_path()).find(|path| named(path))
}

/// The text of a jinx's file, on disk or built in.
pub(super) fn text_of(path: &Path) -> Option<String> {
    let built_in = || stock::JINXES.get_file(path.strip_prefix("jinxes").ok()?)?.contents_utf8();
    let on_disk = Source::from_file(path).ok().map(|source| source.text);
    on_disk.or_else(|| built_in().map(str::to_owned))
}
