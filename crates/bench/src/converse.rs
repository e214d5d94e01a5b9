//! Runs a dialogue, in which a user and an agent take turns.
//!
//! Both are recorded in one trace, each in its own conversation, and see only their own side.
//! The gold calls run beforehand in the same place, so that the result can be compared with theirs.

use std::path::Path;

use alara_engine::{Segment, ToolCall};
use alara_harness::knowledge::{self, Retrieval};
use alara_harness::model::{ModelSource, ModelSpec};
use alara_harness::session::Session;
use alara_harness::tool::person;
use alara_harness::trace::{Entry, Record};
use alara_harness::{Agent, Effect, Error, Npc, Outcome, Sandbox, Team};
use serde_json::{Map, Value};

use crate::Task;
use crate::dialogue::calls::USER;
use crate::dialogue::database::Databases;
use crate::dialogue::gold::{self, Gold};
use crate::dialogue::user::{Heard, Script};
use crate::dialogue::{Dialogue, Line, Measures, Persona, User, measures};
use crate::options::{Player, Solver};
use crate::scripts::{Infrastructure, ScriptOutcome, set_up};
use crate::task_dir::TaskDir;

/// First message to a user played by a model, since an agent waits for the user to begin.
const GREETING: &str = "Hello! How can I help you?";

/// A dialogue before its first turn.
pub struct Talk<'a> {
    dialogue: &'a Dialogue,
    team: &'a Team,
    work: &'a Path,
    gold: Gold,
    /// The user's lines if gold is played.
    lines: Option<Vec<Line>>,
    /// Documents in the prompt, for the retrieval `golden`.
    pub documents: Vec<Segment>,
}

impl<'a> Talk<'a> {
    /// Makes the gold calls in the task's folders, then resets the databases there.
    pub fn prepare(
        dialogue: &'a Dialogue,
        task: &Task,
        solver: &Solver<'a>,
        models: &dyn ModelSource,
        sandbox: &Sandbox,
        dir: &'a TaskDir,
    ) -> Result<Self, Infrastructure> {
        let databases =
            Databases { database: dialogue.database.clone(), user: dialogue.user_database.clone() };
        databases.lay(&dir.work)?;
        let mut session = Session::new(models, sandbox);
        session.knowledge = solver.knowledge.clone();
        let gold = gold::replay(dialogue, &session, solver.team, &dir.work).map_err(Infrastructure)?;
        drop(session);
        dir.clear()?;
        set_up(task, sandbox, dir)?;
        databases.lay(&dir.work)?;
        let lines = matches!(solver.player, Player::Gold).then(|| gold::play(dialogue).1);
        let documents = golden(dialogue, solver)?;
        Ok(Talk { dialogue, team: solver.team, work: &dir.work, gold, lines, documents })
    }

    /// Lets `agent` and the user take turns until one of them is done.
    /// Returns how the agent's last run ended.
    ///
    /// # Errors
    /// A model or the sandbox fails, or the trace can't be written.
    pub fn hold(&self, session: &Session, agent: &mut Agent) -> Result<Outcome, Error> {
        let played;
        let mut user = match (&self.lines, &self.dialogue.user) {
            (Some(lines), _) | (None, User::Script(lines)) => Side::script(lines),
            (None, User::Npc(persona)) => {
                played = play(persona, self.team.npc(Some(&persona.npc))?);
                let agent = Agent::resume(session, self.team, &played, USER, Vec::new())?;
                Side::Model { agent: Box::new(agent), stop: &persona.stop }
            }
        };
        let horizon = self.dialogue.horizon.get();
        let mut answer = None;
        loop {
            let turns = turns(agent);
            let said = match user.next(self, session, answer.as_deref(), turns)? {
                Said::Text(text) => text,
                Said::Last => return Ok(Outcome::Answer { text: answer.unwrap_or_default() }),
                Said::Failed(outcome) => return Ok(outcome),
            };
            if turns >= horizon {
                return Ok(Outcome::TurnLimit { turns });
            }
            agent.limit_turns(horizon - turns);
            answer = match agent.run(&said)? {
                Outcome::Answer { text } => Some(text),
                Outcome::TurnLimit { .. } => return Ok(Outcome::TurnLimit { turns: self::turns(agent) }),
                other => return Ok(other),
            };
        }
    }

    /// Returns whether the result is correct, and its measures.
    pub fn judge(&self, entries: &[Entry]) -> (ScriptOutcome, Measures) {
        let writes = |name: &str| self.team.jinx(name).is_some_and(|jinx| jinx.effect == Effect::Write);
        let read = Databases::read(self.work);
        let after = read.as_ref().cloned().unwrap_or_default();
        let measures = measures::of(entries, self.dialogue, &self.gold, &after, &writes);
        // A database that can't be read is wrong in any case.
        let reward = read.and_then(|after| self.gold.held_against(self.dialogue, &after, entries));
        let measures = Measures { reward: reward.is_ok(), ..measures };
        (reward.map_or_else(ScriptOutcome::Failed, |()| ScriptOutcome::Passed), measures)
    }
}

/// Returns the documents that a dialogue needs, if its agent gets them in the prompt.
fn golden(dialogue: &Dialogue, solver: &Solver) -> Result<Vec<Segment>, Infrastructure> {
    let knowledge = solver.npc.knowledge.as_ref().or(solver.team.knowledge.as_ref());
    let Some(knowledge) = knowledge.filter(|knowledge| knowledge.retrieval == Retrieval::Golden) else {
        return Ok(Vec::new());
    };
    let documents = knowledge::documents(&knowledge.folder, &mut Vec::new())?;
    let texts = knowledge::golden(&documents, &dialogue.documents)?;
    Ok(texts.into_iter().map(|text| Segment { name: "document".to_owned(), text }).collect())
}

/// Returns the number of turns of the agent's model.
fn turns(agent: &Agent) -> usize {
    agent.records().filter(|record| matches!(record, Record::Assistant { .. })).count()
}

/// Returns an NPC that plays this persona.
fn play(persona: &Persona, npc: &Npc) -> Npc {
    let directive = format!("{}\n\n{}", npc.directive.trim(), persona.scenario());
    Npc { directive, model: ModelSpec::named(USER), ..npc.clone() }
}

/// A user during a dialogue.
enum Side<'a, 's> {
    Script { script: Script<'a>, calls: usize },
    Model { agent: Box<Agent<'a, 's>>, stop: &'a str },
}

/// A user's turn.
enum Said {
    Text(String),
    /// No more text that needs an answer.
    Last,
    /// The user's model failed.
    Failed(Outcome),
}

impl<'a> Side<'a, '_> {
    fn script(lines: &'a [Line]) -> Self {
        Side::Script { script: Script::new(lines), calls: 0 }
    }

    /// Returns the user's reply to the agent's `answer`; `None` begins the dialogue.
    fn next(
        &mut self,
        talk: &Talk,
        session: &Session,
        answer: Option<&str>,
        turns: usize,
    ) -> Result<Said, Error> {
        match self {
            Side::Script { script, calls } => {
                let heard = Heard { text: answer.unwrap_or_default(), turns, databases: seen(talk.work) };
                let Some(line) = script.next(&heard) else { return Ok(Said::Last) };
                for call in &line.calls {
                    *calls += 1;
                    let (id, arguments) = (format!("user_{calls}"), call.arguments.clone());
                    person(session, talk.team, &[], &ToolCall { id, name: call.name.clone(), arguments })?;
                }
                Ok(if line.stop { Said::Last } else { Said::Text(line.say.clone()) })
            }
            Side::Model { agent, stop } => Ok(match agent.run(answer.unwrap_or(GREETING))? {
                Outcome::Answer { text } if text.contains(*stop) => Said::Last,
                Outcome::Answer { text } => Said::Text(text),
                Outcome::Cancelled => Said::Failed(Outcome::Cancelled),
                Outcome::Deadline => Said::Failed(Outcome::Deadline),
                other => Said::Failed(Outcome::Failed {
                    error: format!("the user said nothing: {}", other.reason()),
                }),
            }),
        }
    }
}

/// Returns the databases by their names in conditions.
/// Omits a database that an agent has broken.
fn seen(work: &Path) -> Map<String, Value> {
    let Databases { database, user } = Databases::read(work).unwrap_or_default();
    let pairs = [("database", database), ("user_database", user)];
    pairs
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
#[path = "converse_tests.rs"]
mod tests;
