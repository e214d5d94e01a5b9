//! Says where the stock teams, the jinxes and the model lie that are embedded, and builds anew when
//! one changes.

use std::path::Path;

fn main() {
    for (variable, name) in [("ALARA_TEAMS", "teams"), ("ALARA_JINXES", "jinxes"), ("ALARA_MODELS", "models")]
    {
        // In the crate of a package; in the tree there is a link, on Windows perhaps no folder.
        let folder = if Path::new(name).is_dir() { name.to_owned() } else { format!("../../{name}") };
        // Of the models it takes one.
        let watched = if name == "models" { "/alara-tiny.gguf" } else { "" };
        println!("cargo::rerun-if-changed={folder}{watched}");
        println!("cargo::rustc-env={variable}={folder}");
    }
}
