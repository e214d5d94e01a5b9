//! End-to-end tests.

mod harness;
