//! A Model Context Protocol server over HTTP, for tests: supports both transports, with the tools
//! `a` and `b`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The server's behaviour.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// Streamable HTTP, answers as JSON.
    Json,
    /// Streamable HTTP, answers as events.
    Events,
    /// Only the older transport.
    Sse,
    /// The older transport, with an endpoint on another host.
    Elsewhere,
    /// The older transport, without naming an endpoint.
    Mute,
    /// Streamable HTTP; sends many pings before each answer to a call.
    Pings,
    /// Streamable HTTP; the first session expires before its first call.
    Expires,
    /// Streamable HTTP; every session expires.
    Forgets,
    /// Streamable HTTP; the stream of each answer to a call breaks off, and can be resumed.
    Breaks,
    /// The newest protocol, which also requires everything in headers.
    Modern,
    /// The newest protocol, without answers to calls.
    ModernMute,
    /// Refuses access, and echoes the key that it received.
    Locked,
}

/// Number of pings.
pub const PINGS: usize = 5000;

/// A received request: its first line, and its headers by lower-case names.
pub type Received = (String, Vec<(String, String)>);

pub struct Server {
    pub url: String,
    pub received: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    pub fn start(way: Way) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (log, stream) = (received.clone(), Arc::new(Mutex::new(None)));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (log, stream) = (log.clone(), stream.clone());
                std::thread::spawn(move || serve(connection, way, &log, &stream));
            }
        });
        Server { url, received }
    }

    /// Whether all requests of a kind had this header.
    pub fn all_have(&self, line: &str, name: &str, value: &str) -> bool {
        let received = self.received.lock().unwrap();
        // After the probe and the initialization.
        let mut of_kind = received.iter().filter(|(first, _)| first.starts_with(line)).skip(2).peekable();
        of_kind.peek().is_some() && of_kind.all(|(_, headers)| headers.contains(&(name.into(), value.into())))
    }

    pub fn lines(&self) -> Vec<String> {
        self.received.lock().unwrap().iter().map(|(line, _)| line.clone()).collect()
    }
}

fn serve(
    mut connection: TcpStream,
    way: Way,
    log: &Mutex<Vec<Received>>,
    stream: &Mutex<Option<Sender<String>>>,
) -> Option<()> {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let header = |name: &str| headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
    let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    log.lock().unwrap().push((line.trim_end().to_owned(), headers.clone()));
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let greetings =
        |log: &Mutex<Vec<Received>>| log.lock().unwrap().iter().filter(|(line, _)| line == "greeted").count();
    let expires = matches!(way, Way::Expires | Way::Forgets);
    if expires && message["method"] == "initialize" {
        log.lock().unwrap().push(("greeted".to_owned(), Vec::new()));
    }
    let session = if expires { format!("s{}", greetings(log)) } else { "s1".to_owned() };
    let is_call = message["method"] == "tools/call";
    let mut say = |status: &str, kind: &str, body: &str| {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nMcp-Session-Id: {session}\r\nConnection: close\r\n"
        );
        connection.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
    };
    let older = matches!(way, Way::Sse | Way::Elsewhere | Way::Mute);
    match line.split(' ').next()? {
        _ if way == Way::Locked => {
            let key = header("authorization").unwrap_or_default();
            say("401 No", "text/plain", &format!("bad key {key}")).ok()
        }
        "GET" if way == Way::Mute => {
            // Until the client disconnects.
            let _ = reader.read_to_end(&mut body);
            log.lock().unwrap().push(("left".to_owned(), Vec::new()));
            Some(())
        }
        "GET" if older => {
            let (sender, events): (Sender<String>, Receiver<String>) = channel();
            *stream.lock().unwrap() = Some(sender);
            let to = if way == Way::Sse { "/messages?id=7" } else { "http://127.0.0.1:1/messages" };
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
            connection
                .write_all(format!("{head}: hello\n\nevent: endpoint\ndata: {to}\n\n").as_bytes())
                .ok()?;
            for event in events {
                connection.write_all(format!("event: message\ndata: {event}\n\n").as_bytes()).ok()?;
            }
            Some(())
        }
        "POST" if older && line.starts_with("POST /messages?id=7 ") => {
            let reply = reply(&message);
            if let (Some(reply), Some(stream)) = (reply, &*stream.lock().unwrap()) {
                stream.send(reply.to_string()).ok()?;
            }
            say("202 Accepted", "text/plain", "Accepted").ok()
        }
        "POST" if is_call && (way == Way::Forgets || expires && session == "s1") => {
            say("404 Gone", "text/plain", "no session").ok()
        }
        "POST" if is_call && way == Way::Breaks => {
            say("200 OK", "text/event-stream", "id: 7\nretry: 50\ndata:\n\n").ok()
        }
        "GET" if way == Way::Breaks && header("last-event-id").as_deref() == Some("7") => {
            let call = json!({"id": 4, "method": "tools/call", "params": {"arguments": {"text": "hi"}}});
            let event = format!("id: 8\ndata: {}\n\n", reply(&call).unwrap_or_default());
            say("200 OK", "text/event-stream", &event).ok()
        }
        "POST" if is_call && way == Way::ModernMute => {
            log.lock().unwrap().push(("called".to_owned(), Vec::new()));
            // Until the client disconnects.
            let _ = reader.read_to_end(&mut body);
            log.lock().unwrap().push(("left".to_owned(), Vec::new()));
            Some(())
        }
        "POST" if matches!(way, Way::Modern | Way::ModernMute) => {
            let (status, reply) = modern(&message, &header);
            say(status, "application/json", &reply.to_string()).ok()
        }
        "POST" if !older => match (reply(&message), way) {
            (None, _) => say("202 Accepted", "text/plain", "").ok(),
            (Some(reply), Way::Json | Way::Expires | Way::Forgets) => {
                say("200 OK", "application/json", &reply.to_string()).ok()
            }
            (Some(reply), _) => {
                let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
                let mut body = format!(": alive\n\nevent: message\ndata: {note}\n\n");
                if way == Way::Pings && message["method"] == "tools/call" {
                    let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
                    body += &format!("data: {ping}\n\n").repeat(PINGS);
                }
                body += &format!("data: {reply}\n\n");
                say("200 OK", "text/event-stream", &body).ok()
            }
        },
        "DELETE" => say("200 OK", "text/plain", "").ok(),
        _ => say("405 No", "text/plain", "no").ok(),
    }
}

/// Returns the answer of a server with the newest protocol, and its status.
fn modern(message: &Value, header: &dyn Fn(&str) -> Option<String>) -> (&'static str, Value) {
    let params = &message["params"];
    let told = |value: &Value| value.as_str().map(str::to_owned);
    let version = told(&params["_meta"]["io.modelcontextprotocol/protocolVersion"]);
    let fits = header("mcp-protocol-version") == version
        && header("mcp-method") == told(&message["method"])
        && header("mcp-name") == told(&params["name"])
        && header("mcp-param-text") == told(&params["arguments"]["text"]);
    let answer = |kind: &str, value: Value| json!({"jsonrpc": "2.0", "id": message["id"], kind: value});
    if !fits || version.as_deref() != Some("2026-07-28") {
        return ("400 Bad", answer("error", json!({"code": -32020, "message": "Header mismatch"})));
    }
    let mut answered = reply(message).unwrap_or_default();
    match message["method"].as_str() {
        Some("server/discover") => {
            let found = json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
            return ("200 OK", answer("result", found));
        }
        Some("tools/list") => {
            for tool in answered["result"]["tools"].as_array_mut().into_iter().flatten() {
                tool["inputSchema"]["properties"]["text"]["x-mcp-header"] = "Text".into();
            }
        }
        Some("tools/call") => {}
        _ => return ("404 No", answer("error", json!({"code": -32601, "message": "no"}))),
    }
    answered["result"]["resultType"] = "complete".into();
    ("200 OK", answered)
}

fn reply(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let tool = |name: &str| json!({"name": name, "description": "Says it again.", "inputSchema": schema});
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2025-03-26",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "echo", "version": "2"},
        }),
        "tools/list" => json!({"tools": [tool("b"), tool("a")]}),
        "tools/call" => {
            let text = message["params"]["arguments"]["text"].as_str().unwrap_or_default();
            json!({"content": [{"type": "text", "text": format!("echo: {text}")}]})
        }
        _ => return Some(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}
