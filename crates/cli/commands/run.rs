//! `alara run`: one task by an agent, or one jinx. The answer goes to stdout, everything else to stderr.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alara_engine::{Event, Sampling, ToolCall, Usage};
use alara_harness::jinx::{Action, Offer};
use alara_harness::sandbox::enforced;
use alara_harness::team::load_jinx;
use alara_harness::{
    Agent, Caller, ModelSource, Notice, Outcome, Policy, Sandbox, Scripted, Session, Single, Team, ToolResult, Trace, jinx,
};
use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use crate::{model, ui};

/// The exit code of a program that an interrupt ended, as shells count.
const INTERRUPTED: u8 = 130;
/// How many lines of a tool's output are shown while it works.
const SHOWN_LINES: usize = 6;
/// How many characters of an argument or a line are shown.
const SHOWN_CHARACTERS: usize = 120;
/// What a schema looks like.
const SCHEMA_HINT: &str =
    r#"a schema is an object such as {"type": "object", "properties": {"count": {"type": "integer"}}}"#;

/// Do one task with an agent, or run one jinx
///
/// The answer goes to stdout, progress to stderr. Exit code 0: done, 1: not done, 2: wrong usage, 130: interrupted.
#[derive(clap::Args)]
pub struct Args {
    /// The task, in plain words; or a .jinx file and its arguments as name=value
    #[arg(required = true, value_name = "TASK")]
    task: Vec<String>,
    /// A team's directory, or the name of a built-in team
    #[arg(short, long, default_value = "alara")]
    team: String,
    /// The NPC that does it [default: the team's forenpc]
    #[arg(short, long)]
    npc: Option<String>,
    #[command(flatten)]
    model: model::Args,
    /// The only directory in which files may be changed
    #[arg(long, value_name = "DIR", default_value = ".")]
    workdir: PathBuf,
    /// Seed of the random draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How daring the draws are; 0 always takes the most likely token
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// A JSON schema: the answer is JSON that is valid for it
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Where to write the trace [default: a new file in the user's state directory]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.temperature.is_finite() || args.temperature < 0.0 {
        bail!("a temperature is a number from 0 up, not {}", args.temperature);
    }
    let file = Path::new(&args.task[0]);
    if file.extension().is_some_and(|ending| ending == "jinx") {
        run_jinx(args, file)
    } else {
        run_agent(args)
    }
}

fn run_agent(args: &Args) -> anyhow::Result<ExitCode> {
    let task = args.task.join(" ");
    if task.trim().is_empty() {
        bail!("the task is empty");
    }
    let team = Team::find(&args.team)?;
    for diagnostic in &team.diagnostics {
        ui::note(&diagnostic.to_string());
    }
    let npc = team.npc(args.npc.as_deref())?;
    let schema = args.schema.as_deref().map(schema).transpose()?;
    let sandbox = sandbox(args)?;
    let models = args.model.source(1);
    // What can't be had is told before anything is begun.
    let _first = models.model(&npc.model)?;
    let trace = trace(args)?;
    let sampling = Sampling { seed: args.seed, temperature: args.temperature, ..Sampling::default() };

    let mut progress = Progress::default();
    let path = trace.path().map(Path::to_owned);
    let (outcome, usage) = {
        let session = Session::new(&models, &sandbox)
            .sampled(sampling)
            .traced(trace)
            .observed(|notice| progress.show(notice));
        let outcome = Agent::new(&session, &team, npc, schema)?.run(&task)?;
        (outcome, session.trace.usage())
    };
    progress.end_line();

    let why = match &outcome {
        Outcome::Answer { .. } => None,
        Outcome::Cancelled => Some("interrupted".to_owned()),
        other => Some(other.reason()),
    };
    if let Some(why) = why {
        ui::note(&why);
    }
    ui::note(&progress.summary(&usage, path.as_deref()));
    if args.json {
        let mut report = serde_json::to_value(&outcome)?;
        report["usage"] = serde_json::to_value(usage)?;
        report["turns"] = json!(progress.turns);
        report["calls"] = json!(progress.calls);
        report["trace"] = json!(path);
        ui::line(&report.to_string());
    } else if let Outcome::Answer { text } = &outcome
        && !Progress::is_on_screen()
    {
        ui::line(text.trim_end());
    }
    Ok(match outcome {
        Outcome::Answer { .. } => ExitCode::SUCCESS,
        Outcome::Cancelled => INTERRUPTED.into(),
        _ => ExitCode::FAILURE,
    })
}

fn run_jinx(args: &Args, file: &Path) -> anyhow::Result<ExitCode> {
    if args.schema.is_some() {
        bail!("--schema is for the answer to a task; what a jinx gives back is up to its steps");
    }
    let (jinx, diagnostics) = load_jinx(file)?;
    for diagnostic in diagnostics {
        ui::note(&diagnostic.to_string());
    }
    let mut given = Map::new();
    for pair in &args.task[1..] {
        let (name, text) =
            pair.split_once('=').with_context(|| format!("`{pair}` is no argument: write name=value"))?;
        let value = match jinx.inputs.iter().find(|input| input.name == name) {
            Some(input) => input.parse(text, &Offer::default()).map_err(anyhow::Error::msg)?,
            None => Value::from(text),
        };
        given.insert(name.to_owned(), value);
    }
    let offer = Offer::default();
    let arguments = jinx.arguments(&given, &offer).map_err(anyhow::Error::msg)?;
    let sandbox = sandbox(args)?;
    let asks = jinx.steps.iter().any(|step| matches!(step.action, Action::Llm(_)));
    let model = asks.then(|| args.model.load(None, 1)).transpose()?;
    let nothing = Scripted::default();
    let source = Single(model.as_deref().unwrap_or(&nothing));
    let session = Session::new(&source, &sandbox);
    let team = Team::default();
    let result = jinx::run(&jinx, arguments, &Caller::person(&session, &team))?;
    if args.json {
        ui::line(&serde_json::to_string(&result)?);
    } else {
        let (output, complaint) = (result.output_text(), result.complaint());
        if !output.is_empty() {
            ui::line(&output);
        }
        if !complaint.is_empty() {
            ui::note(&complaint);
        } else if !result.stderr.is_empty() {
            ui::note(&result.stderr);
        }
    }
    Ok(match result.ok {
        true => ExitCode::SUCCESS,
        false if sandbox.cancel_flag().load(Ordering::Relaxed) => INTERRUPTED.into(),
        false => ExitCode::FAILURE,
    })
}

/// The sandbox of the run; the first interrupt cancels what runs in it, the second ends the process.
fn sandbox(args: &Args) -> anyhow::Result<Sandbox> {
    let sandbox = Sandbox::new(&args.workdir, Policy::default())?;
    if let Some(warning) = enforced().warning() {
        ui::note(&format!("warning: {warning}"));
    }
    let cancel: Arc<AtomicBool> = sandbox.cancel_flag().clone();
    ctrlc::set_handler(move || {
        if cancel.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    })
    .context("can't catch interrupts")?;
    Ok(sandbox)
}

/// Reads a JSON schema. Whether it can be honoured is up to the model that is asked.
fn schema(path: &Path) -> anyhow::Result<Value> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("can't read the schema {name}"))?;
    match serde_json::from_str(&text) {
        Ok(schema @ (Value::Object(_) | Value::Bool(_))) => Ok(schema),
        Ok(_) => bail!("{name} is no JSON schema\nhint: {SCHEMA_HINT}"),
        Err(error) => bail!("{name} is no JSON: {error}\nhint: {SCHEMA_HINT}"),
    }
}

/// The trace in the file that was asked for, or in the user's state directory as far as there is one.
fn trace(args: &Args) -> anyhow::Result<Trace> {
    if let Some(path) = &args.trace {
        return Ok(Trace::create(path)?);
    }
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(std::env::home_dir()?.join(".local/state")));
    let Some(state) = state else { return Ok(Trace::in_memory()) };
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let name = format!("{}-{}.jsonl", since.as_millis(), std::process::id());
    Ok(Trace::create(&state.join("alara/traces").join(name)).unwrap_or_else(|error| {
        ui::note(&format!("warning: no trace is kept: {error}"));
        Trace::in_memory()
    }))
}

/// Shows on stderr what an agent does.
#[derive(Default)]
struct Progress {
    turns: usize,
    calls: usize,
    /// Whether the cursor stands behind streamed text.
    within_line: bool,
}

impl Progress {
    /// Whether the streamed text is all that a person at a terminal needs to see.
    fn is_on_screen() -> bool {
        std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
    }

    fn show(&mut self, notice: &Notice) {
        match notice {
            Notice::Turn { depth: 0, turn, .. } => self.turns = *turn,
            Notice::Event { event: Event::Text { text } | Event::Reasoning { text }, .. } => {
                ui::piece(text);
                self.within_line = !text.ends_with('\n') && (self.within_line || !text.is_empty());
            }
            Notice::Event { event: Event::Incomplete { name, .. }, .. } => {
                self.end_line();
                ui::note(&format!("the call of {name} was cut off, and is not made"));
            }
            Notice::Call { call, .. } => {
                self.end_line();
                self.calls += 1;
                ui::note(&format!("> {}", call_line(call)));
            }
            Notice::Result { result, took, .. } => {
                let verdict = match (result.ok, result.exit) {
                    (true, _) => "ok".to_owned(),
                    (false, Some(code)) => format!("failed with exit status {code}"),
                    (false, None) => "failed".to_owned(),
                };
                ui::note(&format!("  {verdict}, {:.2} s", took.as_secs_f64()));
                ui::piece(&excerpt(result));
            }
            _ => {}
        }
    }

    fn end_line(&mut self) {
        if self.within_line {
            ui::note("");
            self.within_line = false;
        }
    }

    fn summary(&self, usage: &Usage, trace: Option<&Path>) -> String {
        let count = |count, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let mut text = format!("{}, {}", count(self.turns, "turn"), count(self.calls, "tool call"));
        text += &format!("; {}", count(usage.prompt_tokens, "prompt token"));
        text += &format!(" ({} cached), {} generated", usage.cached_tokens, usage.completion_tokens);
        let seconds = usage.decode_time.as_secs_f64();
        if seconds > 0.0 {
            text += &format!(" at {:.1} tokens/s", usage.completion_tokens as f64 / seconds);
        }
        if let Some(path) = trace {
            text += &format!("; trace {}", path.display());
        }
        text
    }
}

/// A call in one line: the tool and its arguments.
fn call_line(call: &ToolCall) -> String {
    let mut line = call.name.clone();
    for (name, value) in &call.arguments {
        let value = match value {
            Value::String(text) if !text.contains(['\n', '"']) && !text.is_empty() => text.clone(),
            other => other.to_string(),
        };
        line += &format!("  {name}: {}", shorten(&value));
    }
    line
}

/// The first lines of what a tool gave back or complained about, indented.
fn excerpt(result: &ToolResult) -> String {
    let (output, complaint) = (result.output_text(), result.complaint());
    let lines = output.lines().chain(complaint.lines());
    let mut text = String::new();
    let mut more = 0;
    for (index, line) in lines.enumerate() {
        if index < SHOWN_LINES {
            text += &format!("  | {}\n", shorten(line));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        text += &format!("  | … {more} more\n");
    }
    text
}

/// At most so many characters, and no control character that could play with the terminal.
fn shorten(line: &str) -> String {
    let mut characters = line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c });
    let mut text: String = characters.by_ref().take(SHOWN_CHARACTERS).collect();
    if characters.next().is_some() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_results_in_short() {
        let call = |arguments| ToolCall { id: String::new(), name: "shell".into(), arguments };
        let check = |arguments: Value, expected: &str| {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            assert_eq!(call_line(&call(arguments)), expected);
        };
        check(json!({"command": "ls -l"}), "shell  command: ls -l");
        check(json!({"path": "", "n": 3, "text": "a\nb"}), r#"shell  path: ""  n: 3  text: "a\nb""#);
        assert_eq!(shorten("red \u{1b}[31m"), "red \u{fffd}[31m");
        assert_eq!(shorten(&"é".repeat(200)).chars().count(), SHOWN_CHARACTERS + 1);
        let output = (1..=8).map(|line| line.to_string()).collect::<Vec<_>>().join("\n");
        assert_eq!(
            excerpt(&ToolResult::succeeded(output)),
            "  | 1\n  | 2\n  | 3\n  | 4\n  | 5\n  | 6\n  | … 2 more\n"
        );
    }
}
