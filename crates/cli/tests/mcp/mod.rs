//! MCP servers as tools: over three transports, including misbehaving servers and invalid files.

mod ends;
mod files;
mod http;
mod modern;
mod resources;
mod schemas;
mod starts;
mod tools;
mod transports;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use alara_harness::model::Reply;
use alara_harness::permission::{Answer, Permissions};
use alara_harness::sandbox::Isolation;
use alara_harness::trace::Entry;
use alara_harness::{Agent, Notice, Outcome, Policy, Sandbox, Scripted, Session, Single, Team};
use serde_json::{Value, json};

/// A team in a directory, and a work directory.
struct McpTeam {
    team: Team,
    work: tempfile::TempDir,
    directory: tempfile::TempDir,
}

/// The results of a run.
struct Ran {
    outcome: Outcome,
    model: Scripted,
    entries: Vec<Entry>,
    warnings: Vec<String>,
    asked: Vec<String>,
}

impl McpTeam {
    /// Creates a team with these files, and the servers `echo.sh` and `modern.sh`.
    fn with(files: &[(&str, &str)]) -> McpTeam {
        let directory = tempfile::tempdir().unwrap();
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp");
        for (script, name) in [("server.sh", "echo.sh"), ("modern.sh", "modern.sh")] {
            std::fs::copy(scripts.join(script), directory.path().join(name)).unwrap();
        }
        for (name, text) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let team = Team::load(directory.path()).unwrap();
        McpTeam { team, work: tempfile::tempdir().unwrap(), directory }
    }

    /// Creates a team whose NPC `w` names these servers.
    fn naming(servers: &str) -> McpTeam {
        let setup = McpTeam::with(&[("w.npc", &npc("w", "[shell]", servers))]);
        assert_eq!(setup.diagnostics(), Vec::<String>::new());
        setup
    }

    /// Uses the test's server with an odd behaviour.
    fn odd(odd: &str) -> McpTeam {
        McpTeam::naming(&format!("[{{name: echo, path: echo.sh, args: [{odd}], timeout: 1}}]"))
    }

    /// Uses the server of the newest protocol with an odd behaviour.
    fn modern(odd: &str) -> McpTeam {
        McpTeam::naming(&format!("[{{name: new, path: modern.sh, args: [{odd}], timeout: 2}}]"))
    }

    fn diagnostics(&self) -> Vec<String> {
        let root = format!("{}/", self.directory.path().display());
        self.team.check().iter().map(|found| found.to_string().replace(&root, "")).collect()
    }

    fn sandbox(&self) -> Sandbox {
        let policy = Policy { isolation: Isolation::Off, ..Policy::default() };
        Sandbox::new(self.work.path(), policy).unwrap()
    }

    /// Runs with a user who confirms everything.
    fn run(&self, replies: Vec<Reply>) -> Ran {
        self.asked(Permissions::default(), Some(Answer::Yes), replies)
    }

    fn asked(&self, permissions: Permissions, answer: Option<Answer>, replies: Vec<Reply>) -> Ran {
        let model = Scripted::new(replies);
        let source = Single(&model);
        let sandbox = self.sandbox();
        let (warnings, asked) = (Mutex::new(Vec::new()), Arc::new(Mutex::new(Vec::new())));
        let session = Session::new(&source, &sandbox).permitted(permissions).observed(|notice| {
            if let Notice::Warning(text) = notice {
                warnings.lock().unwrap().push((*text).to_owned());
            }
        });
        let log = asked.clone();
        let session = match answer {
            Some(answer) => session.asking(move |question| {
                log.lock().unwrap().push(question.about.clone());
                answer
            }),
            None => session,
        };
        let npc = self.team.npc(None).unwrap();
        let outcome = Agent::new(&session, &self.team, npc, None).unwrap().run("Begin.").unwrap();
        let entries = session.trace.entries();
        drop(session);
        let asked = asked.lock().unwrap().clone();
        let root = format!("{}/", self.directory.path().canonicalize().unwrap().display());
        let warnings = warnings.into_inner().unwrap().into_iter();
        let warnings = warnings.map(|text: String| text.replace(&root, "")).collect();
        Ran { outcome, model, entries, warnings, asked }
    }
}

fn npc(name: &str, jinxes: &str, servers: &str) -> String {
    format!("name: {name}\nprimary_directive: Work.\njinxes: {jinxes}\nmcp_servers: {servers}\n")
}

fn call(tool: &str) -> Reply {
    Reply::call(tool, json!({"text": "hi"}))
}

fn done() -> Reply {
    Reply::text("Done.")
}

impl Ran {
    fn tools(&self) -> Vec<String> {
        self.model.requests()[0].tools.iter().map(|tool| tool.name.clone()).collect()
    }

    /// Returns the results of its calls that the model received.
    fn results(&self) -> Vec<String> {
        let requests = self.model.requests();
        let messages = &requests.last().unwrap().messages;
        let results = messages
            .iter()
            .filter(|message| message.name.is_some() || message.content.starts_with("{\"ok\""));
        results.map(|message| message.content.clone()).collect()
    }
}

/// Runs `alara` from outside, in the team's directory.
fn alara(setup: &McpTeam, arguments: &[&str]) -> Output {
    crate::alara()
        .args(arguments)
        .current_dir(setup.directory.path())
        .env("HOME", setup.work.path())
        .env("XDG_STATE_HOME", setup.work.path().join("state"))
        .env("SECRET_KEY", "hunter2hunter2")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn script(setup: &McpTeam, replies: &Value) -> PathBuf {
    let path = setup.directory.path().join("script.json");
    std::fs::write(&path, replies.to_string()).unwrap();
    path
}
