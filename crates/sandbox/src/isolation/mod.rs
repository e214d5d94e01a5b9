//! How programs are walled off: the layers, the launcher that sets them up, and which of them this
//! machine can enforce.

pub mod enforced;
#[cfg(target_os = "linux")]
pub mod launcher;
#[cfg(target_os = "linux")]
pub mod loopback;
#[cfg(target_os = "linux")]
pub mod mounts;
#[cfg(target_os = "linux")]
mod walls;

pub use enforced::Enforced;
