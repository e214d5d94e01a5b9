//! Versions of the protocol.
//!
//! Since 2026-07-28 ("modern" in the specification's words), each request itself carries its
//! version, its client and the client's capabilities.
//! Before ("legacy"), all of that was settled by a handshake, `initialize`.

use serde_json::{Value, json};

/// The newest version, and the first without a handshake.
pub(crate) const MODERN: &str = "2026-07-28";
/// The versions with a handshake; alara asks for the newest.
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The newest version with a handshake.
pub(crate) const NEWEST_LEGACY: &str = LEGACY[LEGACY.len() - 1];

/// The errors that only a modern server reports: a missing header or capability, or an unsupported
/// version.
const MODERN_ERRORS: std::ops::RangeInclusive<i64> = -32022..=-32020;
/// The server needs a person to visit an address (2025-11-25).
const ADDRESS_NEEDED: i64 = -32042;

/// Whether requests of this version are self-contained.
/// Versions are dates, which compare as texts.
pub(crate) fn is_modern(version: &str) -> bool {
    version >= MODERN
}

/// The newest version that both sides support.
pub fn common(offered: &Value) -> Option<&'static str> {
    let offers = |version: &&str| offered.as_array().is_some_and(|all| all.iter().any(|one| one == version));
    [MODERN].into_iter().chain(LEGACY.into_iter().rev()).find(offers)
}

/// All known versions, for messages.
pub fn known() -> String {
    LEGACY.into_iter().chain([MODERN]).collect::<Vec<_>>().join(", ")
}

/// The client's information about itself.
pub fn client() -> Value {
    json!({"name": "alara", "version": env!("CARGO_PKG_VERSION")})
}

/// The metadata of a modern request.
/// It announces no capabilities: alara answers no questions of a server.
pub fn meta(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": client(),
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// An error of JSON-RPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: Option<i64>,
    /// The message, on one line, and short.
    pub message: String,
    /// The versions that the server supports instead, if that is the reason.
    pub supported: Value,
}

impl Refusal {
    /// Reads the value of `error`.
    pub fn read(error: &Value) -> Refusal {
        let code = error["code"].as_i64();
        let message = error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned);
        let addresses = error["data"]["elicitations"].as_array().filter(|_| code == Some(ADDRESS_NEEDED));
        let addresses = addresses.into_iter().flatten().filter_map(|one| one["url"].as_str());
        let message = addresses.fold(message, |message, url| format!("{message} {url}"));
        let message = alara_team::mcp::printable(&message);
        Refusal { code, message, supported: error["data"]["supported"].clone() }
    }

    /// Whether only a modern server reports this error.
    pub(crate) fn is_modern(&self) -> bool {
        self.code.is_some_and(|code| MODERN_ERRORS.contains(&code))
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.code {
            Some(code) => write!(f, "{} ({code})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version() {
        let check = |offered: Value, expected: Option<&str>| assert_eq!(common(&offered), expected);
        check(json!(["2025-11-25", "2026-07-28", "2030-01-01"]), Some("2026-07-28"));
        check(json!(["2024-11-05", "2025-06-18"]), Some("2025-06-18"));
        check(json!(["2030-01-01"]), None);
        check(json!("2026-07-28"), None);
        check(Value::Null, None);
        assert!(is_modern("2026-07-28") && is_modern("2027-01-01") && !is_modern(NEWEST_LEGACY));
        assert!(!is_modern(""));
    }

    #[test]
    fn errors_of_servers() {
        let check = |error: Value, expected: &str, is_modern: bool| {
            let refusal = Refusal::read(&error);
            assert_eq!((refusal.to_string().as_str(), refusal.is_modern()), (expected, is_modern), "{error}");
        };
        check(json!({"code": -32602, "message": "not\ntoday"}), "not today (-32602)", false);
        check(json!({"code": -32022, "message": "no"}), "no (-32022)", true);
        check(json!({"message": "no"}), "no", false);
        check(json!("odd"), "\"odd\"", false);
        let wanted = json!({"code": -32042, "message": "Log in.", "data": {"elicitations": [{"url": "https://a.example/x"}]}});
        check(wanted, "Log in. https://a.example/x (-32042)", false);
    }
}
