//! `alara debug parse`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alara_engine::Tool;
use alara_engine::chat::{Format, ParseOptions, Parsed, Parser};
use anyhow::{Context, bail};
use serde_json::{Value, json};

/// Parse a model's output into text, reasoning and tool calls
///
/// Reads the output on stdin, prints {"content", "reasoning_content", "tool_calls": [{"name", "arguments"}]}.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    format: FormatArgs,
    /// The tools that the model had, a JSON array in OpenAI's shape; without any, nothing is a call
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Circumstances, a JSON object: tool_choice, parallel_tool_calls, reasoning_format, generation_prompt
    #[arg(long, value_name = "FILE")]
    options: Option<PathBuf>,
    /// Read {"output", "tools", "options"} a line, print the message or {"error": "…"} a line
    #[arg(long)]
    jsonl: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct FormatArgs {
    /// Take the format that this chat template is written for
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Take this format
    #[arg(long, value_name = "NAME", value_parser = format_from_name)]
    format: Option<Format>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let format = match (&args.format.template, args.format.format) {
        (Some(path), _) => {
            let source = read(path)?;
            let format = Format::detect(&source);
            if format.is_none() && source.contains("tools") {
                bail!("no known tool-call format in {}; name one with --format", path.display());
            }
            format
        }
        (None, format) => format,
    };
    let from_file = |path: Option<&PathBuf>| match path {
        None => Ok(Value::Null),
        Some(path) => serde_json::from_str(&read(path)?).with_context(|| path.display().to_string()),
    };
    let (tools, options) = (from_file(args.tools.as_ref())?, from_file(args.options.as_ref())?);
    if args.jsonl {
        return super::jsonl::each(|record: Value| {
            let or = |key: &str, shared: &Value| record.get(key).unwrap_or(shared).clone();
            let output = record["output"].as_str().context("the record has no \"output\"")?;
            parse(format, &or("tools", &tools), &or("options", &options), output)
        });
    }
    let output = std::io::read_to_string(std::io::stdin()).context("can't read an output from stdin")?;
    crate::ui::line(&format!("{:#}", parse(format, &tools, &options, &output)?));
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))
}

/// Without a format, as of a template that knows no tools, all is text, but for reasoning.
fn parse(format: Option<Format>, tools: &Value, options: &Value, output: &str) -> anyhow::Result<Value> {
    let tools: Vec<Tool> = tools.as_array().into_iter().flatten().map(tool).collect::<anyhow::Result<_>>()?;
    let (format, tools) = format.map_or((Format::Hermes, Vec::new()), |format| (format, tools));
    let options: Option<ParseOptions> = serde_json::from_value(options.clone()).context("options")?;
    let options = options.unwrap_or_default();
    let mut parser = Parser::new(&options.turn(format, tools));
    let mut pieces = parser.push(options.prefill());
    pieces.extend(parser.push(output));
    pieces.extend(parser.finish());

    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for piece in pieces {
        match piece {
            Parsed::Text(text) => content.push_str(&text),
            Parsed::Reasoning(text) => reasoning.push_str(&text),
            Parsed::ToolCall { name, arguments } => calls.push(json!({"name": name, "arguments": arguments})),
        }
    }
    Ok(json!({"content": content, "reasoning_content": reasoning, "tool_calls": calls}))
}

/// A tool in OpenAI's shape, with or without the wrapper `{"type": "function", "function": …}`.
fn tool(value: &Value) -> anyhow::Result<Tool> {
    let function = value.get("function").unwrap_or(value);
    Ok(Tool {
        name: function["name"].as_str().context("a tool has no name")?.into(),
        description: function["description"].as_str().unwrap_or_default().into(),
        parameters: function["parameters"].clone(),
    })
}

fn format_from_name(name: &str) -> Result<Format, String> {
    Format::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Format::ALL.into_iter().map(Format::name).collect();
        format!("known formats: {}", known.join(", "))
    })
}
