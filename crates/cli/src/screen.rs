//! Makes text safe to show at a terminal, and defines our own styles.

use std::borrow::Cow;

use alara_models::name::deceives;
use console::measure_text_width as width;

pub const PLAIN: &str = "\u{1b}[0m";
pub const BOLD: &str = "\u{1b}[1m";
pub const DIM: &str = "\u{1b}[2m";
pub const ITALIC: &str = "\u{1b}[3m";
pub const UNDERLINE: &str = "\u{1b}[4m";
pub const RED: &str = "\u{1b}[31m";
pub const GREEN: &str = "\u{1b}[32m";
pub const YELLOW: &str = "\u{1b}[33m";
pub const CYAN: &str = "\u{1b}[36m";
/// All styles; any other escape sequence isn't ours.
const STYLES: [&str; 9] = [PLAIN, BOLD, DIM, ITALIC, UNDERLINE, RED, GREEN, YELLOW, CYAN];
const ESCAPE: char = '\u{1b}';

/// Replaces characters that could manipulate the terminal with something visible.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(deceives) {
        return Cow::Borrowed(text);
    }
    let mut characters = text.chars().peekable();
    let mut shown = String::with_capacity(text.len());
    while let Some(c) = characters.next() {
        match c {
            '\r' if characters.peek() == Some(&'\n') => {}
            c if deceives(c) => shown.push(char::REPLACEMENT_CHARACTER),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Like [`printable`], but in one line.
pub fn one_line(text: &str) -> String {
    printable(text).replace('\n', "\u{fffd}")
}

/// Like [`printable`], but keeps our own styles.
pub fn styled(text: &str) -> Cow<'_, str> {
    if !text.contains(deceives) {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(ESCAPE) {
        shown += &printable(&rest[..at]);
        rest = &rest[at..];
        let style = STYLES.into_iter().find(|style| rest.starts_with(style));
        let (escape, after) = rest.split_at(style.map_or(ESCAPE.len_utf8(), str::len));
        shown += &style.map_or_else(|| printable(escape), Cow::Borrowed);
        rest = after;
    }
    shown += &printable(rest);
    Cow::Owned(shown)
}

/// Maximum number of successive blanks, and of successive empty lines, in text that a user
/// confirms.
const BLANKS: usize = 40;
const EMPTY_LINES: usize = 5;

/// Formats a value that the user must see in full, in lines of at most `columns`: nothing in it can
/// look like one of our own lines, or push anything out of view.
pub fn in_full(name: &str, value: &str, columns: Option<usize>) -> Vec<String> {
    let columns = columns.map_or(usize::MAX, |columns| columns.max(24));
    let (mut shown, mut empty) = (Vec::new(), Vec::new());
    let mut head = format!("  {}: ", one_line(name));
    for line in printable(value).split('\n') {
        if line.chars().all(is_blank) && !shown.is_empty() {
            empty.push(String::new());
            continue;
        }
        if empty.len() > EMPTY_LINES {
            empty = vec![format!("    [{} empty lines]", empty.len())];
        }
        shown.append(&mut empty);
        let rows = rows(std::mem::replace(&mut head, "    ".to_owned()), &squeezed(line), columns);
        shown.extend(rows);
    }
    shown
}

/// Splits a line into rows that fit the terminal.
fn rows(head: String, line: &str, columns: usize) -> Vec<String> {
    let mut used = width(&head);
    let mut rows = vec![head];
    for c in line.chars() {
        let (c, wide) =
            if c == '\t' { ("    ".to_owned(), 4) } else { (c.to_string(), width(&c.to_string())) };
        if used + wide >= columns {
            used = 4;
            rows.push("  … ".to_owned());
        }
        used += wide;
        if let Some(row) = rows.last_mut() {
            *row += &c;
        }
    }
    rows
}

/// Replaces long runs of blanks, which could push text out of view, with a note.
pub fn squeezed(line: &str) -> String {
    let (mut shown, mut rest) = (String::new(), line);
    while let Some(first) = rest.chars().next() {
        let run: String = rest.chars().take_while(|c| is_blank(*c) == is_blank(first)).collect();
        rest = &rest[run.len()..];
        match run.chars().count() {
            blanks if is_blank(first) && blanks > BLANKS => shown += &format!(" [{blanks} blanks] "),
            _ => shown += &run,
        }
    }
    shown
}

/// Whether a character is invisible.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}')
}

/// Whether a style is still active at the end of this text.
pub fn is_open(text: &str) -> bool {
    text.rfind(ESCAPE).is_some_and(|at| !text[at..].starts_with(PLAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_plays_with_the_terminal() {
        let check = |text: &str, expected: &str| {
            assert_eq!(printable(text), expected, "{text:?}");
            // Cleaning text twice changes nothing.
            assert_eq!(printable(expected), expected);
        };
        check("a\tb\n漢字 é 👩‍👩‍👧 \u{200c}", "a\tb\n漢字 é 👩‍👩‍👧 \u{200c}");
        check("\u{1b}]52;c;aGk=\u{7}", "\u{fffd}]52;c;aGk=\u{fffd}");
        check("\u{1b}[2J\u{9b}2J\u{7f}\u{8}\u{0}", "\u{fffd}[2J\u{fffd}2J\u{fffd}\u{fffd}\u{fffd}");
        check("safe\rrm -rf", "safe\u{fffd}rm -rf");
        check("one\r\ntwo\r", "one\ntwo\u{fffd}");
        check("\u{202e}fr\u{2066}\u{200f}\u{61c}", "\u{fffd}fr\u{fffd}\u{fffd}\u{fffd}");
        check("r\u{200b}m\u{2028}x\u{e0061}\u{feff}", "r\u{fffd}m\u{fffd}x\u{fffd}\u{fffd}");
    }

    #[test]
    fn all_of_a_value_is_seen() {
        let check = |value: &str, columns, expected: &[&str]| {
            assert_eq!(in_full("command", value, columns), expected, "{value:?}");
        };
        check("ls", Some(80), &["  command: ls"]);
        check("ls\n  rm\n\nx", None, &["  command: ls", "      rm", "", "    x"]);
        check("safe\rrm", None, &["  command: safe\u{fffd}rm"]);
        let pushed = format!("ls{};rm", " ".repeat(4000));
        check(&pushed, Some(80), &["  command: ls [4000 blanks] ;rm"]);
        let pushed = format!("ls{};rm", "\n \t".repeat(4000));
        check(&pushed, Some(80), &["  command: ls", "    [3999 empty lines]", "     \u{20}   ;rm"]);
        let long = in_full("command", &format!("{}allow? y", "x".repeat(69)), Some(40));
        assert_eq!(long.concat().replace("  … ", ""), format!("  command: {}allow? y", "x".repeat(69)));
        assert!(long[1..].iter().all(|row| row.starts_with("  … ")), "{long:?}");
        assert!(long.iter().all(|row| width(row) < 40), "{long:?}");
        assert!(in_full("a\nb", "漢字".repeat(50).as_str(), Some(40)).iter().all(|row| width(row) < 40));
    }

    #[test]
    fn no_style_but_ours() {
        let check = |text: &str, expected: &str| assert_eq!(styled(text), expected, "{text:?}");
        check("plain", "plain");
        for style in STYLES {
            check(&format!("a{style}b"), &format!("a{style}b"));
        }
        // Concealed, black on black, blinking.
        for hidden in ["[8m", "[30;40m", "[5m", "[38;5;0m", "[1;31m", "[m"] {
            check(&format!("a\u{1b}{hidden}b"), &format!("a\u{fffd}{hidden}b"));
        }
        check("\u{1b}[31\u{1b}[31mx\u{1b}", "\u{fffd}[31\u{1b}[31mx\u{fffd}");
        check("\u{1b}\u{1b}[2J\r", "\u{fffd}\u{fffd}[2J\u{fffd}");
        assert!(is_open("\u{1b}[31ma") && !is_open("\u{1b}[31ma\u{1b}[0m") && !is_open("a"));
    }
}
