//! Says where the data lies that is embedded, and builds anew when some of it changes.

use std::path::Path;

fn main() {
    // In a package it lies in the crate; in the tree there is a link, on Windows perhaps no folder.
    let models = if Path::new("models/catalog").is_dir() { "models" } else { "../../models" };
    println!("cargo::rerun-if-changed={models}/catalog");
    println!("cargo::rustc-env=ALARA_MODELS={models}");
}
