//! A scripted user: chooses its next line.

use alara_harness::expression::{Counter, Expression, Key, Names};
use serde_json::{Map, Value};

use super::Line;

/// Names in conditions, in addition to `said('…')`.
const NAMES: [&str; 3] = ["turns", "database", "user_database"];

/// A scripted user during a dialogue.
pub struct Script<'a> {
    /// Remaining lines, in the order of the file.
    left: Vec<&'a Line>,
    begun: bool,
}

/// The information that a user has for its turn.
pub struct Heard<'a> {
    /// The agent's latest text.
    pub text: &'a str,
    /// Number of turns of the agent's model so far.
    pub turns: usize,
    /// The current databases, by their names in conditions; omits any that can't be read.
    pub databases: Map<String, Value>,
}

impl<'a> Script<'a> {
    /// Creates a user with these lines, none of them used.
    pub fn new(lines: &'a [Line]) -> Self {
        Script { left: lines.iter().collect(), begun: false }
    }

    /// Returns the next line: the first line opens the dialogue.
    /// Later it is the first line whose condition holds, or else the first one without a condition.
    /// `None` if no line applies.
    pub fn next(&mut self, heard: &Heard) -> Option<&'a Line> {
        let index = match std::mem::replace(&mut self.begun, true) {
            false => (!self.left.is_empty()).then_some(0)?,
            true => self.fitting(heard)?,
        };
        let line = self.left[index];
        if !line.repeat {
            self.left.remove(index);
        }
        Some(line)
    }

    fn fitting(&self, heard: &Heard) -> Option<usize> {
        let mut values = heard.databases.clone();
        values.insert("turns".to_owned(), heard.turns.into());
        let count = |counter, words: &str| match counter {
            Counter::Said => Some(said(heard.text, words)),
            Counter::Ok | Counter::Failed => None,
        };
        let names = Names::default().with_values(&values).with_counts(&count);
        let holds = |line: &&Line| line.when.as_ref().is_some_and(|when| when.is_met(&names));
        let otherwise = || self.left.iter().position(|line| line.when.is_none());
        self.left.iter().position(holds).or_else(otherwise)
    }
}

/// Counts how often these words occur in a text in this order, ignoring case and anything between
/// them.
fn said(text: &str, words: &str) -> u64 {
    let (text, words) = (split(text), split(words));
    match words.len() {
        0 => 0,
        length => text.windows(length).filter(|window| *window == words).count() as u64,
    }
}

fn split(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Returns an error in a script: a value, and the expected one.
pub fn problem(lines: &[Line]) -> Option<(String, &'static str)> {
    let Some(first) = lines.first() else {
        return Some(("[]".to_owned(), "it has lines, the first of which opens the dialogue"));
    };
    if first.when.is_some() || first.stop {
        return Some((
            first.say.clone(),
            "the first line opens the dialogue, without `when` and `stop`: put another before it",
        ));
    }
    if let Some(line) = lines.iter().find(|line| line.say.trim().is_empty()) {
        return Some((line.say.clone(), "each line says something"));
    }
    lines.iter().filter_map(|line| line.when.as_ref()).find_map(|when| {
        let wanted = unknown(when.expression())?;
        Some((when.to_string(), wanted))
    })
}

/// Explains why a condition can never hold.
fn unknown(expression: &Expression) -> Option<&'static str> {
    let counts = expression.counts();
    if counts.iter().any(|(counter, _)| *counter != Counter::Said) {
        return Some("a user does not see calls: write said('…'), or ask the `database`");
    }
    if counts.iter().any(|(_, words)| split(words).is_empty()) {
        return Some("said('…') takes words");
    }
    let mut wrong = None;
    expression.paths(&mut |path| {
        if !matches!(path.first(), Some(Key::Name(name)) if NAMES.contains(&name.as_str())) {
            wrong = Some("conditions see said('…'), `turns`, `database` and `user_database`");
        }
    });
    wrong
}

#[cfg(test)]
mod tests {
    use alara_harness::phases::Condition;
    use serde_json::json;

    use super::*;

    fn line(when: &str, say: &str) -> Line {
        let when = (!when.is_empty()).then(|| Condition::parse(when).unwrap());
        Line { when, say: say.into(), ..Line::default() }
    }

    #[test]
    fn words_are_whole_and_in_any_case() {
        for (text, words, count) in [
            ("What is your Date of Birth?", "date of birth", 1),
            ("date-of-birth, please", "date of birth", 1),
            ("An update of births", "date of birth", 0),
            ("Yes. Yes!", "yes", 2),
            ("anything", "", 0),
        ] {
            assert_eq!(said(text, words), count, "{text} / {words}");
        }
    }

    #[test]
    fn the_first_line_that_fits_is_said_and_used_up() {
        let lines = [
            line("", "Hi"),
            line("said('name')", "Ann"),
            line("said('name')", "Ann, I said"),
            line("database.cards.c1.status == 'closed'", "Thanks"),
            line("turns > 8", "Hurry"),
            line("", "Well"),
            Line { repeat: true, ..line("", "I don't know") },
        ];
        let mut script = Script::new(&lines);
        let mut check = |text: &str, turns: usize, status: &str, expected: &str| {
            let databases =
                Map::from_iter([("database".to_owned(), json!({"cards": {"c1": {"status": status}}}))]);
            let next = script.next(&Heard { text, turns, databases });
            assert_eq!(next.map_or("", |line| &line.say), expected, "{text}");
        };
        check("your name?", 0, "open", "Hi");
        check("your name?", 1, "open", "Ann");
        check("your NAME?", 2, "open", "Ann, I said");
        check("your name?", 3, "open", "Well");
        check("your name?", 4, "open", "I don't know");
        check("your name?", 5, "closed", "Thanks");
        check("your name?", 9, "closed", "Hurry");
        check("your name?", 10, "closed", "I don't know");
        let one = [line("", "Hi"), line("database.a == 1", "x")];
        let mut script = Script::new(&one);
        let mut next = || script.next(&Heard { text: "", turns: 0, databases: Map::new() });
        assert_eq!((next().is_some(), next().is_some()), (true, false));
    }

    #[test]
    fn scripts_that_can_not_be() {
        let check = |lines: &[Line], words: &str| {
            let (_, wanted) = problem(lines).unwrap();
            assert!(wanted.contains(words), "{wanted}");
        };
        check(&[], "opens the dialogue");
        check(&[line("said('a')", "Hi")], "put another before it");
        check(&[line("", "Hi"), line("ok('get')", "x")], "does not see calls");
        check(&[line("", "Hi"), line("said('?')", "x")], "takes words");
        check(&[line("", "Hi"), line("customers.u7.name == 'a'", "x")], "`database`");
        check(&[line("", "Hi"), line("", " ")], "says something");
        assert_eq!(problem(&[line("", "Hi"), line("database.a.b == 1 or said('x')", "x")]), None);
    }
}
