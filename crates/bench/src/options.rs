//! Options of a run: who works on the tasks, under which rules, and who receives the progress.

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

/// The agent that works on the tasks.
pub struct Solver<'a> {
    /// The team.
    pub team: &'a Team,
    /// The NPC in the team.
    pub npc: &'a Npc,
    /// The source of the model's turns.
    pub player: Player<'a>,
    /// The model of users played by NPCs; `None` for the model under test.
    pub user: Option<&'a dyn ChatModel>,
    /// The embedding model for documents, if there is one.
    pub embedder: Option<&'a dyn ChatModel>,
    /// Indexes of documents that were searched, shared by all threads.
    pub knowledge: Arc<IndexCache>,
    /// The model's name, and the hash of its file.
    pub named: Named,
    /// Sampling parameters; each attempt replaces the seed.
    pub sampling: Sampling,
    /// Whether a reasoning model reasons; `None` for its default.
    pub thinking: Option<bool>,
    /// Whether each turn is a call; `None` for the setting in the NPC's file.
    pub calls: Option<Calls>,
}

/// The source of a model's turns.
#[derive(Clone, Copy)]
pub enum Player<'a> {
    /// A model, shared by all threads.
    Model(&'a dyn ChatModel),
    /// A script of the tasks' own gold solutions, checked by [`crate::runner::require_gold`]: a
    /// test of the suite.
    Gold,
    /// A script that does nothing and claims success: no task may accept that as a solution.
    Junk,
}

impl<'a> Player<'a> {
    /// Returns the model, if it is one.
    pub fn model(self) -> Option<&'a dyn ChatModel> {
        match self {
            Player::Model(model) => Some(model),
            Player::Gold | Player::Junk => None,
        }
    }

    /// Returns its turns for a task, if it is a script.
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

/// Progress of a run, for display.
#[derive(Debug)]
pub enum Progress<'a> {
    /// An attempt begins; the first one has the number 1.
    Attempt {
        /// The task.
        task: &'a Task,
        /// The number.
        number: u32,
    },
    /// A task has finished.
    Finished(&'a Finished),
}

/// The rules of a run.
pub struct Options<'a> {
    /// How often to try a task, and how.
    pub policy: RetryPolicy,
    /// Time limit of a task for all its attempts, unless it has its own.
    /// Verifications run even after it.
    pub timeout: Duration,
    /// Seed from which the attempts' seeds are derived.
    pub seed: u64,
    /// Minimum temperature from the second attempt on: the most likely mistake would only be
    /// repeated.
    pub retry_temperature: f32,
    /// Number of parallel tasks, at least 1.
    pub parallel: usize,
    /// How the tasks' programs are isolated.
    pub isolation: Isolation,
    /// Result of [`crate::runner::programs`]: a task that needs another program can't run.
    pub programs: BTreeMap<String, String>,
    /// Ends the run soon; unfinished tasks then have no result.
    pub cancel: Arc<AtomicBool>,
    /// Receives the progress.
    pub observer: &'a (dyn Fn(Progress) + Sync),
}
