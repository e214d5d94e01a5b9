//! Says where the templates and pre-tokenizers lie that are embedded, and builds anew when one
//! changes.

use std::path::Path;

fn main() {
    // In the crate of a package; in the tree there is a link, on Windows perhaps no folder.
    let models = if Path::new("models/templates").is_dir() { "models" } else { "../../models" };
    println!("cargo::rustc-env=ALARA_MODELS={models}");
    for data in ["templates", "pretokenizers.yaml"] {
        println!("cargo::rerun-if-changed={models}/{data}");
    }
}
