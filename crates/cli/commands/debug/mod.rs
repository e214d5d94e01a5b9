//! `alara debug`: hold the engine against a reference, piece by piece.

mod detokenize;
mod jsonl;
mod kernels;
mod logits;
mod mask;
mod parse;
mod render;
mod tokenize;

use std::process::ExitCode;

/// Hold the engine against a reference: logits, tokens, prompts, parsed answers, masks
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Logits(logits::Args),
    Tokenize(tokenize::Args),
    Detokenize(detokenize::Args),
    Render(render::Args),
    Parse(parse::Args),
    Mask(mask::Args),
    Kernels(kernels::Args),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Logits(args) => logits::run(args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Detokenize(args) => detokenize::run(args),
        Command::Render(args) => render::run(args),
        Command::Parse(args) => parse::run(args),
        Command::Mask(args) => mask::run(args),
        Command::Kernels(args) => kernels::run(args),
    }
}
