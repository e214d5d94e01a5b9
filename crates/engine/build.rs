//! Rebuilds when an architecture file or a template comes or goes: they are embedded.

fn main() {
    println!("cargo::rerun-if-changed=../../models/architectures");
    println!("cargo::rerun-if-changed=../../models/templates");
}
