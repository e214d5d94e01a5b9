//! A small OpenAI-compatible server on this machine: gives predefined answers one after the other,
//! and misbehaves on demand.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A part of an answer's body.
#[derive(Clone, Debug)]
pub enum Piece {
    Bytes(Vec<u8>),
    Pause(Duration),
    /// Sends nothing more until the other side closes the connection.
    Hang,
    /// Closes the connection.
    Cut,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    pieces: Vec<Piece>,
    /// Closes the connection, or hangs, before any answer.
    before: Option<Piece>,
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, headers: Vec::new(), pieces: vec![Piece::Bytes(body.into())], before: None }
    }

    pub fn json(status: u16, body: &Value) -> Answer {
        Answer::new(status, body.to_string()).header("Content-Type", "application/json")
    }

    /// Server-sent events.
    pub fn stream(pieces: impl IntoIterator<Item = Piece>) -> Answer {
        let headers = vec![("Content-Type", "text/event-stream".to_owned())];
        Answer { status: 200, headers, pieces: pieces.into_iter().collect(), before: None }
    }

    /// Sends these chunks, and the end mark.
    pub fn events(chunks: &[Value]) -> Answer {
        let mut pieces: Vec<Piece> = chunks.iter().map(event).collect();
        pieces.push(Piece::Bytes(b"data: [DONE]\n\n".to_vec()));
        Answer::stream(pieces)
    }

    /// Sends no answer at all: closes the connection, or hangs.
    pub fn none(piece: Piece) -> Answer {
        Answer { before: Some(piece), ..Answer::new(200, "") }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Answer {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// Formats a chunk as an event.
pub fn event(chunk: &Value) -> Piece {
    Piece::Bytes(format!("data: {chunk}\n\n").into_bytes())
}

pub fn text(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
}

pub fn call(id: &str, name: &str, arguments: &str) -> Value {
    let call =
        json!({"index": 0, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null}]})
}

pub fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Received {
    pub line: String,
    pub key: Option<String>,
    pub body: Value,
    pub at: Instant,
}

/// Makes an answer from a request's body when no predefined one is left.
type Model = Box<dyn Fn(&Value) -> Answer + Send>;

#[derive(Default)]
struct ServerState {
    answers: VecDeque<Answer>,
    model: Option<Model>,
    models: Vec<String>,
    received: Vec<Received>,
    /// Times when the other side closed hanging connections.
    closed: Vec<Instant>,
}

pub struct Server {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    state: Arc<Mutex<ServerState>>,
}

impl Server {
    pub fn answering(answers: impl IntoIterator<Item = Answer>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = ServerState { answers: answers.into_iter().collect(), ..ServerState::default() };
        let state = Arc::new(Mutex::new(state));
        let served = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = served.clone();
                std::thread::spawn(move || serve(&state, stream));
            }
        });
        Server { url, state }
    }

    /// Creates a server whose answers depend on the requests.
    pub fn thinking(model: impl Fn(&Value) -> Answer + Send + 'static) -> Server {
        let server = Server::answering([]);
        server.state.lock().unwrap().model = Some(Box::new(model));
        server
    }

    /// Sets the list in `/v1/models`.
    pub fn with_models(self, models: &[&str]) -> Server {
        self.state.lock().unwrap().models = models.iter().map(ToString::to_string).collect();
        self
    }

    /// Returns all requests to `/chat/completions`.
    pub fn received(&self) -> Vec<Received> {
        let all = self.state.lock().unwrap().received.clone();
        all.into_iter().filter(|request| request.line.starts_with("POST /v1/chat/completions ")).collect()
    }

    pub fn closed(&self) -> usize {
        self.state.lock().unwrap().closed.len()
    }
}

fn serve(state: &Mutex<ServerState>, mut stream: TcpStream) {
    let Some(received) = read(&stream) else { return };
    let answer = {
        let mut state = state.lock().unwrap();
        state.received.push(received.clone());
        if received.line.starts_with("GET /v1/models ") {
            let models: Vec<Value> =
                state.models.iter().map(|id| json!({"id": id, "object": "model"})).collect();
            Answer::json(200, &json!({"object": "list", "data": models}))
        } else {
            let left = state.answers.pop_front();
            let model = || state.model.as_ref().map(|model| model(&received.body));
            left.or_else(model).unwrap_or_else(|| Answer::new(404, "nothing is left to say"))
        }
    };
    let hang = |mut stream: &TcpStream| {
        let _ = stream.read(&mut [0]);
        state.lock().unwrap().closed.push(Instant::now());
    };
    match answer.before {
        Some(Piece::Hang) => return hang(&stream),
        Some(_) => return,
        None => {}
    }
    let mut head =
        format!("HTTP/1.1 {} -\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    for piece in answer.pieces {
        match piece {
            Piece::Bytes(bytes) if bytes.is_empty() => {}
            Piece::Bytes(bytes) => {
                let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat();
                let _ = stream.write_all(&chunk).and_then(|()| stream.flush());
            }
            Piece::Pause(pause) => std::thread::sleep(pause),
            Piece::Hang => return hang(&stream),
            Piece::Cut => return,
        }
    }
    let _ = stream.write_all(b"0\r\n\r\n");
}

fn read(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut received = Received { line, key: None, body: Value::Null, at: Instant::now() };
    reader.read_line(&mut received.line).ok()?;
    let mut length = 0;
    loop {
        line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => received.key = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    received.body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    (!received.line.is_empty()).then_some(received)
}
