//! What happens after a failed attempt: how the next one begins, and how many there are.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use alara_harness::trace::{Entry, Record};
use serde::{Deserialize, Serialize};

/// Maximum size, in bytes, of the verification's output, and of one tool's result, in later
/// attempts.
pub const FEEDBACK_BYTES: usize = 2000;
/// Maximum size, in bytes, of one result, and of all earlier calls together, in the message of
/// [`Retry::Paper`].
const RESULT_BYTES: usize = 500;
const HISTORY_BYTES: usize = 8000;

/// How another attempt begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Retry {
    /// The conversation continues with the verification's output; all files stay.
    #[default]
    Feedback,
    /// A new conversation with the task's initial state: nothing remains of the previous attempt.
    Fresh,
    /// As in the published study: the same conversation, with the files reset.
    /// Repeats the instruction, with all earlier calls and their results.
    /// The agent doesn't see the verification's output.
    Paper,
}

impl Retry {
    /// All names.
    pub const NAMES: [&str; 3] = ["feedback", "fresh", "paper"];

    /// Returns the agent's next message, after a verification that printed `output`.
    /// `entries` has the events so far.
    pub fn message(self, instruction: &str, output: &str, entries: &[Entry]) -> String {
        match self {
            Retry::Feedback => feedback(output),
            Retry::Fresh => instruction.to_owned(),
            Retry::Paper => {
                let history = history(entries);
                format!(
                    "{instruction}\n\nSo far, without success:\n{history}\nTake another way. Don't search the web for this."
                )
            }
        }
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(Retry::NAMES[*self as usize])
    }
}

impl FromStr for Retry {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Retry::Feedback, Retry::Fresh, Retry::Paper];
        let found = all.into_iter().find(|retry| Retry::NAMES[*retry as usize] == name);
        found.ok_or_else(|| format!("`{name}` is no way to retry: it is {}", Retry::NAMES.join(", ")))
    }
}

/// How often to try a task, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// How another attempt begins.
    pub retry: Retry,
    /// Maximum number of attempts.
    pub attempts: NonZeroU32,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let ending = if self.attempts.get() == 1 { "" } else { "s" };
        write!(f, "{}, {} attempt{ending}", self.retry, self.attempts)
    }
}

/// The rule of a run, and those for single categories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// The rule for all other categories.
    #[serde(flatten)]
    pub rule: Rule,
    /// Rules by category.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<String, Rule>,
}

impl RetryPolicy {
    /// Creates a policy with one rule for all categories.
    pub fn all(retry: Retry, attempts: NonZeroU32) -> Self {
        RetryPolicy { rule: Rule { retry, attempts }, categories: BTreeMap::new() }
    }

    /// Returns the rule of a category.
    pub fn of(&self, category: &str) -> Rule {
        self.categories.get(category).copied().unwrap_or(self.rule)
    }

    /// Returns the largest number of attempts in any category.
    pub fn most(&self) -> NonZeroU32 {
        self.categories.values().map(|rule| rule.attempts).fold(self.rule.attempts, NonZeroU32::max)
    }
}

impl fmt::Display for RetryPolicy {
    /// Formats it as `feedback, 5 attempts; git: fresh, 2 attempts`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.rule)?;
        self.categories.iter().try_for_each(|(name, rule)| write!(f, "; {name}: {rule}"))
    }
}

/// A category's own rule, where it differs from the run's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleOverride {
    /// How another attempt begins.
    pub retry: Option<Retry>,
    /// Maximum number of attempts.
    pub attempts: Option<NonZeroU32>,
}

impl RuleOverride {
    /// Applies the override to `rule`.
    pub fn to(self, rule: Rule) -> Rule {
        Rule { retry: self.retry.unwrap_or(rule.retry), attempts: self.attempts.unwrap_or(rule.attempts) }
    }
}

impl FromStr for RuleOverride {
    type Err = String;

    /// Parses `RETRY`, `RETRY:ATTEMPTS` or `:ATTEMPTS`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (retry, attempts) = text.split_once(':').map_or((text, None), |(retry, n)| (retry, Some(n)));
        let retry = (!retry.is_empty()).then(|| retry.parse()).transpose()?;
        let number = |n: &str| n.parse().map_err(|_| format!("`{n}` is no number of attempts: from 1 up"));
        Ok(RuleOverride { retry, attempts: attempts.map(number).transpose()? })
    }
}

/// Returns the message that continues a conversation after a failed check that printed `output`.
pub fn feedback(output: &str) -> String {
    match cut(output.trim(), FEEDBACK_BYTES).trim_end() {
        "" => "The check failed.\nTry again.".to_owned(),
        output => format!("The check failed: {output}\nTry again."),
    }
}

/// Formats the agent's own calls and their results, one per line; omits the oldest if that is too
/// long.
fn history(entries: &[Entry]) -> String {
    let mut lines = Vec::new();
    let mut length = 0;
    for entry in entries.iter().rev().filter(|entry| entry.scope.is_empty()) {
        let Record::ToolResult { call, text, .. } = &*entry.record else { continue };
        let arguments = serde_json::Value::Object(call.arguments.clone()).to_string();
        let line = format!(
            "- {} {}: {}\n",
            call.name,
            cut(&arguments, RESULT_BYTES),
            cut(text.trim(), RESULT_BYTES).replace('\n', " / ")
        );
        length += line.len();
        if length > HISTORY_BYTES {
            break;
        }
        lines.push(line);
    }
    lines.reverse();
    lines.concat()
}

/// Returns the longest prefix of `text` with at most `limit` bytes that doesn't split a character.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feedback_has_its_fixed_form() {
        let check = |output: &str, expected: &str| assert_eq!(feedback(output), expected);
        check("", "The check failed.\nTry again.");
        check(" \n", "The check failed.\nTry again.");
        check("There is no file a.\n", "The check failed: There is no file a.\nTry again.");
        check(&"é".repeat(1500), &format!("The check failed: {}\nTry again.", "é".repeat(1000)));
        check(
            &format!("x{}", "é".repeat(1500)),
            &format!("The check failed: x{}\nTry again.", "é".repeat(999)),
        );
    }

    #[test]
    fn rules_of_categories_as_people_write_them() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let rule = Rule { retry: Retry::Feedback, attempts: NonZeroU32::MIN.saturating_add(4) };
            match (text.parse::<RuleOverride>(), expected) {
                (Ok(found), Ok(expected)) => {
                    let rule = found.to(rule);
                    assert_eq!(format!("{} {}", rule.retry, rule.attempts), expected);
                }
                (Err(error), Err(words)) => assert!(error.contains(words), "{error}"),
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
        };
        check("fresh", Ok("fresh 5"));
        check("paper:2", Ok("paper 2"));
        check(":1", Ok("feedback 1"));
        check("again", Err("`again` is no way to retry: it is feedback, fresh, paper"));
        check("fresh:0", Err("`0` is no number of attempts"));
    }
}
