//! From the texts of a team's files to a [`Team`]: keys, defaults and what can be wrong.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::files::{Diagnostic, Files, Source};
use super::nearest::{nearest, unknown};
use super::{Limits, Npc, Team};
use crate::error::Error;
use crate::jinx::{Jinx, Place};
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
    let source = crate::source::Source { path: source.path.clone(), text: source.text.clone() };
    let mut found = Vec::new();
    let jinx = crate::jinx::read(&source, &mut found);
    for problem in found {
        let crate::source::Diagnostic { path, place: Place { line, .. }, severity, message } = problem;
        if severity == crate::source::Severity::Error {
            return Err(Error::Invalid { path, line, message });
        }
        diagnostics.push(Diagnostic { path, line, message });
    }
    let message = "the jinx can't be used".to_owned();
    jinx.ok_or(Error::Invalid { path: source.path, line: 0, message })
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
