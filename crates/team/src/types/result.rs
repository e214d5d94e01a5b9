//! The result of a tool, for the trace in full and for the model in a fixed form.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Blocked;
use super::cut::middle;

/// Most bytes of a text in a result that are recorded, or go to a model.
pub const KEPT_BYTES: usize = 1 << 20;

/// The result of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Whether it succeeded.
    pub ok: bool,
    /// Its output: text without trailing newlines, or any other value.
    pub output: Value,
    /// The error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The error output of its program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// Its exit status; `None` if it was killed or never ran.
    pub exit: Option<i32>,
    /// Bytes of output and error that were dropped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_bytes: u64,
    /// A note about it, whether it succeeded or not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Whether it ends the agent's run, with the output as its answer.
    #[serde(default, rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// Whether a dry run left the call out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// What happened to its effects, if alara ended while it ran: it neither succeeded nor failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interrupted>,
    /// The refusal, if a gate refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Box<Blocked>>,
    /// The arguments that it ran with, if a person changed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<Map<String, Value>>,
}

/// What happened to the effects of a call that alara's end interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interrupted {
    /// They were undone in the work directory.
    TakenBack,
    /// Some of them may remain.
    Left,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The form for the model: the keys in this order.
#[derive(Serialize)]
struct Text<'a> {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<Option<i32>>,
    /// The error of a call that didn't end by itself: it comes before the program's output.
    #[serde(rename = "error", skip_serializing_if = "Option::is_none")]
    happened: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    truncated_bytes: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    note: &'a str,
}

/// The form for the model of a call that a gate refused.
#[derive(Serialize)]
struct Refusal<'a> {
    ok: bool,
    blocked: bool,
    #[serde(flatten)]
    why: &'a Blocked,
    #[serde(skip_serializing_if = "str::is_empty")]
    note: &'a str,
}

impl ToolResult {
    /// A success.
    pub fn succeeded(output: impl Into<Value>) -> Self {
        ToolResult { ok: true, output: output.into(), exit: Some(0), ..ToolResult::default() }
    }

    /// A failure without a program.
    pub fn failed(error: impl Into<String>) -> Self {
        ToolResult { error: error.into(), ..ToolResult::default() }
    }

    /// A call that a gate refused.
    pub fn blocked(blocked: Blocked) -> Self {
        ToolResult {
            error: blocked.reason.clone(),
            blocked: Some(Box::new(blocked)),
            ..ToolResult::default()
        }
    }

    /// Adds to its note.
    pub fn add_note(&mut self, note: &str) {
        let notes = [self.note.as_str(), note];
        self.note = notes.into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join("; ");
    }

    /// The part of it that is recorded or goes to a model: at most this many bytes of each of its
    /// texts.
    /// A value that isn't text can't be cut.
    #[must_use]
    pub fn kept(mut self, limit: usize) -> Self {
        let (stderr, missing) = middle(&self.stderr, limit);
        self.stderr = stderr;
        self.dropped_bytes += missing as u64;
        match &self.output {
            Value::String(text) => {
                let (text, missing) = middle(text, limit);
                self.output = text.into();
                self.dropped_bytes += missing as u64;
            }
            other => {
                let size = other.to_string().len();
                if size > limit {
                    return ToolResult::failed(format!(
                        "`output` is too long: {size} bytes, and at most {limit} are kept; let it be a text, or write it to a file"
                    ));
                }
            }
        }
        self
    }

    /// The output as text: a text unchanged, nothing for null, anything else as compact JSON.
    pub fn output_text(&self) -> Cow<'_, str> {
        match &self.output {
            Value::Null => Cow::Borrowed(""),
            Value::String(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.to_string()),
        }
    }

    /// The description of a failure: its program's error output and its error; empty for a success.
    pub fn complaint(&self) -> Cow<'_, str> {
        match (self.stderr.as_str(), self.error.as_str()) {
            _ if self.ok => Cow::Borrowed(""),
            ("", error) => Cow::Borrowed(error),
            // A program with an error message needs no exit status.
            (stderr, error) if error.is_empty() || error.starts_with("exit status") => Cow::Borrowed(stderr),
            // Its error comes first: it may have undone what the program reported.
            (stderr, error) if self.exit.is_none() => Cow::Owned(format!("{error}\n{stderr}")),
            (stderr, error) => Cow::Owned(format!("{stderr}\n{error}")),
        }
    }

    /// The text that the model reads: one compact JSON object.
    /// About `limit` bytes of output and error together are kept, the beginning and the end; the
    /// object tells how many are missing.
    ///
    /// ```text
    /// {"ok":true,"output":"…"}
    /// {"ok":false,"exit":1,"output":"…","error":"…","truncated_bytes":10}
    /// {"ok":false,"exit":null,"error":"…","output":"…"}
    /// ```
    /// `exit` is null if the tool was killed, undone or didn't run; then the error comes first.
    /// A failure without output has no `output`.
    pub fn text(&self, limit: usize) -> String {
        self.text_with("", limit)
    }

    /// As [`text`](Self::text), with an additional `note` of the caller, unless both notes are
    /// empty: `{"ok":true,"output":"…","note":"…"}`.
    /// Escape sequences are removed, and other control characters become U+FFFD: a terminal's
    /// colours aren't text, and some tokenizers and templates fail on them.
    pub fn text_with(&self, note: &str, limit: usize) -> String {
        if let Some(blocked) = &self.blocked {
            let refusal = Refusal { ok: false, blocked: true, why: blocked, note };
            return serde_json::to_string(&refusal).unwrap_or_default();
        }
        let (output, error, missing) = self.within(limit);
        let own = readable(&self.note);
        let notes = [&*own, note].into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join("; ");
        let text = Text {
            ok: self.ok,
            exit: (!self.ok).then_some(self.exit),
            happened: (!self.ok && self.exit.is_none()).then_some(&error),
            output: (self.ok || !output.is_empty()).then_some(&output),
            error: (!self.ok && self.exit.is_some()).then_some(&error),
            truncated_bytes: missing,
            note: &notes,
        };
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// The result for models that read text better than JSON: the exit status, the whole output,
    /// the error; the error of a call that didn't end by itself comes before its output.
    ///
    /// ```text
    /// exit status 1
    /// …
    /// ```
    pub fn plain_text_with(&self, note: &str, limit: usize) -> String {
        if self.blocked.is_some() {
            return self.text_with(note, limit);
        }
        let (output, error, missing) = self.within(limit);
        let failed = match (self.ok, self.exit) {
            (true, _) => String::new(),
            (false, Some(exit)) if exit != 0 => format!("exit status {exit}"),
            (false, _) => "failed".to_owned(),
        };
        let error = if self.ok || error == failed { String::new() } else { error };
        let cut = if missing == 0 { String::new() } else { format!("({missing} bytes are left out)") };
        let own = readable(&self.note);
        let notes =
            [&*own, note].map(|note| if note.is_empty() { String::new() } else { format!("({note})") });
        let [own, note] = notes;
        let (first, then) = if self.exit.is_none() { (error, output) } else { (output, error) };
        let parts = [failed, first, then, cut, own, note].map(|part| part.trim_end_matches('\n').to_owned());
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if parts.is_empty() { "(no output)".to_owned() } else { parts.join("\n") }
    }

    /// Output and error, of which about `limit` bytes are kept together, and how many bytes are
    /// missing.
    pub fn within(&self, limit: usize) -> (String, String, u64) {
        let (output, error) = (self.output_text(), self.complaint());
        let (all_output, all_error) = (readable(&output), readable(&error));
        let share = if all_output.is_empty() { limit } else { limit / 2 };
        let (error, cut_error) = middle(&all_error, share);
        let (output, cut_output) = middle(&all_output, limit - (all_error.len() - cut_error));
        (output, error, cut_error as u64 + cut_output as u64 + self.dropped_bytes)
    }
}

/// A text without terminal escape sequences (ECMA-48), and with U+FFFD for each control character
/// except whitespace.
fn readable(text: &str) -> Cow<'_, str> {
    let bad = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\x0c');
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(bad) {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        match escape(rest) {
            0 => {
                kept.push('\u{fffd}');
                rest = &rest[rest.chars().next().map_or(0, char::len_utf8)..];
            }
            length => rest = &rest[length..],
        }
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

/// The length in bytes of the escape sequence at the beginning of a text; 0 if there is none.
fn escape(text: &str) -> usize {
    let Some(sequence) = text.strip_prefix('\x1b') else { return 0 };
    let after = |within: &str, end: usize| text.len() - within.len() + end;
    // Intermediate bytes, then a final one.
    let ended = |within: &str| {
        let end = within.find(|c| !matches!(c, ' '..='?')).filter(|end| within.as_bytes()[*end] < 0x7f);
        end.filter(|end| within.as_bytes()[*end] >= b'@').map(|end| after(within, end + 1))
    };
    let found = match sequence.chars().next() {
        Some('[') => ended(&sequence[1..]),
        // A string, up to its terminator: titles and links.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            let end = sequence.find(['\x07', '\x1b', '\n']);
            end.map(|end| match &sequence[end..] {
                closed if closed.starts_with("\x1b\\") => after(sequence, end + 2),
                closed if closed.starts_with('\x07') => after(sequence, end + 1),
                _ => after(sequence, end),
            })
        }
        Some('0'..='~') => Some(2),
        Some(' '..='/') => ended(sequence).or(Some(1)),
        _ => None,
    };
    // An unknown or truncated sequence: only the escape character.
    found.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_for_the_model() {
        let check = |result: &ToolResult, limit, expected: &str| assert_eq!(result.text(limit), expected);
        check(&ToolResult::succeeded("a \"b\"\nc"), 99, r#"{"ok":true,"output":"a \"b\"\nc"}"#);
        check(&ToolResult::succeeded(""), 99, r#"{"ok":true,"output":""}"#);
        check(&ToolResult::failed("no"), 99, r#"{"ok":false,"exit":null,"error":"no"}"#);
        let failed = ToolResult { exit: Some(2), output: "half".into(), ..ToolResult::failed("broken") };
        check(&failed, 99, r#"{"ok":false,"exit":2,"output":"half","error":"broken"}"#);
        let warned = ToolResult { error: "careful".into(), ..ToolResult::succeeded("x") };
        check(&warned, 99, r#"{"ok":true,"output":"x"}"#);
        let dropped = ToolResult { dropped_bytes: 7, ..ToolResult::succeeded("x") };
        check(&dropped, 99, r#"{"ok":true,"output":"x","truncated_bytes":7}"#);
        assert_eq!(
            ToolResult::succeeded("x").text_with("again", 99),
            r#"{"ok":true,"output":"x","note":"again"}"#
        );
    }

    #[test]
    fn what_happened_to_a_call_comes_before_what_it_printed() {
        let undone = ToolResult { output: "wrote a".into(), ..ToolResult::failed("undone: no") };
        assert_eq!(undone.text(99), r#"{"ok":false,"exit":null,"error":"undone: no","output":"wrote a"}"#);
        assert_eq!(undone.plain_text_with("", 99), "failed\nundone: no\nwrote a");
        let warned = ToolResult { stderr: "careful".into(), ..undone };
        assert_eq!(warned.complaint(), "undone: no\ncareful");
        let failed = ToolResult { exit: Some(2), output: "half".into(), ..ToolResult::failed("broken") };
        assert_eq!(failed.plain_text_with("", 99), "exit status 2\nhalf\nbroken");
    }

    #[test]
    fn escapes_and_nuls_do_not_reach_the_model() {
        let check = |text: &str, expected: &str| assert_eq!(readable(text), expected, "{text:?}");
        check("plain\ttext\r\n", "plain\ttext\r\n");
        check("\x1b[1;31mred\x1b[0m é", "red é");
        check("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab");
        check("a\0b\x08\x7f\u{9b}c", "a\u{fffd}b\u{fffd}\u{fffd}\u{fffd}c");
        check("\x1b(Ba\x1b7b\x1b=c", "abc");
        check("end\x1b", "end");
        check("end\x1b[3", "end[3");
        check("\x1b]open\nrest", "\nrest");
        check("\x1bé", "é");
        let result = ToolResult { stderr: "\x1b[31mno\0".into(), exit: Some(1), ..ToolResult::default() };
        assert_eq!(result.text(99), "{\"ok\":false,\"exit\":1,\"error\":\"no\u{fffd}\"}");
    }

    #[test]
    fn notes_are_told_with_any_result() {
        let result = ToolResult { note: "left".into(), ..ToolResult::succeeded("x") };
        assert_eq!(result.text(99), r#"{"ok":true,"output":"x","note":"left"}"#);
        assert_eq!(result.text_with("again", 99), r#"{"ok":true,"output":"x","note":"left; again"}"#);
    }

    proptest::proptest! {
        #[test]
        fn no_control_character_is_left(text in "[\x00-\x20a-z\\[\\]m;é\x7f-\u{9f}]*") {
            let readable = readable(&text);
            proptest::prop_assert!(!readable.contains(|c: char| c.is_control() && !"\t\n\r\x0c".contains(c)));
        }
    }

    #[test]
    fn the_model_is_told_where_it_was_cut() {
        let result = ToolResult { error: "e".repeat(100), ..ToolResult::failed("") };
        let result = ToolResult { output: "o".repeat(100).into(), ..result };
        let mark = "[… 96 bytes left out …]";
        assert_eq!(
            result.text(8),
            format!(
                r#"{{"ok":false,"exit":null,"error":"ee\n{mark}\nee","output":"oo\n{mark}\noo","truncated_bytes":192}}"#
            )
        );
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let text = ToolResult::succeeded("1\n22\n3\n4\n");
        assert_eq!(text.clone().kept(20), text);
        let kept = text.kept(6);
        assert_eq!(
            (kept.output.as_str().unwrap(), kept.dropped_bytes),
            ("1\n[… 2 lines, 5 bytes left out …]\n4\n", 5)
        );
        let list = ToolResult::succeeded(vec![1, 2, 3]);
        assert_eq!(list.clone().kept(7), list);
        let kept = list.kept(6);
        assert!(!kept.ok && kept.error.starts_with("`output` is too long: 7 bytes"), "{kept:?}");
        let noisy = ToolResult { stderr: "a\nb\nc\n".into(), ..ToolResult::succeeded("") }.kept(4);
        assert_eq!(
            (noisy.stderr.as_str(), noisy.dropped_bytes),
            ("a\n[… 1 line, 2 bytes left out …]\nc\n", 2)
        );
    }
}
