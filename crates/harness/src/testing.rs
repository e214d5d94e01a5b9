//! The environment of tests: a team, a work directory and a sandbox without isolation.

use std::path::Path;

use crate::sandbox::{Isolation, Policy, Sandbox};
use crate::team::Team;

/// A team and a work directory.
pub struct Fixture {
    pub team: Team,
    pub sandbox: Sandbox,
    work: tempfile::TempDir,
}

impl Fixture {
    /// A fixture with the stock team.
    pub fn new() -> Self {
        Fixture::with(Team::stock("alara").unwrap())
    }

    pub fn with(team: Team) -> Self {
        let work = tempfile::tempdir().unwrap();
        let policy = Policy { isolation: Isolation::Off, ..Policy::default() };
        let sandbox = Sandbox::new(work.path(), policy).unwrap();
        Fixture { team, sandbox, work }
    }

    pub fn work(&self) -> &Path {
        self.work.path()
    }
}
