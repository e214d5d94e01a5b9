//! Rebuilds when an architecture file or a template comes or goes: they are embedded.
//! And tells the program what it was built from: files of the prefix cache hold numbers that
//! another build may compute otherwise.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

const SOURCES: [&str; 3] = ["src", "../kernels/src", "../../Cargo.lock"];

fn main() {
    println!("cargo::rerun-if-changed=../../models/architectures");
    println!("cargo::rerun-if-changed=../../models/templates");
    let mut hash = DefaultHasher::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        let mut files = Vec::new();
        collect(Path::new(source), &mut files);
        files.sort();
        for file in files {
            (&file, std::fs::read(&file).unwrap_or_default()).hash(&mut hash);
        }
    }
    for variable in ["TARGET", "OPT_LEVEL", "CARGO_ENCODED_RUSTFLAGS"] {
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
