//! What the template of a file may be made of, so that it can't fill the memory: it puts values in, loops over them and asks about
//! them. What makes large values out of small ones (`set`, macros, lists, `~`, `+`, `*`) is refused before it is rendered.
//!
//! This module reads a template as the template engine does, as far as words and signs go. It must not know what they mean.

/// The statements.
const STATEMENTS: [&str; 10] =
    ["if", "elif", "else", "endif", "for", "endfor", "break", "continue", "raw", "endraw"];
/// Words after which a value begins.
const BEFORE_VALUES: [&str; 10] = ["in", "if", "elif", "else", "not", "and", "or", "is", "for", "recursive"];

/// The first thing in a template that is refused, and the line that it is in.
pub fn refused(text: &str) -> Option<(usize, String)> {
    let mut at = 0;
    while let Some(open) = ["{{", "{%", "{#"].iter().filter_map(|tag| text[at..].find(tag)).min() {
        at += open;
        let rest = &text[at + 2..];
        let length = match &text[at..at + 2] {
            "{#" => rest.find("#}")? + 2,
            "{%" => match basic(rest, "raw") {
                Some(raw) => raw + end_of_raw(&rest[raw..])?,
                None => match tag(rest, "%}") {
                    Ok(length) => length,
                    Err((offset, what)) => return Some((line(text, at + 2 + offset), what)),
                },
            },
            _ => match tag(rest, "}}") {
                Ok(length) => length,
                Err((offset, what)) => return Some((line(text, at + 2 + offset), what)),
            },
        };
        at += 2 + length;
    }
    None
}

fn line(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// The length of the rest of a tag that is nothing but this word.
fn basic(text: &str, word: &str) -> Option<usize> {
    let space = |c: char| c.is_ascii_whitespace();
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches(space);
    let rest = rest.strip_prefix(word)?.trim_start_matches(space);
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix("%}")?;
    Some(text.len() - rest.len())
}

fn end_of_raw(text: &str) -> Option<usize> {
    let mut starts = text.match_indices("{%").map(|(at, _)| at + 2);
    starts.find_map(|at| Some(at + basic(&text[at..], "endraw")?))
}

/// The length of the rest of a tag, or what is refused in it and where.
fn tag(text: &str, end: &str) -> Result<usize, (usize, String)> {
    let bytes = text.as_bytes();
    let mut at = usize::from(text.starts_with(['-', '+']));
    let mut statement = end == "%}";
    // For each open bracket whether it is that of a call, in which alone several values may stand.
    let mut open: Vec<bool> = Vec::new();
    // Whether a value has just ended, and whether names of a loop are being told.
    let (mut after_value, mut names) = (false, false);
    while at < bytes.len() {
        let rest = &text[at..];
        let marked = rest.strip_prefix(['-', '+']).unwrap_or(rest);
        if open.is_empty() && (rest.starts_with(end) || marked.starts_with(end)) {
            return Ok(text.len() - if rest.starts_with(end) { rest.len() } else { marked.len() } + 2);
        }
        let no = |what: &str| Err((at, format!("`{what}` is not part of templates here")));
        match bytes[at] {
            byte if byte.is_ascii_whitespace() => at += 1,
            quote @ (b'\'' | b'"') => {
                let mut escaped = false;
                let closes = |byte: &u8| {
                    let closes = !escaped && *byte == quote;
                    escaped = !escaped && *byte == b'\\';
                    closes
                };
                // Without an end the engine finds none either.
                let Some(length) = bytes[at + 1..].iter().position(closes) else { return Ok(text.len()) };
                at += length + 2;
                after_value = true;
            }
            byte if byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii() => {
                let part = |c: char| c.is_alphanumeric() || c == '_' || !c.is_ascii();
                let length = rest.find(|c| !part(c)).unwrap_or(rest.len());
                let word = &rest[..length];
                if (statement && !STATEMENTS.contains(&word)) || word == "recursive" {
                    return no(word);
                }
                names = (statement && word == "for") || (names && word != "in");
                statement = false;
                after_value = !BEFORE_VALUES.contains(&word);
                at += length;
            }
            bracket @ (b'(' | b'[') => {
                if bracket == b'[' && !after_value {
                    return no("[");
                }
                open.push(bracket == b'(' && after_value);
                after_value = false;
                at += 1;
            }
            b')' | b']' => {
                open.pop();
                after_value = true;
                at += 1;
            }
            b',' if !open.last().copied().unwrap_or(names) => return no(","),
            sign @ (b'~' | b'+' | b'*' | b'{' | b'}' | b':') => return no(&char::from(sign).to_string()),
            _ => {
                after_value = false;
                at += 1;
            }
        }
    }
    Ok(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused() {
        let check = |text: &str, expected: Option<(usize, &str)>| {
            let expected =
                expected.map(|(line, what)| (line, format!("`{what}` is not part of templates here")));
            assert_eq!(refused(text), expected, "{text}");
        };
        check("* a ~ b {x} + c", None);
        check("{{ Jinx('a~b', path='lib/*') }} * {{- ctx['k'].x | default(\"}} ~\") +}} + ~", None);
        check("{% for k, v in ctx.m.items() if (k == 'a' or not v) -%}\n{% endfor %}", None);
        check("{# ~ {% set #} {% raw %} {# {{ a ~ b }} {%- endraw -%} ~", None);
        check("a\n{% set x = 1 %}", Some((2, "set")));
        check("{%- macro f() %}", Some((1, "macro")));
        check("{{ 1 }}\n\n{{\n'\\'' ~ 'x' }}", Some((4, "~")));
        check("{{ {'a': 1} ~ 2 }}", Some((1, "{")));
        check("{{ f(')}}' * 9) }}", Some((1, "*")));
        check("{% for a in [a, a] %}", Some((1, "[")));
        check("{% for a in (a, a) %}", Some((1, ",")));
        check("{% for a in a, a %}", Some((1, ",")));
        check("{% for a in b recursive %}", Some((1, "recursive")));
        check("{% raw %} {# {% endraw %}{{ a + b }} #}", Some((1, "+")));
        check("{% raw %} endraw {# {% endraw %}{{ a ~ b }}", Some((1, "~")));
    }
}
