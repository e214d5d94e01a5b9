//! docs/teams.md: compares its table of built-in tools with the jinxes that ship.

use std::collections::BTreeMap;

use alara_harness::Team;

/// Returns the text in backticks, piece by piece, and whether each is in parentheses.
fn quoted(cell: &str) -> Vec<(String, bool)> {
    let parts: Vec<&str> = cell.split('`').collect();
    let pieces = parts.windows(2).step_by(2).map(|two| (two[1].to_owned(), two[0].ends_with('(')));
    pieces.collect()
}

/// Inputs of a tool, each with whether it may be left out.
type Inputs = Vec<(String, bool)>;

#[test]
fn every_built_in_tool_and_its_inputs_are_in_the_table() {
    let page = std::fs::read_to_string(crate::root().join("docs/teams.md")).unwrap();
    let (_, section) = page.split_once("### Built-in tools\n").unwrap();
    let section = section.split("\n### ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let mut documented: BTreeMap<String, Inputs> = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        for (name, _) in quoted(cells[1]) {
            let before = documented.insert(name, quoted(cells[2]));
            assert!(before.is_none(), "two rows for one tool: {row}");
        }
    }
    let team = Team::stock("alara").unwrap();
    let tools = team.jinxes.iter().filter(|jinx| jinx.skill.is_none());
    let shipped: BTreeMap<String, Inputs> = tools
        .map(|jinx| {
            let inputs = jinx.inputs.iter().map(|input| (input.name.clone(), input.default.is_some()));
            (jinx.name.clone(), inputs.collect())
        })
        .collect();
    assert_eq!(documented, shipped);
}
