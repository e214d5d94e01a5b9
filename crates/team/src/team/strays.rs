//! Finds files that look like rules of a team, a jinx or a skill, but that alara doesn't read.
//!
//! The author of `permissions.yml` relies on it, so no NPC of the team runs until it has the right
//! name.

use std::path::Path;

use alara_text::resembles;

use super::files::{File, Folder, problem};
use crate::skill;
use crate::types::Diagnostic;

/// Keys with binding rules; a similar name among a team's files is an error.
const BINDING: [&str; 5] = ["gate", "hooks", "limits", "permissions", "phases"];
/// Words that only look like one of them.
const OTHER_WORDS: [&str; 2] = ["phrase", "phrases"];
/// Extensions of files that may hold such keys.
const ENDINGS: [&str; 7] = ["", "ctx", "json", "toml", "txt", "yaml", "yml"];
const RULES: &str = "permissions.yaml";

/// The binding key that a word resembles.
pub(crate) fn binding(word: &str) -> Option<&'static str> {
    if OTHER_WORDS.contains(&word) {
        return None;
    }
    // Such as `permission_rules`.
    let word = word.trim();
    let is_long = word.to_lowercase().contains("permission") || ["perm", "perms"].contains(&word);
    BINDING.into_iter().find(|key| resembles(word, key) || (is_long && *key == "permissions"))
}

/// Files in a team's folder that look like rules, as errors.
pub fn rules(folder: &Folder) -> Vec<Diagnostic> {
    let stray = |file: &File| Some(problem(&file.path, why(&file.path)?));
    let is_rules = |folder: &&Folder| binding(&folder.name()) == Some("permissions");
    let (folders, _) = folder.contents(&mut Vec::new());
    let below: Vec<File> = folders.iter().filter(is_rules).flat_map(Folder::files_below).collect();
    let why_not =
        format!("nothing reads this file, so nobody of the team runs: rules are read from `{RULES}`");
    let lost = below.iter().map(|file| problem(&file.path, why_not.clone()));
    folder.all_files().iter().filter_map(stray).chain(lost).collect()
}

/// Why a file has no effect, if it looks like a rule.
fn why(path: &Path) -> Option<String> {
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, ending) = (part(path.file_stem()), part(path.extension()));
    if path.file_name().is_some_and(|name| name == RULES) {
        return None;
    }
    let lost = "nothing reads this file, so nobody of the team runs";
    if ending != "gate" && !ending.is_empty() && resembles(&ending, "gate") {
        return Some(format!("{lost}: rename it to `{stem}.gate`, or remove it"));
    }
    let is_hidden_gate = ending == "gate" && stem.starts_with('.');
    if is_hidden_gate {
        return Some(format!("{lost}: rename it to `{}.gate`, or remove it", stem.trim_start_matches('.')));
    }
    // `.permissions` is all stem, and in `permissions.yaml.txt` the first part counts.
    let name = stem.trim_start_matches('.');
    let name = name.split('.').next().unwrap_or(name);
    // A `.ctx` of any name may be the team's own.
    if !ENDINGS.contains(&ending.trim().to_lowercase().as_str())
        || (ending == "ctx" && !stem.starts_with('.'))
    {
        return None;
    }
    Some(match binding(name)? {
        "permissions" => format!("{lost}: rules are read from `{RULES}`, so rename or remove it"),
        "gate" => format!("{lost}: a gate is a file `NAME.gate`, so rename or remove it"),
        key => format!("{lost}: `{key}` is a key of the team's .ctx file, so move it there, or remove it"),
    })
}

/// Jinxes and skills in places of a team's folder that alara doesn't read, as errors.
/// `skills` is the folder of skills that the `.ctx` names.
pub fn jinxes(folder: &Folder, skills: Option<&str>) -> Vec<Diagnostic> {
    let (folders, files) = folder.contents(&mut Vec::new());
    let is_jinx = |file: &File| file.path.extension().is_some_and(|ending| ending == "jinx");
    let is_read = |folder: &Folder| {
        let name = folder.name();
        ["jinxes", "jinxs"].contains(&name.as_str())
            || skills.is_some_and(|path| Path::new(path).starts_with(&name))
    };
    let elsewhere = folders.iter().filter(|folder| !is_read(folder) && resembles_folder(&folder.name()));
    let below = elsewhere.flat_map(Folder::files_below);
    let stray = files.into_iter().chain(below).filter(|file| is_jinx(file) || skill::is_file(&file.path));
    let why = "nothing reads it here: jinxes and skills are read from the team's folder `jinxes`, so move it";
    stray.map(|file| problem(&file.path, why.to_owned())).collect()
}

/// Whether a folder's name resembles that of a folder for jinxes or skills.
fn resembles_folder(name: &str) -> bool {
    ["jinxes", "jinx", "skills"].iter().any(|word| resembles(name, word))
}
