//! JSON schema's regular expressions (ECMA-262) as llguidance understands them.
//!
//! A pattern is parsed in full and rewritten with plain classes and groups only, so that no
//! construct changes its meaning.
//! `.` excludes all line ends, `\d` and `\w` are ASCII, and a search becomes a match of the whole
//! text.
//! Constructs without such a form are refused: look-around, back references, word boundaries, and
//! anchors inside an expression.

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::panic_utils;

use super::expression::{self, Expression, escaped};

/// Fuel for one question about expressions.
const FUEL: u64 = 20_000;
/// Most strings that a finite set may have.
const MOST_STRINGS: usize = 64;

/// A set of strings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pattern {
    /// An expression that matches the whole string.
    pub regex: String,
    /// Whether the expression describes the whole set, rather than a part of it as for formats.
    pub exact: bool,
}

/// What a search with an expression finds.
pub(super) enum Search {
    /// A match in every string.
    Everything,
    /// Matches in these strings only.
    Strings(Vec<String>),
    Pattern(Pattern),
}

impl Pattern {
    /// The strings in which an expression finds a match.
    pub(super) fn search(source: &str) -> Result<Search, String> {
        let node = expression::read(source)?;
        if finds_always(&node) {
            return Ok(Search::Everything);
        }
        if let Some(strings) = strings(&node, true) {
            return Ok(Search::Strings(strings));
        }
        let pattern = Pattern { regex: whole(&node)?, exact: true };
        pattern.check()?;
        Ok(Search::Pattern(pattern))
    }

    /// All strings with a length in this range.
    pub(super) fn length(least: u64, most: Option<u64>) -> Self {
        let most = most.map_or(String::new(), |most| most.to_string());
        Pattern { regex: format!("(?s:.{{{least},{most}}})"), exact: true }
    }

    /// All strings except these.
    pub(super) fn except(strings: &[String]) -> Self {
        let strings: Vec<Vec<char>> = strings.iter().map(|text| text.chars().collect()).collect();
        let strings: Vec<&[char]> = strings.iter().map(Vec::as_slice).collect();
        Pattern { regex: all_but(&strings), exact: true }
    }

    /// The pattern for the keyword `pattern`.
    pub(super) fn source(&self) -> String {
        format!("^(?:{})$", self.regex)
    }

    fn check(&self) -> Result<(), String> {
        RegexBuilder::new().mk_regex(&self.regex).map(|_| ()).map_err(|error| error.to_string())
    }

    /// Whether a string is in the set; `None` if finding out takes too much work.
    pub(super) fn matches(&self, text: &str) -> Option<bool> {
        let mut builder = RegexBuilder::new();
        let regex = builder.mk_regex(&self.regex).ok()?;
        Some(builder.to_regex_limited(regex, FUEL).ok()?.is_match(text))
    }

    /// Whether these sets certainly have no string in common.
    pub(super) fn are_disjoint(patterns: &[Pattern]) -> bool {
        // Intersecting many expressions exceeds what the builder supports.
        let ask = || {
            let all = patterns.iter().map(|pattern| RegexAst::Regex(pattern.regex.clone())).collect();
            let mut builder = RegexBuilder::new();
            let regex = builder.mk(&RegexAst::And(all))?;
            Ok(builder.to_regex_limited(regex, FUEL)?.always_empty())
        };
        panic_utils::catch_unwind(ask).unwrap_or(false)
    }
}

/// Walks the trie of the strings: at each node a text either ends where none of the strings does,
/// or leaves the trie.
fn all_but(strings: &[&[char]]) -> String {
    let mut heads: Vec<char> = strings.iter().filter_map(|text| text.first().copied()).collect();
    heads.sort_unstable();
    heads.dedup();
    let others: String = heads.iter().copied().map(escaped).collect();
    let mut options =
        vec![if heads.is_empty() { "(?s:.)(?s:.*)".into() } else { format!("[^{others}](?s:.*)") }];
    if strings.iter().all(|text| !text.is_empty()) {
        options.push(String::new());
    }
    options.extend(heads.into_iter().map(|head| {
        let rest: Vec<&[char]> =
            strings.iter().filter(|text| text.first() == Some(&head)).map(|text| &text[1..]).collect();
        format!("{}{}", escaped(head), all_but(&rest))
    }));
    format!("(?:{})", options.join("|"))
}

/// The items of an alternative without the anchors around them, and whether it is anchored at start
/// and end, by its own anchors or by outer ones.
fn unanchored(node: &Expression, mut start: bool, mut end: bool) -> (&[Expression], bool, bool) {
    let mut nodes = match node {
        Expression::Sequence(nodes) => nodes.as_slice(),
        node => std::slice::from_ref(node),
    };
    while let [Expression::Start, rest @ ..] = nodes {
        (start, nodes) = (true, rest);
    }
    while let [rest @ .., Expression::End] = nodes {
        (end, nodes) = (true, rest);
    }
    (nodes, start, end)
}

/// Whether a search matches every string.
/// Either the expression matches the empty string at the start, at the end or anywhere, or it
/// matches any text in full.
fn finds_always(node: &Expression) -> bool {
    fn alternative(node: &Expression, start: bool, end: bool) -> bool {
        let (nodes, start, end) = unanchored(node, start, end);
        match nodes {
            [Expression::Alternatives(options)] => {
                options.iter().any(|option| alternative(option, start, end))
            }
            [Expression::Repeat(node, 0, None)] if start && end => is_any(node),
            nodes => !(start && end) && nodes.iter().all(matches_nothing),
        }
    }
    alternative(node, false, false)
}

/// Whether an expression matches every character.
fn is_any(node: &Expression) -> bool {
    match node {
        Expression::Class(class) => class.is_any(),
        Expression::Alternatives(options) => options.iter().any(is_any),
        Expression::Sequence(nodes) => matches!(nodes.as_slice(), [node] if is_any(node)),
        _ => false,
    }
}

/// Whether an expression matches the empty string.
fn matches_nothing(node: &Expression) -> bool {
    match node {
        Expression::Class(_) | Expression::Start | Expression::End => false,
        Expression::Sequence(nodes) => nodes.iter().all(matches_nothing),
        Expression::Alternatives(options) => options.iter().any(matches_nothing),
        Expression::Repeat(node, least, _) => *least == 0 || matches_nothing(node),
    }
}

/// Resolves anchors, which must be first and last in an alternative.
fn whole(node: &Expression) -> Result<String, String> {
    fn alternative(node: &Expression, start: bool, end: bool) -> Result<String, String> {
        let (nodes, start, end) = unanchored(node, start, end);
        if let [Expression::Alternatives(options)] = nodes {
            let options: Result<Vec<_>, _> =
                options.iter().map(|option| alternative(option, start, end)).collect();
            return Ok(format!("(?:{})", options?.join("|")));
        }
        let anything = |anchored: bool| if anchored { "" } else { "(?s:.*)" };
        let inner: Result<String, String> = nodes.iter().map(inner).collect();
        Ok(format!("{}{}{}", anything(start), inner?, anything(end)))
    }
    alternative(node, false, false)
}

/// The strings that a node matches, if there are few; a search must be anchored.
fn strings(node: &Expression, search: bool) -> Option<Vec<String>> {
    let found = match node {
        Expression::Class(class) => vec![class.single()?.to_string()],
        Expression::Alternatives(options) => {
            let options: Option<Vec<_>> = options.iter().map(|option| strings(option, search)).collect();
            options?.concat()
        }
        Expression::Sequence(nodes) => {
            let nodes = match nodes.as_slice() {
                [Expression::Start, nodes @ .., Expression::End] if search => nodes,
                nodes if !search => nodes,
                _ => return None,
            };
            let mut all = vec![String::new()];
            for node in nodes {
                let tails = strings(node, false)?;
                all = all
                    .iter()
                    .flat_map(|head| tails.iter().map(move |tail| format!("{head}{tail}")))
                    .collect();
                if all.len() > MOST_STRINGS {
                    return None;
                }
            }
            all
        }
        Expression::Start | Expression::End | Expression::Repeat(..) => return None,
    };
    (found.len() <= MOST_STRINGS).then_some(found)
}

fn inner(node: &Expression) -> Result<String, String> {
    Ok(match node {
        Expression::Class(class) => class.write(),
        Expression::Start | Expression::End => return Err("an anchor stands inside of the expression".into()),
        Expression::Sequence(nodes) => nodes.iter().map(inner).collect::<Result<_, _>>()?,
        Expression::Alternatives(options) => {
            let options: Result<Vec<_>, _> = options.iter().map(inner).collect();
            format!("(?:{})", options?.join("|"))
        }
        Expression::Repeat(node, least, most) => {
            let most = most.map_or(String::new(), |most| most.to_string());
            format!("(?:{}){{{least},{most}}}", inner(node)?)
        }
    })
}
