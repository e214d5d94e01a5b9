//! A team: a directory of text files that says who works, with what, and under which limits.
//!
//! This module owns the reading of `.ctx`, `.npc` and `.jinx` files and what can be wrong in them.
//! It must not know how anything runs, except that Python tells what Python programs lack.
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
use crate::model::ModelSpec;
use crate::phases::Phases;
use crate::skill;
use crate::source::Source;
use crate::types::{Diagnostic, Limits, Severity};
use assemble::Above;
pub(crate) use files::File;
use files::{Folder, Listing};
pub use files::{READ, Watch};
pub use gates::Held;
pub use hooks::{Hook, HookEvent};
use library::{Layer, Library};
pub(crate) use rules::JOINTS;
pub(crate) use rules::strict;
pub use rules::{ANY, Rule};
pub use search::Search;
pub use small::SmallModels;
pub use syntax::unreadable_bash;

/// A team.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Team {
    /// The name; the directory's if the `.ctx` has none.
    pub name: String,
    /// The names from the outermost team to this one, as a JSON pointer has them: `name/name`.
    /// Empty if it was not read from files.
    #[serde(skip)]
    pub path: String,
    /// What the team is for: all that a team above it sees of it.
    pub description: String,
    /// Text that every NPC of the team gets after its directive; may be empty.
    pub context: String,
    /// The NPC that is meant if none is named.
    pub forenpc: String,
    /// The model of the NPCs that name none.
    #[serde(skip_serializing_if = "ModelSpec::is_empty")]
    pub model: ModelSpec,
    /// The NPCs, by name.
    pub npcs: Vec<Npc>,
    /// The jinxes that NPCs may list: the stock ones, overlaid by the team's own; by name.
    pub jinxes: Vec<Jinx>,
    /// The sub-teams, by name.
    /// Nothing of theirs but name and description is seen from here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<Team>,
    /// Who may read and write which key of the shared store; a key that is not named is
    /// everybody's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub store: BTreeMap<String, Access>,
    /// The MCP servers that its NPCs may name.
    #[serde(rename = "mcp_servers", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
    /// The team's rules about calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// What runs before and after calls, and when a session begins and ends.
    /// Those of the teams above that are about calls come first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Other keys of the `.ctx`: `ctx.key` in templates, `context['key']` in Python.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
    /// The date that templates print, `YYYY-MM-DD`; `None` = today.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Where it was read; `None` = it is built in.
    #[serde(skip)]
    pub directory: Option<PathBuf>,
    /// Whether it lay in the work directory and was not surely meant: then someone should say yes
    /// to it before it works.
    #[serde(skip)]
    pub found: bool,
    /// What its NPCs can look up unless their files say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knowledge: Option<Knowledge>,
    /// What is odd in its files and in those of its sub-teams; errors are about what was left out.
    #[serde(skip)]
    pub diagnostics: Vec<Diagnostic>,
    /// What it was read from.
    #[serde(skip)]
    pub watch: Watch,
}

/// An agent's description.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Npc {
    /// The name.
    pub name: String,
    /// Its system prompt.
    pub directive: String,
    /// Whether a person replaced the directive of its file.
    #[serde(skip)]
    pub directed: bool,
    /// The model that it wants; the team's where the file says nothing.
    #[serde(skip_serializing_if = "ModelSpec::is_empty")]
    pub model: ModelSpec,
    /// The jinxes that it sees and may call, in this order: catalog and permission set.
    pub jinxes: Vec<String>,
    /// The entries of that list as its files write them, for tools that are no jinxes.
    /// `None` = no file has a list for it.
    #[serde(skip)]
    pub entries: Option<Vec<String>>,
    /// The MCP servers whose tools it sees and may call too.
    #[serde(rename = "mcp_servers", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
    /// The skills that it knows.
    pub skills: Skills,
    /// How long it may go on.
    pub limits: Limits,
    /// Whether each of its turns is a call; `None` = as its model needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calls>,
    /// Whether an answer after a failed call counts at once.
    /// Otherwise the model gets a hint once a run: what failed and how many turns are left.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub accepts_failure: bool,
    /// What it gets with small models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small_models: Option<SmallModels>,
    /// What it can look up: its own, or the team's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knowledge: Option<Knowledge>,
    /// Whether its model is not told what the gates know.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ledger_hidden: bool,
    /// What it may do when; `None` = anything at any time.
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
    /// This NPC with a directive of a person in place of its file's.
    #[must_use]
    pub fn with_directive(&self, directive: &str) -> Npc {
        Npc { directive: directive.to_owned(), directed: true, ..self.clone() }
    }

    /// Whether all that binds it is known.
    ///
    /// # Errors
    /// What is to bind it can't be read, so that nobody knows what it may do.
    pub fn may_run(&self) -> Result<(), Error> {
        self.gate.broken.clone().map_or(Ok(()), |broken| Err(Error::Invalid(broken)))
    }

    /// Whether a tool of this name, which is run elsewhere, is on its list.
    /// An NPC without a list, and without MCP servers, has no bound.
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

/// Who may use a key of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Access {
    /// The NPCs that may read it; `None` = all of the team.
    pub read: Option<Vec<String>>,
    /// The NPCs that may write it; `None` = all of the team.
    pub write: Option<Vec<String>>,
}

/// The skills of an NPC: names of jinxes that are skills.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skills {
    /// Those whose whole text is part of its system prompt.
    pub inline: Vec<String>,
    /// Those of which it sees name and description, and looks up the text with the jinx `skill`.
    pub catalog: Vec<String>,
}

impl Team {
    /// Reads the team in a directory.
    /// What is wrong in its files is listed in `diagnostics`, and what can't be used is left out.
    ///
    /// # Errors
    /// There is no team, or no NPC of it can be used.
    pub fn load(directory: &Path) -> Result<Self, Error> {
        Team::load_with(directory, None, Path::new(""))
    }

    /// A team that is built in.
    ///
    /// # Errors
    /// There is none of this name; the message names those that there are.
    pub fn stock(name: &str) -> Result<Self, Error> {
        Team::stock_with(name, None, Path::new(""))
    }

    /// The team that a user named, without a look at the user's configuration: see
    /// [`Search::team`].
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
        Team::read(&listing, user, work, diagnostics)
    }

    fn stock_with(name: &str, user: Option<&Path>, work: &Path) -> Result<Self, Error> {
        let folder = stock::TEAMS.get_dir(name);
        let folder = folder
            .ok_or_else(|| Error::unknown("built-in team", name, stock::teams().map(String::as_str)))?;
        let mut diagnostics = Vec::new();
        let listing = Listing::of(Folder::BuiltIn("teams", folder), &mut diagnostics);
        Team::read(&listing, user, work, diagnostics)
    }

    fn read(
        listing: &Listing,
        user: Option<&Path>,
        work: &Path,
        mut diagnostics: Vec<Diagnostic>,
    ) -> Result<Self, Error> {
        // Programs run in the work directory; a team lies beside what it is for.
        let beside = listing.folder.on_disk().map(|directory| directory.join(".."));
        let modules = std::iter::once(work.to_owned()).chain(beside).collect();
        let mut above = Above { jinxes: Library::stock().clone(), modules, ..Above::default() };
        let mut watch = Watch::of(listing.folder.on_disk());
        if let Some(user) = user {
            let files = files::jinxes(&Folder::root(user.to_owned()), &mut diagnostics);
            above.user = Layer::read(&files, &mut diagnostics).trusted();
            above.user.look(&above.modules);
            watch.user = Some(user.to_owned());
        }
        let mut team = assemble::team(listing, &above, &mut watch, &mut diagnostics)?;
        team.place_below("");
        team.diagnostics = diagnostics;
        team.watch = watch.begun();
        Ok(team)
    }

    /// Says where it is among the teams; a name with a `/` is not taken for two.
    fn place_below(&mut self, above: &str) {
        let name = self.name.replace('~', "~0").replace('/', "~1");
        self.path = if above.is_empty() { name } else { format!("{above}/{name}") };
        for team in &mut self.teams {
            team.place_below(&self.path);
        }
    }

    /// What tells it from all other teams of its tree: a name may occur twice in one.
    pub fn key(&self) -> &str {
        if self.path.is_empty() { &self.name } else { &self.path }
    }

    /// What its files say, as a hexadecimal SHA-256: another one once any of those that it is read
    /// from has changed.
    pub fn fingerprint(&self) -> String {
        self.watch.fingerprint()
    }

    /// What is there of all that it and its MCP servers are read from: files and folders.
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
    /// There is none; the message names those that there are.
    pub fn npc(&self, name: Option<&str>) -> Result<&Npc, Error> {
        let name = name.unwrap_or(&self.forenpc);
        let known = || self.npcs.iter().map(|npc| npc.name.as_str());
        self.npcs.iter().find(|npc| npc.name == name).ok_or_else(|| Error::unknown("NPC", name, known()))
    }

    /// Name and description of those to whom work can be given: its NPCs but for `except`, and its
    /// sub-teams.
    /// An NPC is described by the first line of its directive.
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

    /// The member that work can be given to by this name, with its team.
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

/// Reads one jinx file or a skill's `SKILL.md`, with what is odd in it.
///
/// # Errors
/// The file can't be read, or can't be used.
pub fn load_jinx(path: &Path) -> Result<(Jinx, Vec<Diagnostic>), Error> {
    let mut diagnostics = Vec::new();
    let source = Source::from_file(path)?;
    if let Some(jinx) = read_jinx(&source, &mut diagnostics) {
        return Ok((jinx, diagnostics));
    }
    let fatal = diagnostics.into_iter().find(|diagnostic| diagnostic.severity == Severity::Error);
    Err(Error::Invalid(fatal.unwrap_or_else(|| source.error(Default::default(), "it is no jinx"))))
}

/// Reads one such file to check it; `None` if it can't be used.
/// All that is odd or wrong in it goes to `diagnostics`, also that it can't run here.
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
