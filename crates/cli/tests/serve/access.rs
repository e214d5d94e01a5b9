//! Access control.

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

/// Different programs may read a repeated header differently.
#[test]
fn what_is_said_twice_is_refused() {
    let served = TestDir::npc_team(&json!([])).serve(&[]);
    let check = |expected: &str, head: &str| {
        let message = served.raw(&format!("{head}\nConnection: close\n\n"));
        assert!(message.starts_with(&format!("HTTP/1.1 {expected} ")), "{head}: {message}");
    };
    let get = |headers: &str| format!("GET /v1/models HTTP/1.1\n{headers}");
    let post = |headers: &str| {
        let json = "Host: localhost\nContent-Type: application/json";
        format!("POST /v1/chat/completions HTTP/1.1\n{json}\n{headers}")
    };
    check("200", &get("Host: localhost"));
    for host in ["evil.example", "localhost"] {
        check("400", &get(&format!("Host: localhost\nHost: {host}")));
        check("400", &get(&format!("Host: {host}\nHost: localhost")));
    }
    check("400", &get("Host: localhost\nOrigin: http://localhost\nOrigin: https://evil.example"));
    check("400", &get("Host: localhost\nSec-Fetch-Site: none\nSec-Fetch-Site: cross-site"));
    check("400", &get("Host: localhost\nAuthorization: Bearer a\nAuthorization: Bearer b"));
    check("400", &post("Content-Length: 2\nContent-Length: 3"));
    check("400", &post("Content-Length: 2\nTransfer-Encoding: identity"));
    for host in ["localhost:80@evil.example", "localhost:evil", "[::1].evil.example", "[::1]@evil.example"] {
        check("403", &get(&format!("Host: {host}")));
    }
    check("200", "GET http://localhost/v1/models HTTP/1.1\nHost: localhost");
    check("400", "GET http://evil.example/v1/models HTTP/1.1\nHost: localhost");
    check("403", "GET http://evil.example/v1/models HTTP/1.1\nHost: evil.example");
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
