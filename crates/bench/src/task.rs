//! One task: what the agent is told, what lies ready, and how to tell that it is solved.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU64;

use alara_harness::model::Reply;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Error;

/// A task of a suite.
///
/// The order of the fields, and that absent ones are left out, is part of the suite's hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Unique in its suite; `[A-Za-z0-9._-]+`, since files are named after it.
    pub id: String,
    /// What kind of work it is; results are added up by it.
    pub category: String,
    /// How hard it is.
    pub difficulty: Difficulty,
    /// What the agent is told.
    pub instruction: String,
    /// Bash that runs in the work directory before the agent; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub setup: String,
    /// Bash that runs in the work directory after each attempt.
    /// Exit code 0 means solved; what it prints otherwise is the feedback for the next attempt.
    pub verify: String,
    /// Jinxes that the agent gets beside its own, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jinxes: Vec<String>,
    /// Members of the team, each of which must have done a part of the work: the trace tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegates: Vec<String>,
    /// What solves the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gold: Option<Solution>,
    /// What looks like a solution and must not pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrong: Vec<Solution>,
    /// Seconds that all attempts together may take; `None` = the run's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<NonZeroU64>,
}

/// What a model does about a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "bash, or a list of turns, each with a text or calls of a name with arguments")]
pub enum Solution {
    /// It calls the jinx `shell` with this.
    Bash(String),
    /// These are its turns, and those of whom it gives work to, in the order in which they are
    /// taken.
    Turns(Vec<Reply>),
}

impl Solution {
    /// The turns of the model that does it.
    pub fn turns(&self) -> Vec<Reply> {
        match self {
            Solution::Bash(text) => {
                vec![Reply::call("shell", json!({"command": text})), Reply::text("Done.")]
            }
            Solution::Turns(turns) => turns.clone(),
        }
    }

    /// What it consists of, as one text.
    fn text(&self) -> Cow<'_, str> {
        match self {
            Solution::Bash(text) => text.into(),
            // Turns are made of texts and lists, which always become JSON.
            Solution::Turns(turns) => serde_json::to_string(turns).unwrap_or_default().into(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Solution::Bash(text) => text.trim().is_empty(),
            Solution::Turns(turns) => turns.is_empty(),
        }
    }
}

/// How hard a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Difficulty {
    /// One tool call can do it.
    Easy,
    /// A few calls, or one with some thought.
    Medium,
    /// Several results that must fit together, or a program with corner cases.
    Hard,
}

impl fmt::Display for Difficulty {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Difficulty::Easy => "easy",
            Difficulty::Medium => "medium",
            Difficulty::Hard => "hard",
        })
    }
}

impl Task {
    /// Whether a text of the task names an absolute path below `/tmp`, so that it can run only with
    /// a private one.
    pub fn uses_tmp(&self) -> bool {
        let gold = self.gold.as_ref().map(Solution::text).unwrap_or_default();
        [&self.instruction, &self.setup, &self.verify, &*gold].iter().any(|text| text.contains("/tmp/"))
    }

    /// The programs beside bash that the task's own scripts need.
    pub fn programs(&self) -> Vec<&'static str> {
        let names = |text: &str, name: &str| {
            text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
        };
        let gold = self.gold.as_ref().map(Solution::text).unwrap_or_default();
        let scripts = [&self.setup, &self.verify, &*gold];
        ["python3", "git"].into_iter().filter(|name| scripts.iter().any(|text| names(text, name))).collect()
    }

    /// Checks what the types don't say.
    /// `location` gives file and line of a field.
    pub(crate) fn check(&self, location: impl Fn(&'static str) -> String) -> Result<(), Error> {
        let texts = [
            ("id", &self.id),
            ("category", &self.category),
            ("instruction", &self.instruction),
            ("verify", &self.verify),
        ];
        let mut empty: Vec<_> = texts.iter().map(|(field, text)| (*field, text.trim().is_empty())).collect();
        empty.extend(self.gold.iter().map(|gold| ("gold", gold.is_empty())));
        empty.extend(self.wrong.iter().map(|wrong| ("wrong", wrong.is_empty())));
        if let Some((field, _)) = empty.into_iter().find(|(_, empty)| *empty) {
            return Err(Error::EmptyField { location: location(field), field });
        }
        for (field, name) in &texts[..2] {
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) || name.starts_with('.')
            {
                return Err(Error::Value {
                    location: location(field),
                    field,
                    value: (*name).clone(),
                    wanted: "use letters, digits, `.`, `_` and `-`, since files are named after it",
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(instruction: &str, verify: &str) -> Task {
        Task {
            id: "a-1".into(),
            category: "a".into(),
            difficulty: Difficulty::Easy,
            instruction: instruction.into(),
            setup: String::new(),
            verify: verify.into(),
            jinxes: Vec::new(),
            delegates: Vec::new(),
            gold: None,
            wrong: Vec::new(),
            timeout: None,
        }
    }

    #[test]
    fn knows_what_it_needs() {
        let check = |instruction: &str, verify: &str, tmp, programs: &[&str]| {
            let task = task(instruction, verify);
            assert_eq!((task.uses_tmp(), task.programs().as_slice()), (tmp, programs), "{task:?}");
        };
        check("Write x.txt", "test -f x.txt", false, &[]);
        check("Write /tmp/x.txt", "test -f /tmp/x.txt", true, &[]);
        check(
            "Commit it with git",
            "python3 -c 'print(1)' && [ \"$(git log)\" ]",
            false,
            &["python3", "git"],
        );
        check("Look at the digits", "test -f digits.gitignored", false, &[]);
    }

    #[test]
    fn names_are_file_names() {
        for (id, fine) in
            [("shell-01", true), ("A_b.2", true), ("../x", false), (".x", false), ("a b", false)]
        {
            let task = Task { id: id.into(), ..task("x", "y") };
            assert_eq!(task.check(|field| format!("f: {field}")).is_ok(), fine, "{id}");
        }
    }
}
