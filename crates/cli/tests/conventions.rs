//! Conventions of the source text: acyclic module graphs, established terms, and readable prose.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Words that only we used, each with its established term (ARCHITECTURE.md has the glossary).
const PRIVATE_WORDS: &[(&str, &str)] = &[
    ("Crew", "ThreadPool"),
    ("Fours", "row quads"),
    ("Ground", "ResolvedDevice"),
    ("HOUSE", "GENERIC"),
    ("Lack", "OutOfMemory"),
    ("Lying", "on the fly"),
    ("Odds", "Acceptance"),
    ("StandIns", "Mocks"),
    ("Tenants", "AnswerHistories"),
    ("asks ahead", "prefetches"),
    ("asks for memory", "prefetches"),
    ("came true", "accepted"),
    ("few_rows", "small_batch"),
    ("greatest logits", "top logits"),
    ("house format", "generic tool format"),
    ("mixes tokens", "token mixer"),
    ("put off", "preempted"),
    ("rows are turned", "row-interleaved"),
    ("sandbox/walls", "sandbox/isolation"),
    ("stand_ins", "mocks"),
    ("the system text", "the system prompt"),
    ("turned rows", "row-interleaved"),
    ("verbs", "ops"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find(|folder| folder.join("ARCHITECTURE.md").exists())
        .unwrap()
        .into()
}

/// Returns files below `folder` with one of these endings, except build outputs and fixtures.
pub fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                if !matches!(name.as_str(), "target" | "fixtures" | "snapshots" | ".git" | "runs") {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

mod graph {
    use super::*;

    /// Returns paths in `text` that begin with `crate` or `super`, with braces expanded:
    /// `crate::a::{b, c::D}` gives two.
    fn paths(text: &str) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for start in ["crate::", "super::"] {
            for (at, _) in text.match_indices(start) {
                let before = text[..at].chars().next_back();
                if before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '_' | '$' | ':')) {
                    expand(&text[at..], Vec::new(), &mut found);
                }
            }
        }
        found
    }

    /// Parses one tree of a path, and returns how much of `text` it consumed.
    fn expand(text: &str, mut prefix: Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
        let mut at = 0;
        loop {
            let rest = &text[at..];
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            if word > 0 {
                prefix.push(rest[..word].to_owned());
                at += word;
                if text[at..].starts_with("::") {
                    at += 2;
                    continue;
                }
            } else if rest.starts_with('{') {
                at += 1;
                while at < text.len() && !text[at..].starts_with('}') {
                    let skip = text[at..].find(|c: char| !c.is_whitespace() && c != ',').unwrap_or(0);
                    at += skip;
                    if text[at..].starts_with('}') {
                        break;
                    }
                    at += expand(&text[at..], prefix.clone(), found).max(1);
                }
                return at + 1;
            }
            found.push(prefix);
            let rest = &text[at..];
            // `as Name` belongs to the path before it.
            let renamed = rest
                .strip_prefix(" as ")
                .map(|name| 4 + name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len()));
            return at + renamed.unwrap_or(0);
        }
    }

    /// Returns the code without comments and test modules.
    fn code(text: &str) -> String {
        let lines: Vec<_> = text.lines().collect();
        let tests = lines.windows(2).position(|two| {
            two[0].trim() == "#[cfg(test)]"
                && two[1].trim_start().starts_with("mod ")
                && two[1].ends_with('{')
        });
        let lines = &lines[..tests.unwrap_or(lines.len())];
        lines
            .iter()
            .filter(|line| !line.trim_start().starts_with("//"))
            .flat_map(|line| [line, "\n"])
            .collect()
    }

    fn is_test(path: &Path) -> bool {
        path.iter().any(|part| {
            let name = part.to_str().unwrap();
            matches!(name, "tests" | "tests.rs" | "testing.rs") || name.ends_with("_tests.rs")
        })
    }

    /// Returns the names of a crate's top-level modules, and the names that its root re-exports
    /// from them.
    fn roots(text: &str) -> (BTreeSet<String>, BTreeMap<String, String>) {
        let modules: BTreeSet<String> = text
            .lines()
            .filter_map(|line| {
                line.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ").strip_prefix("mod ")
            })
            .filter_map(|rest| rest.split([';', ' ', '{']).next())
            .map(str::to_owned)
            .collect();
        let mut exported = BTreeMap::new();
        for (at, _) in text.match_indices("pub use ").chain(text.match_indices("pub(crate) use ")) {
            let mut found = Vec::new();
            let tree = text[at..].split_once("use ").unwrap().1;
            expand(tree.trim_start_matches("crate::").trim_start_matches("self::"), Vec::new(), &mut found);
            for path in found {
                if modules.contains(&path[0]) {
                    exported.insert(path.last().unwrap().clone(), path[0].clone());
                }
            }
        }
        (modules, exported)
    }

    /// Returns which top-level module of the crate refers to which, with one place for each.
    pub fn edges(source: &Path) -> BTreeMap<(String, String), String> {
        let root =
            ["lib.rs", "main.rs"].iter().map(|name| source.join(name)).find(|path| path.exists()).unwrap();
        let (modules, exported) = roots(&code(&std::fs::read_to_string(&root).unwrap()));
        let mut edges = BTreeMap::new();
        for file in files(source, &[".rs"]) {
            let inside = file.strip_prefix(source).unwrap();
            if file == root || is_test(inside) {
                continue;
            }
            let mut module: Vec<String> =
                inside.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if module.last().is_some_and(|name| name == "mod") {
                module.pop();
            }
            for path in paths(&code(&std::fs::read_to_string(&file).unwrap())) {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let absolute: Vec<String> = if path[0] == "crate" {
                    path[1..].to_vec()
                } else {
                    module[..module.len().saturating_sub(ups)].iter().chain(&path[ups..]).cloned().collect()
                };
                let Some(first) = absolute.first() else { continue };
                let target = modules.get(first).or_else(|| exported.get(first));
                if let Some(target) = target.filter(|target| **target != module[0]) {
                    let place = format!("{}: {}", shown(&file), path.join("::"));
                    edges.entry((module[0].clone(), target.clone())).or_insert(place);
                }
            }
        }
        edges
    }

    /// Returns a cycle among the edges, if there is one: the modules that remain after repeatedly
    /// removing those without references, or that nothing refers to.
    pub fn circle(edges: &BTreeMap<(String, String), String>) -> Vec<String> {
        let mut left: Vec<_> = edges.iter().collect();
        loop {
            let from: BTreeSet<_> = left.iter().map(|((from, _), _)| from).collect();
            let to: BTreeSet<_> = left.iter().map(|((_, to), _)| to).collect();
            let count = left.len();
            let kept =
                left.iter().copied().filter(|((a, b), _)| from.contains(b) && to.contains(a)).collect();
            left = kept;
            if left.len() == count {
                return left.iter().map(|((from, to), place)| format!("{from} -> {to} ({place})")).collect();
            }
        }
    }

    #[test]
    fn no_circle_between_the_modules_of_a_crate() {
        let mut seen = 0;
        let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
        for folder in crates.chain([root().join("python")]) {
            let source = folder.join("src");
            let edges = edges(&source);
            seen += edges.len();
            let circle = circle(&edges);
            assert!(
                circle.is_empty(),
                "modules of {} name each other:\n{}",
                shown(&source),
                circle.join("\n")
            );
        }
        assert!(seen > 100, "only {seen} edges were seen");
    }

    #[test]
    fn paths_are_read_as_the_compiler_does() {
        let text = "use crate::a::{self, b::{C, D as E}, F};\nfn f() { super::super::g::h(); mycrate::x(); }";
        let found: Vec<_> = paths(text).iter().map(|path| path.join("::")).collect();
        assert_eq!(
            found,
            ["crate::a::self", "crate::a::b::C", "crate::a::b::D", "crate::a::F", "super::super::g::h"]
        );
    }

    #[test]
    fn a_circle_is_seen() {
        let edge = |from: &str, to: &str| ((from.to_owned(), to.to_owned()), String::new());
        let open: BTreeMap<_, _> = [edge("a", "b"), edge("b", "c"), edge("a", "c")].into();
        assert!(circle(&open).is_empty());
        let closed: BTreeMap<_, _> = [edge("a", "b"), edge("b", "c"), edge("c", "b")].into();
        assert_eq!(circle(&closed).len(), 2);
    }
}

mod printing {
    use super::*;

    /// Only `ui.rs` makes output safe for the terminal.
    #[test]
    fn one_place_prints() {
        let source = root().join("crates/cli/src");
        let may = |name: &str| ["ui.rs", "ask.rs", "commands/chat/input.rs"].contains(&name);
        for path in files(&source, &[".rs"]) {
            let (name, text) = (
                path.strip_prefix(&source).unwrap().to_str().unwrap(),
                std::fs::read_to_string(&path).unwrap(),
            );
            let asks = text.contains("rustyline::") && !may(name);
            let draws = name != "ui.rs"
                && ["indicatif", "use std::io::stdout"].iter().any(|word| text.contains(word));
            // Checking the type of a stream prints nothing.
            let printed =
                text.replace("is_styled(&std::io::std", "").replace("Stdio::from(std::io::stderr", "");
            let writes = |stream: &str| {
                printed
                    .match_indices(stream)
                    .any(|(at, _)| !printed[at + stream.len()..].starts_with(".is_terminal()"))
            };
            let writes = name != "ui.rs" && ["io::stdout()", "io::stderr()"].into_iter().any(writes);
            assert!(!asks && !draws && !writes, "{name} prints by itself");
        }
    }
}

mod words {
    use super::*;

    /// Whether `word` occurs in `line` as a whole word.
    fn has(line: &str, word: &str) -> bool {
        let inside = |c: char| c.is_alphanumeric() || c == '_';
        line.match_indices(word).any(|(at, _)| {
            !line[..at].chars().next_back().is_some_and(inside)
                && !line[at + word.len()..].chars().next().is_some_and(inside)
        })
    }

    #[test]
    fn the_source_speaks_the_words_of_the_field() {
        let mut faults = Vec::new();
        for file in files(&root(), &[".rs", ".cu", ".cuh", ".md"]) {
            // The changelog describes the past; this file has the list.
            if file.ends_with("CHANGELOG.md") || file.ends_with("conventions.rs") {
                continue;
            }
            for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
                for (word, term) in PRIVATE_WORDS.iter().filter(|(word, _)| has(line, word)) {
                    faults.push(format!("{}:{}: {word:?}; the field says {term}", shown(&file), number + 1));
                }
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn a_word_is_found_only_on_its_own() {
        assert!(has("two verbs.", "verbs") && has("Odds", "Odds"));
        assert!(!has("proverbs", "verbs") && !has("verbs_of", "verbs"));
    }
}

mod prose {
    use super::*;

    const WIDTH: usize = 100;

    /// Whether a second sentence begins in `line`, outside of code and parentheses.
    fn has_two_sentences(line: &str) -> bool {
        // The number of a list item isn't a sentence.
        let bare = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        let line = bare.strip_prefix(". ").unwrap_or(line);
        let (mut code, mut depth, mut ended) = (false, 0_i32, None);
        let mut before = String::new();
        for c in line.chars() {
            match ended {
                Some(true) if c.is_uppercase() || c == '`' => return true,
                Some(false) if c == ' ' => ended = Some(true),
                Some(false) if matches!(c, '"' | '*' | ')') => {}
                _ => ended = None,
            }
            match c {
                '`' => code = !code,
                '(' if !code => depth += 1,
                ')' if !code => depth -= 1,
                '.' | '?' | '!' if !code && depth <= 0 => {
                    let abbreviated =
                        ["e.g", "i.e", "etc", "vs", "cf"].iter().any(|word| before.ends_with(word));
                    ended = (!abbreviated && !before.ends_with(|c: char| c == '.' || c.is_uppercase()))
                        .then_some(false);
                }
                _ => {}
            }
            before.push(c);
        }
        false
    }

    /// Returns numbered lines of prose: from Markdown without tables, headings and code blocks,
    /// from Rust the comments.
    fn prose(file: &Path) -> Vec<(usize, String, String)> {
        let markdown = file.extension().is_some_and(|ending| ending == "md");
        let mut code = false;
        let mut found = Vec::new();
        for (number, line) in std::fs::read_to_string(file).unwrap().lines().enumerate() {
            let text = if markdown {
                line
            } else {
                let bare = line.trim_start();
                let Some(text) = ["///", "//!", "//"].iter().find_map(|mark| bare.strip_prefix(mark)) else {
                    code = false;
                    continue;
                };
                text
            };
            if text.trim_start().starts_with("```") {
                code = !code;
            } else if !code
                && !text.trim_start().starts_with(['|', '#', '<', '['])
                && !text.starts_with("    ")
            {
                found.push((number + 1, line.to_owned(), text.to_owned()));
            }
        }
        found
    }

    #[test]
    fn prose_has_one_sentence_a_line_and_short_lines() {
        let mut faults = Vec::new();
        let mut lines = 0;
        let manuals = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
        let manuals = manuals.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
        let all = [("crates", ".rs"), ("python", ".rs"), ("docs", ".md"), ("python", ".md")];
        let all = all.iter().flat_map(|(folder, ending)| files(&root().join(folder), &[ending]));
        for file in all.chain(manuals) {
            for (number, line, text) in prose(&file) {
                lines += 1;
                if line.chars().count() > WIDTH {
                    faults.push(format!("{}:{number}: {} columns", shown(&file), line.chars().count()));
                } else if has_two_sentences(&text) {
                    faults.push(format!("{}:{number}: two sentences in a line: {text}", shown(&file)));
                }
            }
        }
        assert!(lines > 5000, "only {lines} lines of prose were seen");
        assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    }

    #[test]
    fn sentences_are_told_apart() {
        assert!(has_two_sentences("It ends. Another begins"));
        assert!(has_two_sentences("It ends (here). `code` follows"));
        assert!(!has_two_sentences("1. First."));
        assert!(!has_two_sentences("See e.g. Knuth; version 1.2 of `a. B`, (so. And) on."));
    }
}
