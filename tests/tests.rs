//! End-to-end tests.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::needless_pass_by_value, reason = "tests")]

mod bench;
mod cat;
mod chat;
mod check;
mod cli;
mod endpoint;
mod harness;
mod hub;
mod init;
mod mcp;
mod models;
mod place;
mod runs;
mod sandbox;
mod serve;
mod stock;
mod trust;
mod verify;
