//! Runs the steps of a jinx.
//! `flow` is control flow, `work` runs a single step, `program` passes values to programs.
//! `search` finds passages of documents.
//! `branches` runs work in parallel, `memo` caches results.
//!
//! This module must not know files: it runs the steps that [`step`](crate::jinx::step) describes.
//! It calls other jinxes through the one place where tools run.

mod branches;
mod flow;
mod memo;
mod program;
mod responses;
mod search;
mod work;

use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::jinx::template::{Scope, fill, holds};
use crate::jinx::{Jinx, Skill};
use crate::run::session::Caller;
use crate::team::{Npc, Team};
use crate::types::ToolResult;
use flow::{Execution, Stop};
pub use memo::Memo;
pub use responses::Responses;

/// Most calls and conversations nested inside each other.
const DEEPEST: usize = 32;

/// Runs a jinx with complete arguments.
/// The result is the value that it returns, otherwise that of the last step, or of the step that
/// fails.
///
/// # Errors
/// The sandbox or the model failed.
pub fn run(jinx: &Jinx, arguments: Map<String, Value>, caller: &Caller) -> Result<ToolResult, Error> {
    if caller.scope.split('/').count() > DEEPEST {
        let error = format!("`{}` is not run: {DEEPEST} calls inside of each other are the limit", jinx.name);
        return Ok(ToolResult::failed(error));
    }
    let mut scope = known(jinx, caller);
    for (name, value) in arguments {
        scope.bind(&name, &value);
    }
    let mut run = Execution::new(jinx, scope);
    let ended = run.steps(&jinx.steps, caller);
    let mut result = match ended {
        Ok(()) => run.result.take().unwrap_or_else(|| ToolResult::succeeded(Value::Null)),
        Err(Stop::Return(value)) => ToolResult::succeeded(value),
        Err(Stop::Failed(failure)) => failure.result,
        Err(Stop::Error(error)) => return Err(error),
    };
    if let Some(ok) = jinx.ok.as_deref().filter(|_| result.ok) {
        run.scope.bind("out", &result.output);
        let error = match holds(ok, &run.scope) {
            Ok(true) => None,
            Ok(false) => Some(failure(jinx, ok, &run.scope)),
            Err(reason) => Some(format!("`ok` can't be evaluated: {reason}")),
        };
        result.ok = error.is_none();
        result.error = error.unwrap_or(result.error);
    }
    result.last = result.ok && (jinx.last || run.last);
    Ok(result)
}

/// Explains that the result of a jinx doesn't meet its condition `ok`.
fn failure(jinx: &Jinx, ok: &str, scope: &Scope) -> String {
    let text = jinx.failure.as_ref().and_then(|text| fill(&Value::from(text.as_str()), scope).ok());
    let text = text.map(|text| text.as_str().map_or_else(|| text.to_string(), str::to_owned));
    text.filter(|text| !text.trim().is_empty())
        .unwrap_or_else(|| format!("the steps ended, but `{ok}` is false"))
}

/// The names that every step of a jinx can use: `ctx`, `npc`, `team`, `skills`, `skill`.
fn known(jinx: &Jinx, caller: &Caller) -> Scope {
    let team = caller.team;
    let mut scope = Scope::default();
    let directive = caller.npc.map_or("", |npc| npc.directive.as_str());
    scope.know("ctx", &Value::Object(team.values.clone()));
    scope.know("npc", &json!({"name": caller.name(), "directive": directive}));
    scope.know("team", &json!({"name": team.name, "members": members(team, caller.npc)}));
    let skills = caller.npc.map(|npc| npc.skills.inline.iter().chain(&npc.skills.catalog));
    let skills = skills.into_iter().flatten().filter_map(|name| team.jinx(name));
    let skills = skills.filter_map(|jinx| Some((jinx.name.clone(), text(jinx, jinx.skill.as_ref()?))));
    scope.know("skills", &Value::Object(skills.collect()));
    if let Some(skill) = &jinx.skill {
        scope.know("skill", &text(jinx, skill));
    }
    scope
}

/// The members to whom the caller may delegate.
fn members(team: &Team, caller: Option<&Npc>) -> Vec<Value> {
    let members = team.members(caller).into_iter();
    members.map(|(name, description)| json!({"name": name, "description": description})).collect()
}

/// A skill as templates see it.
fn text(jinx: &Jinx, skill: &Skill) -> Value {
    let mut sections = Map::new();
    for (title, body) in &skill.sections {
        sections.insert(title.clone(), Value::from(body.as_str()));
    }
    json!({
        "name": jinx.name,
        "description": jinx.description,
        "introduction": skill.introduction,
        "sections": sections,
        "files": skill.files,
    })
}

#[cfg(test)]
mod tests;
