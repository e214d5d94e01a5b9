//! `alara debug render`.

use std::path::PathBuf;
use std::process::ExitCode;

use alara_engine::TemplateError;
use alara_engine::file;
use alara_engine::inspect::ChatTemplate;
use anyhow::Context;
use jiff::civil::DateTime;
use serde_json::{Map, Value, json};

use crate::ui;

/// Render a conversation by a chat template
///
/// Reads {"messages": […], "tools": […], …} on stdin; every other key becomes a variable of the
/// template.
/// Prints the prompt.
#[derive(clap::Args)]
pub struct Args {
    /// The chat template, a Jinja file
    #[arg(long, value_name = "FILE")]
    template: PathBuf,
    /// Time that the template sees, for example 2026-07-01T12:00:00 [default: the local time]
    #[arg(long, value_name = "TIME")]
    now: Option<DateTime>,
    /// Read one conversation per line, print {"prompt": "…"} or {"error": "…"} per line
    #[arg(long)]
    jsonl: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let name = args.template.display();
    let source = file::read_given(&args.template).with_context(|| format!("can't read {name}"))?;
    let template = ChatTemplate::new(&source, "", "").with_context(|| name.to_string())?;
    let now = args.now.unwrap_or_else(|| jiff::Zoned::now().datetime());
    if args.jsonl {
        return super::jsonl::each(|record| match template.render_values(&variables(record)?, now) {
            Ok(prompt) => Ok(json!({"prompt": prompt})),
            // Only the template's own message, so that it can be compared with other
            // implementations.
            Err(TemplateError::Raised { message, .. }) => Ok(json!({"error": message})),
            Err(error) => Err(error.into()),
        });
    }
    let record = serde_json::from_reader(std::io::stdin().lock()).context("stdin is not a JSON object")?;
    let prompt = template.render_values(&variables(record)?, now)?;
    // Print it unchanged: an added newline would look like part of the prompt.
    ui::text(&prompt);
    Ok(ExitCode::SUCCESS)
}

/// Returns the template's variables: the record's keys, those in `kwargs`, and those in the `extra`
/// of `kwargs`.
fn variables(record: Value) -> anyhow::Result<Map<String, Value>> {
    let Value::Object(mut variables) = record else { anyhow::bail!("a conversation is a JSON object") };
    anyhow::ensure!(variables.contains_key("messages"), "the conversation has no \"messages\"");
    for wrapper in ["kwargs", "extra"] {
        if matches!(variables.get(wrapper), Some(Value::Object(_)))
            && let Some(Value::Object(inner)) = variables.shift_remove(wrapper)
        {
            variables.extend(inner);
        }
    }
    variables.entry("add_generation_prompt").or_insert(Value::Bool(true));
    Ok(variables)
}
