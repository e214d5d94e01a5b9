//! A task: the instruction, the initial state, and the check for a solution.

use std::borrow::Cow;
use std::fmt;
use std::num::{NonZeroU64, NonZeroUsize};

use alara_harness::model::Reply;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Error;
use crate::dialogue::{Action, Dialogue, Keys, User};

/// A task of a suite.
///
/// The order of the fields, and the omission of absent ones, affect the suite's hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "File")]
pub struct Task {
    /// Unique in its suite; `[A-Za-z0-9._-]+`, since it is used in file names.
    pub id: String,
    /// The kind of work, by which results are grouped.
    pub category: String,
    /// The difficulty.
    pub difficulty: Difficulty,
    /// The message to the agent; empty for a dialogue.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instruction: String,
    /// Bash that runs in the work directory before the agent; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub setup: String,
    /// Bash that runs in the work directory after each attempt.
    /// Exit code 0 means solved; otherwise the output is the feedback for the next attempt.
    /// Empty for a dialogue.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verify: String,
    /// Additional jinxes for the agent, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jinxes: Vec<String>,
    /// Members of the team that must each have done a part of the work, according to the trace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delegates: Vec<String>,
    /// The reference solution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gold: Option<Solution>,
    /// Wrong solutions that must not pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wrong: Vec<Solution>,
    /// Time limit in seconds for all attempts together; `None` for the run's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<NonZeroU64>,
    /// The dialogue, if the task is one.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub dialogue: Option<Box<Dialogue>>,
}

/// The keys of a task's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    id: String,
    category: String,
    difficulty: Difficulty,
    instruction: Option<String>,
    #[serde(default)]
    setup: String,
    verify: Option<String>,
    #[serde(default)]
    jinxes: Vec<String>,
    #[serde(default)]
    delegates: Vec<String>,
    gold: Option<Solution>,
    #[serde(default)]
    wrong: Vec<Solution>,
    timeout: Option<NonZeroU64>,
    user: Option<User>,
    #[serde(default)]
    database: Value,
    #[serde(default)]
    user_database: Value,
    #[serde(default)]
    actions: Vec<Action>,
    #[serde(default)]
    documents: Vec<String>,
    horizon: Option<NonZeroUsize>,
}

impl File {
    /// Returns a key that belongs to the other kind of task.
    fn foreign(&self) -> Option<&'static str> {
        let dialogue = [
            ("database", !self.database.is_null()),
            ("user_database", !self.user_database.is_null()),
            ("actions", !self.actions.is_empty()),
            ("documents", !self.documents.is_empty()),
            ("horizon", self.horizon.is_some()),
        ];
        let plain = [
            ("instruction", self.instruction.is_some()),
            ("setup", !self.setup.is_empty()),
            ("verify", self.verify.is_some()),
            ("delegates", !self.delegates.is_empty()),
            ("gold", self.gold.is_some()),
            ("wrong", !self.wrong.is_empty()),
        ];
        let keys = if self.user.is_some() { plain.as_slice() } else { &dialogue };
        keys.iter().find(|(_, there)| *there).map(|(key, _)| *key)
    }
}

impl TryFrom<File> for Task {
    type Error = String;

    fn try_from(file: File) -> Result<Self, String> {
        let foreign = file.foreign();
        let File { id, category, difficulty, setup, jinxes, delegates, gold, wrong, timeout, .. } = file;
        let File { database, user_database, actions, documents, horizon, .. } = file;
        let (instruction, verify, dialogue) = match file.user {
            Some(user) => {
                if let Some(key) = foreign {
                    return Err(format!(
                        "a task with `user` is a dialogue and has no `{key}`: what is wanted of it is told by `actions`"
                    ));
                }
                let keys = Keys { database, user_database, actions, documents, horizon };
                (String::new(), String::new(), Some(Box::new(Dialogue::new(user, keys))))
            }
            None => {
                if let Some(key) = foreign {
                    return Err(format!("`{key}` belongs to a dialogue, and there is no `user`"));
                }
                let missing = "a task has `instruction` and `verify`, or it is a dialogue and has `user`";
                let instruction = file.instruction.ok_or(format!("missing key `instruction`: {missing}"))?;
                let verify = file.verify.ok_or(format!("missing key `verify`: {missing}"))?;
                (instruction, verify, None)
            }
        };
        Ok(Task {
            id,
            category,
            difficulty,
            instruction,
            setup,
            verify,
            jinxes,
            delegates,
            gold,
            wrong,
            timeout,
            dialogue,
        })
    }
}

/// A model's solution of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "bash, or a list of turns, each with a text or calls of a name with arguments")]
pub enum Solution {
    /// A call of the jinx `shell` with this code.
    Bash(String),
    /// The turns of the model, and of NPCs that it delegates to, in order.
    Turns(Vec<Reply>),
}

impl Solution {
    /// Returns the turns of a model that does this.
    pub fn turns(&self) -> Vec<Reply> {
        match self {
            Solution::Bash(text) => {
                vec![Reply::call("shell", json!({"command": text})), Reply::text("Done.")]
            }
            Solution::Turns(turns) => turns.clone(),
        }
    }

    /// Returns its contents as one text.
    fn text(&self) -> Cow<'_, str> {
        match self {
            Solution::Bash(text) => text.into(),
            // Turns consist of strings and lists, whose conversion to JSON can't fail.
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

/// The difficulty of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Difficulty {
    /// One tool call is enough.
    Easy,
    /// A few calls, or one that needs some thought.
    Medium,
    /// Several results that must be consistent, or a program with corner cases.
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
    /// Summarizes the task in one line: its instruction, or the beginning of its dialogue.
    pub fn summary(&self) -> &str {
        let text = self.dialogue.as_ref().map_or(&*self.instruction, |dialogue| dialogue.user.summary());
        text.trim().lines().next().unwrap_or_default()
    }

    /// Whether a text of the task contains an absolute path below `/tmp`, so that it requires a
    /// private one.
    pub fn uses_tmp(&self) -> bool {
        let gold = self.gold.as_ref().map(Solution::text).unwrap_or_default();
        [&self.instruction, &self.setup, &self.verify, &*gold].iter().any(|text| text.contains("/tmp/"))
    }

    /// Returns the programs other than bash that the task's own scripts need.
    pub fn programs(&self) -> Vec<&'static str> {
        let names = |text: &str, name: &str| {
            text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
        };
        let gold = self.gold.as_ref().map(Solution::text).unwrap_or_default();
        let scripts = [&self.setup, &self.verify, &*gold];
        // A dialogue's tools are programs of its team, most of them in Python.
        let tools = self.dialogue.as_ref().map(|_| "python3");
        let needs = |name: &&str| tools == Some(*name) || scripts.iter().any(|text| names(text, name));
        ["python3", "git"].into_iter().filter(needs).collect()
    }

    /// Checks everything that the types don't exclude, up to the first problem.
    /// `location` returns file and line of a field.
    pub(crate) fn check(&self, location: impl Fn(&'static str) -> String) -> Result<(), Error> {
        self.problems(location).into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns problems that the types don't exclude.
    pub(crate) fn problems(&self, location: impl Fn(&'static str) -> String) -> Vec<Error> {
        let texts = [
            ("id", &self.id),
            ("category", &self.category),
            ("instruction", &self.instruction),
            ("verify", &self.verify),
        ];
        let texts = if self.dialogue.is_some() { &texts[..2] } else { &texts };
        let mut empty: Vec<_> = texts.iter().map(|(field, text)| (*field, text.trim().is_empty())).collect();
        empty.extend(self.gold.iter().map(|gold| ("gold", gold.is_empty())));
        empty.extend(self.wrong.iter().map(|wrong| ("wrong", wrong.is_empty())));
        let empty = empty.into_iter().filter(|(_, empty)| *empty);
        let mut problems: Vec<Error> =
            empty.map(|(field, _)| Error::EmptyField { location: location(field), field }).collect();
        for (field, name) in &texts[..2] {
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) || name.starts_with('.')
            {
                problems.push(Error::Value {
                    location: location(field),
                    field,
                    value: (*name).clone(),
                    wanted: "use letters, digits, `.`, `_` and `-`, since files are named after it",
                });
            }
        }
        if let Some((field, value, wanted)) = self.dialogue.as_ref().and_then(|dialogue| dialogue.problem()) {
            problems.push(Error::Value { location: location(field), field, value, wanted });
        }
        problems
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
            dialogue: None,
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
