//! The ends of calls, starts and servers; a replay needs no server.

use std::time::{Duration, Instant};

use alara_harness::permission::Answer;
use alara_harness::{Scripted, Session, Single, Team, replay, run};

use super::http::{Server, Way};
use super::{McpTeam, call, done, npc};

#[test]
fn mcp_client_a_server_that_hangs() {
    let begun = Instant::now();
    let ran = McpTeam::odd("hangs").run(vec![call("a"), call("b"), done()]);
    assert_eq!(ran.results()[0], r#"{"ok":false,"exit":null,"error":"no answer came within 1 s"}"#);
    // The server was notified, and answers the next request.
    assert_eq!(ran.results()[1], r#"{"ok":true,"output":"alive, and told"}"#);
    assert!(begun.elapsed() < Duration::from_secs(20));
}

/// Cancels the start of a server that never answers.
fn cancelled(setup: &McpTeam) {
    let model = Scripted::new([done()]);
    let source = Single(&model);
    let sandbox = setup.sandbox();
    let cancel = sandbox.cancel_flag().clone();
    let session = Session::new(&source, &sandbox).asking(|_| Answer::Yes);
    let begun = Instant::now();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let offered = session.mcp.offered(&session, &setup.team, setup.team.npc(None).unwrap());
    assert_eq!((offered.jinxes.len(), offered.served[0].error.as_str()), (0, "cancelled"));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn mcp_client_a_server_that_is_cancelled() {
    cancelled(&McpTeam::odd("mute"));
    // No connection remains open.
    let server = Server::start(Way::Mute);
    cancelled(&McpTeam::naming(&format!("[{{url: '{}', transport: sse}}]", server.url)));
    let begun = Instant::now();
    while !server.lines().contains(&"left".to_owned()) {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", server.lines());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn mcp_client_nothing_is_left_running() {
    let setup = McpTeam::odd("family");
    setup.run(vec![call("a"), done()]);
    let written = std::fs::read_to_string(setup.work.path().join("family.txt")).unwrap();
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
    let setup = McpTeam::odd("pages");
    let ran = setup.run(vec![call("a"), call("c"), call("x"), done()]);
    assert_eq!(ran.tools(), ["shell", "a", "b", "c"]);
    // The team still names its file, but it would do nothing.
    std::fs::write(setup.directory.path().join("echo.sh"), "touch started; exit 1\n").unwrap();
    let model = replay::Replay::new(&ran.entries);
    let source = Single(&model);
    let sandbox = setup.sandbox();
    let mut session = Session::new(&source, &sandbox);
    session.mocks = run::Mocks::new(&ran.entries);
    replay::run(&session, &setup.team, &ran.entries).unwrap();
    let recorded = session.mocks.outside(&ran.entries);
    let (compared, difference) = replay::difference(&recorded, &session.trace.entries());
    let all = ran.entries.iter().filter(|entry| replay::is_compared(entry)).count();
    assert_eq!((compared, difference), (all, None));
    assert!(!setup.work.path().join("started").exists());
    // With other files, the replay reports the differences.
    let fewer = npc("w", "[shell]", "[{name: echo, path: echo.sh, args: [pages], timeout: 1, tools: [a]}]");
    std::fs::write(setup.directory.path().join("w.npc"), fewer).unwrap();
    let mut session = Session::new(&source, &sandbox);
    session.mocks = run::Mocks::new(&ran.entries);
    replay::run(&session, &Team::load(setup.directory.path()).unwrap(), &ran.entries).unwrap();
    let (_, difference) = replay::difference(&ran.entries, &session.trace.entries());
    assert!(difference.unwrap().at.starts_with("tools"));
}
