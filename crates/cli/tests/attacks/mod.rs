//! What hostile models, teams, files, clients and users of the machine try.
//! docs/security.md has a table of it.

#[cfg(target_os = "linux")]
mod grants;
#[cfg(target_os = "linux")]
mod neighbours;
#[cfg(target_os = "linux")]
mod programs;
#[cfg(target_os = "linux")]
mod rules;
