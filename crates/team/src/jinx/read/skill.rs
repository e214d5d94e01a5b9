//! Reads skills written as jinxes: literal sections, in the file or in a step `engine: skill`.

use serde_json::{Map, Value};

use super::Reader;
use crate::jinx::{Action, Choices, Input, Jinx, Kind, Skill, Step};
use crate::types::Location;
use crate::yaml::{Entry, Kind as Shape, Node};

/// The expression for the requested section, unless a step sets another one.
pub(super) const SECTION: &str = "section";

/// The keys of a skill step.
pub(super) const KEYS: [&str; 7] = [
    "skill_name",
    "skill_description",
    "sections",
    "section",
    "scripts_json",
    "references_json",
    "assets_json",
];

/// A step that returns a section of the jinx's own texts.
pub(super) fn serve(section: &str, location: Location) -> Step {
    let text = Value::from(format!("{{{{ skill | section({section}) }}}}"));
    Step {
        name: "step_1".to_owned(),
        action: Action::Text { text },
        retry: None,
        cache: None,
        timeout: None,
        location,
    }
}

/// Adds the input for a section, which every skill has, declared or not.
pub(super) fn add_input(jinx: &mut Jinx) {
    if jinx.inputs.iter().all(|input| input.name != SECTION) {
        jinx.inputs.push(Input {
            name: SECTION.to_owned(),
            kind: Kind::String,
            description: String::new(),
            default: Some("all".into()),
            choices: Choices::Any,
        });
    }
}

impl Reader<'_> {
    /// The skill of a step or a file.
    pub(super) fn skill_of(&mut self, sections: &Node, node: &Node) -> Option<Skill> {
        let sections = self.sections(sections)?;
        let lists = ["scripts_json", "references_json", "assets_json"].iter().filter_map(|key| node.get(key));
        let files = lists.flat_map(|list| match &list.kind {
            Shape::Scalar(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
            _ => list.value().as_array().cloned().unwrap_or_default(),
        });
        let files = files.filter_map(|file| file.as_str().map(str::to_owned)).collect();
        Some(Skill { introduction: String::new(), sections, files })
    }

    /// A step `engine: skill` with literal sections.
    pub(super) fn skill_step(&mut self, node: &Node, sections: &Node) -> Option<Action> {
        if self.skill.is_some() {
            self.error(node.location, "a jinx serves the sections of one skill, this is another one");
            return None;
        }
        self.skill = Some(self.skill_of(sections, node)?);
        let section = match node.get("section") {
            None => SECTION.to_owned(),
            Some(section) => {
                let text = self.text(section, "section")?;
                let inner = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
                inner.map_or_else(|| Value::from(text.as_str()).to_string(), |inner| inner.trim().to_owned())
            }
        };
        Some(serve(&section, node.location).action)
    }

    /// Title and text of each section: a mapping, or one as JSON, or as JSON in base64.
    fn sections(&mut self, node: &Node) -> Option<Vec<(String, String)>> {
        match &node.kind {
            Shape::Map(entries) => {
                let section = |Entry { key, value, .. }: &Entry| {
                    let text =
                        if value.is_null() { Some(String::new()) } else { self.text(value, "sections") };
                    text.map(|text| (key.clone(), text.trim_end().to_owned()))
                };
                Some(entries.iter().filter_map(section).collect())
            }
            Shape::Scalar(Value::String(text)) => {
                let decoded = || serde_json::from_slice(&base64(text.trim())?).ok();
                let map: Option<Map<String, Value>> = serde_json::from_str(text).ok().or_else(decoded);
                if map.is_none() {
                    self.error(
                        node.location,
                        "`sections` is a mapping of titles to texts, or one as JSON or base64",
                    );
                }
                let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                map.map(|map| map.iter().map(|(title, value)| (title.clone(), text(value))).collect())
            }
            _ => {
                self.error(
                    node.location,
                    format!("`sections` is a mapping of titles to texts, not {}", node.describe()),
                );
                None
            }
        }
    }
}

/// Decodes base64 (RFC 4648, with or without padding).
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for character in text.trim_end_matches('=').bytes() {
        let six = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(six), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_standard() {
        // The test vectors of RFC 4648, section 10.
        let check = |text: &str, expected: Option<&str>| assert_eq!(base64(text), expected.map(Into::into));
        check("", Some(""));
        check("Zg==", Some("f"));
        check("Zm8=", Some("fo"));
        check("Zm9v", Some("foo"));
        check("Zm9vYmE", Some("fooba"));
        check("Zm9vYmFy", Some("foobar"));
        check("{}", None);
    }
}
