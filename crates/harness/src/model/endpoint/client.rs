//! HTTP with an endpoint: one request, its answer, and the meaning of a refusal.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use ureq::http::{HeaderMap, Response};
use ureq::{Body, Timeout};

use super::chunk::words;
use super::{Address, EndpointError, Options};

/// A failure, temporary or permanent.
#[derive(Debug)]
pub(super) enum Trouble {
    Passing {
        error: EndpointError,
        /// How long the endpoint asks to wait.
        wait: Option<Duration>,
    },
    Final(EndpointError),
}

/// The parts of a request that a refusal may be about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) model: &'a str,
    pub(super) with_tools: bool,
}

/// The connection settings and state of an endpoint.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) address: Address,
    pub(super) options: Options,
    /// Whether it has ever answered.
    /// If it hasn't, alara doesn't wait for it: most likely it isn't running.
    reached: AtomicBool,
}

/// Most bytes of an error or a list of models.
const MOST_WORDS: u64 = 1 << 20;
/// Texts that indicate that a conversation was too long.
const OVERFLOW: [&str; 6] = [
    "context length",
    "context size",
    "context window",
    "maximum context",
    "prompt is too long",
    "too many tokens",
];
/// Most time for a list of models.
const LIST_TIME: Duration = Duration::from_secs(30);

impl Client {
    pub(super) fn new(address: Address, options: Options) -> Self {
        Client { address, options, reached: AtomicBool::new(false) }
    }

    /// A separate set of connections, so that they can be closed without others.
    pub(super) fn agent(&self) -> ureq::Agent {
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(self.options.connect))
            .timeout_recv_response(Some(self.options.first_byte))
            .timeout_per_read(Some(self.options.first_byte))
            .user_agent(concat!("alara/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity");
        if self.address.is_loopback() {
            config = config.proxy(None);
        }
        config.build().new_agent()
    }

    /// Requests a turn.
    pub(super) fn post(
        &self,
        agent: &ureq::Agent,
        body: &str,
        asked: Asked<'_>,
    ) -> Result<Response<Body>, Trouble> {
        let url = format!("{}/chat/completions", self.address.base);
        let mut request = agent.post(url).header("Content-Type", "application/json");
        request = request.header("Accept", "text/event-stream, application/json");
        if let Some(key) = &self.options.key {
            request = request.header("Authorization", key.header());
        }
        let response = request.send(body).map_err(|error| self.trouble(error))?;
        self.reached.store(true, Ordering::Relaxed);
        match response.status().is_success() {
            true => Ok(response),
            false => Err(self.refusal(agent, response, Some(asked))),
        }
    }

    /// The names of the models that the endpoint serves.
    pub(super) fn models(&self, agent: &ureq::Agent) -> Result<Vec<String>, Trouble> {
        let request = agent.get(format!("{}/models", self.address.base));
        let mut request = request.config().timeout_global(Some(LIST_TIME)).build();
        if let Some(key) = &self.options.key {
            request = request.header("Authorization", key.header());
        }
        let mut response = request.call().map_err(|error| self.trouble(error))?;
        self.reached.store(true, Ordering::Relaxed);
        if !response.status().is_success() {
            return Err(self.refusal(agent, response, None));
        }
        let text = response.body_mut().with_config().limit(MOST_WORDS).lossy_utf8(true).read_to_string();
        let text = text.map_err(|error| self.trouble(error))?;
        let list: Option<Value> = serde_json::from_str(&text).ok();
        let list = list.as_ref().and_then(|list| list.get("data")?.as_array());
        let list = list.ok_or_else(|| Trouble::Final(self.nonsense("it has no list of models")))?;
        Ok(list.iter().filter_map(|model| Some(model.get("id")?.as_str()?.to_owned())).collect())
    }

    pub(super) fn url(&self) -> String {
        self.address.base.clone()
    }

    pub(super) fn nonsense(&self, reason: &str) -> EndpointError {
        EndpointError::Nonsense { url: self.url(), reason: self.shown(reason) }
    }

    /// The meaning of a failed connection.
    pub(super) fn trouble(&self, error: ureq::Error) -> Trouble {
        let url = self.url();
        let text = error.to_string();
        let reason = self.shown(text.strip_prefix("io: ").unwrap_or(&text));
        match error {
            ureq::Error::Timeout(Timeout::RecvResponse | Timeout::PerRead) => {
                Trouble::Final(EndpointError::Silent { url, seconds: self.options.first_byte.as_secs() })
            }
            // Only the list of models has a total time limit.
            ureq::Error::Timeout(Timeout::Global) => {
                Trouble::Final(EndpointError::Silent { url, seconds: LIST_TIME.as_secs() })
            }
            ureq::Error::Io(error) if is_cut(error.kind()) => {
                Trouble::Passing { error: EndpointError::BrokenOff { url, reason }, wait: None }
            }
            ureq::Error::Io(_)
            | ureq::Error::Timeout(_)
            | ureq::Error::ConnectionFailed
            | ureq::Error::HostNotFound
                if self.reached.load(Ordering::Relaxed) =>
            {
                Trouble::Passing { error: EndpointError::Unreachable { url, reason }, wait: None }
            }
            ureq::Error::Protocol(_) => Trouble::Final(EndpointError::Nonsense { url, reason }),
            _ => Trouble::Final(EndpointError::Unreachable { url, reason }),
        }
    }

    /// The meaning of an error status.
    fn refusal(
        &self,
        agent: &ureq::Agent,
        mut response: Response<Body>,
        asked: Option<Asked<'_>>,
    ) -> Trouble {
        let status = response.status().as_u16();
        let wait = retry_after(response.headers());
        let (words, code) = complaint(&mut response);
        let plain = words.to_lowercase();
        let message = match self.shown(&words) {
            message if message.is_empty() => message,
            message => format!(": {message}"),
        };
        let url = self.url();
        let error = match (status, asked) {
            (429, _) if code == "insufficient_quota" => EndpointError::Refused { url, status, message },
            (400, _) if code == "context_length_exceeded" => EndpointError::TooLong { message },
            (400 | 413 | 422 | 500, _) if OVERFLOW.iter().any(|words| plain.contains(words)) => {
                EndpointError::TooLong { message }
            }
            (408 | 429 | 500 | 502..=504 | 520..=599, _) => {
                match wait.filter(|wait| *wait > self.options.longest_wait) {
                    Some(wait) => EndpointError::Busy { url, status, seconds: wait.as_secs(), message },
                    None => {
                        let error = EndpointError::Refused { url, status, message };
                        return Trouble::Passing { error, wait };
                    }
                }
            }
            (401 | 403, _) => EndpointError::Unauthorized { url, keyed: self.options.key.is_some(), message },
            (404, Some(Asked { model, .. })) => match self.models(agent) {
                Ok(known) if !known.iter().any(|name| name == model) => {
                    EndpointError::NoModel { url, model: model.to_owned(), known }
                }
                _ => EndpointError::Refused { url, status, message },
            },
            (400 | 422 | 501, Some(Asked { with_tools: true, .. })) if plain.contains("tool") => {
                EndpointError::Tools { url, message }
            }
            _ => EndpointError::Refused { url, status, message },
        };
        Trouble::Final(error)
    }

    /// A server's text as a message may show it: on one line, short, and without the key.
    pub(super) fn shown(&self, text: &str) -> String {
        let text = self.options.key.as_ref().map_or_else(|| text.to_owned(), |key| key.hidden_in(text));
        let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        clean.take(300).collect::<String>().trim().to_owned()
    }
}

/// The message of a refusal, and its code.
/// For a redirect, the message is its target.
fn complaint(response: &mut Response<Body>) -> (String, String) {
    let to = response.headers().get("location").and_then(|to| to.to_str().ok()).map(str::to_owned);
    let text = response.body_mut().with_config().limit(MOST_WORDS).lossy_utf8(true).read_to_string();
    let text = text.unwrap_or_default();
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let code = json["error"]["code"].as_str().unwrap_or_default().to_owned();
    let words = if json.is_null() { text } else { words(&json) };
    (to.unwrap_or(words), code)
}

/// Whether an established connection was lost.
fn is_cut(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// How long a server asks to wait: seconds, or until a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let until = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(Duration::from_secs(u64::try_from(until.as_second()).ok()?).saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_models_that_does_not_come_is_silence() {
        let client = Client::new("http://127.0.0.1:1/v1".parse().unwrap(), Options::default());
        let trouble = client.trouble(ureq::Error::Timeout(Timeout::Global));
        let Trouble::Final(error) = trouble else { panic!("it is not tried again") };
        assert_eq!(error.to_string(), "nothing came from http://127.0.0.1:1/v1 for 30 s");
        assert!(error.hint().unwrap().contains("/v1/models"));
    }

    #[test]
    fn how_long_to_wait() {
        let check = |text: &str, expected: Option<u64>| {
            let headers = HeaderMap::from_iter([("retry-after".parse().unwrap(), text.parse().unwrap())]);
            let headers: HeaderMap = headers;
            assert_eq!(retry_after(&headers).map(|wait| wait.as_secs()), expected, "{text}");
        };
        check("7", Some(7));
        check("0.5", Some(0));
        check("Wed, 21 Oct 2015 07:28:00 GMT", Some(0));
        check("soon", None);
        check("-1", None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
