//! Attacks by hostile models, teams, files, clients and users of the machine.
//! docs/security.md has a table of them.

#[cfg(target_os = "linux")]
mod grants;
#[cfg(target_os = "linux")]
mod neighbours;
#[cfg(target_os = "linux")]
mod programs;
#[cfg(target_os = "linux")]
mod rules;
