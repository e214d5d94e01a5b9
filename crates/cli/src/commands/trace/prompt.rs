//! Shows the prompt of a turn of a trace.
//!
//! The request is reconstructed from the records and rendered as it was then, with the model's
//! vocabulary and template; the weights aren't needed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alara_engine::{Format, Options, Prompts, Request, Usage};
use alara_harness::model::endpoint::{self, Address};
use alara_harness::model::{Endpoint, Prompt};
use alara_harness::trace::{self, Line, NoTurn, Start, Turn};
use alara_harness::{ChatModel, Scripted};
use anyhow::{Context, bail};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::json;

use crate::model_file;
use crate::progress::{self, count};
use crate::{model, prompts, ui};

/// Which turn, and the model to render it with.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// Print the prompt of a turn, with the template's control tokens and the tools; a line marks
    /// how much of it was cached.
    /// Turns count from 1 within their conversation [default: the last one].
    /// For a model at an endpoint, print the JSON that was sent
    #[arg(long = "prompt", value_name = "TURN", num_args = 0..=1, default_missing_value = "last", value_parser = number)]
    pub turn: Option<Which>,
    /// With --prompt: the conversation, as the trace names it in brackets [default: the first one]
    #[arg(long = "in", value_name = "SCOPE", requires = "turn")]
    scope: Option<String>,
    /// With --prompt: the model, as for `alara run` [default: the trace's]
    #[arg(short, long, value_name = "MODEL", requires = "turn")]
    model: Option<String>,
    /// With --prompt: the tool format, if the run had one set
    #[arg(long, value_name = "NAME", value_parser = model::tool_format(), hide_possible_values = true, requires = "turn")]
    tool_format: Option<&'static Format>,
    /// With --prompt: the chat template, if the run had one set
    #[arg(long, value_name = "FILE", requires = "turn")]
    chat_template: Option<PathBuf>,
    /// With --prompt: whether the model reasons, on or off [default: as in the trace]
    #[arg(long, value_name = "on|off", value_parser = model::on_off, requires = "turn")]
    thinking: Option<bool>,
}

/// Which turn of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Last,
    /// The turn with this number, from 1.
    Number(usize),
}

fn number(text: &str) -> Result<Which, String> {
    match text.parse() {
        Ok(0) => Err("turns count from 1".to_owned()),
        Ok(number) => Ok(Which::Number(number)),
        Err(_) if text == "last" => Ok(Which::Last),
        Err(_) => Err("it takes the number of a turn; put the trace before --prompt".to_owned()),
    }
}

/// Prints the prompt of a turn of the trace at `path`.
pub fn show(args: &Args, path: &Path, lines: &[Line], which: Which, json: bool) -> anyhow::Result<ExitCode> {
    let number = match which {
        Which::Last => None,
        Which::Number(number) => Some(number),
    };
    let mut turn = trace::turn(lines, args.scope.as_deref(), number)
        .map_err(|none| missing(none, path, args, number))?;
    turn.request.thinking = args.thinking.or(turn.request.thinking);
    let reader = Reader::of(args, &turn.start)?;
    let now = turn.time.parse().unwrap_or_else(|_| jiff::Timestamp::now());
    let now = now.to_zoned(TimeZone::UTC).datetime();
    let prompt = reader.read(&turn.request, now)?;
    let warning = difference(args, &reader, &turn, &prompt, now);
    if json {
        ui::line(&object(path, &turn, &prompt).to_string());
    } else {
        match &prompt {
            Prompt::Tokens(tokens) => {
                let cached = cached(&turn, tokens.len()).unwrap_or(0);
                ui::text(&prompts::marked(tokens, cached, ui::is_styled(&std::io::stdout())));
            }
            Prompt::Json(json) => prompts::lines(json).iter().for_each(|line| ui::line(line)),
        }
        ui::note(&told(&turn, &prompt));
    }
    if let Some(warning) = warning {
        ui::note(&format!("warning: {warning}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Explains why there is no such turn, and lists the existing ones.
fn missing(none: NoTurn, path: &Path, args: &Args, number: Option<usize>) -> anyhow::Error {
    let path = path.display();
    match none {
        NoTurn::Scope { known } if known.is_empty() => {
            anyhow::anyhow!("no conversation begins in {path}, so no model read anything")
        }
        NoTurn::Scope { known } => {
            let asked = args.scope.as_deref().unwrap_or_default();
            let known: Vec<&str> =
                known.iter().map(|scope| if scope.is_empty() { "\"\"" } else { scope.as_str() }).collect();
            anyhow::anyhow!(
                "no conversation of {path} is called {asked}\nhint: --in takes one of these: {}",
                known.join(", ")
            )
        }
        NoTurn::Number { scope, turns } => {
            let of = if scope.is_empty() { String::new() } else { format!(", in {scope},") };
            let has = if turns == 0 {
                "no turn of the model that was ended".to_owned()
            } else {
                count(turns, "turn")
            };
            match number {
                Some(number) if turns > 0 => anyhow::anyhow!(
                    "{path}{of} has no turn {number}, but {has}\nhint: --prompt without a number shows the last one"
                ),
                _ => anyhow::anyhow!(
                    "{path}{of} has {has}\nhint: alara run --show-prompt shows prompts as they are asked, also of turns that fail"
                ),
            }
        }
    }
}

/// Renders prompts.
enum Reader {
    /// By a model file, with its name.
    Here(String, Box<Prompts>),
    /// By a model at an endpoint, or by none.
    Elsewhere(Box<dyn ChatModel>),
}

impl Reader {
    /// Returns the renderer for the model of a trace, or for the one that the user names.
    fn of(args: &Args, start: &Start) -> anyhow::Result<Self> {
        if let Some(name) = &args.model {
            return Self::named(args, name);
        }
        if start.model == "script" {
            return Self::named(args, "script:");
        }
        if Address::is_meant_by(&start.model) {
            // The trace's author may have chosen the URL that it names: don't send requests there.
            if start.model.parse::<Address>()?.model.is_none() {
                bail!("{} names no model\nhint: name it with -m ADDRESS#MODEL", start.model);
            }
            return Self::named(args, &start.model);
        }
        // The user's original name may still resolve where the path doesn't.
        let asked = start.asked.as_deref().filter(|asked| !model::is_elsewhere(asked));
        let name = asked.unwrap_or(&start.model);
        Self::named(args, name).with_context(|| {
            format!("the trace's model {name} can't be had\nhint: -m MODEL names the file where it is now")
        })
    }

    fn named(args: &Args, name: &str) -> anyhow::Result<Self> {
        if name.starts_with("script:") {
            // A script reads nothing, so all scripts show the same prompt.
            return Ok(Reader::Elsewhere(Box::new(Scripted::default())));
        }
        if Address::is_meant_by(name) {
            let address: Address = name.parse()?;
            let given = model::endpoint_options(&address, args.tool_format, args.chat_template.as_deref())?;
            let options = endpoint::Options { thinking: args.thinking, ..given };
            return Ok(Reader::Elsewhere(Box::new(Endpoint::new(address, options)?)));
        }
        Ok(Reader::Here(name.to_owned(), Box::new(local(args, name, args.tool_format)?)))
    }

    fn read(&self, request: &Request, now: DateTime) -> anyhow::Result<Prompt> {
        Ok(match self {
            Reader::Here(_, prompts) => Prompt::Tokens(prompts.pieces(request, now)?),
            Reader::Elsewhere(model) => model.prompt(request)?,
        })
    }
}

/// Returns the renderer for a model file.
fn local(args: &Args, name: &str, tool_format: Option<&'static Format>) -> anyhow::Result<Prompts> {
    let chat_template = args.chat_template.as_deref().map(model::chat_template).transpose()?;
    let options = Options { tool_format, chat_template, ..Options::default() };
    Ok(Prompts::load(&model_file::open(Some(name))?, &options)?)
}

/// Whether a turn may have run in two phases, like one that allows calls and requires JSON.
/// Each phase reads the prompt, and their usage is added up.
fn has_phases(request: &Request) -> bool {
    !request.tools.is_empty() && !request.tool_choice.must_call()
}

/// Whether a prompt of `tokens` tokens matches the turn's count, once or per phase.
fn is_counted(turn: &Turn, tokens: usize) -> bool {
    let Usage { prompt_tokens, .. } = turn.usage;
    prompt_tokens == tokens || (has_phases(&turn.request) && prompt_tokens == 2 * tokens)
}

/// Explains why this prompt can't be the one that the model read.
/// `None` if the number of tokens matches, or they were counted elsewhere.
fn difference(args: &Args, reader: &Reader, turn: &Turn, prompt: &Prompt, now: DateTime) -> Option<String> {
    let (Reader::Here(name, _), Prompt::Tokens(tokens)) = (reader, prompt) else { return None };
    let counted = turn.usage.prompt_tokens;
    if is_counted(turn, tokens.len()) {
        return None;
    }
    if counted == 0 {
        return Some("the trace does not say how many tokens the prompt had, nor what was cached".to_owned());
    }
    let mut warning = format!(
        "this prompt has {}, that of the run had {counted}: model, template or options differ from those of the run, \
         and what was cached is not shown",
        count(tokens.len(), "token")
    );
    if let Some(option) = explaining(args, name, turn, now) {
        warning += &format!("{}{option} makes it as long as that of the run", ui::HINT);
    }
    Some(warning)
}

/// Finds an option, not recorded in the trace, that makes the prompt as long as it was.
fn explaining(args: &Args, name: &str, turn: &Turn, now: DateTime) -> Option<String> {
    let fits = |format: Option<&'static Format>, request: &Request| {
        let pieces = local(args, name, format).and_then(|prompts| Ok(prompts.pieces(request, now)?));
        pieces.is_ok_and(|pieces| is_counted(turn, pieces.len()))
    };
    let mut formats = Format::all().iter().filter(|format| format.described());
    if let Some(format) = formats.find(|format| fits(Some(format), &turn.request)) {
        return Some(format!("--tool-format {}", format.name));
    }
    [("on", true), ("off", false)].into_iter().find_map(|(word, thinking)| {
        let request = Request { thinking: Some(thinking), ..turn.request.clone() };
        fits(args.tool_format, &request).then(|| format!("--thinking {word}"))
    })
}

/// Returns how many tokens of a turn's prompt were cached; `None` if its phases are counted
/// together, or the prompt differs.
fn cached(turn: &Turn, tokens: usize) -> Option<usize> {
    (turn.usage.prompt_tokens == tokens).then_some(turn.usage.cached_tokens)
}

/// Returns the turn as one JSON object.
fn object(path: &Path, turn: &Turn, prompt: &Prompt) -> serde_json::Value {
    let Turn { scope, number, start, usage, .. } = turn;
    let mut object = json!({
        "trace": path, "in": scope, "turn": number, "npc": start.npc, "model": start.model,
        "prompt_tokens": usage.prompt_tokens, "cached_tokens": usage.cached_tokens,
    });
    match prompt {
        Prompt::Tokens(tokens) => {
            object["prompt"] = prompts::text(tokens).into();
            let cached = cached(turn, tokens.len());
            object["cached"] = cached.map(|cached| prompts::beginning(tokens, cached)).into();
            object["shown_tokens"] = tokens.len().into();
        }
        Prompt::Json(request) => object["request"] = request.clone(),
    }
    object
}

/// Describes the turn, and the usage of its prompt.
fn told(turn: &Turn, prompt: &Prompt) -> String {
    let Turn { scope, number, start, usage, .. } = turn;
    let who = if start.npc.is_empty() { "the model" } else { &start.npc };
    let scope = if scope.is_empty() { String::new() } else { format!(" [{scope}]") };
    let tokens = progress::prompt(usage);
    let mut told =
        format!("turn {number} of {who}{scope} with {}: {}", start.model, tokens.trim_end_matches(", "));
    if let Prompt::Tokens(tokens) = prompt
        && has_phases(&turn.request)
        && usage.prompt_tokens == 2 * tokens.len()
    {
        told += ", those of two phases; what the first one found cached is not known";
    }
    if let Some(miss) = &usage.miss {
        told += &format!("\nprefix cache: {miss}");
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_have_numbers() {
        assert_eq!(number("2"), Ok(Which::Number(2)));
        assert_eq!(number("last"), Ok(Which::Last));
        assert!(number("0").unwrap_err().contains("from 1"));
        assert!(number("t.jsonl").unwrap_err().contains("before --prompt"));
    }
}
