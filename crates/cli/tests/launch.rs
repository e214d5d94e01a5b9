//! The launcher: which of two builds it starts, and its message about a build that doesn't start.
//! Here the builds are scripts.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const LOADER: &str = "echo \"alara-cuda: error while loading shared libraries: LIBRARY: cannot open shared object file\" >&2; exit 127";

fn program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Checks the output of the build that runs, and the launcher's message.
fn check(cuda: Option<&str>, driver: Option<&str>, ran: &str, message: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::copy(crate::root().join("scripts/alara-launch"), folder.join("alara-launch")).unwrap();
    program(folder, "alara", "echo cpu \"$@\"");
    if let Some(cuda) = cuda {
        program(folder, "alara-cuda", cuda);
    }
    if let Some(version) = driver {
        fs::create_dir_all(folder.join("proc/driver/nvidia")).unwrap();
        let text = format!(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Sun Jul 27 06:50:08 UTC 2025\n"
        );
        fs::write(folder.join("proc/driver/nvidia/version"), text).unwrap();
    }
    let output = Command::new(folder.join("alara-launch"))
        .args(["run", "a b"])
        .env("ALARA_LAUNCH_ROOT", folder)
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{ran} run a b\n"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    match message {
        "" => assert_eq!(stderr, ""),
        _ => assert!(stderr.starts_with(&format!("alara-cuda does not start: {message}")), "{stderr}"),
    }
}

#[test]
fn the_launcher_starts_what_starts_and_says_what_is_missing() {
    let missing = |library: &str| LOADER.replace("LIBRARY", library);
    let works = "echo cuda \"$@\"";
    check(Some(works), None, "cuda", "");
    check(Some(works), Some("580.65.06"), "cuda", "");
    check(
        Some(works),
        Some("535.54.03"),
        "cpu",
        "the NVIDIA driver is of version 535; CUDA 13 takes 580 or later",
    );
    check(None, None, "cpu", "it is not in ");
    check(Some(&missing("libcuda.so.1")), None, "cpu", "the NVIDIA driver is missing (libcuda.so.1)");
    check(
        Some(&missing("libcublas.so.13")),
        None,
        "cpu",
        "libraries of CUDA 13 are missing: libcublas.so.13",
    );
    check(Some("echo broken >&2; exit 1"), None, "cpu", "broken");
}
