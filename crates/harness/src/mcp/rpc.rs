//! JSON-RPC 2.0 with a server: requests that wait for their answers, over any transport.
//!
//! This module must not know what the results mean.
//! A legacy server may send requests too: a `ping` is answered, others are refused.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::headers;
use super::http::{Http, Post};
use super::protocol::{Refusal, is_modern, known, meta};
use alara_team::mcp::printable;

/// Most bytes of one message.
pub const MOST: usize = 16 << 20;
/// How often a waiting request checks whether it must end.
pub const LOOK: Duration = Duration::from_millis(20);
/// How long a program may take to make room for another request.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a server may take to receive a message without an answer.
const HEAR: Duration = Duration::from_secs(10);
/// Longest id of a server's request that is answered.
const ID_BYTES: usize = 256;
/// How much output that isn't a message a server may write before it is given up.
const MOST_JUNK: u64 = 1000;
/// Shortest secret to hide in a server's messages.
const SHORTEST_SECRET: usize = 6;
const NO_SUCH_METHOD: i64 = -32601;
/// Requests that a server may send to a client with these capabilities; alara refuses them.
const WANTS: [&str; 3] = ["elicitation/create", "roots/list", "sampling/createMessage"];

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("no answer came within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("cancelled")]
    Cancelled,
    #[error("it speaks version `{0}` of the protocol, which is none of {known}", known = known())]
    Version(String),
    /// The connection is unusable, now and later.
    #[error("{0}")]
    Broken(String),
    #[error("it answers {status}{message}")]
    Status { status: u16, message: String },
    #[error("it refuses: {0}")]
    Refused(Refusal),
}

/// The transport to the server.
pub enum Wire {
    /// Lines, to a thread that writes them: a program that doesn't read must not block the client.
    /// `None` if it is closed.
    Lines(Mutex<Option<SyncSender<Vec<u8>>>>),
    Http(Http),
}

type Reply = Result<Value, Failure>;

/// A connection to a server.
pub struct Link {
    wire: Wire,
    waiting: Mutex<HashMap<u64, Sender<Reply>>>,
    next: AtomicU64,
    /// The protocol version in use; empty until it has been agreed on.
    version: Mutex<&'static str>,
    /// Why it is over.
    broken: Mutex<Option<String>>,
    /// Secrets that the server gets and should not repeat.
    secrets: Vec<String>,
    junk: AtomicU64,
    first_junk: Mutex<Option<String>>,
    /// The server has reported that its tools have changed.
    pub changed: AtomicBool,
    /// The server's requests that were refused.
    refused: Mutex<BTreeSet<&'static str>>,
}

/// A request that was sent.
pub struct Pending {
    id: u64,
    method: &'static str,
    answer: Receiver<Reply>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub fn new(wire: Wire, secrets: &[String]) -> Arc<Self> {
        let secrets = secrets.iter().map(|secret| secret.trim().to_owned());
        let secrets = secrets.filter(|secret| secret.len() >= SHORTEST_SECRET).collect();
        Arc::new(Link {
            wire,
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            version: Mutex::default(),
            broken: Mutex::default(),
            secrets,
            junk: AtomicU64::new(0),
            first_junk: Mutex::default(),
            changed: AtomicBool::new(false),
            refused: Mutex::default(),
        })
    }

    /// Uses this version of the protocol from now on.
    pub fn speak(&self, version: &'static str) {
        *locked(&self.version) = version;
    }

    pub fn version(&self) -> &'static str {
        *locked(&self.version)
    }

    /// Sends a request, and waits for the answer: at most this long, and only until `stopped`.
    /// When it gives up, it tells the server so.
    /// `more` are further headers, for a transport with headers.
    pub fn request(
        self: &Arc<Self>,
        method: &'static str,
        params: Value,
        more: &[(String, String)],
        limit: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Reply {
        let pending = self.begin(method, params, more, limit);
        self.reply(&pending, limit, stopped)
    }

    /// Sends a request without waiting; its transport is closed after `limit`.
    pub fn begin(
        self: &Arc<Self>,
        method: &'static str,
        mut params: Value,
        more: &[(String, String)],
        limit: Duration,
    ) -> Pending {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = channel();
        let pending = Pending { id, method, answer };
        locked(&self.waiting).insert(id, sender);
        // After registering the request, so that any later failure of the connection also ends it.
        if let Some(reason) = locked(&self.broken).clone() {
            self.answer(id, Err(Failure::Broken(reason)));
            return pending;
        }
        if is_modern(self.version()) {
            params["_meta"] = meta(self.version());
        }
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&message, more, Some(id), limit);
        pending
    }

    /// Waits for the answer to a request, as [`Link::request`] does.
    pub fn reply(self: &Arc<Self>, pending: &Pending, limit: Duration, stopped: &dyn Fn() -> bool) -> Reply {
        let failure = match wait(&pending.answer, limit, stopped) {
            Err(failure @ (Failure::Timeout(_) | Failure::Cancelled)) => failure,
            ended => return ended,
        };
        let id = pending.id;
        locked(&self.waiting).remove(&id);
        // A modern server over HTTP understands only the end of the connection as a cancellation.
        // The protocol forbids cancelling the first request.
        let is_first = ["initialize", "server/discover"].contains(&pending.method);
        let by_closing = is_modern(self.version()) && self.http().is_some();
        if !is_first && !by_closing {
            self.notify("notifications/cancelled", &json!({"requestId": id, "reason": failure.to_string()}));
        }
        if let Some(http) = self.http() {
            http.abandon(id);
        }
        Err(failure)
    }

    /// Also waits, but if there is no answer yet, the request stays open.
    pub(crate) fn wait_beside(
        &self,
        pending: &Pending,
        limit: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Value, Failure> {
        wait(&pending.answer, limit, stopped)
    }

    /// Whether a caller still waits for the answer to this request.
    pub(crate) fn awaits(&self, id: u64) -> bool {
        locked(&self.waiting).contains_key(&id)
    }

    /// Asks a modern server to report changes of its list of tools.
    /// No caller waits for the answer, which comes only at the end.
    pub fn subscribe(self: &Arc<Self>) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let params = json!({"_meta": meta(self.version()), "notifications": {"toolsListChanged": true}});
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params});
        match &self.wire {
            Wire::Lines(_) => drop(self.send(&message, &[], None, HEAR)),
            Wire::Http(_) => Http::subscribe(self, message.to_string(), &self.headers(&message, &[])),
        }
    }

    /// Sends a notification.
    /// The returned thread, if there is one, ends when the notification has been sent.
    pub fn notify(self: &Arc<Self>, method: &str, params: &Value) -> Option<JoinHandle<()>> {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.send(&message, &[], None, HEAR)
    }

    fn send(
        self: &Arc<Self>,
        message: &Value,
        more: &[(String, String)],
        id: Option<u64>,
        limit: Duration,
    ) -> Option<JoinHandle<()>> {
        match &self.wire {
            Wire::Lines(lines) => {
                let sender = locked(lines).clone()?;
                let mut line = format!("{message}\n").into_bytes();
                let begun = Instant::now();
                // The server's requests are answered at once or never; the client's requests may
                // wait until it has read those answers.
                let patience = if id.is_some() { PATIENCE.min(limit) } else { Duration::ZERO };
                // The listening thread reports that the program has ended.
                while let Err(TrySendError::Full(back)) = sender.try_send(line) {
                    if begun.elapsed() >= patience {
                        let failure = Failure::Broken("it does not read what it is asked".to_owned());
                        id.into_iter().for_each(|id| self.answer(id, Err(failure.clone())));
                        break;
                    }
                    line = back;
                    std::thread::sleep(LOOK);
                }
                None
            }
            Wire::Http(_) => {
                let opens = message["method"] == "initialize";
                let headers = self.headers(message, more);
                Http::post(self, Post { message: message.to_string(), headers, id, opens, limit })
            }
        }
    }

    /// The protocol's headers for a message.
    /// The handshake has none: its version isn't known yet.
    fn headers(&self, message: &Value, more: &[(String, String)]) -> Vec<(String, String)> {
        let version = self.version();
        if version.is_empty() || message["method"] == "initialize" {
            return Vec::new();
        }
        let mut headers = vec![(headers::VERSION.to_owned(), version.to_owned())];
        if is_modern(version) {
            headers.extend(headers::standard(message));
            headers.extend(more.iter().cloned());
        }
        headers
    }

    /// Processes the server's output: one message, or several.
    pub fn take(self: &Arc<Self>, text: &str) {
        let text = self.hidden(text);
        match serde_json::from_str(&text) {
            Ok(Value::Array(messages)) => {
                messages.into_iter().for_each(|message| self.message(message, &text));
            }
            Ok(message) => self.message(message, &text),
            Err(_) => self.junk(&text),
        }
    }

    fn message(self: &Arc<Self>, mut message: Value, text: &str) {
        let is_id = |id: &&Value| id.is_number() || id.as_str().is_some_and(|id| id.len() <= ID_BYTES);
        let id = message.get("id").filter(is_id).cloned();
        let method = message.get("method").and_then(Value::as_str);
        if id.is_some() {
            locked(&self.refused).extend(WANTS.iter().find(|wanted| method == Some(**wanted)));
        }
        match (method, id) {
            // Modern servers must not send requests, and get no answer.
            (Some(_), Some(_)) if is_modern(self.version()) => {}
            (Some("ping"), Some(id)) => {
                self.send(&json!({"jsonrpc": "2.0", "id": id, "result": {}}), &[], None, HEAR);
            }
            (Some(method), Some(id)) => {
                let error = json!({"code": NO_SUCH_METHOD, "message": format!("{} is not served", printable(method))});
                self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}), &[], None, HEAR);
            }
            (Some("notifications/tools/list_changed"), None) => self.changed.store(true, Ordering::Relaxed),
            (Some(_), None) => {}
            (None, Some(id)) if message.get("result").is_some() || message.get("error").is_some() => {
                let reply = match message.get("error") {
                    Some(error) => Err(Failure::Refused(Refusal::read(error))),
                    None => Ok(message["result"].take()),
                };
                // An answer to a request that no longer waits came too late.
                if let Some(id) = id.as_u64().or_else(|| id.as_str()?.parse().ok()) {
                    self.answer(id, reply);
                }
            }
            _ => self.junk(text),
        }
    }

    /// Ends the wait for the answer to a request.
    pub fn answer(&self, id: u64, reply: Reply) {
        if let Some(waiting) = locked(&self.waiting).remove(&id) {
            let _ = waiting.send(reply);
        }
    }

    /// Records output that isn't a message.
    fn junk(&self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        locked(&self.first_junk).get_or_insert_with(|| printable(text));
        if self.junk.fetch_add(1, Ordering::Relaxed) == MOST_JUNK {
            self.end("it says too much that is no message of the protocol");
        }
    }

    /// The first line of output that was not a message; returned once.
    pub(crate) fn first_junk(&self) -> Option<String> {
        locked(&self.first_junk).take()
    }

    /// Records that the server is gone, and ends all waiting requests.
    /// The first reason is kept.
    pub fn end(&self, reason: &str) {
        let reason = locked(&self.broken).get_or_insert_with(|| self.hidden(reason)).clone();
        for (_, waiting) in locked(&self.waiting).drain() {
            let _ = waiting.send(Err(Failure::Broken(reason.clone())));
        }
    }

    /// The server's requests since the last call, all refused.
    pub(crate) fn take_refused_requests(&self) -> BTreeSet<&'static str> {
        std::mem::take(&mut locked(&self.refused))
    }

    /// Whether the server is gone, or was given up.
    pub fn is_over(&self) -> bool {
        locked(&self.broken).is_some()
    }

    /// Signals the server that no more messages will come.
    pub fn close(&self) {
        match &self.wire {
            Wire::Lines(lines) => drop(locked(lines).take()),
            Wire::Http(http) => http.close(&self.headers(&Value::Null, &[])),
        }
    }

    pub fn http(&self) -> Option<&Http> {
        match &self.wire {
            Wire::Http(http) => Some(http),
            Wire::Lines(_) => None,
        }
    }

    /// The text without secrets.
    pub fn hidden(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }
}

/// Waits for a value: at most this long, and only until `stopped`.
pub fn wait<T>(
    coming: &Receiver<Result<T, Failure>>,
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<T, Failure> {
    let begun = Instant::now();
    loop {
        match coming.recv_timeout(LOOK) {
            Ok(come) => return come,
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::Broken("it is gone".to_owned())),
            Err(RecvTimeoutError::Timeout) if stopped() => return Err(Failure::Cancelled),
            Err(RecvTimeoutError::Timeout) if begun.elapsed() >= limit => {
                return Err(Failure::Timeout(limit));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
