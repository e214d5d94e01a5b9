//! The names that a Python step can use without importing them, and its missing needs.

use serde::Deserialize;

use crate::types::Location;

/// Modules that are available without an import.
pub const MODULES: [&str; 8] = ["json", "math", "os", "random", "re", "subprocess", "sys", "time"];
/// The facts about its NPC that a step can use, as keys and as attributes of `npc`.
pub const NPC: [&str; 2] = ["name", "directive"];

/// Something that a jinx needs and that is missing here, so that it can't run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its kind.
    pub kind: Need,
    /// Its name.
    pub name: String,
    /// Where it is first needed.
    pub location: Location,
}

/// The kinds of needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// A program.
    Program,
    /// A Python module: a package, or a single file.
    Module,
    /// An undefined name in a Python step.
    Name,
    /// An attribute of an object that a Python step gets: `npc.model`.
    Attribute,
    /// A jinx that itself can't run.
    Jinx,
}

/// The missing needs, in words: "the Python modules `a` and `b`, the name `c`".
pub(crate) fn describe_missing(missing: &[Missing]) -> String {
    let kinds = [
        (Need::Program, "", ""),
        (Need::Module, "the Python module ", "the Python modules "),
        (Need::Name, "the name ", "the names "),
        (Need::Attribute, "", ""),
        (Need::Jinx, "the jinx ", "the jinxes "),
    ];
    let told = kinds.iter().filter_map(|(kind, one, several)| {
        let of_kind = missing.iter().filter(|missing| missing.kind == *kind);
        let names: Vec<String> = of_kind.map(|missing| format!("`{}`", missing.name)).collect();
        match names.split_last()? {
            (last, []) => Some(format!("{one}{last}")),
            (last, before) => Some(format!("{several}{} and {last}", before.join(", "))),
        }
    });
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_in_words() {
        let missing =
            |kind, name: &str| Missing { kind, name: name.to_owned(), location: Location::default() };
        let all = [
            missing(Need::Name, "state"),
            missing(Need::Module, "a"),
            missing(Need::Module, "b"),
            missing(Need::Attribute, "npc.model"),
            missing(Need::Module, "c"),
        ];
        assert_eq!(
            describe_missing(&all),
            "the Python modules `a`, `b` and `c`, the name `state`, `npc.model`"
        );
        assert_eq!(describe_missing(&all[1..2]), "the Python module `a`");
        assert_eq!(describe_missing(&[]), "");
    }
}
