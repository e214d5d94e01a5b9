//! Splits texts at their headings.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Document;

/// Most bytes of a chunk: some 500 tokens.
/// A longer section is split between paragraphs.
const LONGEST: usize = 2000;

/// A passage that a search can find.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// `document#heading`, or the document's id for the text before any heading.
    /// It stays the same when other sections come and go; further sections with the same heading
    /// are numbered, and so are the further parts of a long one: `refunds#fees-2`,
    /// `refunds#fees/2`.
    pub id: String,
    /// The index of its document.
    pub document: usize,
    /// Its heading; the document's title if it has none.
    pub title: String,
    /// Its text, with its heading.
    pub text: String,
}

/// The chunks of a document, in order; `at` is the document's index.
pub fn chunks(document: &Document, at: usize) -> Vec<Chunk> {
    let mut taken = BTreeSet::new();
    let mut chunks = Vec::new();
    for (heading, text) in sections(document) {
        let base = match heading.map(slug).filter(|slug| !slug.is_empty()) {
            Some(slug) => format!("{}#{slug}", document.id),
            None => document.id.clone(),
        };
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let Some(id) = std::iter::once(base.clone()).chain(numbered).find(|id| !taken.contains(id)) else {
            continue;
        };
        taken.insert(id.clone());
        let title = heading.map_or(document.title.as_str(), |heading| heading).to_owned();
        for (index, part) in parts(text).into_iter().enumerate() {
            let id = if index == 0 { id.clone() } else { format!("{id}/{}", index + 1) };
            chunks.push(Chunk { id, document: at, title: title.clone(), text: part.to_owned() });
        }
    }
    chunks
}

/// A document as one chunk.
pub fn whole(document: &Document, at: usize) -> Chunk {
    let (id, title, text) = (document.id.clone(), document.title.clone(), document.text.clone());
    Chunk { id, document: at, title, text }
}

/// The sections of a document: heading and text, which begins with the heading's line.
/// A heading without any text is no section.
/// A line in a fenced block is no heading.
fn sections(document: &Document) -> Vec<(Option<&str>, &str)> {
    let text = document.text.as_str();
    // Heading, where it begins, and where the text under it begins.
    let mut begun: Vec<(Option<&str>, usize, usize)> = vec![(None, 0, 0)];
    let (mut fence, mut at): (Option<&str>, usize) = (None, 0);
    for line in text.split_inclusive('\n').filter(|_| document.headings) {
        let start = line.trim_start();
        match fence {
            Some(mark) if start.starts_with(mark) => fence = None,
            Some(_) => {}
            None => {
                if let Some(heading) = heading(line) {
                    begun.push((Some(heading), at, at + line.len()));
                }
                fence = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
            }
        }
        at += line.len();
    }
    let ends = begun.iter().skip(1).map(|(_, begin, _)| *begin).chain([text.len()]);
    let sections = begun.iter().zip(ends).filter(|((_, _, body), end)| !text[*body..*end].trim().is_empty());
    sections.map(|((heading, begin, _), end)| (*heading, text[*begin..end].trim())).collect()
}

/// The text of a Markdown heading.
pub(super) fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    let text = text.strip_prefix([' ', '\t']).filter(|_| (1..=6).contains(&level))?;
    let text = text.trim().trim_end_matches('#').trim_end();
    (!text.is_empty()).then_some(text)
}

/// Splits a section that is too long before paragraphs; a single paragraph stays whole.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
    for paragraph in text.split_inclusive("\n\n") {
        if at > begin && at + paragraph.len() - begin > LONGEST {
            parts.push(text[begin..at].trim());
            begin = at;
        }
        at += paragraph.len();
    }
    parts.push(text[begin..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// A heading in an id: its words in lower case, joined by `-`.
fn slug(heading: &str) -> String {
    let words = heading.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}
