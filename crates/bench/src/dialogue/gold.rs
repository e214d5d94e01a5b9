//! The result of a dialogue's gold calls, and a dialogue in which an agent makes them.

use std::path::Path;

use alara_harness::Team;
use alara_harness::hidden::UNLOCK;
use alara_harness::model::Reply;
use alara_harness::run::tool::person;
use alara_harness::session::Session;
use alara_harness::trace::Entry;
use serde_json::Value;

use super::calls::{Call, Target, calls, missing};
use super::database::{DATABASE, Databases, USER, difference};
use super::{Action, Dialogue, Line, LineCall, Side};
use crate::policy::cut;

/// Maximum size of a displayed value in bytes.
const VALUE_BYTES: usize = 200;

/// The result of a dialogue's gold calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Gold {
    /// Both databases after the calls.
    pub databases: Databases,
    /// The calls of both sides and their results, in order.
    pub calls: Vec<Call>,
}

/// Makes the gold calls in `work`, which contains the task's initial databases.
///
/// # Errors
/// A call fails, or a database can't be read afterwards: then the task is wrong.
pub fn replay(dialogue: &Dialogue, session: &Session, team: &Team, work: &Path) -> Result<Gold, String> {
    let mut calls = Vec::new();
    // Calls that only unlock another tool don't count as changes to a database.
    let made = dialogue.actions.iter().enumerate().filter(|(_, action)| action.name != UNLOCK);
    for (index, action) in made {
        let Target { name, arguments } = action.target();
        let call =
            Action { name, arguments: arguments.as_object().cloned().unwrap_or_default(), ..action.clone() };
        let result = person(session, team, &[], &call.call(format!("gold_{}", index + 1)))
            .map_err(|error| alara_harness::error::chain(&error))?;
        if !result.ok {
            let why = if result.stderr.is_empty() { &result.error } else { &result.stderr };
            let why = cut(why.trim(), VALUE_BYTES);
            return Err(format!("the gold call {} of `{}` fails: {why}", index + 1, call.name));
        }
        calls.push(Call { what: call.target(), ok: true, made: true, blocked: false, output: result.output });
    }
    let databases = Databases::read(work)?;
    Ok(Gold { databases, calls })
}

impl Gold {
    /// Checks that both databases equal those after gold, and that every required action was made.
    /// Compares normalized arguments of calls; order doesn't matter.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn held_against(
        &self,
        dialogue: &Dialogue,
        after: &Databases,
        entries: &[Entry],
    ) -> Result<(), String> {
        let gold = &self.databases;
        for (file, wanted, found) in
            [(DATABASE, &gold.database, &after.database), (USER, &gold.user, &after.user)]
        {
            if let Some((path, wanted, found)) = difference(wanted, found) {
                let told = |value: &Value| cut(&value.to_string(), VALUE_BYTES).to_owned();
                let place = if path.is_empty() { String::new() } else { format!(" at {path}") };
                return Err(format!("{file} has {} instead of {}{place}", told(&found), told(&wanted)));
            }
        }
        for side in [Side::Agent, Side::User] {
            let made: Vec<Call> = calls(entries, side).into_iter().filter(|call| call.ok).collect();
            let wanted = dialogue.actions.iter().filter(|action| action.required && action.by == side);
            if let Some(action) = missing(wanted, Action::target, made.iter().map(|call| &call.what)).first()
            {
                let Target { name, arguments } = action.target();
                return Err(format!(
                    "{name} was not called with {}",
                    cut(&arguments.to_string(), VALUE_BYTES)
                ));
            }
        }
        Ok(())
    }
}

/// Returns the turns of an agent that makes the gold calls, and a user that makes its own calls in
/// between.
///
/// The agent makes one call per turn, since more may not be permitted, and sends a text when it is
/// the user's turn.
pub fn play(dialogue: &Dialogue) -> (Vec<Reply>, Vec<Line>) {
    let mut turns = Vec::new();
    let mut lines = vec![Line { say: dialogue.user.summary().to_owned(), ..Line::default() }];
    let mut side = Side::Agent;
    for action in &dialogue.actions {
        match action.by {
            Side::Agent => turns.push(Reply::call(&action.name, action.arguments.clone().into())),
            Side::User => {
                if side == Side::Agent {
                    turns.push(Reply::text("It is your turn."));
                    lines.push(Line { say: "Done.".to_owned(), ..Line::default() });
                }
                let call = LineCall { name: action.name.clone(), arguments: action.arguments.clone() };
                if let Some(line) = lines.last_mut() {
                    line.calls.push(call);
                }
            }
        }
        side = action.by;
    }
    turns.push(Reply::text("All is done."));
    lines.push(Line { say: "Thank you.".to_owned(), stop: true, ..Line::default() });
    (turns, lines)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::super::{Keys, User};
    use super::*;

    #[test]
    fn both_sides_play_gold_in_its_order() {
        let action = |name: &str, by| Action { name: name.into(), arguments: Map::new(), required: true, by };
        let (agent, user) = (Side::Agent, Side::User);
        let actions = vec![
            action("a", agent),
            action("u", user),
            action("v", user),
            action("b", agent),
            action("w", user),
        ];
        let first = Line { say: "Hi".into(), ..Line::default() };
        let keys = Keys { actions, ..Keys::default() };
        let (turns, lines) = play(&Dialogue::new(User::Script(vec![first]), keys));
        let told: Vec<String> = turns
            .iter()
            .map(|turn| turn.calls.first().map_or_else(|| turn.text.clone(), |call| call.name.clone()))
            .collect();
        assert_eq!(told, ["a", "It is your turn.", "b", "It is your turn.", "All is done."]);
        let told: Vec<String> = lines
            .iter()
            .map(|line| {
                line.calls.iter().map(|call| format!("{} ", call.name)).collect::<String>() + &line.say
            })
            .collect();
        assert_eq!(told, ["Hi", "u v Done.", "w Done.", "Thank you."]);
        assert!(lines[3].stop);
        assert_eq!(turns[0].calls[0].arguments, json!({}).as_object().unwrap().clone());
    }
}
