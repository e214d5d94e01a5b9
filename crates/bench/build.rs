//! Sets the path of the embedded suite, and rebuilds when a task changes.

use std::path::Path;

fn main() {
    // In a package it is in the crate; in the repository it is a link, which on Windows may not be
    // a folder.
    let benches = if Path::new("benches/tasks").is_dir() { "benches" } else { "../../benches" };
    println!("cargo::rerun-if-changed={benches}/tasks");
    println!("cargo::rerun-if-changed={benches}/tune");
    println!("cargo::rustc-env=ALARA_BENCHES={benches}");
}
