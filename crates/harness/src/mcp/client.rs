//! One server: how it is greeted, what tools it has, what a call of one gives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::http::Http;
use super::rpc::{Failure, Link, Wire};
use super::{Server, Transport, Way, offer, printable, stdio};
use crate::error::chain;
use crate::sandbox::{Sandbox, Service};
use crate::types::ToolResult;

/// The version that is asked for, and those that are understood.
const VERSION: &str = "2025-06-18";
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", VERSION, "2025-11-25"];
/// Most time to start and be greeted, and again to tell the tools; more if calls are given more.
const START: Duration = Duration::from_secs(30);
/// Most pages of a list of tools.
const PAGES: usize = 64;
/// Most bytes of a result that are kept.
const KEPT_BYTES: usize = 1 << 20;

/// A server that was started.
pub struct Client {
    link: Arc<Link>,
    /// What it calls itself.
    pub version: String,
    /// Ends with this; `None` = it is no program of ours.
    _service: Option<Service>,
}

/// What a server offers, and what is odd about it.
pub struct Catalog {
    pub tools: Vec<Value>,
    pub remarks: Vec<String>,
}

impl Client {
    /// Starts a server or connects to it, greets it and asks for its tools.
    ///
    /// # Errors
    /// It can't be, in words.
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
                let started = stdio::start(words, &given, server.network, &secrets, sandbox);
                let (link, service) = started.map_err(|error| Failure::Broken(chain(&error)))?;
                Client::greet(link, Some(service), limit, stopped)
            }
            Way::Http { url, transport } => {
                let link = || Link::new(Wire::Http(Http::new(url, given.clone())), &secrets);
                let older = || {
                    let link = link();
                    Http::open(&link, limit, stopped)?;
                    Client::greet(link, None, limit, stopped)
                };
                match transport {
                    Some(Transport::Sse) => older(),
                    Some(Transport::StreamableHttp) => Client::greet(link(), None, limit, stopped),
                    None => match Client::greet(link(), None, limit, stopped) {
                        // So a server answers that knows only the older transport.
                        Err(Failure::Status { status: 400 | 404 | 405, .. }) => older(),
                        greeted => greeted,
                    },
                }
            }
        }
    }

    fn greet(
        link: Arc<Link>,
        service: Option<Service>,
        limit: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(Self, Catalog), Failure> {
        let mut client = Client { link, version: String::new(), _service: service };
        let hello = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "alara", "version": env!("CARGO_PKG_VERSION")},
        });
        let greeting = client.link.request("initialize", &hello, limit, stopped);
        let greeting = greeting.map_err(|failure| client.with_junk(failure))?;
        let version = greeting["protocolVersion"].as_str().unwrap_or_default();
        if !VERSIONS.contains(&version) {
            let version = printable(version);
            let reason = format!(
                "it speaks version `{version}` of the protocol, which is none of {}",
                VERSIONS.join(", ")
            );
            return Err(Failure::Broken(reason));
        }
        if let Some(http) = client.link.http() {
            http.agree(version);
        }
        let word = |key: &str| greeting["serverInfo"][key].as_str().map(printable).unwrap_or_default();
        client.version = format!("{} {}", word("name"), word("version")).trim().to_owned();
        // Some servers answer nothing before they have heard this.
        if let Some(sent) = client.link.notify("notifications/initialized", &json!({})) {
            let _ = sent.join();
        }
        let mut catalog = Catalog { tools: Vec::new(), remarks: Vec::new() };
        if greeting["capabilities"].get("tools").is_some() {
            client.list(limit, stopped, &mut catalog)?;
        } else {
            catalog.remarks.push("it offers no tools".to_owned());
        }
        if let Some(junk) = client.link.first_junk() {
            let message = "it prints on standard output what is no message of the protocol, where it should use standard error";
            catalog.remarks.push(format!("{message}: {junk}"));
        }
        Ok((client, catalog))
    }

    fn list(
        &self,
        limit: Duration,
        stopped: &dyn Fn() -> bool,
        catalog: &mut Catalog,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut cursor = Value::Null;
        for _ in 0..PAGES {
            if begun.elapsed() > limit {
                return Err(Failure::Timeout(limit));
            }
            let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
            let mut page = self.link.request("tools/list", &params, limit, stopped)?;
            match page.get_mut("tools").map(Value::take) {
                Some(Value::Array(tools)) => catalog.tools.extend(tools),
                _ => return Err(Failure::Broken("its list of tools is none".to_owned())),
            }
            if catalog.tools.len() > offer::MOST_TOOLS {
                return Ok(());
            }
            let next = page["nextCursor"].take();
            if next.is_null() {
                return Ok(());
            }
            if next == cursor {
                break;
            }
            cursor = next;
        }
        catalog.remarks.push("its list of tools has no end: what came so far is taken".to_owned());
        Ok(())
    }

    /// Says so if that may be why.
    fn with_junk(&self, failure: Failure) -> Failure {
        match (failure, self.link.first_junk()) {
            (failure @ (Failure::Timeout(_) | Failure::Broken(_)), Some(junk)) => {
                Failure::Broken(format!("{failure}; it printed what is no message of the protocol: {junk}"))
            }
            (failure, _) => failure,
        }
    }

    /// Calls a tool.
    /// What goes wrong is a result too.
    pub fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        limit: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> ToolResult {
        let params = json!({"name": tool, "arguments": arguments});
        match self.link.request("tools/call", &params, limit, stopped) {
            Ok(result) => typed(result),
            Err(failure) => ToolResult::failed(failure.to_string()),
        }
    }

    /// Whether the server has reported since the last time that its tools have changed.
    pub fn has_changed(&self) -> bool {
        self.link.changed.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.link.close();
    }
}

/// The result of a call: what is structured as it is, else the texts; of everything else, what it
/// was.
fn typed(mut result: Value) -> ToolResult {
    if !result.is_object() {
        return ToolResult::failed("the server's result is no object");
    }
    let blocks = result["content"].take();
    let blocks = blocks.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<String> = blocks.iter().map(text).collect();
    let mut text = texts.join("\n");
    let size = text.len();
    text.truncate(text.floor_char_boundary(KEPT_BYTES));
    let dropped_bytes = (size - text.len()) as u64;
    if result["isError"] == true {
        let error =
            if text.trim().is_empty() { "the tool failed and does not say why".to_owned() } else { text };
        return ToolResult { dropped_bytes, ..ToolResult::failed(error) };
    }
    let structured = result["structuredContent"].take();
    if !structured.is_null() && structured.to_string().len() <= KEPT_BYTES {
        return ToolResult::succeeded(structured);
    }
    ToolResult { dropped_bytes, ..ToolResult::succeeded(text.trim_end_matches(['\n', '\r'])) }
}

/// A block of content as a text.
fn text(block: &Value) -> String {
    let part = |key: &str| block[key].as_str().unwrap_or_default();
    let resource = &block["resource"];
    let bytes = |data: &Value| data.as_str().map_or(0, |data| data.len() / 4 * 3);
    match part("type") {
        "text" => part("text").to_owned(),
        "resource" if resource["text"].is_string() => {
            resource["text"].as_str().unwrap_or_default().to_owned()
        }
        "resource" => {
            let uri = printable(resource["uri"].as_str().unwrap_or_default());
            format!("[resource {uri}, about {} bytes, not shown]", bytes(&resource["blob"]))
        }
        "resource_link" => format!("[resource {} at {}]", printable(part("name")), printable(part("uri"))),
        kind @ ("image" | "audio") => {
            format!(
                "[{kind} {}, about {} bytes, not shown]",
                printable(part("mimeType")),
                bytes(&block["data"])
            )
        }
        kind => format!("[content of the unknown type {}, not shown]", printable(kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_every_kind() {
        let check = |result: Value, ok: bool, expected: Value| {
            let typed = typed(result.clone());
            let found = if ok { typed.output.clone() } else { typed.error.clone().into() };
            assert_eq!((typed.ok, found), (ok, expected), "{result}");
        };
        let text = |text: &str| json!({"type": "text", "text": text});
        check(json!({"content": [text("a"), text("b")]}), true, json!("a\nb"));
        check(json!({"content": []}), true, json!(""));
        check(json!({}), true, json!(""));
        for odd in [json!(null), json!("x"), json!([1])] {
            check(odd, false, json!("the server's result is no object"));
        }
        check(json!({"content": [text("{\"n\":1}")], "structuredContent": {"n": 1}}), true, json!({"n": 1}));
        check(json!({"content": [text("no such row")], "isError": true}), false, json!("no such row"));
        check(json!({"isError": true}), false, json!("the tool failed and does not say why"));
        let image = json!({"type": "image", "mimeType": "image/png", "data": "AAAABBBB"});
        check(json!({"content": [image]}), true, json!("[image image/png, about 6 bytes, not shown]"));
        let resource = |resource: Value| json!({"content": [{"type": "resource", "resource": resource}]});
        check(resource(json!({"uri": "file:///a", "text": "all of it"})), true, json!("all of it"));
        check(
            resource(json!({"uri": "file:///a", "blob": "AAAA"})),
            true,
            json!("[resource file:///a, about 3 bytes, not shown]"),
        );
        let link = json!({"type": "resource_link", "name": "a\nb", "uri": "file:///a"});
        check(
            json!({"content": [link, {"type": "x"}]}),
            true,
            json!("[resource a b at file:///a]\n[content of the unknown type x, not shown]"),
        );
        let long = typed(json!({"content": [text(&"é".repeat(KEPT_BYTES))]}));
        assert_eq!((long.output_text().len(), long.dropped_bytes), (KEPT_BYTES, KEPT_BYTES as u64));
    }
}
