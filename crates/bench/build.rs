//! The stock suite is embedded; a changed task must rebuild it.
fn main() {
    println!("cargo:rerun-if-changed=../../benches/tasks");
}
