//! `alara debug`: compares the engine with a reference, piece by piece.

mod detokenize;
mod jsonl;
mod kernels;
mod logits;
mod mask;
mod parse;
mod render;
mod tokenize;

use std::process::ExitCode;

/// Compare the engine with a reference: logits, tokens, prompts, parsed answers, masks
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

subcommands! {
    Logits(logits::Args) => logits::run,
    Tokenize(tokenize::Args) => tokenize::run,
    Detokenize(detokenize::Args) => detokenize::run,
    Render(render::Args) => render::run,
    Parse(parse::Args) => parse::run,
    Mask(mask::Args) => mask::run,
    Kernels(kernels::Args) => kernels::run,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.command.run()
}
