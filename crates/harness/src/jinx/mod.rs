//! A jinx: a tool described in a text file, with typed inputs and steps in bash, Python or plain words.

mod inputs;
mod result;
mod steps;

use std::time::Duration;

use alara_engine::Tool;
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub(crate) use inputs::read as read_inputs;
pub use inputs::{Input, Kind};
pub use result::ToolResult;
pub use steps::run;

/// A tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Jinx {
    /// The name, `[A-Za-z0-9_-]+`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// Its arguments, in the order of the file.
    pub inputs: Vec<Input>,
    /// What it does to the world.
    pub effect: Effect,
    /// Whether its steps need the network. Default false.
    pub network: bool,
    /// Wall-clock limit for each step. Default 60 s.
    pub timeout: Duration,
    /// What it does, one after the other; the last one's result is the jinx's.
    pub steps: Vec<Step>,
}

/// What a jinx does to the world outside the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It only computes.
    None,
    /// It only looks.
    Read,
    /// It may change something.
    #[default]
    Write,
}

/// One step of a jinx.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What later steps call its result.
    pub name: String,
    /// Who runs it.
    pub engine: Engine,
    /// The script, or for `llm` the template of the prompt.
    pub code: String,
    /// For `llm`, a JSON schema: the answer is JSON that is valid for it. Default: the answer is any text.
    pub schema: Option<Value>,
}

/// Who runs a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Bash; inputs and earlier results are environment variables.
    Bash,
    /// Python; inputs and earlier results are in the dictionary `context`, the result is `output` or what is printed.
    Python,
    /// The NPC's model, without tools; the prompt is a minijinja template over the same context.
    #[serde(alias = "natural")]
    Llm,
}

impl Jinx {
    /// The tool as a model sees it. Byte-stable: a model may be trained on exactly this.
    pub fn tool(&self) -> Tool {
        let properties: Map<String, Value> =
            self.inputs.iter().map(|input| (input.name.clone(), input.schema())).collect();
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
        }
    }

    /// The complete arguments of a call: checked, with defaults filled in, in the order of the inputs.
    ///
    /// # Errors
    /// What is wrong, for the caller: an unknown or missing argument, or one of the wrong type.
    pub fn arguments(&self, given: &Map<String, Value>) -> Result<Map<String, Value>, String> {
        let names = || self.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
        if let Some(unknown) = given.keys().find(|name| self.inputs.iter().all(|input| &input.name != *name))
        {
            return Err(format!("`{}` has no argument `{unknown}`; it takes: {}", self.name, names()));
        }
        let mut arguments = Map::new();
        for input in &self.inputs {
            let value = match (given.get(&input.name), &input.default) {
                (Some(value), _) => {
                    input.check(value)?;
                    value.clone()
                }
                (None, Some(default)) => default.clone(),
                (None, None) => return Err(format!("argument `{}` is missing", input.name)),
            };
            arguments.insert(input.name.clone(), value);
        }
        Ok(arguments)
    }
}
