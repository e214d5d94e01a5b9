//! Shows a call and its result, either folded into a line that fits the terminal, or unfolded.

use alara_engine::ToolCall;
use alara_harness::ToolResult;
use console::{measure_text_width as width, truncate_str};
use serde_json::Value;

use crate::diff;
use crate::progress::{call_line, count, shorten, verdict};
use crate::screen::{DIM, GREEN, PLAIN, RED, one_line, printable};

/// Replaces text that was cut.
const CUT: &str = "…";
/// Minimum width, in columns, for showing a part of a result.
const WORTH: usize = 24;

/// Formats a call and its result as one line of at most `columns`: the call, how it ended, and the
/// first line of its output or error.
pub fn line(
    call: &ToolCall,
    result: &ToolResult,
    seconds: f64,
    columns: Option<usize>,
    styled: bool,
) -> String {
    let (call, verdict) = (call_line(call), verdict(result, seconds));
    let (first, more) = first(result);
    let [call, first, more] = match columns {
        None => [call, first, more],
        // A line that fills the last column wraps on some terminals.
        Some(columns) => fitting(&call, &first, &more, columns.saturating_sub(width(&verdict) + 5)),
    };
    let tail = if first.is_empty() { String::new() } else { format!(": {first}{more}") };
    if !styled {
        return format!("> {call}  {verdict}{tail}");
    }
    let colour = if result.ok { GREEN } else { RED };
    format!("{colour}>{PLAIN} {call}  {DIM}{verdict}{tail}{PLAIN}")
}

/// Formats the end of such a line whose beginning is already on the screen.
pub fn end(result: &ToolResult, seconds: f64) -> String {
    let (first, more) = first(result);
    let tail = if first.is_empty() { String::new() } else { format!(": {first}{more}") };
    format!("  {}{tail}", verdict(result, seconds))
}

/// Returns the first meaningful line of a call's output or error, and how many more there are.
fn first(result: &ToolResult) -> (String, String) {
    let (output, complaint) = (result.output_text(), result.complaint());
    // The reason for a failure is more useful than the output before it.
    let lines = complaint.lines().chain(output.lines()).filter(|line| !line.trim().is_empty());
    let mut lines = lines.map(|line| shorten(line.trim()));
    let first = lines.next().unwrap_or_default();
    let more = match lines.count() {
        0 => String::new(),
        more => format!(" (+{})", count(more, "line")),
    };
    (first, more)
}

/// Fits the variable parts of a line into the available columns.
/// Neither gets less than half of the room because of the other.
fn fitting(call: &str, first: &str, more: &str, room: usize) -> [String; 3] {
    let cut = |text: &str, room: usize| truncate_str(text, room, CUT).into_owned();
    let left = room.saturating_sub(2 + width(more));
    if first.is_empty() || left < WORTH {
        return [cut(call, room), String::new(), String::new()];
    }
    let of_call = width(call).min(left.saturating_sub(width(first)).max(left / 2));
    [cut(call, of_call), cut(first, left - of_call), more.to_owned()]
}

/// Formats a call and its result in full, line by line.
/// Shows a replacement of one text by another as a diff.
pub fn details(call: &ToolCall, result: &ToolResult, seconds: f64, styled: bool) -> Vec<String> {
    let mut lines = vec![format!("> {}  {}", shorten(&call.name), verdict(result, seconds))];
    let text = |name: &str| call.arguments.get(name).and_then(Value::as_str);
    let change = text("find").zip(text("replace")).filter(|(before, after)| before != after);
    for (name, value) in &call.arguments {
        if change.is_some() && matches!(name.as_str(), "find" | "replace") {
            continue;
        }
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut value = value.lines();
        lines.push(format!("  {}: {}", one_line(name), printable(value.next().unwrap_or_default())));
        lines.extend(value.map(|line| format!("    {}", printable(line))));
    }
    if let Some((before, after)) = change {
        let diff = diff::between(before, after);
        // The line numbers are relative to the texts, not to the file.
        let diff = diff.split_inclusive('\n').filter(|line| !line.starts_with(['@', '\\']));
        let diff = diff::shown(&diff.collect::<String>(), styled).into_iter();
        lines.extend(diff.map(|line| format!("    {line}")));
    }
    let (output, complaint) = (result.output_text(), result.complaint());
    let shown = match diff::is_diff(&output) {
        true => diff::shown(&output, styled),
        false => output.lines().map(|line| printable(line).into_owned()).collect(),
    };
    let complaint = complaint.lines().map(|line| printable(line).into_owned());
    lines.extend(shown.into_iter().chain(complaint).map(|line| format!("  | {line}")));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: &Value) -> ToolCall {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        ToolCall { id: "1".into(), name: name.into(), arguments }
    }

    #[test]
    fn lines_fit_their_terminal() {
        let list = call("shell", &json!({"command": "ls -l --all --human-readable /usr/share/doc"}));
        let many = ToolResult::succeeded("\ntotal 12 of what is there, and much more\na\nb\n");
        let failed = ToolResult { exit: Some(2), ..ToolResult::failed("no such file") };
        let mut shown = String::new();
        for columns in [20, 40, 100, 200] {
            for result in [&many, &failed, &ToolResult::succeeded("")] {
                let line = line(&list, result, 1.234, Some(columns), false);
                // The fixed parts may exceed a very narrow terminal.
                assert!(width(&line) < columns.max(40), "{columns}: {line}");
                shown += &format!("{columns:>3} {line}\n");
            }
        }
        insta::assert_snapshot!(shown);
        let whole = line(&list, &many, 1.0, None, false);
        assert!(
            whole.ends_with("ok, 1.00 s: total 12 of what is there, and much more (+2 lines)"),
            "{whole}"
        );
    }

    #[test]
    fn colours_only_where_they_are_wanted() {
        let list = call("shell", &json!({"command": "ls"}));
        let styled = line(&list, &ToolResult::succeeded("a\u{1b}[2J"), 0.5, Some(80), true);
        assert_eq!(
            styled,
            "\u{1b}[32m>\u{1b}[0m shell  command: ls  \u{1b}[2mok, 0.50 s: a\u{fffd}[2J\u{1b}[0m"
        );
        let plain = line(&list, &ToolResult::succeeded("a\u{1b}[2J"), 0.5, Some(80), false);
        assert!(!plain.contains('\u{1b}'), "{plain:?}");
    }

    #[test]
    fn wide_characters_count_twice() {
        let wide = call("say", &json!({"text": "漢字".repeat(30)}));
        let line = line(&wide, &ToolResult::succeeded("字".repeat(50)), 0.5, Some(60), false);
        assert!(width(&line) < 60 && line.contains(CUT), "{line}");
    }

    #[test]
    fn details_show_changes_as_diffs() {
        let edit = call("edit_file", &json!({"path": "a.txt", "find": "one\ntwo", "replace": "one\n2"}));
        let lines = details(&edit, &ToolResult::succeeded("changed a.txt"), 0.0, false);
        assert_eq!(
            lines,
            [
                "> edit_file  ok, 0.00 s",
                "  path: a.txt",
                "     one",
                "    -two",
                "    +2",
                "  | changed a.txt"
            ]
        );
        let shell = call("shell", &json!({"command": "git diff\n# now"}));
        let diff = ToolResult::succeeded("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n");
        let lines = details(&shell, &diff, 0.0, true);
        assert_eq!(lines[1..3], ["  command: git diff", "    # now"]);
        assert_eq!(lines[6], "  | \u{1b}[31m-a\u{1b}[0m");
    }
}
