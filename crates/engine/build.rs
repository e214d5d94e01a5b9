//! Passes on the folder of the embedded architecture files, and rebuilds when one changes.
//! Also passes on a hash of the sources: files of the prefix cache hold numbers that another build
//! may compute differently.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// A published package only has the first two; there the version represents them all.
const SOURCES: [&str; 5] = ["src", "Cargo.toml", "../kernels/src", "../text/src", "../../Cargo.lock"];

fn main() {
    // A published package contains the folder; the source tree has a link, which Windows may lack.
    let models = if Path::new("models/architectures").is_dir() { "models" } else { "../../models" };
    println!("cargo::rustc-env=ALARA_MODELS={models}");
    for data in ["architectures", "every-architecture.yaml"] {
        println!("cargo::rerun-if-changed={models}/{data}");
    }
    let mut hash = DefaultHasher::new();
    for source in SOURCES.into_iter().filter(|source| Path::new(source).exists()) {
        println!("cargo::rerun-if-changed={source}");
        let mut files = Vec::new();
        collect(Path::new(source), &mut files);
        files.sort();
        for file in files {
            (&file, std::fs::read(&file).unwrap_or_default()).hash(&mut hash);
        }
    }
    for variable in ["TARGET", "OPT_LEVEL", "CARGO_ENCODED_RUSTFLAGS", "CARGO_PKG_VERSION"] {
        std::env::var_os(variable).hash(&mut hash);
    }
    println!("cargo::rustc-env=ALARA_BUILD={:016x}", hash.finish());
}

/// The files at or below `path`.
fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect(&entry.path(), files)),
        Err(_) => files.push(path.to_owned()),
    }
}
