//! Who may ask.

use std::io::Read;

use serde_json::json;

use crate::dirs::TestDir;

#[test]
fn serve_is_for_those_who_may() {
    let mut served = TestDir::npc_team(&json!([{"text": "Hi"}])).serve(&["--token", "hunter2"]);
    let body = json!({"model": "script", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let check = |headers: &[(&str, &str)], expected: u16| {
        assert_eq!(served.post(&body, headers).0, expected, "{headers:?}");
    };
    let key = ("Authorization", "Bearer hunter2");
    check(&[], 401);
    check(&[("Authorization", "Bearer hunter3")], 401);
    check(&[key, ("Origin", "https://evil.example")], 403);
    check(&[key, ("Sec-Fetch-Site", "cross-site")], 403);
    check(&[key, ("Host", "evil.example")], 403);
    assert_eq!((served.get("/v1/models").0, served.get("/health").0), (401, 200));
    let message = served.raw("OPTIONS /v1/chat/completions HTTP/1.1\nHost: localhost\nOrigin: https://evil.example\nConnection: close\n\n");
    assert!(
        message.starts_with("HTTP/1.1 403") && !message.to_lowercase().contains("access-control"),
        "{message}"
    );
    check(&[key], 200);
    served.interrupt();
    assert_eq!(served.code(), Some(0));
    let mut shown = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut shown).unwrap();
    assert!(shown.contains("$ALARA_TOKEN") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn serve_is_not_left_open() {
    let dir = TestDir::npc_team(&json!([]));
    let check = |arguments: &[&str], expected: &str| {
        let model = ["serve", "-m", "script:script.json", "-t", "./team"];
        let output = dir.alara(&[&model, arguments].concat()).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{shown}");
        assert!(shown.contains(expected), "{shown}");
    };
    check(
        &["--host", "0.0.0.0", "--port", "0"],
        "can be reached from other machines, so the server needs a token\nhint: ALARA_TOKEN=",
    );
    check(&["--host", "everywhere"], "an address is an IP");
    check(&["--token", "", "--port", "0"], "visible ASCII");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    check(&["--port", &port], "Address already in use");
    check(&["--port", "0", "--workdir", "nowhere"], "the work directory nowhere can't be used");
}
