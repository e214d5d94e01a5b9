//! A page of Markdown as its headings, links and blocks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A page, by its path in the repository.
pub struct Page {
    pub path: PathBuf,
    pub text: String,
}

/// A fenced block.
pub struct Block {
    /// The line of its fence.
    pub line: usize,
    pub language: String,
    pub lines: Vec<String>,
    /// What comments before it say: `<!-- key: value -->`.
    pub marks: BTreeMap<String, String>,
}

impl Page {
    pub fn read(path: &Path) -> Page {
        let text = std::fs::read_to_string(path).unwrap();
        Page { path: path.strip_prefix(crate::root()).unwrap().into(), text }
    }

    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut marks = BTreeMap::new();
        let mut inside: Option<usize> = None;
        for (number, line) in self.text.lines().enumerate() {
            let bare = line.trim_start();
            match inside {
                Some(_) if bare.starts_with("```") => inside = None,
                Some(indent) => {
                    let line = line.get(indent..).unwrap_or(bare);
                    blocks.last_mut().unwrap().lines.push(line.to_owned());
                }
                None => {
                    if let Some(info) = bare.strip_prefix("```") {
                        inside = Some(line.len() - bare.len());
                        let language = info.split([',', ' ']).next().unwrap().to_owned();
                        let marks = std::mem::take(&mut marks);
                        blocks.push(Block { line: number + 1, language, lines: Vec::new(), marks });
                    } else if let Some((key, value)) = mark(bare) {
                        marks.insert(key.to_owned(), value.to_owned());
                    } else if !bare.is_empty() {
                        marks.clear();
                    }
                }
            }
        }
        assert!(inside.is_none(), "{}: a block has no end", self.path.display());
        blocks
    }

    /// Lines outside of blocks, by their numbers.
    fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut code = false;
        self.text.lines().enumerate().filter_map(move |(number, line)| {
            if line.trim_start().starts_with("```") {
                code = !code;
                return None;
            }
            (!code).then_some((number + 1, line))
        })
    }

    /// What is linked to or shown, by the line.
    pub fn links(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (number, line) in self.prose() {
            let line = without_code(line);
            for (start, end) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')] {
                for (at, _) in line.match_indices(start) {
                    let target = line[at + start.len()..].split(end).next().unwrap();
                    found.push((number, target.to_owned()));
                }
            }
        }
        found
    }

    /// The anchors of its headings, as GitHub and mdBook make them.
    pub fn anchors(&self) -> Vec<String> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let headings = self.prose().filter_map(|(_, line)| {
            let text = line.trim_start_matches('#');
            (text.len() < line.len()).then(|| text.strip_prefix(' ')).flatten()
        });
        let mut anchor = |heading: &str| {
            let mut anchor = slug(heading);
            let count = seen.entry(anchor.clone()).or_default();
            if *count > 0 {
                anchor = format!("{anchor}-{count}");
            }
            *count += 1;
            anchor
        };
        headings.map(&mut anchor).collect()
    }
}

fn mark(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.strip_prefix("<!--")?.strip_suffix("-->")?.split_once(':')?;
    Some((key.trim(), value.trim()))
}

/// Code between backticks left out: a link in it is none.
fn without_code(line: &str) -> String {
    let mut parts = line.split('`');
    let mut text = parts.next().unwrap().to_owned();
    while let (Some(code), Some(rest)) = (parts.next(), parts.next()) {
        text.push_str(&"x".repeat(code.len()));
        text.push_str(rest);
    }
    text
}

fn slug(heading: &str) -> String {
    // Of a link in a heading its text counts.
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

#[test]
fn pages_are_read_as_they_are_shown() {
    let text = "# A `.ctx`: the team\n<!-- exit: 1 -->\n<!-- in: repository -->\n\n```console\n$ a [x](no)\n```\n\
                ## See [b](c.md#d)\n## See b\n`[x](no)` <img src=\"e.svg\">\n1. x\n   ```sh\n   f\n     g\n   ```\n";
    let page = Page { path: "x.md".into(), text: text.to_owned() };
    assert_eq!(page.anchors(), ["a-ctx-the-team", "see-b", "see-b-1"]);
    assert_eq!(page.links(), [(8, "c.md#d".to_owned()), (10, "e.svg".to_owned())]);
    let blocks = page.blocks();
    assert_eq!(blocks.len(), 2);
    assert_eq!((blocks[0].line, blocks[0].language.as_str()), (5, "console"));
    assert_eq!(blocks[0].marks["exit"], "1");
    assert_eq!(blocks[0].marks["in"], "repository");
    assert_eq!(blocks[1].lines, ["f", "  g"]);
    assert!(blocks[1].marks.is_empty());
}
