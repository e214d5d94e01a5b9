//! `alara run`: runs one task with an agent, or one jinx.
//! The answer goes to stdout, everything else to stderr.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use alara_engine::file;
use alara_harness::permission::Question;
use alara_harness::resume::Resumed;
use alara_harness::run::{Responses, as_json, hooks, last_change_refused};
use alara_harness::skill;
use alara_harness::team::load_jinx;
use alara_harness::trace::Record;
use alara_harness::{
    Agent, Caller, Effect, Jinx, ModelSource, Notice, Npc, Outcome, Sandbox, Session, Team, Verdict, tool,
    trace,
};
use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use super::tune;
use crate::agent::{self, INTERRUPTED};
use crate::attach::attached;
use crate::first_words::{self, Meant};
use crate::view::{View, Words};
use crate::{ask, earlier, input, traces, ui};

/// An example of a schema.
const SCHEMA_HINT: &str =
    r#"a schema is an object such as {"type": "object", "properties": {"count": {"type": "integer"}}}"#;

/// Do one task with an agent, or run one jinx
///
/// The answer goes to stdout, even if it was cut off; progress goes to stderr.
/// Piped or redirected standard input becomes part of the task.
/// Asks before removing, overwriting or moving anything in the work directory.
/// Exit code 0: done, 1: not done, or the last change was refused, 2: wrong usage, or the machine
/// lacks something, 130: interrupted.
#[derive(clap::Args)]
pub struct Args {
    /// The task, in plain words; - means standard input, and @FILE attaches a text file.
    /// Or a .jinx or SKILL.md file and its arguments as name=value [default: ask for it]
    #[arg(value_name = "TASK")]
    task: Vec<String>,
    #[command(flatten)]
    agent: agent::Args,
    /// A JSON schema: the answer is JSON that conforms to it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["latest", "resume"])]
    schema: Option<PathBuf>,
    /// Show the calls of the run without making them, except those that only read; the model is
    /// informed.
    /// Nothing in the work directory can change
    #[arg(long, conflicts_with_all = ["ask", "latest", "resume"])]
    dry_run: bool,
    /// Print each prompt to stderr, with the template's control tokens and the tools; after the
    /// first turn of a conversation, only the new part.
    /// For a model at an endpoint, print the JSON of the request
    #[arg(long)]
    show_prompt: bool,
    /// Print the outcome as one JSON object
    #[arg(long, conflicts_with = "ask")]
    json: bool,
    /// Print events as JSON, one object per line: turns, generated text, calls, results, questions,
    /// and finally the outcome
    #[arg(long, conflicts_with_all = ["ask", "json"])]
    json_stream: bool,
}

impl Args {
    /// Whether stdout receives JSON.
    fn is_json(&self) -> bool {
        self.json || self.json_stream
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = args.task.first().filter(|file| is_jinx(file)) {
        if args.agent.goes_on() {
            bail!("{file} is a jinx, and a jinx has no conversation that could go on");
        }
        return run_jinx(args, Path::new(file));
    }
    if let Some(file) = file_alone(&args.task, &args.agent) {
        let what = if Path::new(file).is_dir() { "folder" } else { "file" };
        bail!(
            "`{file}` is a {what}, not a task\nhint: alara run \"explain {file}\"; or of a .jinx or SKILL.md file, with its arguments as name=value"
        );
    }
    run_agent(args)
}

/// Whether a task is the file of a jinx or a skill: a sentence may end with the name of one.
fn is_jinx(task: &str) -> bool {
    let file = Path::new(task);
    let named = file.extension().is_some_and(|ending| ending == "jinx") || skill::is_file(file);
    named && (!task.contains(char::is_whitespace) || file.is_file())
}

/// Returns the file or folder given in place of a task, without a task for it.
/// The user is asked about a single word, unless it can't be a word.
fn file_alone<'a>(task: &'a [String], agent: &agent::Args) -> Option<&'a str> {
    let (first, rest) = task.split_first()?;
    let path = Path::new(first);
    let is_word = !first.contains(['/', '.']) && agent.npc.is_some();
    let alone = match rest {
        [] => !is_word && (agent.npc.is_some() || first.contains(char::is_whitespace)),
        rest => rest.iter().all(|word| agent::pair(word).is_ok()),
    };
    let exists = path.exists() || agent.workdir().join(path).exists();
    (alone && exists && !first.trim().is_empty()).then_some(first)
}

fn run_agent(args: &Args) -> anyhow::Result<ExitCode> {
    let words: Vec<&str> = args.task.iter().map(String::as_str).filter(|word| *word != input::DASH).collect();
    let input = input::read(words.len() < args.task.len())?;
    let (agent, earlier) = args.agent.with_earlier()?;
    let mut typed = words.join(" ");
    if typed.trim().is_empty() && input.is_none() && earlier.is_none() {
        typed = asked_for(args)?;
    }
    // Attach only files that the user typed: piped text may come from a stranger.
    let task = input::joined(&attached(&typed, agent.workdir())?, input.as_deref());
    if agent.tune && !tune::first(&agent.model)? {
        return Ok(INTERRUPTED.into());
    }
    let (team, called) = agent.team_untold()?;
    let (task, npc) = match earlier {
        Some(_) => (task, agent.npc.clone()),
        None => match meant(args, &team, task)? {
            Meant::Task { task, npc } => (task, npc.or_else(|| agent.npc.clone())),
            Meant::Command(name) => return start(&name),
        },
    };
    let npc = agent::Args::worker(&team, &called, npc.as_deref())?;
    let schema = args.schema.as_deref().map(schema).transpose()?;
    let sandbox = agent.sandbox(&team, args.dry_run)?;
    let models = agent.models();
    // Report an unavailable model before anything begins.
    let first = models.model(&npc.model)?;
    if models.is_shipped(&npc.model) && earlier.is_none() {
        let is_stock = team.directory.is_none() && schema.is_none();
        if let Some(text) = first_words::small_talk(&task).filter(|_| is_stock) {
            answer_at_once(text, args);
            return Ok(ExitCode::SUCCESS);
        }
        if !args.is_json() {
            ui::note(&first_words::demonstration());
        }
    }
    let context_files = agent.context_files()?;
    agent::cancel_by_interrupt(sandbox.cancel_flag().clone())?;

    let words = Words::of_answer(args.is_json(), args.agent.verbose);
    let view = Mutex::new(View::new(words, args.agent.verbose));
    let view = || view.lock().unwrap_or_else(PoisonError::into_inner);
    let session = Session::new(&models, &sandbox).observed(|notice| {
        if args.json_stream {
            as_json::of_notice(notice).iter().for_each(|object| ui::line(&object.to_string()));
        }
        view().show(notice);
    });
    let is_own = earlier.as_deref().is_some_and(traces::is_own);
    let who = earlier::who(&npc.name, &team.name, first.name());
    let mut earlier = earlier.map(|path| earlier::take_up(&path, &sandbox, &who)).transpose()?;
    // A chat may have replaced the directive by `/system`.
    let directive = earlier.as_ref().filter(|_| is_own).and_then(|earlier| earlier.directive(&npc.name));
    let npc = &directive.map_or_else(|| npc.clone(), |directive| npc.with_directive(directive));
    let trace = earlier.as_mut().map(|earlier| std::mem::take(&mut earlier.trace));
    let asks = |question: &Question| {
        view().end_line();
        if args.json_stream {
            let mut object = as_json::of_question(question);
            object["notice"] = "question".into();
            ui::line(&object.to_string());
        }
    };
    let mut session = agent.equip(session, trace, asks)?.reading(context_files);
    session.dry_run = args.dry_run;
    session.prompts = args.show_prompt;
    let (path, before) = (session.trace.path().map(Path::to_owned), session.trace.len());
    view().spin("begins");
    hooks::start(&session, &team, npc)?;
    let Spoken { outcome, said, stopped } = speak(&session, &team, npc, earlier, schema, &task)?;
    let ended = hooks::end(&session, &team, npc, outcome.as_ref().map_or("failed", Outcome::tag));
    view().end_line();
    let outcome = match outcome {
        Ok(outcome) => outcome,
        // The model had begun to answer, so print that in addition to the error.
        Err(error) if !said.trim().is_empty() => {
            let error = anyhow::Error::from(error);
            ui::report(&error);
            Outcome::Failed { error: format!("{error:#}") }
        }
        Err(error) => return Err(error.into()),
    };
    ended?;
    let jobs = session.finish();
    let entries = session.trace.since(before);
    let usage = trace::usage(entries.iter().map(|entry| &*entry.record));
    let done = Done::of(entries.iter().map(|entry| &*entry.record), &team, args.dry_run);
    let mut view = view();
    view.end_line();
    if words != Words::Silent {
        if let Some(limit) = &stopped {
            ui::note(&limit.reason());
        }
        match &outcome {
            Outcome::Answer { .. } if args.dry_run => {
                ui::note("this was a dry run: no call that changes anything was made");
            }
            Outcome::Answer { .. } if done.last_refused => ui::note("not done: the last change was refused"),
            Outcome::Answer { .. } | Outcome::Failed { .. } => {}
            Outcome::Cancelled => ui::note("interrupted"),
            other => ui::note(&other.reason()),
        }
        ui::note(&view.summary(&usage, path.as_deref()));
    }
    match &outcome {
        _ if args.is_json() => {
            let mut report = reported(&outcome, args);
            if !matches!(outcome, Outcome::Answer { .. }) && !said.is_empty() {
                report["text"] = json!(said);
            }
            if let Some(limit) = &stopped {
                report["stopped"] = json!(limit.tag());
            }
            report["usage"] = serde_json::to_value(usage)?;
            report["turns"] = json!(view.turns);
            report["calls"] = json!(view.calls);
            report["failed_calls"] = json!(done.failed);
            report["refusals"] = json!(done.refusals);
            report["last_change_refused"] = json!(done.last_refused);
            report["trace"] = json!(path);
            if args.dry_run {
                report["dry_run"] = json!(true);
            }
            if !jobs.is_empty() {
                report["ended_jobs"] = json!(jobs);
            }
            ui::line(&report.to_string());
        }
        Outcome::Answer { text } => view.answer(text),
        _ => view.rest(&said),
    }
    Ok(match outcome {
        Outcome::Answer { .. } if !done.last_refused => ExitCode::SUCCESS,
        Outcome::Cancelled => INTERRUPTED.into(),
        _ => ExitCode::FAILURE,
    })
}

/// Counts how the calls of a run ended.
#[derive(Default)]
struct Done {
    /// Number of failed calls.
    failed: usize,
    /// Refused calls: the tool, and who refused it.
    refusals: Vec<Value>,
    /// Whether the last call that could have changed something was refused.
    last_refused: bool,
}

impl Done {
    fn of<'a>(records: impl Iterator<Item = &'a Record> + Clone, team: &Team, dry_run: bool) -> Self {
        let changes = |name: &str| team.jinx(name).map(|jinx| jinx.effect == Effect::Write);
        let last_refused = !dry_run && last_change_refused(records.clone(), changes);
        let mut done = Done { last_refused, ..Done::default() };
        for record in records {
            match record {
                Record::ToolResult { result, .. } if !result.ok => done.failed += 1,
                Record::Permission { jinx, verdict: Verdict::Deny, by } => {
                    done.refusals.push(json!({"tool": jinx, "by": by}));
                }
                _ => {}
            }
        }
        done
    }
}

/// Returns the task, asking the user for it.
///
/// # Errors
/// There is no terminal, or no answer.
fn asked_for(args: &Args) -> anyhow::Result<String> {
    const HOW: &str = "alara run \"what is to be done\"; alara chat talks";
    if !args.task.is_empty() || !ask::is_possible() {
        bail!("there is no task\nhint: {HOW}");
    }
    let task = ask::text("What is to be done? ").unwrap_or_default();
    if task.trim().is_empty() {
        bail!("there is no task\nhint: {HOW}");
    }
    Ok(task)
}

/// The outcome of a task.
struct Spoken {
    outcome: Result<Outcome, alara_harness::Error>,
    /// The answer so far.
    said: String,
    /// The limit that ended the run, if the model answered after it.
    stopped: Option<Outcome>,
}

/// Sends a task to the NPC, in a new conversation or an earlier one.
fn speak(
    session: &Session,
    team: &Team,
    npc: &Npc,
    earlier: Option<Resumed>,
    schema: Option<Value>,
    task: &str,
) -> anyhow::Result<Spoken> {
    let (mut agent, message) = match earlier {
        None => (Agent::new(session, team, npc, schema)?, task.to_owned()),
        Some(mut earlier) => {
            let (scope, conversation) = earlier.take(&npc.name);
            let message = earlier::message(&earlier, &conversation, task)?;
            (Agent::resume(session, team, npc, &scope, conversation.records)?, message)
        }
    };
    let outcome = agent.run(&message);
    Ok(Spoken { outcome, said: agent.text_so_far().to_owned(), stopped: agent.stopped().cloned() })
}

/// Resolves a task: a single word may be a name, so the user is asked what it means.
/// A user who names the NPC means a task.
fn meant(args: &Args, team: &Team, task: String) -> anyhow::Result<Meant> {
    let commands = crate::command_names();
    let meanings = first_words::meanings(&task, &commands, team, args.agent.workdir());
    if meanings.is_empty() || args.agent.npc.is_some() {
        return Ok(Meant::Task { task, npc: None });
    }
    first_words::ask(task.trim(), &meanings)
}

/// Runs another alara command.
fn start(name: &str) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe().context("can't find this program's file")?;
    let status = std::process::Command::new(own).arg(name).status();
    let status = status.with_context(|| format!("can't start alara {name}"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Returns the common fields of the JSON object for an outcome.
fn reported(outcome: &Outcome, args: &Args) -> Value {
    let mut report = serde_json::to_value(outcome).unwrap_or_default();
    if args.json_stream {
        report["notice"] = "outcome".into();
    }
    report
}

/// Prints an answer that needed no model.
fn answer_at_once(text: &str, args: &Args) {
    if !args.is_json() {
        return ui::line(text);
    }
    let mut report = reported(&Outcome::Answer { text: text.to_owned() }, args);
    report["usage"] = json!(alara_engine::Usage::default());
    report["turns"] = json!(0);
    report["calls"] = json!(0);
    report["trace"] = Value::Null;
    ui::line(&report.to_string());
}

fn run_jinx(args: &Args, file: &Path) -> anyhow::Result<ExitCode> {
    if args.json_stream {
        bail!("--json-stream is for a task; of a jinx, --json prints the result");
    }
    if args.agent.ask || args.dry_run {
        let flag = if args.dry_run { "--dry-run" } else { "--ask" };
        bail!("{flag} is for the calls of an agent; a jinx that you start yourself is run as it stands");
    }
    if args.schema.is_some() {
        bail!("--schema is for the answer to a task; what a jinx gives back is up to its steps");
    }
    let (jinx, diagnostics) = load_jinx(file)?;
    agent::tell(&diagnostics, &args.task[0]);
    let (team, jinx) = around(args, file, jinx)?;
    let npc = args.agent.npc.as_deref().map(|name| team.npc(Some(name))).transpose()?;
    let offer = alara_harness::prompt::offer(&team, npc);
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
    let sandbox = args.agent.sandbox(&team, false)?;
    let models = args.agent.models();
    agent::cancel_by_interrupt(sandbox.cancel_flag().clone())?;

    // A jinx's result is the answer, whatever the models of its steps write.
    let words = match Words::of_answer(args.json, args.agent.verbose) {
        Words::Answer => Words::Watched,
        words => words,
    };
    let view = Mutex::new(View::new(words, args.agent.verbose));
    let view = || view.lock().unwrap_or_else(PoisonError::into_inner);
    let responses = Mutex::new(Responses::default());
    let responses = || responses.lock().unwrap_or_else(PoisonError::into_inner);
    let session = Session::new(&models, &sandbox).observed(|notice| {
        if let Notice::Emit(response) = notice {
            responses().apply(response);
        }
        view().show(notice);
    });
    let mut session = args.agent.equip(session, None, |_| view().end_line())?;
    session.prompts = args.show_prompt;
    let caller = Caller { npc, ..Caller::person(&session, &team) };
    let result = tool::call(&caller, &jinx, &given, &jinx.name)?;
    session.finish();
    view().end_line();
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
            ui::line(&output);
        }
        if !complaint.is_empty() {
            ui::note(&complaint);
        } else if !result.stderr.is_empty() {
            ui::note(&result.stderr);
        }
    }
    Ok(exit(result.ok, &sandbox))
}

fn exit(ok: bool, sandbox: &Sandbox) -> ExitCode {
    match ok {
        true => ExitCode::SUCCESS,
        false if sandbox.cancel_flag().load(Ordering::Relaxed) => INTERRUPTED.into(),
        false => ExitCode::FAILURE,
    }
}

/// Returns the team in which to run a jinx file.
/// It is the named one, else the one whose folder of jinxes contains the file, else the default.
/// The file is used even if the team has a jinx of the same name.
fn around(args: &Args, file: &Path, jinx: Jinx) -> anyhow::Result<(Team, Jinx)> {
    let file = file.canonicalize().with_context(|| format!("can't read {}", file.display()))?;
    let mut team = match agent::team_around(&file) {
        Some(team) if args.agent.team.is_none() => team,
        _ => args.agent.team()?,
    };
    // Loaded with the team, the jinx also knows its path below the folder of jinxes.
    let same = |other: &Jinx| other.path.canonicalize().is_ok_and(|path| path == file);
    if !team.jinx(&jinx.name).is_some_and(same) {
        team.jinxes.retain(|other| other.name != jinx.name);
        team.jinxes.push(jinx.clone());
    }
    let jinx = team.jinx(&jinx.name).cloned().unwrap_or(jinx);
    Ok((team, jinx))
}

/// Reads a JSON schema.
/// Whether it is supported depends on the model.
fn schema(path: &Path) -> anyhow::Result<Value> {
    let name = path.display();
    let text = file::read_given(path).with_context(|| format!("can't read the schema {name}"))?;
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
        check("skills/knots/SKILL.md", true);
        check("skill.md", true);
        check("read SKILL.md", false);
        check("notes.md", false);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("two words.jinx");
        std::fs::write(&file, "").unwrap();
        check(file.to_str().unwrap(), true);
    }
}
