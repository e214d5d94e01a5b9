//! `alara models show`: what a model file contains.

use std::process::ExitCode;

use super::contents::Contents;
use crate::ui;

/// Show what a model file contains, whether alara can run it, and the memory that it will need
#[derive(clap::Args)]
pub struct Args {
    /// Model file, or any part of a split one; without it the model that ships
    #[arg(value_name = "FILE")]
    model: Option<String>,
    /// Context length for which memory is told, in tokens. Default: what a run would take
    #[arg(long, value_name = "N")]
    ctx: Option<usize>,
    /// List the tensors too
    #[arg(long)]
    tensors: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let gguf = crate::model::open(args.model.as_deref())?;
    let contents = Contents::of(&gguf, args.ctx, args.tensors);
    if args.json {
        ui::line(&serde_json::to_string_pretty(&contents)?);
    } else {
        print(&contents);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(c: &Contents) {
    let field = |label: &str, text: &str| ui::line(&format!("{label:<16}{}", printable(text)));
    let unknown = || "not stated".to_owned();
    let parts = if c.parts > 1 { format!(" in {} files", c.parts) } else { String::new() };
    field("file", &c.file);
    field("size", &format!("{}{parts}, {} parameters", bytes(c.bytes), count(c.parameters)));
    field("name", &c.name.clone().unwrap_or_else(unknown));
    field("architecture", &c.architecture.clone().unwrap_or_else(unknown));
    for (label, value) in &c.sizes {
        field(&format!("  {}", label.replace('_', " ")), &value.to_string());
    }

    field("tensors", &c.tensor_count.to_string());
    for used in &c.tensor_types {
        let note = if used.computes { "" } else { "  alara can't compute with it yet" };
        field(&format!("  {}", used.kind), &format!("{:>5}  {:>10}{note}", used.tensors, bytes(used.bytes)));
    }

    let t = &c.tokenizer;
    let pre = t.pre.as_ref().map_or_else(String::new, |pre| format!(", pre-tokenizer {pre}"));
    field("tokenizer", &format!("{}{pre}, {} tokens", t.model.clone().unwrap_or_else(unknown), t.tokens));
    for (role, token) in &t.special {
        field(&format!("  {role}"), token.as_str().unwrap_or_default());
    }
    if let Some(add_bos) = t.add_bos {
        field("  adds bos", if add_bos { "yes" } else { "no" });
    }
    if !t.ends.is_empty() {
        field("  turn ends at", &t.ends.join(", "));
    }

    let format = c
        .chat_template
        .tool_format
        .map_or_else(|| "tool calls: no known format".to_owned(), |format| format!("tool calls: {format}"));
    match c.chat_template.characters {
        Some(characters) => field("chat template", &format!("{characters} characters, {format}")),
        None => field("chat template", "none"),
    }
    if let Some(m) = &c.memory {
        let text =
            format!("{} = {} weights + {} KV cache (f16)", bytes(m.total), bytes(m.weights), bytes(m.kv));
        let beyond = if m.context > m.trained_context { ", more than the model was trained for" } else { "" };
        field("memory", &format!("{text} at a context of {}{beyond}", m.context));
    }
    field("alara", if c.problems.is_empty() { "can run it" } else { "can't run it:" });
    for problem in &c.problems {
        field("", problem);
    }
    if !c.tensors.is_empty() {
        ui::line("");
        ui::table(
            &["tensor", "shape", "type", "bytes", "offset"],
            c.tensors.iter().map(|t| {
                let shape: Vec<String> = t.shape.iter().map(u64::to_string).collect();
                vec![
                    printable(&t.name),
                    shape.join(" x "),
                    t.kind.clone(),
                    t.bytes.to_string(),
                    t.offset.to_string(),
                ]
            }),
        );
    }
}

/// Text from a file must not steer the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Bytes in the largest binary unit that leaves a whole part.
fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    if unit == 0 {
        return format!("{bytes} B");
    }
    format!("{:.1} {}", bytes as f64 / (1u64 << (10 * unit)) as f64, units[unit])
}

/// A number with its metric letter: 7.6 B.
fn count(number: u64) -> String {
    let letters = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")];
    match letters.into_iter().find(|(unit, _)| number as f64 >= *unit) {
        Some((unit, letter)) => format!("{:.1} {letter}", number as f64 / unit),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        let check = |number: u64, expected: &str| assert_eq!(bytes(number), expected);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1024, "1.0 KiB");
        check(5 << 29, "2.5 GiB");
        check(u64::MAX, "16.0 EiB");
        assert_eq!((count(999), count(7_600_000_000)), ("999".to_owned(), "7.6 B".to_owned()));
    }

    #[test]
    fn a_file_can_not_steer_the_terminal() {
        assert_eq!(printable("a\x1b[31mb"), "a\u{fffd}[31mb");
    }
}
