//! Steps that are programs.
//! Values reach them as environment variables or JSON on stdin, never as program text.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::flow::Execution;
use crate::error::Error;
use crate::jinx::Jinx;
use crate::jinx::python::MODULES;
use crate::jinx::template::{Code, Language, Scope, code};
use crate::run::guarded::{self, Guardian, Ran, call_line};
use crate::run::jobs::Jobs;
use crate::run::session::Caller;
use crate::sandbox::{ARGUMENT_BYTES, Output, Script};
use crate::types::ToolResult;

/// Most bytes of a program's stdout, and of its stderr, that later steps get.
const PASSED_BYTES: usize = 64 << 20;
/// Most bytes of a value that a bash program gets without mentioning it: the programs that it runs
/// may use it.
const UNASKED_BYTES: usize = 4096;
/// Most bytes of all the values of a bash program; Linux permits about twice as much for arguments
/// and environment together.
const ENVIRONMENT_BYTES: usize = 1 << 20;
const PYTHON: &str = include_str!("python.py");
/// How many leftover processes are listed individually.
const LEFT: usize = 5;
/// The module that Python programs import as `alara`.
const MODULE: &str = include_str!("alara.py");

/// Variables with a meaning for bash, the linker or Python.
const TAKEN: [&str; 15] = [
    "CDPATH",
    "ENV",
    "GLOBIGNORE",
    "HOME",
    "IFS",
    "LANG",
    "OPTIND",
    "PATH",
    "POSIXLY_CORRECT",
    "PROMPT_COMMAND",
    "PS4",
    "PWD",
    "SHELLOPTS",
    "TMPDIR",
    "_",
];

/// A program with all its inputs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Program {
    text: String,
    /// Python gets its values on stdin, bash in its environment.
    python: bool,
    env: Vec<(String, String)>,
    stdin: Option<String>,
    network: bool,
    /// Whether it gets the user's keys.
    keys: bool,
    /// Whether it continues after the step.
    pub(super) background: bool,
}

/// The first line of a Python step's output, which describes the rest.
#[derive(Deserialize)]
struct Header {
    json: bool,
    stop: bool,
}

impl Program {
    /// The program of a step named `name`.
    pub(super) fn new(
        language: Language,
        text: &str,
        name: &str,
        jinx: &Jinx,
        scope: &Scope,
    ) -> Result<Self, String> {
        let program = code(language, text, scope)?;
        let mut env: Vec<(String, String)> =
            jinx.env.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect();
        let (network, keys) = (jinx.network, !env.is_empty());
        if language == Language::Bash {
            env.extend(variables(&program, scope)?);
            return Ok(Program {
                text: program.text,
                python: false,
                env,
                stdin: None,
                network,
                keys,
                background: false,
            });
        }
        env.push(("PYTHONIOENCODING".to_owned(), "utf-8".to_owned()));
        let mut context = match scope.value("ctx") {
            Some(Value::Object(values)) => values,
            _ => serde_json::Map::new(),
        };
        context.extend(scope.all());
        let Code { text: code, values } = program;
        let stdin =
            json!({"code": code, "name": name, "context": context, "values": values, "modules": MODULES, "module": MODULE,
                "rights": network || keys})
                .to_string();
        let text = PYTHON.to_owned();
        Ok(Program { text, python: true, env, stdin: Some(stdin), network, keys, background: false })
    }

    /// Runs the program.
    /// A program that fails is not an error.
    pub(super) fn run(
        &self,
        timeout: Duration,
        run: &Execution,
        caller: &Caller,
    ) -> Result<ToolResult, Error> {
        let program = if self.python { ["python3", "-c", &self.text] } else { ["bash", "-c", &self.text] };
        let script = Script {
            program: &program,
            env: &self.env,
            stdin: self.stdin.as_deref().map(str::as_bytes),
            timeout,
            network: self.network,
            keys: self.keys,
            output_limit: PASSED_BYTES,
        };
        if self.background {
            let (jinx, scope) = (run.jinx, &run.scope);
            let guardian = Guardian::of(jinx, scope, caller);
            return Jobs::start(&script, call_line(jinx, scope), guardian, guarded::reads(jinx), caller);
        }
        let Ran { output, undone, note } = guarded::run(&script, run.jinx, &run.scope, caller)?;
        let mut result = match output {
            Some(output) if self.python => python_result(output, timeout),
            Some(output) => result(&output, timeout),
            None => ToolResult::default(),
        };
        result.add_note(&note);
        Ok(match undone {
            Some(error) => ToolResult { ok: false, error, exit: None, last: false, ..result },
            None => result,
        })
    }
}

/// The environment of a bash program: the values of its placeholders, and the names of the scope.
fn variables(program: &Code, scope: &Scope) -> Result<Vec<(String, String)>, String> {
    let asked = |name: &str| mentions(&program.text, name);
    let placeholders = program.values.iter().enumerate();
    let mut all: Vec<(String, Value)> =
        placeholders.map(|(index, value)| (format!("__v{}", index + 1), value.clone())).collect();
    let bound = scope.bound();
    let known = scope.all().into_iter().filter(|(name, _)| !bound.contains_key(name) && asked(name));
    all.extend(known.chain(bound.clone()).filter(|(name, _)| is_variable(name)));
    let mut env = Vec::new();
    let mut total = 0;
    for (name, value) in all {
        let value = match value {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let problem = if value.contains('\0') {
            Some(format!("`{name}` contains a NUL character"))
        } else if value.len() + name.len() > ARGUMENT_BYTES {
            Some(format!(
                "`{name}` is too long: {} bytes, at most {ARGUMENT_BYTES} fit into a variable; a python step takes more",
                value.len()
            ))
        } else if total + value.len() > ENVIRONMENT_BYTES {
            Some(format!(
                "the values of the step are too long: at most {ENVIRONMENT_BYTES} bytes fit into variables; a python step takes more"
            ))
        } else {
            None
        };
        match problem {
            Some(problem) if asked(&name) => return Err(problem),
            None if asked(&name) || value.len() <= UNASKED_BYTES => {
                total += value.len();
                env.push((name, value));
            }
            _ => {}
        }
    }
    if program.text.len() > ARGUMENT_BYTES {
        return Err(format!(
            "the program is too long: {} bytes, at most {ARGUMENT_BYTES} fit",
            program.text.len()
        ));
    }
    Ok(env)
}

/// Whether a text contains a name as a word.
fn mentions(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(part)
            && !text[at + name.len()..].chars().next().is_some_and(part)
    })
}

fn is_variable(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !TAKEN.contains(&name)
        && !["BASH", "LD_", "PYTHON"].iter().any(|prefix| name.starts_with(prefix))
}

fn result(output: &Output, timeout: Duration) -> ToolResult {
    let text = |bytes| String::from_utf8_lossy(bytes).trim_end_matches(['\n', '\r']).to_owned();
    let ok = output.exit == Some(0) && output.killed.is_none();
    let error = match (&output.killed, output.exit) {
        (Some(reason), _) => reason.clone(),
        _ if output.timed_out => {
            format!("timed out after {} s", (timeout.as_secs_f64() * 100.0).round() / 100.0)
        }
        _ if output.cancelled => "cancelled".to_owned(),
        (None, Some(code)) if !ok => format!("exit status {code}"),
        _ => String::new(),
    };
    ToolResult {
        ok,
        output: text(&output.stdout).into(),
        error,
        stderr: text(&output.stderr),
        exit: output.exit,
        dropped_bytes: output.stdout_dropped + output.stderr_dropped,
        note: left(&output.left),
        ..ToolResult::default()
    }
}

/// The note about processes that were killed because the program that started them had ended.
fn left(commands: &[String]) -> String {
    if commands.is_empty() {
        return String::new();
    }
    let told = commands.iter().take(LEFT).map(|command| format!("`{command}`"));
    let more = commands.len().checked_sub(LEFT + 1).map(|more| format!("{} more", more + 1));
    let told = told.chain(more).collect::<Vec<_>>().join(", ");
    format!("this still ran when the command was over, and was ended with it: {told}")
}

fn python_result(mut output: Output, timeout: Duration) -> ToolResult {
    let end = output.stdout.iter().position(|byte| *byte == b'\n');
    let header = end.and_then(|end| serde_json::from_slice::<Header>(&output.stdout[..end]).ok());
    let (Some(end), Some(header)) = (end, header) else {
        // It was killed before it could print anything.
        return result(&output, timeout);
    };
    output.stdout.drain(..=end);
    let mut result = result(&output, timeout);
    if header.json {
        match serde_json::from_slice(&output.stdout) {
            Ok(value) => result.output = value,
            Err(_) if output.stdout_dropped > 0 => {
                let size = output.stdout.len() as u64 + output.stdout_dropped;
                return ToolResult::failed(format!(
                    "`output` is too long: {size} bytes, at most {PASSED_BYTES} are passed on"
                ));
            }
            Err(_) => {}
        }
    }
    result.last = header.stop && result.ok;
    result
}
