//! Translates GBNF, llama.cpp's grammar notation, to Lark for llguidance.
//!
//! Source: `grammars/README.md` of llama.cpp.
//! GBNF matches characters, Lark matches lexemes, of which the longest wins.
//! So each part without recursion becomes one lexeme, within which every division of the text is
//! tried.
//! Such a part is a whole rule, or adjacent items of a recursive rule.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::GrammarError;
use super::text::hexadecimal;
use super::turn::quote;

/// How deep parentheses may nest.
const DEPTH: usize = 64;

/// The grammar as Lark; GBNF, recognized by the `::=` of its first rule, is translated.
///
/// # Errors
/// [`GrammarError::Grammar`] if it can't be translated.
pub fn to_lark(grammar: &str) -> Result<Cow<'_, str>, GrammarError> {
    let mut lines = grammar.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
    let after_name = first.trim_start_matches(is_name).trim_start();
    if !after_name.starts_with("::=") || first.starts_with(':') {
        return Ok(Cow::Borrowed(grammar));
    }
    let given = super::bounds::check_size(grammar).and_then(|()| translate(grammar));
    given.map(Cow::Owned).map_err(|message| GrammarError::Grammar { message })
}

/// The body of a rule.
#[derive(Debug)]
enum Node {
    Literal(String),
    /// As a regular expression.
    Characters(String),
    /// Another rule, by its number.
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    /// A node with its minimum and maximum count.
    Repeated(Box<Node>, usize, Option<usize>),
}

impl Node {
    /// Adds the rules that this node mentions.
    fn mentions(&self, rules: &mut HashSet<usize>) {
        match self {
            Node::Literal(_) | Node::Characters(_) => {}
            Node::Rule(rule) => drop(rules.insert(*rule)),
            Node::Sequence(nodes) | Node::Choice(nodes) => nodes.iter().for_each(|node| node.mentions(rules)),
            Node::Repeated(node, ..) => node.mentions(rules),
        }
    }

    /// Whether all mentioned rules are among `rules`.
    fn mentions_only(&self, rules: &HashSet<usize>) -> bool {
        match self {
            Node::Literal(_) | Node::Characters(_) => true,
            Node::Rule(rule) => rules.contains(rule),
            Node::Sequence(nodes) | Node::Choice(nodes) => nodes.iter().all(|node| node.mentions_only(rules)),
            Node::Repeated(node, ..) => node.mentions_only(rules),
        }
    }
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_".contains(character)
}

fn translate(grammar: &str) -> Result<String, String> {
    let mut reader = Reader { text: grammar, at: 0, numbers: HashMap::new() };
    let mut rules: HashMap<usize, Node> = HashMap::new();
    reader.skip(true);
    while reader.at < grammar.len() {
        let name = reader.name()?;
        reader.skip(true);
        reader.expect("::=")?;
        let node = reader.choice(0).map_err(|what| format!("rule {name}: {what}"))?;
        let number = reader.number(&name);
        if rules.insert(number, node).is_some() {
            return Err(format!("rule {name} is there twice"));
        }
        reader.skip(true);
    }
    let root = *reader.numbers.get("root").ok_or("there is no rule `root`, where a grammar begins")?;
    if let Some((name, _)) = reader.numbers.iter().find(|(_, number)| !rules.contains_key(number)) {
        return Err(format!("there is no rule `{name}`"));
    }
    let flat = flat(&rules);
    let mut writer = Writer { flat: &flat, out: String::new(), lexemes: 0 };
    let _ = writeln!(writer.out, "start: {}", writer.rule_name(root));
    let mut numbers: Vec<&usize> = rules.keys().collect();
    numbers.sort_unstable();
    for number in numbers {
        let body =
            if flat.contains(number) { writer.lexeme(&rules[number]) } else { writer.rule(&rules[number]) };
        let _ = writeln!(writer.out, "{}: {body}", writer.rule_name(*number));
    }
    Ok(writer.out)
}

/// The rules that need no recursion, directly or through the rules that they mention.
/// Visits each rule once, and once more per mention.
fn flat(rules: &HashMap<usize, Node>) -> HashSet<usize> {
    // For each rule, how many mentioned rules aren't known to be flat, and the rules that mention
    // it.
    let (mut waiting, mut mentioned_by) = (HashMap::new(), HashMap::<usize, Vec<usize>>::new());
    for (number, node) in rules {
        let mut mentioned = HashSet::new();
        node.mentions(&mut mentioned);
        waiting.insert(*number, mentioned.len());
        mentioned.iter().for_each(|other| mentioned_by.entry(*other).or_default().push(*number));
    }
    let mut open: Vec<usize> =
        waiting.iter().filter(|(_, count)| **count == 0).map(|(rule, _)| *rule).collect();
    let mut flat = HashSet::new();
    while let Some(rule) = open.pop() {
        flat.insert(rule);
        for other in mentioned_by.get(&rule).into_iter().flatten() {
            if let Some(count) = waiting.get_mut(other) {
                *count -= 1;
                if *count == 0 {
                    open.push(*other);
                }
            }
        }
    }
    flat
}

/// Writes rules as Lark.
struct Writer<'a> {
    /// Rules that are lexemes.
    flat: &'a HashSet<usize>,
    out: String,
    /// Lexemes that are part of a rule.
    lexemes: usize,
}

impl Writer<'_> {
    fn rule_name(&self, number: usize) -> String {
        let letter = if self.flat.contains(&number) { 'R' } else { 'r' };
        format!("{letter}{number}")
    }

    /// The body of a lexeme, or a part of it.
    fn lexeme(&self, node: &Node) -> String {
        let join = |nodes: &[Node], between: &str| {
            let parts: Vec<String> = nodes.iter().map(|node| self.lexeme(node)).collect();
            format!("({})", parts.join(between))
        };
        match node {
            Node::Literal(text) => quote(text),
            Node::Characters(regex) => format!("/{regex}/"),
            Node::Rule(number) => self.rule_name(*number),
            Node::Sequence(nodes) if nodes.is_empty() => "\"\"".into(),
            Node::Sequence(nodes) => join(nodes, " "),
            Node::Choice(nodes) => join(nodes, " | "),
            Node::Repeated(node, least, most) => self.lexeme(node) + &repetition(*least, *most),
        }
    }

    /// The body of a recursive rule, or a part of it: adjacent non-recursive items form one lexeme.
    fn rule(&mut self, node: &Node) -> String {
        if node.mentions_only(self.flat) {
            return self.named(std::slice::from_ref(node));
        }
        match node {
            Node::Sequence(nodes) => {
                let flat = self.flat;
                let groups =
                    nodes.chunk_by(|one, other| one.mentions_only(flat) && other.mentions_only(flat));
                let parts: Vec<String> = groups
                    .map(|group| match group {
                        [one] => self.rule(one),
                        several => self.named(several),
                    })
                    .collect();
                format!("({})", parts.join(" "))
            }
            Node::Choice(nodes) => {
                let parts: Vec<String> = nodes.iter().map(|node| self.rule(node)).collect();
                format!("({})", parts.join(" | "))
            }
            Node::Repeated(node, least, most) => {
                let body = self.rule(node);
                format!("({body}){}", repetition(*least, *most))
            }
            Node::Literal(_) | Node::Characters(_) | Node::Rule(_) => self.lexeme(node),
        }
    }

    /// Adds a lexeme for these nodes; returns its name.
    fn named(&mut self, nodes: &[Node]) -> String {
        match nodes {
            [Node::Rule(number)] => self.rule_name(*number),
            _ => {
                let body: Vec<String> = nodes.iter().map(|node| self.lexeme(node)).collect();
                self.lexemes += 1;
                let _ = writeln!(self.out, "L{}: {}", self.lexemes, body.join(" "));
                format!("L{}", self.lexemes)
            }
        }
    }
}

fn repetition(least: usize, most: Option<usize>) -> String {
    match (least, most) {
        (0, None) => "*".into(),
        (1, None) => "+".into(),
        (0, Some(1)) => "?".into(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// Reads GBNF.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Numbers of rules by name, in the order of their first mention.
    numbers: HashMap<String, usize>,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn number(&mut self, name: &str) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(name.to_owned()).or_insert(next)
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        if self.take(text) { Ok(()) } else { Err(self.unexpected(&format!("`{text}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> String {
        let line = self.text[..self.at].matches('\n').count() + 1;
        let found: String = self.rest().chars().take(12).collect();
        match found.trim() {
            "" => format!("line {line}: {wanted} is missing at the end"),
            found => format!("line {line}: {wanted} is missing before `{found}`"),
        }
    }

    fn character(&mut self) -> Option<char> {
        let character = self.rest().chars().next()?;
        self.at += character.len_utf8();
        Some(character)
    }

    /// Skips whitespace and comments, including line ends where a rule continues.
    fn skip(&mut self, lines: bool) {
        loop {
            let space = |character: char| character.is_whitespace() && (lines || !"\r\n".contains(character));
            self.at = self.text.len() - self.rest().trim_start_matches(space).len();
            if !self.rest().starts_with('#') {
                return;
            }
            self.at += self.rest().find(['\r', '\n']).unwrap_or(self.rest().len());
        }
    }

    fn name(&mut self) -> Result<String, String> {
        let length = self.rest().find(|character| !is_name(character)).unwrap_or(self.rest().len());
        if length == 0 {
            return Err(self.unexpected("the name of a rule"));
        }
        let name = self.rest()[..length].to_owned();
        self.at += length;
        Ok(name)
    }

    /// Reads alternatives up to the end of the rule or of the parentheses.
    fn choice(&mut self, depth: usize) -> Result<Node, String> {
        if depth > DEPTH {
            return Err(format!("parentheses stand more than {DEPTH} deep"));
        }
        let mut options = Vec::new();
        loop {
            self.skip(true);
            options.push(self.sequence(depth)?);
            if !self.take("|") {
                break;
            }
        }
        Ok(if options.len() == 1 { options.remove(0) } else { Node::Choice(options) })
    }

    fn sequence(&mut self, depth: usize) -> Result<Node, String> {
        let mut nodes = Vec::new();
        loop {
            let node = match self.rest().chars().next() {
                Some('"') => self.literal()?,
                Some('[') => self.class()?,
                Some('(') => {
                    self.at += 1;
                    let inner = self.choice(depth + 1)?;
                    self.skip(true);
                    self.expect(")")?;
                    inner
                }
                Some('.') => {
                    self.at += 1;
                    Node::Characters("(?s:.)".into())
                }
                Some('<' | '!') => {
                    return Err(
                        "tokens in angle brackets are not known here: give their text in quotes".into()
                    );
                }
                Some(character) if is_name(character) => {
                    let name = self.name()?;
                    Node::Rule(self.number(&name))
                }
                _ => break,
            };
            nodes.push(self.repeated(node)?);
            self.skip(depth > 0);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Sequence(nodes) })
    }

    fn repeated(&mut self, mut node: Node) -> Result<Node, String> {
        for _ in 0..DEPTH {
            let (least, most) = match self.rest().chars().next() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    let end = self.rest().find('}').ok_or_else(|| self.unexpected("`}`"))?;
                    let inside: String = self.rest()[1..end].split_whitespace().collect();
                    let count = |text: &str| text.parse().map_err(|_| format!("`{{{inside}}}` is no count"));
                    let counts = match inside.split_once(',') {
                        None => (count(&inside)?, Some(count(&inside)?)),
                        Some((least, "")) => (count(least)?, None),
                        Some(("", most)) => (0, Some(count(most)?)),
                        Some((least, most)) => (count(least)?, Some(count(most)?)),
                    };
                    self.at += end;
                    counts
                }
                _ => return Ok(node),
            };
            self.at += 1;
            node = Node::Repeated(Box::new(node), least, most);
        }
        Err(self.unexpected("an end of repetitions"))
    }

    fn literal(&mut self) -> Result<Node, String> {
        let mut text = String::new();
        self.at += 1;
        while !self.take("\"") {
            text.push(self.escaped()?);
        }
        Ok(Node::Literal(text))
    }

    /// Reads a character class as a regular expression.
    fn class(&mut self) -> Result<Node, String> {
        self.at += 1;
        let mut regex = String::from(if self.take("^") { "[^" } else { "[" });
        let empty = regex.len();
        while !self.take("]") {
            let first = self.escaped()?;
            regex += &hexadecimal(first);
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                let last = self.escaped()?;
                if last < first {
                    return Err(format!("the range `{first}-{last}` runs backwards"));
                }
                let _ = write!(regex, "-{}", hexadecimal(last));
            }
        }
        if regex.len() == empty {
            return Err("`[]` matches no character".into());
        }
        regex.push(']');
        Ok(Node::Characters(regex))
    }

    /// Reads a character of a literal or of a class.
    fn escaped(&mut self) -> Result<char, String> {
        let ended = |reader: &Self| reader.unexpected("the end of a literal or class");
        match self.character().ok_or_else(|| ended(self))? {
            '\\' => {}
            '\n' => return Err(ended(self)),
            character => return Ok(character),
        }
        let digits = match self.character().ok_or_else(|| ended(self))? {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            't' => return Ok('\t'),
            'r' => return Ok('\r'),
            'n' => return Ok('\n'),
            character if r#"\"[]-^/"#.contains(character) => return Ok(character),
            character => return Err(format!("`\\{character}` is no escape")),
        };
        let number = self.rest().get(..digits).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let character = number.and_then(char::from_u32);
        let character = character.ok_or_else(|| self.unexpected(&format!("{digits} hexadecimal digits")))?;
        self.at += digits;
        Ok(character)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::tests::accepts_in_lark;

    /// llama.cpp's JSON grammar, shortened.
    const JSON: &str = r#"
# Values
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;

    fn check(grammar: &str, accepted: &[&str], rejected: &[&str]) {
        let lark = to_lark(grammar).unwrap();
        assert!(matches!(lark, Cow::Owned(_)));
        for (texts, expected) in [(accepted, true), (rejected, false)] {
            for text in texts {
                assert_eq!(accepts_in_lark(&lark, text), expected, "{text:?} by\n{grammar}\nas\n{lark}");
            }
        }
    }

    #[test]
    fn recursive_grammars_keep_their_language() {
        check(
            JSON,
            &["{}", "{\"a\":1}", "{ \"a\": [1, -2.5e3 , {}],\"b\":\"\\u00e4\\n\"}", "{\"a\":\n  null}"],
            &["", "[1]", "{\"a\":}", "{\"a\" 1}", "{\"a\":01}", "{\"a\":\"\n\"}", "{}x"],
        );
        check(
            "root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
            &["1", "12+3*(4-5)", "((7))"],
            &["", "1+", "(1", "1)"],
        );
        // Left recursion.
        check("root ::= root \"a\" | \"b\"", &["b", "baa"], &["a", "ab", ""]);
    }

    #[test]
    fn flat_grammars_try_every_division() {
        check("root ::= [a-z]* \"x\" [a-z]", &["xa", "xxx", "abxc"], &["x", "abc", "abx "]);
        check(
            "root ::= a a?  # twice\na ::= \"u\" | \"uv\" | ",
            &["", "u", "uv", "uuv", "uvu"],
            &["v", "uuu"],
        );
        check("root ::= \"ä\\x41\\u00e4\\t\\\\\" .{2}", &["äAä\t\\\n."], &["äAä\t\\.", "aAä\t\\.."]);
        check("root ::= (\"a\" |\n  \"b\"){2,3}\n", &["ab", "bba"], &["a", "abab"]);
        check("root ::= [^\\]a-c\\-]{,2}", &["", "d", "xy"], &["a", "]", "-", "xyz"]);
    }

    #[test]
    fn what_is_no_gbnf_is_left_alone_or_refused() {
        for lark in ["start: \"a\"", "# ::=\nstart: /a ::= b/", "", "::="] {
            assert!(matches!(to_lark(lark), Ok(Cow::Borrowed(same)) if same == lark), "{lark}");
        }
        let check = |grammar: &str, expected: &str| {
            let message = to_lark(grammar).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        };
        check("a ::= \"x\"", "no rule `root`");
        check("root ::= a", "no rule `a`");
        check("root ::= \"a\"\nroot ::= \"b\"", "rule root is there twice");
        check("root ::= \"a", "rule root: line 1: the end of a literal or class is missing");
        check("root ::= \"a\"\n\n(", "line 3: the name of a rule is missing before `(`");
        check("root ::= (\"a\"", "`)` is missing");
        check("root ::= <think>", "give their text in quotes");
        check("root ::= [z-a]", "`z-a` runs backwards");
        check("root ::= \"a\"{x}", "`{x}` is no count");
        check("root ::= \"\\q\"", "`\\q` is no escape");
        check(&format!("root ::= {}", "(".repeat(9999)), "more than 64 deep");
    }
}
