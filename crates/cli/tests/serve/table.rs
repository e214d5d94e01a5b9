//! Compares responses with llama.cpp's server, and with each other across wire formats:
//! `tests/server`.

use std::path::Path;
use std::process::Command;

#[test]
fn requests_of_llama_cpps_tests() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/server/run.py");
    let mut python = Command::new("python3");
    let output =
        python.arg("-B").arg(script).args(["--alara", env!("CARGO_BIN_EXE_alara")]).output().unwrap();
    let (told, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{failed}");
    assert!(told.contains(" 0 failed"), "{told}");
}
