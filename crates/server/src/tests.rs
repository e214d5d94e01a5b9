//! Limits, with a model as slow as each test needs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use alara_engine::{Event, Finish, Request, Usage};
use alara_harness::{ChatModel, Events};

use super::*;

/// Generates "x" a number of times, waiting before each; counts its running turns.
#[derive(Default)]
struct Slow {
    pieces: usize,
    wait: Duration,
    bytes: usize,
    running: AtomicUsize,
}

struct Turn<'a>(&'a Slow, usize);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Iterator for Turn<'_> {
    type Item = Result<Event, ModelError>;

    fn next(&mut self) -> Option<Self::Item> {
        std::thread::sleep(self.0.wait);
        self.1 += 1;
        Some(Ok(match self.1 <= self.0.pieces {
            true => Event::Text { text: "x".repeat(self.0.bytes) },
            false => Event::Done { finish: Finish::Stop, usage: Usage::default() },
        }))
    }
}

impl ChatModel for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn chat(&self, _: Request) -> Result<Events<'_>, ModelError> {
        self.running.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Turn(self, 0)))
    }
}

impl ModelSource for Slow {
    fn model(&self, _: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        Ok(Arc::new(self))
    }
}

struct Place(Slow);

impl Workplace for Place {
    fn models(&self) -> &dyn ModelSource {
        &self.0
    }

    fn team(&self) -> Option<Team> {
        None
    }

    fn sandbox(&self, _: &Team) -> Result<Sandbox, alara_harness::Error> {
        Ok(Sandbox::new(&std::env::temp_dir(), alara_harness::Policy::default())?)
    }

    fn equip<'a>(&self, session: Session<'a>) -> Result<Session<'a>, alara_harness::Error> {
        Ok(session)
    }
}

/// A running server.
struct Served {
    address: SocketAddr,
    place: Arc<Place>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new(slow: Slow, options: Options) -> Self {
        let place = Arc::new(Place(slow));
        let options = Options { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..options };
        let server = Server::new(place.clone(), Team::default(), ModelSpec::default(), &options).unwrap();
        let (address, stop) = (server.address(), server.stop());
        let thread = std::thread::spawn(move || server.run().unwrap());
        Served { address, place, stop, thread: Some(thread) }
    }

    /// Opens a connection and requests a conversation on it.
    fn ask(&self, stream: bool) -> TcpStream {
        let body =
            format!(r#"{{"model":"slow","stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#);
        let length = body.len();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        );
        self.send(&format!("{head}{body}"))
    }

    fn send(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    fn running(&self) -> usize {
        self.place.0.running.load(Ordering::SeqCst)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.ask();
        self.stop.ask();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reads until the text arrives, or to the end.
fn until(stream: &mut TcpStream, text: &str) -> String {
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&said).contains(text) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&said)),
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn slow(pieces: usize, wait: u64) -> Slow {
    Slow { pieces, wait: Duration::from_millis(wait), bytes: 1, running: AtomicUsize::new(0) }
}

#[test]
fn those_who_wait_are_served_and_those_beyond_are_told() {
    let served = Served::new(slow(1_000_000, 2), Options { queue: 1, ..Options::default() });
    let mut first = served.ask(true);
    until(&mut first, "\"x\"");
    // One of the two waits; the one that arrives later is refused.
    let mut others = [served.ask(true), served.ask(true)];
    let mut refused = None;
    wait_until("one of two is refused", || {
        refused = others.iter_mut().position(|other| {
            other.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let mut buffer = [0; 2048];
            let Ok(count) = other.read(&mut buffer) else { return false };
            let said = String::from_utf8_lossy(&buffer[..count]);
            assert!(said.starts_with("HTTP/1.1 503"), "{said}");
            assert!(said.contains("retry-after: ") && said.contains("overloaded"), "{said}");
            true
        });
        refused.is_some()
    });
    let waiting = &mut others[1 - refused.unwrap()];
    waiting.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(served.running(), 1);
    drop(first);
    assert!(until(waiting, "\"x\"").starts_with("HTTP/1.1 200"));
}

#[test]
fn who_leaves_is_not_worked_for() {
    // A model without output so far, as during a long prefill, is cancelled as well.
    for (stream, bytes) in [(true, 1), (false, 1), (true, 0), (false, 0)] {
        let served = Served::new(Slow { bytes, ..slow(1_000_000, 2) }, Options::default());
        let mut client = served.ask(stream);
        wait_until("it works", || served.running() == 1);
        if stream && bytes > 0 {
            until(&mut client, "\"x\"");
        }
        drop(client);
        wait_until("it has stopped", || served.running() == 0);
    }
}

#[test]
fn time_is_up() {
    let options = || Options { request_time: Duration::from_millis(300), ..Options::default() };
    let served = Served::new(slow(1_000_000, 2), options());
    let said = until(&mut served.ask(false), "timeout");
    assert!(said.starts_with("HTTP/1.1 504") && said.contains("x-should-retry: false"), "{said}");
    let said = until(&mut served.ask(true), "timeout");
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("data: {\"error\":{"), "{said}");
    wait_until("it has stopped", || served.running() == 0);
    drop(served);
    // A client that doesn't read blocks no other, and doesn't keep its slot for long.
    let options = Options { patience: Duration::from_millis(300), ..Options::default() };
    let served = Served::new(Slow { bytes: 1 << 16, ..slow(1_000_000, 0) }, options);
    let client = served.ask(true);
    wait_until("it works", || served.running() == 1);
    wait_until("it has stopped", || served.running() == 0);
    drop(client);
}

#[test]
fn heads_and_bodies_have_their_time_and_size() {
    let options = Options { head_time: Duration::from_millis(200), ..Options::default() };
    let served = Served::new(slow(1, 0), options);
    let check = |text: &str, expected: &str| {
        let said = until(&mut served.send(text), "\0");
        assert!(said.starts_with(expected) && said.is_empty() == expected.is_empty(), "{text:?}: {said}");
    };
    check("", "");
    check("GET /health HTTP/1.1\r\nHost: loc", "");
    let post = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n";
    check(&format!("{post}Content-Length: 100\r\n\r\n{{"), "HTTP/1.1 408");
    check(&format!("{post}Content-Length: 90000000\r\n\r\n"), "HTTP/1.1 413");
    check(&format!("{post}X: {}\r\n\r\n", "x".repeat(60_000)), "HTTP/1.1 431");
    check("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 200");
    check("no such thing\r\n\r\n", "HTTP/1.1 400");
}

#[test]
fn stopping_lets_finish_what_runs() {
    let served = Served::new(slow(100, 5), Options::default());
    let mut client = served.ask(true);
    until(&mut client, "\"x\"");
    assert!(served.stop.ask());
    wait_until("nobody is let in", || TcpStream::connect(served.address).is_err());
    assert!(until(&mut client, "[DONE]").contains("[DONE]"));
    // The second time, it doesn't.
    let served = Served::new(slow(1_000_000, 2), Options::default());
    let mut client = served.ask(true);
    until(&mut client, "\"x\"");
    assert!(served.stop.ask() && !served.stop.ask());
    wait_until("it has stopped", || served.running() == 0);
    until(&mut client, "\0");
}

#[test]
fn who_may_serve() {
    let check = |address: &str, token: Option<&str>, expected: &str| {
        let place = Arc::new(Place(Slow::default()));
        let options = Options {
            address: address.parse().unwrap(),
            token: token.map(str::to_owned),
            ..Options::default()
        };
        let error = Server::new(place, Team::default(), ModelSpec::default(), &options).err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{error}");
    };
    check("127.0.0.1:0", None, "");
    check("0.0.0.0:0", Some("hunter2"), "");
    check("0.0.0.0:0", None, "0.0.0.0:0 can be reached from other machines");
    check("[::]:0", None, "can be reached from other machines");
    check("127.0.0.1:0", Some(""), "visible ASCII");
    check("127.0.0.1:0", Some("two words"), "visible ASCII");
}

#[test]
fn a_burst_is_answered() {
    let served = Served::new(slow(3, 1), Options { parallel: 2, ..Options::default() });
    let mut clients: Vec<TcpStream> = (0..32).map(|_| served.ask(false)).collect();
    for client in &mut clients {
        let said = until(client, "}}");
        assert!(said.starts_with("HTTP/1.1 200") && said.contains("xxx"), "{said}");
    }
}

#[test]
#[cfg(unix)]
fn a_socket_serves_as_an_address_does() {
    let path = std::env::temp_dir().join(crate::inner::id("alara-served-"));
    let options = Options { socket: Some(path.clone()), ..Options::default() };
    let place = Arc::new(Place(slow(1, 0)));
    let server = Server::new(place, Team::default(), ModelSpec::default(), &options).unwrap();
    let stop = server.stop();
    let thread = std::thread::spawn(move || server.run().unwrap());
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /v1/models HTTP/1.1\r\nHost: alara\r\nConnection: close\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("\"slow\""), "{said}");
    stop.ask();
    thread.join().unwrap();
    assert!(!path.exists());
}

#[test]
fn any_model_may_be_named() {
    let options = Options { any_model: true, ..Options::default() };
    let served = Served::new(slow(1, 0), options);
    for model in ["", r#""model":"gpt-4","#] {
        let body = format!(r#"{{{model}"messages":[{{"role":"user","content":"hi"}}]}}"#);
        let head = format!(
            "POST /chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let said = until(&mut served.send(&format!("{head}{body}")), "}}");
        assert!(said.starts_with("HTTP/1.1 200") && said.contains("\"slow\""), "{said}");
    }
}

#[test]
fn pages_that_are_let_in_read_answers() {
    let options = Options { origins: vec!["https://app.example".into()], ..Options::default() };
    let served = Served::new(slow(1, 0), options);
    let ask = |method: &str, origin: &str, more: &str| {
        let text = format!(
            "{method} /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nConnection: close\r\n{more}\r\n"
        );
        until(&mut served.send(&text), "\0")
    };
    let said = ask("OPTIONS", "https://app.example", "Access-Control-Request-Headers: x-a\r\n");
    assert!(said.starts_with("HTTP/1.1 204") && said.contains("access-control-allow-headers: x-a"), "{said}");
    let said = ask("GET", "https://app.example", "");
    assert!(
        said.starts_with("HTTP/1.1 200") && said.contains("access-control-allow-origin: https://app.example"),
        "{said}"
    );
    for method in ["OPTIONS", "GET"] {
        let said = ask(method, "https://evil.example", "");
        assert!(said.starts_with("HTTP/1.1 403") && !said.contains("access-control"), "{said}");
    }
}

#[test]
fn a_full_server_says_so() {
    let served = Served::new(slow(1, 0), Options { connections: 4, ..Options::default() });
    let get = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Each has been answered, and is therefore counted.
    let mut held = Vec::new();
    let refused = loop {
        let mut stream = served.send(get);
        let said = until(&mut stream, "}");
        if !said.starts_with("HTTP/1.1 200") {
            break said;
        }
        held.push(stream);
        assert!(held.len() <= 4, "there is no limit");
    };
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after: 1"), "{refused}");
    held.clear();
    wait_until("there is room again", || until(&mut served.send(get), "}").starts_with("HTTP/1.1 200"));
}
