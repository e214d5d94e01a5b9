//! Downloads files from the hub: reads their metadata, and resumes interrupted transfers.
//!
//! The protocol is that of Hugging Face's `huggingface_hub`.
//! `HEAD OWNER/NAME/resolve/REVISION/FILE` answers with `X-Repo-Commit`.
//! For large files it redirects to where they are stored, and adds `X-Linked-Size` and
//! `X-Linked-Etag` (the SHA-256).
//! Refusals carry `X-Error-Code`.

mod target;

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use ureq::http::{HeaderMap, Response, StatusCode};
use ureq::{Agent, Body};

use crate::error::HubError;
use crate::hub::{Hub, is_sha256};

use target::Target;

/// Errors that may go away after a wait, and those that won't.
enum Trouble {
    Passing { reason: String, wait: Option<Duration> },
    Final(HubError),
}

/// A file as described by the hub.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The commit that the revision points to.
    pub commit: String,
    /// The name of the blob in the cache.
    pub etag: String,
    pub size: Option<u64>,
    /// SHA-256, known for files in large storage, which all models are.
    pub sha256: Option<String>,
}

/// A file in a revision of a repository.
#[derive(Clone, Copy, Debug)]
pub struct HubFile<'a> {
    pub repository: &'a str,
    pub revision: &'a str,
    pub file: &'a str,
}

/// A connection to the hub.
pub struct Client {
    hub: Hub,
    agent: Agent,
    /// Maximum size, in bytes, of a file whose size the hub doesn't send.
    untold: u64,
}

/// Number of attempts without any progress.
const TRIES: u32 = 5;
/// Delay after the first attempt; doubles each time.
const WAIT: Duration = Duration::from_millis(300);
/// Connections that stay silent this long are closed.
const SILENCE: Duration = Duration::from_secs(60);
const REDIRECTS: usize = 10;
/// Maximum size, in bytes, of a file whose size the hub doesn't send; it does send that of models.
const UNTOLD: u64 = 1 << 30;

impl Client {
    pub fn new(hub: Hub) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(30)))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .user_agent(concat!("alara/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .build();
        Client { hub, agent: config.new_agent(), untold: UNTOLD }
    }

    /// Requests the metadata of a file.
    pub fn describe(&self, hub_file: HubFile<'_>) -> Result<Remote, HubError> {
        let url = self.url(hub_file);
        self.patiently(&url, |_| {
            let response = self.send(true, &url, 0)?;
            let status = response.status();
            if !status.is_success() && !status.is_redirection() {
                return Err(self.refusal(&url, hub_file, response));
            }
            let about = response.headers();
            let nonsense = |reason: &str| {
                Trouble::Final(HubError::Nonsense { url: url.clone(), reason: reason.to_owned() })
            };
            let etag = text(about, "x-linked-etag").or_else(|| text(about, "etag"));
            let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
            let plain = |name: &String| !name.is_empty() && name.len() <= 128 && hex_or_dash(name);
            let etag = etag.filter(plain).ok_or_else(|| nonsense("no proper ETag"))?;
            let commit = text(about, "x-repo-commit").map(str::to_owned).filter(|name| plain(name));
            let commit = commit.ok_or_else(|| nonsense("no X-Repo-Commit; is this a hub?"))?;
            let size = text(about, "x-linked-size")
                .or_else(|| status.is_success().then(|| text(about, "content-length")).flatten());
            let sha256 = is_sha256(&etag).then(|| etag.to_lowercase());
            Ok(Remote { commit, etag, size: size.and_then(|size| size.parse().ok()), sha256 })
        })
    }

    /// Lists the paths of all files in a revision.
    pub fn list(&self, repository: &str, revision: &str) -> Result<Vec<String>, HubError> {
        #[derive(Deserialize)]
        struct Info {
            siblings: Vec<Sibling>,
        }
        #[derive(Deserialize)]
        struct Sibling {
            rfilename: String,
        }
        let url = format!("{}/api/models/{repository}/revision/{revision}", self.hub.endpoint);
        self.patiently(&url, |_| {
            let mut response = self.send(false, &url, 0)?;
            if !response.status().is_success() {
                return Err(self.refusal(&url, HubFile { repository, revision, file: "" }, response));
            }
            let body = response.body_mut().with_config().limit(64 << 20).read_to_string();
            let body = body.map_err(|error| passing(&error))?;
            let info: Info = serde_json::from_str(&body).map_err(|error| {
                Trouble::Final(HubError::Nonsense { url: url.clone(), reason: error.to_string() })
            })?;
            Ok(info.siblings.into_iter().map(|sibling| sibling.rfilename).collect())
        })
    }

    /// Downloads a file to `partial`, which may already contain a part of it.
    /// Calls `progress` with the number of bytes present; it returns whether to continue.
    /// However this ends, a remaining `partial` can be resumed.
    ///
    /// # Errors
    /// The hub fails for good, the disk is full, or the bytes don't match the hub's checksum.
    pub fn fetch(
        &self,
        hub_file: HubFile<'_>,
        remote: &Remote,
        partial: &Path,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), HubError> {
        let url = self.url(HubFile { revision: &remote.commit, ..hub_file });
        let mut target = Target::open(partial, progress)?;
        if remote.size.is_some_and(|size| target.at > size) {
            target.restart()?;
        }
        if remote.size.is_none_or(|size| target.at < size) {
            self.patiently(&url, |tries| {
                let (before, best) = (target.best, remote.size);
                let ended = self.stream(&url, hub_file, best, &mut target, progress);
                if target.best > before {
                    *tries = 0;
                }
                ended
            })?;
        }
        target.finish(hub_file.file, remote)
    }

    /// Reads the response body into the target until its end.
    fn stream(
        &self,
        url: &str,
        hub_file: HubFile<'_>,
        size: Option<u64>,
        target: &mut Target<'_>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), Trouble> {
        let response = self.send(false, url, target.at)?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range = text(response.headers(), "content-range").unwrap_or_default().to_owned();
                if !range.starts_with(&format!("bytes {}-", target.at)) {
                    target.restart()?;
                    let reason = format!("another part was sent than was asked for ({range})");
                    return Err(Trouble::Passing { reason, wait: None });
                }
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                target.restart()?;
                return Err(Trouble::Passing { reason: "the rest was refused".to_owned(), wait: None });
            }
            // The server ignored the range and sends the whole file.
            status if status.is_success() => target.restart()?,
            _ => return Err(self.refusal(url, hub_file, response)),
        }
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; 1 << 17];
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Trouble::Passing { reason: error.to_string(), wait: None }),
            };
            if target.at + read as u64 > size.unwrap_or(self.untold) {
                let reason = match size {
                    Some(_) => "more bytes were sent than the file has".to_owned(),
                    None => {
                        format!("it does not tell the file's size, and sends more than {} bytes", self.untold)
                    }
                };
                target.restart()?;
                return Err(Trouble::Final(HubError::Nonsense { url: url.to_owned(), reason }));
            }
            target.write(&buffer[..read])?;
            if !progress(target.at) {
                return Err(Trouble::Final(HubError::Stopped { file: hub_file.file.to_owned() }));
            }
        }
        match size {
            Some(size) if target.at < size => {
                let reason = format!("the connection ended after {} of {size} bytes", target.at);
                Err(Trouble::Passing { reason, wait: None })
            }
            _ => Ok(()),
        }
    }

    /// Retries until `attempt` succeeds or makes no progress.
    /// `attempt` may reset the number of attempts.
    fn patiently<T>(
        &self,
        url: &str,
        mut attempt: impl FnMut(&mut u32) -> Result<T, Trouble>,
    ) -> Result<T, HubError> {
        let mut tries = 0;
        loop {
            let (reason, wait) = match attempt(&mut tries) {
                Ok(done) => return Ok(done),
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::Passing { reason, wait }) => (reason, wait),
            };
            tries += 1;
            if tries >= TRIES {
                return Err(HubError::Broken { url: url.to_owned(), reason });
            }
            std::thread::sleep(wait.unwrap_or(WAIT * 2u32.pow(tries - 1)));
        }
    }

    /// Requests a file from byte `from` on, following redirects; a HEAD request only within the hub
    /// itself.
    fn send(&self, head: bool, url: &str, from: u64) -> Result<Response<Body>, Trouble> {
        let mut url = url.to_owned();
        for _ in 0..REDIRECTS {
            let own = origin(&url) == origin(&self.hub.endpoint);
            let mut request = if head { self.agent.head(&url) } else { self.agent.get(&url) };
            // Storage must not see the token: its URLs carry their own authorization.
            if let Some(token) = self.hub.token.as_ref().filter(|_| own) {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            if from > 0 {
                request = request.header("Range", format!("bytes={from}-"));
            }
            let response = request.call().map_err(|error| passing(&error))?;
            let location = text(response.headers(), "location").map(str::to_owned);
            let Some(location) = location.filter(|_| response.status().is_redirection()) else {
                return Ok(response);
            };
            let next = if location.starts_with('/') { origin(&url).to_owned() + &location } else { location };
            if head && (origin(&next) != origin(&url) || response.headers().contains_key("x-linked-etag")) {
                return Ok(response);
            }
            if url.starts_with("https:") && !next.starts_with("https:") {
                let reason = "it leads from https to an address that is not".to_owned();
                return Err(Trouble::Final(HubError::Nonsense { url, reason }));
            }
            url = next;
        }
        Err(Trouble::Final(HubError::Nonsense { url, reason: "too many redirects".to_owned() }))
    }

    /// Explains a status that indicates failure.
    fn refusal(&self, url: &str, hub_file: HubFile<'_>, mut response: Response<Body>) -> Trouble {
        let status = response.status();
        let headers = response.headers();
        let code = text(headers, "x-error-code").unwrap_or_default().to_owned();
        if status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
        {
            let seconds = text(headers, "retry-after").and_then(|seconds| seconds.parse().ok());
            let wait = seconds.map(|seconds: u64| Duration::from_secs(seconds.min(60)));
            return Trouble::Passing { reason: format!("it answered {status}"), wait };
        }
        let endpoint = self.hub.endpoint.clone();
        let repository = hub_file.repository.to_owned();
        let message = text(headers, "x-error-message").map(|message| format!(": {}", one_line(message)));
        Trouble::Final(match (code.as_str(), status) {
            ("GatedRepo", _) => HubError::Gated { endpoint, repository },
            ("RepoNotFound", _) => HubError::NoRepository { endpoint, repository },
            ("RevisionNotFound", _) => {
                HubError::NoRevision { repository, revision: hub_file.revision.to_owned() }
            }
            ("EntryNotFound", _) => HubError::NoFile { endpoint, repository, file: hub_file.file.to_owned() },
            (_, StatusCode::NOT_FOUND) if !hub_file.file.is_empty() => {
                HubError::NoFile { endpoint, repository, file: hub_file.file.to_owned() }
            }
            (_, StatusCode::NOT_FOUND) => HubError::NoRepository { endpoint, repository },
            (_, StatusCode::UNAUTHORIZED) if self.hub.token.is_some() => HubError::Token { endpoint },
            // Without a token, the hub doesn't reveal whether a repository exists.
            (_, StatusCode::UNAUTHORIZED) => HubError::NoRepository { endpoint, repository },
            _ => {
                let mut body = || response.body_mut().with_config().limit(1 << 10).read_to_string().ok();
                let message = message.or_else(|| body().map(|body| format!(": {}", one_line(&body))));
                HubError::Refused { url: url.to_owned(), status, message: message.unwrap_or_default() }
            }
        })
    }

    fn url(&self, HubFile { repository, revision, file }: HubFile<'_>) -> String {
        format!("{}/{repository}/resolve/{revision}/{}", self.hub.endpoint, escaped(file))
    }
}

impl From<HubError> for Trouble {
    fn from(error: HubError) -> Trouble {
        Trouble::Final(error)
    }
}

fn passing(error: &ureq::Error) -> Trouble {
    let text = error.to_string();
    Trouble::Passing { reason: text.strip_prefix("io: ").unwrap_or(&text).to_owned(), wait: None }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Makes a server's message fit for our messages.
fn one_line(message: &str) -> String {
    let clean = message.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(200).collect::<String>().trim().to_owned()
}

/// Returns the origin of a URL, as `https://host:1234`.
fn origin(url: &str) -> &str {
    let after = url.find("://").map_or(0, |at| at + 3);
    url[after..].find(['/', '?', '#']).map_or(url, |at| &url[..after + at])
}

fn hex_or_dash(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Percent-encodes the characters of a path that have a meaning in URLs.
fn escaped(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                escaped.push(char::from(byte));
            }
            _ => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};

    use super::*;

    /// A hub that sends no size, then 5000 bytes.
    fn silent() -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let head =
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nETag: \"ab\"\r\nX-Repo-Commit: ab\r\n\r\n";
                let _ = stream.write_all(head.as_bytes());
                if lines.first().is_some_and(|line| line.starts_with("GET")) {
                    let _ = stream.write_all(&[0; 5000]);
                }
            }
        });
        endpoint
    }

    #[test]
    fn what_has_no_size_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let fetch = |untold: u64| {
            let hub = Hub { endpoint: silent(), token: None, offline: false };
            let client = Client { untold, ..Client::new(hub) };
            let file = HubFile { repository: "o/r", revision: "main", file: "a" };
            let partial = folder.path().join(untold.to_string());
            let remote = client.describe(file).unwrap();
            assert_eq!(remote.size, None);
            let ended = client.fetch(file, &remote, &partial, &mut |_| true);
            (ended.map_err(|error| error.to_string()), partial.metadata().unwrap().len())
        };
        assert_eq!(fetch(5000), (Ok(()), 5000));
        let (ended, left) = fetch(4999);
        assert!(ended.unwrap_err().contains("sends more than 4999 bytes"));
        assert_eq!(left, 0);
    }

    #[test]
    fn addresses() {
        assert_eq!(origin("https://hub.example/a/b?c"), "https://hub.example");
        assert_eq!(origin("http://127.0.0.1:80"), "http://127.0.0.1:80");
        assert_eq!(escaped("a b/ü#.gguf"), "a%20b/%C3%BC%23.gguf");
        assert_eq!(one_line("no\nsuch\u{1b}[31m"), "no such [31m");
    }
}
