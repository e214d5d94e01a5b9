//! A skill: texts that an agent may read, as a folder with a `SKILL.md` (agentskills.io).
//!
//! This module converts such a file into a jinx that serves its sections.
//! It must not know how a section is looked up.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::fields::{Fields, is_name};
use crate::jinx::{Action, Input, Jinx, Kind, Skill, Step};
use crate::markdown::{head, sections};
use crate::source::Source;
use crate::types::{Diagnostic, Effect};
use crate::yaml::Node;

/// How long its only step may take: it just joins texts.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The name of the file.
pub const FILE: &str = "SKILL.md";

/// Whether a file belongs to a skill: other tools also read `skill.md`.
pub fn is_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(FILE))
}

/// Most characters of a name.
const NAME: usize = 64;
/// Most characters of a description.
const DESCRIPTION: usize = 1024;
/// Most characters of the note on compatibility.
const COMPATIBILITY: usize = 500;
/// Most lines of the text: longer texts belong into other files of the skill.
const LINES: usize = 500;
/// Words that request something other than a section.
const WORDS: [&str; 3] = ["all", "list", "meta"];

/// Reads a skill from the folder `folder`, which contains `files`.
/// Existing files leave out parts that the standard requires.
/// A missing name is the folder's, and any other deviation is a warning.
/// `None` if it is unusable, with an error.
pub fn read(
    source: &Source,
    folder: &str,
    files: Vec<String>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Jinx> {
    let (head, body) = head(source, diagnostics).map_err(|error| diagnostics.push(error)).ok()?;
    let has_head = head.is_some();
    let node = match head {
        Some(node) => node,
        None => {
            diagnostics.push(source.warning(
                Default::default(),
                "a skill begins with its name and description between two lines `---`",
            ));
            Node::parse(&Source { path: source.path.clone(), text: String::new() }, diagnostics).ok()?
        }
    };
    let mut fields = Fields::new(source, &node, diagnostics)?;
    let name_place = fields.location("name");
    let name = fields.text(&["name"]);
    let description_place = fields.location("description");
    let description = fields.text(&["description"]).unwrap_or_default();
    let compatibility = fields.text(&["compatibility"]).unwrap_or_default();
    let compatibility_place = fields.location("compatibility");
    fields.know(&["license", "metadata", "allowed-tools", "scripts", "references", "assets", "file_context"]);

    if name.is_none() && has_head {
        fields.warning(name_place, format!("a skill has a name; that of its folder is taken: `{folder}`"));
    }
    let name = name.unwrap_or_else(|| folder.to_owned());
    // All problems of the file are reported, even if it is unusable.
    let usable = is_name(&name);
    if !usable {
        fields.error(name_place, format!("the name `{name}` is not made of letters, digits, `_` and `-`"));
    }
    let standard = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
        && name.len() <= NAME;
    if usable && !standard {
        let rule = format!("a skill's name is made of a–z, 0–9 and single `-`, at most {NAME}");
        fields.warning(name_place, format!("{rule}: `{name}`"));
    }
    if usable && name != folder {
        fields
            .warning(name_place, format!("the skill `{name}` lies in a folder of another name: `{folder}`"));
    }
    if description.is_empty() {
        fields.warning(description_place, "without a description nobody knows when to read the skill");
    }
    for (what, text, most, location) in [
        ("description", &description, DESCRIPTION, description_place),
        ("compatibility", &compatibility, COMPATIBILITY, compatibility_place),
    ] {
        let length = text.chars().count();
        if length > most {
            fields.warning(location, format!("the {what} has {length} characters, more than {most}"));
        }
    }
    let lines = body.lines().count();
    if lines > LINES {
        fields.warning(
            Default::default(),
            format!("the text has {lines} lines, more than {LINES}: put parts of it into files beside it"),
        );
    }
    let (introduction, sections) = sections(body);
    for (index, (title, _)) in sections.iter().enumerate() {
        if WORDS.contains(&title.to_lowercase().as_str()) {
            fields.warning(
                Default::default(),
                format!("the section `{title}` can't be asked for: that word means something else"),
            );
        }
        if sections[..index].iter().any(|(other, _)| other == title) {
            fields.warning(
                Default::default(),
                format!("there are two sections `{title}`; the first one is found"),
            );
        }
    }
    fields.unknown();
    usable.then(|| jinx(source, name, &description, Skill { introduction, sections, files }))
}

/// The jinx that serves a skill's texts.
fn jinx(source: &Source, name: String, description: &str, skill: Skill) -> Jinx {
    let titles: Vec<&str> = skill.sections.iter().map(|(title, _)| title.as_str()).collect();
    let described = match titles.is_empty() || description.contains("[Sections:") {
        true => description.to_owned(),
        false => format!("{description} [Sections: {}]", titles.join(", ")).trim().to_owned(),
    };
    Jinx {
        name,
        description: described,
        inputs: vec![Input {
            name: "section".to_owned(),
            kind: Kind::String,
            description: "A section, or `all`, or `list`".to_owned(),
            default: Some(Value::from("all")),
            choices: Default::default(),
        }],
        effect: Effect::None,
        timeout: TIMEOUT,
        skill: Some(skill),
        steps: vec![Step {
            name: "text".to_owned(),
            action: Action::Text { text: Value::from("{{ skill | section(section) }}") },
            retry: None,
            cache: None,
            timeout: None,
            location: Default::default(),
        }],
        path: source.path.clone(),
        ..Jinx::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(folder: &str, text: &str) -> (Option<Jinx>, Vec<String>) {
        let mut diagnostics = Vec::new();
        let source = Source { path: format!("{folder}/SKILL.md").into(), text: text.into() };
        let jinx = super::read(&source, folder, vec!["scripts/x.sh".into()], &mut diagnostics);
        (jinx, diagnostics.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_folder_becomes_a_jinx() {
        let text = "---\nname: git-work\ndescription: How we use git.\nlicense: MIT\nmetadata: {a: b}\n---\n\
                    # Git\n\nFirst.\n\n## commits\n\nSmall.\n\n### deep\nx\n\n## merging\nSquash.\n";
        let (jinx, diagnostics) = read("git-work", text);
        let jinx = jinx.unwrap();
        assert_eq!(diagnostics, Vec::<String>::new());
        assert_eq!(
            (jinx.name.as_str(), jinx.description.as_str(), jinx.effect),
            ("git-work", "How we use git. [Sections: commits, merging]", Effect::None)
        );
        let skill = jinx.skill.unwrap();
        assert_eq!(skill.introduction, "# Git\n\nFirst.");
        let sections = [("commits", "Small.\n\n### deep\nx"), ("merging", "Squash.")];
        assert_eq!(skill.sections, sections.map(|(title, text)| (title.to_owned(), text.to_owned())));
        assert_eq!(skill.files, ["scripts/x.sh"]);
        assert_eq!((jinx.inputs[0].name.as_str(), &jinx.inputs[0].default), ("section", &Some("all".into())));
    }

    #[test]
    fn what_is_not_by_the_rules() {
        let check = |folder: &str, text: &str, expected: &[&str]| {
            assert_eq!(read(folder, text).1, expected, "{text}");
        };
        check(
            "debugging",
            "---\ndescription: d\n---\n## a\nx\n",
            &["debugging/SKILL.md: warning: a skill has a name; that of its folder is taken: `debugging`"],
        );
        check(
            "a",
            "---\nname: b\ndescription: d\nlicence: x\n---\n",
            &[
                "a/SKILL.md:2:1: warning: the skill `b` lies in a folder of another name: `a`",
                "a/SKILL.md:4:1: warning: unknown key `licence`, did you mean `license`?",
            ],
        );
        check(
            "A_b",
            "---\nname: A_b\n---\n## list\n",
            &[
                "A_b/SKILL.md:2:1: warning: a skill's name is made of a–z, 0–9 and single `-`, at most 64: `A_b`",
                "A_b/SKILL.md: warning: without a description nobody knows when to read the skill",
                "A_b/SKILL.md: warning: the section `list` can't be asked for: that word means something else",
            ],
        );
        let long = format!("---\nname: a\ndescription: {}\n---\n", "x".repeat(1025));
        check("a", &long, &["a/SKILL.md:3:1: warning: the description has 1025 characters, more than 1024"]);
        check(
            "a",
            "---\nname: a\ndescription: Use when: asked\n---\n",
            &["a/SKILL.md:3:1: warning: `description` is no YAML; it is read as a text: put it in quotes"],
        );
        let (jinx, _) = read("a", "---\nname: a\ndescription: Use when: asked\n---\n");
        assert_eq!(jinx.unwrap().description, "Use when: asked");
        assert_eq!(read("a b", "text").0, None);
        assert_eq!(read("a", "---\nname: [\n---\n").0, None);
    }
}
