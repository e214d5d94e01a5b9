//! A jinx: a tool described in a text file, with typed inputs and steps in bash, Python or plain
//! text.

pub mod check;
mod inputs;
pub mod python;
mod read;
pub mod step;
pub mod template;
pub mod test;

use std::path::PathBuf;
use std::time::Duration;

use alara_text::request::Tool;
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use check::{Known, check};
pub use inputs::{Choices, Input, Kind, Offer};
pub use python::Missing;
pub use read::read;
pub(crate) use read::read_in_part;
pub use step::{Action, Llm, Retry, Search, Step, Steps, Timeout, Tools};

use crate::types::{Effect, Verdict};

/// A tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Jinx {
    /// The name, `[A-Za-z0-9_-]+`.
    pub name: String,
    /// The path of its file below the folder of jinxes, without the extension: an alternative name
    /// (`lib/core/shell`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// Its description for the model.
    pub description: String,
    /// Its inputs, in the order of the file.
    pub inputs: Vec<Input>,
    /// Its effect on the world.
    /// Default: none if its steps only compute, otherwise write.
    pub effect: Effect,
    /// Whether its steps need the network.
    /// Default false.
    pub network: bool,
    /// The names of the environment variables of alara that its programs get: keys, for example.
    /// Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Wall-clock limit for each step.
    /// Default 60 s.
    #[serde(serialize_with = "seconds")]
    pub timeout: Duration,
    /// When it counts as a success: an expression over its arguments and its result `out`.
    /// `None` if it succeeds when no step fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ok: Option<String>,
    /// The error if that is false: a text over its arguments and `out`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether a success ends the agent's run, with the output as its answer.
    /// Default false.
    #[serde(rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// Whether no prompt names it: a model calls it after unlocking it (see
    /// [`hidden`](crate::hidden)).
    /// Default false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Whether it may run unless a rule decides otherwise.
    /// `None` means yes: it is on the NPC's list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission: Option<Verdict>,
    /// The texts that it serves, if it is a skill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<Skill>,
    /// The MCP server's tool that it represents; it has no steps then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
    /// Its steps, in order; the result of the last one is the jinx's.
    pub steps: Steps,
    /// Its tests, see `alara check --tests`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<test::Test>,
    /// Its file.
    #[serde(skip)]
    pub path: PathBuf,
    /// Whether it is built in or the user's own, and so may use what it declares without a
    /// confirmation.
    /// Default false.
    #[serde(skip)]
    pub trusted: bool,
    /// Its missing needs: if there are any, it can't run, and no NPC lists it.
    #[serde(skip)]
    pub missing: Vec<Missing>,
}

/// The tool of a server that a jinx represents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remote {
    /// The key of the server's start, to which a person has agreed.
    pub server: String,
    /// The server's name for the tool.
    pub tool: String,
    /// The schema of its arguments, which is that of an object.
    pub parameters: Value,
}

/// The contents of a skill: text by section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skill {
    /// The text before the first section; may be empty.
    pub introduction: String,
    /// Title and text of each section, in the order of the file.
    pub sections: Vec<(String, String)>,
    /// Other files in its folder, relative to it: scripts, references.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

impl Skill {
    /// Its whole text.
    pub fn text(&self) -> String {
        let sections = self.sections.iter().map(|(title, text)| format!("## {title}\n\n{}", text.trim()));
        let parts = std::iter::once(self.introduction.trim().to_owned()).chain(sections);
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
    }
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

impl Jinx {
    /// The tool as a model sees it, for a caller with this `offer`.
    /// Byte-stable: a model may be trained on exactly this.
    pub fn tool(&self, offer: &Offer) -> Tool {
        if let Some(remote) = &self.remote {
            let parameters = remote.parameters.clone();
            return Tool {
                name: self.name.clone(),
                description: self.description.clone(),
                parameters,
                strict: false,
            };
        }
        let properties: Map<String, Value> =
            self.inputs.iter().map(|input| (input.name.clone(), input.schema(offer))).collect();
        let required: Vec<&str> = self
            .inputs
            .iter()
            .filter(|input| input.default.is_none())
            .map(|input| input.name.as_str())
            .collect();
        Tool {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            }),
            strict: false,
        }
    }

    /// The complete arguments of a call by a caller with this `offer`: checked, with defaults
    /// filled in, in the order of the inputs.
    ///
    /// # Errors
    /// An argument is unknown, missing or of the wrong type; the message is for the caller.
    pub fn arguments(&self, given: &Map<String, Value>, offer: &Offer) -> Result<Map<String, Value>, String> {
        let names = || self.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
        // An external tool may take more, and fills in its defaults itself.
        let remote = self.remote.as_ref();
        let closed = remote.is_none_or(|remote| {
            let parameters = &remote.parameters;
            parameters["additionalProperties"] == false && parameters.get("patternProperties").is_none()
        });
        let unknown = given.keys().find(|name| self.inputs.iter().all(|input| &input.name != *name));
        if let Some(unknown) = unknown.filter(|_| closed) {
            return Err(format!("`{}` has no argument `{unknown}`; it takes: {}", self.name, names()));
        }
        let mut arguments = Map::new();
        for input in &self.inputs {
            let value = match (given.get(&input.name), &input.default) {
                (Some(value), _) => {
                    input.check(value, offer)?;
                    input.settled(value)
                }
                (None, Some(_)) if remote.is_some() => continue,
                (None, Some(default)) => input.settled(default),
                (None, None) => return Err(format!("argument `{}` is missing", input.name)),
            };
            arguments.insert(input.name.clone(), value);
        }
        let more = given.iter().filter(|(name, _)| self.inputs.iter().all(|input| input.name != **name));
        arguments.extend(more.map(|(name, value)| (name.clone(), value.clone())));
        Ok(arguments)
    }
}
