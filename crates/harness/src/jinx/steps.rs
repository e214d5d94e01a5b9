//! Runs the steps of a jinx. Values reach scripts as environment variables or JSON on stdin, never as program text.

use std::time::{Duration, Instant};

use minijinja::{Environment, UndefinedBehavior};
use serde_json::{Map, Value, json};

use super::{Action, Jinx, Llm, ToolResult};
use crate::agent;
use crate::error::Error;
use crate::sandbox::{ARGUMENT_BYTES, Output, Sandbox, Script};
use crate::session::Caller;

/// Most bytes of a step's stdout and of its stderr that are kept for the trace.
const KEPT_BYTES: usize = 1 << 20;
const PYTHON: &str = include_str!("python.py");

/// Runs a jinx with complete arguments. The result is the last step's, or the first one's that fails.
///
/// # Errors
/// The sandbox or the model failed.
pub fn run(jinx: &Jinx, arguments: Map<String, Value>, caller: &Caller) -> Result<ToolResult, Error> {
    let mut context = arguments;
    let mut result = ToolResult::succeeded("");
    for step in &jinx.steps {
        let left = caller.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(jinx.timeout, |left| left.min(jinx.timeout));
        let sandbox = caller.session.sandbox;
        result = match &step.action {
            Action::Bash { code } => bash(jinx, code, &context, timeout, sandbox)?,
            Action::Python { code } => python(jinx, code, &step.name, &context, timeout, sandbox)?,
            Action::Llm(llm) => ask(llm, &step.name, &context, caller)?,
            _ => ToolResult::failed("this step can't be run yet"),
        };
        if !result.ok {
            break;
        }
        context.insert(step.name.clone(), result.output.clone());
    }
    result.last = jinx.last && result.ok;
    Ok(result)
}

fn bash(
    jinx: &Jinx,
    code: &str,
    context: &Map<String, Value>,
    timeout: Duration,
    sandbox: &Sandbox,
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
        program: &["bash", "-c", code],
        env: &env,
        stdin: None,
        timeout,
        network: jinx.network,
        output_limit: KEPT_BYTES,
    };
    Ok(result(&sandbox.run(&script)?, timeout))
}

fn python(
    jinx: &Jinx,
    code: &str,
    name: &str,
    context: &Map<String, Value>,
    timeout: Duration,
    sandbox: &Sandbox,
) -> Result<ToolResult, Error> {
    let stdin = json!({"code": code, "name": name, "context": context}).to_string();
    let script = Script {
        program: &["python3", "-c", PYTHON],
        env: &[("PYTHONIOENCODING".to_owned(), "utf-8".to_owned())],
        stdin: Some(stdin.as_bytes()),
        timeout,
        network: jinx.network,
        output_limit: KEPT_BYTES,
    };
    Ok(result(&sandbox.run(&script)?, timeout))
}

fn ask(llm: &Llm, name: &str, context: &Map<String, Value>, caller: &Caller) -> Result<ToolResult, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    minijinja_contrib::add_to_environment(&mut environment);
    let prompt = llm.prompt.as_str().unwrap_or_default();
    let prompt = match environment.render_named_str(name, prompt, minijinja::value::Serde(context)) {
        Ok(prompt) => prompt,
        Err(error) => return Ok(ToolResult::failed(format!("the prompt can't be rendered: {error}"))),
    };
    agent::answer(caller, llm, None, &prompt, name)
}

fn result(output: &Output, timeout: Duration) -> ToolResult {
    let text = |bytes| String::from_utf8_lossy(bytes).trim_end_matches(['\n', '\r']).to_owned();
    let ok = output.exit == Some(0);
    let error = match output.exit {
        _ if output.timed_out => format!("timed out after {} s", timeout.as_secs_f64()),
        _ if output.cancelled => "cancelled".to_owned(),
        Some(code) if !ok => format!("exit status {code}"),
        _ => String::new(),
    };
    ToolResult {
        ok,
        output: text(&output.stdout).into(),
        error,
        stderr: text(&output.stderr),
        exit: output.exit,
        dropped_bytes: output.stdout_dropped + output.stderr_dropped,
        last: false,
    }
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
