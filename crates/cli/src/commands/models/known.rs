//! `alara models show` for a catalog model that isn't on this machine.

use alara_models::{Entry, Machine, local};
use serde_json::{Value, json};

use super::recommendation::Recommendation;
use crate::screen::one_line;
use crate::ui::{self, bytes};

/// Shows the catalog's data about a model, and how to download it.
pub fn show(entry: &Entry, as_json: bool) -> anyhow::Result<()> {
    let machine = Machine::this();
    if as_json {
        ui::line(&serde_json::to_string_pretty(&described(entry, &machine))?);
    } else {
        print(entry, &machine);
    }
    Ok(())
}

/// Describes the entry as JSON: whether it fits this machine, and that its file isn't here.
fn described(entry: &Entry, machine: &Machine) -> Value {
    let mut described = json!(entry);
    described["fits"] = json!(machine.fits(entry));
    described["path"] = Value::Null;
    described
}

fn print(entry: &Entry, machine: &Machine) {
    let field = |label: &str, text: &str| ui::line(&format!("{label:<16}{}", one_line(text)));
    let unknown = || "not known".to_owned();
    field("file", &format!("{} of {}, not on this machine", entry.file, entry.repository));
    let part = local::cache().ok().and_then(|cache| local::partial(&cache, entry));
    if let Some(part) = part {
        field("", &format!("{} of it are here", bytes(part)));
    }
    field("size", &entry.size.map_or_else(unknown, bytes));
    field("name", &entry.title);
    field("family", &entry.family);
    field("architecture", &entry.architecture);
    field("parameters", &entry.counted());
    field("quantization", &entry.quantization);
    if !entry.is_checkpoint() {
        field("", &format!("others: alara models pull hf:{}:QUANT", entry.repository));
    }
    field("context", &format!("{} tokens", entry.context));
    field("tool calls", if entry.tools { "in a format of its own" } else { "no format of its own" });
    field("license", &entry.license.clone().unwrap_or_else(unknown));
    if let Some(score) = &entry.score {
        field("score", &format!("{} {:.1}, from {}", score.benchmark, score.value, score.source));
    }
    field("sampling", &Recommendation::known(entry).told());
    let fits = match machine.fits(entry) {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not known",
    };
    field("fits", &format!("{fits}; this machine has {}", machine.described()));
    field("get it", &format!("alara models pull {}", entry.name));
}
