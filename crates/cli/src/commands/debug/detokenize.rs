//! `alara debug detokenize`: token ids to text.

use std::process::ExitCode;

use alara_engine::inspect::{self, Tokenizer};
use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::ui;

/// Read token ids on stdin as a JSON array, print their text
#[derive(clap::Args)]
pub struct Args {
    /// Model file [default: the model that ships]
    #[arg(short, long, value_name = "FILE")]
    model: Option<String>,
    /// Show control tokens such as <|im_end|>
    #[arg(long)]
    special: bool,
    /// Read one record per line, {"ids"}, and print {"text"} or {"error"} per line
    #[arg(long)]
    jsonl: bool,
}

#[derive(Deserialize)]
struct Record {
    ids: Vec<u32>,
}

#[derive(Serialize)]
struct Answer {
    text: String,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let tokenizer = inspect::tokenizer(&crate::model::open(args.model.as_deref())?)?;
    if args.jsonl {
        return super::jsonl::each(|record: Record| {
            Ok(Answer { text: text(&tokenizer, &record.ids, args.special)? })
        });
    }
    let input = std::io::read_to_string(std::io::stdin()).context("can't read stdin")?;
    let ids: Vec<u32> =
        serde_json::from_str(&input).context("stdin is no JSON array of token ids, such as [1, 2]")?;
    // Print the text unchanged, without adding a newline.
    ui::text(&text(&tokenizer, &ids, args.special)?);
    Ok(ExitCode::SUCCESS)
}

fn text(tokenizer: &Tokenizer, ids: &[u32], special: bool) -> anyhow::Result<String> {
    if let Some(id) = ids.iter().find(|&&id| id as usize >= tokenizer.len()) {
        bail!("there is no token {id}: the vocabulary has {}", tokenizer.len());
    }
    Ok(tokenizer.decode(ids, special))
}
