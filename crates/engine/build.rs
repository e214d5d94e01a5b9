//! Rebuilds when an architecture file comes or goes: they are embedded.

fn main() {
    println!("cargo::rerun-if-changed=../../models/architectures");
}
