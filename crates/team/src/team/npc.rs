//! Agents: `.npc` files, and Markdown files whose text is a directive.

use std::path::Path;

use super::check::unusable;
use super::ctx::list;
use super::gates::Gates;
use super::library::Library;
use super::model::Provider;
use super::{Npc, Skills, model, servers, small, strays};
use crate::calls::Calls;
use crate::expression::{Key, fits};
use crate::fields::{Fields, is_name};
use crate::hidden;
use crate::jinx::Jinx;
use crate::knowledge::{self, Knowledge};
use crate::markdown::{head, sections};
use crate::mcp::Server;
use crate::model_spec::ModelSpec;
use crate::phases::{self, Listed};
use crate::source::Source;
use crate::types::{Diagnostic, Limits, Location};
use crate::yaml::Node;

/// Keys about the appearance in other programs.
const LOOKS: [&str; 3] = ["ascii_art", "colors", "language"];
const WITHOUT_EFFECT: [&str; 8] = [
    "tools",
    "memory",
    "plain_system_message",
    "use_global_jinxes",
    "auto_execute",
    "databases",
    "file_context",
    "env",
];

/// Keys that bind an NPC: it does not run if one of them is unreadable.
const POLICIES: [&str; 2] = ["gate", "phases"];

/// What an NPC gets from its team.
pub struct Shared<'a> {
    /// The jinxes that it may list.
    pub library: &'a Library,
    pub providers: &'a [Provider],
    pub model: &'a ModelSpec,
    pub limits: Limits,
    /// The team's MCP servers, and those of the teams above, which can be named too.
    pub servers: [&'a [Server]; 2],
    pub gates: &'a Gates,
    /// The team's folder, which may contain documents.
    pub directory: Option<&'a Path>,
    /// The knowledge of every NPC without its own.
    pub knowledge: Option<&'a Knowledge>,
    /// Jinxes that every NPC also lists, with their location.
    pub jinxes: Option<(&'a Source, &'a [Node])>,
}

/// Reads a `.npc`; `None` if it is unusable, with an error.
pub fn read(
    source: &Source,
    node: &Node,
    shared: &Shared,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<(Npc, Location)> {
    let mut fields = Fields::new(source, node, diagnostics)?;
    fields.know(&LOOKS);
    fields.without_effect(&WITHOUT_EFFECT);
    let directive = fields.text(&["primary_directive", "directive"]);
    if directive.is_none() {
        fields.warning(
            Location::default(),
            "an NPC without a `primary_directive` does not know what it is for",
        );
    }
    let npc = build(&mut fields, &source.stem(), directive.unwrap_or_default(), &["jinxes", "jinxs"], shared);
    fields.unknown();
    npc
}

/// Reads the agents of a Markdown file.
/// One for each `##` section of `agents.md` and similar files, without tools.
/// Or one for the whole file, with name, model and jinxes in YAML at the top.
pub(crate) fn read_markdown(
    source: &Source,
    whole: bool,
    shared: &Shared,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<(Npc, Location)> {
    if !whole {
        let (_, sections) = sections(&source.text);
        let agents = sections.into_iter().map(|(title, directive)| {
            let heading = format!("## {title}");
            let line = source.text.lines().position(|line| line.trim_end() == heading);
            let location = Location { line: line.map_or(0, |index| index + 1), column: 1 };
            let mut npc = plain(&source.path, &slug(&title), directive, shared);
            add_shared(&mut npc, shared, diagnostics);
            (npc, location)
        });
        return agents.filter(|(npc, _)| !npc.name.is_empty()).collect();
    }
    let (node, body) = match head(source, diagnostics) {
        Ok(head) => head,
        Err(error) => {
            diagnostics.push(error);
            return Vec::new();
        }
    };
    let node = node.unwrap_or_else(Node::empty);
    let Some(mut fields) = Fields::new(source, &node, diagnostics) else { return Vec::new() };
    fields.know(&["description"]);
    let npc =
        build(&mut fields, &source.stem(), body.trim().to_owned(), &["jinxes", "jinxs", "tools"], shared);
    fields.unknown();
    npc.into_iter().collect()
}

/// Reads the keys that both kinds of files have.
fn build(
    fields: &mut Fields,
    stem: &str,
    directive: String,
    jinxes: &[&'static str],
    shared: &Shared,
) -> Option<(Npc, Location)> {
    let location = fields.location("name");
    let name = fields.text(&["name"]).unwrap_or_else(|| slug(stem));
    // All problems of the file are reported, even if it is unusable.
    let usable = is_name(&name);
    if !usable {
        fields.error(location, format!("the name `{name}` is not made of letters, digits, `_` and `-`"));
    }
    let source = fields.source();
    let mut npc = plain(&source.path, &name, directive, shared);
    npc.model = model::spec(fields, shared.providers).or(shared.model);
    npc.limits = model::limits(fields, shared.limits);
    npc.calls = calls(fields);
    npc.accepts_failure = accepts_failure(fields);
    if let Some(entry) = fields.entry(&["gate"]) {
        npc.gate = shared.gates.hold(source, &entry.value, fields.diagnostics());
    }
    if let Some(entry) = fields.entry(&["knowledge"]) {
        npc.knowledge = knowledge::read(source, &entry.value, shared.directory, fields.diagnostics());
    }
    npc.ledger_hidden = fields.flag(&["show_ledger"]) == Some(false);
    if let Some(entry) = fields.entry(jinxes) {
        let nodes = list(&entry.value);
        let mut entries: Vec<(Location, &str)> = Vec::new();
        for node in &nodes {
            match node.text() {
                // Existing Markdown files list their tools in one line.
                Some(text) => entries.extend(text.split(',').map(|text| (node.location, text.trim()))),
                None if node.is_null() => {
                    fields.warning(
                        node.location,
                        "an empty entry: perhaps a name that the template does not know",
                    );
                }
                None => fields.error(
                    node.location,
                    format!("a jinx is listed by its name, not by {}", node.describe()),
                ),
            }
        }
        list_as(&mut npc, &entries);
        add(&mut npc.jinxes, &entries, |_| true, source, shared.library, fields.diagnostics());
    }
    if let Some(entry) = fields.entry(&["mcp_servers"]) {
        let [team, above] = shared.servers;
        npc.servers = servers::read(source, &entry.value, team, above, fields.diagnostics());
    }
    npc.skills = skills(fields, shared.library);
    add_shared(&mut npc, shared, fields.diagnostics());
    let is_hidden = |name: &&String| shared.library.get(name).is_some_and(|jinx| jinx.hidden);
    let hidden: Vec<String> = npc.jinxes.iter().filter(is_hidden).cloned().collect();
    let built_in = [hidden::UNLOCK, hidden::CALL].into_iter().filter(|_| !hidden.is_empty());
    let built_in: Vec<String> = built_in.map(str::to_owned).collect();
    if let Some(taken) = built_in.iter().find(|name| npc.jinxes.contains(name)) {
        let message = format!(
            "with hidden jinxes `{taken}` is built in, so the jinx of this name is not among the tools: leave it out, or call it otherwise"
        );
        fields.warning(fields.location("jinxes"), message);
    }
    npc.small_models = small::read(fields, &npc.jinxes);
    if let Some(entry) = fields.entry(&["phases"]) {
        let entries = npc.entries.clone().unwrap_or_default();
        let served = !npc.servers.is_empty();
        let beside = |pattern: &str| {
            served || entries.iter().any(|entry| fits(pattern, entry.rsplit('/').next().unwrap_or(entry)))
        };
        let gates = &npc.gate.gates;
        let ledger = gates.iter().flat_map(|gate| gate.roots()).map(str::to_owned).collect();
        // A path that one of the gates can learn is known.
        let lost = |path: &[Key]| {
            let lost: Option<Vec<String>> = gates.iter().map(|gate| gate.lost(path)).collect();
            lost?.pop()
        };
        let tools = [npc.jinxes.as_slice(), &built_in].concat();
        let listed = Listed { tools: &tools, hidden: &hidden, beside: &beside, ledger: &ledger, lost: &lost };
        match phases::read(source, &entry.value, &listed, fields.diagnostics()) {
            Ok(phases) => npc.phases = Some(phases),
            Err(wrong) => drop(npc.gate.broken.get_or_insert(wrong)),
        }
    }
    let looks_up = npc.jinxes.iter().any(|name| name == "skill");
    if !npc.skills.catalog.is_empty() && !looks_up && shared.library.get("skill").is_some() {
        let location = fields.location("skills");
        fields.warning(
            location,
            "it can't look up the skills of its catalog without the jinx `skill` on its list",
        );
    }
    let refused = fields.refuse(&POLICIES, true);
    if let Some(refused) = refused.or(fields.refuse_slips(strays::binding)) {
        npc.gate.broken.get_or_insert(refused);
    }
    usable.then_some((npc, location))
}

/// `on_failure: once | accept`.
fn accepts_failure(fields: &mut Fields) -> bool {
    let location = fields.location("on_failure");
    match fields.text(&["on_failure"]).as_deref() {
        None | Some("once") => false,
        Some("accept") => true,
        Some(other) => {
            let known = "`once`, which asks once more, or `accept`";
            fields.error(
                location,
                format!("`{other}` is no rule for an answer after a failed call: it is {known}"),
            );
            false
        }
    }
}

/// `calls: free | auto | forced | thought`.
fn calls(fields: &mut Fields) -> Option<Calls> {
    let location = fields.location("calls");
    match fields.text(&["calls"])?.parse() {
        Ok(calls) => Some(calls),
        Err(error) => {
            fields.error(location, error);
            None
        }
    }
}

fn plain(path: &Path, name: &str, directive: String, shared: &Shared) -> Npc {
    let (model, limits, gate) = (shared.model.clone(), shared.limits, shared.gates.all.clone());
    let knowledge = shared.knowledge.cloned();
    let (name, path) = (name.to_owned(), path.to_owned());
    Npc { gate, name, directive, model, limits, knowledge, path, ..Npc::default() }
}

/// Adds the jinxes that the team's `.ctx` lists for all NPCs.
fn add_shared(npc: &mut Npc, shared: &Shared, diagnostics: &mut Vec<Diagnostic>) {
    let Some((source, nodes)) = shared.jinxes else { return };
    let entries: Vec<(Location, &str)> =
        nodes.iter().filter_map(|node| Some((node.location, node.text()?))).collect();
    // A list that adds nothing restricts no one.
    if !entries.is_empty() {
        list_as(npc, &entries);
    }
    // Remarks about these are made once, for the `.ctx`.
    let mut again = Vec::new();
    let known = npc.jinxes.clone();
    let mut list = Vec::new();
    add(&mut list, &entries, |_| true, source, shared.library, &mut again);
    npc.jinxes.extend(list.into_iter().filter(|name| !known.contains(name)));
    for remark in again.into_iter().filter(|remark| remark.path == source.path) {
        if !diagnostics.contains(&remark) {
            diagnostics.push(remark);
        }
    }
}

/// Records the entries of a list.
fn list_as(npc: &mut Npc, entries: &[(Location, &str)]) {
    let entries = entries.iter().map(|(_, entry)| (*entry).to_owned()).filter(|entry| !entry.is_empty());
    npc.entries.get_or_insert_default().extend(entries);
}

/// Adds the jinxes that match entries and are `of_kind` to a list, each once.
fn add(
    names: &mut Vec<String>,
    entries: &[(Location, &str)],
    of_kind: fn(&Jinx) -> bool,
    source: &Source,
    library: &Library,
    diagnostics: &mut Vec<Diagnostic>,
) {
    for (location, entry) in entries.iter().filter(|(_, entry)| !entry.is_empty()) {
        let (found, mut remark) = library.find(entry);
        let last = entry.rsplit('/').next().unwrap_or(entry);
        if let Some(file) = unusable(last, diagnostics).filter(|_| found.is_empty()) {
            remark = Some(format!("the jinx `{last}` can't be used, see {}; it is left out", file.display()));
        }
        if hidden::is_built_in(last) && found.is_empty() {
            let message =
                format!("`{last}` is among the tools of whoever lists hidden jinxes: leave it out here");
            remark = Some(message);
        }
        if let Some(remark) = remark {
            diagnostics.push(source.warning(*location, remark));
        }
        let several = found.len() > 1;
        // A jinx that can't run here is not offered; its own file has the diagnostic.
        for jinx in found.into_iter().filter(|jinx| jinx.missing.is_empty()) {
            if !of_kind(jinx) {
                if !several {
                    diagnostics.push(
                        source.warning(*location, format!("`{}` is no skill; it is left out", jinx.name)),
                    );
                }
            } else if !names.contains(&jinx.name) {
                names.push(jinx.name.clone());
            } else if !several {
                diagnostics
                    .push(source.warning(*location, format!("the jinx `{}` is listed twice", jinx.name)));
            }
        }
    }
}

/// `skills: {inline: […], catalog: […]}`, or a list, which is the catalog.
fn skills(fields: &mut Fields, library: &Library) -> Skills {
    let mut skills = Skills::default();
    let Some(entry) = fields.entry(&["skills"]) else { return skills };
    let source = fields.source();
    let read = |names: &mut Vec<String>, node: &Node, diagnostics: &mut Vec<Diagnostic>| {
        let nodes = list(node);
        let entries: Vec<(Location, &str)> =
            nodes.iter().map(|node| (node.location, node.text().unwrap_or_default())).collect();
        add(names, &entries, |jinx| jinx.skill.is_some(), source, library, diagnostics);
    };
    if entry.value.entries().is_none() {
        read(&mut skills.catalog, &entry.value, fields.diagnostics());
        return skills;
    }
    let Some(mut fields) = Fields::new(source, &entry.value, fields.diagnostics()) else { return skills };
    for (key, names) in [("inline", &mut skills.inline), ("catalog", &mut skills.catalog)] {
        if let Some(entry) = fields.entry(&[key]) {
            read(names, &entry.value, fields.diagnostics());
        }
    }
    fields.unknown();
    // A skill in the system prompt need not be looked up.
    skills.catalog.retain(|name| !skills.inline.contains(name));
    skills
}

/// Turns a heading or a file name into a name: words joined by `-`, without other signs.
fn slug(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let words = text.split_whitespace().map(|word| word.chars().filter(|c| keep(*c)).collect::<String>());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}
