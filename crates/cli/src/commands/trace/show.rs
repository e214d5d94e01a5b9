//! Shows a trace in readable form: messages and calls, with nested conversations indented.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use alara_engine::Usage;
use alara_harness::phases::Standing;
use alara_harness::trace::{self, Entry, PERSON, Record};
use alara_harness::{Outcome, ToolResult, Verdict};

use super::prompt;
use crate::progress::{self, call_line, count, generated, job_line, verdict};
use crate::screen::printable;
use crate::{traces, ui};

/// Show what happened in a run
#[derive(clap::Args)]
pub struct Args {
    /// An id from `alara trace list`, part of one, or a file [default: the latest run]
    #[arg(value_name = "ID|FILE")]
    trace: Option<String>,
    /// Print the records as JSON, one object per line; with --prompt, one object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    prompt: prompt::Args,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = traces::file(args.trace.as_deref())?;
    let lines = trace::lines(&path)?;
    if let Some(turn) = args.prompt.turn {
        return prompt::show(&args.prompt, &path, &lines, turn, args.json);
    }
    if args.json {
        for line in &lines {
            ui::line(&serde_json::to_string(line)?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    ui::line(&path.display().to_string());
    let mut usage = Usage::default();
    for line in &lines {
        if let Record::Assistant { usage: turn, .. } = &*line.entry.record {
            usage += turn.clone();
        }
        let text = text(&line.entry);
        let indent = "    ".repeat(depth(&line.entry.scope));
        for part in printable(&text).lines() {
            ui::line(format!("{indent}{part}").trim_end());
        }
    }
    ui::line(&format!("{}{}", progress::prompt(&usage), generated(&usage)));
    Ok(ExitCode::SUCCESS)
}

/// Returns the nesting depth of a scope.
fn depth(scope: &str) -> usize {
    match scope {
        "" | PERSON => 0,
        scope => scope.split('/').count() - usize::from(scope.starts_with('@')),
    }
}

/// Formats a record; empty if other records show the same.
fn text(entry: &Entry) -> String {
    match &*entry.record {
        Record::Start(start) => {
            let tools: Vec<&str> = start.tools.iter().map(|tool| tool.name.as_str()).collect();
            let scope = if entry.scope.is_empty() { String::new() } else { format!(" [{}]", entry.scope) };
            let tools = if tools.is_empty() { "none".to_owned() } else { tools.join(", ") };
            let mut text =
                format!("= {} of {} with {}; tools: {tools}{scope}", start.npc, start.team, start.model);
            if start.dry_run {
                text += "\n  a dry run";
            }
            for file in &start.context_files {
                text += &format!("\n  reads {}, {} bytes", file.path.display(), file.bytes);
            }
            for served in &start.mcp {
                let became = match served.error.as_str() {
                    "" => format!("permitted by {}", served.by),
                    error => format!("not there: {error}"),
                };
                text += &format!("\n  MCP server {}: {}; {became}", served.server, served.start);
            }
            text
        }
        Record::User { text } => format!("user: {text}"),
        Record::Hint { text, .. } => format!("hint: {text}"),
        Record::Assistant { message, usage, .. } => {
            let mut text = String::new();
            if let Some(miss) = &usage.miss {
                text += &format!("prefix cache: {miss}\n");
            }
            if let Some(reasoning) = &message.reasoning_content {
                text += &format!("thinks: {}\n", reasoning.trim());
            }
            if !message.content.trim().is_empty() {
                text += &format!("says: {}\n", message.content.trim());
            }
            if let Some(recovered) = &usage.recovered {
                let how = if recovered.again { "forced" } else { "recovered" };
                text += &format!("{how}: {}\n", recovered.text);
            }
            text
        }
        Record::ToolCall { call } if entry.scope == PERSON => format!("user runs {}", call_line(call)),
        Record::ToolCall { call } => format!("> {}", call_line(call)),
        Record::ToolResult { result, .. } if result.blocked.is_some() => format!("  {}", blocked(result)),
        Record::ToolResult { result, seconds, .. } => {
            let mut text = format!("  {}\n", verdict(result, *seconds));
            let (output, complaint) = (result.output_text(), result.complaint());
            for line in output.lines().chain(complaint.lines()) {
                text += &format!("  | {line}\n");
            }
            text
        }
        Record::Permission { jinx, verdict, by } => {
            let verdict = match verdict {
                Verdict::Allow => "allowed",
                Verdict::Ask => "to be asked for",
                Verdict::Deny => "denied",
            };
            format!("  {jinx} is {verdict} by {}", without_directory(by))
        }
        Record::Changed { files: 0 } => "  something has changed".to_owned(),
        Record::Changed { files } => format!("  {} changed", count(*files, "file")),
        Record::Ledger { gate, changes } => {
            let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
            format!("  {}: {}", without_directory(gate), one_line(&changes.join("; ")))
        }
        Record::Jinx { jinx, place, result, .. } if result.blocked.is_some() => {
            format!("  step {place}: {jinx} {}", blocked(result))
        }
        Record::Jinx { jinx, place, result, seconds, .. } => {
            format!("  step {place}: {jinx} {}", verdict(result, *seconds))
        }
        Record::Job { job, call, ended } => job_line(*job, call, ended.as_deref()),
        Record::Emit { response } => format!("* {response}"),
        Record::Compaction { summary, kept } => {
            format!("- all but {} summed up: {summary}", count(*kept, "message"))
        }
        Record::Phase(Standing { phase, facts, pending, done, retries }) => {
            let mut text = format!("- phase {phase}");
            for (what, names) in [("facts", facts), ("done", done), ("left", pending)] {
                if !names.is_empty() {
                    text += &format!("; {what}: {}", names.join(", "));
                }
            }
            if !retries.is_empty() {
                let failed = retries.iter().map(|(tool, count)| format!("{tool} {count}"));
                text += &format!("; failed in a row: {}", failed.collect::<Vec<_>>().join(", "));
            }
            text
        }
        Record::Retract => "- the last message of the user is taken back".to_owned(),
        Record::End { outcome: Outcome::Answer { .. } } => String::new(),
        Record::End { outcome } => format!("- {}", outcome.reason()),
    }
}

/// Returns the gate rule that blocked a call, and the reason.
fn blocked(result: &ToolResult) -> String {
    let Some(blocked) = &result.blocked else { return String::new() };
    format!("blocked by the rule `{}`: {}", blocked.rule, one_line(&blocked.reason))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Shortens a gate's path to its file name.
fn without_directory(by: &str) -> Cow<'_, str> {
    let (rule, path) = match by.starts_with("the rule `") {
        true => by.split_once("` of ").unwrap_or(("", by)),
        false => ("", by),
    };
    let path = Path::new(path);
    let file = path.file_name().filter(|_| path.extension().is_some_and(|extension| extension == "gate"));
    match file.map(OsStr::to_string_lossy) {
        None => Cow::Borrowed(by),
        Some(file) if rule.is_empty() => file,
        Some(file) => Cow::Owned(format!("{rule}` of {file}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alara_engine::ToolCall;
    use alara_harness::ledger::Change;
    use alara_harness::types::Blocked;
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn what_gates_and_phases_do_is_told_in_a_line_each() {
        let check = |record: Record, expected: &str| {
            assert_eq!(text(&Entry { scope: String::new(), record: Arc::new(record) }), expected);
        };
        let permission =
            |verdict, by: &str| Record::Permission { jinx: "cancel".into(), verdict, by: by.into() };
        check(permission(Verdict::Allow, "/a b/shop.gate"), "  cancel is allowed by shop.gate");
        check(
            permission(Verdict::Deny, "the rule `own` of /a of b/shop.gate"),
            "  cancel is denied by the rule `own` of shop.gate",
        );
        check(permission(Verdict::Deny, "/a/team.ctx:3"), "  cancel is denied by /a/team.ctx:3");
        check(permission(Verdict::Deny, "the phase `verify`"), "  cancel is denied by the phase `verify`");
        let why = Blocked { rule: "own".into(), reason: "it is\nanother's".into(), ..Blocked::default() };
        let result = ToolResult::blocked(why);
        let call = ToolCall { id: "1".into(), name: "cancel".into(), arguments: Map::new() };
        let (jinx, place, arguments) = ("cancel".to_owned(), "work".to_owned(), Map::new());
        check(
            Record::Jinx { jinx, place, arguments, result: result.clone(), seconds: 0.0 },
            "  step work: cancel blocked by the rule `own`: it is another's",
        );
        check(
            Record::ToolResult { call, result, text: String::new(), seconds: 0.0 },
            "  blocked by the rule `own`: it is another's",
        );
        let path = |text: &str| text.split('.').map(str::to_owned).collect();
        let changes = vec![
            Change::Known { path: path("orders.7.status"), value: json!("sent") },
            Change::Stale { path: path("users") },
        ];
        check(
            Record::Ledger { gate: "/a/shop.gate".into(), changes },
            "  shop.gate: orders.7.status is \"sent\"; users is stale",
        );
        let standing = Standing {
            phase: "verify".into(),
            facts: vec!["known".into()],
            pending: vec!["close it".into()],
            done: Vec::new(),
            retries: [("ask".to_owned(), 2)].into(),
        };
        check(
            Record::Phase(standing),
            "- phase verify; facts: known; left: close it; failed in a row: ask 2",
        );
    }

    #[test]
    fn conversations_are_indented_by_what_they_are_inside_of() {
        let check = |scope: &str, expected| assert_eq!(depth(scope), expected, "{scope}");
        check("", 0);
        check("/", 0);
        check("@critic", 0);
        check("call_1", 1);
        check("call_1/work", 2);
        check("@critic/call_1", 1);
    }
}
