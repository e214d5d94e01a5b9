//! `alara debug tokenize`: text to token ids.

use std::process::ExitCode;

use alara_engine::inspect::{self, Tokenizer, TokenizerError};
use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Read a text on stdin, print its token ids as a JSON array
#[derive(clap::Args)]
pub struct Args {
    /// Model file [default: the model that ships]
    #[arg(short, long, value_name = "FILE")]
    model: Option<String>,
    /// Recognize control tokens such as <|im_end|>; otherwise they are plain text
    #[arg(long)]
    special: bool,
    /// Add the tokens that the model expects at the ends: BOS, and a separator or EOS
    #[arg(long)]
    bos: bool,
    /// Read one record per line, {"text", "parse_special", "add_special"}, where the last two
    /// default to --special and --bos, and print {"ids"} or {"error"} per line
    #[arg(long)]
    jsonl: bool,
}

#[derive(Deserialize)]
struct Record {
    text: String,
    parse_special: Option<bool>,
    add_special: Option<bool>,
}

#[derive(Serialize)]
struct Answer {
    ids: Vec<u32>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let tokenizer = inspect::tokenizer(&crate::model::open(args.model.as_deref())?)?;
    if args.jsonl {
        return super::jsonl::each(|record: Record| {
            let special = record.parse_special.unwrap_or(args.special);
            let bos = record.add_special.unwrap_or(args.bos);
            Ok(Answer { ids: tokens(&tokenizer, &record.text, special, bos)? })
        });
    }
    let text = std::io::read_to_string(std::io::stdin()).context("can't read a text from stdin")?;
    crate::ui::line(&serde_json::to_string(&tokens(&tokenizer, &text, args.special, args.bos)?)?);
    Ok(ExitCode::SUCCESS)
}

fn tokens(tokenizer: &Tokenizer, text: &str, special: bool, whole: bool) -> Result<Vec<u32>, TokenizerError> {
    if whole { tokenizer.encode_whole(text, special) } else { tokenizer.encode(text, special) }
}
