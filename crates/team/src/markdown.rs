//! The two parts of Markdown that matter here: YAML front matter between two lines `---`, and
//! sections by heading.
//!
//! This module must not know what the texts mean.

use serde_json::Value;

use crate::source::Source;
use crate::types::{Diagnostic, Location};
use crate::yaml::Node;

/// The YAML front matter of a file as a tree, and the text after it.
/// An entry that is invalid YAML by itself is read as a text, with a warning: existing files have
/// `description: Use when: …`.
///
/// # Errors
/// Even then it is invalid YAML.
pub fn head<'a>(
    source: &'a Source,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<(Option<Node>, &'a str), Diagnostic> {
    let (Some(yaml), body) = frontmatter(source) else { return Ok((None, &source.text)) };
    let node = Node::parse(&yaml, diagnostics).or_else(|error| {
        let mended = mended(&yaml, diagnostics).ok_or_else(|| error.clone())?;
        Node::parse(&mended, diagnostics).map_err(|_| error)
    });
    Ok((Some(node?), body))
}

/// The YAML with quotes around invalid entries; `None` if there are none.
fn mended(yaml: &Source, diagnostics: &mut Vec<Diagnostic>) -> Option<Source> {
    let lines: Vec<&str> = yaml.text.lines().collect();
    let begins = |line: &&str| line.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let mut text = String::new();
    let mut any = false;
    let mut at = 0;
    while at < lines.len() {
        let more = lines[at + 1..].iter().take_while(|line| !begins(line)).count();
        let entry = &lines[at..=at + more];
        let alone = Source { path: yaml.path.clone(), text: entry.join("\n") };
        let good = Node::parse(&alone, &mut Vec::new()).is_ok();
        match entry[0].split_once(':').filter(|_| begins(&entry[0]) && !good) {
            Some((key, value)) => {
                let words = std::iter::once(value).chain(entry[1..].iter().copied()).map(str::trim);
                let value = words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ");
                // Empty lines keep the other lines in place.
                text += &format!("{key}: {}{}\n", Value::from(value), "\n".repeat(more));
                let location = Location { line: at + 1, column: 1 };
                let message = format!("`{key}` is no YAML; it is read as a text: put it in quotes");
                diagnostics.push(yaml.warning(location, message));
                any = true;
            }
            None => text += &format!("{}\n", alone.text),
        }
        at += more + 1;
    }
    any.then(|| Source { path: yaml.path.clone(), text })
}

/// The YAML front matter of a file, on its original lines, and the text after it.
/// The YAML is `None` if there is no front matter.
fn frontmatter(source: &Source) -> (Option<Source>, &str) {
    let whole = (None, source.text.as_str());
    let mut lines = source.text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == "---") else { return whole };
    let mut end = first.len();
    for line in lines {
        if line.trim_end() == "---" {
            // An empty line replaces the first one, so that locations match the file.
            let text = format!("\n{}", &source.text[first.len()..end]);
            let yaml = Source { path: source.path.clone(), text };
            return (Some(yaml), &source.text[end + line.len()..]);
        }
        end += line.len();
    }
    whole
}

/// The text before the first `##` heading, and title and text of each section.
/// Deeper headings stay inside, and so do lines in fenced blocks that look like headings.
pub fn sections(text: &str) -> (String, Vec<(String, String)>) {
    let mut introduction = String::new();
    let mut sections: Vec<(String, String)> = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        let start = line.trim_start();
        match fence {
            Some(mark) if start.starts_with(mark) => fence = None,
            Some(_) => {}
            None => fence = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark)),
        }
        let title = line.strip_prefix("## ").filter(|_| fence.is_none());
        match (title, sections.last_mut()) {
            (Some(title), _) => {
                sections.push((title.trim().trim_end_matches('#').trim_end().to_owned(), String::new()));
            }
            (None, Some((_, text))) => text.push_str(line),
            (None, None) => introduction.push_str(line),
        }
    }
    for (_, text) in &mut sections {
        *text = text.trim().to_owned();
    }
    (introduction.trim().to_owned(), sections)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_at_the_top() {
        let check = |text: &str, yaml: Option<&str>, body: &str| {
            let source = Source { path: "a.md".into(), text: text.into() };
            let (found, rest) = frontmatter(&source);
            assert_eq!((found.as_ref().map(|source| source.text.as_str()), rest), (yaml, body), "{text:?}");
        };
        check("---\nname: x\n---\nbody\n", Some("\nname: x\n"), "body\n");
        check("---\r\nname: x\r\n---\r\nbody", Some("\nname: x\r\n"), "body");
        check("---\n---", Some("\n"), "");
        check("body\n---\nx\n---\n", None, "body\n---\nx\n---\n");
        check("---\nname: x\n", None, "---\nname: x\n");
        check("", None, "");
    }

    #[test]
    fn an_entry_that_is_no_yaml_is_a_text() {
        let check = |text: &str, expected: Value, warnings: &[&str]| {
            let source = Source { path: "a.md".into(), text: format!("---\n{text}\n---\nbody") };
            let mut diagnostics = Vec::new();
            let (node, body) = head(&source, &mut diagnostics).unwrap();
            let found: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
            assert_eq!(
                (node.unwrap().value(), body, found.as_slice()),
                (expected, "body", &warnings.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..]),
                "{text}"
            );
        };
        let warning = |line: usize, key: &str| {
            format!("a.md:{line}:1: warning: `{key}` is no YAML; it is read as a text: put it in quotes")
        };
        check(
            "name: x\ndescription: Use when: a \"b\" is: c\ntags: [d]",
            json!({"name": "x", "description": "Use when: a \"b\" is: c", "tags": ["d"]}),
            &[&warning(3, "description")],
        );
        check(
            "description: Use when: a\n  and b: c\nname: x",
            json!({"description": "Use when: a and b: c", "name": "x"}),
            &[&warning(2, "description")],
        );
        check("a: 'b' c\nd: @e", json!({"a": "'b' c", "d": "@e"}), &[&warning(2, "a"), &warning(3, "d")]);
        check("a: |\n  b: c: d\n\n  e", json!({"a": "b: c: d\n\ne\n"}), &[]);
        let broken = Source { path: "a.md".into(), text: "---\n- a\n[\n---\n".into() };
        assert!(head(&broken, &mut Vec::new()).is_err());
    }

    #[test]
    fn sections_by_heading() {
        let check = |text: &str, introduction: &str, expected: &[(&str, &str)]| {
            let (first, found) = sections(text);
            let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            assert_eq!((first.as_str(), found.as_slice()), (introduction, expected), "{text:?}");
        };
        check(
            "# T\nintro\n## a\none\n### deep\ntwo\n## b ##\n",
            "# T\nintro",
            &[("a", "one\n### deep\ntwo"), ("b", "")],
        );
        check("## a\n```\n## no\n```\n## b\nx", "", &[("a", "```\n## no\n```"), ("b", "x")]);
        check("only", "only", &[]);
    }
}
