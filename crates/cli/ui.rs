//! What people see: the one place that prints errors, tables and colours.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

/// Prints the chain of causes, and hints where there are any. Exit code 2: usage or environment.
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(2)
}
