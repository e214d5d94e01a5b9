//! Passes on the folder of the embedded templates and pre-tokenizers, and rebuilds when one of them
//! changes.

use std::path::Path;

fn main() {
    // A published package contains the folder; the source tree has a link, which Windows may lack.
    let models = if Path::new("models/templates").is_dir() { "models" } else { "../../models" };
    println!("cargo::rustc-env=ALARA_MODELS={models}");
    for data in ["templates", "pretokenizers.yaml"] {
        println!("cargo::rerun-if-changed={models}/{data}");
    }
}
