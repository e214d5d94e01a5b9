//! Finds models that a team's files name and this machine lacks.
//! Another machine may have them, so these are only warnings.

use std::path::{Path, PathBuf};

use alara_harness::model::endpoint::Address;
use alara_harness::source::Source;
use alara_harness::{Diagnostic, Location, ModelSpec, Severity, Team};

use super::one_line;
use crate::model;

/// Returns a warning for each model of the team and its sub-teams that isn't available here.
pub fn problems(team: &Team) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let of_team = team.knowledge.iter().map(|knowledge| (None, embedder(knowledge)));
    let of_npcs = team.npcs.iter().flat_map(|npc| {
        let knows = npc.knowledge.iter().map(embedder);
        [local(&npc.model)].into_iter().chain(knows).map(|name| (Some(npc.path.as_path()), name))
    });
    for (file, name) in of_npcs.chain(of_team) {
        let Some((name, error)) = name.and_then(|name| Some((name, missing(name)?))) else { continue };
        let mut files: Vec<PathBuf> = file.into_iter().map(Path::to_owned).collect();
        files.extend(team.directory.iter().flat_map(|folder| contexts(folder)));
        let named = files.iter().find_map(|file| Some((file.clone(), place(file, name)?)));
        let Some((path, location)) = named.or_else(|| Some((files.first()?.clone(), Location::default())))
        else {
            continue;
        };
        let message = one_line(&error);
        found.push(Diagnostic { path, location, severity: Severity::Warning, message });
    }
    found.extend(team.teams.iter().flat_map(problems));
    // Report inherited settings only once.
    found.sort_by(|a, b| (&a.path, a.location, &a.message).cmp(&(&b.path, b.location, &b.message)));
    found.dedup();
    found
}

/// Returns the model's name if the model has to be on this machine.
fn local(spec: &ModelSpec) -> Option<&str> {
    spec.model.as_deref().filter(|_| spec.api_url.is_none())
}

fn embedder(knowledge: &alara_harness::knowledge::Knowledge) -> Option<&str> {
    knowledge.retrieval.embeds().then_some(knowledge.model.as_str())
}

/// Explains why a model isn't available here.
pub fn missing(name: &str) -> Option<anyhow::Error> {
    match name {
        _ if Address::is_meant_by(name) => name.parse::<Address>().err().map(anyhow::Error::from),
        _ if name.starts_with("script:") => None,
        _ => model::place(Some(name)).err(),
    }
}

/// Returns the `.ctx` files of a team.
fn contexts(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|ending| ending == "ctx")).collect()
}

/// Finds where a file names a model: after the key `model`.
fn place(file: &Path, name: &str) -> Option<Location> {
    let text = Source::from_file(file).ok()?.text;
    text.lines().enumerate().find_map(|(index, line)| {
        let key = line.find("model")?;
        let at = key + line[key..].find(name)?;
        Some(Location { line: index + 1, column: line[..at].chars().count() + 1 })
    })
}
