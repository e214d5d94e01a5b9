//! `alara debug tokenize`.

use std::process::ExitCode;

/// Not written yet
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not written yet")
}
