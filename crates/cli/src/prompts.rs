//! Shows prompts: either whole with the cached part marked, or only the new part of each turn.

use std::collections::BTreeMap;
use std::ops::Range;

use alara_engine::PromptToken;
use alara_harness::model::Prompt;

use crate::progress::count;
use crate::screen::{CYAN, DIM, PLAIN, printable};

/// The text of a prompt, with its tokens.
struct Text {
    bytes: Vec<u8>,
    /// End offset of each token.
    ends: Vec<usize>,
    /// Ranges of special tokens.
    special: Vec<Range<usize>>,
}

impl Text {
    fn of(tokens: &[PromptToken]) -> Self {
        let mut text = Text { bytes: Vec::new(), ends: Vec::new(), special: Vec::new() };
        for token in tokens {
            let begin = text.bytes.len();
            text.bytes.extend(&token.bytes);
            text.ends.push(text.bytes.len());
            if token.special {
                text.special.push(begin..text.bytes.len());
            }
        }
        text
    }

    /// Returns the end of the first `tokens` tokens; moves back to the start of a split character.
    fn end_of(&self, tokens: usize) -> usize {
        let is_within = |at: &usize| self.bytes.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
        let mut end = tokens.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
        while end > 0 && is_within(&end) {
            end -= 1;
        }
        end
    }

    /// Returns a part of the text; if `styled`, special tokens stand out, and the rest is in
    /// `style`.
    fn part(&self, part: Range<usize>, styled: bool, style: &str) -> String {
        let lossy = |part: Range<usize>| String::from_utf8_lossy(&self.bytes[part]).into_owned();
        if !styled {
            return lossy(part);
        }
        let (mut shown, mut at) = (String::new(), part.start);
        let mut piece = |part: Range<usize>, styles: &[&str]| {
            let (styles, text) = (styles.concat(), lossy(part));
            match styles.is_empty() || text.is_empty() {
                true => shown += &printable(&text),
                false => shown += &format!("{styles}{}{PLAIN}", printable(&text)),
            }
        };
        for special in &self.special {
            let special = special.start.max(part.start)..special.end.min(part.end);
            if !special.is_empty() {
                piece(at..special.start, &[style]);
                piece(special.clone(), &[style, CYAN]);
                at = special.end;
            }
        }
        piece(at..part.end, &[style]);
        shown
    }

    /// Returns a part of the text, ending with a newline.
    fn lines(&self, part: Range<usize>, styled: bool, style: &str) -> String {
        let ended = self.bytes[part.clone()].last().is_none_or(|last| *last == b'\n');
        self.part(part, styled, style) + if ended { "" } else { "\n" }
    }
}

/// Decodes tokens; bytes that are not UTF-8 become U+FFFD.
pub fn text(tokens: &[PromptToken]) -> String {
    let text = Text::of(tokens);
    text.part(0..text.bytes.len(), false, "")
}

/// Decodes the first tokens, up to a character that they split.
pub fn beginning(tokens: &[PromptToken], count: usize) -> String {
    let text = Text::of(tokens);
    text.part(0..text.end_of(count), false, "")
}

/// Formats a prompt with a line that marks the end of its first `cached` tokens, which were in the
/// cache.
/// That line is separate even in the middle of one of the prompt's lines.
pub fn marked(tokens: &[PromptToken], cached: usize, styled: bool) -> String {
    let text = Text::of(tokens);
    let at = text.end_of(cached);
    let rest = text.lines(at..text.bytes.len(), styled, "");
    if cached == 0 {
        return rest;
    }
    let were = if cached == 1 { "token was" } else { "tokens were" };
    format!("{}── {cached} {were} cached up to here ──\n{rest}", text.lines(0..at, styled, DIM))
}

/// Formats JSON for display, in lines.
pub fn lines(json: &serde_json::Value) -> Vec<String> {
    // Serializing a value can't fail.
    let text = serde_json::to_string_pretty(json).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The part of a conversation that was shown.
enum Shown {
    Tokens(Vec<u32>),
    Lines(Vec<String>),
}

/// Shows the prompts of a run, each time only the part that is new in its conversation.
#[derive(Default)]
pub struct Prompts(BTreeMap<String, Shown>);

impl Prompts {
    /// Formats the new part of a turn's prompt, below a line that names the NPC.
    pub fn new_in(&mut self, npc: &str, scope: &str, turn: usize, prompt: &Prompt, styled: bool) -> String {
        let before = self.0.get(scope);
        let who = if npc.is_empty() { "the model" } else { npc };
        let scope_shown = if scope.is_empty() { String::new() } else { format!(" [{scope}]") };
        let (now, same, all, new) = match prompt {
            Prompt::Tokens(tokens) => {
                let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
                let same = match before {
                    Some(Shown::Tokens(before)) => common(before, &ids),
                    _ => 0,
                };
                let text = Text::of(tokens);
                let new = text.lines(text.end_of(same)..text.bytes.len(), styled, "");
                let all = count(tokens.len(), "token");
                (Shown::Tokens(ids), same, format!("reads {all}"), new)
            }
            Prompt::Json(json) => {
                let lines = lines(json);
                let same = match before {
                    Some(Shown::Lines(before)) => common(before, &lines),
                    _ => 0,
                };
                let mut new = lines[same..].join("\n") + "\n";
                if styled {
                    new = printable(&new).into_owned();
                }
                let all = count(lines.len(), "line");
                (Shown::Lines(lines), same, format!("gets {all} of JSON"), new)
            }
        };
        self.0.insert(scope.to_owned(), now);
        let same = if same > 0 { format!(", the first {same} as before") } else { String::new() };
        format!(
            "── turn {turn} of {}: the model {all}{same} ──\n{new}──",
            printable(&format!("{who}{scope_shown}"))
        )
    }
}

/// Returns the length of the common prefix of two lists.
fn common<T: PartialEq>(one: &[T], other: &[T]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tokens(texts: &[&[u8]]) -> Vec<PromptToken> {
        let token = |text: &[u8]| PromptToken {
            id: text.iter().map(|byte| u32::from(*byte)).sum(),
            bytes: text.to_vec(),
            special: text.starts_with(b"<|"),
        };
        texts.iter().map(|text| token(text)).collect()
    }

    #[test]
    fn a_line_marks_where_the_cache_ended() {
        let check = |texts: &[&[u8]], cached, expected: &str| {
            assert_eq!(marked(&tokens(texts), cached, false), expected);
        };
        let prompt: &[&[u8]] = &[b"<|im_start|>", b"user", b"\n", b"hi"];
        check(prompt, 0, "<|im_start|>user\nhi\n");
        check(prompt, 1, "<|im_start|>\n── 1 token was cached up to here ──\nuser\nhi\n");
        check(prompt, 3, "<|im_start|>user\n── 3 tokens were cached up to here ──\nhi\n");
        check(prompt, 4, "<|im_start|>user\nhi\n── 4 tokens were cached up to here ──\n");
        // A character whose tokens are in both parts belongs to the second.
        let crab = "🦀".as_bytes();
        check(&[b"a", &crab[..2], &crab[2..]], 2, "a\n── 2 tokens were cached up to here ──\n🦀\n");
        check(&[b"\xff\n"], 1, "\u{fffd}\n── 1 token was cached up to here ──\n");
    }

    #[test]
    fn on_a_terminal_the_cached_part_is_dim_and_special_tokens_stand_out() {
        let prompt = tokens(&[b"<|s|>", b"a\x1b[2m", b"<|e|>", b"b"]);
        let expected = format!(
            "{DIM}{CYAN}<|s|>{PLAIN}{DIM}a\u{fffd}[2m{PLAIN}\n── 2 tokens were cached up to here ──\n{CYAN}<|e|>{PLAIN}b\n"
        );
        assert_eq!(marked(&prompt, 2, true), expected);
    }

    #[test]
    fn only_what_is_new_is_shown_again() {
        let mut prompts = Prompts::default();
        let mut check = |scope: &str, turn, prompt: &Prompt, expected: &str| {
            assert_eq!(prompts.new_in("worker", scope, turn, prompt, false), expected);
        };
        let of = |texts: &[&[u8]]| Prompt::Tokens(tokens(texts));
        check("", 1, &of(&[b"<|s|>", b"a"]), "── turn 1 of worker: the model reads 2 tokens ──\n<|s|>a\n──");
        check("call_1", 1, &of(&[b"b"]), "── turn 1 of worker [call_1]: the model reads 1 token ──\nb\n──");
        let expected = "── turn 2 of worker: the model reads 3 tokens, the first 2 as before ──\nc\n──";
        check("", 2, &of(&[b"<|s|>", b"a", b"c"]), expected);
        let body = |messages: &[&str]| Prompt::Json(json!({"messages": messages}));
        let expected = "── turn 1 of worker [@x]: the model gets 5 lines of JSON ──\n{\n  \"messages\": [\n    \"a\"\n  ]\n}\n──";
        check("@x", 1, &body(&["a"]), expected);
        let expected = "── turn 2 of worker [@x]: the model gets 6 lines of JSON, the first 2 as before ──\n    \"a\",\n    \"b\"\n  ]\n}\n──";
        check("@x", 2, &body(&["a", "b"]), expected);
    }
}
