//! Shortens texts: keeps the beginning and the end of a long text, as whole lines, with a mark
//! between them that tells how much is missing.

use std::ops::Range;

/// The mark for this many omitted lines and bytes.
pub fn mark(lines: u64, bytes: u64) -> String {
    match lines {
        0 => format!("[… {bytes} bytes left out …]"),
        1 => format!("[… 1 line, {bytes} bytes left out …]"),
        _ => format!("[… {lines} lines, {bytes} bytes left out …]"),
    }
}

/// How many lines end in these bytes.
pub fn lines<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    bytes.into_iter().filter(|byte| **byte == b'\n').count() as u64
}

/// How much of the beginning of a longer text is kept: its whole lines.
/// A line that is longer than half of the text is cut between two characters.
pub fn head(bytes: &[u8]) -> usize {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if end > bytes.len() / 2 {
        return end;
    }
    let begun = (1..=bytes.len().min(4)).find(|back| bytes[bytes.len() - back] & 0xc0 != 0x80).unwrap_or(0);
    let needed = match bytes.len().checked_sub(begun).and_then(|at| bytes.get(at)) {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..) => 4,
        _ => 1,
    };
    if needed > begun { bytes.len() - begun } else { bytes.len() }
}

/// Where the kept end of a longer text begins, by the rule of [`head`].
/// With `whole`, the text begins at the beginning of a line.
pub fn tail(bytes: &[u8], whole: bool) -> usize {
    if whole {
        return 0;
    }
    let begin = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
    if begin <= bytes.len() / 2 {
        return begin;
    }
    bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count()
}

/// Joins beginning and end, with the mark between them.
pub fn joined(head: &[u8], lines: u64, dropped: u64, tail: &[u8]) -> Vec<u8> {
    let mut whole = head.to_vec();
    if head.last().is_some_and(|byte| *byte != b'\n') {
        whole.push(b'\n');
    }
    whole.extend_from_slice(mark(lines, dropped).as_bytes());
    whole.push(b'\n');
    whole.extend_from_slice(tail);
    whole
}

/// Removes the middle of a text that is longer than `limit` bytes.
/// Returns how many bytes are missing; marks don't count.
/// If an earlier mark is removed, the new one includes its counts.
pub fn middle(text: &str, limit: usize) -> (String, usize) {
    if text.len() <= limit {
        return (text.to_owned(), 0);
    }
    let (bytes, range) = (text.as_bytes(), left_out(text.as_bytes(), limit));
    let (mut ended, mut told, mut missing) = (0u64, 0u64, range.len());
    for line in text.get(range.clone()).unwrap_or_default().split_inclusive('\n') {
        let is_mark = marked(line.trim_end_matches('\n'));
        missing -= is_mark.map_or(0, |_| line.len());
        let (lines, bytes) = is_mark.unwrap_or((u64::from(line.ends_with('\n')), line.len() as u64));
        // A text may claim a larger number than possible.
        (ended, told) = (ended.saturating_add(lines), told.saturating_add(bytes));
    }
    let cut = joined(&bytes[..range.start], ended, told, &bytes[range.end..]);
    (String::from_utf8_lossy(&cut).into_owned(), missing)
}

/// How many lines and bytes were omitted, if a line is a mark.
fn marked(line: &str) -> Option<(u64, u64)> {
    let told = line.strip_prefix("[… ")?.strip_suffix(" bytes left out …]")?;
    let (lines, bytes) = told.split_once(", ").map_or((None, told), |(lines, bytes)| (Some(lines), bytes));
    let count = |lines: &str| lines.strip_suffix(" lines").or(lines.strip_suffix(" line"))?.parse().ok();
    Some((lines.map_or(Some(0), count)?, bytes.parse().ok()?))
}

/// The range to remove from a text that is longer than `limit` bytes.
fn left_out(bytes: &[u8], limit: usize) -> Range<usize> {
    let begin = head(&bytes[..limit / 2]);
    let end = bytes.len() - (limit - limit / 2);
    let whole = end.checked_sub(1).is_some_and(|before| bytes[before] == b'\n');
    begin..end + tail(&bytes[end..], whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_left_out() {
        let check = |text: &str, limit, expected: &str, missing| {
            assert_eq!(middle(text, limit), (expected.to_owned(), missing), "{text:?} to {limit}");
        };
        check("abcdef", 6, "abcdef", 0);
        check("abcdef", 4, "ab\n[… 2 bytes left out …]\nef", 2);
        check("aébèc", 4, "a\n[… 5 bytes left out …]\nc", 5);
        check("ééé", 0, "[… 6 bytes left out …]\n", 6);
        // No number is joined from two others.
        check("10\n20\n30\n40\n50\n60\n", 11, "10\n[… 3 lines, 9 bytes left out …]\n50\n60\n", 9);
        check("1\n2\n345\n6\n7\n", 9, "1\n2\n[… 1 line, 4 bytes left out …]\n6\n7\n", 4);
        // The earlier omission is counted once, and its mark is not text.
        let twice = format!("1\n2\n3\n4\n5\n{}\n6\n7\n8\n9\n", mark(1000, 5000));
        check(&twice, 16, &format!("1\n2\n3\n4\n{}\n6\n7\n8\n9\n", mark(1001, 5002)), 2);
        check("a\nbbbbbbbbbbbb\nc\n", 12, "a\nbbbb\n[… 5 bytes left out …]\nbbb\nc\n", 5);
    }

    proptest::proptest! {
        #[test]
        fn what_is_kept_is_text_and_not_too_much(text in "[\\PC\n]{0,60}", limit in 0usize..40) {
            let (kept, missing) = middle(&text, limit);
            if text.len() <= limit {
                proptest::prop_assert_eq!(kept, text);
            } else {
                let range = left_out(text.as_bytes(), limit);
                proptest::prop_assert!(text.is_char_boundary(range.start) && text.is_char_boundary(range.end));
                proptest::prop_assert_eq!(missing, range.len());
                proptest::prop_assert!(text.len() - missing <= limit, "{}", kept);
                proptest::prop_assert!(kept.contains(&format!("{missing} bytes left out …]\n")), "{}", kept);
            }
        }
    }
}
