//! The parameters that all wire formats share, under OpenAI's names, and those added by other
//! servers.

use std::collections::HashSet;

use alara_engine::{ReasoningEffort, Request, Role, Tool, ToolChoice};
use serde_json::{Value, json};

use crate::fields::Fields;
use crate::inner::InnerRequest;
use crate::refusal::Refusal;

mod sampling;
mod shape;

pub use shape::{format, response_format};

/// Fields that don't affect the answer: the user, and a service's processing.
const HARMLESS: [&str; 10] = [
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "cache_prompt",
    "keep_alive",
    "store",
    "guided_decoding_backend",
];
/// Fields that would affect the answer, but aren't supported yet.
/// Each has its neutral value as a JSON text.
const UNSUPPORTED: [(&str, &str); 40] = [
    // Tokens and numbers of answers, for formats that don't support these.
    ("logprobs", ""),
    ("top_logprobs", ""),
    ("prompt_logprobs", ""),
    ("n", "1"),
    ("best_of", "1"),
    ("use_beam_search", ""),
    ("length_penalty", "1.0"),
    // Which tokens are allowed.
    ("allowed_token_ids", ""),
    ("bad_words", ""),
    ("min_tokens", ""),
    ("stop_token_ids", ""),
    ("include_stop_str_in_output", ""),
    // Where an answer ends, and which part of it is returned.
    ("stop_regex", ""),
    ("no_stop_trim", ""),
    // Partial or delayed shapes of an answer.
    ("structural_tag", ""),
    ("grammar_lazy", ""),
    // Samplers.
    ("tfs_z", "1.0"),
    ("top_a", ""),
    ("top_n_sigma", "-1.0"),
    ("smoothing_factor", ""),
    ("epsilon_cutoff", ""),
    ("eta_cutoff", ""),
    ("adaptive_target", "-1.0"),
    ("samplers", ""),
    ("logits_processors", ""),
    ("custom_logit_processor", ""),
    // Old and alternative request formats.
    ("functions", ""),
    ("audio", ""),
    ("modalities", "[\"text\"]"),
    ("web_search_options", ""),
    ("documents", ""),
    ("chat_template", ""),
    ("lora", ""),
    ("lora_path", ""),
    ("echo", ""),
    ("suffix", "\"\""),
    ("truncate_prompt_tokens", ""),
    ("enable_response_messages", ""),
    ("background", ""),
    ("conversation", ""),
];
/// Maximum number of answers per request.
const CHOICES: usize = 64;
/// Maximum number of alternatives per token, as in OpenAI's API.
const TOP: usize = 20;
/// Maximum number of stop texts, and of bytes of one.
const STOPS: usize = 16;
const STOP: usize = 1024;
/// Maximum number of tools per request.
const TOOLS: usize = 1024;
/// Maximum length of a tool's name in characters, as in OpenAI's API.
const NAME: usize = 64;
/// Maximum size of a salt in bytes.
const SALT: usize = 256;

/// Parses the model or NPC, the sampling parameters, and the limits of the answer.
///
/// # Errors
/// A field that isn't supported, by name.
pub fn read(fields: &mut Fields) -> Result<InnerRequest, Refusal> {
    fields.unsupported(&UNSUPPORTED)?;
    fields.ignore(&HARMLESS);
    let mut asked = InnerRequest {
        // An empty field is ignored.
        model: fields.text("model")?.filter(|name| !name.is_empty()),
        npc: npc(fields)?,
        stream: fields.flag("stream")?.unwrap_or(false),
        timings: fields.flag("timings_per_token")?.unwrap_or(false),
        draws: sampling::read(fields)?,
        ..InnerRequest::default()
    };
    asked.request.salt = salt(fields)?;
    asked.request.max_tokens = limit(fields)?;
    asked.request.stop = stop(fields, "stop")?;
    asked.request.ignore_eos = fields.flag("ignore_eos")?.unwrap_or(false);
    Ok(asked)
}

/// Returns how many answers a request wants; call it before [`read`], which supports only one.
///
/// # Errors
/// There are none, or too many.
pub fn choices(fields: &mut Fields) -> Result<usize, Refusal> {
    let choices = fields.count("n", 1)?.unwrap_or(1);
    if choices > CHOICES {
        return Err(fields.refuse("n", &format!("must be at most {CHOICES}")));
    }
    if fields.count("best_of", 1)?.is_some_and(|best| best > choices) {
        return Err(fields.refuse("best_of", "can't be more than `n`: no answer is thrown away"));
    }
    Ok(choices)
}

/// Returns how many of the most likely alternatives to include per token of a chat's answer; `None`
/// for no tokens.
///
/// # Errors
/// There are too many, or alternatives are requested without tokens.
pub fn logprobs(fields: &mut Fields) -> Result<Option<usize>, Refusal> {
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.limit("top_logprobs", 0)?.unwrap_or(0);
    match wanted {
        _ if top > TOP => Err(fields.refuse("top_logprobs", &format!("must be at most {TOP}"))),
        false if top > 0 => Err(fields.refuse("top_logprobs", "takes `logprobs: true`")),
        wanted => Ok(wanted.then_some(top)),
    }
}

/// Treats the last message, if it is the assistant's, as the beginning of the answer, as
/// llama.cpp's server does, unless the request disables that.
/// If the answer has a schema or grammar, or must be a call, the request must enable it explicitly:
/// such an answer usually begins a turn.
/// Call it after parsing these.
///
/// # Errors
/// It is enabled without such a message, or both enabled and disabled.
pub fn prefill(fields: &mut Fields, request: &mut Request) -> Result<(), Refusal> {
    let wanted = fields.flag("continue_final_message")?;
    let prompted = fields.flag("add_generation_prompt")?;
    if wanted == Some(true) && prompted == Some(true) {
        return Err(fields.refuse("continue_final_message", "and `add_generation_prompt` can't both be true"));
    }
    let last = request.messages.last();
    let begun = last.is_some_and(|last| {
        last.role == Role::Assistant && last.tool_calls.is_empty() && !last.content.trim().is_empty()
    });
    if wanted == Some(true) && !begun {
        return Err(fields.refuse(
            "continue_final_message",
            "takes a last message of the assistant that has text and no calls",
        ));
    }
    let shaped = request.schema.is_some() || request.grammar.is_some() || request.tool_choice.must_call();
    let asked = wanted.or(prompted.map(|prompted| !prompted));
    request.continue_final_message = begun && asked.unwrap_or(!shaped);
    Ok(())
}

/// Returns whether a stream ends with the usage.
///
/// # Errors
/// The answer isn't streamed.
pub fn stream_options(fields: &mut Fields, stream: bool) -> Result<bool, Refusal> {
    let Some(mut options) = fields.object("stream_options")? else { return Ok(false) };
    if !stream {
        return Err(fields.refuse("stream_options", "is for streams only"));
    }
    let include_usage = options.flag("include_usage")?.unwrap_or(false);
    options.ignore(&["include_obfuscation"]);
    options.end();
    Ok(include_usage)
}

/// Refuses contradictory fields.
///
/// # Errors
/// Two fields contradict each other.
pub fn check(fields: &Fields, request: &Request) -> Result<(), Refusal> {
    let shaped = request.schema.is_some() || request.grammar.is_some();
    if request.ignore_eos && (shaped || !request.tools.is_empty()) {
        return Err(fields.refuse("ignore_eos", "can't be honoured with tools, a schema or a grammar"));
    }
    if request.schema.is_some() && request.grammar.is_some() {
        return Err(fields.refuse("grammar", "and a schema can't both shape the answer"));
    }
    Ok(())
}

/// Returns the NPC's name, from either name of the field.
fn npc(fields: &mut Fields) -> Result<Option<String>, Refusal> {
    let (agent, npc) = (fields.text("agent")?, fields.text("npc")?);
    match (&agent, &npc) {
        (Some(one), Some(other)) if one != other => Err(fields.refuse("npc", "and `agent` name two NPCs")),
        _ => Ok(agent.or(npc)),
    }
}

/// Parses the tools, and whether one must be called.
///
/// # Errors
/// A field that isn't supported, by name.
pub fn tools(fields: &mut Fields, request: &mut Request) -> Result<(), Refusal> {
    for mut tool in fields.objects("tools")? {
        if tool.needed("type")? != "function" {
            return Err(tool.refuse("type", "must be function"));
        }
        let function = tool.take("function").unwrap_or_default();
        let function = tool.within(function, "function")?;
        tool.end();
        request.tools.push(self::function(function, "parameters")?);
    }
    unique(fields, &request.tools)?;
    let parallel = fields.flag("parallel_tool_calls")?;
    let choice = match fields.take("tool_choice") {
        None => ToolChoice::Auto,
        Some(Value::String(choice)) => choice_called(fields, &choice)?,
        Some(value) => {
            let mut choice = fields.within(value, "tool_choice")?;
            let chosen = match choice.needed("type")?.as_str() {
                "function" => {
                    let function = choice.take("function").unwrap_or_default();
                    let mut function = choice.within(function, "function")?;
                    let name = function.needed("name")?;
                    function.end();
                    ToolChoice::Named(name)
                }
                "allowed_tools" => {
                    let allowed = choice.take("allowed_tools").unwrap_or_default();
                    among(choice.within(allowed, "allowed_tools")?)?
                }
                _ => return Err(choice.refuse("type", "must be function or allowed_tools")),
            };
            choice.end();
            chosen
        }
    };
    choose(fields, request, choice, parallel)
}

/// Parses a choice among tools: `{mode: auto | required, tools: [{type: function, …}]}`.
///
/// # Errors
/// A part is missing, or isn't a function.
pub fn among(mut allowed: Fields) -> Result<ToolChoice, Refusal> {
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    for mut tool in allowed.objects("tools")? {
        if tool.needed("type")? != "function" {
            return Err(tool.refuse("type", "must be function"));
        }
        // In the format of chat completions and responses.
        let name = match tool.take("function") {
            Some(function) => tool.within(function, "function")?.needed("name")?,
            None => tool.needed("name")?,
        };
        if known.insert(name.clone()) {
            names.push(name);
        }
        tool.end();
    }
    let mode = allowed.text("mode")?.unwrap_or_else(|| "auto".to_owned());
    let required = match mode.as_str() {
        "auto" => false,
        "required" => true,
        _ => return Err(allowed.refuse("mode", "must be auto or required")),
    };
    allowed.end();
    Ok(ToolChoice::Among { names, required })
}

/// Parses OpenAI's word for a choice.
///
/// # Errors
/// There is no such word.
pub fn choice_called(fields: &Fields, choice: &str) -> Result<ToolChoice, Refusal> {
    match choice {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        _ => Err(fields.refuse("tool_choice", "must be auto, none, required or a function")),
    }
}

/// Applies a choice, and whether several calls may be made at a time, if the client sets it.
/// By default, a turn that must call makes one call: otherwise it would never end.
///
/// # Errors
/// There is no such tool.
pub fn choose(
    fields: &Fields,
    request: &mut Request,
    choice: ToolChoice,
    parallel: Option<bool>,
) -> Result<(), Refusal> {
    let known = match &choice {
        ToolChoice::Auto | ToolChoice::None => true,
        ToolChoice::Required => !request.tools.is_empty(),
        ToolChoice::Named(name) => request.tools.iter().any(|tool| tool.name == *name),
        ToolChoice::Among { names, required } => {
            let tools: HashSet<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
            names.iter().all(|name| tools.contains(name.as_str())) && !(*required && names.is_empty())
        }
    };
    if !known {
        return Err(fields.refuse("tool_choice", "asks for a tool that is not among `tools`"));
    }
    request.parallel_tool_calls = parallel.unwrap_or(!choice.must_call());
    request.tool_choice = choice;
    Ok(())
}

/// Refuses duplicate tool names, and too many tools.
///
/// # Errors
/// There are some.
pub fn unique(fields: &Fields, tools: &[Tool]) -> Result<(), Refusal> {
    if tools.len() > TOOLS {
        return Err(fields.refuse("tools", &format!("has {} tools; the most is {TOOLS}", tools.len())));
    }
    let mut names = HashSet::new();
    match tools.iter().find(|tool| !names.insert(&tool.name)) {
        Some(twice) => Err(fields.refuse("tools", &format!("has two tools `{}`", twice.name))),
        None => Ok(()),
    }
}

/// Parses a tool with a name, a description and, in the field `parameters`, a schema.
///
/// # Errors
/// A field that isn't supported, by name.
pub fn function(mut function: Fields, parameters: &str) -> Result<Tool, Refusal> {
    let name = function.needed("name")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > NAME || !name.chars().all(fits) {
        return Err(function.refuse("name", "must be 1 to 64 letters, digits, `_` and `-`"));
    }
    let description = function.text("description")?.unwrap_or_default();
    let schema = match function.take(parameters) {
        None => json!({"type": "object", "properties": {}}),
        Some(schema @ Value::Object(_)) => schema,
        Some(_) => return Err(function.refuse(parameters, "must be a JSON schema of an object")),
    };
    // A schema that can't be guaranteed is refused only if `strict` is set.
    let strict = function.flag("strict")?.unwrap_or(false);
    function.ignore(&["cache_control"]);
    function.end();
    Ok(Tool { name, description, parameters: schema, strict })
}

/// Returns the salt, vLLM's name for a value that isolates the prefix caches of different users.
///
/// # Errors
/// The salt is empty or too long.
pub fn salt(fields: &mut Fields) -> Result<String, Refusal> {
    match fields.text("cache_salt")? {
        Some(salt) if salt.is_empty() || salt.len() > SALT => {
            Err(fields.refuse("cache_salt", &format!("must be a text of 1 to {SALT} bytes")))
        }
        salt => Ok(salt.unwrap_or_default()),
    }
}

fn limit(fields: &mut Fields) -> Result<Option<usize>, Refusal> {
    // OpenAI's two names, and llama.cpp's.
    let mut limit = None;
    for name in ["max_tokens", "max_completion_tokens", "n_predict"] {
        let given = fields.limit(name, 1)?;
        if given.is_some() && limit.is_some() && given != limit {
            return Err(fields.refuse(name, "and another limit of the answer's tokens differ"));
        }
        limit = limit.or(given);
    }
    Ok(limit)
}

/// Returns the texts that end the answer, in the field `name`.
///
/// # Errors
/// The field has other values, or too many.
pub fn stop(fields: &mut Fields, name: &str) -> Result<Vec<String>, Refusal> {
    let list = match fields.take(name) {
        None => Vec::new(),
        Some(Value::Array(list)) => list,
        Some(one) => vec![one],
    };
    // Clients send null or an empty text if they want no stop texts.
    let says = |text: &&Value| !text.is_null() && text.as_str() != Some("");
    let fits = |text: &&str| text.len() <= STOP;
    let texts = list.iter().filter(says).map(|text| text.as_str().filter(fits).map(str::to_owned));
    let texts: Option<Vec<String>> = texts.collect();
    texts.filter(|texts| texts.len() <= STOPS).ok_or_else(|| {
        fields.refuse(name, &format!("must be a text or up to {STOPS}, of at most {STOP} bytes each"))
    })
}

/// Parses whether to reason, as template variables and as OpenAI's effort, and the maximum number
/// of reasoning tokens.
///
/// # Errors
/// The fields contradict each other, or a variable is unknown.
pub fn thinking(fields: &mut Fields, request: &mut Request) -> Result<(), Refusal> {
    if let Some(effort) = fields.text("reasoning_effort")? {
        self::effort(fields, "reasoning_effort", &effort, request)?;
    }
    for name in ["thinking_budget", "thinking_token_budget", "thinking_budget_tokens"] {
        request.reasoning_tokens = fields.limit(name, 0)?.or(request.reasoning_tokens);
    }
    let Some(mut arguments) = fields.object("chat_template_kwargs")? else { return Ok(()) };
    let (one, other) = (arguments.flag("enable_thinking")?, arguments.flag("thinking")?);
    let budget = arguments.limit("thinking_budget", 0)?;
    request.reasoning_tokens = budget.or(request.reasoning_tokens);
    arguments.refuse_rest("is no variable that this server sets")?;
    let said: Vec<bool> = [one, other, request.thinking].into_iter().flatten().collect();
    if said.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(fields.refuse("chat_template_kwargs", "says two things about reasoning"));
    }
    request.thinking = said.first().copied();
    Ok(())
}

/// Applies a reasoning effort: for models without levels, it only turns reasoning on or off.
///
/// # Errors
/// There is no such effort.
pub fn effort(fields: &Fields, name: &str, effort: &str, request: &mut Request) -> Result<(), Refusal> {
    let (thinking, level) = match effort {
        "none" => (false, None),
        "minimal" => (false, Some(ReasoningEffort::Low)),
        "low" => (true, Some(ReasoningEffort::Low)),
        "medium" => (true, Some(ReasoningEffort::Medium)),
        "high" | "xhigh" | "max" => (true, Some(ReasoningEffort::High)),
        _ => return Err(fields.refuse(name, "must be none, minimal, low, medium, high or xhigh")),
    };
    (request.thinking, request.reasoning_effort) = (Some(thinking), level);
    Ok(())
}
