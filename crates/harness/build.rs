//! Says where the model lies that is embedded, and builds anew when it changes.

use std::path::Path;

fn main() {
    // In the crate of a package; in the tree there is a link, on Windows perhaps no folder.
    let folder = if Path::new("models").is_dir() { "models" } else { "../../models" };
    println!("cargo::rerun-if-changed={folder}/alara-tiny.gguf");
    println!("cargo::rustc-env=ALARA_MODELS={folder}");
}
