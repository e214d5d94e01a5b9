//! The steps of a jinx in their one, typed form: what files are read into, what is checked, printed
//! and run.
//!
//! This module only says what a step is.
//! Conditions and iterated values are minijinja *expressions* (`total > 3`); values (`with`, `set`,
//! `emit`, `return`, prompts) are *templates*: JSON whose texts may contain `{{ expression }}`.
//! A text that is one `{{ expression }}` and nothing else becomes the expression's value with its
//! type, any other becomes text.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::types::Location;

/// Steps that run one after the other in one scope.
pub type Steps = Vec<Step>;

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// What later steps call its result; empty if nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it does.
    #[serde(flatten)]
    pub action: Action,
    /// How often and after what pauses it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// For how long its result may be used again for the same inputs.
    /// `None` = not at all.
    /// Never for what writes.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds")]
    pub cache: Option<Duration>,
    /// Wall-clock limit.
    /// `None` = the jinx's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// Where it stands in its file: line and column from 1.
    /// Not part of the compiled form.
    #[serde(skip)]
    pub location: Location,
}

/// How long a step may take.
#[derive(Clone, Debug, PartialEq)]
pub enum Timeout {
    /// So long.
    Fixed(Duration),
    /// As many seconds as this expression says when the step begins.
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

/// What a step does.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// A bash script.
    /// Scope values are environment variables; `{{ x }}` stands for a quoted variable, never for
    /// text.
    Bash {
        /// The script.
        code: String,
        /// Whether it goes on when the step is over, as a job of the session: an expression.
        #[serde(skip_serializing_if = "Option::is_none")]
        background: Option<String>,
    },
    /// A Python program.
    /// Scope values are in `context`; `{{ x }}` stands for a variable, never for text.
    /// The result is the variable `output` or what is printed.
    Python {
        /// The program.
        code: String,
    },
    /// A text, rendered.
    Text {
        /// Its template.
        text: Value,
    },
    /// A model answers, with or without tools.
    Llm(Llm),
    /// Something is done about the jobs of the session.
    Jobs {
        /// `list`, `read` or `end`: a template.
        jobs: Value,
        /// The number of the job: a template.
        /// `None`, or null = the latest.
        #[serde(skip_serializing_if = "Option::is_none")]
        job: Option<Value>,
    },
    /// Documents are searched.
    Search(Search),
    /// Another jinx runs in a scope of its own.
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
        /// What is done if it holds.
        then: Steps,
        /// What is done otherwise.
        #[serde(rename = "else", skip_serializing_if = "Vec::is_empty")]
        otherwise: Steps,
    },
    /// The same steps for each item, each in a scope of its own.
    For {
        /// The name of the item.
        #[serde(rename = "for")]
        variable: String,
        /// The items: an expression.
        #[serde(rename = "in")]
        items: String,
        /// Whether iterations may run side by side; only for steps that write nothing.
        parallel: bool,
        /// Leaves the loop after the iteration in which it holds: an expression.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<String>,
        /// The steps.
        steps: Steps,
    },
    /// Steps whose failure is caught.
    Try {
        /// What is tried.
        #[serde(rename = "try")]
        steps: Steps,
        /// What is done if it fails; `error` is in scope.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        catch: Steps,
        /// What is done in any case.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        finally: Steps,
    },
    /// Sets variables: paths such as `total`, `order.note` or `store.plan` (the team's store, if
    /// the NPC may write it).
    Set {
        /// Templates by path, evaluated in order.
        set: Map<String, Value>,
    },
    /// Gives a response to whoever watches: `{type, id?, content}`.
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
    /// What it is asked: a template.
    pub prompt: Value,
    /// Who answers: a template of an NPC's name or of a sub-team's.
    /// `None` = the caller.
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
    /// What is looked for: a template.
    pub query: Value,
    /// Most results: a template.
    /// `None`, or null = as the caller's knowledge says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<Value>,
    /// A folder of the work directory, or a list of documents: a template.
    /// `None` = the caller's knowledge.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub within: Option<Value>,
    /// Whether documents are found as they are, and not passages of them.
    pub whole: bool,
    /// The least share of the words that a text must have to be found by them, from 0 to 1.
    pub least: f64,
}

/// Which tools a model may call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tools {
    /// None.
    #[default]
    None,
    /// All that the NPC lists.
    All,
    /// Those of these that the NPC lists.
    Some(Vec<String>),
}

impl Tools {
    /// Whether one of the NPC's is among them.
    pub fn permits(&self, name: &str) -> bool {
        match self {
            Tools::None => false,
            Tools::All => true,
            Tools::Some(names) => names.iter().any(|other| other == name),
        }
    }
}

/// How a step that failed is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Retry {
    /// Most further attempts.
    pub max: u32,
    /// The pause before the first of them, in seconds; each further pause is twice as long.
    pub backoff: f64,
}

fn seconds<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}
