//! `alara doctor`: tests the capabilities of this machine.

mod attack;

use std::borrow::Cow;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use alara_engine::{Isa, default_threads};
use alara_harness::sandbox::{Enforced, Guarding, Output, Policy, Sandbox, Script, enforced};
use alara_models::{hub, local, memory, ollama, pull};
use serde::Serialize;

use crate::{config, gpu, ui};

/// Test what this machine supports: layers of the sandbox, programs, memory, disk space for models
///
/// Exit code 1 if something that alara needs is missing.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Try the methods that hostile programs use to escape the sandbox: all of them, or one attack
    /// by name.
    /// Exit code 1 if something gets through
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    attack: Option<String>,
}

/// One line of the report.
#[derive(Serialize)]
struct Finding {
    group: &'static str,
    what: Cow<'static, str>,
    /// Whether it is present; `null` if it can't be missing.
    ok: Option<bool>,
    /// Whether alara needs it.
    essential: bool,
    found: String,
    /// Its purpose, and what to do if it is missing.
    why: &'static str,
    remedy: &'static str,
}

/// A layer of the sandbox: its name, a test for it, why it matters, what to do.
type Layer = (&'static str, fn(&Enforced) -> bool, &'static str, &'static str);

const NAMESPACES: &str = "allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1; on Ubuntu also \
                          kernel.apparmor_restrict_unprivileged_userns=0; in a container, run it with --security-opt \
                          seccomp=unconfined";
const LANDLOCK: &str =
    "a kernel from 5.13 on with Landlock: `landlock` must be among the `lsm=` of its command line";
const LAYERS: [Layer; 9] = [
    ("user namespace", |found| found.user, "the base of the other namespaces", NAMESPACES),
    (
        "mount namespace",
        |found| found.mounts,
        "hides the home directory, credentials and services; makes the rest read-only",
        NAMESPACES,
    ),
    ("network namespace", |found| found.network, "no network unless a tool declares it", NAMESPACES),
    ("process namespace", |found| found.processes, "nothing outlives its step", NAMESPACES),
    (
        "own /proc",
        |found| found.proc,
        "other processes can't be seen",
        "don't mask parts of /proc in the container",
    ),
    ("Landlock", |found| found.landlock > 0, "no writing outside the work directory", LANDLOCK),
    (
        "system call filter",
        |found| found.seccomp,
        "closes doors that steps have no business with",
        "a kernel with CONFIG_SECCOMP_FILTER",
    ),
    (
        "limits of the kernel",
        |found| found.limits,
        "memory, processor time and file size of a process",
        "Linux",
    ),
    (
        "watched limits",
        |found| found.supervised,
        "memory, processor time, processes and bytes written of a whole step",
        "a /proc that can be read",
    ),
];

/// Programs: name, the argument that prints the version, whether alara needs it, its purpose.
const PROGRAMS: [(&str, &str, bool, &str); 4] = [
    ("bash", "--version", true, "`bash` steps"),
    ("python3", "--version", true, "`python` steps"),
    ("git", "--version", false, "tools that look at a repository"),
    ("pdftotext", "-v", false, "reading PDF files"),
];

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(name) = &args.attack {
        return attack::run(name, args.json);
    }
    let mut findings = sandbox();
    findings.push(guard()?);
    findings.extend(programs()?);
    findings.extend(machine());
    findings.extend(gpus());
    let lacking = findings.iter().any(|finding| finding.essential && finding.ok == Some(false));
    if args.json {
        ui::line(&serde_json::to_string_pretty(&findings)?);
    } else {
        show(&findings, lacking);
    }
    Ok(if lacking { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Tests the layers one by one.
/// A protection can be essential and come from more than one layer.
fn sandbox() -> Vec<Finding> {
    let found = enforced();
    let layer = |(what, on, why, remedy): Layer| {
        let ok = on(found);
        let version =
            if what == "Landlock" && ok { format!("version {}", found.landlock) } else { String::new() };
        Finding {
            group: "sandbox",
            what: what.into(),
            ok: Some(ok),
            essential: false,
            found: version,
            why,
            remedy,
        }
    };
    let mut layers: Vec<Finding> = LAYERS.map(layer).into();
    let purposes: [(&str, bool, &str); 3] = [
        ("steps can't write elsewhere", found.landlock > 0 || found.mounts, "mount namespace or Landlock"),
        ("steps have no network", found.network || found.seccomp, "network namespace or system call filter"),
        ("steps have limits", found.limits && found.supervised, "limits of the kernel and watched limits"),
    ];
    layers.extend(purposes.map(|(what, ok, why)| Finding {
        group: "in all",
        what: what.into(),
        ok: Some(ok),
        essential: true,
        found: String::new(),
        why,
        remedy: "see above; it needs Linux",
    }));
    layers
}

/// Tests on a temporary directory how the files of a work directory are guarded.
fn guard() -> anyhow::Result<Finding> {
    let work = tempfile::tempdir()?;
    std::fs::write(work.path().join("file"), "")?;
    let sandbox = Sandbox::new(work.path(), Policy { guard: true, ..Policy::default() })?;
    let layers = sandbox.guarding() == Some(Guarding::Layer);
    Ok(Finding {
        group: "in all",
        what: "your files are guarded".into(),
        ok: Some(true),
        essential: false,
        found: match layers {
            true => {
                "steps write to a layer over the work directory; what would lose something is asked about"
                    .to_owned()
            }
            false => {
                "each step that may write is asked about before it runs: there is no overlayfs for users here"
                    .to_owned()
            }
        },
        why: "",
        remedy: "",
    })
}

/// Starts each program in the sandbox, where it has to work.
fn programs() -> anyhow::Result<Vec<Finding>> {
    let sandbox = Sandbox::new(Path::new("."), Policy::default())?;
    let try_out = |program: &[&str]| -> Option<Output> {
        let timeout = Duration::from_secs(20);
        let script = Script::new(program, timeout);
        sandbox.run(&script).ok().filter(|output| output.exit == Some(0))
    };
    let mut findings: Vec<Finding> = PROGRAMS
        .iter()
        .map(|&(what, flag, essential, why)| {
            let output = try_out(&[what, flag]);
            let version = output.as_ref().map(|output| match output.stdout.is_empty() {
                true => first_line(&output.stderr),
                false => first_line(&output.stdout),
            });
            Finding {
                group: "programs",
                what: what.into(),
                ok: Some(version.is_some()),
                essential,
                found: version.unwrap_or_default(),
                why,
                remedy: "install it where PATH finds it",
            }
        })
        .collect();
    let times = (0..5).filter_map(|_| {
        let begun = Instant::now();
        try_out(&["true"]).map(|_| begun.elapsed())
    });
    let found = times.min().map_or_else(String::new, |time| format!("{:.1} ms", time.as_secs_f64() * 1e3));
    findings.push(plain("programs", "start in the sandbox", found));
    Ok(findings)
}

fn gpus() -> Vec<Finding> {
    let finding = |gpu: gpu::GpuFinding| Finding {
        group: "GPUs",
        what: gpu.what.into(),
        ok: gpu.used,
        essential: false,
        found: gpu.found,
        why: "",
        remedy: gpu.remedy,
    };
    gpu::findings(Path::new("/")).into_iter().map(finding).collect()
}

fn machine() -> Vec<Finding> {
    let available: Vec<&str> = Isa::available().map(Isa::name).collect();
    let space = |folder: &Path| {
        let free = folder
            .ancestors()
            .find_map(pull::free)
            .map_or_else(String::new, |free| format!(", {} free", ui::bytes(free)));
        let missing = if folder.is_dir() { "" } else { ", not there yet" };
        format!("{}{missing}{free}", folder.display())
    };
    let models = local::models(config::model_file()).map_or(0, |models| models.len());
    let terminal = match (std::io::stdout().is_terminal(), std::env::var("TERM")) {
        (true, Ok(kind)) => kind,
        (true, Err(_)) => "a terminal of unknown kind".to_owned(),
        (false, _) => "none: the output goes to a file or a program".to_owned(),
    };
    let hub = hub::cache_folder().map_or_else(|error| error.to_string(), |folder| space(&folder));
    let ollama = ollama::folder().map_or_else(|| "not found".to_owned(), |folder| space(&folder));
    let memory = memory::available()
        .map_or_else(|| "unknown".to_owned(), |bytes| format!("{} available", ui::bytes(bytes)));
    let around = memory::group_limit().map_or_else(
        || "none by the kernel; `systemd-run --user --scope -p MemoryMax=8G alara …` is a wall around all steps".to_owned(),
        |bytes| format!("{} of memory, by the kernel's control groups", ui::bytes(bytes)),
    );
    vec![
        plain("machine", "limits around alara", around),
        plain("machine", "instructions", format!("{} (of {})", Isa::best().name(), available.join(", "))),
        plain("machine", "threads", default_threads().to_string()),
        plain("machine", "memory", memory),
        plain("machine", "temporary files", space(&std::env::temp_dir())),
        plain("machine", "terminal", terminal),
        plain("models", "on this machine", models.to_string()),
        plain("models", "hub's cache", hub),
        plain("models", "Ollama", ollama),
    ]
}

/// A neutral fact.
fn plain(group: &'static str, what: &'static str, found: String) -> Finding {
    Finding { group, what: what.into(), ok: None, essential: false, found, why: "", remedy: "" }
}

fn first_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned()
}

fn show(findings: &[Finding], lacking: bool) {
    let width = findings.iter().map(|finding| finding.what.chars().count()).max().unwrap_or(0);
    let mut group = "";
    for finding in findings {
        if finding.group != group {
            group = finding.group;
            ui::line(group);
        }
        let mark = match finding.ok {
            Some(true) => "yes",
            Some(false) if finding.essential => "NO",
            Some(false) => "no",
            None => "",
        };
        let found = if finding.found.is_empty() { finding.why } else { &finding.found };
        ui::line(format!("  {mark:<4}{:<width$}  {found}", finding.what).trim_end());
        if finding.ok == Some(false) && !finding.remedy.is_empty() {
            ui::line(&format!("  {:<4}{:<width$}  to have it: {}", "", "", finding.remedy));
        }
    }
    ui::line(if lacking {
        "something is missing that alara can't do without"
    } else {
        "all that alara needs is here"
    });
}
