//! The list of tasks: made by a call, and so bound by a schema; worked off by calls.

use alara_text::grammar::violation;
use alara_text::request::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Condition;
use super::order::{Order, order};
use crate::types::ToolResult;

/// The tool that makes the list.
pub const PLAN: &str = "plan_tasks";
/// Its argument.
const TASKS: &str = "tasks";
/// Most tasks, and most characters of each.
const MOST_TASKS: usize = 20;
const TASK_LENGTH: usize = 200;

/// A list of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// The phase in which it is made, by a call of [`PLAN`].
    pub from: String,
    /// Tasks with the words of the first come before those with the words of the second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<(String, String)>,
    /// When the first remaining task is done: a condition over the last call alone.
    pub done: Condition,
}

impl Queue {
    /// The tool that makes the list, as the model sees it.
    pub fn tool(&self) -> Tool {
        Tool {
            name: PLAN.to_owned(),
            description: "Write down all that is to be done, one task each. It replaces what was left to do"
                .into(),
            parameters: json!({
                "type": "object",
                "properties": {TASKS: {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1, "maxLength": TASK_LENGTH},
                    "minItems": 1,
                    "maxItems": MOST_TASKS,
                    "description": "What is to be done, each in one short sentence",
                }},
                "required": [TASKS],
                "additionalProperties": false,
            }),
            strict: true,
        }
    }

    /// The result of a call of the tool: the tasks in order.
    pub fn plan(&self, arguments: &Map<String, Value>) -> ToolResult {
        if let Some(violation) = violation(&self.tool().parameters, arguments) {
            return ToolResult::failed(format!(
                "the arguments don't fit the schema of `{PLAN}`: {violation}"
            ));
        }
        let Order { tasks, cycle } = self.order(arguments);
        if tasks.is_empty() {
            return ToolResult::failed("no task says anything");
        }
        let mut result = ToolResult::succeeded(json!({TASKS: tasks}));
        if !cycle.is_empty() {
            let cycle = cycle.join("`, `");
            result.add_note(&format!(
                "`{cycle}` would each have to come before another: all stay as you gave them"
            ));
        }
        result
    }

    /// The tasks of a call of the tool.
    pub(super) fn order(&self, arguments: &Map<String, Value>) -> Order {
        let tasks = arguments.get(TASKS).and_then(Value::as_array).into_iter().flatten();
        let tasks: Vec<String> = tasks.filter_map(Value::as_str).map(str::to_owned).collect();
        order(&tasks, &self.before)
    }
}
