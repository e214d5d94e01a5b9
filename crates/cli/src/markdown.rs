//! Renders Markdown on a terminal, incrementally as a model writes it.
//!
//! The output never depends on how the text was split into pieces.
//! Characters are held back only while their meaning is undecided, at the beginning of a line and
//! at emphasis markers.
//! Emphasis ends with its line.
//! Text that isn't markup is shown as it is.

use crate::screen::{BOLD, CYAN, DIM, ITALIC, PLAIN, UNDERLINE, printable};

/// Renders one text.
#[derive(Default)]
pub struct Markdown {
    /// Whether to render markers as styles; otherwise the text stays as it is, except for anything
    /// that could manipulate the terminal.
    styled: bool,
    out: String,
    /// Beginning of a line whose kind is still undecided; `None` within a line.
    start: Option<String>,
    /// The marker that opened the current code fence.
    fence: Option<String>,
    /// A run of markers whose meaning depends on the next character.
    run: String,
    /// The character before the run.
    previous: char,
    escaped: bool,
    style: Style,
    /// The current style of the terminal.
    applied: Style,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Style {
    heading: usize,
    quote: bool,
    fenced: bool,
    bold: Option<char>,
    italic: Option<char>,
    /// Length of the run that opened the code span.
    code: Option<usize>,
}

/// The kind of a line, from its beginning.
enum Kind {
    /// Undecided so far.
    Open,
    /// Replaces the marker with `mark`, then continues with text in this style, which begins with
    /// `rest`.
    Text { mark: String, style: Style, rest: String },
}

impl Markdown {
    /// Creates a renderer for one text; without `styled`, markers stay as they are.
    pub fn new(styled: bool) -> Self {
        Markdown { styled, start: Some(String::new()), previous: '\n', ..Markdown::default() }
    }

    /// Returns the output for the next piece of the text.
    pub fn feed(&mut self, text: &str) -> String {
        if !self.styled {
            return printable(text).into_owned();
        }
        for c in printable(text).chars() {
            match (c, &mut self.start) {
                ('\n', _) => self.end_line(),
                (c, Some(start)) => {
                    start.push(c);
                    self.begin();
                }
                (c, None) => self.inline(c),
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Returns the output for the end of the text; another text can follow.
    pub fn finish(&mut self) -> String {
        if self.styled {
            let start = self.start.take().unwrap_or_default();
            if self.fence.is_none() || !is_fence(&start) {
                self.rest_of(&start);
            }
            self.plain();
            self.fence = None;
            self.start = Some(String::new());
        }
        std::mem::take(&mut self.out)
    }

    fn end_line(&mut self) {
        let start = self.start.take().unwrap_or_default();
        let trimmed = start.trim();
        match &self.fence {
            Some(mark) if trimmed.starts_with(mark.as_str()) && is_fence(trimmed) => self.fence = None,
            None if is_fence(trimmed) => {
                let mark: String = trimmed.chars().take_while(|c| trimmed.starts_with(*c)).collect();
                self.fence = Some(mark);
            }
            None if is_rule(trimmed) => self.out += "────────\n",
            _ => {
                self.rest_of(&start);
                self.plain();
                self.out.push('\n');
            }
        }
        self.start = Some(String::new());
        self.previous = '\n';
    }

    /// Outputs the held-back beginning of a finished line.
    fn rest_of(&mut self, start: &str) {
        self.style.fenced = self.fence.is_some();
        start.chars().for_each(|c| self.inline(c));
        self.resolve('\n');
        if std::mem::take(&mut self.escaped) {
            self.show('\\');
        }
    }

    /// Resets the style.
    fn plain(&mut self) {
        self.style = Style::default();
        self.apply();
    }

    fn begin(&mut self) {
        let start = self.start.as_deref().unwrap_or_default();
        let kind = match &self.fence {
            Some(mark) if mark.starts_with(start.trim_start()) => Kind::Open,
            Some(mark) if start.trim_start().starts_with(mark.as_str()) && is_fence(start) => Kind::Open,
            Some(_) => text("", Style { fenced: true, ..Style::default() }, start),
            None => kind(start),
        };
        if let Kind::Text { mark, style, rest } = kind {
            self.start = None;
            self.out += &mark;
            self.style = style;
            rest.chars().for_each(|c| self.inline(c));
        }
    }

    fn inline(&mut self, c: char) {
        if self.style.fenced {
            return self.show(c);
        }
        if std::mem::take(&mut self.escaped) {
            if !c.is_ascii_punctuation() {
                self.show('\\');
            }
            return self.show(c);
        }
        let is_mark = c == '`' || (self.style.code.is_none() && (c == '*' || c == '_'));
        let goes_on = is_mark && self.run.starts_with(c);
        if !goes_on {
            self.resolve(c);
        }
        match c {
            c if is_mark => self.run.push(c),
            '\\' if self.style.code.is_none() => self.escaped = true,
            c => self.show(c),
        }
    }

    /// Resolves the run of markers before `next`: the beginning or end of emphasis, or plain text.
    fn resolve(&mut self, next: char) {
        let run = std::mem::take(&mut self.run);
        let Some(mark) = run.chars().next() else { return };
        let within_word = |c: char| mark == '_' && c.is_alphanumeric();
        let opens = !next.is_whitespace() && !within_word(self.previous);
        let closes = !self.previous.is_whitespace() && !within_word(next);
        let style = &mut self.style;
        let toggled = |emphasis: Option<char>| match emphasis {
            None if opens => Some(Some(mark)),
            Some(open) if open == mark && closes => Some(None),
            _ => None,
        };
        let understood = match (mark, run.len()) {
            ('`', length) => match style.code {
                None => style.code.replace(length).is_none(),
                Some(open) if open == length => style.code.take().is_some(),
                Some(_) => false,
            },
            (_, 1) => toggled(style.italic).map(|italic| style.italic = italic).is_some(),
            (_, 2) => toggled(style.bold).map(|bold| style.bold = bold).is_some(),
            (_, 3) => match (toggled(style.bold), toggled(style.italic)) {
                (Some(bold), Some(italic)) => {
                    (style.bold, style.italic) = (bold, italic);
                    true
                }
                _ => false,
            },
            _ => false,
        };
        if understood {
            self.previous = mark;
        } else {
            run.chars().for_each(|c| self.show(c));
        }
    }

    fn show(&mut self, c: char) {
        self.apply();
        self.out.push(c);
        self.previous = c;
    }

    fn apply(&mut self) {
        if self.applied == self.style {
            return;
        }
        self.applied = self.style;
        let Style { heading, quote, fenced, bold, italic, code } = self.style;
        self.out += PLAIN;
        for (on, sequence) in [
            (quote, DIM),
            (heading > 0 || bold.is_some(), BOLD),
            (italic.is_some(), ITALIC),
            (heading == 1, UNDERLINE),
            (fenced || code.is_some(), CYAN),
        ] {
            if on {
                self.out += sequence;
            }
        }
    }
}

fn text(mark: &str, style: Style, rest: &str) -> Kind {
    Kind::Text { mark: mark.to_owned(), style, rest: rest.to_owned() }
}

/// Returns the kind of a line outside code from its beginning, whose last character has just
/// arrived.
fn kind(start: &str) -> Kind {
    let trimmed = start.trim_start_matches(' ');
    let indent = &start[..start.len() - trimmed.len()];
    let paragraph = || text("", Style::default(), start);
    let Some(first) = trimmed.chars().next() else { return Kind::Open };
    let run = trimmed.len() - trimmed.trim_start_matches(first).len();
    let after = &trimmed[run..];
    match first {
        '#' if run <= 6 && after.is_empty() => Kind::Open,
        '#' if run <= 6 && after == " " => text("", Style { heading: run, ..Style::default() }, ""),
        '>' if run == 1 && after.is_empty() => Kind::Open,
        '>' => text("│ ", Style { quote: true, ..Style::default() }, trimmed[1..].trim_start_matches(' ')),
        '-' | '*' | '+' if run == 1 && after == " " => text(&format!("{indent}• "), Style::default(), ""),
        '-' | '*' | '+' | '_' if after.is_empty() => Kind::Open,
        '`' | '~' if after.is_empty() || is_fence(trimmed) => Kind::Open,
        '0'..='9' => {
            let after = trimmed.trim_start_matches(|c: char| c.is_ascii_digit());
            match after {
                "" | "." | ")" if trimmed.len() <= 10 => Kind::Open,
                ". " | ") " => text(start, Style::default(), ""),
                _ => paragraph(),
            }
        }
        _ => paragraph(),
    }
}

/// Whether a line opens or closes a code fence.
fn is_fence(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("~~~") || (line.starts_with("```") && !line.trim_start_matches('`').contains('`'))
}

fn is_rule(line: &str) -> bool {
    ["-", "*", "_"].iter().any(|mark| line.len() >= 3 && line.trim_start_matches(mark).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> String {
        let mut markdown = Markdown::new(true);
        let whole = markdown.feed(text) + &markdown.finish();
        let mut markdown = Markdown::new(true);
        let mut pieces: String = text.chars().map(|c| markdown.feed(&c.to_string())).collect();
        pieces += &markdown.finish();
        assert_eq!(whole, pieces, "in pieces: {text}");
        whole
    }

    #[test]
    fn marks_become_styles() {
        let (bold, italic, code, off) =
            ("\u{1b}[0m\u{1b}[1m", "\u{1b}[0m\u{1b}[3m", "\u{1b}[0m\u{1b}[36m", "\u{1b}[0m");
        let check = |text: &str, expected: String| assert_eq!(render(text), expected, "{text}");
        check("plain text\n", "plain text\n".into());
        check("a **b** c", format!("a {bold}b{off} c"));
        check("a *b* _c_", format!("a {italic}b{off} {italic}c{off}"));
        check("***b***!", format!("{off}\u{1b}[1m\u{1b}[3mb{off}!"));
        check("`let *x*` y", format!("{code}let *x*{off} y"));
        check("``a`b``", format!("{code}a`b{off}"));
        check("# Head\nx", format!("{off}\u{1b}[1m\u{1b}[4mHead{off}\nx"));
        check("## Head **x**\n", format!("{bold}Head {bold}x{off}\n"));
        check("- one\n  * two\n1. three\n", "• one\n  • two\n1. three\n".into());
        check("> said\n", format!("│ {off}\u{1b}[2msaid{off}\n"));
        check("---\n", "────────\n".into());
        check("```rust\n# no *mark*\n  `\n```\nx", format!("{code}# no *mark*{off}\n{code}  `{off}\nx"));
        check("~~~\n```\n~~~\n", format!("{code}```{off}\n"));
    }

    #[test]
    fn what_is_no_markup_stays() {
        for text in [
            "2 * 3 = 6 and 4 *5",
            "snake_case_name x",
            "#hashtag",
            "-5 degrees",
            "1.5 times, 2024. ",
            "a < b > c",
            "C:\\dir",
            "`open",
            "* ",
            "",
            "\n\n",
        ] {
            let shown = render(text);
            let visible: String = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[3m", "\u{1b}[36m"]
                .iter()
                .fold(shown, |shown, code| shown.replace(code, ""));
            let expected = match text {
                "2 * 3 = 6 and 4 *5" => "2 * 3 = 6 and 4 5",
                "`open" => "open",
                "* " => "• ",
                other => other,
            };
            assert_eq!(visible, expected);
        }
        assert_eq!(render("\\*no\\* \\d"), "*no* \\d");
        assert!(render("**open\nnext").ends_with("\u{1b}[0m\nnext"), "emphasis ends with its line");
    }

    #[test]
    fn nothing_plays_with_the_terminal() {
        for styled in [true, false] {
            let mut markdown = Markdown::new(styled);
            let shown = markdown.feed("a\u{1b}[31mb\rc\u{7}\td\u{202e}\n") + &markdown.finish();
            assert_eq!(shown, "a\u{fffd}[31mb\u{fffd}c\u{fffd}\td\u{fffd}\n");
        }
        assert_eq!(Markdown::new(false).feed("# **as it is**"), "# **as it is**");
    }
}
