//! MCP servers as tools: over three transports, and what servers and files may do wrong.

mod http;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use alara_harness::model::Reply;
use alara_harness::permission::{self, Answer, Permissions};
use alara_harness::sandbox::Isolation;
use alara_harness::trace::{Entry, Record};
use alara_harness::{Agent, Notice, Outcome, Policy, Sandbox, Scripted, Session, Single, Team, replay};
use http::{Server, Way};
use serde_json::{Value, json};

/// A team in a directory, and a place to work.
struct House {
    team: Team,
    work: tempfile::TempDir,
    directory: tempfile::TempDir,
}

/// What happened in a run.
struct Ran {
    outcome: Outcome,
    model: Scripted,
    entries: Vec<Entry>,
    warnings: Vec<String>,
    asked: Vec<String>,
}

impl House {
    /// With these files, and the server `echo.sh` beside them.
    fn with(files: &[(&str, &str)]) -> House {
        let directory = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.sh");
        std::fs::copy(script, directory.path().join("echo.sh")).unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let team = Team::load(directory.path()).unwrap();
        House { team, work: tempfile::tempdir().unwrap(), directory }
    }

    /// Where the NPC `w` names these servers.
    fn naming(servers: &str) -> House {
        let house = House::with(&[("w.npc", &npc("w", "[shell]", servers))]);
        assert_eq!(house.said(), Vec::<String>::new());
        house
    }

    /// With the server of the test, in which something is odd.
    fn odd(odd: &str) -> House {
        House::naming(&format!("[{{name: echo, path: echo.sh, args: [{odd}], timeout: 1}}]"))
    }

    fn said(&self) -> Vec<String> {
        let root = format!("{}/", self.directory.path().display());
        self.team.check().iter().map(|said| said.to_string().replace(&root, "")).collect()
    }

    fn sandbox(&self) -> Sandbox {
        let policy = Policy { isolation: Isolation::Off, ..Policy::default() };
        Sandbox::new(self.work.path(), policy).unwrap()
    }

    /// A run in which a person agrees to everything.
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

    /// What the model read of its calls.
    fn results(&self) -> Vec<String> {
        let requests = self.model.requests();
        let messages = &requests.last().unwrap().messages;
        let results = messages
            .iter()
            .filter(|message| message.name.is_some() || message.content.starts_with("{\"ok\""));
        results.map(|message| message.content.clone()).collect()
    }
}

/// Calls work, and a whitelist hides `b` from the list and from the executor.
fn works(servers: &str) -> Ran {
    let house = House::naming(servers);
    let ran = house.run(vec![call("a"), call("b"), done()]);
    assert_eq!(ran.outcome, Outcome::Answer { text: "Done.".into() });
    assert_eq!(ran.tools(), ["shell", "a"]);
    let tool = &ran.model.requests()[0].tools[1];
    assert_eq!(tool.description, "Says it again.");
    assert_eq!(
        (&tool.parameters["required"], &tool.parameters["additionalProperties"]),
        (&json!(["text"]), &json!(false))
    );
    assert_eq!(
        ran.results(),
        [
            r#"{"ok":true,"output":"echo: hi"}"#,
            r#"{"ok":false,"exit":null,"error":"`b` is not permitted; the tools are: shell, a"}"#
        ]
    );
    assert_eq!((ran.warnings.clone(), ran.asked.len()), (Vec::<String>::new(), 1));
    ran
}

#[test]
fn mcp_client_stdio() {
    let ran = works("[{path: echo.sh, tools: [a]}]");
    assert!(ran.asked[0].starts_with("mcp:bash /") && ran.asked[0].ends_with("/echo.sh"), "{:?}", ran.asked);
    let Record::Start(start) = &*ran.entries[0].record else { panic!("{:?}", ran.entries[0]) };
    assert_eq!((start.mcp[0].version.as_str(), &start.mcp[0].tools["a"]), ("echo 1.0", &json!("a")));
}

#[test]
fn mcp_client_streamable_http() {
    for way in [Way::Json, Way::Events] {
        let server = Server::start(way);
        works(&format!("[{{url: '{}', transport: streamable-http, tools: [a]}}]", server.url));
        // The session and the version are named once they are known, and the session is ended.
        assert!(server.all_have("POST", "mcp-session-id", "s1"));
        assert!(server.all_have("POST", "mcp-protocol-version", "2025-03-26"));
        assert_eq!(server.lines().last().unwrap(), "DELETE /mcp HTTP/1.1");
    }
}

#[test]
fn mcp_client_sse() {
    let server = Server::start(Way::Sse);
    works(&format!("[{{url: '{}', transport: sse, tools: [a]}}]", server.url));
    assert_eq!(server.lines()[0], "GET /mcp HTTP/1.1");
    // Without a transport the newer one is tried first.
    works(&format!("[{{url: '{}', tools: [a]}}]", Server::start(Way::Sse).url));
    works(&format!("[{{url: '{}', tools: [a]}}]", Server::start(Way::Json).url));
    // Messages go to the server that was named, and to no other.
    let house = House::naming(&format!(
        "[{{name: x, url: '{}', transport: sse}}]",
        Server::start(Way::Elsewhere).url
    ));
    let ran = house.run(vec![done()]);
    assert!(ran.warnings[0].contains("names an address on another server"), "{:?}", ran.warnings);
}

#[test]
fn mcp_client_whitelist() {
    let check = |ctx: &str, servers: &str, expected: &[&str]| {
        let ctx = format!("name: t\nmcp_servers: {ctx}\n");
        let house = House::with(&[("team.ctx", &ctx), ("w.npc", &npc("w", "[]", servers))]);
        assert_eq!(house.run(vec![done()]).tools(), expected, "{ctx} {servers} {:?}", house.said());
    };
    let all = "[{name: e, path: echo.sh}]";
    check(all, "[e]", &["a", "b"]);
    check(all, "e", &["a", "b"]);
    check(all, "[{tools: [a]}]", &["a"]);
    check(all, "{name: e, tools: [b]}", &["b"]);
    check(all, "[{tools: [a]}, {tools: [b]}]", &["a", "b"]);
    check(all, "[{tools: []}]", &[]);
    check(all, "[]", &[]);
    // What the team does not take can't be picked.
    check("[{name: e, path: echo.sh, tools: [a]}]", "[{tools: [a, b]}]", &["a"]);
    check("[{name: e, path: echo.sh, tools: [a]}]", "[e]", &["a"]);
    let house = House::naming("[{name: e, path: echo.sh, tools: [a, x]}]");
    let warnings = house.run(vec![done()]).warnings;
    assert_eq!(warnings, ["`e` (w.npc:4) has no tool `x`; it has: a, b"]);
}

#[test]
fn mcp_client_results() {
    let check = |odd: &str, expected: &str| {
        let ran = House::odd(odd).run(vec![call("a"), done()]);
        assert_eq!(ran.results(), [expected], "{odd}");
    };
    check("fails", r#"{"ok":false,"exit":null,"error":"no such row"}"#);
    check("refuses", r#"{"ok":false,"exit":null,"error":"it refuses: not today (-32602)"}"#);
    check("typed", r#"{"ok":true,"output":"{\"n\":[1,2]}"}"#);
    check("asks", r#"{"ok":true,"output":"pinged yes, refused yes"}"#);
    check("dies", r#"{"ok":false,"exit":null,"error":"it has ended: out of luck"}"#);
    // Arguments are checked here, whoever made the call.
    let ran = House::odd("x").run(vec![
        Reply::call("a", json!({})),
        Reply::call("a", json!({"text": 3})),
        Reply::call("a", json!({"text": "t", "more": 1})),
        done(),
    ]);
    assert!(ran.results()[0].contains("argument `text` is missing"), "{:?}", ran.results());
    assert!(ran.results()[1].contains("must be of type string"));
    assert!(ran.results()[2].contains("has no argument `more`"));
}

#[test]
fn mcp_client_a_server_that_hangs() {
    let begun = Instant::now();
    let ran = House::odd("hangs").run(vec![call("a"), call("b"), done()]);
    assert_eq!(ran.results()[0], r#"{"ok":false,"exit":null,"error":"no answer came within 1 s"}"#);
    // It was told, and can be asked again.
    assert_eq!(ran.results()[1], r#"{"ok":true,"output":"alive, and told"}"#);
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn mcp_client_a_server_that_is_cancelled() {
    let house = House::odd("mute");
    let model = Scripted::new([done()]);
    let source = Single(&model);
    let sandbox = house.sandbox();
    let cancel = sandbox.cancel_flag().clone();
    let session = Session::new(&source, &sandbox).asking(|_| Answer::Yes);
    let begun = Instant::now();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let offered = session.mcp.offered(&session, &house.team, house.team.npc(None).unwrap());
    assert_eq!((offered.jinxes.len(), offered.served[0].error.as_str()), (0, "cancelled"));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn mcp_client_servers_that_do_not_start() {
    let check = |odd: &str, expected: &str| {
        let ran = House::odd(odd).run(vec![done()]);
        assert_eq!(
            (ran.outcome, ran.model.requests()[0].tools.len()),
            (Outcome::Answer { text: "Done.".into() }, 1)
        );
        assert_eq!(ran.warnings, [format!("the MCP server `echo` (w.npc:4) is not there: {expected}")]);
    };
    check("dead", "it has ended: no database");
    check(
        "old",
        "it speaks version `1999-01-01` of the protocol, which is none of 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25",
    );
    check(
        "flood",
        "it says too much that is no message of the protocol; it printed what is no message of the protocol: Welcome!",
    );
    let ran = House::naming("[{name: gone, command: no-such-program-at-all}]").run(vec![done()]);
    assert!(ran.warnings[0].contains("no-such-program-at-all"), "{:?}", ran.warnings);
    let ran = House::naming("[{name: gone, url: 'http://127.0.0.1:1/mcp'}]").run(vec![done()]);
    assert!(
        ran.warnings[0].contains("`gone` (w.npc:4) is not there: the connection failed"),
        "{:?}",
        ran.warnings
    );
}

#[test]
fn mcp_client_odd_lists() {
    let check = |odd: &str, tools: &[&str], warnings: &[&str]| {
        let ran = House::odd(odd).run(vec![done()]);
        assert_eq!(ran.tools()[1..], *tools, "{odd}");
        let server = "the MCP server `echo` (w.npc:4): ";
        let expected: Vec<String> = warnings.iter().map(|text| format!("{server}{text}")).collect();
        assert_eq!(ran.warnings, expected, "{odd}");
    };
    check("pages", &["a", "b", "c"], &[]);
    check(
        "circle",
        &["a"],
        &[
            "its list of tools has no end: what came so far is taken",
            "it offers two tools `a`: the first one counts",
        ],
    );
    check(
        "junk",
        &["a", "b"],
        &[
            "it prints on standard output what is no message of the protocol, where it should use standard error: Welcome!",
        ],
    );
    // Names that prompts can carry, each its own; what is the team's stays the team's.
    check(
        "names",
        &["echo_a_b_c_d", "a_b_c_d", "echo_mcp", "echo_shell"],
        &["its tool `bad` is left out: its schema is not that of an object"],
    );
}

#[test]
fn mcp_client_names_clash_between_servers() {
    let servers = "[{name: one, path: echo.sh}, {name: two, path: echo.sh, args: [second], tools: [a]}]";
    let ran = House::naming(servers).run(vec![call("two_a"), call("one_a"), call("b"), done()]);
    assert_eq!(ran.tools(), ["shell", "one_a", "b", "two_a"]);
    let said = |text: &str| format!(r#"{{"ok":true,"output":"{text}"}}"#);
    assert_eq!(ran.results(), [said("second: hi"), said("echo: hi"), said("echo: hi")]);
}

#[test]
fn mcp_client_changed_lists_are_noted() {
    let ran = House::odd("changes").run(vec![call("a"), call("b"), done()]);
    assert_eq!(ran.results().len(), 2);
    assert!(
        ran.warnings.iter().all(|text| text.contains("says that its tools have changed")),
        "{:?}",
        ran.warnings
    );
    assert!(!ran.warnings.is_empty());
    assert_eq!(ran.model.requests()[0].tools, ran.model.requests()[2].tools);
}

#[test]
fn mcp_client_asks_before_it_starts() {
    let files = |rules: &str| {
        let ctx = format!("name: t\npermissions: {rules}\nmcp_servers: [{{name: e, path: echo.sh}}]\n");
        House::with(&[("team.ctx", &ctx), ("w.npc", &npc("w", "[]", "[e]"))])
    };
    let check = |rules: &str, answer: Option<Answer>, expected: Option<&str>| {
        let ran = files(rules).asked(Permissions::default(), answer, vec![done()]);
        let expected: Vec<String> = expected
            .map(|text| {
                format!("the MCP server `e` (team.ctx:3) is not there: its start is not permitted by {text}")
            })
            .into_iter()
            .collect();
        assert_eq!(
            (ran.warnings.clone(), ran.tools().len()),
            (expected.clone(), if expected.is_empty() { 2 } else { 0 }),
            "{rules} {answer:?}"
        );
    };
    let nobody = "anybody: nobody is there to be asked; allow it once at a terminal (`always`), or say --yes";
    check("{}", None, Some(nobody));
    check("{}", Some(Answer::No), Some("an answer"));
    check("{}", Some(Answer::Session), None);
    // A team can't permit it to itself, but forbid.
    check("{mcp: allow}", None, Some(nobody));
    check("{default: allow}", None, Some(nobody));
    check("{mcp: deny}", Some(Answer::Yes), Some("team.ctx:2"));
    check("{default: deny}", Some(Answer::Yes), Some("team.ctx:2"));
    // An answer that lasts is about exactly this.
    let house = files("{}");
    let file = house.work.path().join("answers.json");
    let permissions = || Permissions::open(&file).unwrap();
    assert_eq!(house.asked(permissions(), Some(Answer::Always), vec![done()]).asked.len(), 1);
    let again = house.asked(permissions(), None, vec![done()]);
    assert_eq!((again.tools().len(), again.warnings), (2, vec![]));
    let other = "name: t\nmcp_servers: [{name: e, path: echo.sh, args: [x]}]\n";
    std::fs::write(house.directory.path().join("team.ctx"), other).unwrap();
    let changed = House { team: Team::load(house.directory.path()).unwrap(), ..house };
    assert_eq!(changed.asked(permissions(), None, vec![done()]).tools(), Vec::<String>::new());
}

#[test]
fn mcp_client_rules_hold_for_tools() {
    let run = |rules: &str| {
        let ctx = format!("name: t\npermissions: {rules}\nmcp_servers: [{{name: e, path: echo.sh}}]\n");
        let house = House::with(&[("team.ctx", &ctx), ("w.npc", &npc("w", "[]", "[e]"))]);
        assert_eq!(house.said(), Vec::<String>::new());
        // The start was permitted before, nobody is there now.
        let permissions = Permissions::default();
        let script = house.directory.path().canonicalize().unwrap().join("echo.sh");
        permissions
            .remember(
                &permission::holder(&house.team),
                &format!("mcp:bash {}", script.display()),
                Answer::Session,
            )
            .unwrap();
        house.asked(permissions, None, vec![call("a"), call("b"), done()]).results()
    };
    let refused = |results: &[String]| {
        results.iter().map(|text| text.contains("is not permitted by team.ctx:2")).collect::<Vec<_>>()
    };
    assert_eq!(refused(&run("{a: deny}")), [true, false]);
    assert_eq!(refused(&run("{'a:hi': ask}")), [true, false]);
    assert_eq!(refused(&run("{default: ask, b: allow}")), [true, false]);
    assert_eq!(refused(&run("{}")), [false, false]);
}

#[test]
fn mcp_client_members_share_a_server() {
    let ctx = "name: t\nforenpc: w\nmcp_servers: [{name: e, path: echo.sh}]\n";
    let below = "name: below\ndescription: Others.\nforenpc: x\n";
    let named = "name: named\ndescription: Others.\nforenpc: y\nmcp_servers: [e]\n";
    let house = House::with(&[
        ("team.ctx", ctx),
        ("w.npc", &npc("w", "[delegate]", "[{tools: [a]}]")),
        ("v.npc", &npc("v", "[]", "[{tools: [b]}]")),
        ("below/team.ctx", below),
        ("below/x.npc", &npc("x", "[]", "[]")),
        ("named/team.ctx", named),
        ("named/y.npc", &npc("y", "[]", "[{tools: [b]}]")),
    ]);
    assert_eq!(house.said(), Vec::<String>::new());
    let give = |name: &str| Reply::call("delegate", json!({"npc_name": name, "task": "Do it."}));
    let complete = || Reply::text(r#"{"complete": true, "feedback": ""}"#);
    let ran = house.run(vec![
        give("v"),
        call("b"),
        Reply::text("It is done."),
        complete(),
        give("below"),
        call("b"),
        Reply::text("I can't."),
        complete(),
        give("named"),
        call("b"),
        Reply::text("It is done."),
        complete(),
        done(),
    ]);
    assert_eq!(ran.asked.len(), 1, "{:?}", ran.asked);
    let tools: Vec<Vec<String>> = ran
        .entries
        .iter()
        .filter_map(|entry| match &*entry.record {
            Record::Start(start) => {
                Some(start.mcp.iter().flat_map(|served| served.tools.keys().cloned()).collect())
            }
            _ => None,
        })
        .collect();
    let of = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(
        tools.contains(&of(&["a"])) && tools.contains(&of(&["b"])) && tools.contains(&of(&[])),
        "{tools:?}"
    );
    let spoken = serde_json::to_string(&ran.entries).unwrap();
    assert_eq!(spoken.matches(r#""output":"echo: hi""#).count(), 2, "{spoken}");
    assert!(spoken.contains("`b` is not permitted"));
}

#[test]
fn mcp_client_nothing_is_left_running() {
    let house = House::odd("family");
    house.run(vec![call("a"), done()]);
    let written = std::fs::read_to_string(house.work.path().join("family.txt")).unwrap();
    let pids: Vec<&str> = written.split_whitespace().collect();
    assert_eq!(pids.len(), 2);
    let runs = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    let end = Instant::now() + Duration::from_secs(5);
    while pids.iter().any(|pid| runs(pid)) {
        assert!(Instant::now() < end, "{pids:?} still run");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn mcp_client_replay_without_the_server() {
    let house = House::odd("pages");
    let ran = house.run(vec![call("a"), call("c"), call("x"), done()]);
    assert_eq!(ran.tools(), ["shell", "a", "b", "c"]);
    // Its file is still named, but would do nothing.
    std::fs::write(house.directory.path().join("echo.sh"), "touch started; exit 1\n").unwrap();
    let model = replay::Replay::new(&ran.entries);
    let source = Single(&model);
    let sandbox = house.sandbox();
    let mut session = Session::new(&source, &sandbox);
    session.stand_ins = replay::StandIns::new(&ran.entries);
    replay::run(&session, &house.team, &ran.entries).unwrap();
    let recorded = session.stand_ins.outside(&ran.entries);
    let (compared, difference) = replay::difference(&recorded, &session.trace.entries());
    assert_eq!((compared, difference), (ran.entries.len(), None));
    assert!(!house.work.path().join("started").exists());
    // With other files it is told where it differs.
    let fewer = npc("w", "[shell]", "[{name: echo, path: echo.sh, args: [pages], timeout: 1, tools: [a]}]");
    std::fs::write(house.directory.path().join("w.npc"), fewer).unwrap();
    let mut session = Session::new(&source, &sandbox);
    session.stand_ins = replay::StandIns::new(&ran.entries);
    replay::run(&session, &Team::load(house.directory.path()).unwrap(), &ran.entries).unwrap();
    let (_, difference) = replay::difference(&ran.entries, &session.trace.entries());
    assert!(difference.unwrap().at.starts_with("tools"));
}

#[test]
fn mcp_client_forms_in_files() {
    let check = |servers: &str, expected: &[&str]| {
        let house = House::with(&[("w.npc", &npc("w", "[]", servers))]);
        let of_npc = &house.team.npc(None).unwrap().servers;
        let root = format!("{}/", house.directory.path().canonicalize().unwrap().display());
        let mut found: Vec<String> = of_npc
            .iter()
            .map(|server| format!("{}: {}", server.name, server.start().replace(&root, "")))
            .collect();
        found.extend(house.said());
        assert_eq!(found, expected, "{servers}");
    };
    check("echo.sh", &["echo: bash echo.sh"]);
    check("[./echo.sh]", &["echo: bash echo.sh"]);
    check("['npx -y @scope/server-files \"/a b\"']", &["server-files: npx -y @scope/server-files \"/a b\""]);
    check(
        "[{command: python -m mcp.server.sqlite, args: [--db, 3]}]",
        &["mcp_server_sqlite: python -m mcp.server.sqlite --db 3"],
    );
    check(
        "[{command: x, env: {B: $HOME_OF_B, A: 1}, network: true}]",
        &["x: x with A=\"1\", B=$HOME_OF_B and the network"],
    );
    check("[https://host.example/mcp?v=1]", &["host_example: https://host.example/mcp?v=1"]);
    check(
        "[{url: https://h/mcp, transport: sse, api_key: $KEY, headers: {X-Team: t}}]",
        &["h: https://h/mcp with X-Team=\"t\", Authorization=Bearer $KEY"],
    );
    let error = |text: &str| format!("w.npc:4:15: error: {text}");
    check(
        "[nothing.py]",
        &[&error("there is no file nothing.py in the team's folder or the one that it is in")],
    );
    check(
        "[~/x.py]",
        &[&error(
            "there is no file ~/x.py in the team's folder or the one that it is in: what is in a home directory is not seen, copy it there",
        )],
    );
    check(
        "[echo]",
        &[&error("there is no MCP server `echo`; a program is named as `command: …`, a file as `path: …`")],
    );
    check(
        "[{name: x}]",
        &[&error("there is no MCP server `x`; a program is named as `command: …`, a file as `path: …`")],
    );
    check(
        "[{tools: [a]}]",
        &[&error("`tools` alone picks from the MCP servers of the team's .ctx, which has none")],
    );
    check(
        "[{path: echo.sh, url: https://h}]",
        &[&error("an MCP server has one of `path`, `command` and `url`")],
    );
    check("['a \"b']", &[&error("`a \"b` is no command: a quote is not closed")]);
    check("[ftp://h/x]", &[&error("`ftp://h/x` is no address: it has no http:// or https://")]);
    check(
        "[https://me:hunter2@h/x]",
        &[&error("a user or password has no place in the address of an MCP server")],
    );
    check(
        "[{url: http://h/mcp, api_key: $KEY}]",
        &[&error("headers are not sent without encryption: take https, or leave them out")],
    );
    check(
        "[{url: http://127.0.0.1:1/mcp, api_key: $KEY}]",
        &["127_0_0_1: http://127.0.0.1:1/mcp with Authorization=Bearer $KEY"],
    );
    check(
        "[{url: https://h, api_key: hunter2}]",
        &[
            "h: https://h",
            "w.npc:4:32: error: a key in a file is not used: name the environment variable that holds it, as in `api_key: $NAME`",
        ],
    );
    check(
        "[{command: x, toolz: [a]}]",
        &["x: x", "w.npc:4:28: warning: unknown key `toolz`, did you mean `tools`?"],
    );
    check(
        "[{url: https://h, transport: carrier}]",
        &["h: https://h", "w.npc:4:32: error: a transport is sse or streamable-http, not `carrier`"],
    );
    check(
        "[{command: x, timeout: -1}]",
        &["x: x", "w.npc:4:28: error: `timeout` must be a number of seconds above 0"],
    );
    check(
        "[{command: x, env: {API_TOKEN: abc}}]",
        &[
            "x: x with API_TOKEN=\"abc\"",
            "w.npc:4:34: warning: `API_TOKEN` looks like a secret, and what stands in the file is shown: name the environment variable that holds it, as in `$NAME`",
        ],
    );
    check(
        "[{command: x}, {command: x y, name: x}]",
        &[
            "x: x",
            "w.npc:4:29: error: there are two MCP servers `x`; the first one counts: give the other a `name`",
        ],
    );
    // In a .ctx they wait for an NPC that names them.
    let house = House::with(&[
        ("team.ctx", "name: t\nmcp_servers: [{name: e, path: echo.sh}]\n"),
        ("w.npc", "name: w\nprimary_directive: Work.\n"),
    ]);
    assert_eq!(
        house.said(),
        [
            "team.ctx:2:15: warning: no NPC names the MCP server `e`: list it under `mcp_servers` of those that are to use it"
        ]
    );
    let house = House::with(&[
        ("team.ctx", "name: t\nmcp_servers: [{name: files, path: echo.sh}]\n"),
        ("w.npc", &npc("w", "[]", "[file]")),
    ]);
    assert!(
        house.said()[1].contains("there is no MCP server `file`, did you mean `files`?"),
        "{:?}",
        house.said()
    );
}

/// `alara` from outside, in the directory of the house.
fn alara(house: &House, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_alara"))
        .args(arguments)
        .current_dir(house.directory.path())
        .env("HOME", house.work.path())
        .env("XDG_STATE_HOME", house.work.path().join("state"))
        .env("SECRET_KEY", "hunter2hunter2")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn script(house: &House, replies: &Value) -> PathBuf {
    let path = house.directory.path().join("script.json");
    std::fs::write(&path, replies.to_string()).unwrap();
    path
}

#[test]
fn mcp_client_from_the_command_line() {
    let house = House::naming("[{name: e, path: echo.sh, args: [env], env: {OWN: mine}}]");
    std::fs::create_dir(house.directory.path().join("work")).unwrap();
    script(&house, &json!([{"calls": [{"name": "a", "arguments": {"text": "x"}}]}, {"text": "Done."}]));
    let run = |more: &[&str]| {
        let mut arguments =
            vec!["run", "-t", ".", "-m", "script:script.json", "--workdir", "work", "--trace", "t.jsonl"];
        arguments.extend(more);
        arguments.push("Begin.");
        let output = alara(&house, &arguments);
        let trace = std::fs::read_to_string(house.directory.path().join("t.jsonl")).unwrap();
        std::fs::remove_file(house.directory.path().join("t.jsonl")).unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), trace)
    };
    // In the sandbox, in the work directory, with its own environment.
    let (code, said, trace) = run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(trace.contains(r#""output":"own mine, secret none, in work""#), "{said}{trace}");
    assert!(!trace.contains("hunter2") && !said.contains("hunter2"), "{said}{trace}");
    // Nobody is there to be asked: it works without.
    let (code, said, trace) = run(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("is not there: its start is not permitted by anybody"), "{said}");
    assert!(trace.contains("`a` is not permitted; the tools are: shell"), "{trace}");

    let output = alara(&house, &["check", ".", "--connect"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(lines[1].starts_with("w of ") && lines[1].ends_with(" gets from MCP servers:"), "{shown}");
    assert_eq!(lines[2], format!("  {:<32} Says it again.", "a text [times]"));
    assert_eq!(lines[3], format!("  {:<32} Another.", "b text [times]"));
}

#[test]
fn mcp_client_keys_are_not_shown() {
    let server = Server::start(Way::Locked);
    let house = House::naming(&format!(
        "[{{name: e, url: '{}', transport: streamable-http, api_key: $SECRET_KEY}}]",
        server.url
    ));
    script(&house, &json!([{"text": "Done."}]));
    let run = ["run", "-t", ".", "-m", "script:script.json", "--trace", "t.jsonl", "--yes", "Begin."];
    let output = alara(&house, &run);
    let said = String::from_utf8(output.stderr).unwrap();
    let trace = std::fs::read_to_string(house.directory.path().join("t.jsonl")).unwrap();
    let sent = ("authorization".to_owned(), "Bearer hunter2hunter2".to_owned());
    assert!(server.received.lock().unwrap()[0].1.contains(&sent));
    assert!(said.contains("it answers 401: bad key Bearer ***"), "{said}");
    assert!(!said.contains("hunter2") && !trace.contains("hunter2"), "{said}{trace}");
    // A variable that is not set is told by its name.
    let house = House::naming("[{name: e, path: echo.sh, env: {X: $NOT_SET_AT_ALL}}]");
    let ran = house.run(vec![done()]);
    assert!(
        ran.warnings[0].ends_with("the environment variable NOT_SET_AT_ALL, which it is to get, is not set")
    );
}
