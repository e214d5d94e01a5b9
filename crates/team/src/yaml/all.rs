//! Finds all problems of a file at once: leaves out an invalid entry, and reads the rest again.

use serde::de::DeserializeOwned;

use super::{Node, read};
use crate::source::Source;
use crate::types::{Diagnostic, Location};

/// Most problems of one file.
const MOST: usize = 50;

/// Reads a file's text as a `T` without its invalid entries, which the diagnostics name.
/// `None` if too little is left, or a required entry is missing.
pub fn read_all<T: DeserializeOwned>(source: &Source) -> (Option<T>, Vec<Diagnostic>) {
    let mut rest = source.clone();
    let (mut problems, mut left_out, mut is_whole) = (Vec::<Diagnostic>::new(), Vec::new(), true);
    let lines = source.text.lines().count();
    // A text that isn't YAML has no entries.
    if let Err(problem) = Node::parse(source, &mut Vec::new()) {
        return (None, vec![problem]);
    }
    while problems.len() < MOST {
        let mut now = rest.clone();
        if now.text.trim().is_empty() {
            now.text = "{}".to_owned();
        }
        let problem = match read::<T>(&now) {
            Ok(value) => return (is_whole.then_some(value), sorted(problems)),
            Err(problem) => problem,
        };
        let missing =
            problem.message.strip_prefix("the key `").and_then(|rest| rest.strip_suffix("` is missing"));
        let next = match missing {
            Some(key) if !left_out.iter().any(|left_out| left_out == key) => {
                // A text in its place reveals what else is missing.
                is_whole = false;
                let is_outermost = problem.location.line <= first_line(&rest.text);
                is_outermost.then(|| format!("{}\n{key}: ''\n", rest.text))
            }
            Some(_) => break,
            // A consequence of an entry that was left out, or of a text in place of a missing one.
            None if problem.location.line > lines => break,
            None if problems.iter().any(|earlier| is_no_further(&problem, earlier)) => break,
            None => without(&rest.text, problem.location).map(|(text, key)| {
                left_out.push(key);
                text
            }),
        };
        problems.push(problem);
        let Some(text) = next else { break };
        rest.text = text;
        if Node::parse(&rest, &mut Vec::new()).is_err() {
            break;
        }
    }
    (None, sorted(problems))
}

fn sorted(mut problems: Vec<Diagnostic>) -> Vec<Diagnostic> {
    problems.sort_by_key(|problem| problem.location);
    problems
}

fn is_no_further(problem: &Diagnostic, earlier: &Diagnostic) -> bool {
    !earlier.message.ends_with("is missing") && problem.location <= earlier.location
}

/// The line, from 1, with which a text begins.
fn first_line(text: &str) -> usize {
    let begins = |line: &str| !line.trim().is_empty() && !line.starts_with(['#', '-']);
    text.lines().position(begins).map_or(1, |at| at + 1)
}

/// A text without the entry at a location, which may be that of its key or of its value; other
/// locations don't change.
/// Also returns the key.
fn without(text: &str, place: Location) -> Option<(String, String)> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = place.line.checked_sub(1)?;
    let line = lines.get(at)?.clone();
    let column = line.char_indices().nth(place.column.checked_sub(1)?).map_or(line.len(), |(at, _)| at);
    let before = &line[..column];
    let is_flow = before.contains(['{', '[']);
    let marks: &[&str] = if is_flow { &["{", "[", ", "] } else { &["- "] };
    let indent = before.len() - before.trim_start().len();
    let marked = marks.iter().filter_map(|mark| before.rfind(mark).map(|at| at + mark.len())).max();
    let begin = marked.unwrap_or(indent).max(indent);
    let rest = &line[begin..];
    let end = match rest.find([',', '}', ']']).filter(|_| is_flow) {
        Some(end) => begin + end + usize::from(rest[end..].starts_with(',')),
        None => line.len(),
    };
    let key = rest.split(':').next().unwrap_or_default().trim().to_owned();
    let blank = " ".repeat(line[begin..end].chars().count());
    lines[at] = format!("{}{blank}{}", &line[..begin], &line[end..]);
    if end == line.len() {
        // Lines that are indented more belong to it.
        let deeper = |line: &String| line.trim().is_empty() || line.len() - line.trim_start().len() > begin;
        let belongs: Vec<usize> = (at + 1..lines.len()).take_while(|at| deeper(&lines[*at])).collect();
        belongs.into_iter().for_each(|at| lines[at].clear());
    }
    Some((lines.join("\n") + "\n", key))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct File {
        id: String,
        kind: String,
        #[serde(default)]
        count: u32,
        #[serde(default)]
        names: Vec<String>,
        #[serde(default)]
        parts: Vec<Part>,
        #[serde(default)]
        sizes: BTreeMap<String, u32>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct Part {
        name: String,
        #[serde(default)]
        heat: f32,
    }

    fn problems(text: &str) -> (bool, Vec<String>) {
        let source = Source { path: "f".into(), text: text.to_owned() };
        let (file, problems) = read_all::<File>(&source);
        (file.is_some(), problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn all_problems_are_found() {
        assert_eq!(problems("id: a\nkind: b\n"), (true, Vec::new()));
        let (is_read, found) = problems(
            "id: a\nkind: b\nbogus: 1\ncount: many\nnames: x\nparts:\n- name: p\n  heat: warm\n  colour: red\n- name: q\n\
             sizes: {one: 1, two: big, three: 3}\nmore:\n  deep: 1\n  id: 2\n",
        );
        assert!(is_read);
        let places: Vec<&str> = found.iter().map(|line| line.split(": error").next().unwrap()).collect();
        assert_eq!(places, ["f:3:1", "f:4:8", "f:5:8", "f:8:9", "f:9:3", "f:11:22", "f:12:1"], "{found:#?}");
    }

    #[test]
    fn what_is_missing_is_told_too() {
        let (is_read, found) = problems("count: x\nbogus: 1\n");
        assert!(!is_read);
        let ends = ["`kind` is missing", "`id` is missing"];
        assert_eq!(found.len(), 4, "{found:#?}");
        assert!(ends.iter().all(|end| found.iter().any(|line| line.ends_with(end))), "{found:#?}");
        // An entry that exists but is invalid is not missing.
        let (_, found) = problems("id: [a]\nkind: b\n");
        assert_eq!(found.len(), 1, "{found:#?}");
    }

    #[test]
    fn what_is_no_yaml_has_one_problem() {
        assert_eq!(problems("id: [a\nbogus: 1\n").1.len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn it_ends(text in "([a-z]{1,3}|id|kind|names|parts|[-:,{}\\[\\]'| ]|\n|\n  |\n- |é){0,40}") {
            let _ = problems(&text);
        }
    }
}
