//! Compares a command's output with the output in a page.

/// Replaces numbers before units of time, and the names of traces and runs, by fixed text.
fn without_clock(text: &str) -> String {
    let units = ["s", "ms", "min", "tokens/s", "%"];
    let alike = |word: &str, next: Option<&&str>| {
        let number = word.trim_start_matches('(').chars().all(|c| c.is_ascii_digit() || c == '.');
        let unit = next.map(|next| next.trim_end_matches([',', ';', ')', '.']));
        if number && unit.is_some_and(|unit| units.contains(&unit)) {
            "N".to_owned()
        } else {
            word.to_owned()
        }
    };
    let words: Vec<&str> = text.split(' ').collect();
    let words = words.iter().enumerate().map(|(at, word)| alike(word, words.get(at + 1)));
    words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

/// Whether a line matches a shown one, in which `…` matches anything.
fn line_fits(shown: &str, line: &str) -> bool {
    let (shown, line) = (without_clock(shown), without_clock(line));
    let mut parts = shown.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Whether lines match the shown ones, of which a line `…` matches any.
pub fn fits(shown: &[String], lines: &[&str]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..]))
        }
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, more)| line_fits(first, line) && fits(rest, more))
        }
    }
}

#[test]
fn what_is_otherwise_than_shown_is_seen() {
    let check = |shown: &str, printed: &str| {
        let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
        fits(&shown, &printed.lines().collect::<Vec<_>>())
    };
    assert!(check("a\n…\nd … f", "a\nb\nc\nd e f"));
    assert!(check("ok, 0.16 s", "ok, 12.0 s"));
    assert!(check("at 926.9 tokens/s; trace ….jsonl", "at 2.0 tokens/s; trace x/1-2.jsonl"));
    assert!(!check("a\n…\nd", "a\nb"));
    assert!(!check("a", "a\nb"));
    assert!(!check("1 task", "2 task"));
    assert!(!check("a … c", "a b"));
}
