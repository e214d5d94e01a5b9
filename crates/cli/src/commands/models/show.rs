//! `alara models show`: shows the contents of a model file.

use std::process::ExitCode;

use alara_engine::KvType;
use anyhow::bail;

use super::contents::{Contents, MemoryUse};
use super::count;
use super::known;
use super::recommendation::Recommendation;
use crate::model_file::{self, Place};
use crate::screen::one_line;
use crate::tuned::Tuned;
use crate::ui::{self, bytes};
use crate::{compute, config, device};

/// Show the contents of a model file, whether alara can run it, and how much memory it needs
#[derive(clap::Args)]
pub struct Args {
    /// Model file, any part of a split one, or a name from `alara models list` [default: the one in
    /// `alara config`, else the one that ships].
    /// If a catalog model isn't on this machine, shows the catalog's data
    #[arg(value_name = "MODEL")]
    model: Option<String>,
    /// Context length for the memory estimate, in tokens [default: as in a run]
    #[arg(long, alias = "ctx", value_name = "N", value_parser = compute::context)]
    context: Option<usize>,
    /// Number format of the KV cache in the memory estimate: f32, f16 or q8_0
    #[arg(long, default_value = "f16", value_name = "TYPE")]
    kv: KvType,
    #[command(flatten)]
    device: device::Args,
    /// List the tensors too
    #[arg(long)]
    tensors: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // The catalog has no data on tensors, or on memory for a context.
    let name = args.model.as_deref().or_else(config::model);
    if let Some(name) = name.filter(|_| !args.tensors && args.context.is_none())
        && let Some(entry) = model_file::absent(name)?
    {
        known::show(entry, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let gguf = crate::model::open(args.model.as_deref())?;
    let offload = args.device.offload();
    let contents = match Contents::of(&gguf, args.context, args.kv, args.tensors, &offload) {
        Err(error) => {
            bail!("{}\nhint: with --gpu-memory GB a GPU can be asked for that is not here", ui::told(&error))
        }
        Ok(contents) => contents,
    };
    let path = match crate::model::place(args.model.as_deref())? {
        Place::Shipped => None,
        Place::File(path) => Some(std::path::absolute(path)?),
    };
    let contents = Contents {
        path,
        sampling: Recommendation::of(&gguf, args.model.as_deref())?,
        tuned: Tuned::of(&gguf),
        ..contents
    };
    if args.json {
        ui::line(&serde_json::to_string_pretty(&contents)?);
    } else {
        print(&contents);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(c: &Contents) {
    let field = |label: &str, text: &str| ui::line(&format!("{label:<16}{}", one_line(text)));
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
        let text = held(&m.held);
        let beyond = if m.context > m.trained_context { ", more than the model was trained for" } else { "" };
        field("memory", &format!("{text} at a context of {}{beyond}", m.context));
    }
    if let Some(p) = &c.placement {
        let had = bytes(p.gpu_memory);
        match (&p.gpu, &p.host, &p.refusal) {
            (Some(gpu), Some(host), _) => {
                let text = format!("{} of {} layers, {}, of {had}", p.gpu_layers, p.layers, held(gpu));
                field(&format!("  on {}", p.device), &text);
                field("  on the CPU", &held(host));
            }
            (.., refusal) => field(&format!("  on {}", p.device), refusal.as_deref().unwrap_or_default()),
        }
    }
    field("sampling", &c.sampling.told());
    match &c.tuned {
        Some(tuned) => field("tuned", &tuned.told()),
        None => field("tuned", "no; `alara tune` finds out how it uses tools best"),
    }
    field("alara", if c.problems.is_empty() { "can run it" } else { "can't run it:" });
    for problem in &c.problems {
        field("", problem);
    }
    if !c.problems.is_empty() {
        let known = "`alara models list` names models that run";
        match c.nearest.is_empty() {
            true => field("instead", known),
            false => field("instead", &format!("the nearest that run: {}; {known}", c.nearest.join(", "))),
        }
    }
    if !c.tensors.is_empty() {
        ui::line("");
        ui::table(
            &["tensor", "shape", "type", "bytes", "offset"],
            c.tensors.iter().map(|t| {
                let shape: Vec<String> = t.shape.iter().map(u64::to_string).collect();
                vec![
                    one_line(&t.name),
                    shape.join(" x "),
                    t.kind.clone(),
                    t.bytes.to_string(),
                    t.offset.to_string(),
                ]
            }),
        );
    }
}

/// Formats a sum and its parts.
fn held(held: &MemoryUse) -> String {
    let parts = [
        (held.weights, "weights"),
        (held.kv, "KV cache"),
        (held.state, "recurrent state"),
        (held.working, "computing"),
    ];
    let parts = parts.into_iter().filter(|(size, _)| *size > 0);
    let parts: Vec<String> = parts.map(|(size, name)| format!("{} {name}", bytes(size))).collect();
    format!("{} = {}", bytes(held.total), parts.join(" + "))
}
