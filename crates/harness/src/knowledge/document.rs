//! Documents, and the files that contain them.
//!
//! They are read outside the sandbox, so they must be in the team's folder or the work directory.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use alara_engine::file;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::chunk::heading;
use super::{Error, html};

/// Most bytes of a file.
const LARGEST: u64 = 16 << 20;
/// Most characters of a title from a text's first line.
const TITLE: usize = 120;

/// A document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Its unique id in its folder: the file's path without its extension, or its own `id` in a
    /// JSON list.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its address, if it has one.
    pub url: String,
    /// Its file in the folder; empty if it doesn't come from a file.
    pub file: String,
    /// Its text, as Markdown.
    pub text: String,
    /// Whether lines that begin with `#` are headings.
    pub headings: bool,
}

/// A file that is left out, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Its path in the folder.
    pub file: String,
    /// The problem, and how to fix it.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}; it is left out of the search", self.file, self.message)
    }
}

/// The documents of a folder, by their ids; unreadable files go to `problems`.
///
/// # Errors
/// There is no such folder.
pub fn documents(folder: &Path, problems: &mut Vec<Problem>) -> Result<Vec<Document>, Error> {
    let files = files(folder, problems)?;
    Ok(read(&files, problems))
}

/// A file's path in its folder, and its contents.
pub(super) type Content = (String, Vec<u8>);

/// The files at any depth of a folder, by path, that may contain documents.
/// Hidden files are skipped, and a link is followed only if its target is in the folder anyway.
pub(super) fn files(folder: &Path, problems: &mut Vec<Problem>) -> Result<Vec<Content>, Error> {
    let error = |source| Error::Folder { path: folder.to_owned(), source };
    let root = folder.canonicalize().map_err(error)?;
    let mut files = Vec::new();
    let mut waiting = vec![(String::new(), root.clone())];
    while let Some((prefix, path)) = waiting.pop() {
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(source) if prefix.is_empty() => return Err(error(source)),
            Err(source) => {
                problems.push(Problem { file: prefix, message: source.to_string() });
                continue;
            }
        };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let file = format!("{prefix}{name}");
            if name.starts_with('.') {
                continue;
            }
            let path = entry.path();
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let known = Path::new(&name).extension().and_then(Kind::of).is_some();
            if path.is_dir() {
                // A folder that is a link could form a cycle.
                if !is_link {
                    waiting.push((format!("{file}/"), path));
                }
                continue;
            }
            if !known {
                continue;
            }
            match content(&path, &root) {
                Ok(content) => files.push((file, content)),
                Err(message) => problems.push(Problem { file, message }),
            }
        }
    }
    files.sort();
    problems.sort_by(|left, right| left.file.cmp(&right.file));
    Ok(files)
}

fn content(path: &Path, root: &Path) -> Result<Vec<u8>, String> {
    let real = path.canonicalize().map_err(|error| error.to_string())?;
    if !real.starts_with(root) {
        return Err("it is a link out of the folder; copy the file".to_owned());
    }
    let length = real.metadata().map_err(|error| error.to_string())?.len();
    if length > LARGEST {
        return Err(format!("it has {} MB, and {} are the most; split it", length >> 20, LARGEST >> 20));
    }
    file::read(&real, LARGEST).map_err(|error| error.to_string())
}

/// The documents in files, by their ids.
pub(super) fn read(files: &[Content], problems: &mut Vec<Problem>) -> Vec<Document> {
    let mut documents: BTreeMap<String, Document> = BTreeMap::new();
    for (file, bytes) in files {
        let found = match of_file(file, bytes) {
            Ok(found) => found,
            Err(message) => {
                problems.push(Problem { file: file.clone(), message });
                continue;
            }
        };
        for document in found {
            match documents.get(&document.id) {
                Some(other) => {
                    let message =
                        format!("it has the id `{}`, as {} has; rename one of them", document.id, other.file);
                    problems.push(Problem { file: file.clone(), message });
                }
                None => drop(documents.insert(document.id.clone(), document)),
            }
        }
    }
    problems.sort_by(|left, right| left.file.cmp(&right.file));
    documents.into_values().collect()
}

/// The type of a file, by its extension.
#[derive(Clone, Copy)]
enum Kind {
    Markdown,
    Text,
    Json,
    Csv,
    Html,
}

impl Kind {
    fn of(ending: &std::ffi::OsStr) -> Option<Self> {
        match ending.to_str()?.to_ascii_lowercase().as_str() {
            "md" | "markdown" => Some(Kind::Markdown),
            "txt" => Some(Kind::Text),
            "json" => Some(Kind::Json),
            "csv" => Some(Kind::Csv),
            "html" | "htm" => Some(Kind::Html),
            _ => None,
        }
    }
}

fn of_file(file: &str, bytes: &[u8]) -> Result<Vec<Document>, String> {
    let path = Path::new(file);
    let text = str::from_utf8(bytes).map_err(|_| "it is no UTF-8 text: save it as one")?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.contains('\0') {
        return Err("it is no text".to_owned());
    }
    let id = path.with_extension("").to_string_lossy().into_owned();
    let kind = path.extension().and_then(Kind::of).unwrap_or(Kind::Text);
    let (text, headings) = match kind {
        Kind::Markdown => (body(text).trim().to_owned(), true),
        Kind::Text => (text.trim().to_owned(), false),
        Kind::Html => (html::text(text)?, true),
        Kind::Csv => (rows(text)?, true),
        Kind::Json => {
            let value: Value =
                serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
            if let Some(found) = listed(&value, &id) {
                return Ok(found
                    .into_iter()
                    .map(|found| Document { file: file.to_owned(), ..found })
                    .collect());
            }
            let mut lines = String::new();
            flatten("", &value, &mut lines);
            (lines.trim().to_owned(), false)
        }
    };
    let line = text.lines().map(|line| heading(line).unwrap_or(line).trim()).find(|line| !line.is_empty());
    let title = match kind {
        Kind::Json | Kind::Csv => id.clone(),
        _ => line.unwrap_or(&id).chars().take(TITLE).collect(),
    };
    Ok(vec![Document { id, title, url: String::new(), file: file.to_owned(), text, headings }])
}

/// A Markdown text without the YAML front matter.
fn body(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("---\n") else { return text };
    rest.find("\n---\n").map_or(text, |at| &rest[at + 5..])
}

/// `{id, title, url, text}` or a list of such; `None` for anything else.
/// `content` may replace `text`; missing ids become `stem-1` and so on.
pub(super) fn listed(value: &Value, stem: &str) -> Option<Vec<Document>> {
    let one = |value: &Value, id: String| {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let body = text("text").or_else(|| text("content"))?;
        let id = text("id").unwrap_or(id);
        let title = text("title").unwrap_or_else(|| id.clone());
        let url = text("url").unwrap_or_default();
        Some(Document { id, title, url, file: String::new(), text: body, headings: true })
    };
    match value {
        Value::Array(items) => {
            let items =
                items.iter().enumerate().map(|(index, item)| one(item, format!("{stem}-{}", index + 1)));
            items.collect()
        }
        other => Some(vec![one(other, stem.to_owned())?]),
    }
}

/// Any value as lines `path: value`.
fn flatten(path: &str, value: &Value, lines: &mut String) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| flatten(&join(key), value, lines)),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, value)| flatten(&join(&index.to_string()), value, lines));
        }
        Value::String(text) => lines.push_str(&format!("{path}: {text}\n")),
        other => lines.push_str(&format!("{path}: {other}\n")),
    }
}

/// The rows of a table, each under its first cell as a heading, as lines `column: cell`.
fn rows(text: &str) -> Result<String, String> {
    let wrong = |error: csv::Error| format!("it is no CSV: {error}");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let columns = reader.headers().map_err(wrong)?.clone();
    let one_line = |cell: &str| cell.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines = String::new();
    for row in reader.records() {
        let row = row.map_err(wrong)?;
        lines.push_str(&format!("## {}\n", one_line(row.get(0).unwrap_or_default())));
        for (column, cell) in columns.iter().zip(&row) {
            lines.push_str(&format!("{}: {}\n", one_line(column), one_line(cell)));
        }
        lines.push('\n');
    }
    Ok(lines.trim().to_owned())
}
