//! Makes turns alternate for templates that refuse any others.
//!
//! Conversations lack turns for many reasons: a stopped turn, an empty answer, a client that sends
//! two messages at once, an assistant that greets first.
//! This module joins turns or fills them in.
//! Works on messages as templates read them.

use serde_json::{Value, json};

/// Replaces an answer that was stopped before it began.
const STOPPED: &str = "I stopped here.";

/// Returns the conversation with alternating turns, the user's first; calls and their results don't
/// count as turns.
pub(super) fn alternating(messages: Vec<Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::with_capacity(messages.len());
    // The role of the last turn.
    let mut last = "assistant";
    for mut message in messages {
        let role = match message["role"].as_str() {
            Some("user") => "user",
            Some("assistant") if message.get("tool_calls").is_none() => "assistant",
            _ => {
                out.push(message);
                continue;
            }
        };
        // Some templates refuse an empty answer.
        if role == "assistant" && message["content"] == "" {
            continue;
        }
        if role == last {
            // The first turn has none before it, and calls and results may separate others.
            match out.last_mut().filter(|before| before["role"] == role && before.get("tool_calls").is_none())
            {
                Some(before) => {
                    join(&mut before["content"], message["content"].take());
                    continue;
                }
                None if role == "user" => out.push(json!({"role": "assistant", "content": STOPPED})),
                None => out.push(json!({"role": "user", "content": ""})),
            }
        }
        last = role;
        out.push(message);
    }
    out
}

/// Appends a content to another: texts are separated by a blank line, lists of parts concatenated.
fn join(content: &mut Value, more: Value) {
    // In place: otherwise a thousand turns of one role would be copied a thousand times.
    if let (Value::String(text), Some(more)) = (&mut *content, more.as_str()) {
        text.push_str("\n\n");
        text.push_str(more);
        return;
    }
    let parts = |content: Value| match content {
        Value::Array(parts) => parts,
        text => vec![json!({"type": "text", "text": text})],
    };
    let mut both = parts(content.take());
    both.extend(parts(more));
    *content = both.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages by their first letter: `s`ystem, `u`ser, `a`ssistant, `c`alls, `t`ool; the rest is
    /// the content.
    fn messages(written: &[&str]) -> Vec<Value> {
        let message = |written: &&str| {
            let (kind, content) = written.split_at(1);
            let role = match kind {
                "s" => "system",
                "u" => "user",
                "t" => "tool",
                _ => "assistant",
            };
            let mut message = json!({"role": role, "content": content});
            if kind == "c" {
                message["tool_calls"] = json!([{"id": "1"}]);
            }
            message
        };
        written.iter().map(message).collect()
    }

    #[test]
    fn turns_are_joined_and_filled_in() {
        let check = |written: &[&str], expected: &[&str]| {
            let once = alternating(messages(written));
            assert_eq!(once, messages(expected), "{written:?}");
            assert_eq!(alternating(once.clone()), once, "{written:?}");
        };
        let same = |written: &[&str]| check(written, written);
        same(&["sS", "u1", "a2", "u3", "c4", "t5", "c6", "t7", "a8", "u9"]);
        same(&["u1", "a2", "c3", "t4", "u5"]);
        check(&["u1", "u2"], &["u1\n\n2"]);
        check(&["sS", "a1", "a2", "u3"], &["sS", "u", "a1\n\n2", "u3"]);
        check(&["u1", "a", "u2"], &["u1\n\n2"]);
        check(&["u1", "c2", "t3", "u4", "u5"], &["u1", "c2", "t3", "aI stopped here.", "u4\n\n5"]);
        check(&["u1", "c2", "u3"], &["u1", "c2", "aI stopped here.", "u3"]);
        check(&["u1", "a2", "c3", "t4", "a5"], &["u1", "a2", "c3", "t4", "u", "a5"]);
    }

    #[test]
    fn parts_are_joined_with_texts() {
        let thought = json!([{"type": "thinking", "thinking": "hm"}]);
        let turns = alternating(vec![
            json!({"role": "user", "content": "u"}),
            json!({"role": "assistant", "content": "x"}),
            json!({"role": "assistant", "content": thought}),
        ]);
        let expected = json!([{"type": "text", "text": "x"}, {"type": "thinking", "thinking": "hm"}]);
        assert_eq!(turns[1]["content"], expected);
    }
}
