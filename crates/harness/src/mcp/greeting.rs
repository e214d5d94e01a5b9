//! Determines the protocol version that client and server use.
//!
//! A modern server answers `server/discover`.
//! Any other answer, or none in time, means the handshake of legacy servers.
//! Source: "Versioning and Compatibility", 2026-07-28.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::protocol::{LEGACY, MODERN, NEWEST_LEGACY, client, common, is_modern};
use super::rpc::{Failure, Link, Pending};
use alara_team::mcp::printable;

/// How long to wait for a modern answer before also trying the handshake: some legacy servers
/// answer nothing before it.
const PROBE: Duration = Duration::from_secs(3);

/// A server's information about itself.
#[derive(Debug, Default)]
pub struct Greeting {
    /// Its own name and version.
    pub version: String,
    pub capabilities: Value,
}

/// The result of the probe.
pub enum Probed {
    Modern(Greeting),
    /// The handshake is needed.
    /// An answer to the probe may still arrive.
    Legacy(Option<Pending>),
}

/// Asks a server whether it is modern.
///
/// # Errors
/// The connection failed, the server uses no known version, or `stopped` returned true.
pub fn probe(link: &Arc<Link>, limit: Duration, stopped: &dyn Fn() -> bool) -> Result<Probed, Failure> {
    link.speak(MODERN);
    let pending = link.begin("server/discover", json!({}), &[], limit);
    let answer = link.wait_beside(&pending, PROBE.min(limit), stopped);
    match discovered(link, answer) {
        Ok(Some(greeting)) => Ok(Probed::Modern(greeting)),
        Ok(None) => Ok(Probed::Legacy(None)),
        Err(Failure::Timeout(_)) => Ok(Probed::Legacy(Some(pending))),
        Err(failure) => Err(failure),
    }
}

/// The meaning of an answer to the probe; `None` if the handshake is needed.
fn discovered(link: &Link, answer: Result<Value, Failure>) -> Result<Option<Greeting>, Failure> {
    let (offered, found) = match answer {
        Ok(found) => (found["supportedVersions"].clone(), Ok(found)),
        Err(Failure::Refused(refusal)) => {
            let is_modern = refusal.is_modern();
            let offered = refusal.supported.clone();
            let failure = Failure::Refused(refusal);
            if is_modern && !offered.is_array() {
                return Err(failure);
            }
            (offered, Err(failure))
        }
        Err(Failure::Status { .. }) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    if !offered.is_array() {
        return Ok(None);
    }
    let version = common(&offered).ok_or_else(|| unknown(&offered.to_string()))?;
    if !is_modern(version) {
        return Ok(None);
    }
    link.speak(version);
    let found = found?;
    let info = &found["_meta"]["io.modelcontextprotocol/serverInfo"];
    Ok(Some(Greeting { version: named(info), capabilities: found["capabilities"].clone() }))
}

/// Performs the handshake with a legacy server.
///
/// # Errors
/// The server refuses, uses no known version, or doesn't answer in time.
pub(crate) fn handshake(
    link: &Arc<Link>,
    late: Option<Pending>,
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<Greeting, Failure> {
    let hello = json!({"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "clientInfo": client()});
    // No version is agreed on while the handshake is under way.
    link.speak("");
    let greeting = match (link.request("initialize", hello, &[], limit, stopped), late) {
        (Ok(greeting), _) => greeting,
        // A modern server that was slow to start refuses the handshake.
        (Err(Failure::Refused(refusal)), Some(pending)) => {
            let answer = link.wait_beside(&pending, limit, stopped);
            return discovered(link, answer)?.ok_or(Failure::Refused(refusal));
        }
        (Err(failure), _) => return Err(failure),
    };
    let version = greeting["protocolVersion"].as_str().unwrap_or_default();
    let known = LEGACY.into_iter().find(|known| *known == version);
    link.speak(known.ok_or_else(|| unknown(version))?);
    // Some servers answer nothing before they have received this.
    if let Some(sent) = link.notify("notifications/initialized", &json!({})) {
        let _ = sent.join();
    }
    Ok(Greeting { version: named(&greeting["serverInfo"]), capabilities: greeting["capabilities"].clone() })
}

/// A name and version for people.
fn named(info: &Value) -> String {
    let word = |key: &str| info[key].as_str().map(printable).unwrap_or_default();
    format!("{} {}", word("name"), word("version")).trim().to_owned()
}

fn unknown(version: &str) -> Failure {
    Failure::Version(printable(version))
}
