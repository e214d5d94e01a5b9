//! Access control: clients with the token, and web pages of allowed origins.
//!
//! A web page in a browser can send requests to a server on the same machine.
//! With a host name that is later changed to resolve to this machine (DNS rebinding), it can even
//! read the responses.
//! So a server that only this machine can reach requires one of this machine's names in the Host
//! header, whatever origins are allowed.
//! It rejects requests that a browser makes for any other page.

use std::net::IpAddr;

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, AUTHORIZATION,
    CONTENT_TYPE, HOST, HeaderName, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use sha2::{Digest, Sha256};

use crate::refusal::Refusal;

/// The header by which a browser reports where a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The header in which Anthropic's clients send their key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Request and response headers by which a page on the internet may call a server in a private
/// network (<https://wicg.github.io/private-network-access/>).
const ASKS_PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Headers that a request may contain only once.
/// Hyper already rejects contradictory body lengths.
const ONCE: [HeaderName; 6] = [HOST, CONTENT_TYPE, ORIGIN, FETCH_SITE, AUTHORIZATION, API_KEY];

/// Origins that are always allowed if a token protects the server: pages of this machine and of
/// desktop apps, as in Ollama.
const WITH_TOKEN: [&str; 12] = [
    "http://localhost",
    "https://localhost",
    "http://localhost:*",
    "https://localhost:*",
    "http://127.0.0.1",
    "http://127.0.0.1:*",
    "https://127.0.0.1:*",
    "app://*",
    "file://*",
    "tauri://*",
    "vscode-webview://*",
    "vscode-file://*",
];

/// From where the server can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// From this machine only, by its names.
    Loopback,
    /// From other machines.
    Network,
    /// By processes that may open a file, so not by a browser.
    Socket,
}

/// What a path requires of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The token, if there is one.
    Token,
    /// Nothing, since its responses contain only public data.
    Nothing,
}

/// Decides which requests to accept.
pub struct Access {
    /// Digest of the token, so that the duration of a comparison reveals neither its contents nor
    /// its length.
    digest: Option<[u8; 32]>,
    reach: Reach,
    /// Allowed origins; a trailing star matches anything.
    origins: Vec<String>,
}

impl Access {
    /// Creates the rules for a server with this reach that allows `origins`; with a token, also
    /// allows pages of this machine and of desktop apps.
    ///
    /// # Errors
    /// An origin is invalid, or may be allowed only with a token.
    pub fn new(reach: Reach, token: Option<&str>, origins: &[String]) -> Result<Self, String> {
        let mut all: Vec<String> =
            origins.iter().map(|origin| origin.trim_end_matches('/').to_lowercase()).collect();
        for origin in &all {
            let name = origin.strip_suffix('*').unwrap_or(origin);
            let whole = name.is_empty() || name.contains("://");
            if !whole || name.contains('*') || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(origin.clone());
            }
            // A star that matches more than a port or the pages of an app requires the token.
            let wide = origin.ends_with('*') && !name.ends_with(':') && !name.ends_with("://")
                || matches!(origin.as_str(), "*" | "http://*" | "https://*");
            if token.is_none() && wide {
                return Err(origin.clone());
            }
        }
        if token.is_some() {
            all.extend(WITH_TOKEN.map(str::to_owned));
        }
        Ok(Access { digest: token.map(digest), reach, origins: all })
    }

    /// Returns the allowed origin of another site's page, if the request comes from one.
    /// `page` means that the request is for the server's own page, which links from anywhere may
    /// open.
    ///
    /// # Errors
    /// The request comes from a page that isn't allowed, or its Host header isn't a name of this
    /// server.
    pub fn origin(&self, headers: &HeaderMap, page: bool) -> Result<Option<HeaderValue>, Refusal> {
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("\0"));
        let host = text(&HOST).unwrap_or_default();
        if self.reach == Reach::Loopback && !is_local(host) {
            return Err(Refusal::forbidden(
                "the Host header must be localhost or a loopback address: no other name means this server",
            ));
        }
        let own = |origin: &str| {
            ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host))
        };
        let others = || {
            Err(Refusal::forbidden(
                "pages of other origins may not use this server, unless --origin names them",
            ))
        };
        match text(&ORIGIN) {
            Some(origin) if own(origin) => Ok(None),
            Some(origin) if self.lets_in(origin) => Ok(headers.get(ORIGIN).cloned()),
            Some(_) => others(),
            None => match text(&FETCH_SITE) {
                Some("cross-site" | "same-site") if !page => others(),
                _ => Ok(None),
            },
        }
    }

    fn lets_in(&self, origin: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        self.origins.iter().any(|known| match known.strip_suffix('*') {
            Some(begin) => origin.starts_with(begin),
            None => *known == origin,
        })
    }

    /// Checks whether a request with these headers may be answered.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn token(&self, headers: &HeaderMap, need: Need) -> Result<(), Refusal> {
        let Some(expected) = self.digest.filter(|_| need == Need::Token) else { return Ok(()) };
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("\0"));
        let bearer = text(&AUTHORIZATION).and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        match bearer.or(text(&API_KEY)) {
            Some(token) if same(digest(token), expected) => Ok(()),
            Some(_) => Err(unauthorized("the token is wrong")),
            None => Err(unauthorized(
                "this server wants a token, as `Authorization: Bearer TOKEN` or `x-api-key: TOKEN`",
            )),
        }
    }

    /// Answers a browser's preflight request for an allowed page
    /// (<https://fetch.spec.whatwg.org/#cors-preflight-fetch>).
    pub fn preflight(&self, headers: &HeaderMap) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let told = response.headers_mut();
        told.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST, DELETE, HEAD, OPTIONS"),
        );
        let wanted = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let usual = HeaderValue::from_static("authorization, content-type, x-api-key");
        told.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.unwrap_or(usual));
        told.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        if headers.contains_key(ASKS_PRIVATE) {
            told.insert(ALLOW_PRIVATE, HeaderValue::from_static("true"));
        }
        response
    }

    /// Lets the page of `origin` read a response with these headers.
    pub fn admit(&self, origin: &HeaderValue, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("warning, retry-after"));
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
}

fn unauthorized(why: &str) -> Refusal {
    Refusal::new(401, "authentication_error", why).coded("invalid_api_key")
}

pub fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares two digests in constant time.
pub fn same(one: [u8; 32], other: [u8; 32]) -> bool {
    let differing = one.iter().zip(other).fold(0, |differing, (one, other)| differing | (one ^ other));
    std::hint::black_box(differing) == 0
}

/// Checks that a request contains single-valued headers only once, so that proxies between client
/// and server read it as this server does.
///
/// # Errors
/// A header occurs twice, or contradicts the request line.
pub fn is_plain(headers: &HeaderMap, target: &Uri) -> Result<(), Refusal> {
    let bad = |message: String| Err(Refusal::new(400, "invalid_request_error", message));
    if let Some(name) = ONCE.iter().find(|name| headers.get_all(*name).iter().nth(1).is_some()) {
        return bad(format!("the header {name} stands there more than once"));
    }
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    match target.authority() {
        Some(named) if !host.is_some_and(|host| host.eq_ignore_ascii_case(named.as_str().as_bytes())) => {
            bad("the address that is asked for and the Host header differ".into())
        }
        _ => Ok(()),
    }
}

/// Whether a Host header is a name or address that only this machine can have, optionally with a
/// port.
fn is_local(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        && (name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(headers: &[(&str, &str)]) -> HeaderMap {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        headers.collect::<HeaderMap<HeaderValue>>()
    }

    fn told(reach: Reach, token: Option<&str>, need: Need, given: &[(&str, &str)]) -> u16 {
        let access = Access::new(reach, token, &[]).unwrap();
        let headers = headers(given);
        let checked = access.origin(&headers, false).and_then(|_| access.token(&headers, need));
        checked.map_or_else(|refusal| refusal.status, |()| 200)
    }

    #[test]
    fn names_of_this_machine() {
        let check = |host: &str, status| {
            assert_eq!(told(Reach::Loopback, None, Need::Token, &[("host", host)]), status, "{host}");
        };
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "[::1]"] {
            check(host, 200);
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "[::1",
            "10.0.0.1",
            "[::2]:1",
            "::1",
            "localhost:80@evil.example",
            "localhost:evil.example",
            "[::1].evil.example",
            "[::1]@evil.example",
            "user@localhost",
            "localhost.",
            "localhost, evil.example",
            "2130706433",
        ] {
            check(host, 403);
        }
        assert_eq!(told(Reach::Loopback, None, Need::Token, &[]), 403);
        // From the network, the token protects the server.
        assert_eq!(
            told(
                Reach::Network,
                Some("t"),
                Need::Token,
                &[("host", "box.example"), ("authorization", "Bearer t")]
            ),
            200
        );
    }

    #[test]
    fn pages() {
        let check = |header: (&str, &str), status| {
            let headers = [("host", "localhost:8080"), header];
            assert_eq!(told(Reach::Loopback, None, Need::Nothing, &headers), status, "{header:?}");
        };
        check(("origin", "http://localhost:8080"), 200);
        check(("origin", "http://localhost:3000"), 403);
        check(("origin", "https://evil.example"), 403);
        check(("origin", "null"), 403);
        check(("origin", ""), 403);
        check(("sec-fetch-site", "none"), 200);
        check(("sec-fetch-site", "cross-site"), 403);
    }

    #[test]
    fn tokens() {
        let check = |given: Option<&str>, status| {
            let mut headers = vec![("host", "localhost")];
            headers.extend(given.map(|given| ("authorization", given)));
            assert_eq!(told(Reach::Loopback, Some("hunter2"), Need::Token, &headers), status, "{given:?}");
        };
        check(Some("Bearer hunter2"), 200);
        check(Some("bearer hunter2"), 200);
        for wrong in ["Bearer hunter", "Bearer hunter22", "Bearer ", "Basic hunter2", "hunter2"] {
            check(Some(wrong), 401);
        }
        check(None, 401);
        assert_eq!(told(Reach::Loopback, Some("hunter2"), Need::Nothing, &[("host", "localhost")]), 200);
    }

    #[test]
    fn keys_of_other_clients() {
        let check = |given: &[(&str, &str)], status| {
            let given = [&[("host", "localhost")], given].concat();
            assert_eq!(told(Reach::Loopback, Some("hunter2"), Need::Token, &given), status, "{given:?}");
        };
        check(&[("x-api-key", "hunter2")], 200);
        check(&[("x-api-key", "hunter3")], 401);
        check(&[("x-api-key", "hunter3"), ("authorization", "Bearer hunter2")], 200);
        // A socket accepts any name.
        assert_eq!(told(Reach::Socket, None, Need::Token, &[("host", "x")]), 200);
    }

    #[test]
    fn pages_that_are_let_in() {
        let let_in = |token: Option<&str>, origins: &[&str], host: &str, origin: &str| {
            let origins: Vec<String> = origins.iter().map(ToString::to_string).collect();
            let access = Access::new(Reach::Loopback, token, &origins).unwrap();
            let headers = headers(&[("host", host), ("origin", origin), ("sec-fetch-site", "cross-site")]);
            access.origin(&headers, false).map(|origin| origin.is_some())
        };
        let check = |token: Option<&str>, origins: &[&str], origin: &str, expected: bool| {
            let found = let_in(token, origins, "localhost:8080", origin);
            assert_eq!(found.ok(), expected.then_some(true), "{origin} by {origins:?}");
            // A name that was changed to resolve to this machine gives no access.
            assert_eq!(let_in(token, origins, "evil.example:8080", origin).unwrap_err().status, 403);
        };
        check(None, &["https://app.example"], "https://app.example", true);
        check(None, &["https://app.example/"], "https://APP.example", true);
        check(None, &["https://app.example"], "https://app.example.evil", false);
        check(None, &["https://app.example"], "http://app.example", false);
        check(None, &["http://localhost:*"], "http://localhost:3000", true);
        check(None, &[], "http://localhost:3000", false);
        check(None, &[], "app://obsidian.md", false);
        check(Some("t"), &[], "http://localhost:3000", true);
        check(Some("t"), &[], "app://obsidian.md", true);
        check(Some("t"), &[], "https://evil.example", false);
        check(Some("t"), &["*"], "https://evil.example", true);
        let refused = |token: Option<&str>, origin: &str| {
            Access::new(Reach::Loopback, token, &[origin.to_owned()]).is_err()
        };
        assert!(refused(None, "*") && refused(None, "https://*") && refused(None, "https://a*"));
        assert!(refused(Some("t"), "app.example") && refused(Some("t"), "https://*.example"));
        assert!(!refused(None, "app://*"));
    }

    #[test]
    fn links_lead_to_the_page() {
        let access = Access::new(Reach::Loopback, None, &[]).unwrap();
        let headers = headers(&[("host", "localhost"), ("sec-fetch-site", "cross-site")]);
        assert_eq!(access.origin(&headers, true).unwrap(), None);
        assert_eq!(access.origin(&headers, false).unwrap_err().status, 403);
    }

    #[test]
    fn browsers_are_told_what_pages_may_do() {
        let access = Access::new(Reach::Loopback, Some("t"), &[]).unwrap();
        let asked = [
            ("access-control-request-headers", "x-stainless-os"),
            ("access-control-request-private-network", "true"),
        ];
        let response = access.preflight(&headers(&asked));
        let told = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        assert_eq!(response.status(), 204);
        assert_eq!(told("access-control-allow-headers"), Some("x-stainless-os"));
        assert_eq!(told("access-control-allow-private-network"), Some("true"));
    }
}
