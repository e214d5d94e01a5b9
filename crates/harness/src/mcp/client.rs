//! A connection to one MCP server: its start, its tools, its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::greeting::{Greeting, Probed, handshake, probe};
use super::http::Http;
use super::offer::ListedTool;
use super::protocol::is_modern;
use super::rpc::{Failure, Link, Wire};
use super::{Server, Transport, Way, content, headers, offer, resources, stdio};
use crate::error::chain;
use crate::sandbox::{Sandbox, Service};
use crate::types::ToolResult;
use alara_team::mcp::printable;

/// Most time to start and answer the handshake, and again to list the tools; more if calls get
/// more.
const START: Duration = Duration::from_secs(30);
/// Most pages of a list.
const PAGES: usize = 64;
/// How often a server may postpone the result of a call.
const ROUNDS: usize = 8;

/// A running server.
pub struct Client {
    link: Arc<Link>,
    /// Its own name and version.
    pub version: String,
    /// Its tools, by the server's names.
    tools: BTreeMap<String, ListedTool>,
    /// Whether [`resources::READ`] is alara's, and not a tool of the server.
    reads: bool,
    /// Held while a session is restarted.
    renewing: Mutex<()>,
    /// Dropped with the client; `None` if alara doesn't run the program.
    _service: Option<Service>,
}

/// The tools of a server, with remarks about them.
pub struct Catalog {
    pub tools: Vec<ListedTool>,
    pub remarks: Vec<String>,
}

impl Client {
    /// Starts a server or connects to it, performs the handshake and lists its tools.
    ///
    /// # Errors
    /// The reason why the server can't be used.
    pub fn start(
        server: &Server,
        sandbox: &Sandbox,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(Self, Catalog), Failure> {
        let (mut given, mut secrets) = (Vec::new(), Vec::new());
        for (name, value) in &server.given {
            let unset = |variable| {
                Failure::Broken(format!(
                    "the environment variable {variable}, which it is to get, is not set"
                ))
            };
            let (value, secret) = value.value().map_err(unset)?;
            given.push((name.clone(), value));
            secrets.extend(secret);
        }
        let limit = START.max(server.timeout);
        match &server.way {
            Way::Program(words) => {
                let start = || {
                    let started = stdio::start(words, &given, server.network, &secrets, sandbox);
                    started.map_err(|error| Failure::Broken(chain(&error)))
                };
                let (link, service) = start()?;
                match probe(&link, limit, stopped) {
                    // Some legacy servers exit if they get a message before the handshake.
                    Err(Failure::Broken(_)) => {
                        drop((link, service));
                        let (link, service) = start()?;
                        Client::open(link, Some(service), Probed::Legacy(None), limit, stopped)
                    }
                    Err(failure) => Err(failure),
                    Ok(probed) => Client::open(link, Some(service), probed, limit, stopped),
                }
            }
            Way::Http { url, transport } => {
                let link = || Link::new(Wire::Http(Http::new(url, given.clone())), &secrets);
                let older = || {
                    let link = link();
                    Http::open(&link, limit, stopped)?;
                    Client::open(link, None, Probed::Legacy(None), limit, stopped)
                };
                let newer = || {
                    let link = link();
                    let probed = match probe(&link, limit, stopped) {
                        Err(Failure::Broken(_)) => Probed::Legacy(None),
                        probed => probed?,
                    };
                    Client::open(link, None, probed, limit, stopped)
                };
                match transport {
                    Some(Transport::Sse) => older(),
                    Some(Transport::StreamableHttp) => newer(),
                    None => match newer() {
                        // The answer of a server that knows only the older transport.
                        Err(Failure::Status { status: 400 | 404 | 405, .. }) => older(),
                        greeted => greeted,
                    },
                }
            }
        }
    }

    /// Performs the handshake, if needed, and lists the server's tools.
    fn open(
        link: Arc<Link>,
        service: Option<Service>,
        probed: Probed,
        limit: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(Self, Catalog), Failure> {
        let mut client = Client {
            link,
            version: String::new(),
            tools: BTreeMap::new(),
            reads: false,
            renewing: Mutex::default(),
            _service: service,
        };
        let greeting = match probed {
            Probed::Modern(greeting) => greeting,
            Probed::Legacy(late) => {
                let greeting = handshake(&client.link, late, limit, stopped);
                greeting.map_err(|failure| client.with_junk(failure))?
            }
        };
        client.version = greeting.version.clone();
        let catalog = client.offers(&greeting, limit, stopped)?;
        if is_modern(client.link.version()) && greeting.capabilities["tools"]["listChanged"] == true {
            client.link.subscribe();
        }
        client.tools = catalog.tools.iter().map(|tool| (tool.name.clone(), tool.clone())).collect();
        Ok((client, catalog))
    }

    /// The server's tools, and one that reads its resources if it has any.
    fn offers(
        &mut self,
        greeting: &Greeting,
        limit: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Catalog, Failure> {
        let mut remarks = Vec::new();
        let has = |kind: &str| greeting.capabilities.get(kind).is_some();
        let mut tools = Vec::new();
        let mut whole = true;
        if has("tools") {
            whole = self.list_tools(limit, stopped, &mut tools)?;
            // Some servers have all tools only after the handshake, and report the change
            // meanwhile.
            if self.has_changed() {
                tools.clear();
                whole = self.list_tools(limit, stopped, &mut tools)?;
            }
        } else if !has("resources") {
            remarks.push("it offers no tools".to_owned());
        }
        if !whole {
            remarks.push("its list of tools has no end: what came so far is taken".to_owned());
        }
        let own = tools.iter().any(|tool| tool["name"] == resources::READ);
        if has("resources") && !own {
            // A list that fails now may work when it is read.
            let (mut found, mut patterns) = (Vec::new(), Vec::new());
            let first = (1, resources::SHOWN);
            let _ = self.list("resources", "resources/list", first, limit, stopped, &mut found);
            let listed = "resources/templates/list";
            let _ = self.list("resourceTemplates", listed, first, limit, stopped, &mut patterns);
            tools.insert(0, resources::tool(&found, &patterns));
            self.reads = true;
        }
        let over_http = self.link.http().is_some() && is_modern(self.link.version());
        let tools = offer::read(&tools, over_http, &mut remarks);
        if let Some(junk) = self.link.first_junk() {
            let message = "it prints on standard output what is no message of the protocol, where it should use standard error";
            remarks.push(format!("{message}: {junk}"));
        }
        Ok(Catalog { tools, remarks })
    }

    fn list_tools(
        &self,
        limit: Duration,
        stopped: &dyn Fn() -> bool,
        found: &mut Vec<Value>,
    ) -> Result<bool, Failure> {
        self.list("tools", "tools/list", (PAGES, offer::MOST_TOOLS), limit, stopped, found)
    }

    /// Adds the items under `key` from at most this many pages of a list, until there are enough.
    /// Returns whether no wanted item is missing.
    fn list(
        &self,
        key: &str,
        method: &'static str,
        (pages, most): (usize, usize),
        limit: Duration,
        stopped: &dyn Fn() -> bool,
        found: &mut Vec<Value>,
    ) -> Result<bool, Failure> {
        let begun = Instant::now();
        let mut cursor = Value::Null;
        for _ in 0..pages {
            if begun.elapsed() > limit {
                return Err(Failure::Timeout(limit));
            }
            let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
            let mut page = self.request(method, &params, &[], limit, stopped)?;
            match page.get_mut(key).map(Value::take) {
                Some(Value::Array(items)) => found.extend(items),
                _ => return Err(Failure::Broken(format!("its list of {key} is none"))),
            }
            if found.len() > most {
                return Ok(true);
            }
            let next = page["nextCursor"].take();
            if next.is_null() {
                return Ok(true);
            }
            if next == cursor {
                break;
            }
            cursor = next;
        }
        Ok(false)
    }

    /// Sends a request, in a new session if the old one is over.
    fn request(
        &self,
        method: &'static str,
        params: &Value,
        more: &[(String, String)],
        limit: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Value, Failure> {
        let session = self.link.http().and_then(Http::session);
        let begun = Instant::now();
        match self.link.request(method, params.clone(), more, limit, stopped) {
            // A legacy server answers so if it has forgotten the session; it did nothing else.
            Err(Failure::Status { status: 404, .. }) if session.is_some() => {
                self.renew(session.as_deref(), limit, stopped)?;
                let left = limit.saturating_sub(begun.elapsed());
                self.link.request(method, params.clone(), more, left, stopped)
            }
            reply => reply,
        }
    }

    /// Begins a new session, unless another thread already has.
    fn renew(
        &self,
        session: Option<&str>,
        limit: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let _alone = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        match self.link.http() {
            Some(http) if http.session().as_deref() == session => http.forget(),
            _ => return Ok(()),
        }
        handshake(&self.link, None, limit, stopped).map(drop)
    }

    /// The complete result of a request, which a modern server may postpone.
    fn result(
        &self,
        method: &'static str,
        mut params: Value,
        more: &[(String, String)],
        limit: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Value, Failure> {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            let left = limit.saturating_sub(begun.elapsed());
            let answer = self.request(method, &params, more, left, stopped);
            let mut result = answer.map_err(|failure| match failure {
                // The limit of all rounds together.
                Failure::Timeout(_) => Failure::Timeout(limit),
                other => other,
            })?;
            let kind = result.get("resultType").filter(|_| is_modern(self.link.version())).cloned();
            match kind.as_ref().map_or(Some("complete"), Value::as_str) {
                Some("complete") => return Ok(result),
                Some("input_required") if is_empty(&result["inputRequests"]) => {
                    // Returned unchanged with the next request.
                    params["requestState"] = result["requestState"].take();
                }
                Some("input_required") => return Err(Failure::Broken(wanted(&result["inputRequests"]))),
                _ => {
                    let kind = printable(&kind.unwrap_or_default().to_string());
                    return Err(Failure::Broken(format!("its result is of the unknown type {kind}")));
                }
            }
        }
        Err(Failure::Broken(format!("it has postponed its result {ROUNDS} times")))
    }

    /// Adds the server's stray output to a failure that it may explain.
    fn with_junk(&self, failure: Failure) -> Failure {
        match (failure, self.link.first_junk()) {
            (failure @ (Failure::Timeout(_) | Failure::Broken(_)), Some(junk)) => {
                Failure::Broken(format!("{failure}; it printed what is no message of the protocol: {junk}"))
            }
            (failure, _) => failure,
        }
    }

    /// Calls a tool.
    /// A failure is a result too.
    pub fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        limit: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> ToolResult {
        if self.reads && tool == resources::READ {
            return self.read(arguments, limit, stopped).unwrap_or_else(|failure| failed(&failure));
        }
        let known = self.tools.get(tool);
        let more = headers::mirrored(known.map_or(&[], |tool| &tool.mirrors), arguments);
        let params = json!({"name": tool, "arguments": arguments});
        match self.result("tools/call", params, &more, limit, stopped) {
            Ok(result) => content::called(result, known.and_then(|tool| tool.output.as_ref())),
            Err(failure) => failed(&failure),
        }
    }

    /// Reads a resource, or lists all of them.
    fn read(
        &self,
        arguments: &Map<String, Value>,
        limit: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Result<ToolResult, Failure> {
        if let Some(uri) = arguments.get("uri") {
            let result = self.result("resources/read", json!({"uri": uri}), &[], limit, stopped)?;
            return Ok(content::read(&result));
        }
        let (mut found, mut patterns) = (Vec::new(), Vec::new());
        let all = (PAGES, usize::MAX);
        let whole = self.list("resources", "resources/list", all, limit, stopped, &mut found)?;
        // A server without templates may not know the request.
        let listed = "resources/templates/list";
        match self.list("resourceTemplates", listed, all, limit, stopped, &mut patterns) {
            Ok(_) | Err(Failure::Refused(_)) => {}
            Err(failure) => return Err(failure),
        }
        let (text, dropped_bytes) = content::kept(&resources::listed(&found, &patterns, usize::MAX));
        let note = if whole { "" } else { "the list has no end: these came first" };
        Ok(ToolResult { dropped_bytes, note: note.to_owned(), ..ToolResult::succeeded(text) })
    }

    /// Whether the server has reported a change of its tools since the last call.
    pub(crate) fn has_changed(&self) -> bool {
        self.link.changed.swap(false, Ordering::Relaxed)
    }

    /// The server's requests since the last call, all refused.
    pub(crate) fn take_refused_requests(&self) -> BTreeSet<&'static str> {
        self.link.take_refused_requests()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.link.close();
    }
}

fn failed(failure: &Failure) -> ToolResult {
    ToolResult::failed(failure.to_string())
}

fn is_empty(requests: &Value) -> bool {
    requests.as_object().is_none_or(Map::is_empty)
}

/// What a server needs from the user or the client to continue.
fn wanted(requests: &Value) -> String {
    let one = |request: &Value| {
        let words = [&request["params"]["message"], &request["params"]["url"]];
        let words = words.iter().filter_map(|word| word.as_str()).collect::<Vec<_>>().join(" ");
        let method = request["method"].as_str().unwrap_or_default();
        if words.is_empty() { method.to_owned() } else { format!("{method} ({words})") }
    };
    let all = requests.as_object().into_iter().flat_map(Map::values).map(one).collect::<Vec<_>>();
    format!(
        "it asks for more before it goes on, and nobody answers that here: {}",
        printable(&all.join(", "))
    )
}
