//! End-to-end tests.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod bench;
mod cli;
mod harness;
mod hub;
mod models;
mod stock;
mod verify;
