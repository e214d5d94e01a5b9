//! Gives the folders of the embedded teams and jinxes, and rebuilds when one changes.

use std::path::Path;

fn main() {
    for (variable, name) in [("ALARA_TEAMS", "teams"), ("ALARA_JINXES", "jinxes")] {
        // In the crate of a package; in the tree there is a link, on Windows perhaps no folder.
        let folder = if Path::new(name).is_dir() { name.to_owned() } else { format!("../../{name}") };
        println!("cargo::rerun-if-changed={folder}");
        println!("cargo::rustc-env={variable}={folder}");
    }
}
