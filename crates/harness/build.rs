//! Builds anew when a stock team or jinx changes: they are embedded.

fn main() {
    println!("cargo::rerun-if-changed=../../teams");
    println!("cargo::rerun-if-changed=../../jinxes");
}
