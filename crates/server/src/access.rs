//! Who may ask: programs that know the token, and no web page.
//!
//! A page in a browser can send requests to a server on the same machine, and by a name that is
//! made to mean this machine later on (DNS rebinding) even read the answers.
//! So a server that only this machine reaches wants to be called by this machine's names, and a
//! request that a browser makes for a page of elsewhere is refused.
//! No CORS header is ever sent.

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use sha2::{Digest, Sha256};

use crate::wire::Refusal;

/// Says where a browser's request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who may ask.
pub struct Access {
    /// Of the token, so that the time of a comparison tells nothing about it, nor about its length.
    digest: Option<[u8; 32]>,
    /// Whether only this machine reaches the server.
    local: bool,
}

impl Access {
    /// For a server at `address`.
    pub fn new(address: SocketAddr, token: Option<&str>) -> Self {
        Access { digest: token.map(digest), local: address.ip().is_loopback() }
    }

    /// Whether a request with these headers may be answered; `open` = it needs no token.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, headers: &HeaderMap, open: bool) -> Result<(), Refusal> {
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("\0"));
        let host = text(&HOST).unwrap_or_default();
        if self.local && !is_local(host) {
            return Err(Refusal::forbidden(
                "the Host header must be localhost or a loopback address: no other name means this server",
            ));
        }
        let own = |origin: &str| {
            ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host))
        };
        let elsewhere = text(&FETCH_SITE).is_some_and(|site| site == "cross-site" || site == "same-site");
        if elsewhere || text(&ORIGIN).is_some_and(|origin| !own(origin)) {
            return Err(Refusal::forbidden("pages of other origins may not use this server"));
        }
        let Some(expected) = self.digest.filter(|_| !open) else { return Ok(()) };
        let given = text(&AUTHORIZATION).and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        match given {
            Some(token) if same(digest(token), expected) => Ok(()),
            Some(_) => Err(unauthorized("the token is wrong")),
            None => Err(unauthorized("this server wants a token, as `Authorization: Bearer TOKEN`")),
        }
    }
}

fn unauthorized(why: &str) -> Refusal {
    Refusal::new(401, "authentication_error", why).coded("invalid_api_key")
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares all bytes, wherever they differ.
fn same(one: [u8; 32], other: [u8; 32]) -> bool {
    let differing = one.iter().zip(other).fold(0, |differing, (one, other)| differing | (one ^ other));
    std::hint::black_box(differing) == 0
}

/// Whether a Host header names this machine as only itself can.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(address: &str, token: Option<&str>, open: bool, headers: &[(&str, &str)]) -> u16 {
        let access = Access::new(address.parse().unwrap(), token);
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let headers: HeaderMap = headers.collect();
        access.check(&headers, open).map_or_else(|refusal| refusal.status, |()| 200)
    }

    #[test]
    fn names_of_this_machine() {
        let check = |host: &str, status| {
            assert_eq!(told("127.0.0.1:1", None, false, &[("host", host)]), status, "{host}");
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
        ] {
            check(host, 403);
        }
        assert_eq!(told("127.0.0.1:1", None, false, &[]), 403);
        // Elsewhere it is the token that protects.
        assert_eq!(
            told("0.0.0.0:1", Some("t"), false, &[("host", "box.example"), ("authorization", "Bearer t")]),
            200
        );
    }

    #[test]
    fn pages() {
        let check = |header: (&str, &str), status| {
            let headers = [("host", "localhost:8080"), header];
            assert_eq!(told("[::1]:8080", None, true, &headers), status, "{header:?}");
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
            assert_eq!(told("127.0.0.1:1", Some("hunter2"), false, &headers), status, "{given:?}");
        };
        check(Some("Bearer hunter2"), 200);
        check(Some("bearer hunter2"), 200);
        for wrong in ["Bearer hunter", "Bearer hunter22", "Bearer ", "Basic hunter2", "hunter2"] {
            check(Some(wrong), 401);
        }
        check(None, 401);
        assert_eq!(told("127.0.0.1:1", Some("hunter2"), true, &[("host", "localhost")]), 200);
    }
}
