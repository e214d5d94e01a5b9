//! Detects changes from request to request in the head of otherwise unchanged prompts, such as a
//! date or an id in the system prompt or tools.
//! Everything after such a change misses the prefix cache.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use alara_engine::{Request, Tool};

/// How many heads are remembered.
const REMEMBERED: usize = 32;
/// Maximum size, in bytes, and number of sentences and lines, of a system prompt that is compared:
/// longer comparisons would delay other requests.
const MOST_BYTES: usize = 256 << 10;
const MOST_PIECES: usize = 4096;
/// Maximum length of a displayed line, in characters.
const SHOWN: usize = 80;
/// Minimum number of prefilled tokens for a reported miss.
pub const WORTH: usize = 256;

/// The heads of recent prompts, as hashes, so that no client's text is kept.
#[derive(Debug, Default)]
pub struct Heads {
    known: Mutex<VecDeque<Head>>,
    hasher: RandomState,
}

/// The head of a prompt.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    /// Hash of what must be equal to share the prefix cache: model and salt.
    sharing: u64,
    /// Hashes of the sentences and lines of the system prompt.
    pieces: Vec<u64>,
    /// Hashes of the tools: name, and whole definition.
    tools: Vec<(u64, u64)>,
}

/// A difference from an earlier request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A line of the system prompt.
    Line {
        /// Line number, from 1.
        number: usize,
        /// The text that differs.
        text: String,
    },
    /// The definition of a tool, by its name.
    Tool(String),
    /// The order of the tools.
    Order,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, advice) = match self {
            Change::Line { number, text } => (
                format!("line {number} of the system prompt differs from an earlier request's (`{text}`)"),
                "move what changes into the user's message, or at least to the end of the system prompt",
            ),
            Change::Tool(name) => (
                format!("the tool `{name}` has another description than in an earlier request"),
                "keep what changes out of descriptions and schemas",
            ),
            Change::Order => (
                "the tools come in another order than in an earlier request".to_owned(),
                "send them in the same order each time",
            ),
        };
        write!(f, "{what}, so what comes behind it was not found in the prefix cache; {advice}")
    }
}

impl Heads {
    /// Returns the difference between the head of `request` and that of the most similar earlier
    /// request to `model`.
    /// `None` if there is none, or no earlier request is similar.
    pub fn compare(&self, model: &str, request: &Request) -> Option<Change> {
        if request.prompt.is_some() || (request.system.is_empty() && request.tools.is_empty()) {
            return None;
        }
        let bytes: usize = request.system.iter().map(|segment| segment.text.len()).sum();
        if bytes > MOST_BYTES || request.tools.len() > MOST_PIECES {
            return None;
        }
        let texts: Vec<(usize, &str)> = pieces(request).take(MOST_PIECES + 1).collect();
        if texts.len() > MOST_PIECES {
            return None;
        }
        let head = Head {
            sharing: self.hash(&(model, &request.salt)),
            pieces: texts.iter().map(|(_, text)| self.hash(text)).collect(),
            tools: request.tools.iter().map(|tool| self.hashes(tool)).collect(),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = known.iter().position(|other| *other == head) {
            // Keep the latest ones.
            let again = known.remove(at);
            known.extend(again);
            return None;
        }
        let others = known.iter().filter(|other| other.sharing == head.sharing);
        let nearest = others.filter_map(|other| Some((head.likeness(other)?, other)));
        let nearest = nearest.max_by_key(|(likeness, _)| *likeness);
        let change = nearest.and_then(|(_, other)| head.change(other, &texts, &request.tools));
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back(head);
        change
    }

    fn hash(&self, value: &impl std::hash::Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    fn hashes(&self, tool: &Tool) -> (u64, u64) {
        let schema = tool.parameters.to_string();
        (self.hash(&tool.name), self.hash(&(&tool.name, &tool.description, schema)))
    }
}

impl Head {
    /// Returns the number of pieces and tools in common; `None` if that is less than three quarters
    /// of either head.
    fn likeness(&self, other: &Head) -> Option<usize> {
        let pieces = shared(&self.pieces, &other.pieces);
        let names = |head: &Head| head.tools.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let tools = shared(&names(self), &names(other));
        let both = pieces + tools;
        let most = (self.pieces.len() + self.tools.len()).max(other.pieces.len() + other.tools.len());
        (both * 4 >= most * 3).then_some(both)
    }

    /// Returns the first difference from `other` that precedes something unchanged.
    fn change(&self, other: &Head, texts: &[(usize, &str)], tools: &[Tool]) -> Option<Change> {
        let same = common(&self.pieces, &other.pieces);
        if same < self.pieces.len().max(other.pieces.len()) {
            // Growing or shrinking at the end invalidates only the part after it.
            let behind = self.pieces.len().min(other.pieces.len()) > same + 1 || !tools.is_empty();
            let (number, text) = texts.get(same)?;
            let text: String = text.chars().take(SHOWN).collect();
            return behind.then_some(Change::Line { number: *number, text });
        }
        let names = |head: &Head| head.tools.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let (own, others) = (names(self), names(other));
        if own.len() != others.len() || shared(&own, &others) < own.len() {
            // Clients add and remove tools knowingly.
            return None;
        }
        if own != others {
            return Some(Change::Order);
        }
        let at = self.tools.iter().zip(&other.tools).position(|(one, other)| one != other)?;
        Some(Change::Tool(tools.get(at)?.name.clone()))
    }
}

/// Returns the sentences of the system prompt, each with its line number, from 1.
fn pieces(request: &Request) -> impl Iterator<Item = (usize, &str)> {
    let lines = request.system.iter().flat_map(|segment| segment.text.lines());
    lines.enumerate().flat_map(|(index, line)| {
        let sentences = line.split_inclusive(". ").map(str::trim).filter(|text| !text.is_empty());
        sentences.map(move |sentence| (index + 1, sentence))
    })
}

/// Returns the length of the common prefix.
fn common(a: &[u64], b: &[u64]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Returns the number of common elements, wherever they are.
fn shared(a: &[u64], b: &[u64]) -> usize {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for piece in a {
        *counts.entry(*piece).or_default() += 1;
    }
    let taken = |piece: &&u64| match counts.get_mut(*piece) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    };
    b.iter().filter(taken).count()
}

#[cfg(test)]
mod tests {
    use alara_engine::Segment;
    use serde_json::json;

    use super::*;

    const RULES: &str =
        "Answer in short. Use the tools.\nDo not guess.\nSay what you did.\nStop when it is done.";

    fn request(system: &[&str], tools: &[(&str, &str)]) -> Request {
        let segment = |text: &&str| Segment { name: "system".into(), text: (*text).into() };
        let tool = |(name, description): &(&str, &str)| Tool {
            name: (*name).into(),
            description: (*description).into(),
            parameters: json!({"type": "object"}),
            strict: false,
        };
        Request {
            system: system.iter().map(segment).collect(),
            tools: tools.iter().map(tool).collect(),
            ..Request::default()
        }
    }

    #[test]
    fn a_line_that_changes_is_found_wherever_it_is() {
        let line = |number, text: &str| Some(Change::Line { number, text: text.into() });
        let check = |before: &Request, after: &Request, expected: Option<Change>| {
            let heads = Heads::default();
            assert_eq!(heads.compare("m", before), None);
            assert_eq!(heads.compare("m", after), expected);
            // Both are known now.
            assert_eq!((heads.compare("m", before), heads.compare("m", after)), (None, None));
        };
        let dated = |date: &str| request(&[&format!("Today is {date}."), RULES], &[]);
        check(&dated("Monday"), &dated("Tuesday"), line(1, "Today is Tuesday."));
        // Within a line whose rest is unchanged.
        let id = |id: &str| request(&[&format!("You are a clerk. The request is {id}. {RULES}")], &[]);
        check(&id("17"), &id("18"), line(1, "The request is 18."));
        // At the end, it invalidates only the part after it.
        let last = |date: &str, tools| request(&[RULES, &format!("Today is {date}.")], tools);
        check(&last("Monday", &[]), &last("Tuesday", &[]), None);
        let tools = [("read", "Reads"), ("write", "Writes")];
        check(&last("Monday", &tools), &last("Tuesday", &tools), line(5, "Today is Tuesday."));
        // An unrelated prompt isn't a changed version of this one.
        check(&dated("Monday"), &request(&["You paint.", "With oil.", "On wood."], &[]), None);
        // An addition at the end changes nothing before it.
        check(&request(&[RULES], &[]), &request(&[RULES, "And be kind."], &[]), None);
    }

    #[test]
    fn tools_that_change_are_found() {
        let check = |before: &[(&str, &str)], after: &[(&str, &str)], expected: Option<Change>| {
            let heads = Heads::default();
            assert_eq!(heads.compare("m", &request(&[RULES], before)), None);
            assert_eq!(heads.compare("m", &request(&[RULES], after)), expected);
        };
        let tools = [("read", "Reads"), ("write", "Writes")];
        check(&tools, &[("write", "Writes"), ("read", "Reads")], Some(Change::Order));
        check(&tools, &[("read", "Reads"), ("write", "Writes at 12:05")], Some(Change::Tool("write".into())));
        check(&tools, &[("read", "Reads"), ("write", "Writes"), ("list", "Lists")], None);
        check(&tools, &tools, None);
    }

    #[test]
    fn nobody_learns_of_another_salt_or_model() {
        let heads = Heads::default();
        let dated = |date: &str, salt: &str| Request {
            salt: salt.into(),
            ..request(&[&format!("Today is {date}."), RULES], &[])
        };
        assert_eq!(heads.compare("m", &dated("Monday", "a")), None);
        assert_eq!(heads.compare("m", &dated("Tuesday", "b")), None);
        assert_eq!(heads.compare("n", &dated("Wednesday", "a")), None);
        assert!(heads.compare("m", &dated("Thursday", "a")).is_some());
        // Only a limited number is remembered.
        (0..100).for_each(|day| drop(heads.compare("m", &dated(&day.to_string(), "c"))));
        assert_eq!(heads.known.lock().unwrap().len(), REMEMBERED);
        // Prompts that take long to compare are skipped.
        let heads = Heads::default();
        for text in ["a. ".repeat(MOST_PIECES + 1), "a".repeat(MOST_BYTES + 1)] {
            assert_eq!(heads.compare("m", &request(&[&text], &[])), None);
        }
        assert_eq!(heads.known.lock().unwrap().len(), 0);
    }

    #[test]
    fn it_says_what_to_do() {
        let change = Change::Line { number: 1, text: "Today is Monday.".into() };
        let expected = "line 1 of the system prompt differs from an earlier request's (`Today is Monday.`), so what comes \
                        behind it was not found in the prefix cache; move what changes into the user's message";
        assert!(change.to_string().starts_with(expected), "{change}");
    }
}
