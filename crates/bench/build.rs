//! Says where the suite lies that is embedded, and builds anew when a task changes.

use std::path::Path;

fn main() {
    // In a package it lies in the crate; in the tree there is a link, on Windows perhaps no folder.
    let benches = if Path::new("benches/tasks").is_dir() { "benches" } else { "../../benches" };
    println!("cargo::rerun-if-changed={benches}/tasks");
    println!("cargo::rerun-if-changed={benches}/tune");
    println!("cargo::rustc-env=ALARA_BENCHES={benches}");
}
