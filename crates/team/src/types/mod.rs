//! The values that every other module uses: they are data, and know of no module.

mod blocked;
pub use alara_sandbox::cut;
mod diagnostic;
mod limits;
mod outcome;
mod result;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use blocked::Blocked;
pub use diagnostic::{Diagnostic, Location, Severity};
pub use limits::Limits;
pub use outcome::Outcome;
pub use result::KEPT_BYTES;
pub use result::{Interrupted, ToolResult};

/// The SHA-256 of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a call may be made; the later the variant, the stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It may.
    Allow,
    /// Only if a person agrees.
    Ask,
    /// It may not.
    Deny,
}

/// The effect of a jinx on the world outside the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It only computes.
    None,
    /// It only reads.
    Read,
    /// It may change something.
    #[default]
    Write,
}
