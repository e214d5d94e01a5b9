//! What tests run in: a team, a work directory and a sandbox without isolation.

use std::path::Path;

use crate::sandbox::{Isolation, Policy, Sandbox};
use crate::team::Team;

/// A team and a place to work.
pub struct Fixture {
    pub team: Team,
    pub sandbox: Sandbox,
    work: tempfile::TempDir,
}

impl Fixture {
    /// With the stock team.
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
