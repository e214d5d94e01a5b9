//! Formats calls, results and usage as single lines.

use alara_engine::{ToolCall, Usage};
use alara_harness::ToolResult;
use serde_json::{Map, Value};

use crate::screen::{one_line, printable};

/// Maximum length of a displayed argument or line, in characters.
const SHOWN_CHARACTERS: usize = 120;

/// Explains that nothing was changed, and how to change it.
pub fn not_done(what: &str, nobody: bool) -> String {
    let hint = if nobody { ": nobody is there to be asked; --yes permits it" } else { "" };
    format!("  not done, no file was changed: it {}{hint}", one_line(what))
}

/// Describes the state of a job in one line.
pub fn job_line(job: usize, call: &str, ended: Option<&str>) -> String {
    match ended {
        None => format!("  job {job} runs in the background: {call}"),
        Some(how) => format!("  job {job} is over, {how}: {call}"),
    }
}

/// Formats a jinx's response for the user in full.
pub fn emitted(response: &Value) -> String {
    let content = match &response["content"] {
        Value::Null => "(removed)".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let kind = response["type"].as_str().unwrap_or("response");
    format!("* {}: {}", shorten(kind), printable(&content))
}

/// Formats a count with its noun.
pub fn count(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Describes how many tokens the prompts had, and how many of them came from the cache.
pub fn prompt(usage: &Usage) -> String {
    let cached = match usage.disk_tokens {
        0 => format!("{} cached", usage.cached_tokens),
        disk => format!("{} cached, {disk} of them from disk", usage.cached_tokens),
    };
    format!("{} ({cached}), ", count(usage.prompt_tokens, "prompt token"))
}

/// Describes how many tokens were generated, how fast, and how many draft tokens were accepted.
pub fn generated(usage: &Usage) -> String {
    let generated = match usage.tokens_per_second() {
        Some(speed) => format!("{} generated at {speed:.1} tokens/s", usage.completion_tokens),
        None => format!("{} generated", usage.completion_tokens),
    };
    match usage.drafts.drafted {
        0 => generated,
        drafted => format!("{generated} ({} of {drafted} draft tokens accepted)", usage.drafts.accepted),
    }
}

/// Describes the usage of a user's message in one line: tokens, speed, and how full the context is.
pub fn status(usage: &Usage, last: Option<&Usage>, context: Option<usize>) -> String {
    let share = |part: usize, of: usize| (part * 100).checked_div(of).unwrap_or(0);
    let cached = share(usage.cached_tokens, usage.prompt_tokens);
    let mut text = format!("{} ({cached}% cached), ", count(usage.prompt_tokens, "prompt token"));
    text += &generated(usage);
    if let (Some(last), Some(context)) = (last, context) {
        let used = last.prompt_tokens + last.completion_tokens;
        text += &format!("; context {used} of {context} ({}%)", share(used, context));
    }
    text
}

/// Describes how a call ended: success or failure, and its duration.
pub fn verdict(result: &ToolResult, seconds: f64) -> String {
    let verdict = match (result.ok, result.exit) {
        (true, _) => "ok".to_owned(),
        (false, None) if result.blocked.is_some() => {
            let rule = result.blocked.as_ref().map_or("", |blocked| &blocked.rule);
            format!("blocked by the rule `{rule}`")
        }
        (false, Some(code)) if code != 0 => format!("failed with exit status {code}"),
        (false, _) => "failed".to_owned(),
    };
    format!("{verdict}, {seconds:.2} s")
}

/// Formats a call as one line: the tool and its arguments.
pub fn call_line(call: &ToolCall) -> String {
    arguments_line(&call.name, &call.arguments)
}

/// Formats a tool and its arguments as one line.
pub fn arguments_line(name: &str, arguments: &Map<String, Value>) -> String {
    // An endpoint may return any name.
    let mut line = shorten(name);
    for (name, value) in arguments {
        let value = match value {
            Value::String(text) if !text.contains(['\n', '"']) && !text.is_empty() => text.clone(),
            other => other.to_string(),
        };
        line += &format!("  {}: {}", shorten(name), shorten(&value));
    }
    line
}

/// Shortens a line to a maximum number of characters, all of them [`printable`].
pub fn shorten(line: &str) -> String {
    let line = printable(line).replace('\n', " ");
    let mut characters = line.chars();
    let mut text: String = characters.by_ref().take(SHOWN_CHARACTERS).collect();
    if characters.next().is_some() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_and_results_in_short() {
        let call = |arguments| ToolCall { id: String::new(), name: "shell".into(), arguments };
        let check = |arguments: Value, expected: &str| {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            assert_eq!(call_line(&call(arguments)), expected);
        };
        check(json!({"command": "ls -l"}), "shell  command: ls -l");
        check(json!({"path": "", "n": 3, "text": "a\nb"}), r#"shell  path: ""  n: 3  text: "a\nb""#);
        assert_eq!(shorten("red \u{1b}[31m"), "red \u{fffd}[31m");
        let hostile = json!({"a\u{1b}]52;c;x\u{7}": "b\u{9b}2J"});
        let hostile = arguments_line("n\u{1b}[2J", hostile.as_object().unwrap());
        assert!(!hostile.contains(|c: char| c.is_control()), "{hostile:?}");
        assert_eq!(shorten(&"é".repeat(200)).chars().count(), SHOWN_CHARACTERS + 1);
    }

    #[test]
    fn a_status_line() {
        let usage = Usage {
            prompt_tokens: 200,
            cached_tokens: 150,
            completion_tokens: 30,
            decode_time: std::time::Duration::from_secs(2),
            ..Usage::default()
        };
        let check =
            |usage: &Usage, last, context, expected: &str| assert_eq!(status(usage, last, context), expected);
        check(
            &usage,
            Some(&usage),
            Some(1000),
            "200 prompt tokens (75% cached), 30 generated at 15.0 tokens/s; context 230 of 1000 (23%)",
        );
        // Tokens of a turn without a known duration don't count towards the speed.
        let mut both = usage.clone();
        both += Usage { completion_tokens: 500, ..Usage::default() };
        check(&both, None, None, "200 prompt tokens (75% cached), 530 generated at 15.0 tokens/s");
        check(
            &Usage { completion_tokens: 7, ..Usage::default() },
            None,
            None,
            "0 prompt tokens (0% cached), 7 generated",
        );
        check(&Usage::default(), None, Some(9), "0 prompt tokens (0% cached), 0 generated");
    }
}
