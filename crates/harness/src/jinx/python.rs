//! What a Python step finds without importing it, and what it may lack.

use serde::Deserialize;

use crate::types::Location;

/// Modules that are there without an import.
pub const MODULES: [&str; 8] = ["json", "math", "os", "random", "re", "subprocess", "sys", "time"];
/// What a step knows of the NPC that it works for, as keys and as attributes of `npc`.
pub const NPC: [&str; 2] = ["name", "directive"];

/// Something that a jinx needs and that is not here, so that it can't run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What kind of thing.
    pub kind: Need,
    /// What it is called.
    pub name: String,
    /// Where it is needed first.
    pub location: Location,
}

/// Kinds of things that a jinx needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// A program.
    Program,
    /// A Python module: a package, or a file of one.
    Module,
    /// A name that a Python step uses and that nothing defines.
    Name,
    /// An attribute of something that a Python step is given: `npc.model`.
    Attribute,
    /// A jinx that can't run itself.
    Jinx,
}

/// What is missing, in words: "the Python modules `a` and `b`, the name `c`".
pub fn told(missing: &[Missing]) -> String {
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
        assert_eq!(told(&all), "the Python modules `a`, `b` and `c`, the name `state`, `npc.model`");
        assert_eq!(told(&all[1..2]), "the Python module `a`");
        assert_eq!(told(&[]), "");
    }
}
