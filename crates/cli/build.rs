//! Rebuilds when a file of the catalog comes or goes: they are embedded.

fn main() {
    println!("cargo::rerun-if-changed=../../models/catalog");
}
