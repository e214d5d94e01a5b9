//! A `.ctx` file: the settings that a team shares.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::model::Provider;
use super::{model, servers as mcp_servers, strays};
use crate::fields::Fields;
use crate::mcp::Server;
use crate::model_spec::ModelSpec;
use crate::source::Source;
use crate::team::Access;
use crate::types::{Diagnostic, Limits};
use crate::yaml::Node;

/// Keys about the appearance in other programs.
const LOOKS: [&str; 2] = ["ascii_art", "colors"];
/// Keys of existing files that steps and templates may read, and that have no other meaning here.
/// Loading a team doesn't read the files that `file_patterns` names.
const ONLY_VALUES: [&str; 4] = ["databases", "file_patterns", "preferences", "websites"];
const WITHOUT_EFFECT: [&str; 1] = ["env"];
/// Keys that can't be a team's own values: their author meant to bind an NPC.
const POLICIES: [&str; 2] = ["gates", "phases"];

/// The contents of a `.ctx`.
#[derive(Default)]
pub struct Ctx {
    pub name: Option<String>,
    pub description: String,
    pub context: String,
    pub forenpc: Option<Node>,
    pub providers: Vec<Provider>,
    pub model: ModelSpec,
    pub limits: Limits,
    /// Jinxes that every NPC also lists.
    pub jinxes: Vec<Node>,
    /// A folder of skills, relative to the team's folder.
    pub skills: Option<Node>,
    /// Whether to ignore the user's own jinxes.
    pub without_user_jinxes: bool,
    /// The MCP servers that NPCs may name.
    pub servers: Vec<Server>,
    /// Markdown files with agents, in the team's folder or its parent.
    pub agents: Vec<Node>,
    pub permissions: Option<Node>,
    /// The gates that bind all NPCs.
    pub gate: Option<Node>,
    /// Why the policies that bind all NPCs are unknown.
    pub refused: Option<Diagnostic>,
    pub hooks: Option<Node>,
    pub knowledge: Option<Node>,
    pub store: BTreeMap<String, Access>,
    /// The NPCs that `store` names, to check once the NPCs are known.
    pub store_npcs: Vec<Node>,
    pub values: Map<String, Value>,
    pub date: Option<String>,
}

/// Reads a `.ctx` below a team with `providers`, `servers` and `limits`.
/// Invalid parts are left out, with an error.
pub fn read(
    source: &Source,
    node: &Node,
    providers: &[Provider],
    servers: &[Server],
    limits: Limits,
    diagnostics: &mut Vec<Diagnostic>,
) -> Ctx {
    let Some(mut fields) = Fields::new(source, node, diagnostics) else {
        return Ctx { limits, ..Ctx::default() };
    };
    fields.know(&LOOKS);
    fields.without_effect(&WITHOUT_EFFECT);
    let mut found = model::providers(&mut fields);
    found.extend_from_slice(providers);
    let model = model::spec(&mut fields, &found);
    let context = fields.text(&["context"]).unwrap_or_default();
    let description = fields.text(&["description"]).unwrap_or_else(|| first_sentence(&context));
    let (store, store_npcs) = store(&mut fields);
    let listed = fields.entry(&["mcp_servers"]);
    let servers = listed
        .map(|entry| mcp_servers::read(source, &entry.value, &[], servers, fields.diagnostics()))
        .unwrap_or_default();
    let mut value = |key| fields.entry(&[key]).map(|entry| entry.value.clone());
    let (forenpc, skills, permissions) = (value("forenpc"), value("SKILLS_DIRECTORY"), value("permissions"));
    let (hooks, gate, knowledge) = (value("hooks"), value("gate"), value("knowledge"));
    let mut ctx = Ctx {
        name: fields.text(&["name"]),
        description,
        context,
        forenpc,
        model,
        providers: found,
        limits: model::limits(&mut fields, limits),
        jinxes: fields.entry(&["jinxes", "jinxs"]).map(|entry| list(&entry.value)).unwrap_or_default(),
        skills,
        without_user_jinxes: fields.flag(&["use_global_jinxes", "use_global_jinxs"]) == Some(false),
        agents: fields.entry(&["agents"]).map(|entry| list(&entry.value)).unwrap_or_default(),
        permissions,
        hooks,
        knowledge,
        gate,
        refused: None,
        servers,
        store,
        store_npcs,
        date: date(&mut fields),
        values: Map::new(),
    };
    for key in ONLY_VALUES {
        if let Some(entry) = fields.entry(&[key]) {
            ctx.values.insert(key.to_owned(), entry.value.value());
        }
    }
    ctx.refused = fields.refuse(&POLICIES, false);
    if let Some(slip) = fields.refuse_slips(strays::binding) {
        ctx.refused.get_or_insert(slip);
    }
    for (entry, near) in fields.others() {
        // Any other key is a value of the team's own; only a very likely typo is reported.
        if let Some(near) = near.filter(|near| is_slip(&entry.key, near)) {
            fields.warning(
                entry.location,
                format!("`{}` is a value of the team's own; did you mean the key `{near}`?", entry.key),
            );
        }
        ctx.values.insert(entry.key.clone(), entry.value.value());
    }
    ctx
}

/// The items of a node: itself, or those of a list.
pub fn list(node: &Node) -> Vec<Node> {
    node.items().map_or_else(|| vec![node.clone()], <[Node]>::to_vec)
}

/// Whether two words are so long and so similar that one is probably a typo.
fn is_slip(key: &str, near: &str) -> bool {
    key.len() > 4 && key.len().abs_diff(near.len()) <= 1
}

fn date(fields: &mut Fields) -> Option<String> {
    let location = fields.location("date");
    let date = fields.text(&["date"])?;
    match date.parse::<jiff::civil::Date>() {
        Ok(date) => Some(date.to_string()),
        Err(_) => {
            fields.error(location, format!("a date is written as 2026-01-31, not `{date}`"));
            None
        }
    }
}

/// `store: {key: {read: [npc, …], write: [npc, …]}}`; whatever is missing is open to the whole
/// team.
fn store(fields: &mut Fields) -> (BTreeMap<String, Access>, Vec<Node>) {
    let (mut store, mut npcs) = (BTreeMap::new(), Vec::new());
    let Some(entry) = fields.entry(&["store"]) else { return (store, npcs) };
    let source = fields.source();
    let Some(entries) = entry.value.entries() else {
        let found = entry.value.describe();
        fields.error(entry.value.location, format!("`store` must be a mapping of keys, not {found}"));
        return (store, npcs);
    };
    for entry in entries {
        // An unreadable list permits no one.
        let nobody = Access { read: Some(Vec::new()), write: Some(Vec::new()) };
        let Some(mut fields) = Fields::new(source, &entry.value, fields.diagnostics()) else {
            store.insert(entry.key.clone(), nobody);
            continue;
        };
        let mut who = |key| {
            let listed = list(&fields.entry(&[key])?.value);
            let names = listed.iter().filter_map(Node::text).map(str::to_owned).collect::<Vec<_>>();
            npcs.extend(listed);
            (names != ["*"]).then_some(names)
        };
        let access = Access { read: who("read"), write: who("write") };
        fields.unknown();
        store.insert(entry.key.clone(), access);
    }
    (store, npcs)
}

/// A description for a team that has none.
fn first_sentence(text: &str) -> String {
    let line = text.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let end =
        [". ", "! ", "? "].iter().filter_map(|end| line.find(end)).min().map_or(line.len(), |at| at + 1);
    line[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence() {
        let check = |text, expected| assert_eq!(first_sentence(text), expected, "{text}");
        check("One team.\nIt works. Well.", "One team.");
        check("No end\n\nsecond paragraph", "No end");
        check("", "");
    }
}
