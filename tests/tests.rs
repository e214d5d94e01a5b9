//! End-to-end tests.

mod bench;
mod harness;
