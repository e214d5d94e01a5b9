//! Dialogues: their definition in a task's file, and their evaluation from trace and gold.
//!
//! An agent talks with a user and works on a database, consisting of two files in the work
//! directory.
//! The user is a list of lines with conditions, or an NPC.
//! Gold is a list of calls, which in a fresh folder produce the expected database.
//!
//! This module doesn't run dialogues; `converse` does.

pub mod calls;
pub mod database;
pub mod gold;
pub mod measures;
pub mod setting;
pub mod user;

use std::num::NonZeroUsize;

use alara_engine::ToolCall;
use alara_harness::phases::Condition;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub use measures::Measures;
pub use setting::Setting;

/// Default text by which a user ends the dialogue.
const STOP: &str = "###STOP###";
/// Default maximum number of the agent's turns.
const HORIZON: NonZeroUsize = NonZeroUsize::MIN.saturating_add(29);

/// A dialogue of an agent with a user.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dialogue {
    /// The user.
    pub user: User,
    /// Initial contents of `database.json`; null if there is none.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub database: Value,
    /// Initial contents of `user.json`, the user's own database.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub user_database: Value,
    /// The gold calls, in order.
    pub actions: Vec<Action>,
    /// Ids of the documents that must be found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub documents: Vec<String>,
    /// Maximum number of turns of the agent's model.
    pub horizon: NonZeroUsize,
    /// The tool whose success verifies the customer; `None` if customers aren't verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<String>,
}

/// The keys of a task's file that define its dialogue, in addition to `user`.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Merge patch for the suite's database (RFC 7396).
    pub database: Value,
    /// Merge patch for the user's own database.
    pub user_database: Value,
    /// The gold calls.
    pub actions: Vec<Action>,
    /// The documents that must be found.
    pub documents: Vec<String>,
    /// Maximum number of turns of the agent.
    pub horizon: Option<NonZeroUsize>,
}

impl Dialogue {
    /// Creates a dialogue with this user, in a suite without a shared setting.
    pub fn new(user: User, keys: Keys) -> Self {
        let Keys { database, user_database, actions, documents, horizon } = keys;
        let horizon = horizon.unwrap_or(HORIZON);
        Dialogue { user, database, user_database, actions, documents, horizon, verification: None }
    }

    /// Returns an error in the dialogue: key, value, and the expected value.
    pub fn problem(&self) -> Option<(&'static str, String, &'static str)> {
        let call = self.actions.iter().find(|action| action.name.trim().is_empty());
        if call.is_some() {
            return Some(("actions", String::new(), "each call has the `name` of a tool"));
        }
        let problem = match &self.user {
            User::Script(lines) => user::problem(lines),
            User::Npc(persona) => persona.problem(),
        };
        problem.map(|(value, wanted)| ("user", value, wanted))
    }
}

/// The user.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum User {
    /// A script of lines.
    Script(Vec<Line>),
    /// A model.
    Npc(Persona),
}

impl User {
    /// Returns the user's first line, or goal.
    pub fn summary(&self) -> &str {
        match self {
            User::Script(lines) => lines.first().map_or("", |line| &line.say),
            User::Npc(persona) => &persona.goal,
        }
    }
}

impl<'de> Deserialize<'de> for User {
    /// A list is a script and a mapping a persona, so that errors refer to the intended form.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = User;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a list of lines, each with `say`, or a mapping with `npc` and `goal`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, lines: A) -> Result<User, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(lines)).map(User::Script)
            }

            fn visit_map<A: MapAccess<'de>>(self, persona: A) -> Result<User, A::Error> {
                Persona::deserialize(MapAccessDeserializer::new(persona)).map(User::Npc)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A line of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The condition; `None` if the line applies when no other one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
    /// The text.
    pub say: String,
    /// Calls that the user makes before the line, with tools of the team.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<LineCall>,
    /// Whether the line ends the dialogue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop: bool,
    /// Whether the line may be repeated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeat: bool,
}

/// A call that a user makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineCall {
    /// The tool.
    pub name: String,
    /// The arguments.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
}

/// A user played by a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Persona {
    /// The NPC in the team.
    pub npc: String,
    /// The user's identity: knowledge, way of speaking.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub persona: String,
    /// The goal.
    pub goal: String,
    /// The text that ends the dialogue.
    #[serde(default = "stop")]
    pub stop: String,
}

fn stop() -> String {
    STOP.to_owned()
}

impl Persona {
    /// Returns the text after the NPC's directive.
    pub fn scenario(&self) -> String {
        let persona = match self.persona.trim() {
            "" => String::new(),
            persona => format!("Who you are: {persona}\n"),
        };
        let (goal, stop) = (self.goal.trim(), &self.stop);
        format!(
            "<scenario>\n{persona}What you want: {goal}\nWhen that is done, or can't be, say {stop}\n</scenario>"
        )
    }

    fn problem(&self) -> Option<(String, &'static str)> {
        if self.stop.trim().is_empty() {
            return Some((self.stop.clone(), "its `stop` is a word that it says when it is done"));
        }
        let empty = self.npc.trim().is_empty() || self.goal.trim().is_empty();
        empty.then(|| (self.npc.clone(), "it has an `npc` of the team and a `goal`"))
    }
}

/// A gold call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// The tool.
    pub name: String,
    /// The arguments.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
    /// Whether the action is required, whatever the final database.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub required: bool,
    /// The side that makes it.
    #[serde(default, skip_serializing_if = "Side::is_agent")]
    pub by: Side,
}

fn yes() -> bool {
    true
}

impl Action {
    /// Returns it as a call with this id.
    pub fn call(&self, id: String) -> ToolCall {
        ToolCall { id, name: self.name.clone(), arguments: self.arguments.clone() }
    }
}

/// A participant in a dialogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The agent, and NPCs that it delegates to.
    #[default]
    Agent,
    /// The user.
    User,
}

impl Side {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_agent(&self) -> bool {
        *self == Side::Agent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<User, String> {
        let source = alara_harness::source::Source::new("t.yaml".into(), text.to_owned());
        alara_harness::yaml::read(&source).map_err(|wrong| wrong.plain())
    }

    #[test]
    fn a_user_is_a_script_or_a_persona() {
        let script = read("- say: Hi\n- {when: \"said('birth')\", say: '1980', stop: true}\n").unwrap();
        let User::Script(lines) = script else { panic!("{script:?}") };
        assert_eq!((lines.len(), lines[1].stop, lines[1].repeat), (2, true, false));
        assert_eq!(lines[1].when.as_ref().unwrap().to_string(), "said('birth')");
        let User::Npc(persona) = read("{npc: customer, goal: A new card}").unwrap() else { panic!() };
        assert_eq!((persona.npc.as_str(), persona.stop.as_str()), ("customer", "###STOP###"));
        assert!(persona.scenario().contains("What you want: A new card\n"));
    }

    #[test]
    fn mistakes_of_users_have_a_place() {
        let check = |text: &str, words: &[&str]| {
            let error = read(text).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        };
        check("- say: Hi\n- {say: x, halt: true}\n", &["t.yaml:2", "halt"]);
        check("- say: Hi\n- {say: x, when: \"said(\"}\n", &["t.yaml:2", "`said` takes words in quotes"]);
        check("{npc: customer, goals: x}", &["t.yaml:1", "goals"]);
        check("Hi", &["a list of lines"]);
    }
}
