//! The protocol without initialization (2026-07-28): over pipes and over HTTP, with various server
//! responses.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use alara_harness::model::Reply;
use alara_harness::permission::{Answer, Permissions};
use alara_harness::trace::Record;
use alara_harness::{Agent, Scripted, Session, Single};
use serde_json::json;

use super::http::{Server, Way};
use super::{McpTeam, Ran, call, done, npc};

/// Returns the result of a call of `a`.
fn result(odd: &str) -> String {
    McpTeam::modern(odd).run(vec![call("a"), done()]).results().remove(0)
}

#[test]
fn mcp_client_modern_stdio() {
    let check = |odd: &str| {
        let ran = McpTeam::modern(odd).run(vec![call("a"), call("b"), done()]);
        assert_eq!(ran.tools(), ["shell", "a", "b", "new_read_resource", "typed"]);
        let reply = r#"{"ok":true,"output":"modern: hi"}"#;
        assert_eq!((ran.results(), ran.warnings), (vec![reply.to_owned(), reply.to_owned()], vec![]));
        let Record::Start(start) = &*ran.entries[0].record else { panic!("{:?}", ran.entries[0]) };
        assert_eq!(start.mcp[0].version, "modern 3");
    };
    check("new");
    // A server whose answer is so late that initialization was tried in between.
    check("slow");
}

#[test]
fn mcp_client_versions_are_agreed_on() {
    let warnings = |odd: &str| McpTeam::modern(odd).run(vec![done()]).warnings;
    let gone = |reason: &str| [format!("the MCP server `new` (w.npc:4) is not there: {reason}")];
    assert_eq!(
        warnings("future"),
        gone(
            r#"it speaks version `["2030-01-01"]` of the protocol, which is none of 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28"#
        )
    );
    assert_eq!(warnings("needs"), gone("it refuses: Missing capability: sampling (-32021)"));
    // A server that supports an older version is used with that.
    let ran = McpTeam::modern("both").run(vec![call("a"), done()]);
    assert_eq!(ran.results(), [r#"{"ok":true,"output":"modern: hi"}"#]);
}

#[test]
fn mcp_client_results_that_are_postponed() {
    assert_eq!(result("later"), r#"{"ok":true,"output":"later: hi"}"#);
    let failed = |odd: &str, error: &str| {
        assert_eq!(result(odd), format!(r#"{{"ok":false,"exit":null,"error":{}}}"#, json!(error)));
    };
    failed(
        "asks",
        "it asks for more before it goes on, and nobody answers that here: elicitation/create (Your name?)",
    );
    failed("never", "it has postponed its result 8 times");
    failed("strange", "its result is of the unknown type \"task\"");
}

#[test]
fn mcp_client_structured_content_that_does_not_fit() {
    let ran = McpTeam::modern("wrongly").run(vec![call("typed"), done()]);
    let note =
        "this is not what the tool's output schema says: /n: \\\"one\\\" is not of type \\\"integer\\\"";
    assert_eq!(ran.results(), [format!(r#"{{"ok":true,"output":"{{\"n\":\"one\"}}","note":"{note}"}}"#)]);
}

#[test]
fn mcp_client_modern_servers_hear_of_what_nobody_awaits() {
    let ran = McpTeam::modern("hangs").run(vec![call("a"), call("b"), done()]);
    assert_eq!(ran.results()[0], r#"{"ok":false,"exit":null,"error":"no answer came within 2 s"}"#);
    assert_eq!(ran.results()[1], r#"{"ok":true,"output":"alive, and told"}"#);
}

#[test]
fn mcp_client_modern_servers_tell_of_changed_lists() {
    let ran = McpTeam::modern("changes").run(vec![call("a"), call("b"), done()]);
    assert!(ran.warnings[0].contains("says that its tools have changed"), "{:?}", ran.warnings);
}

/// A server claims that a tool only reads: no rule and no answer trusts that.
#[test]
fn mcp_client_hints_open_nothing() {
    let ctx = "name: t\npermissions: {a: ask, 'a:secret': deny}\nmcp_servers: [{name: e, path: modern.sh}]\n";
    let setup = McpTeam::with(&[("team.ctx", ctx), ("w.npc", &npc("w", "[]", "[e]"))]);
    let say = |text: &str| Reply::call("a", json!({"text": text}));
    let calls = vec![say("hi"), say("hi"), say("ho"), say("secret"), done()];
    let ran = setup.asked(Permissions::default(), Some(Answer::Session), calls);
    assert_eq!(ran.asked[1..], ["a:hi", "a:ho"], "{:?}", ran.asked);
    let allowed: Vec<bool> = ran.results().iter().map(|text| text.contains(r#""ok":true"#)).collect();
    assert_eq!(allowed, [true, true, true, false]);
}

fn http(server: &Server) -> McpTeam {
    McpTeam::naming(&format!("[{{name: e, url: '{}', tools: [a]}}]", server.url))
}

fn works(ran: &Ran) {
    assert_eq!(
        (ran.results(), &ran.warnings),
        (vec![r#"{"ok":true,"output":"echo: hi"}"#.to_owned()], &vec![])
    );
}

#[test]
fn mcp_client_modern_http() {
    let server = Server::start(Way::Modern);
    works(&http(&server).run(vec![call("a"), done()]));
    // The server refuses anything missing in its headers; there is no session, and nothing to end.
    assert!(server.all_have("POST", "mcp-protocol-version", "2026-07-28"));
    assert!(server.lines().iter().all(|line| line.starts_with("POST ")), "{:?}", server.lines());
    let received = server.received.lock().unwrap();
    let call = received.iter().find(|(_, headers)| headers.contains(&("mcp-name".into(), "a".into())));
    assert!(call.unwrap().1.contains(&("mcp-param-text".into(), "hi".into())), "{call:?}");
    assert!(received.iter().all(|(_, headers)| headers.iter().all(|(name, _)| name != "mcp-session-id")));
}

#[test]
fn mcp_client_sessions_that_expire_are_begun_anew() {
    let server = Server::start(Way::Expires);
    works(&http(&server).run(vec![call("a"), done()]));
    let received = server.received.lock().unwrap();
    let sessions = |line: &str| {
        let of = received.iter().filter(|(first, _)| first.starts_with(line));
        let named = |headers: &[(String, String)]| {
            headers.iter().find(|(name, _)| name == "mcp-session-id").map(|(_, session)| session.clone())
        };
        of.map(|(_, headers)| named(headers).unwrap_or_default()).collect::<Vec<_>>().join(" ")
    };
    // The probe, initialization, its end, the list, the call; then initialization, its end, the
    // call again.
    assert_eq!(sessions("POST"), "  s1 s1 s1  s2 s2");
    assert_eq!(sessions("DELETE"), "s2");
    drop(received);
    // A server without a working session is abandoned.
    let server = Server::start(Way::Forgets);
    let ran = http(&server).run(vec![call("a"), done()]);
    assert_eq!(ran.results(), [r#"{"ok":false,"exit":null,"error":"it answers 404: no session"}"#]);
    let calls = server.lines().iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(calls, 8);
}

#[test]
fn mcp_client_streams_that_break_off_go_on() {
    let server = Server::start(Way::Breaks);
    works(&http(&server).run(vec![call("a"), done()]));
    assert!(server.received.lock().unwrap().iter().any(|(line, headers)| {
        line.starts_with("GET ") && headers.contains(&("last-event-id".into(), "7".into()))
    }));
}

#[test]
fn mcp_client_what_is_cancelled_is_closed() {
    let server = Server::start(Way::ModernMute);
    let setup = http(&server);
    let model = Scripted::new([call("a"), done()]);
    let source = Single(&model);
    let sandbox = setup.sandbox();
    let cancel = sandbox.cancel_flag().clone();
    let session = Session::new(&source, &sandbox).asking(|_| Answer::Yes);
    let mut agent = Agent::new(&session, &setup.team, setup.team.npc(None).unwrap(), None).unwrap();
    let begun = Instant::now();
    let until = |line: &str| {
        while !server.lines().contains(&line.to_owned()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", server.lines());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until("called");
            cancel.store(true, Ordering::Relaxed);
        });
        let _ = agent.run("Begin.");
    });
    until("left");
}
