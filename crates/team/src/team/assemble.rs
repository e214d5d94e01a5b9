//! Builds a [`Team`] from its files: what depends on what, and what a team inherits from the one
//! above it.
//!
//! The order is fixed: jinxes (templates may list them), the `.ctx`, the NPCs, the sub-teams.
//! An unusable file is left out with an error, and everything else works.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use alara_text::nearest;
use serde_json::{Map, Value};

use super::check::unusable;
use super::ctx::{self, Ctx};
use super::files::{File, Folder, JinxFile, Listing, Watch, jinxes};
use super::gates::Gates;
use super::hooks::{self, Hook};
use super::library::{Layer, Library};
use super::model::Provider;
use super::npc::{self, Shared};
use super::template::{Rendered, Templates};
use super::{Npc, Team, rules, strays};
use crate::error::Error;
use crate::knowledge;
use crate::mcp::Server;
use crate::model_spec::ModelSpec;
use crate::source::Source;
use crate::team::Rule;
use crate::types::{Diagnostic, Limits, Location};
use crate::yaml::Node;

/// What a team inherits: from the team that it is part of, or from alara and the user.
/// Context, store and values are not inherited.
#[derive(Default)]
pub struct Above {
    /// Jinxes that the team's own hide, by name.
    pub jinxes: Library,
    /// The user's own jinxes, between `jinxes` and the team's.
    pub user: Layer,
    pub model: ModelSpec,
    pub providers: Vec<Provider>,
    /// Servers that are visible only if they are named.
    pub servers: Vec<Server>,
    pub limits: Limits,
    /// Rules that don't permit anything.
    pub rules: Vec<Rule>,
    /// Folders whose modules the jinxes' programs may import; the first is the work directory.
    pub modules: Vec<PathBuf>,
    /// Hooks about calls.
    pub hooks: Vec<Hook>,
    /// The gates that can be named, and those that bind all NPCs.
    pub gates: Gates,
}

/// Builds a team.
/// Problems in its files and in those of its sub-teams go to `diagnostics`; other paths to watch
/// for changes go to `watch`.
///
/// # Errors
/// No NPC is usable, so the team has no lead.
pub fn team(
    listing: &Listing,
    above: &Above,
    watch: &mut Watch,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<Team, Error> {
    let mut files = Files { rendered: Vec::new(), diagnostics: Vec::new(), of_templates: Vec::new() };
    let mut below = Vec::new();
    let team = assemble(listing, above, &mut files, watch, &mut below);
    diagnostics.extend(files.diagnostics.into_iter().map(|diagnostic| {
        let of = files.rendered.iter().find(|rendered| rendered.source.path == diagnostic.path);
        of.map_or(diagnostic.clone(), |rendered| rendered.placed(diagnostic))
    }));
    diagnostics.append(&mut files.of_templates);
    diagnostics.append(&mut below);
    team
}

/// The templates of a team's files, and the diagnostics of their rendered texts.
struct Files {
    rendered: Vec<Rendered>,
    diagnostics: Vec<Diagnostic>,
    /// Diagnostics with locations in the files, not in the rendered texts.
    of_templates: Vec<Diagnostic>,
}

impl Files {
    /// Renders and parses a file; `None` if it is unusable, with an error.
    fn open(
        &mut self,
        file: &File,
        templates: &Templates,
        ctx: &Map<String, Value>,
    ) -> Option<(Source, Node)> {
        let source = file.read(&mut self.diagnostics)?;
        let rendered = templates.render(&source, ctx, &mut self.of_templates);
        let rendered = rendered.map_err(|error| self.diagnostics.push(error)).ok()?;
        let source = rendered.source.clone();
        self.rendered.push(rendered);
        let node =
            Node::parse(&source, &mut self.diagnostics).map_err(|error| self.diagnostics.push(error)).ok()?;
        Some((source, node))
    }
}

fn assemble(
    listing: &Listing,
    above: &Above,
    files: &mut Files,
    watch: &mut Watch,
    below: &mut Vec<Diagnostic>,
) -> Result<Team, Error> {
    let folder = listing.folder.name();
    let mut own = Layer::read(&listing.jinxes, &mut files.diagnostics);
    if listing.folder.on_disk().is_none() {
        own = own.trusted();
    }
    let names = above.jinxes.references().chain(above.user.names()).chain(own.names());
    let templates = Templates::new(names.map(|(name, path)| (name.to_owned(), path.to_owned())).collect());

    let file = chosen(&listing.ctx, &folder, &mut files.diagnostics);
    let opened = file.and_then(|file| files.open(file, &templates, &Map::new()));
    let ctx = match &opened {
        Some((source, node)) => {
            ctx::read(source, node, &above.providers, &above.servers, above.limits, &mut files.diagnostics)
        }
        None => Ctx { providers: above.providers.clone(), limits: above.limits, ..Ctx::default() },
    };
    let source = opened.as_ref().map(|(source, _)| source);
    if let (Some(source), Some(node)) = (source, &ctx.skills) {
        own.add(
            &skills(&listing.folder, node, source, watch, &mut files.diagnostics),
            &mut files.diagnostics,
        );
    }
    if listing.folder.on_disk().is_some() {
        own.look(&above.modules);
    }
    let base = match ctx.without_user_jinxes {
        true => above.jinxes.clone(),
        false => above.jinxes.under(&above.user, &mut files.diagnostics),
    };
    let library = base.under(&own, &mut files.diagnostics);

    let known_jinxes = library.clone().into_jinxes();
    let mut gates = above.gates.read(&listing.gates, &known_jinxes, &mut files.diagnostics);
    if let (Some(source), Some(node)) = (source, &ctx.gate) {
        gates.all = gates.hold(source, node, &mut files.diagnostics);
    }
    // Rules, hooks and gates that can't be read must not fail open.
    let rules_file = listing.permissions.as_ref();
    let opened_rules = rules_file.and_then(|file| files.open(file, &templates, &Map::new()));
    let unreadable = [file.filter(|_| opened.is_none()), rules_file.filter(|_| opened_rules.is_none())];
    let unreadable: Vec<&File> = unreadable.into_iter().flatten().collect();
    let lost = unreadable.iter().map(|file| {
        let unread = Source { path: file.path.clone(), text: String::new() };
        let message = "it can't be used, and may have rules, hooks or gates: nobody of the team runs";
        unread.error(Location::default(), message)
    });
    let misplaced = opened_rules.as_ref().and_then(|(source, node)| rules::misplaced(source, node));
    let hooks_node = source.zip(ctx.hooks.as_ref());
    let bad_hooks = hooks_node.into_iter().flat_map(|(source, node)| hooks::unreadable(source, node));
    let reasons = ctx.refused.iter().cloned().chain(lost).chain(misplaced).chain(bad_hooks);
    for reason in reasons.chain(strays::rules(&listing.folder)) {
        gates.all.refuse(reason, &mut files.diagnostics);
    }
    files.diagnostics.extend(strays::jinxes(&listing.folder, ctx.skills.as_ref().and_then(Node::text)));
    let directory = listing.folder.on_disk();
    let knowledge = source.zip(ctx.knowledge.as_ref()).and_then(|(source, node)| {
        knowledge::read(source, node, directory.as_deref(), &mut files.diagnostics)
    });
    let shared = Shared {
        directory: directory.as_deref(),
        knowledge: knowledge.as_ref(),
        gates: &gates,
        library: &library,
        providers: &ctx.providers,
        model: &ctx.model.clone().or(&above.model),
        limits: ctx.limits,
        servers: [&ctx.servers, &above.servers],
        jinxes: source.map(|source| (source, ctx.jinxes.as_slice())),
    };
    let mut npcs = npcs(listing, &ctx, source, &templates, &shared, files, watch);
    // The names of a server's tools are unknown before it runs.
    let known = npcs.iter().all(|npc| npc.servers.is_empty()).then_some(&library);
    let mut rules = above.rules.clone();
    let permissions = source.zip(ctx.permissions.as_ref());
    if let Some((source, node)) = permissions {
        rules.extend(rules::read(source, node, &above.rules, &mut files.diagnostics));
    }
    let opened_rules = opened_rules.as_ref().map(|(source, node)| (source, node));
    if let Some((source, node)) = opened_rules {
        let read = rules::read(source, node, &above.rules, &mut files.diagnostics);
        rules::join(&mut rules, &read, source, &mut files.diagnostics);
    }
    let mut reasons = Vec::new();
    if let Some(library) = known {
        let others = other_tools(listing, &npcs);
        for (source, node) in permissions.into_iter().chain(opened_rules) {
            reasons.extend(rules::unknown(source, node, library, &others, &mut files.diagnostics));
        }
    }
    rules.extend(unreadable.iter().map(|file| rules::cautious(&file.path)));
    let mut hooks = above.hooks.clone();
    if let (Some(source), Some(node)) = (source, &ctx.hooks) {
        let others = known.is_none();
        hooks.extend(hooks::read(source, node, &library, others, &mut reasons, &mut files.diagnostics));
    }
    for held in npcs.iter_mut().map(|npc| &mut npc.gate).chain([&mut gates.all]) {
        held.broken = held.broken.take().or_else(|| reasons.first().cloned());
    }
    let forenpc = lead(listing, &ctx, source, &npcs, files)?;
    if let Some(source) = source {
        for node in &ctx.store_npcs {
            let name = node.text().unwrap_or_default();
            let known = name == "*" || npcs.iter().any(|npc| npc.name == name);
            if !known && unusable(name, &files.diagnostics).is_none() {
                let message = unknown_npc(name, &npcs);
                files.diagnostics.push(source.error(node.location, message));
            }
        }
    }

    for server in ctx.servers.iter().filter(|server| Some(&server.path) == source.map(|source| &source.path))
    {
        let names = |npc: &Npc| npc.servers.iter().any(|other| other.start() == server.start());
        if let (Some(source), false) = (source, npcs.iter().any(names) || !listing.teams.is_empty()) {
            let name = &server.name;
            let message = format!(
                "no NPC names the MCP server `{name}`: list it under `mcp_servers` of those that are to use it"
            );
            files.diagnostics.push(source.warning(server.location, message));
        }
    }

    let handed_down = Above {
        jinxes: library,
        user: Layer::default(),
        model: ctx.model.clone().or(&above.model),
        providers: ctx.providers,
        servers: ctx.servers.iter().chain(&above.servers).cloned().collect(),
        limits: ctx.limits,
        rules: rules::strict(&rules),
        modules: above.modules.clone(),
        gates,
        hooks: hooks.iter().filter(|hook| hook.event.is_about_tools()).cloned().collect(),
    };
    let mut teams: Vec<Team> = Vec::new();
    for listing in &listing.teams {
        match team(listing, &handed_down, watch, below) {
            Ok(team) => add_team(teams.as_mut(), team, &npcs, files),
            Err(error) => {
                let path = listing.folder.path();
                files
                    .diagnostics
                    .push(Source { path, text: String::new() }.error(Location::default(), error.to_string()));
            }
        }
    }
    handed_down.gates.check(&known_jinxes, &mut npcs, &mut teams, &mut files.diagnostics);
    Ok(Team {
        name: ctx.name.unwrap_or(folder),
        description: ctx.description,
        context: ctx.context,
        forenpc,
        model: handed_down.model,
        npcs,
        teams,
        store: ctx.store,
        servers: ctx.servers,
        rules: rules::expanded(&rules, &handed_down.jinxes),
        hooks,
        knowledge,
        jinxes: handed_down.jinxes.into_jinxes(),
        values: ctx.values,
        date: ctx.date,
        directory: listing.folder.on_disk(),
        ..Team::default()
    })
}

/// Tools that rules of a team may be about, in addition to its jinxes: jinxes of the teams below,
/// and a client's tools, which are known by the lists of the NPCs.
fn other_tools(listing: &Listing, npcs: &[Npc]) -> BTreeSet<String> {
    let entries = npcs.iter().flat_map(|npc| npc.entries.iter().flatten());
    let listed = entries.filter_map(|entry| entry.rsplit('/').next().filter(|name| !name.contains('*')));
    let mut names: BTreeSet<String> = listed.map(str::to_owned).collect();
    for team in &listing.teams {
        names.extend(team.jinxes.iter().map(JinxFile::stem));
        names.append(&mut other_tools(team, &[]));
    }
    names
}

/// The `.ctx` that is used: `team.ctx`, the one with the folder's name, `npcsh.ctx`, or the first
/// by name.
fn chosen<'a>(ctx: &'a [File], folder: &str, diagnostics: &mut Vec<Diagnostic>) -> Option<&'a File> {
    let named = |stem: &str| ctx.iter().find(|file| file.stem() == stem);
    let chosen = named("team").or_else(|| named(folder)).or_else(|| named("npcsh")).or(ctx.first())?;
    for other in ctx.iter().filter(|other| other.path != chosen.path) {
        let message = format!("a team has one .ctx file: {} counts, this one is ignored", chosen.name());
        diagnostics.push(
            Source { path: other.path.clone(), text: String::new() }.warning(Location::default(), message),
        );
    }
    Some(chosen)
}

/// The jinxes in the folder of skills that a `.ctx` names, relative to the team's folder.
fn skills(
    folder: &Folder,
    node: &Node,
    source: &Source,
    watch: &mut Watch,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<JinxFile> {
    let (path, root) = match (folder, node.text().map(Path::new)) {
        (Folder::Disk(folder, root), Some(path)) => (folder.join(path), root.join("..")),
        _ => Default::default(),
    };
    if !path.is_dir() {
        watch.absent.push(path);
        let message = format!("there is no folder of skills {}", node.value());
        diagnostics.push(source.error(node.location, message));
        return Vec::new();
    }
    // Neither elsewhere, nor everything around the team's folder.
    let below = match (path.canonicalize(), root.canonicalize()) {
        (Ok(path), Ok(root)) => path != root && path.starts_with(root),
        _ => false,
    };
    if !below || node.text().is_some_and(|path| Path::new(path).is_absolute()) {
        let message = format!(
            "the folder of skills {} is not used: copy it into the team's folder or beside it, and name it by its relative path",
            node.value()
        );
        diagnostics.push(source.warning(node.location, message));
        return Vec::new();
    }
    watch.jinxes.push(path.clone());
    jinxes(&Folder::root(path), diagnostics)
}

/// The NPCs by name.
/// Of several with the same name the first one wins, and `.npc` files come before Markdown.
fn npcs(
    listing: &Listing,
    ctx: &Ctx,
    source: Option<&Source>,
    templates: &Templates,
    shared: &Shared,
    files: &mut Files,
    watch: &mut Watch,
) -> Vec<Npc> {
    let mut found: Vec<(Npc, Location)> = Vec::new();
    for file in &listing.npc {
        let Some((source, node)) = files.open(file, templates, &ctx.values) else { continue };
        if let Some(npc) = npc::read(&source, &node, shared, &mut files.diagnostics) {
            add_npc(&mut found, npc, files);
        }
    }
    let further = markdown(listing, ctx, source, files, watch);
    for file in listing.agents.iter().chain(&further) {
        let Some(source) = file.read(&mut files.diagnostics) else { continue };
        let whole = listing.agents.iter().any(|own| own.path == file.path) && file.name() != "agents.md";
        for npc in npc::read_markdown(&source, whole, shared, &mut files.diagnostics) {
            add_npc(&mut found, npc, files);
        }
    }
    let mut npcs: Vec<Npc> = found.into_iter().map(|(npc, _)| npc).collect();
    npcs.sort_by(|left, right| left.name.cmp(&right.name));
    npcs
}

fn add_npc(found: &mut Vec<(Npc, Location)>, (npc, location): (Npc, Location), files: &mut Files) {
    let Some((before, _)) = found.iter().find(|(before, _)| before.name == npc.name) else {
        found.push((npc, location));
        return;
    };
    let source = Source { path: npc.path.clone(), text: String::new() };
    let message =
        format!("the NPC `{}` is described in {} too; that one counts", npc.name, before.path.display());
    files.diagnostics.push(source.error(location, message));
}

/// The Markdown files that a `.ctx` names, in the team's folder or its parent.
fn markdown(
    listing: &Listing,
    ctx: &Ctx,
    source: Option<&Source>,
    files: &mut Files,
    watch: &mut Watch,
) -> Vec<File> {
    let mut found = Vec::new();
    let (Some(source), Folder::Disk(folder, root)) = (source, &listing.folder) else { return found };
    for node in &ctx.agents {
        let plain = |name: &&str| Path::new(name).components().count() == 1 && name.ends_with(".md");
        let beside = folder.join("..");
        let places = node.text().filter(plain).map(|name| {
            // Files next to a sub-team's folder still belong to the team.
            let around = if folder == root { &beside } else { root };
            [(folder.join(name), root), (beside.join(name), around)]
        });
        let places: Vec<_> = places.into_iter().flatten().collect();
        watch.absent.extend(places.iter().filter(|(path, _)| !path.is_file()).map(|(path, _)| path.clone()));
        match places.into_iter().find(|(path, _)| path.is_file()) {
            Some((path, root)) => {
                watch.files.push(path.clone());
                found.push(File::on_disk(path, root.clone()));
            }
            None => {
                let message = format!(
                    "there is no Markdown file {} in the team's folder or the one that it is in",
                    node.value()
                );
                files.diagnostics.push(source.error(node.location, message));
            }
        }
    }
    found
}

/// The leading NPC: the one that the `.ctx` names, otherwise the first by name.
fn lead(
    listing: &Listing,
    ctx: &Ctx,
    source: Option<&Source>,
    npcs: &[Npc],
    files: &mut Files,
) -> Result<String, Error> {
    let Some(first) = npcs.first() else {
        let problems = files.diagnostics.iter().map(|diagnostic| format!("\n  {diagnostic}")).collect();
        return Err(Error::NoNpc { path: listing.folder.path(), problems });
    };
    let folder_source = Source { path: listing.folder.path(), text: String::new() };
    match (&ctx.forenpc, source) {
        (Some(node), Some(source)) => {
            let name = node.text().unwrap_or_default();
            if npcs.iter().any(|npc| npc.name == name) {
                return Ok(name.to_owned());
            }
            let diagnostic = match unusable(name, &files.diagnostics) {
                Some(file) => source.warning(
                    node.location,
                    format!(
                        "`{name}` can't be used, see {}; `{}` leads the team",
                        file.display(),
                        first.name
                    ),
                ),
                None => source.error(
                    node.location,
                    format!("{}; `{}` leads the team", unknown_npc(name, npcs), first.name),
                ),
            };
            files.diagnostics.push(diagnostic);
        }
        // An unreadable `.ctx` may name a lead.
        (None, None) if !listing.ctx.is_empty() => {}
        _ if npcs.len() > 1 => {
            let message = format!("no `forenpc` says which NPC leads the team: `{}` does", first.name);
            files.diagnostics.push(source.unwrap_or(&folder_source).warning(Location::default(), message));
        }
        _ => {}
    }
    Ok(first.name.clone())
}

fn unknown_npc(name: &str, npcs: &[Npc]) -> String {
    let near = nearest(name, npcs.iter().map(|npc| npc.name.as_str()));
    let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
    format!("there is no NPC `{name}`{hint}")
}

/// Adds a sub-team, which needs a unique name and a description.
fn add_team(teams: &mut Vec<Team>, team: Team, npcs: &[Npc], files: &mut Files) {
    let path = team.directory.clone().unwrap_or_else(|| team.name.clone().into());
    let source = Source { path, text: String::new() };
    if team.description.is_empty() {
        let message = "a sub-team needs a `description`: it is all that the team above sees of it";
        files.diagnostics.push(source.warning(Location::default(), message));
    }
    let taken =
        npcs.iter().any(|npc| npc.name == team.name) || teams.iter().any(|other| other.name == team.name);
    match taken {
        true => {
            let message = format!("there is another member `{}`; work goes to that one", team.name);
            files.diagnostics.push(source.error(Location::default(), message));
        }
        false => teams.push(team),
    }
}
