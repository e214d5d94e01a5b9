//! From the texts of a team's files to a [`Team`]: keys, defaults and what can be wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::files::{Diagnostic, Files, Source};
use super::nearest::{nearest, unknown};
use super::{Limits, Npc, Team};
use crate::error::Error;
use crate::jinx::{Action, Effect, Jinx, Llm, Place, Step, read_inputs};
use crate::model::ModelSpec;

/// Keys of files in the wild that are understood as harmless but have no effect here.
const CTX_WITHOUT_EFFECT: [&str; 14] = [
    "provider",
    "api_url",
    "api_key",
    "env",
    "mcp_servers",
    "databases",
    "providers",
    "jinxes",
    "SKILLS_DIRECTORY",
    "file_patterns",
    "preferences",
    "websites",
    "use_global_jinxes",
    "ascii_art",
];
const NPC_WITHOUT_EFFECT: [&str; 9] = [
    "provider",
    "api_url",
    "api_key",
    "mcp_servers",
    "ascii_art",
    "colors",
    "tools",
    "memory",
    "plain_system_message",
];
const JINX_WITHOUT_EFFECT: [&str; 6] = ["permissions", "npc", "tests", "sections", "file_context", "aliases"];

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawCtx {
    name: Option<String>,
    description: Option<String>,
    context: Option<String>,
    forenpc: Option<String>,
    model: Option<String>,
}

#[derive(Deserialize)]
struct RawNpc {
    name: Option<String>,
    #[serde(alias = "directive")]
    primary_directive: String,
    model: Option<String>,
    #[serde(default, alias = "jinxs")]
    jinxes: List,
    #[serde(default)]
    limits: Limits,
}

/// Names, or `"*"` for all.
#[derive(Deserialize)]
#[serde(untagged)]
enum List {
    One(String),
    Names(Vec<String>),
}

impl Default for List {
    fn default() -> Self {
        List::Names(Vec::new())
    }
}

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

/// Puts a team together. `stock` jinxes are replaced by the team's own of the same name.
pub fn team(name: &str, files: &Files, stock: &Files) -> Result<Team, Error> {
    let mut diagnostics = Vec::new();
    let ctx_source = files.ctx.first();
    for other in files.ctx.iter().skip(1) {
        diagnostics.push(other.diagnostic("", "a team has one .ctx file; this one is ignored".to_owned()));
    }
    let ctx: RawCtx = ctx_source.map(parse).transpose()?.unwrap_or_default();
    if let Some(source) = ctx_source {
        let known = ["name", "description", "context", "forenpc", "model"];
        check_keys(source, &[], &known, &CTX_WITHOUT_EFFECT, &mut diagnostics)?;
    }

    let own = jinxes(&files.jinx, &mut diagnostics)?;
    let mut all = jinxes(&stock.jinx, &mut Vec::new())?;
    all.extend(own);

    let mut npcs: BTreeMap<String, (Npc, &Source)> = BTreeMap::new();
    for source in &files.npc {
        let npc = npc(source, &all, ctx.model.as_ref(), &mut diagnostics)?;
        if let Some((_, before)) = npcs.get(&npc.name) {
            let before = before.path.display();
            return Err(wrong(
                source,
                "name",
                format!("the NPC `{}` is described in {before} too", npc.name),
            ));
        }
        npcs.insert(npc.name.clone(), (npc, source));
    }

    let names = || npcs.keys().map(String::as_str);
    let forenpc = match (&ctx.forenpc, ctx_source) {
        (Some(name), Some(source)) if !npcs.contains_key(name) => {
            return Err(wrong(source, "forenpc", unknown("NPC", name, names()).to_string()));
        }
        (Some(name), _) => name.clone(),
        (None, _) if npcs.len() == 1 => names().collect(),
        (None, source) => {
            let place = source.or(files.npc.first()).map(|source| source.path.clone()).unwrap_or_default();
            let known = names().collect::<Vec<_>>().join(", ");
            let message = format!("no `forenpc` says which NPC leads the team; there are: {known}");
            return Err(Error::Invalid { path: place, line: 1, message });
        }
    };
    Ok(Team {
        name: ctx.name.unwrap_or_else(|| name.to_owned()),
        description: ctx.description.unwrap_or_default().trim().to_owned(),
        context: ctx.context.unwrap_or_default().trim().to_owned(),
        forenpc,
        model: ctx.model.map(ModelSpec::named).unwrap_or_default(),
        npcs: npcs.into_values().map(|(npc, _)| npc).collect(),
        jinxes: all.into_values().collect(),
        diagnostics,
        ..Team::default()
    })
}

fn npc(
    source: &Source,
    jinxes: &BTreeMap<String, Jinx>,
    model: Option<&String>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<Npc, Error> {
    let raw: RawNpc = parse(source)?;
    let known = ["name", "primary_directive", "directive", "model", "jinxes", "jinxs", "limits"];
    check_keys(source, &[], &known, &NPC_WITHOUT_EFFECT, diagnostics)?;
    check_keys(
        source,
        &["limits"],
        &["turns", "turn_tokens", "reasoning_tokens", "tool_output_bytes", "seconds"],
        &[],
        diagnostics,
    )?;
    let mut list = Vec::new();
    let names = match raw.jinxes {
        List::One(star) if star == "*" => jinxes.keys().cloned().collect(),
        List::One(name) => vec![name],
        List::Names(names) => names,
    };
    for name in names {
        if !jinxes.contains_key(&name) {
            let message = unknown("jinx", &name, jinxes.keys().map(String::as_str)).to_string();
            return Err(wrong(source, "jinxes", message));
        }
        if list.contains(&name) {
            diagnostics.push(source.diagnostic("jinxes", format!("the jinx `{name}` is listed twice")));
        } else {
            list.push(name);
        }
    }
    Ok(Npc {
        name: raw.name.unwrap_or_else(|| source.stem()),
        directive: raw.primary_directive.trim().to_owned(),
        model: raw.model.or_else(|| model.cloned()).map(ModelSpec::named).unwrap_or_default(),
        jinxes: list,
        limits: raw.limits,
        path: source.path.clone(),
        ..Npc::default()
    })
}

fn jinxes(sources: &[Source], diagnostics: &mut Vec<Diagnostic>) -> Result<BTreeMap<String, Jinx>, Error> {
    let mut found: BTreeMap<String, (Jinx, &Source)> = BTreeMap::new();
    for source in sources {
        let jinx = jinx(source, diagnostics)?;
        if let Some((_, before)) = found.get(&jinx.name) {
            let before = before.path.display();
            let message = format!("the jinx `{}` is described in {before} too", jinx.name);
            return Err(wrong(source, "jinx_name", message));
        }
        found.insert(jinx.name.clone(), (jinx, source));
    }
    Ok(found.into_iter().map(|(name, (jinx, _))| (name, jinx)).collect())
}

/// Reads one jinx.
pub fn jinx(source: &Source, diagnostics: &mut Vec<Diagnostic>) -> Result<Jinx, Error> {
    let raw: RawJinx = parse(source)?;
    let known = ["jinx_name", "name", "description", "inputs", "effect", "network", "timeout", "steps"];
    check_keys(source, &[], &known, &JINX_WITHOUT_EFFECT, diagnostics)?;
    check_keys(source, &["steps"], &["name", "engine", "code", "prompt", "schema"], &["npc"], diagnostics)?;
    let name = raw.jinx_name.unwrap_or_else(|| source.stem());
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        let message = format!("the name `{name}` is not made of letters, digits, `_` and `-`");
        return Err(wrong(source, "jinx_name", message));
    }
    if raw.steps.is_empty() {
        return Err(wrong(source, "steps", format!("the jinx `{name}` has no steps")));
    }
    let timeout = match raw.timeout.map(Duration::try_from_secs_f64) {
        None => Duration::from_secs(60),
        Some(Ok(timeout)) if !timeout.is_zero() => timeout,
        Some(_) => {
            return Err(wrong(source, "timeout", "a timeout is a number of seconds above 0".to_owned()));
        }
    };
    let inputs = read_inputs(raw.inputs).map_err(|message| wrong(source, "inputs", message))?;
    let scripted = |step: &RawStep| step.engine != Engine::Llm && step.schema.is_some();
    if let Some(at) = raw.steps.iter().position(scripted) {
        let message =
            format!("step {} has a schema, but only an llm step's answer can be held to one", at + 1);
        return Err(wrong(source, "steps", message));
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

fn parse<T: DeserializeOwned>(source: &Source) -> Result<T, Error> {
    serde_saphyr::from_str(&source.text).map_err(|error| {
        let (line, column) = error.location().map_or((0, 0), |place| (place.line(), place.column()));
        // The place stands before the message already.
        let message = error.to_string().replace("<input>", &source.path.display().to_string());
        let prefix = format!("error: line {line} column {column}: ");
        let message = message.strip_prefix(&prefix).unwrap_or(&message).to_owned();
        Error::Yaml { path: source.path.clone(), line, column, message }
    })
}

fn wrong(source: &Source, key: &str, message: String) -> Error {
    let Diagnostic { path, line, message } = source.diagnostic(key, message);
    Error::Invalid { path, line, message }
}

/// Reports the keys of the mapping (or the mappings in the list) at `at` that have no effect.
fn check_keys(
    source: &Source,
    at: &[&str],
    known: &[&str],
    without_effect: &[&str],
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<(), Error> {
    let file: Value = parse(source)?;
    let place = at.iter().try_fold(&file, |value, key| value.get(key));
    let maps = match place {
        Some(Value::Array(items)) => items.iter().collect(),
        Some(one) => vec![one],
        None => Vec::new(),
    };
    for key in maps.iter().filter_map(|map| map.as_object()).flat_map(|map| map.keys()) {
        if known.contains(&key.as_str()) {
            continue;
        }
        let message = if without_effect.contains(&key.as_str()) {
            format!("the key `{key}` has no effect yet")
        } else {
            let hint = nearest(key, known.iter().copied());
            let hint = hint.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
            format!("unknown key `{key}`{hint}")
        };
        diagnostics.push(source.diagnostic(key, message));
    }
    Ok(())
}
