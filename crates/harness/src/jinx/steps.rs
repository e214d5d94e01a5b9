//! Runs the steps of a jinx. Values reach scripts as environment variables or JSON on stdin, never as program text.

use std::time::{Duration, Instant};

use alara_engine::{Event, Finish, Message, Request};
use minijinja::{Environment, UndefinedBehavior};
use serde_json::{Map, Value, json};

use super::{Engine, Jinx, Step, ToolResult};
use crate::error::Error;
use crate::sandbox::{ARGUMENT_BYTES, Output, Script};
use crate::tool::Place;

/// Most bytes of a step's stdout and of its stderr that are kept for the trace.
const KEPT_BYTES: usize = 1 << 20;
const PYTHON: &str = include_str!("python.py");

/// Runs a jinx with complete arguments. The result is the last step's, or the first one's that fails.
///
/// # Errors
/// The sandbox or the model failed.
pub fn run(jinx: &Jinx, arguments: Map<String, Value>, place: &Place) -> Result<ToolResult, Error> {
    let mut context = arguments;
    let mut result = ToolResult::succeeded("");
    for step in &jinx.steps {
        let left = place.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(jinx.timeout, |left| left.min(jinx.timeout));
        result = match step.engine {
            Engine::Bash => bash(jinx, step, &context, timeout, place)?,
            Engine::Python => python(jinx, step, &context, timeout, place)?,
            Engine::Llm => llm(step, &context, place)?,
        };
        if !result.ok {
            break;
        }
        context.insert(step.name.clone(), Value::from(result.output.clone()));
    }
    Ok(result)
}

fn bash(
    jinx: &Jinx,
    step: &Step,
    context: &Map<String, Value>,
    timeout: Duration,
    place: &Place,
) -> Result<ToolResult, Error> {
    let mut env = Vec::new();
    for (name, value) in context {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        if value.contains('\0') {
            return Ok(ToolResult::failed(format!("`{name}` contains a NUL character")));
        }
        if value.len() + name.len() > ARGUMENT_BYTES {
            let size = value.len();
            return Ok(ToolResult::failed(format!(
                "`{name}` is too long: {size} bytes, at most {ARGUMENT_BYTES} fit"
            )));
        }
        env.push((name.clone(), value));
    }
    let script = Script {
        program: &["bash", "-c", &step.code],
        env: &env,
        stdin: None,
        timeout,
        network: jinx.network,
        output_limit: KEPT_BYTES,
    };
    Ok(result(&place.sandbox.run(&script)?, timeout))
}

fn python(
    jinx: &Jinx,
    step: &Step,
    context: &Map<String, Value>,
    timeout: Duration,
    place: &Place,
) -> Result<ToolResult, Error> {
    let stdin = json!({"code": step.code, "name": step.name, "context": context}).to_string();
    let script = Script {
        program: &["python3", "-c", PYTHON],
        env: &[("PYTHONIOENCODING".to_owned(), "utf-8".to_owned())],
        stdin: Some(stdin.as_bytes()),
        timeout,
        network: jinx.network,
        output_limit: KEPT_BYTES,
    };
    Ok(result(&place.sandbox.run(&script)?, timeout))
}

fn llm(step: &Step, context: &Map<String, Value>, place: &Place) -> Result<ToolResult, Error> {
    let Some(model) = place.model else {
        return Ok(ToolResult::failed(format!("step `{}` needs a model, and there is none", step.name)));
    };
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    minijinja_contrib::add_to_environment(&mut environment);
    let prompt = match environment.render_named_str(&step.name, &step.code, minijinja::value::Serde(context))
    {
        Ok(prompt) => prompt,
        Err(error) => return Ok(ToolResult::failed(format!("the prompt can't be rendered: {error}"))),
    };
    let messages = vec![Message::user(prompt)];
    let request = Request { messages, schema: step.schema.clone(), ..Request::default() };
    let mut answer = String::new();
    for event in model.chat(request).map_err(Error::Model)? {
        match event.map_err(Error::Model)? {
            Event::Text { text } => answer += &text,
            Event::Done { finish, .. } if step.schema.is_some() && finish != Finish::Stop => {
                let error = format!(
                    "step `{}`: the answer was cut off, so it is not what the schema asks for",
                    step.name
                );
                return Ok(ToolResult { output: answer, ..ToolResult::failed(error) });
            }
            _ => {}
        }
        let late = place.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if late || place.sandbox.cancel_flag().load(std::sync::atomic::Ordering::Relaxed) {
            let error = if late { "the time is up" } else { "cancelled" };
            return Ok(ToolResult { output: answer, ..ToolResult::failed(error) });
        }
    }
    Ok(ToolResult::succeeded(answer.trim()))
}

fn result(output: &Output, timeout: Duration) -> ToolResult {
    let text = |bytes| String::from_utf8_lossy(bytes).trim_end_matches(['\n', '\r']).to_owned();
    let ok = output.exit == Some(0);
    let mut error: String = text(&output.stderr);
    let happened = match output.exit {
        _ if output.timed_out => Some(format!("timed out after {} s", timeout.as_secs_f64())),
        _ if output.cancelled => Some("cancelled".to_owned()),
        Some(code) if !ok && error.is_empty() => Some(format!("exit status {code}")),
        _ => None,
    };
    if let Some(happened) = happened {
        error = if error.is_empty() { happened } else { format!("{error}\n{happened}") };
    }
    ToolResult {
        ok,
        output: text(&output.stdout),
        error,
        exit: output.exit,
        dropped_bytes: output.stdout_dropped + output.stderr_dropped,
    }
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
