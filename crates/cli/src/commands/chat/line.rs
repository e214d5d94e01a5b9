//! Parses input lines of a chat, and the arguments of jinxes in them.

use alara_harness::Jinx;
use alara_harness::jinx::{Kind, Offer};
use serde_json::{Map, Value};

/// The commands: name, arguments, description.
/// Any other slash command is a jinx.
pub const COMMANDS: &[(&str, &str, &str)] = &[
    ("help", "", "what can be typed"),
    ("npcs", "", "who is in the team"),
    ("jinxes", "", "what can be run as /NAME"),
    ("model", "[NAME]", "tell or change the model"),
    (
        "set",
        "[NAME VALUE]",
        "tell or change how the model answers: temperature, max_tokens …; reset takes it back",
    ),
    ("system", "[TEXT]", "tell or change the NPC's system prompt in this conversation; reset takes it back"),
    ("team", "[TEAM]", "tell or change the team; a new conversation begins"),
    ("history", "[N]", "the last messages of the conversation"),
    ("last", "[N]", "the last call in full, or the last but N - 1"),
    ("stats", "", "what the conversation has cost so far"),
    ("phase", "", "where the conversation stands, if the NPC has phases"),
    ("ledger", "", "what the NPC's gates know"),
    ("retry", "", "say the last message again, as if it had not been answered"),
    ("clear", "", "begin a new conversation"),
    ("save", "FILE", "write the conversation to a file"),
    ("quit", "", "leave, as the end of the input does"),
];

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// An empty line.
    Empty,
    /// A message for the current NPC.
    Say(&'a str),
    /// A message for another NPC, once; without text, switches to that NPC.
    To { npc: &'a str, text: &'a str },
    /// A command or a jinx, and the text after it.
    Command { name: &'a str, rest: &'a str },
}

/// Parses a line.
/// A path isn't a command, though it begins with a slash.
pub fn parse(line: &str) -> Line<'_> {
    let line = line.trim();
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let name = |mark| first.strip_prefix(mark).filter(|name: &&str| !name.is_empty() && !name.contains('/'));
    match (name('/'), name('@')) {
        _ if line.is_empty() => Line::Empty,
        (Some(name), _) => Line::Command { name, rest: rest.trim() },
        (_, Some(npc)) => Line::To { npc, text: rest.trim() },
        _ => Line::Say(line),
    }
}

/// Whether a line needs a continuation: it ends with a backslash, a code fence is open, or a
/// command has an open quote or bracket.
/// In plain text quotes and brackets mean nothing: don't :(
pub fn is_open(line: &str) -> bool {
    if line.ends_with('\\') {
        return true;
    }
    match parse(line) {
        Line::Command { rest, .. } => {
            let words = words(rest);
            words.is_err() || brackets(rest) > 0
        }
        _ => line.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1,
    }
}

/// Counts the brackets outside quotes that stay open.
fn brackets(text: &str) -> i64 {
    let mut quote = None;
    let mut open = 0;
    for c in text.chars() {
        match (quote, c) {
            (Some(mark), c) if mark == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{' | '(') => open += 1,
            (None, ']' | '}' | ')') => open -= 1,
            _ => {}
        }
    }
    open
}

/// Joins lines continued with a backslash.
pub fn joined(line: &str) -> String {
    line.replace("\\\n", "\n")
}

/// Splits a text into words, each with its offset.
/// Whitespace separates them and quotes group them.
/// A backslash escapes the next character, except within single quotes.
///
/// # Errors
/// A quote isn't closed.
fn words(text: &str) -> Result<Vec<(usize, String)>, String> {
    let mut words: Vec<(usize, String)> = Vec::new();
    let mut within = false;
    let mut quote = None;
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        if quote.is_none() && c.is_whitespace() {
            within = false;
            continue;
        }
        if !within {
            words.push((at, String::new()));
            within = true;
        }
        let Some((_, word)) = words.last_mut() else { break };
        match (quote, c) {
            (Some(mark), c) if mark == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None | Some('"'), '\\') => word.extend(characters.next().map(|(_, c)| c)),
            (_, c) => word.push(c),
        }
    }
    match quote {
        Some(mark) => Err(format!("a quote {mark} is open")),
        None => Ok(words),
    }
}

/// Parses the arguments of `jinx` from the text after its name.
/// First come inputs as `name=value`, then the others in order.
/// If the jinx requires exactly one text, it gets the whole rest as typed: `/shell ls -l | wc`.
/// `offer` has the values to choose from.
///
/// # Errors
/// The arguments don't fit the jinx.
pub fn arguments(jinx: &Jinx, text: &str, offer: &Offer) -> Result<Map<String, Value>, String> {
    let words = words(text)?;
    let mut given = Map::new();
    let mut left = words.as_slice();
    while let Some(((_, word), rest)) = left.split_first() {
        let Some((name, value)) = word.split_once('=') else { break };
        let Some(input) = jinx.inputs.iter().find(|input| input.name == name) else { break };
        given.insert(name.to_owned(), input.parse(value, offer)?);
        left = rest;
    }
    let open: Vec<_> = jinx.inputs.iter().filter(|input| !given.contains_key(&input.name)).collect();
    let required: Vec<_> = open.iter().filter(|input| input.default.is_none()).collect();
    if let ([input], [(at, _), _, ..]) = (required.as_slice(), left)
        && input.kind == Kind::String
    {
        given.insert(input.name.clone(), Value::from(&text[*at..]));
        return Ok(given);
    }
    if left.len() > open.len() {
        let names: Vec<&str> = jinx.inputs.iter().map(|input| input.name.as_str()).collect();
        return Err(format!("`{}` takes: {}", jinx.name, names.join(", ")));
    }
    for (input, (_, word)) in open.iter().zip(left) {
        given.insert(input.name.clone(), input.parse(word, offer)?);
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use alara_harness::jinx::Input;
    use serde_json::json;

    use super::*;

    #[test]
    fn lines() {
        let check = |line: &str, expected: Line| assert_eq!(parse(line), expected, "{line}");
        check("  ", Line::Empty);
        check(" hi there ", Line::Say("hi there"));
        check("/help", Line::Command { name: "help", rest: "" });
        check("/shell  ls -l ", Line::Command { name: "shell", rest: "ls -l" });
        check("/etc/passwd is a file", Line::Say("/etc/passwd is a file"));
        check("/ what", Line::Say("/ what"));
        check("@critic look at this", Line::To { npc: "critic", text: "look at this" });
        check("@critic", Line::To { npc: "critic", text: "" });
    }

    #[test]
    fn lines_that_go_on() {
        let check = |line: &str, expected: bool| assert_eq!(is_open(line), expected, "{line}");
        check("it's (", false);
        check("more \\", true);
        check("```\ncode", true);
        check("```\ncode\n```", false);
        check("/py print(", true);
        check("/py print('(')", false);
        check("/shell echo \"a", true);
        assert_eq!(joined("a \\\nb"), "a \nb");
    }

    #[test]
    fn arguments_of_jinxes() {
        let input = |name: &str, kind, default: Option<Value>| Input {
            name: name.into(),
            kind,
            description: String::new(),
            default,
            choices: alara_harness::jinx::Choices::Any,
        };
        let jinx = |inputs| Jinx { name: "x".into(), inputs, ..Jinx::default() };
        let shell = jinx(vec![
            input("command", Kind::String, None),
            input("seconds", Kind::Integer, Some(json!(60))),
        ]);
        let edit = jinx(vec![
            input("path", Kind::String, None),
            input("old", Kind::String, None),
            input("count", Kind::Integer, Some(json!(1))),
        ]);
        let check = |jinx: &Jinx, text: &str, expected: Result<Value, &str>| {
            let found = arguments(jinx, text, &Offer::default()).map(Value::Object);
            assert_eq!(found, expected.map_err(str::to_owned), "{text}");
        };
        check(&shell, "ls", Ok(json!({"command": "ls"})));
        check(&shell, "echo \"a  b\" | wc", Ok(json!({"command": "echo \"a  b\" | wc"})));
        check(&shell, "'ls -l'", Ok(json!({"command": "ls -l"})));
        check(&shell, "seconds=5 A=1 env", Ok(json!({"seconds": 5, "command": "A=1 env"})));
        check(&shell, "seconds=x ls", Err("argument `seconds` must be of type integer"));
        check(&shell, "", Ok(json!({})));
        check(&edit, "f \"a \\\"b\\\"\" 2", Ok(json!({"path": "f", "old": "a \"b\"", "count": 2})));
        check(&edit, "old=x f", Ok(json!({"old": "x", "path": "f"})));
        check(&edit, "a b 1 c", Err("`x` takes: path, old, count"));
        check(&edit, "a 'b", Err("a quote ' is open"));
    }

    #[test]
    fn what_a_person_may_choose_from() {
        let team = alara_harness::Team::stock("alara").unwrap();
        let offer = alara_harness::prompt::offer(&team, None);
        let check = |name: &str, text: &str| {
            let found = arguments(team.jinx(name).unwrap(), text, &offer).unwrap();
            let words: Vec<&str> = found.values().filter_map(Value::as_str).collect();
            assert_eq!(words.join(" "), text, "{name}");
        };
        check("skill", &format!("{} all", offer.skills[0]));
        check("delegate", &format!("{} greet", offer.members[0]));
    }
}
