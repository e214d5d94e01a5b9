//! A small hub on this machine: implements as much of Hugging Face's protocol as downloads need,
//! and misbehaves on demand.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

/// The commit of every repository.
pub const COMMIT: &str = "00112233445566778899aabbccddeeff00112233";

/// Faults in the storage's answers, each once, in order.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The connection ends after this many bytes of the body.
    Cut(usize),
    /// Nothing more comes for a minute after this many bytes.
    Stall(usize),
    /// The whole file is sent, whatever range was requested.
    Whole,
    /// One byte is wrong.
    Wrong,
    Status(u16),
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub range: Option<String>,
    pub token: Option<String>,
}

#[derive(Default)]
struct HubState {
    /// Files by `owner/name` and path.
    files: HashMap<(String, String), Vec<u8>>,
    gated: Vec<String>,
    faults: VecDeque<Fault>,
    /// Sent instead of the true values: size, etag.
    size: Option<u64>,
    etag: Option<String>,
    log: Vec<Request>,
    storage: String,
}

pub struct HubServer {
    pub endpoint: String,
    state: Arc<Mutex<HubState>>,
}

impl HubServer {
    pub fn start() -> HubServer {
        let state = Arc::new(Mutex::new(HubState::default()));
        let serve = |handle: fn(&Mutex<HubState>, &TcpStream)| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let state = state.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let state = state.clone();
                    std::thread::spawn(move || handle(&state, &stream));
                }
            });
            format!("http://{address}")
        };
        let endpoint = serve(hub);
        // A different host, as far as URLs show.
        state.lock().unwrap().storage = serve(storage);
        HubServer { endpoint, state }
    }

    pub fn put(&self, repository: &str, file: &str, bytes: &[u8]) -> String {
        self.state.lock().unwrap().files.insert((repository.into(), file.into()), bytes.into());
        format!("{:x}", Sha256::digest(bytes))
    }

    pub fn gate(&self, repository: &str) {
        self.state.lock().unwrap().gated.push(repository.into());
    }

    pub fn faults(&self, faults: &[Fault]) {
        self.state.lock().unwrap().faults = faults.iter().copied().collect();
    }

    pub fn lie(&self, size: Option<u64>, etag: Option<&str>) {
        let mut state = self.state.lock().unwrap();
        (state.size, state.etag) = (size, etag.map(Into::into));
    }

    /// Returns the requests since the last call.
    pub fn log(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    let path = words.nth(1)?;
    let mut request = Request { path, range: None, token: None };
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        let Some((name, value)) = line.split_once(": ") else { continue };
        match name.to_lowercase().as_str() {
            "range" => request.range = Some(value.to_owned()),
            "authorization" => request.token = Some(value.to_owned()),
            _ => {}
        }
    }
    Some(request)
}

fn answer(mut stream: &TcpStream, status: u16, headers: &[(&str, &str)], body: &[u8]) {
    let mut head = format!("HTTP/1.1 {status} -\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let _ = stream.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| stream.write_all(body));
}

fn hub(state: &Mutex<HubState>, stream: &TcpStream) {
    let Some(request) = read(stream) else { return };
    let mut state = state.lock().unwrap();
    state.log.push(request.clone());
    let parts: Vec<&str> = request.path.trim_start_matches('/').splitn(5, '/').collect();
    let refuse = |status, code| answer(stream, status, &[("X-Error-Code", code)], b"");
    if let Some(rest) = request.path.strip_prefix("/api/models/") {
        let repository = rest.split("/revision/").next().unwrap();
        let own = state.files.keys().filter(|(of, _)| of == repository);
        let mut siblings: Vec<_> = own.map(|(_, file)| json!({"rfilename": file})).collect();
        siblings.sort_by_key(ToString::to_string);
        match siblings.is_empty() {
            true => refuse(401, "RepoNotFound"),
            false => answer(stream, 200, &[], json!({"siblings": siblings}).to_string().as_bytes()),
        }
        return;
    }
    let [owner, name, "resolve", revision, file] = parts[..] else { return refuse(404, "EntryNotFound") };
    let repository = format!("{owner}/{name}");
    if state.gated.contains(&repository) && request.token.is_none() {
        return refuse(401, "GatedRepo");
    }
    if !state.files.keys().any(|(of, _)| *of == repository) {
        return refuse(401, "RepoNotFound");
    }
    if ![COMMIT, "main"].contains(&revision) {
        return refuse(404, "RevisionNotFound");
    }
    let Some(bytes) = state.files.get(&(repository, file.to_owned())) else {
        return refuse(404, "EntryNotFound");
    };
    let hash = format!("{:x}", Sha256::digest(bytes));
    let size = state.size.unwrap_or(bytes.len() as u64).to_string();
    let etag = format!("\"{}\"", state.etag.as_ref().unwrap_or(&hash));
    let location = format!("{}/{hash}", state.storage);
    let headers = [
        ("X-Repo-Commit", COMMIT),
        ("X-Linked-Size", &size),
        ("X-Linked-Etag", &etag),
        ("Location", &location),
    ];
    answer(stream, 302, &headers, b"");
}

fn storage(state: &Mutex<HubState>, mut stream: &TcpStream) {
    let Some(request) = read(stream) else { return };
    let (bytes, fault) = {
        let mut state = state.lock().unwrap();
        state.log.push(request.clone());
        let wanted = request.path.trim_start_matches('/');
        let found = state.files.values().find(|bytes| format!("{:x}", Sha256::digest(bytes)) == wanted);
        (found.cloned().unwrap_or_default(), state.faults.pop_front())
    };
    let from = request
        .range
        .as_ref()
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let from = if matches!(fault, Some(Fault::Whole)) { None } else { from };
    let mut body = bytes[from.unwrap_or(0).min(bytes.len())..].to_vec();
    match fault {
        Some(Fault::Status(status)) => return answer(stream, status, &[], b"no"),
        Some(Fault::Wrong) => body[0] ^= 1,
        _ => {}
    }
    let range = format!("bytes {}-{}/{}", from.unwrap_or(0), bytes.len().saturating_sub(1), bytes.len());
    let mut headers = vec![("ETag", "\"x\"")];
    if from.is_some() {
        headers.push(("Content-Range", &range));
    }
    let status = if from.is_some() { 206 } else { 200 };
    match fault {
        Some(Fault::Cut(most) | Fault::Stall(most)) => {
            let head = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\n", body.len());
            let extra: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let _ = stream.write_all(format!("{head}{extra}\r\n").as_bytes());
            let _ = stream.write_all(&body[..most.min(body.len())]);
            let _ = stream.flush();
            if matches!(fault, Some(Fault::Stall(_))) {
                std::thread::sleep(Duration::from_secs(60));
            }
        }
        _ => answer(stream, status, &headers, &body),
    }
}
