//! Suggests, in one line, a better model for this machine than the one that ships.

use std::time::Duration;

use alara_harness::trace::make_directory;
use alara_models::{Entry, Machine, catalog, local};

use crate::facts::FileFacts;
use crate::{config, state, ui};

/// Maximum number of files outside the catalog to inspect.
const LOOKED_INTO: usize = 3;

/// A model on this machine that calls tools.
struct Here {
    /// The name to pass to `-m`.
    name: String,
    bytes: u64,
}

/// Time after which the advice is given again.
const AGAIN: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the advice of [`better`] unless it was given within a day.
/// The time of a file in the state directory remembers that; without such a directory, nothing
/// does.
pub fn once_a_day() -> Option<String> {
    let given = state::directory().map(|state| state.join("advice"));
    let age = given.as_deref().and_then(|path| path.metadata().ok()?.modified().ok()?.elapsed().ok());
    if age.is_some_and(|age| age < AGAIN) {
        return None;
    }
    if let Some(path) = given {
        let _ = path.parent().map(make_directory);
        let _ = std::fs::write(path, "");
    }
    Some(better())
}

/// Names the best model for this machine's memory and GPU, and how to get it: with `-m` if it is
/// already here, else with `alara models pull`.
fn better() -> String {
    let (machine, entries) = (Machine::this(), catalog::entries().unwrap_or_default());
    told(&machine, entries, here(&machine, entries).as_ref())
}

fn told(machine: &Machine, entries: &[Entry], here: Option<&Here>) -> String {
    let choice = machine.choice(entries);
    let get = |choice: &Entry| {
        let size = choice.size.map_or_else(String::new, |size| format!(" ({})", ui::bytes(size)));
        (size, format!("`alara models pull {}`", choice.name))
    };
    match (here, choice) {
        (Some(here), Some(choice)) if here.name != choice.name && choice.size > Some(here.bytes) => {
            let (size, get) = get(choice);
            format!(
                "a better one is on this machine: -m {}; the one for this machine{size}: {get}",
                here.name
            )
        }
        (Some(here), _) => format!("a better one is on this machine: -m {}", here.name),
        (None, Some(choice)) => {
            let (size, get) = get(choice);
            format!("a better one for this machine{size}: {get}, then -m {}", choice.name)
        }
        (None, None) => "a better one: -m MODEL, `alara models list`".to_owned(),
    }
}

/// The largest model here that fits, calls tools, and is not known to be too slow.
fn here(machine: &Machine, entries: &[Entry]) -> Option<Here> {
    let mut models = local::models(config::model_file()).unwrap_or_default();
    models.retain(|model| model.missing.is_empty() && machine.holds(model.bytes) != Some(false));
    models.sort_by_key(|model| std::cmp::Reverse(model.bytes));
    let (known, other): (Vec<_>, Vec<_>) = models.into_iter().partition(|model| model.catalog.is_some());
    let known = known.into_iter().find_map(|model| {
        let entry = entries.iter().find(|entry| model.catalog.as_ref() == Some(&entry.name))?;
        let name = entry.name.clone();
        (entry.tools && machine.is_bearable(entry)).then_some(Here { name, bytes: model.bytes })
    });
    known.or_else(|| {
        let facts = FileFacts::new(|_| None);
        other.into_iter().take(LOOKED_INTO).find_map(|model| {
            let facts = facts.of(Some(model.path.to_str()?))?;
            facts.capabilities.contains(&"tools").then_some(Here { name: model.name, bytes: model.bytes })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_by_machine_and_by_what_is_here() {
        let entries = catalog::entries().unwrap();
        let machine = Machine { memory: Some(16_700_000_000), threads: 8, gpu: None };
        let here = |name: &str, bytes| Some(Here { name: name.into(), bytes });
        let check = |machine: &Machine, here: Option<Here>, expected: &str| {
            let line = told(machine, entries, here.as_ref());
            assert_eq!(line, expected);
            assert!(!line.contains('\n'));
        };
        let pull = "`alara models pull qwen3.5-9b`";
        check(
            &machine,
            None,
            &format!("a better one for this machine (5.3 GiB): {pull}, then -m qwen3.5-9b"),
        );
        check(&machine, here("qwen3.5-9b", 5_680_522_464), "a better one is on this machine: -m qwen3.5-9b");
        check(
            &machine,
            here("qwen3-4b", 2_497_281_312),
            &format!(
                "a better one is on this machine: -m qwen3-4b; the one for this machine (5.3 GiB): {pull}"
            ),
        );
        check(
            &machine,
            here("o/r:large.gguf", 9_000_000_000),
            "a better one is on this machine: -m o/r:large.gguf",
        );
        let small = Machine { memory: Some(2 << 30), threads: 1, gpu: None };
        check(&small, None, "a better one: -m MODEL, `alara models list`");
        let gpu = Machine { gpu: Some(("GPU".into(), 24 << 30)), ..machine };
        check(
            &gpu,
            None,
            "a better one for this machine (20.8 GiB): `alara models pull qwen3.5-35b-a3b`, then -m qwen3.5-35b-a3b",
        );
    }
}
