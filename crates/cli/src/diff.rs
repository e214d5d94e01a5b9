//! Shows changes to files as unified diffs.

use std::time::Duration;

use alara_harness::sandbox::ProposedFile;
use similar::TextDiff;

use crate::screen::{BOLD, CYAN, GREEN, PLAIN, RED, one_line, printable};
use crate::ui;

/// Time limit for finding the shortest diff; after that any diff will do.
const SEARCH: Duration = Duration::from_secs(1);
/// Terminal colours by a line's prefix; the first match applies.
const COLOURS: [(&str, &str); 6] =
    [("--- ", BOLD), ("+++ ", BOLD), ("diff ", BOLD), ("@@", CYAN), ("-", RED), ("+", GREEN)];

/// Returns a file's change in the format of `diff -u`.
/// For binary contents, shows only the lengths.
pub fn unified(file: &ProposedFile) -> String {
    let path = one_line(&file.path.display().to_string());
    let name = |side: &Option<Vec<u8>>, mark: &str| match side {
        Some(_) => format!("{mark}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let (old, new) = (name(&file.before, "a"), name(&file.after, "b"));
    let text = |side: &Option<Vec<u8>>| {
        let text = std::str::from_utf8(side.as_deref().unwrap_or_default()).ok().map(str::to_owned);
        text.filter(|text| !text.contains('\0'))
    };
    let (Some(before), Some(after)) = (text(&file.before), text(&file.after)) else {
        let length = |side: &Option<Vec<u8>>| ui::bytes(side.as_ref().map_or(0, Vec::len) as u64);
        return format!("{old} {new}: no text, {} become {}\n", length(&file.before), length(&file.after));
    };
    let diff = TextDiff::configure().timeout(SEARCH).diff_lines(&before, &after);
    let shown = diff.unified_diff().header(&old, &new).to_string();
    // An empty file that is created or removed has no differing lines.
    if shown.is_empty() { format!("--- {old}\n+++ {new}\n") } else { shown }
}

/// Whether a text is a unified diff, as written by `diff -u` and git.
pub fn is_diff(text: &str) -> bool {
    let mut lines = text.lines();
    lines.any(|line| line.starts_with("--- "))
        && lines.next().is_some_and(|line| line.starts_with("+++ "))
        && lines.next().is_none_or(|line| line.starts_with("@@"))
}

/// Returns a text's change, without file names.
pub fn between(before: &str, after: &str) -> String {
    TextDiff::configure().timeout(SEARCH).diff_lines(before, after).unified_diff().to_string()
}

/// Returns the lines of a diff, unable to manipulate the terminal, and in colour if `styled`.
pub fn shown(diff: &str, styled: bool) -> Vec<String> {
    let line = |line: &str| {
        let line = printable(line.trim_end_matches('\n')).into_owned();
        match COLOURS.iter().find(|(mark, _)| styled && line.starts_with(mark)) {
            Some((_, colour)) => format!("{colour}{line}{PLAIN}"),
            None => line,
        }
    };
    diff.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(before: Option<&[u8]>, after: Option<&[u8]>) -> ProposedFile {
        ProposedFile {
            path: "d/a.txt".into(),
            before: before.map(<[u8]>::to_vec),
            after: after.map(<[u8]>::to_vec),
        }
    }

    #[test]
    fn a_change_as_a_unified_diff() {
        let check = |before: Option<&[u8]>, after: Option<&[u8]>, expected: &str| {
            assert_eq!(unified(&file(before, after)), expected);
        };
        check(
            Some(b"one\ntwo\nthree\n"),
            Some(b"one\n2\nthree\n"),
            "--- a/d/a.txt\n+++ b/d/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",
        );
        check(None, Some(b"new\n"), "--- /dev/null\n+++ b/d/a.txt\n@@ -0,0 +1 @@\n+new\n");
        check(
            Some(b"old"),
            None,
            "--- a/d/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n\\ No newline at end of file\n",
        );
        check(None, Some(b""), "--- /dev/null\n+++ b/d/a.txt\n");
        check(Some(b"a\0b"), Some(b"\xff"), "a/d/a.txt b/d/a.txt: no text, 3 B become 1 B\n");
    }

    #[test]
    fn a_diff_does_not_play_with_the_terminal() {
        assert_eq!(shown("+a\u{1b}[2J\r\n x\n", false), ["+a\u{fffd}[2J\u{fffd}", " x"]);
        assert_eq!(shown("-a\n", true), ["\u{1b}[31m-a\u{1b}[0m"]);
        assert_eq!(shown("--- a\n@@ 1\n", true), ["\u{1b}[1m--- a\u{1b}[0m", "\u{1b}[36m@@ 1\u{1b}[0m"]);
    }

    #[test]
    fn diffs_are_known() {
        let check = |text: &str, expected| assert_eq!(is_diff(text), expected, "{text}");
        check("diff --git a/x b/x\nindex 1..2\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", true);
        check("--- a\n+++ b\n", true);
        check("- a\n+ b\n", false);
        check("--- a\nb\n", false);
        check("", false);
        assert_eq!(between("a\nb\n", "a\nc\n"), "@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
    }
}
