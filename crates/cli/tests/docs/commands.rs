//! The commands of the pages, run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::page::{Block, Page};
use crate::conventions::files;
use crate::dirs::sandboxed;
use crate::root;

/// Why a block is not run.
pub const REASONS: &[(&str, &str)] = &[
    ("network", "downloads something, or asks a machine elsewhere"),
    ("model", "a model that is not in the repository"),
    ("gpu", "a GPU"),
    ("minutes", "more time than a test may take"),
    ("terminal", "somebody at a terminal"),
    ("system", "changes what is the system's or the user's"),
    ("programs", "programs of others"),
];

/// The port that pages name; a test takes one that is free.
const PORT: &str = "8080";

/// What a page says is done, in its order.
enum Step {
    File { path: String, text: String },
    Run { line: usize, command: String, expected: Vec<String>, exit: i32, repository: bool },
    Start { line: usize, command: String },
    Skip { reason: String, commands: usize },
}

/// The name of a file that a comment at the head of a block gives.
fn named(first: &str) -> Option<&str> {
    let name = first.strip_prefix("# ").or_else(|| first.strip_prefix("// "))?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    (name.contains('.') && !name.contains("..") && !name.starts_with('/') && name.chars().all(fits))
        .then_some(name)
}

/// Commands after `$ `, each with its line in the block and what is shown of its output.
fn console(lines: &[String]) -> Vec<(usize, String, Vec<String>)> {
    let mut found: Vec<(usize, String, Vec<String>)> = Vec::new();
    let mut goes_on = false;
    for (at, line) in lines.iter().enumerate() {
        if goes_on {
            let (_, command, _) = found.last_mut().unwrap();
            *command += "\n";
            *command += line;
            goes_on = line.ends_with('\\');
        } else if let Some(command) = line.strip_prefix("$ ") {
            found.push((at, command.to_owned(), Vec::new()));
            goes_on = command.ends_with('\\');
        } else {
            let (_, _, output) = found.last_mut().expect("a block of console begins with `$ `");
            output.push(line.clone());
        }
    }
    found
}

fn steps(block: &Block) -> Vec<Step> {
    let whole = || block.lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    if let Some(path) = block.marks.get("file") {
        return vec![Step::File { path: path.clone(), text: whole() }];
    }
    let commands = match block.language.as_str() {
        "console" => console(&block.lines),
        "sh" => vec![(0, format!("set -e\n{}", whole()), Vec::new())],
        _ => {
            let first = block.lines.first().map(String::as_str).unwrap_or_default();
            let Some(path) = named(first) else { return Vec::new() };
            // JSON has no comments.
            let skipped = usize::from(first.starts_with("//"));
            let text = block.lines[skipped..].iter().map(|line| format!("{line}\n")).collect();
            return vec![Step::File { path: path.to_owned(), text }];
        }
    };
    if let Some(reason) = block.marks.get("needs") {
        return vec![Step::Skip { reason: reason.clone(), commands: commands.len() }];
    }
    let exit = block.marks.get("exit").map_or(0, |code| code.parse().unwrap());
    let repository = block.marks.get("in").is_some_and(|place| place == "repository");
    let step = |(at, command, expected): (usize, String, Vec<String>)| {
        let line = block.line + 1 + at;
        match block.marks.contains_key("goes") {
            true => Step::Start { line, command },
            false => Step::Run { line, command, expected, exit, repository },
        }
    };
    commands.into_iter().map(step).collect()
}

/// `text` with numbers before units of time, and the names of traces and runs, made alike.
fn without_clock(text: &str) -> String {
    let units = ["s", "ms", "min", "tokens/s", "%"];
    let alike = |word: &str, next: Option<&&str>| {
        let number = word.trim_start_matches('(').chars().all(|c| c.is_ascii_digit() || c == '.');
        let unit = next.map(|next| next.trim_end_matches([',', ';', ')', '.']));
        if number && unit.is_some_and(|unit| units.contains(&unit)) {
            "N".to_owned()
        } else {
            word.to_owned()
        }
    };
    let words: Vec<&str> = text.split(' ').collect();
    let words = words.iter().enumerate().map(|(at, word)| alike(word, words.get(at + 1)));
    words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

/// Whether a line is as shown, where `…` stands for anything.
fn line_fits(shown: &str, line: &str) -> bool {
    let (shown, line) = (without_clock(shown), without_clock(line));
    let mut parts = shown.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Whether lines are as shown, where a line `…` stands for any.
fn fits(shown: &[String], lines: &[&str]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..]))
        }
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, more)| line_fits(first, line) && fits(rest, more))
        }
    }
}

/// The folder of a page: its work, a home, a copy of the repository by links, and what runs there.
struct Place {
    root: tempfile::TempDir,
    port: String,
    servers: Vec<Child>,
}

impl Place {
    fn new() -> Place {
        // Tasks see a `/tmp` of their own.
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

    /// `script` in bash, whose output goes to one file, as on a terminal.
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

    /// Does a step; an error says what was otherwise than the page has it.
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
                // Its log goes on there.
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

/// Does what a page says; the faults, and how many commands were run.
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
    // `ALARA_DOCS=teams` takes pages with that in their name only.
    let only = std::env::var("ALARA_DOCS").unwrap_or_default();
    let pages: Vec<Page> = paths.iter().map(|path| Page::read(path)).collect();
    let pages = pages.into_iter().filter(|page| page.path.to_string_lossy().contains(&only));
    let pages: Vec<(Page, Vec<Step>)> = pages
        .map(|page| (page.blocks().iter().flat_map(steps).collect(), page))
        .map(|(a, b)| (b, a))
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
    // Past the captured output, so that nobody takes what was not run for tested.
    let note = format!("\ncommands of the pages: {count} were run{}\n", reasons.concat());
    let _ = std::io::stderr().write_all(note.as_bytes());
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n\n"));
    assert!(count > 50 || !only.is_empty(), "only {count} commands were run");
}

#[test]
fn what_is_otherwise_than_shown_is_seen() {
    let check = |shown: &str, printed: &str| {
        let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
        fits(&shown, &printed.lines().collect::<Vec<_>>())
    };
    assert!(check("a\n…\nd … f", "a\nb\nc\nd e f"));
    assert!(check("ok, 0.16 s", "ok, 12.0 s"));
    assert!(check("at 926.9 tokens/s; trace ….jsonl", "at 2.0 tokens/s; trace x/1-2.jsonl"));
    assert!(!check("a\n…\nd", "a\nb"));
    assert!(!check("a", "a\nb"));
    assert!(!check("1 task", "2 task"));
    assert!(!check("a … c", "a b"));
}

#[test]
fn blocks_become_steps() {
    let text = "```yaml\n# team/a.npc\nname: a\n```\n```json\n// b.json\n{}\n```\n<!-- exit: 1 -->\n```console\n\
                $ x \\\n  y\nout\n$ z\n```\n<!-- needs: gpu -->\n```sh\nx\n```\n```yaml\n# no name: it has blanks\n```\n";
    let page = Page { path: "x.md".into(), text: text.to_owned() };
    let steps: Vec<Step> = page.blocks().iter().flat_map(steps).collect();
    let [
        Step::File { path, text },
        Step::File { text: json, .. },
        Step::Run { line, command, expected, exit, .. },
        Step::Run { .. },
        Step::Skip { reason, .. },
    ] = &steps[..]
    else {
        panic!("other steps")
    };
    assert_eq!(
        (path.as_str(), text.as_str(), json.as_str()),
        ("team/a.npc", "# team/a.npc\nname: a\n", "{}\n")
    );
    assert_eq!((*line, command.as_str(), *exit), (11, "x \\\n  y", 1));
    assert_eq!(expected, &["out"]);
    assert_eq!(reason, "gpu");
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
