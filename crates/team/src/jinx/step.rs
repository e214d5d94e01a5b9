//! The steps of a jinx in their typed form, which files are parsed into, and which is checked,
//! printed and run.
//!
//! This module only defines what a step is.
//! Conditions and loop items are minijinja *expressions* (`total > 3`); values (`with`, `set`,
//! `emit`, `return`, prompts) are *templates*: JSON whose texts may contain `{{ expression }}`.
//! A text that is one `{{ expression }}` and nothing else becomes the expression's value with its
//! type; any other becomes text.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::types::Location;

/// Steps that run in order in one scope.
pub type Steps = Vec<Step>;

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The name of its result for later steps; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its action.
    #[serde(flatten)]
    pub action: Action,
    /// How it is retried after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long its result may be reused for the same inputs.
    /// `None` disables that.
    /// Steps that write are never cached.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds")]
    pub cache: Option<Duration>,
    /// Wall-clock limit.
    /// `None` uses the jinx's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// Its location in the file: line and column from 1.
    /// Not part of the compiled form.
    #[serde(skip)]
    pub location: Location,
}

/// How long a step may take.
#[derive(Clone, Debug, PartialEq)]
pub enum Timeout {
    /// A fixed time.
    Fixed(Duration),
    /// As many seconds as this expression gives when the step begins.
    Given(String),
}

impl Serialize for Timeout {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Timeout::Fixed(duration) => serializer.serialize_f64(duration.as_secs_f64()),
            Timeout::Given(expression) => serializer.serialize_str(&format!("{{{{ {expression} }}}}")),
        }
    }
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// A bash script.
    /// Scope values are environment variables; `{{ x }}` becomes a quoted variable, never text.
    Bash {
        /// The script.
        code: String,
        /// Whether it continues after the step, as a job of the session: an expression.
        #[serde(skip_serializing_if = "Option::is_none")]
        background: Option<String>,
    },
    /// A Python program.
    /// Scope values are in `context`; `{{ x }}` becomes a variable, never text.
    /// The result is the variable `output`, or the printed text.
    Python {
        /// The program.
        code: String,
    },
    /// A rendered text.
    Text {
        /// Its template.
        text: Value,
    },
    /// An answer of a model, with or without tools.
    Llm(Llm),
    /// An action on the jobs of the session.
    Jobs {
        /// `list`, `read` or `end`: a template.
        jobs: Value,
        /// The number of the job: a template.
        /// `None` or null for the latest.
        #[serde(skip_serializing_if = "Option::is_none")]
        job: Option<Value>,
    },
    /// A search of documents.
    Search(Search),
    /// A call of another jinx, in its own scope.
    Call {
        /// Its name.
        jinx: String,
        /// Its arguments: templates.
        #[serde(skip_serializing_if = "Map::is_empty")]
        with: Map<String, Value>,
    },
    /// A choice.
    When {
        /// The condition: an expression.
        when: String,
        /// The steps if it is true.
        then: Steps,
        /// The steps otherwise.
        #[serde(rename = "else", skip_serializing_if = "Vec::is_empty")]
        otherwise: Steps,
    },
    /// The same steps for each item, each in its own scope.
    For {
        /// The name of the item.
        #[serde(rename = "for")]
        variable: String,
        /// The items: an expression.
        #[serde(rename = "in")]
        items: String,
        /// Whether iterations may run in parallel; only for steps that write nothing.
        parallel: bool,
        /// Leaves the loop after the iteration in which this is true: an expression.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<String>,
        /// The steps.
        steps: Steps,
    },
    /// Steps whose failure is caught.
    Try {
        /// The steps to try.
        #[serde(rename = "try")]
        steps: Steps,
        /// The steps after a failure; `error` is in scope.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        catch: Steps,
        /// The steps that always run.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        finally: Steps,
    },
    /// Sets variables: paths such as `total`, `order.note` or `store.plan` (the team's store, if
    /// the NPC may write it).
    Set {
        /// Templates by path, evaluated in order.
        set: Map<String, Value>,
    },
    /// Sends a response to the observer: `{type, id?, content}`.
    /// The same `id` updates a response, a null content removes it.
    Emit {
        /// A template.
        emit: Value,
    },
    /// Ends the jinx with a result.
    Return {
        /// A template.
        #[serde(rename = "return")]
        value: Value,
    },
}

/// A model's turn, or a whole run with tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Llm {
    /// The prompt: a template.
    pub prompt: Value,
    /// The NPC that answers: a template of the name of an NPC or a sub-team.
    /// `None` for the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub npc: Option<Value>,
    /// Whether the NPC's directive and the team's context are its system prompt.
    /// Default: only if `npc` or `tools` are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<bool>,
    /// Which tools it may call; never more than the NPC's own list.
    pub tools: Tools,
    /// A JSON schema: the answer is JSON that is valid for it, and the result is that value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// A search of documents.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Search {
    /// The query: a template.
    pub query: Value,
    /// Most results: a template.
    /// `None` or null uses the setting of the caller's knowledge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<Value>,
    /// A folder of the work directory, or a list of documents: a template.
    /// `None` for the caller's knowledge.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub within: Option<Value>,
    /// Whether to return whole documents instead of passages.
    pub whole: bool,
    /// The least share of the query's words that a matching text must contain, from 0 to 1.
    pub least: f64,
}

/// Which tools a model may call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tools {
    /// None.
    #[default]
    None,
    /// All tools on the NPC's list.
    All,
    /// Those of these tools that are on the NPC's list.
    Some(Vec<String>),
}

impl Tools {
    /// Whether a tool of the NPC is included.
    pub fn permits(&self, name: &str) -> bool {
        match self {
            Tools::None => false,
            Tools::All => true,
            Tools::Some(names) => names.iter().any(|other| other == name),
        }
    }
}

/// How a failed step is retried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Retry {
    /// Most retries.
    pub max: u32,
    /// The pause before the first retry, in seconds; each further pause is twice as long.
    pub backoff: f64,
}

fn seconds<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}
