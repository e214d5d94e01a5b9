//! End-to-end tests.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::needless_pass_by_value, reason = "tests")]

#[path = "../../../tests/absent.rs"]
mod absent;
mod attacks;
mod bench;
mod cache;
mod cat;
mod chat;
mod check;
mod cli;
mod config;
mod context_files;
mod conventions;
mod dialogues;
mod dirs;
mod docs;
mod endpoint;
mod escapes;
mod first_words;
mod foreign;
mod full_disk;
mod harness;
mod hooks;
mod hub;
mod init;
mod json;
mod launch;
mod mcp;
mod models;
#[cfg(unix)]
mod odd_files;
mod policies;
mod prompts;
mod real_models;
mod releases;
mod resume;
mod review;
mod runs;
mod sandbox;
mod search;
mod serve;
mod skills;
mod stock;
mod streams;
mod tau2;
mod terminal;
mod trust;
mod undo;
mod verify;

/// The root of the repository.
fn root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// Returns a command for the binary, with no prefix cache on disk, so that runs don't depend on
/// earlier ones.
fn alara() -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_alara"));
    command.env("ALARA_CACHE", "off").env_remove("ALARA_MODEL");
    command
}
