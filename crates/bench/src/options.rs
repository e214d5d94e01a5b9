//! Who works on the tasks of a run, under which rules, and what is reported meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use alara_engine::Sampling;
use alara_harness::calls::Calls;
use alara_harness::knowledge::IndexCache;
use alara_harness::model::{ChatModel, Reply};
use alara_harness::sandbox::Isolation;
use alara_harness::team::{Npc, Team};

use crate::Task;
use crate::dialogue::gold;
use crate::policy::RetryPolicy;
use crate::record::{Finished, Named};
use crate::task::Solution;

/// Who works on the tasks: an agent.
pub struct Solver<'a> {
    /// Its team.
    pub team: &'a Team,
    /// Its role in the team.
    pub npc: &'a Npc,
    /// Who takes the model's turns.
    pub player: Player<'a>,
    /// The model of users who are NPCs; `None` = the model under test.
    pub user: Option<&'a dyn ChatModel>,
    /// The model that makes vectors of documents, if there is one.
    pub embedder: Option<&'a dyn ChatModel>,
    /// The documents that have been searched, shared by all threads.
    pub knowledge: Arc<IndexCache>,
    /// What the model is called, and its file's hash.
    pub named: Named,
    /// How tokens are sampled; the seed is replaced by each attempt's own.
    pub sampling: Sampling,
    /// Whether a model that can reason does so; `None` = as it is used to.
    pub thinking: Option<bool>,
    /// Whether each turn is a call; `None` = what the NPC's file says.
    pub calls: Option<Calls>,
}

/// Who takes the turns of a model.
#[derive(Clone, Copy)]
pub enum Player<'a> {
    /// A model, shared by all threads.
    Model(&'a dyn ChatModel),
    /// A script of the tasks' own gold solutions, which [`crate::runner::require_gold`] looks for:
    /// a test of the suite.
    Gold,
    /// A script that does nothing and says that all is done: no task may take that for a solution.
    Junk,
}

impl<'a> Player<'a> {
    /// The model, if it is one.
    pub fn model(self) -> Option<&'a dyn ChatModel> {
        match self {
            Player::Model(model) => Some(model),
            Player::Gold | Player::Junk => None,
        }
    }

    /// Its turns at a task, if it is a script.
    pub fn turns(self, task: &Task) -> Vec<Reply> {
        match (self, &task.dialogue) {
            (Player::Model(_), _) => Vec::new(),
            (Player::Gold, Some(dialogue)) => gold::play(dialogue).0,
            (Player::Gold, None) => task.gold.as_ref().map(Solution::turns).unwrap_or_default(),
            (Player::Junk, dialogue) => {
                let turns = dialogue.as_ref().map_or(1, |dialogue| dialogue.horizon.get());
                vec![Reply::text("All is done."); turns]
            }
        }
    }
}

/// What happens during a run, for display.
#[derive(Debug)]
pub enum Progress<'a> {
    /// An attempt begins; the first has the number 1.
    Attempt {
        /// At this task.
        task: &'a Task,
        /// The number.
        number: u32,
    },
    /// A task has come to its end.
    Finished(&'a Finished),
}

/// The rules of a run.
pub struct Options<'a> {
    /// How often a task is tried, and how.
    pub policy: RetryPolicy,
    /// Wall-clock time of a task with all its attempts, unless it has its own.
    /// Verifications run even after it.
    pub timeout: Duration,
    /// From which the seeds of the attempts are derived.
    pub seed: u64,
    /// What the temperature is raised to from the second attempt on: the most likely mistake would
    /// only be repeated.
    pub retry_temperature: f32,
    /// How many tasks run at a time, at least 1.
    pub parallel: usize,
    /// How the tasks' programs are isolated.
    pub isolation: Isolation,
    /// What [`crate::runner::programs`] found: a task that needs another can't run.
    pub programs: BTreeMap<String, String>,
    /// Ends the run soon; tasks under way have no result then.
    pub cancel: Arc<AtomicBool>,
    /// Is told what happens.
    pub observer: &'a (dyn Fn(Progress) + Sync),
}
