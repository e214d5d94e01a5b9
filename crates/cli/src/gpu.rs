//! Finds the GPUs of this machine, whether or not this build supports them.

use std::fs;
use std::path::Path;

use alara_engine::inspect::gpus;

use crate::ui;

/// The oldest driver that supports CUDA 13.
/// Source: NVIDIA's CUDA Toolkit release notes, table of drivers.
const DRIVER: u32 = 580;

/// A GPU, or the absence of one.
#[derive(Debug, PartialEq, Eq)]
pub struct GpuFinding {
    /// Its name.
    pub what: String,
    /// Its properties.
    pub found: String,
    /// Whether this build computes on it; `None` if there is no GPU.
    pub used: Option<bool>,
    /// What to do if it doesn't.
    pub remedy: &'static str,
}

const RUN_CUDA: &str = "run alara-cuda, the build for NVIDIA's GPUs (docs/gpu.md)";
const NEW_DRIVER: &str = "version 580 of the NVIDIA driver or a later one, and alara-cuda (docs/gpu.md)";
const NO_DRIVER: &str = "the NVIDIA driver, version 580 or later, and alara-cuda (docs/gpu.md)";

/// Returns the GPUs of a machine whose file system begins at `root`, or one finding that there is
/// none.
pub fn findings(root: &Path) -> Vec<GpuFinding> {
    let mut all: Vec<GpuFinding> = gpus()
        .into_iter()
        .map(|(device, opened)| GpuFinding {
            what: device.to_string(),
            used: Some(opened.is_ok()),
            found: match opened {
                Ok(gpu) => format!("{}, {} free", gpu.name, ui::bytes(gpu.free)),
                Err(error) => error.to_string(),
            },
            remedy: "",
        })
        .collect();
    if !cfg!(feature = "cuda") {
        all.extend(nvidia(root));
    }
    if all.is_empty() {
        all.push(GpuFinding { what: "GPU".into(), found: "none was seen".into(), used: None, remedy: "" });
    }
    all
}

/// Finds NVIDIA's GPUs from files: those of its driver, of Windows' driver in WSL, or of the PCI
/// bus.
fn nvidia(root: &Path) -> Vec<GpuFinding> {
    let finding =
        |found: String, remedy| GpuFinding { what: "NVIDIA GPU".into(), found, used: Some(false), remedy };
    let driver = root.join("proc/driver/nvidia");
    let gpus = driver.join("gpus");
    let names = entries(&gpus).filter_map(|gpu| {
        let text = fs::read_to_string(gpu.join("information")).ok()?;
        Some(text.lines().find_map(|line| line.strip_prefix("Model:"))?.trim().to_owned())
    });
    let names: Vec<String> = names.collect();
    let version = fs::read_to_string(driver.join("version")).ok().and_then(|text| version(&text));
    if let Some(version) = version {
        let remedy = match version.split('.').next().and_then(|major| major.parse::<u32>().ok()) {
            Some(major) if major < DRIVER => NEW_DRIVER,
            _ => RUN_CUDA,
        };
        let driver = format!("driver {version}");
        return names.iter().map(|name| finding(format!("{name}, {driver}"), remedy)).collect();
    }
    if root.join("usr/lib/wsl/lib/libcuda.so.1").exists() {
        return vec![finding("one that Windows lends to WSL".into(), RUN_CUDA)];
    }
    let is = |device: &Path, file: &str, start: &str| {
        fs::read_to_string(device.join(file)).is_ok_and(|text| text.starts_with(start))
    };
    // Vendor NVIDIA, class display controller.
    let on_bus = entries(&root.join("sys/bus/pci/devices"))
        .filter(|device| is(device, "vendor", "0x10de") && is(device, "class", "0x03"))
        .count();
    (0..on_bus).map(|_| finding("one whose driver is not running".into(), NO_DRIVER)).collect()
}

/// Lists a folder in order; returns nothing if it can't be read.
fn entries(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let mut found: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found.into_iter()
}

/// Finds the driver's version: the first word that looks like one.
/// An example is `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun …`.
fn version(text: &str) -> Option<String> {
    let is = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(is).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[(&str, &str)]) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = nvidia(root.path());
        let found: Vec<_> = found.iter().map(|finding| (finding.found.as_str(), finding.remedy)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_files_tell_of_a_gpu() {
        let version = "proc/driver/nvidia/version";
        let gpu = |number: usize| format!("proc/driver/nvidia/gpus/0000:0{number}:00.0/information");
        let model = "Model: \t\t NVIDIA GeForce RTX 3060\nIRQ:   \t\t 129\n";
        let text = |version| {
            format!(
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Sun Jul 27 06:50:08 UTC 2025\nGCC version:\n"
            )
        };
        check(&[], &[]);
        check(
            &[(version, &text("580.65.06")), (&gpu(1), model), (&gpu(2), model)],
            &[("NVIDIA GeForce RTX 3060, driver 580.65.06", RUN_CUDA); 2],
        );
        check(
            &[(version, &text("535.54.03")), (&gpu(1), model)],
            &[("NVIDIA GeForce RTX 3060, driver 535.54.03", NEW_DRIVER)],
        );
        // The open kernel modules use another format.
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build\n";
        check(
            &[(version, open), (&gpu(1), model)],
            &[("NVIDIA GeForce RTX 3060, driver 575.57.08", NEW_DRIVER)],
        );
        check(&[("usr/lib/wsl/lib/libcuda.so.1", "")], &[("one that Windows lends to WSL", RUN_CUDA)]);
        let device = |file: &str| format!("sys/bus/pci/devices/0000:01:00.0/{file}");
        check(
            &[(&device("vendor"), "0x10de\n"), (&device("class"), "0x030000\n")],
            &[("one whose driver is not running", NO_DRIVER)],
        );
        // The GPU's sound device, and another vendor's display.
        check(&[(&device("vendor"), "0x10de\n"), (&device("class"), "0x040300\n")], &[]);
        check(&[(&device("vendor"), "0x8086\n"), (&device("class"), "0x030000\n")], &[]);
    }

    #[test]
    fn where_there_is_none_it_is_said() {
        let root = tempfile::tempdir().unwrap();
        if !cfg!(any(feature = "cuda", feature = "metal")) {
            let found = findings(root.path()).remove(0);
            assert_eq!(
                (found.what.as_str(), found.found.as_str(), found.used),
                ("GPU", "none was seen", None)
            );
        }
    }
}
