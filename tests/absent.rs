//! Data of tests that does not lie in the repository, and a note on the tests that go without it.
//!
//! The crates' own tests have this file too.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// `path` in the folder of large reference data, which `ALARA_SHARED` names; `None` if it is not
/// there, with a note past the captured output.
pub fn shared(path: &str) -> Option<PathBuf> {
    let own =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("Cargo.lock").exists());
    let folder = std::env::var_os("ALARA_SHARED").map(PathBuf::from);
    let found = folder.or_else(|| Some(own?.join("../shared")))?.join(path);
    if found.exists() {
        return Some(found);
    }
    let how = "ALARA_SHARED names the folder, scripts/make-oracle makes what lies in its fixtures/arch";
    skipped("large reference data", path, how);
    None
}

/// Writes past the captured output that the running test goes without `what`, of which `missing` is
/// not there.
/// The last such note has the count of all.
pub fn skipped(what: &'static str, missing: &str, how: &str) {
    static SKIPPED: Mutex<BTreeMap<&str, BTreeSet<String>>> = Mutex::new(BTreeMap::new());
    // Tests run in threads that are called after them, unless all run in one.
    let test = std::thread::current().name().filter(|name| *name != "main").unwrap_or(missing).to_owned();
    let mut skipped = SKIPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let tests = skipped.entry(what).or_default();
    if tests.insert(test.clone()) {
        let count = tests.len();
        let note = format!("\nskipped ({count} of the tests with {what}): {test} lacks {missing}; {how}\n");
        // What can't be told is no failure of the test.
        let _ = std::io::stderr().write_all(note.as_bytes());
    }
}
