//! `alara debug kernels`: lists which kernel multiplies which weights.

use std::process::ExitCode;

use alara_engine::inspect::{Kernel, PlanEntry, kernel_plan};
use serde_json::{Value, json};

use crate::{compute, ui};

/// Print which kernel multiplies weights, by format, instruction set and rows of activations
///
/// One row of activations is decode (GEMV), a few are speculative decoding or several sequences,
/// many are prefill (GEMM).
#[derive(clap::Args)]
pub struct Args {
    /// Include every instruction set that alara has kernels for, not only this CPU's
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = kernel_plan(if args.all { None } else { Some(compute::isa()?) });
    if args.json {
        let entries: Vec<Value> = plan.iter().map(described).collect();
        ui::line(&serde_json::to_string_pretty(&entries)?);
        return Ok(ExitCode::SUCCESS);
    }
    text(&plan).iter().for_each(|text| ui::line(text));
    Ok(ExitCode::SUCCESS)
}

fn described(entry: &PlanEntry) -> Value {
    json!({
        "isa": entry.isa,
        "format": entry.format.name(),
        "from": entry.from,
        "to": entry.to,
        "kernel": entry.kernel.name(),
        "file": entry.kernel.file(),
        "tail": entry.tail.map(Kernel::name),
        "multiple": entry.multiple,
        "otherwise": entry.otherwise.name(),
    })
}

/// One paragraph for all formats with the same kernels on an instruction set: a line for each range
/// of rows of activations.
fn text(plan: &[PlanEntry]) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<&str>, Vec<String>)> = Vec::new();
    for entries in plan.chunk_by(|a, b| (a.isa, a.format) == (b.isa, b.format)) {
        let ranges: Vec<String> = entries.iter().map(range).collect();
        let (isa, format) = (entries[0].isa, entries[0].format.name());
        match groups.iter_mut().find(|group| group.0 == isa && group.2 == ranges) {
            Some((_, formats, _)) => formats.push(format),
            None => groups.push((isa, vec![format], ranges)),
        }
    }
    let paragraph = |(isa, formats, ranges): (&str, Vec<&str>, Vec<String>)| {
        std::iter::once(format!("{isa}: {}", formats.join(" "))).chain(ranges)
    };
    groups.into_iter().flat_map(paragraph).collect()
}

/// Formats rows of activations, kernel and file.
fn range(entry: &PlanEntry) -> String {
    let PlanEntry { from, to, kernel, tail, multiple, otherwise, .. } = *entry;
    let rows = match to {
        Some(to) if to == from => from.to_string(),
        Some(to) => format!("{from} to {to}"),
        None => format!("{from} and more"),
    };
    let mut name = kernel.name().to_owned();
    if let Some(tail) = tail {
        name += &format!("; a remainder of up to 8: {}", tail.name());
    }
    if otherwise != kernel {
        name += &format!("; rows of weights no multiple of {multiple}: {}", otherwise.name());
    }
    format!("  {rows:<12} {name} ({})", kernel.file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_in_one_paragraph_of_an_instruction_set() {
        let plan = kernel_plan(None);
        let text = text(&plan);
        for entry in &plan {
            let heading = |line: &&String| {
                let formats = line.strip_prefix(entry.isa).and_then(|rest| rest.strip_prefix(": "));
                formats.is_some_and(|formats| formats.split(' ').any(|name| name == entry.format.name()))
            };
            assert_eq!(text.iter().filter(heading).count(), 1, "{entry:?}");
        }
    }

    #[test]
    fn a_range_names_its_kernel_and_file() {
        let plan = kernel_plan(None);
        let scalar = plan.iter().find(|entry| entry.isa == "scalar").map(range);
        assert_eq!(scalar.as_deref(), Some("  1 and more   dot, scalar (dot.rs)"));
    }
}
