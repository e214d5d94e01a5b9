//! The search for teams.

use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use super::files::{Folder, is_team};
use super::{Team, stock as built_in};
use crate::error::Error;
use crate::types::Diagnostic;

/// The team that is used if none is named and the directory has none.
const DEFAULT: &str = "alara";
/// The folder of the team that is used if none is named.
const HERE: &str = "npc_team";

/// Where teams and the user's own jinxes may be.
/// The caller that reads the environment fills it in; by default it is the current directory alone.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The user's current directory.
    /// Default: that of the process.
    pub work: PathBuf,
    /// The directory that steps run in, whose Python modules they may import.
    /// Default: the current one.
    pub workdir: PathBuf,
    /// The user's configuration directory, as in `XDG_CONFIG_HOME`: alara looks for `alara/teams`
    /// and `alara/jinxes` below it.
    pub config_home: Option<PathBuf>,
    /// The user's home directory.
    pub home: Option<PathBuf>,
}

impl Search {
    /// The team that a user named, or the default one.
    ///
    /// - No name: `./npc_team`, then the built-in team `alara`.
    /// - A path (with a `/`, or `.`): that directory.
    /// - A name: `./NAME`, `./teams/NAME`, `alara/teams/NAME` in the user's configuration,
    ///   `~/.npcsh/npc_team` if it is `npcsh`, then the built-in team of that name.
    ///   A directory that is not a team is skipped.
    ///
    /// A team of the work directory that the user didn't name, or whose name also belongs to
    /// another team, is [found](Team::found).
    ///
    /// The jinxes in `alara/jinxes` in the user's configuration come between the built-in jinxes
    /// and the team's own.
    ///
    /// # Errors
    /// There is no such team, or it has no lead.
    pub fn team(&self, name: Option<&str>) -> Result<Team, Error> {
        let user = self.user();
        let load = |path: &Path| Team::load_with(path, user.as_deref(), &self.workdir);
        let stock = |name: &str| Team::stock_with(name, user.as_deref(), &self.workdir);
        let Some(name) = name else {
            let here = self.work.join(HERE);
            return match is_team_at(&here) {
                true => Ok(load(&here)?.found_if(true)),
                false => stock(DEFAULT),
            };
        };
        if name.contains(['/', MAIN_SEPARATOR]) || name == "." || name == ".." {
            return load(&self.work.join(name));
        }
        let is_built_in = built_in::teams().any(|team| team == name);
        let elsewhere = self.elsewhere(name).into_iter().find(|path| is_team_at(path));
        let here: Vec<PathBuf> = self.here(name).into_iter().filter(|path| is_team_at(path)).collect();
        if let Some(path) = here.first() {
            // The user meant one of them, and who put this one here is unknown.
            let found = is_built_in || elsewhere.is_some() || here.len() > 1;
            return Ok(load(path)?.found_if(found));
        }
        if let Some(path) = elsewhere {
            return load(&path);
        }
        if is_built_in {
            return stock(name);
        }
        // Then the user meant the directory, and the error tells what it lacks.
        if let Some(path) = self.here(name).into_iter().find(|path| path.is_dir()) {
            return load(&path);
        }
        let known = self.names();
        Err(Error::unknown("team", name, known.iter().map(String::as_str)))
    }

    /// The problems in the files of a team that has no lead, and so can't be loaded: the one with
    /// this name in the work directory, or at this path.
    /// Empty if there is none.
    pub fn problems(&self, name: &str) -> Vec<Diagnostic> {
        let path = self.here(name).into_iter().find(|path| is_team_at(path));
        path.map_or_else(Vec::new, |path| Team::problems_with(&path, self.user().as_deref(), &self.workdir))
    }

    /// The folder of the user's own jinxes.
    fn user(&self) -> Option<PathBuf> {
        self.config_home.as_ref().map(|home| home.join("alara/jinxes")).filter(|path| path.is_dir())
    }

    /// The paths of a team with this name in the work directory.
    fn here(&self, name: &str) -> [PathBuf; 2] {
        [self.work.join(name), self.work.join("teams").join(name)]
    }

    /// The paths of one of the user's teams with this name.
    fn elsewhere(&self, name: &str) -> Vec<PathBuf> {
        let home = self.config_home.iter();
        let mut places: Vec<PathBuf> = home.map(|home| home.join("alara/teams").join(name)).collect();
        if name == "npcsh" {
            places.extend(self.home.as_ref().map(|home| home.join(".npcsh/npc_team")));
        }
        places
    }

    /// The names of the built-in teams and of those in the search directories.
    fn names(&self) -> Vec<String> {
        let folders = self.config_home.iter().map(|home| home.join("alara/teams"));
        let folders = folders.chain([self.work.join("teams")]);
        let mut names: Vec<String> = built_in::teams().cloned().collect();
        for folder in folders.filter(|folder| folder.is_dir()) {
            let (teams, _) = Folder::root(folder).contents(&mut Vec::new());
            names.extend(teams.iter().filter(|team| is_team(team)).map(Folder::name));
        }
        names.sort();
        names.dedup();
        names
    }
}

fn is_team_at(path: &Path) -> bool {
    path.is_dir() && is_team(&Folder::root(path.to_owned()))
}
