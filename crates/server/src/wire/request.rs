//! A request, and what of it can be honoured.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};

use alara_engine::{Request, SamplingOverrides, Tool, ToolChoice};
use serde_json::{Value, json};

use super::fields::Fields;
use super::{Refusal, messages};

/// Fields that say nothing about the answer: who asks, and what a service would do with it.
const HARMLESS: [&str; 8] = [
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "cache_prompt",
    "keep_alive",
];
/// Fields that an NPC has its own of.
const NOT_FOR_NPCS: [&str; 7] = [
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stop",
    "ignore_eos",
    "chat_template_kwargs",
    "reasoning_effort",
];
/// Most texts that end a turn.
const STOPS: usize = 16;
/// Most characters of a tool's name, as with OpenAI.
const NAME: usize = 64;

/// Most bytes of a salt.
const SALT: usize = 256;

/// What somebody asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The model, or an NPC as one.
    pub model: Option<String>,
    /// The NPC, if it is named apart.
    pub npc: Option<String>,
    /// The turn, but for how tokens are drawn.
    pub request: Request,
    /// What it says of that; the rest is as the model has it.
    pub draws: SamplingOverrides,
    /// Whether the answer comes in pieces.
    pub stream: bool,
    /// Whether a stream ends with what it cost.
    pub include_usage: bool,
    /// A field that stands there and that no NPC can honour.
    pub not_for_npcs: Option<&'static str>,
}

impl Asked {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// What can't be honoured, by the field's name.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let body: Value = serde_json::from_slice(body).map_err(|error| {
            Refusal::new(400, "invalid_request_error", format!("the body is no JSON: {error}"))
        })?;
        let mut fields = Fields::of(body, "")?;
        let mut asked = Asked {
            not_for_npcs: NOT_FOR_NPCS.into_iter().find(|name| fields.has(name)),
            model: fields.text("model")?,
            npc: npc(&mut fields)?,
            stream: fields.flag("stream")?.unwrap_or(false),
            ..Asked::default()
        };
        if let Some(options) = fields.take("stream_options") {
            if !asked.stream {
                return Err(fields.refuse("stream_options", "is for streams only"));
            }
            let mut options = Fields::of(options, "stream_options")?;
            asked.include_usage = options.flag("include_usage")?.unwrap_or(false);
            options.ignore(&["include_obfuscation"]);
            options.end()?;
        }
        let Some(list) = fields.list("messages")? else {
            return Err(fields.refuse("messages", "is missing"));
        };
        (asked.request.system, asked.request.messages) = messages::read(list)?;
        tools(&mut fields, &mut asked.request)?;
        asked.draws = draws(&mut fields)?;
        asked.request.salt = salt(&mut fields)?;
        asked.request.max_tokens = limit(&mut fields)?;
        asked.request.schema = schema(&mut fields)?;
        asked.request.stop = stop(&mut fields)?;
        asked.request.ignore_eos = fields.flag("ignore_eos")?.unwrap_or(false);
        if asked.request.schema.is_some() && !asked.request.stop.is_empty() {
            return Err(fields.refuse(
                "stop",
                "can't be honoured in an answer by a schema: JSON says itself where it ends",
            ));
        }
        let ended = !asked.request.tools.is_empty() || asked.request.schema.is_some();
        if asked.request.ignore_eos && ended {
            return Err(fields.refuse("ignore_eos", "can't be honoured with tools or a schema"));
        }
        asked.request.thinking = thinking(&mut fields)?;
        fields.only("n", &[json!(1)], "must be 1: one answer is given")?;
        fields.only("logprobs", &[json!(false)], "can't be had from this server")?;
        fields.only("logit_bias", &[json!({})], "is not supported by this server; leave it out")?;
        fields.only("modalities", &[json!(["text"])], "must be [\"text\"]")?;
        fields.only("store", &[json!(false)], "must be false: nothing is stored")?;
        fields.ignore(&HARMLESS);
        fields.end()?;
        Ok(asked)
    }
}

/// The NPC's name, by either name of the field.
fn npc(fields: &mut Fields) -> Result<Option<String>, Refusal> {
    let (agent, npc) = (fields.text("agent")?, fields.text("npc")?);
    match (&agent, &npc) {
        (Some(one), Some(other)) if one != other => Err(fields.refuse("npc", "and `agent` name two NPCs")),
        _ => Ok(agent.or(npc)),
    }
}

fn tools(fields: &mut Fields, request: &mut Request) -> Result<(), Refusal> {
    let list = fields.list("tools")?.unwrap_or_default().into_iter().enumerate();
    request.tools =
        list.map(|(index, value)| tool(value, &format!("tools[{index}]"))).collect::<Result<_, _>>()?;
    let mut names = HashSet::new();
    if let Some(twice) = request.tools.iter().find(|tool| !names.insert(&tool.name)) {
        return Err(fields.refuse("tools", &format!("has two tools `{}`", twice.name)));
    }
    request.parallel_tool_calls = fields.flag("parallel_tool_calls")?.unwrap_or(true);
    request.tool_choice = match fields.take("tool_choice") {
        None => ToolChoice::Auto,
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            _ => return Err(fields.refuse("tool_choice", "must be auto, none, required or a function")),
        },
        Some(value) => {
            let mut choice = Fields::of(value, "tool_choice")?;
            if choice.needed("type")? != "function" {
                return Err(choice.refuse("type", "must be function"));
            }
            let mut function =
                Fields::of(choice.take("function").unwrap_or_default(), "tool_choice.function")?;
            let name = function.needed("name")?;
            function.end()?;
            choice.end()?;
            ToolChoice::Named(name)
        }
    };
    let known = match &request.tool_choice {
        ToolChoice::Auto | ToolChoice::None => true,
        ToolChoice::Required => !request.tools.is_empty(),
        ToolChoice::Named(name) => request.tools.iter().any(|tool| tool.name == *name),
    };
    if known {
        Ok(())
    } else {
        Err(fields.refuse("tool_choice", "asks for a tool that is not among `tools`"))
    }
}

fn tool(value: Value, place: &str) -> Result<Tool, Refusal> {
    let mut tool = Fields::of(value, place)?;
    if tool.needed("type")? != "function" {
        return Err(tool.refuse("type", "must be function"));
    }
    let mut function = Fields::of(tool.take("function").unwrap_or_default(), &tool.place("function"))?;
    tool.end()?;
    let name = function.needed("name")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > NAME || !name.chars().all(fits) {
        return Err(function.refuse("name", "must be 1 to 64 letters, digits, `_` and `-`"));
    }
    let description = function.text("description")?.unwrap_or_default();
    let parameters = match function.take("parameters") {
        None => json!({"type": "object", "properties": {}}),
        Some(schema @ Value::Object(_)) => schema,
        Some(_) => return Err(function.refuse("parameters", "must be a JSON schema of an object")),
    };
    // What can't be guaranteed is refused only where it is asked for.
    let strict = function.flag("strict")?.unwrap_or(false);
    function.end()?;
    Ok(Tool { name, description, parameters, strict })
}

fn draws(fields: &mut Fields) -> Result<SamplingOverrides, Refusal> {
    let repetition = fields.number("repetition_penalty", 0.01, 10.0)?;
    let repeat = fields.number("repeat_penalty", 0.01, 10.0)?;
    if repetition.is_some() && repeat.is_some() && repetition != repeat {
        return Err(fields.refuse("repeat_penalty", "and `repetition_penalty` differ"));
    }
    Ok(SamplingOverrides {
        repetition_penalty: repetition.or(repeat),
        presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?,
        frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?,
        penalty_last_n: None,
        temperature: fields.number("temperature", 0.0, 2.0)?,
        top_k: fields.count("top_k", 0)?,
        top_p: fields.number("top_p", 0.0, 1.0)?,
        min_p: fields.number("min_p", 0.0, 1.0)?,
        seed: Some(match fields.take("seed") {
            // Who wants the same draws again says so.
            None => random(),
            Some(seed) => seed
                .as_u64()
                .or_else(|| seed.as_i64().map(i64::cast_unsigned))
                .ok_or_else(|| fields.refuse("seed", "must be a whole number"))?,
        }),
    })
}

/// A number that is another one each time.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// What separates those who may not learn from each other, as vLLM calls it.
fn salt(fields: &mut Fields) -> Result<String, Refusal> {
    match fields.text("cache_salt")? {
        Some(salt) if salt.is_empty() || salt.len() > SALT => {
            Err(fields.refuse("cache_salt", &format!("must be a text of 1 to {SALT} bytes")))
        }
        salt => Ok(salt.unwrap_or_default()),
    }
}

fn limit(fields: &mut Fields) -> Result<Option<usize>, Refusal> {
    let (old, new) = (fields.count("max_tokens", 1)?, fields.count("max_completion_tokens", 1)?);
    match (old, new) {
        (Some(old), Some(new)) if old != new => {
            Err(fields.refuse("max_tokens", "and `max_completion_tokens` differ"))
        }
        _ => Ok(old.or(new)),
    }
}

fn schema(fields: &mut Fields) -> Result<Option<Value>, Refusal> {
    let Some(format) = fields.take("response_format") else { return Ok(None) };
    let mut format = Fields::of(format, "response_format")?;
    let kind = format.needed("type")?;
    let schema = match kind.as_str() {
        "text" => None,
        "json_object" => Some(json!({"type": "object"})),
        "json_schema" => {
            let place = format.place("json_schema");
            let mut given = Fields::of(format.take("json_schema").unwrap_or_default(), &place)?;
            let schema = given.take("schema").ok_or_else(|| given.refuse("schema", "is missing"))?;
            if given.has("description") {
                return Err(given.refuse("description", "is not shown to the model; say it in a message"));
            }
            let strict = given.flag("strict")?.unwrap_or(true);
            given.ignore(&["name"]);
            given.end()?;
            // An answer is valid for its schema, unless that is not asked for and can't be.
            let loosened = if strict { None } else { alara_engine::loosened(&schema).ok() };
            Some(loosened.map_or(schema, |(loose, _)| loose))
        }
        _ => return Err(format.refuse("type", "must be text, json_object or json_schema")),
    };
    format.end()?;
    Ok(schema)
}

fn stop(fields: &mut Fields) -> Result<Vec<String>, Refusal> {
    let list = match fields.take("stop") {
        None => Vec::new(),
        Some(Value::Array(list)) => list,
        Some(one) => vec![one],
    };
    let texts = list.iter().map(|text| text.as_str().filter(|text| !text.is_empty()).map(str::to_owned));
    let texts: Option<Vec<String>> = texts.collect();
    texts
        .filter(|texts| texts.len() <= STOPS)
        .ok_or_else(|| fields.refuse("stop", &format!("must be a text or up to {STOPS}, none of them empty")))
}

/// Whether to reason, as template variables and as OpenAI's effort.
fn thinking(fields: &mut Fields) -> Result<Option<bool>, Refusal> {
    let why = "can't be set so finely here; \"none\" turns reasoning off, `chat_template_kwargs` with enable_thinking turns it on";
    let effort = fields.has("reasoning_effort").then_some(false);
    fields.only("reasoning_effort", &[json!("none")], why)?;
    let Some(arguments) = fields.take("chat_template_kwargs") else { return Ok(effort) };
    let mut arguments = Fields::of(arguments, "chat_template_kwargs")?;
    let (one, other) = (arguments.flag("enable_thinking")?, arguments.flag("thinking")?);
    arguments.end()?;
    let said: Vec<bool> = [one, other, effort].into_iter().flatten().collect();
    if said.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(fields.refuse("chat_template_kwargs", "says two things about reasoning"));
    }
    Ok(said.first().copied())
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
