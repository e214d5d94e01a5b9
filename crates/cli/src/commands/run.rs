//! `alara run`: one task by an agent, or one jinx.
//! The answer goes to stdout, everything else to stderr.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use alara_harness::run::Responses;
use alara_harness::team::load_jinx;
use alara_harness::{Agent, Caller, Jinx, ModelSource, Notice, Outcome, Sandbox, Session, Team, tool};
use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use crate::agent::{self, INTERRUPTED};
use crate::first_words::{self, Meant};
use crate::progress::{Progress, printable};
use crate::{input, ui};

/// What a schema looks like.
const SCHEMA_HINT: &str =
    r#"a schema is an object such as {"type": "object", "properties": {"count": {"type": "integer"}}}"#;

/// Do one task with an agent, or run one jinx
///
/// The answer goes to stdout, progress to stderr.
/// What comes through standard input, by a pipe or from a file, is a part of the task.
/// Before anything that lies in the work directory is removed, overwritten or moved, you are asked.
/// Exit code 0: done, 1: not done, 2: wrong usage, or the machine lacks something, 130:
/// interrupted.
#[derive(clap::Args)]
pub struct Args {
    /// The task, in plain words, in which - stands for standard input; or a .jinx file and its
    /// arguments as name=value
    #[arg(required = true, value_name = "TASK")]
    task: Vec<String>,
    #[command(flatten)]
    agent: agent::Args,
    /// A JSON schema: the answer is JSON that is valid for it
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if is_jinx(&args.task[0]) { run_jinx(args, Path::new(&args.task[0])) } else { run_agent(args) }
}

/// Whether a task is a jinx's file: a sentence may end with the name of one.
fn is_jinx(task: &str) -> bool {
    let file = Path::new(task);
    let has_ending = file.extension().is_some_and(|ending| ending == "jinx");
    has_ending && (!task.contains(char::is_whitespace) || file.is_file())
}

fn run_agent(args: &Args) -> anyhow::Result<ExitCode> {
    let words: Vec<&str> = args.task.iter().map(String::as_str).filter(|word| *word != input::DASH).collect();
    let input = input::read(words.len() < args.task.len())?;
    let task = input::joined(&words.join(" "), input.as_deref());
    if task.trim().is_empty() {
        bail!("the task is empty");
    }
    let team = args.agent.team()?;
    let (task, npc) = match meant(args, &team, task)? {
        Meant::Task { task, npc } => (task, npc.or_else(|| args.agent.npc.clone())),
        Meant::Command(name) => return start(&name),
    };
    let npc = team.npc(npc.as_deref())?;
    let schema = args.schema.as_deref().map(schema).transpose()?;
    let sandbox = args.agent.sandbox(&team)?;
    let models = args.agent.models();
    // What can't be had is told before anything is begun.
    let _first = models.model(&npc.model)?;
    if models.is_shipped(&npc.model) {
        if let Some(text) = first_words::small_talk(&task).filter(|_| schema.is_none()) {
            answer_at_once(text, args.json);
            return Ok(ExitCode::SUCCESS);
        }
        if !args.json {
            ui::note(&first_words::demonstration());
        }
    }
    agent::cancel_by_interrupt(sandbox.cancel_flag().clone())?;

    let progress = Mutex::new(Progress::default());
    let progress = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let session = Session::new(&models, &sandbox).observed(|notice| progress().show(notice));
    let session = args.agent.equip(session, || progress().end_line())?;
    let path = session.trace.path().map(Path::to_owned);
    let outcome = Agent::new(&session, &team, npc, schema)?.run(&task)?;
    let usage = session.trace.usage();
    let mut progress = progress();
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

/// What is meant by a task: a single word may be the name of something, and then it is asked.
/// Who names the NPC has thought of it.
fn meant(args: &Args, team: &Team, task: String) -> anyhow::Result<Meant> {
    let commands = crate::command_names();
    let meanings = first_words::meanings(&task, &commands, team, &args.agent.workdir);
    if meanings.is_empty() || args.agent.npc.is_some() {
        return Ok(Meant::Task { task, npc: None });
    }
    first_words::ask(task.trim(), &meanings)
}

/// Runs another command of alara.
fn start(name: &str) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe().context("can't find this program's file")?;
    let status = std::process::Command::new(own).arg(name).status();
    let status = status.with_context(|| format!("can't start alara {name}"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Prints an answer that took no model.
fn answer_at_once(text: &str, as_json: bool) {
    if !as_json {
        return ui::line(text);
    }
    let outcome = Outcome::Answer { text: text.to_owned() };
    let mut report = serde_json::to_value(outcome).unwrap_or_default();
    report["usage"] = json!(alara_engine::Usage::default());
    report["turns"] = json!(0);
    report["calls"] = json!(0);
    report["trace"] = Value::Null;
    ui::line(&report.to_string());
}

fn run_jinx(args: &Args, file: &Path) -> anyhow::Result<ExitCode> {
    if args.schema.is_some() {
        bail!("--schema is for the answer to a task; what a jinx gives back is up to its steps");
    }
    let (jinx, diagnostics) = load_jinx(file)?;
    agent::tell(&diagnostics, &args.task[0]);
    let (team, jinx) = around(args, file, jinx)?;
    let npc = args.agent.npc.as_deref().map(|name| team.npc(Some(name))).transpose()?;
    let offer = alara_harness::agent::offer(&team, npc);
    let mut given = Map::new();
    for pair in &args.task[1..] {
        let (name, text) = agent::pair(pair)?;
        let value = match jinx.inputs.iter().find(|input| input.name == name) {
            Some(input) => input.parse(text, &offer).map_err(anyhow::Error::msg)?,
            None => Value::from(text),
        };
        given.insert(name.to_owned(), value);
    }
    jinx.arguments(&given, &offer).map_err(anyhow::Error::msg)?;
    let sandbox = args.agent.sandbox(&team)?;
    let models = args.agent.models();
    agent::cancel_by_interrupt(sandbox.cancel_flag().clone())?;

    let progress = Mutex::new(Progress::default());
    let progress = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let responses = Mutex::new(Responses::default());
    let responses = || responses.lock().unwrap_or_else(PoisonError::into_inner);
    let session = Session::new(&models, &sandbox).observed(|notice| {
        if let Notice::Emit(response) = notice {
            responses().apply(response);
        }
        progress().show(notice);
    });
    let session = args.agent.equip(session, || progress().end_line())?;
    let caller = Caller { npc, ..Caller::person(&session, &team) };
    let result = tool::call(&caller, &jinx, &given, &jinx.name)?;
    progress().end_line();
    if args.json {
        let mut report = serde_json::to_value(&result)?;
        let responses: Vec<Value> = responses().iter().cloned().collect();
        if !responses.is_empty() {
            report["responses"] = Value::Array(responses);
        }
        ui::line(&report.to_string());
    } else {
        let (output, complaint) = (result.output_text(), result.complaint());
        if !output.is_empty() {
            ui::line(&shown(&output, std::io::stdout().is_terminal()));
        }
        if !complaint.is_empty() {
            ui::note(&shown(&complaint, std::io::stderr().is_terminal()));
        } else if !result.stderr.is_empty() {
            ui::note(&shown(&result.stderr, std::io::stderr().is_terminal()));
        }
    }
    Ok(exit(result.ok, &sandbox))
}

/// What a jinx gave back, as it is; but a terminal is not to be played with.
fn shown(text: &str, terminal: bool) -> Cow<'_, str> {
    if terminal { printable(text) } else { Cow::Borrowed(text) }
}

fn exit(ok: bool, sandbox: &Sandbox) -> ExitCode {
    match ok {
        true => ExitCode::SUCCESS,
        false if sandbox.cancel_flag().load(Ordering::Relaxed) => INTERRUPTED.into(),
        false => ExitCode::FAILURE,
    }
}

/// The team that a jinx file is run in.
/// It is the one that was named, else the one in whose folder of jinxes it lies, else the default.
/// The file counts, even if the team has a jinx of its name.
fn around(args: &Args, file: &Path, jinx: Jinx) -> anyhow::Result<(Team, Jinx)> {
    let file = file.canonicalize().with_context(|| format!("can't read {}", file.display()))?;
    let mut team = match agent::team_around(&file) {
        Some(team) if args.agent.team.is_none() => team,
        _ => args.agent.team()?,
    };
    // Read with the team, it also knows the path below the folder of jinxes.
    let same = |other: &Jinx| other.path.canonicalize().is_ok_and(|path| path == file);
    if !team.jinx(&jinx.name).is_some_and(same) {
        team.jinxes.retain(|other| other.name != jinx.name);
        team.jinxes.push(jinx.clone());
    }
    let jinx = team.jinx(&jinx.name).cloned().unwrap_or(jinx);
    Ok((team, jinx))
}

/// Reads a JSON schema.
/// Whether it can be honoured is up to the model that is asked.
fn schema(path: &Path) -> anyhow::Result<Value> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("can't read the schema {name}"))?;
    match serde_json::from_str(&text) {
        Ok(schema @ (Value::Object(_) | Value::Bool(_))) => Ok(schema),
        Ok(_) => bail!("{name} is no JSON schema\nhint: {SCHEMA_HINT}"),
        Err(error) => bail!("{name} is no JSON: {error}\nhint: {SCHEMA_HINT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_no_file() {
        let check = |task: &str, expected| assert_eq!(is_jinx(task), expected, "{task}");
        check("deploy.jinx", true);
        check("jinxes/deploy.jinx", true);
        check("please fix deploy.jinx", false);
        check("deploy", false);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("two words.jinx");
        std::fs::write(&file, "").unwrap();
        check(file.to_str().unwrap(), true);
    }

    #[test]
    fn a_terminal_is_not_played_with() {
        assert_eq!(shown("\u{1b}[2Ja\n", true), "\u{fffd}[2Ja\n");
        assert_eq!(shown("\u{1b}[2Ja\n", false), "\u{1b}[2Ja\n");
    }
}
