//! Runs the commands in the docs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::output::fits;
use super::page::Page;
use super::steps::{Step, steps};
use crate::conventions::files;
use crate::dirs::sandboxed;
use crate::root;

/// Reasons why a block isn't run.
pub const REASONS: &[(&str, &str)] = &[
    ("network", "downloads something, or asks a machine elsewhere"),
    ("model", "a model that is not in the repository"),
    ("gpu", "a GPU"),
    ("minutes", "more time than a test may take"),
    ("terminal", "somebody at a terminal"),
    ("system", "changes what is the system's or the user's"),
    ("programs", "programs of others"),
];

/// The port in the pages; a test uses a free one instead.
const PORT: &str = "8080";

/// The folder of a page: its work directory, a home, links to the repository, and running servers.
struct Place {
    root: tempfile::TempDir,
    port: String,
    servers: Vec<Child>,
}

impl Place {
    fn new() -> Place {
        // Tasks have a private `/tmp`.
        let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let base = if base.starts_with("/tmp") { Path::new("/var/tmp") } else { base };
        let place = tempfile::tempdir_in(base).unwrap();
        for folder in ["work", "home", "bin", "tmp", "repository"] {
            fs::create_dir(place.path().join(folder)).unwrap();
        }
        let link = |from: &Path, to: PathBuf| std::os::unix::fs::symlink(from, to).unwrap();
        link(Path::new(env!("CARGO_BIN_EXE_alara")), place.path().join("bin/alara"));
        for entry in fs::read_dir(root()).unwrap().map(Result::unwrap) {
            let name = entry.file_name();
            if !["target", "runs", ".git"].iter().any(|left_out| name == *left_out) {
                link(&entry.path(), place.path().join("repository").join(name));
            }
        }
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Place { root: place, port: free.to_string(), servers: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Runs `script` in bash, with all output in one file, in the order of a terminal.
    fn bash(&self, script: &str, folder: &str) -> Command {
        let output = File::create(self.path("output")).unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new("bash");
        command
            .args(["-c", &script.replace(PORT, &self.port)])
            .current_dir(self.path(folder))
            .env_clear()
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"))
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null())
            .stderr(output.try_clone().unwrap())
            .stdout(output);
        command
    }

    fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("output")).unwrap()).into_owned()
    }

    /// Runs a step; an error describes the difference from the page.
    fn take(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Skip { reason, .. } => {
                let known = REASONS.iter().any(|(known, _)| known == reason);
                if known { Ok(()) } else { Err(format!("`needs: {reason}` is no known reason")) }
            }
            Step::File { path, text } => {
                let path = self.path("work").join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).map_err(|error| error.to_string())
            }
            Step::Start { line, command } => {
                let script = format!("exec {command} --port {PORT}");
                let child = self.bash(&script, "work").spawn().unwrap();
                self.servers.push(child);
                let deadline = Instant::now() + Duration::from_secs(60);
                while TcpStream::connect(format!("127.0.0.1:{}", self.port)).is_err() {
                    if Instant::now() > deadline {
                        return Err(format!("line {line}: `{command}` does not listen:\n{}", self.output()));
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                // Its log continues there.
                fs::remove_file(self.path("output")).map_err(|error| error.to_string())
            }
            Step::Run { line, command, expected, exit, repository } => {
                let folder = if *repository { "repository" } else { "work" };
                let code = self.bash(command, folder).status().unwrap().code();
                let output = self.output();
                let told = format!("line {line}: `{command}`");
                if code != Some(*exit) {
                    return Err(format!("{told} ended with {code:?}, not {exit}:\n{output}"));
                }
                let shown: Vec<String> = expected.iter().map(|line| line.replace(PORT, &self.port)).collect();
                let lines: Vec<&str> = output.lines().collect();
                if !shown.is_empty() && !fits(&shown, &lines) {
                    return Err(format!("{told} printed:\n{output}\nThe page has:\n{}", shown.join("\n")));
                }
                Ok(())
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Runs the steps of a page; returns the faults, and the number of commands run.
fn follow(steps: &[Step]) -> (Vec<String>, usize) {
    let mut place = Place::new();
    let mut faults = Vec::new();
    let mut count = 0;
    for step in steps {
        count += usize::from(matches!(step, Step::Run { .. } | Step::Start { .. }));
        faults.extend(place.take(step).err());
    }
    (faults, count)
}

#[test]
fn every_command_does_what_its_page_says() {
    if !sandboxed("every_command_does_what_its_page_says") {
        return;
    }
    let mut paths = files(&root().join("docs"), &[".md"]);
    paths.push(root().join("README.md"));
    // `ALARA_DOCS=teams` selects pages with that in their name.
    let only = std::env::var("ALARA_DOCS").unwrap_or_default();
    let pages: Vec<Page> = paths.iter().map(|path| Page::read(path)).collect();
    let pages = pages.into_iter().filter(|page| page.path.to_string_lossy().contains(&only));
    let pages: Vec<(Page, Vec<Step>)> = pages
        .map(|page| {
            let steps = page.blocks().iter().flat_map(steps).collect();
            (page, steps)
        })
        .collect();
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    for step in pages.iter().flat_map(|(_, steps)| steps) {
        if let Step::Skip { reason, commands } = step {
            *skipped.entry(reason).or_default() += commands;
        }
    }
    let left = Mutex::new(pages.iter());
    let told = Mutex::new((Vec::new(), 0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some((page, steps)) = left.lock().unwrap().next() else { break };
                    let (faults, count) = follow(steps);
                    let mut told = told.lock().unwrap();
                    let path = page.path.display();
                    told.0.extend(faults.iter().map(|fault| format!("{path}: {fault}")));
                    told.1 += count;
                }
            });
        }
    });
    let (faults, count) = told.into_inner().unwrap();
    let reasons: Vec<String> = skipped
        .iter()
        .map(|(reason, count)| {
            let says = REASONS.iter().find(|(known, _)| known == reason).map_or("", |(_, says)| says);
            format!("\n  {count} need {reason}: {says}")
        })
        .collect();
    // Print past the captured output, so that skipped commands don't pass for tested ones.
    let note = format!("\ncommands of the pages: {count} were run{}\n", reasons.concat());
    let _ = std::io::stderr().write_all(note.as_bytes());
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n\n"));
    assert!(count > 50 || !only.is_empty(), "only {count} commands were run");
}

#[test]
fn a_page_that_is_wrong_is_told() {
    let page = |text: &str| {
        let page = Page { path: "x.md".into(), text: text.to_owned() };
        follow(&page.blocks().iter().flat_map(steps).collect::<Vec<_>>())
    };
    assert_eq!(page("```console\n$ echo a\na\n$ false || true\n```\n"), (Vec::new(), 2));
    let (faults, _) = page("```sh\nfalse\n```\n");
    assert!(faults[0].contains("ended with Some(1), not 0"), "{faults:?}");
    let (faults, _) = page("```console\n$ echo a\nb\n```\n");
    assert!(faults[0].contains("printed:\na\n"), "{faults:?}");
    let (faults, _) = page("<!-- needs: luck -->\n```sh\nfalse\n```\n");
    assert!(faults[0].contains("luck"), "{faults:?}");
}
