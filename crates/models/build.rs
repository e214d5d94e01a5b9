//! Sets the paths of embedded data, and rebuilds when some of it changes.

use std::path::Path;

fn main() {
    // In a package it is in the crate; in the repository it is a link, which on Windows may not be
    // a folder.
    let models = if Path::new("models/catalog").is_dir() { "models" } else { "../../models" };
    for name in ["catalog", "alara-tiny.gguf"] {
        println!("cargo::rerun-if-changed={models}/{name}");
    }
    println!("cargo::rustc-env=ALARA_MODELS={models}");
}
