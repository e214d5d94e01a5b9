//! `alara run`: one task, answer on stdout, progress on stderr.

use std::process::ExitCode;

/// Do one task with an agent: the answer goes to stdout, progress to stderr
#[derive(clap::Args)]
pub struct Args {
    /// The task, in plain words
    task: String,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("cannot run `{}` yet", args.task)
}
