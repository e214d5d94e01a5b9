//! An MCP server at an address.
//! Over streamable HTTP, each message is a separate request.
//! Over the older transport, the server's messages arrive as one stream of events, which first
//! names the address for the client's messages.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

use super::protocol::{Refusal, is_modern};
use super::rpc::{Failure, LOOK, Link, MOST, wait};
use crate::model::endpoint::sse;
use alara_team::mcp::printable;
use alara_team::model_spec::is_loopback;

const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may take to receive the end of the session.
const LEAVE: Duration = Duration::from_secs(1);
/// Most messages in flight that aren't the client's requests: beyond that, a server that sends
/// requests without end gets no answers.
const UNDER_WAY: usize = 64;
/// The header in which a server names the session, and the client repeats it.
const SESSION: &str = "Mcp-Session-Id";
/// How long to wait before resuming a broken stream, by default and at least.
const RESUME: Duration = Duration::from_secs(1);
const RESUME_AT_LEAST: Duration = Duration::from_millis(50);

/// An address with its headers.
pub struct Http {
    url: String,
    headers: Vec<(String, String)>,
    state: Mutex<Connection>,
}

#[derive(Default)]
struct Connection {
    session: Option<String>,
    /// The address for messages, if the server named it in its stream.
    post_to: Option<String>,
    /// The connection that reads the server's unsolicited messages.
    stream: Option<Agent>,
    /// The connections of requests that wait for an answer.
    under_way: HashMap<u64, Agent>,
}

/// A message to send.
pub struct Post {
    pub message: String,
    /// The protocol's headers.
    pub headers: Vec<(String, String)>,
    /// The request's id, if it is one.
    pub id: Option<u64>,
    /// Whether its answer may begin a session.
    pub opens: bool,
    pub limit: Duration,
}

impl Http {
    pub fn new(url: &str, headers: Vec<(String, String)>) -> Self {
        Http { url: url.to_owned(), headers, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, Connection> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that a legacy server has begun.
    pub fn session(&self) -> Option<String> {
        self.state().session.clone()
    }

    /// Forgets the session.
    pub fn forget(&self) {
        self.state().session = None;
    }

    /// Closes the connection of a request whose answer is no longer needed.
    pub(crate) fn abandon(&self, id: u64) {
        let agent = self.state().under_way.remove(&id);
        if let Some(agent) = agent {
            agent.shutdown();
        }
    }

    /// A separate set of connections, so that they can be closed without others.
    /// It follows no redirects, and uses no proxy for this machine.
    fn agent(&self, limit: Option<Duration>) -> Agent {
        let host = self.url.parse::<Uri>().ok().and_then(|uri| uri.host().map(is_loopback));
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_global(limit)
            .user_agent(concat!("alara/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity");
        if host == Some(true) {
            config = config.proxy(None);
        }
        config.build().new_agent()
    }

    /// All headers of a request: those of the file, of the session, of the protocol.
    fn all_headers(&self, own: &[(String, String)], opens: bool) -> Vec<(String, String)> {
        let session = self.state().session.clone().filter(|_| !opens);
        let session = session.map(|session| (SESSION.to_owned(), session));
        self.headers.iter().cloned().chain(session).chain(own.iter().cloned()).collect()
    }

    /// Sends a message, on a thread that processes the response.
    pub fn post(link: &Arc<Link>, post: Post) -> Option<JoinHandle<()>> {
        // Each thread holds the link.
        if post.id.is_none() && Arc::strong_count(link) > UNDER_WAY {
            return None;
        }
        let (own, id) = (link.clone(), post.id);
        let exchange = move || {
            let Some(http) = own.http() else { return };
            let failure = http.exchange(&own, &post).err();
            if let Some(id) = id {
                http.state().under_way.remove(&id);
            }
            if let Some(id) = id.filter(|_| failure.is_some() || http.state().post_to.is_none()) {
                let failure = failure
                    .unwrap_or_else(|| Failure::Broken("its answer ended without a result".to_owned()));
                own.answer(id, Err(failure));
            }
        };
        let started = thread().spawn(exchange).map_err(|error| no_thread(&error));
        match (started, id) {
            (Ok(thread), _) => return Some(thread),
            (Err(failure), Some(id)) => link.answer(id, Err(failure)),
            (Err(_), None) => {}
        }
        None
    }

    fn exchange(&self, link: &Arc<Link>, post: &Post) -> Result<(), Failure> {
        let begun = Instant::now();
        let agent = self.agent(Some(post.limit));
        if let Some(id) = post.id {
            self.state().under_way.insert(id, agent.clone());
        }
        let url = self.state().post_to.clone().unwrap_or_else(|| self.url.clone());
        let mut request = agent.post(url).header("Content-Type", "application/json");
        request = request.header("Accept", "application/json, text/event-stream");
        for (name, value) in self.all_headers(&post.headers, post.opens) {
            request = request.header(name, value);
        }
        let broken = |error: ureq::Error| trouble(link, &error, post.limit);
        let response = request.send(&post.message).map_err(broken)?;
        let response = accepted(link, response)?;
        if post.opens {
            let session = response.headers().get(SESSION).and_then(|value| value.to_str().ok());
            self.state().session = session.map(str::to_owned);
        }
        if !is_stream(&response) {
            let limited = response.into_body().into_with_config().limit(MOST as u64).lossy_utf8(true);
            let text = limited.read_to_string().map_err(broken)?;
            // The older transport answers `Accepted`, or anything else; its results arrive in the
            // stream.
            if self.state().post_to.is_none() && !text.trim().is_empty() {
                link.take(&text);
            }
            return Ok(());
        }
        self.follow(link, post, &agent, response, begun + post.limit)
    }

    /// Reads a stream of events until it ends.
    /// A legacy server may break it off, and continue after the last event when asked.
    fn follow(
        &self,
        link: &Arc<Link>,
        post: &Post,
        agent: &Agent,
        mut response: Response<Body>,
        end: Instant,
    ) -> Result<(), Failure> {
        let broken = |error: ureq::Error| trouble(link, &error, post.limit);
        let awaited = || post.id.is_some_and(|id| link.awaits(id)) && Instant::now() < end;
        let (mut last, mut retry) = (None, RESUME);
        loop {
            let mut events = sse::Events::default();
            let ended = read(response, &mut events, &mut |data| link.take(data)).map_err(broken);
            let (id, wait) = events.resume();
            last = id.map(str::to_owned).or(last);
            retry = wait.unwrap_or(retry).max(RESUME_AT_LEAST).min(post.limit);
            let Some(last) = last.as_deref().filter(|_| !is_modern(link.version())) else { return ended };
            let again = Instant::now() + retry;
            while awaited() && Instant::now() < again {
                std::thread::sleep(LOOK);
            }
            if !awaited() {
                return ended;
            }
            let mut request = agent.get(&self.url).header("Accept", "text/event-stream");
            request = request.header("Last-Event-ID", last);
            for (name, value) in self.all_headers(&post.headers, false) {
                request = request.header(name, value);
            }
            // Whatever it answers instead, it has received the request, which isn't sent again.
            match accepted(link, request.call().map_err(broken)?) {
                Ok(next) if is_stream(&next) => response = next,
                _ => return ended,
            }
        }
    }

    /// Asks a modern server for its notifications, for as long as the link exists.
    /// A server that doesn't support this works all the same.
    pub fn subscribe(link: &Arc<Link>, message: String, headers: &[(String, String)]) {
        let Some(http) = link.http() else { return };
        let agent = http.agent(None);
        http.state().stream = Some(agent.clone());
        // Held weakly: the stream ends with the link, and must not keep it alive.
        let reader = Arc::downgrade(link);
        let mut request = agent.post(&http.url).header("Content-Type", "application/json");
        request = request.header("Accept", "application/json, text/event-stream");
        for (name, value) in http.all_headers(headers, false) {
            request = request.header(name, value);
        }
        let listen = move || {
            let Some(response) = request.send(&message).ok().filter(is_stream) else { return };
            let mut take = |data: &str| match reader.upgrade().filter(|link| !link.is_over()) {
                Some(link) => link.take(data),
                None => agent.clone().shutdown(),
            };
            let _ = read(response, &mut sse::Events::default(), &mut take);
        };
        let _ = thread().spawn(listen);
    }

    /// Opens the stream of the older transport, and waits for the address that it names.
    ///
    /// # Errors
    /// It names none.
    pub fn open(link: &Arc<Link>, limit: Duration, stopped: &dyn Fn() -> bool) -> Result<(), Failure> {
        let Some(http) = link.http() else { return Ok(()) };
        let agent = http.agent(None);
        http.state().stream = Some(agent.clone());
        let (sender, named) = channel();
        let reader = link.clone();
        let listen = move || {
            let Some(http) = reader.http() else { return };
            let failure = http.stream(&agent, &reader, &sender);
            let reason = failure
                .err()
                .map_or_else(|| "its stream of events has ended".to_owned(), |failure| failure.to_string());
            let _ = sender.send(Err(Failure::Broken(reason.clone())));
            reader.end(&reason);
        };
        thread().spawn(listen).map_err(|error| no_thread(&error))?;
        wait(&named, limit, stopped).inspect_err(|_| link.close())
    }

    fn stream(
        &self,
        agent: &Agent,
        link: &Arc<Link>,
        named: &Sender<Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let mut request = agent.get(&self.url).header("Accept", "text/event-stream");
        for (name, value) in self.all_headers(&[], false) {
            request = request.header(name, value);
        }
        let response = request.call().map_err(|error| trouble(link, &error, CONNECT))?;
        let response = accepted(link, response)?;
        let mut wrong = None;
        let ended = read(response, &mut sse::Events::default(), &mut |data| {
            // Messages are objects; the address comes first.
            if self.state().post_to.is_some() || data.trim_start().starts_with('{') {
                return link.take(data);
            }
            match beside(&self.url, data.trim()) {
                Some(url) => self.state().post_to = Some(url),
                None => wrong = Some(format!("it names an address on another server: {}", printable(data))),
            }
            let _ = named.send(wrong.clone().map_or(Ok(()), |reason| Err(Failure::Broken(reason))));
        });
        ended.map_err(|error| trouble(link, &error, CONNECT))
    }

    /// Ends the session, and closes all connections.
    /// `headers` are those of the protocol.
    pub fn close(&self, headers: &[(String, String)]) {
        let (agents, session) = {
            let mut state = self.state();
            let under_way = std::mem::take(&mut state.under_way).into_values();
            (under_way.chain(state.stream.take()).collect::<Vec<_>>(), state.session.is_some())
        };
        agents.into_iter().for_each(Agent::shutdown);
        if session {
            let mut request = self.agent(Some(LEAVE)).delete(&self.url);
            for (name, value) in self.all_headers(headers, false) {
                request = request.header(name, value);
            }
            // A server may refuse this, which doesn't matter.
            let _ = request.call();
        }
    }
}

fn thread() -> Builder {
    Builder::new().name("mcp".into())
}

fn no_thread(error: &std::io::Error) -> Failure {
    Failure::Broken(format!("the system has no thread to speak with it: {error}"))
}

/// Accepts a successful response.
fn accepted(link: &Link, mut response: Response<Body>) -> Result<Response<Body>, Failure> {
    let status = response.status().as_u16();
    if response.status().is_success() {
        return Ok(response);
    }
    let to = response.headers().get("location").and_then(|to| to.to_str().ok()).map(str::to_owned);
    let text = response.body_mut().with_config().limit(1 << 16).lossy_utf8(true).read_to_string();
    // Modern servers explain an HTTP error by a protocol error.
    let body = text.as_deref().map(|text| serde_json::from_str::<Value>(&link.hidden(text)));
    let refusal = body.ok().and_then(Result::ok).and_then(|body| Some(Refusal::read(body.get("error")?)));
    if let Some(refusal) =
        refusal.filter(|found| found.is_modern() || is_modern(link.version()) && found.code.is_some())
    {
        return Err(Failure::Refused(refusal));
    }
    let words = printable(&link.hidden(&to.or(text.ok()).unwrap_or_default()));
    Err(Failure::Status { status, message: if words.is_empty() { words } else { format!(": {words}") } })
}

fn trouble(link: &Link, error: &ureq::Error, limit: Duration) -> Failure {
    match error {
        ureq::Error::Timeout(ureq::Timeout::Connect) => Failure::Broken("nobody answers there".to_owned()),
        ureq::Error::Timeout(_) => Failure::Timeout(limit),
        other => Failure::Broken(printable(&link.hidden(&format!("the connection failed: {other}")))),
    }
}

/// Whether the response is a stream of events.
fn is_stream(response: &Response<Body>) -> bool {
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// Reads the data of each event of a stream.
fn read(
    response: Response<Body>,
    events: &mut sse::Events,
    take: &mut dyn FnMut(&str),
) -> Result<(), ureq::Error> {
    let mut reader = response.into_body().into_with_config().limit(u64::MAX).reader();
    let mut buffer = vec![0; 1 << 14];
    let mut open = 0;
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                let ended = events.push(&buffer[..count]);
                open = if ended.is_empty() { open + count } else { 0 };
                if open > MOST {
                    return Err(std::io::Error::other("an event is too long").into());
                }
                ended.iter().for_each(|data| take(data));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The address that `text` names on the server of `base`; `None` if it is on another one.
fn beside(base: &str, text: &str) -> Option<String> {
    let base: Uri = base.parse().ok()?;
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    if !text.contains("://") {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        let path = if text.starts_with('/') { text.to_owned() } else { format!("{folder}/{text}") };
        return Some(format!("{scheme}://{authority}{path}"));
    }
    let found: Uri = text.parse().ok()?;
    (found.scheme_str() == Some(scheme) && found.authority() == Some(authority)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_same_server() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(beside("http://127.0.0.1:8/a/sse", text).as_deref(), expected, "{text}");
        };
        check("/messages?session=1", Some("http://127.0.0.1:8/messages?session=1"));
        check("messages", Some("http://127.0.0.1:8/a/messages"));
        check("http://127.0.0.1:8/m", Some("http://127.0.0.1:8/m"));
        check("http://127.0.0.1:9/m", None);
        check("https://127.0.0.1:8/m", None);
        check("//evil.example/m", Some("http://127.0.0.1:8//evil.example/m"));
        check("http://evil.example/m", None);
    }
}
