//! The two things about Markdown that matter here: YAML between two lines `---` at the top, and
//! sections by heading.
//!
//! This module must not know what the texts mean.

use crate::source::Source;

/// The YAML at the top of a file, at its lines of the file, and the text after it.
/// No YAML if there is none.
pub fn frontmatter(source: &Source) -> (Option<Source>, &str) {
    let whole = (None, source.text.as_str());
    let mut lines = source.text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == "---") else { return whole };
    let mut end = first.len();
    for line in lines {
        if line.trim_end() == "---" {
            // An empty line stands for the first one, so that places are those of the file.
            let text = format!("\n{}", &source.text[first.len()..end]);
            let yaml = Source { path: source.path.clone(), text };
            return (Some(yaml), &source.text[end + line.len()..]);
        }
        end += line.len();
    }
    whole
}

/// The text before the first `##` heading, and title and text of each section.
/// Deeper headings stay inside, and so does whatever looks like a heading in a fenced block.
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
