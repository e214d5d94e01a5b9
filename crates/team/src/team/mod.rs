//! A team: a directory of text files that define the agents, their tools and their limits.
//!
//! This module owns the reading of `.ctx`, `.npc` and `.jinx` files, and their diagnostics.
//! It must not know how anything runs, except that it asks Python what Python programs lack.
//!
//! A team sees only the name and description of a sub-team.
//! Its files can't permit what is the user's to permit.

mod assemble;
mod check;
mod ctx;
mod files;
mod gates;
mod hooks;
mod library;
mod model;
mod needs;
mod npc;
mod rules;
mod search;
mod servers;
mod small;
mod stock;
mod strays;
mod syntax;
mod template;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::calls::Calls;
use crate::error::Error;
use crate::jinx::Jinx;
use crate::knowledge::Knowledge;
use crate::mcp::Server;
use crate::model_spec::ModelSpec;
use crate::phases::Phases;
use crate::skill;
use crate::source::Source;
use crate::types::{Diagnostic, Limits, Severity};
use assemble::Above;
pub use files::File;
use files::{Folder, Listing};
pub use files::{READ, Watch};
pub use gates::Held;
pub use hooks::{Hook, HookEvent};
use library::{Layer, Library};
pub use rules::JOINTS;
pub use rules::strict;
pub use rules::{ANY, Rule};
pub use search::Search;
pub use small::SmallModels;
pub use syntax::unreadable_bash;

/// A team.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Team {
    /// The name; that of the directory if the `.ctx` has none.
    pub name: String,
    /// The names from the outermost team to this one, as in a JSON pointer: `name/name`.
    /// Empty if it was not read from files.
    #[serde(skip)]
    pub path: String,
    /// The purpose of the team: all that a team above sees of it.
    pub description: String,
    /// Text that every NPC of the team gets after its directive; may be empty.
    pub context: String,
    /// The NPC that is used if none is named.
    pub forenpc: String,
    /// The model of the NPCs that name none.
    #[serde(skip_serializing_if = "ModelSpec::is_empty")]
    pub model: ModelSpec,
    /// The NPCs, by name.
    pub npcs: Vec<Npc>,
    /// The jinxes that NPCs may list: the stock ones, overlaid by the team's own; by name.
    pub jinxes: Vec<Jinx>,
    /// The sub-teams, by name.
    /// Only their names and descriptions are visible from here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<Team>,
    /// Who may read and write which key of the shared store; a key that isn't listed is open to
    /// everyone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub store: BTreeMap<String, Access>,
    /// The MCP servers that its NPCs may name.
    #[serde(rename = "mcp_servers", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
    /// The team's rules about calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// The hooks before and after calls, and at the beginning and end of a session.
    /// Those about calls from the teams above come first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Other keys of the `.ctx`: `ctx.key` in templates, `context['key']` in Python.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
    /// The date that templates print, `YYYY-MM-DD`; `None` for today.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// The file or directory that it was read from; `None` if it is built in.
    #[serde(skip)]
    pub directory: Option<PathBuf>,
    /// Whether it was in the work directory and the user didn't clearly ask for it: then it needs a
    /// confirmation before it works.
    #[serde(skip)]
    pub found: bool,
    /// The documents that its NPCs can look up, unless their files set others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knowledge: Option<Knowledge>,
    /// Problems in its files and in those of its sub-teams; errors are about parts that were left
    /// out.
    #[serde(skip)]
    pub diagnostics: Vec<Diagnostic>,
    /// The files that it was read from.
    #[serde(skip)]
    pub watch: Watch,
}

/// The definition of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Npc {
    /// The name.
    pub name: String,
    /// Its system prompt.
    pub directive: String,
    /// Whether a person replaced the directive of its file.
    #[serde(skip)]
    pub directed: bool,
    /// Its model; the team's if the file sets none.
    #[serde(skip_serializing_if = "ModelSpec::is_empty")]
    pub model: ModelSpec,
    /// The jinxes that it sees and may call, in this order: its catalog and its permissions.
    pub jinxes: Vec<String>,
    /// The entries of that list as its files write them, for tools that aren't jinxes.
    /// `None` if no file has a list for it.
    #[serde(skip)]
    pub entries: Option<Vec<String>>,
    /// The MCP servers whose tools it also sees and may call.
    #[serde(rename = "mcp_servers", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
    /// The skills that it knows.
    pub skills: Skills,
    /// The limits of its runs.
    pub limits: Limits,
    /// Whether each of its turns is a call; `None` depends on its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calls>,
    /// Whether an answer after a failed call is accepted at once.
    /// Otherwise the model gets a hint once a run: the failure, and how many turns are left.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub accepts_failure: bool,
    /// Its substitutes for small models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small_models: Option<SmallModels>,
    /// The documents that it can look up: its own, or the team's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knowledge: Option<Knowledge>,
    /// Whether to hide the knowledge of the gates from its model.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ledger_hidden: bool,
    /// The phases of its work; `None` permits every call at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<Phases>,
    /// The gates that bind it: its own, the team's, and those of the teams above.
    #[serde(skip)]
    pub gate: Held,
    /// Its file.
    #[serde(skip)]
    pub path: PathBuf,
}

impl Npc {
    /// This NPC with a person's directive in place of its file's.
    #[must_use]
    pub fn with_directive(&self, directive: &str) -> Npc {
        Npc { directive: directive.to_owned(), directed: true, ..self.clone() }
    }

    /// Checks that everything that binds it is known.
    ///
    /// # Errors
    /// A policy that binds it is unreadable, so its limits are unknown.
    pub fn may_run(&self) -> Result<(), Error> {
        self.gate.broken.clone().map_or(Ok(()), |broken| Err(Error::Invalid(broken)))
    }

    /// Whether a tool of this name, which runs elsewhere, is on its list.
    /// An NPC without a list, and without MCP servers, may call any.
    pub fn lists(&self, tool: &str) -> bool {
        let (unbound, entries) = match &self.entries {
            Some(entries) => (false, entries.as_slice()),
            None => (self.jinxes.is_empty() && self.servers.is_empty(), &[][..]),
        };
        let served = self.servers.iter().filter_map(|server| server.tools.as_ref()).flatten();
        unbound
            || self.jinxes.iter().chain(served).any(|name| name == tool)
            || entries.iter().any(|entry| library::names(entry, tool))
    }
}

/// The NPCs that may use a key of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Access {
    /// The NPCs that may read it; `None` for the whole team.
    pub read: Option<Vec<String>>,
    /// The NPCs that may write it; `None` for the whole team.
    pub write: Option<Vec<String>>,
}

/// The skills of an NPC: names of jinxes that are skills.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skills {
    /// Skills whose whole text is part of its system prompt.
    pub inline: Vec<String>,
    /// Skills of which it sees name and description, and looks up the text with the jinx `skill`.
    pub catalog: Vec<String>,
}

impl Team {
    /// Reads the team in a directory.
    /// Problems in its files are listed in `diagnostics`, and unusable parts are left out.
    ///
    /// # Errors
    /// There is no team, or none of its NPCs is usable.
    pub fn load(directory: &Path) -> Result<Self, Error> {
        Team::load_with(directory, None, Path::new(""))
    }

    /// A built-in team.
    ///
    /// # Errors
    /// There is none of this name; the message lists the existing ones.
    pub fn stock(name: &str) -> Result<Self, Error> {
        Team::stock_with(name, None, Path::new(""))
    }

    /// The team that a user named, without reading the user's configuration: see [`Search::team`].
    ///
    /// # Errors
    /// As [`Team::load`] and [`Team::stock`].
    pub fn find(name: &str) -> Result<Self, Error> {
        Search::default().team(Some(name))
    }

    /// As [`Team::load`], with the user's own jinxes in a folder, for work in `work`.
    fn load_with(directory: &Path, user: Option<&Path>, work: &Path) -> Result<Self, Error> {
        let mut diagnostics = Vec::new();
        let listing = files::on_disk(directory, &mut diagnostics)?;
        Team::read(&listing, user, work, &mut diagnostics)
    }

    /// The problems in the files of a team that can't be loaded.
    fn problems_with(directory: &Path, user: Option<&Path>, work: &Path) -> Vec<Diagnostic> {
        let mut diagnostics = Vec::new();
        let listing = files::on_disk(directory, &mut diagnostics);
        match listing.and_then(|listing| Team::read(&listing, user, work, &mut diagnostics)) {
            Ok(team) => team.diagnostics,
            Err(_) => diagnostics,
        }
    }

    fn stock_with(name: &str, user: Option<&Path>, work: &Path) -> Result<Self, Error> {
        let folder = stock::TEAMS.get_dir(name);
        let folder = folder
            .ok_or_else(|| Error::unknown("built-in team", name, stock::teams().map(String::as_str)))?;
        let mut diagnostics = Vec::new();
        let listing = Listing::of(Folder::BuiltIn("teams", folder), &mut diagnostics);
        Team::read(&listing, user, work, &mut diagnostics)
    }

    /// Reads a team; it gets the diagnostics.
    fn read(
        listing: &Listing,
        user: Option<&Path>,
        work: &Path,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Result<Self, Error> {
        // Programs run in the work directory; a team's folder is next to the files that it works
        // on.
        let beside = listing.folder.on_disk().map(|directory| directory.join(".."));
        let modules = std::iter::once(work.to_owned()).chain(beside).collect();
        let mut above = Above { jinxes: Library::stock().clone(), modules, ..Above::default() };
        let mut watch = Watch::of(listing.folder.on_disk());
        if let Some(user) = user {
            let files = files::jinxes(&Folder::root(user.to_owned()), diagnostics);
            above.user = Layer::read(&files, diagnostics).trusted();
            above.user.look(&above.modules);
            watch.user = Some(user.to_owned());
        }
        let mut team = assemble::team(listing, &above, &mut watch, diagnostics)?;
        team.place_below("");
        team.diagnostics = std::mem::take(diagnostics);
        team.watch = watch.begun();
        Ok(team)
    }

    /// Records its position among the teams; a name with a `/` doesn't count as two.
    fn place_below(&mut self, above: &str) {
        let name = self.name.replace('~', "~0").replace('/', "~1");
        self.path = if above.is_empty() { name } else { format!("{above}/{name}") };
        for team in &mut self.teams {
            team.place_below(&self.path);
        }
    }

    /// Its unique key in its tree of teams: a name may occur twice.
    pub fn key(&self) -> &str {
        if self.path.is_empty() { &self.name } else { &self.path }
    }

    /// The SHA-256 of its files' contents, in hexadecimal: it changes when any of the files that
    /// the team is read from changes.
    pub fn fingerprint(&self) -> String {
        self.watch.fingerprint()
    }

    /// The existing files and folders that it and its MCP servers are read from.
    /// Its servers start in the directory `work`.
    pub fn places(&self, work: &Path) -> Vec<PathBuf> {
        let mut places = self.watch.places();
        let mut teams = vec![self];
        while let Some(team) = teams.pop() {
            let servers = team.npcs.iter().flat_map(|npc| &npc.servers).chain(&team.servers);
            places.extend(servers.flat_map(|server| server.files(work)));
            teams.extend(&team.teams);
        }
        places
    }

    /// Whether a file that it was read from has been written, added or removed since.
    pub fn changed(&self) -> bool {
        self.watch.changed()
    }

    /// The NPC with this name, or the team's `forenpc`.
    ///
    /// # Errors
    /// There is none; the message lists the existing ones.
    pub fn npc(&self, name: Option<&str>) -> Result<&Npc, Error> {
        let name = name.unwrap_or(&self.forenpc);
        let known = || self.npcs.iter().map(|npc| npc.name.as_str());
        self.npcs.iter().find(|npc| npc.name == name).ok_or_else(|| Error::unknown("NPC", name, known()))
    }

    /// Names and descriptions of the members to whom work can be delegated: its NPCs except
    /// `except`, and its sub-teams.
    /// The description of an NPC is the first line of its directive.
    pub fn members(&self, except: Option<&Npc>) -> Vec<(&str, &str)> {
        let npcs = self.npcs.iter().filter(|npc| except.is_none_or(|except| except.name != npc.name));
        let npcs =
            npcs.map(|npc| (npc.name.as_str(), npc.directive.trim().lines().next().unwrap_or_default()));
        npcs.chain(self.teams.iter().map(|team| (team.name.as_str(), team.description.as_str()))).collect()
    }

    /// This team and all below it, marked as found rather than named, if `found`.
    #[must_use]
    pub fn found_if(mut self, found: bool) -> Team {
        self.found |= found;
        let found = self.found;
        self.teams = self.teams.into_iter().map(|team| team.found_if(found)).collect();
        self
    }

    /// The member of this name to whom work can be delegated, with its team.
    /// That is an NPC of this team, or the first one of a sub-team.
    pub fn member(&self, name: &str) -> Option<(&Team, &Npc)> {
        if let Some(npc) = self.npcs.iter().find(|npc| npc.name == name) {
            return Some((self, npc));
        }
        let team = self.teams.iter().find(|team| team.name == name)?;
        Some((team, team.npc(None).ok()?))
    }

    /// The jinx with this name.
    pub fn jinx(&self, name: &str) -> Option<&Jinx> {
        self.jinxes.iter().find(|jinx| jinx.name == name)
    }
}

/// Reads one jinx file or a skill's `SKILL.md`, with its diagnostics.
///
/// # Errors
/// The file is unreadable or unusable.
pub fn load_jinx(path: &Path) -> Result<(Jinx, Vec<Diagnostic>), Error> {
    let mut diagnostics = Vec::new();
    let source = Source::from_file(path)?;
    if let Some(jinx) = read_jinx(&source, &mut diagnostics) {
        return Ok((jinx, diagnostics));
    }
    let fatal = diagnostics.into_iter().find(|diagnostic| diagnostic.severity == Severity::Error);
    Err(Error::Invalid(fatal.unwrap_or_else(|| source.error(Default::default(), "it is no jinx"))))
}

/// Reads one such file to check it; `None` if it is unusable.
/// All its problems go to `diagnostics`, including that it can't run here.
///
/// # Errors
/// The file can't be read.
pub fn check_jinx(path: &Path, diagnostics: &mut Vec<Diagnostic>) -> Result<Option<Jinx>, Error> {
    let mut jinx = read_jinx(&Source::from_file(path)?, diagnostics);
    needs::look(jinx.iter_mut(), &[PathBuf::new()], &check::text_of);
    diagnostics.extend(jinx.iter().filter(|jinx| !jinx.missing.is_empty()).map(library::cant_run));
    diagnostics.extend(jinx.iter().filter(|jinx| jinx.description.is_empty()).map(check::undescribed_jinx));
    Ok(jinx)
}

fn read_jinx(source: &Source, diagnostics: &mut Vec<Diagnostic>) -> Option<Jinx> {
    if !skill::is_file(&source.path) {
        return crate::jinx::read(source, diagnostics);
    }
    let folder = Folder::root(source.path.parent().unwrap_or(Path::new(".")).to_owned());
    let files = files::jinxes(&folder, diagnostics);
    let beside =
        files.into_iter().find(files::JinxFile::is_skill).map(|file| file.beside).unwrap_or_default();
    skill::read(source, &folder.name(), beside, diagnostics)
}

#[cfg(test)]
mod tests;
