//! The built-in teams and jinxes.

use std::sync::LazyLock;

use include_dir::{Dir, include_dir};

pub(crate) static TEAMS: Dir = include_dir!("$CARGO_MANIFEST_DIR/$ALARA_TEAMS");
pub static JINXES: Dir = include_dir!("$CARGO_MANIFEST_DIR/$ALARA_JINXES");

/// The names of the built-in teams.
pub fn teams() -> std::slice::Iter<'static, String> {
    static NAMES: LazyLock<Vec<String>> =
        LazyLock::new(|| TEAMS.dirs().map(|dir| dir.path().display().to_string()).collect());
    NAMES.iter()
}
