//! `alara debug parse`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alara_engine::file;
use alara_engine::inspect::{ChatTemplate, ParseOptions, Thinking};
use alara_engine::{Format, Parsed, Parser, Tool};
use anyhow::{Context, bail};
use serde_json::{Value, json};

/// Parse a model's output into text, reasoning and tool calls
///
/// Reads the output on stdin, prints {"content", "reasoning_content", "tool_calls": [{"name",
/// "arguments"}]}; a truncated call has "arguments_text" instead.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    format: FormatArgs,
    /// The tools that the model had, a JSON array in OpenAI's format; without any, nothing is a
    /// call
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Settings of the request, a JSON object: tool_choice, parallel_tool_calls, reasoning_format,
    /// generation_prompt
    #[arg(long, value_name = "FILE")]
    options: Option<PathBuf>,
    /// Read {"output", "tools", "options"} per line, print the message or {"error": "…"} per line
    #[arg(long)]
    jsonl: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct FormatArgs {
    /// Use the format that this chat template is written for
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Use this format
    #[arg(long, value_name = "NAME", value_parser = crate::model::tool_format())]
    format: Option<&'static Format>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (format, thinking) = match (&args.format.template, args.format.format) {
        (Some(path), _) => {
            let source = read(path)?;
            let template = ChatTemplate::new(&source, "", "").with_context(|| path.display().to_string())?;
            let Some(format) = template.format() else {
                bail!("no known tool-call format in {}; name one with --format", path.display());
            };
            (format, format.thinking.in_template(&source))
        }
        (None, Some(format)) => (format, Some(format.thinking)),
        (None, None) => bail!("--template or --format is needed"),
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
            parse(format, thinking, &or("tools", &tools), &or("options", &options), output)
        });
    }
    let output = std::io::read_to_string(std::io::stdin()).context("can't read an output from stdin")?;
    crate::ui::line(&format!("{:#}", parse(format, thinking, &tools, &options, &output)?));
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<String> {
    file::read_given(path).with_context(|| format!("can't read {}", path.display()))
}

fn parse(
    format: &'static Format,
    thinking: Option<Thinking>,
    tools: &Value,
    options: &Value,
    output: &str,
) -> anyhow::Result<Value> {
    let tools: Vec<Tool> = tools.as_array().into_iter().flatten().map(tool).collect::<anyhow::Result<_>>()?;
    let options: Option<ParseOptions> = serde_json::from_value(options.clone()).context("options")?;
    let options = options.unwrap_or_default();
    let mut parser = Parser::new(&options.turn(format, thinking, tools));
    let mut pieces = parser.push(options.prefill(thinking));
    pieces.extend(parser.push(output));
    pieces.extend(parser.finish());

    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for piece in pieces {
        match piece {
            Parsed::Text(text) => content.push_str(&text),
            Parsed::Reasoning(text) => reasoning.push_str(&text),
            Parsed::Delta { .. } => {}
            Parsed::ToolCall { id, name, arguments } => {
                let mut call = json!({"name": name, "arguments": arguments});
                if !id.is_empty() {
                    call["id"] = id.into();
                }
                calls.push(call);
            }
            Parsed::Incomplete { name, arguments, .. } => {
                calls.push(json!({"name": name, "arguments_text": arguments}));
            }
        }
    }
    Ok(json!({"content": content, "reasoning_content": reasoning, "tool_calls": calls}))
}

/// Parses a tool in OpenAI's format, with or without the wrapper
/// `{"type": "function", "function": …}`.
fn tool(value: &Value) -> anyhow::Result<Tool> {
    let function = value.get("function").unwrap_or(value);
    Ok(Tool {
        name: function["name"].as_str().context("a tool has no name")?.into(),
        description: function["description"].as_str().unwrap_or_default().into(),
        parameters: function["parameters"].clone(),
        strict: false,
    })
}
