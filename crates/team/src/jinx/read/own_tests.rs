//! The key `tests` of a jinx.

use super::Reader;
use crate::jinx::test::{Expected, Test};
use crate::yaml::{self, Node};

impl Reader<'_> {
    /// The tests; an invalid one is reported and left out.
    pub(super) fn tests(&mut self, node: &Node) -> Vec<Test> {
        let Some(items) = node.items() else {
            self.warning(node.location, format!("`tests` is a list, not {}", node.describe()));
            return Vec::new();
        };
        items.iter().enumerate().filter_map(|(index, item)| self.test(index, item)).collect()
    }

    fn test(&mut self, index: usize, node: &Node) -> Option<Test> {
        let Some(entries) = node.entries() else {
            self.warning(node.location, format!("a test is a mapping, not {}", node.describe()));
            return None;
        };
        for entry in entries {
            self.known(
                entry.location,
                &entry.key,
                &["id", "name", "type", "description", "inputs", "expected"],
            );
        }
        let id = node.get("id").or_else(|| node.get("name")).and_then(|id| self.text(id, "id"));
        let inputs = node.get("inputs").and_then(Node::entries).map(yaml::map).unwrap_or_default();
        let expected = node.get("expected").and_then(Node::entries).unwrap_or_default();
        let expected = expected.iter().filter_map(|entry| {
            let value = &entry.value;
            Some(match entry.key.as_str() {
                "success" => Expected::Success(self.flag(value, "success")?),
                "output_contains" => Expected::OutputContains(self.text(value, "output_contains")?),
                "output_not_contains" => {
                    Expected::OutputNotContains(self.text(value, "output_not_contains")?)
                }
                "output_equals" => Expected::OutputEquals(self.text(value, "output_equals")?),
                "output_regex" => Expected::OutputRegex(self.text(value, "output_regex")?),
                "max_duration_ms" => match value.value().as_u64() {
                    Some(most) => Expected::MaxDurationMs(most),
                    None => {
                        self.warning(value.location, "`max_duration_ms` is a whole number");
                        return None;
                    }
                },
                key => {
                    let known = [
                        "success",
                        "output_contains",
                        "output_not_contains",
                        "output_equals",
                        "output_regex",
                        "max_duration_ms",
                    ];
                    self.known(entry.location, key, &known);
                    return None;
                }
            })
        });
        let expected = expected.collect();
        Some(Test { id: id.unwrap_or_else(|| format!("test_{}", index + 1)), inputs, expected })
    }
}
