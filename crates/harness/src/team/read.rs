//! From the text of a jinx file to a [`Jinx`].

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::jinx::{Action, Effect, Jinx, Llm, Place, Step, read_inputs};
use crate::source::{Diagnostic, Source};
use crate::yaml::Node;

#[derive(Deserialize)]
struct RawJinx {
    #[serde(alias = "name")]
    jinx_name: Option<String>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    inputs: Value,
    #[serde(default)]
    effect: Effect,
    #[serde(default)]
    network: bool,
    timeout: Option<f64>,
    steps: Vec<RawStep>,
}

/// Who runs a step.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    Bash,
    Python,
    #[serde(alias = "natural")]
    Llm,
}

#[derive(Deserialize)]
struct RawStep {
    name: Option<String>,
    engine: Engine,
    #[serde(alias = "prompt")]
    code: String,
    schema: Option<Value>,
}

/// Reads one jinx; `None` if it can't be used, with an error.
pub fn jinx(source: &Source, diagnostics: &mut Vec<Diagnostic>) -> Option<Jinx> {
    let node = Node::parse(source, diagnostics).map_err(|error| diagnostics.push(error)).ok()?;
    let jinx = typed(source, &node);
    jinx.map_err(|message| diagnostics.push(source.error(Place::default(), message))).ok()
}

fn typed(source: &Source, node: &Node) -> Result<Jinx, String> {
    let raw: RawJinx = serde_json::from_value(node.value()).map_err(|error| error.to_string())?;
    let name = raw.jinx_name.unwrap_or_else(|| source.stem());
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        let message = format!("the name `{name}` is not made of letters, digits, `_` and `-`");
        return Err(message);
    }
    if raw.steps.is_empty() {
        return Err(format!("the jinx `{name}` has no steps"));
    }
    let timeout = match raw.timeout.map(Duration::try_from_secs_f64) {
        None => Duration::from_secs(60),
        Some(Ok(timeout)) if !timeout.is_zero() => timeout,
        Some(_) => {
            return Err("a timeout is a number of seconds above 0".to_owned());
        }
    };
    let inputs = read_inputs(raw.inputs)?;
    let scripted = |step: &RawStep| step.engine != Engine::Llm && step.schema.is_some();
    if let Some(at) = raw.steps.iter().position(scripted) {
        let message =
            format!("step {} has a schema, but only an llm step's answer can be held to one", at + 1);
        return Err(message);
    }
    let step = |(index, raw): (usize, RawStep)| Step {
        name: raw.name.unwrap_or_else(|| format!("step_{}", index + 1)),
        action: match raw.engine {
            Engine::Bash => Action::Bash { code: raw.code },
            Engine::Python => Action::Python { code: raw.code },
            Engine::Llm => {
                Action::Llm(Llm { prompt: Value::from(raw.code), schema: raw.schema, ..Llm::default() })
            }
        },
        retry: None,
        cache: None,
        timeout: None,
        place: Place::default(),
    };
    Ok(Jinx {
        name,
        description: raw.description.trim().to_owned(),
        inputs,
        effect: raw.effect,
        network: raw.network,
        timeout,
        steps: raw.steps.into_iter().enumerate().map(step).collect(),
        path: source.path.clone(),
        ..Jinx::default()
    })
}
