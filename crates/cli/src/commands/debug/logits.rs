//! `alara debug logits`: writes the decoder's raw output for given tokens.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use alara_engine::{KvType, Probe, ProbeSettings};
use anyhow::{Context, bail};

use crate::{compute, device};

/// Write the logits of given tokens: little-endian f32, [positions, vocabulary]
#[derive(clap::Args)]
pub struct Args {
    /// Model file [default: the model that ships]
    #[arg(short, long, value_name = "FILE")]
    model: Option<String>,
    /// Token ids, separated by commas
    #[arg(long, value_delimiter = ',', required = true, value_name = "IDS")]
    tokens: Vec<u32>,
    /// Process the tokens in chunks of N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunk: Option<u32>,
    /// Write only the last N rows
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Number format of the KV cache: f32, f16 or q8_0
    #[arg(long, default_value = "f32", value_name = "TYPE")]
    kv: KvType,
    #[command(flatten)]
    device: device::Args,
    /// Number of compute threads [default: one per core, two if there are fewer than four cores]
    #[arg(long, value_name = "N", value_parser = compute::threads)]
    threads: Option<usize>,
    /// Output file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let gguf = crate::model::open(args.model.as_deref())?;
    let settings = ProbeSettings {
        kv: args.kv,
        offload: args.device.offload(),
        threads: compute::threads_or_default(args.threads),
        isa: compute::isa()?,
    };
    let mut probe = Probe::load(&gguf, args.tokens.len(), &settings)?;
    let last = args.last.unwrap_or(args.tokens.len());
    if last > args.tokens.len() {
        bail!("--last {last} asks for more rows than the {} tokens give", args.tokens.len());
    }
    let first_row = args.tokens.len() - last;
    let file =
        std::fs::File::create(&args.out).with_context(|| format!("cannot write {}", args.out.display()))?;
    let mut out = std::io::BufWriter::new(file);
    let chunk = args.chunk.map_or(args.tokens.len(), |chunk| chunk as usize);
    for (at, piece) in args.tokens.chunks(chunk).enumerate() {
        let end = at * chunk + piece.len();
        let logits = probe.feed(piece, end.saturating_sub(first_row).min(piece.len()))?;
        for number in logits {
            out.write_all(&number.to_le_bytes())
                .with_context(|| format!("cannot write {}", args.out.display()))?;
        }
    }
    out.flush().with_context(|| format!("cannot write {}", args.out.display()))?;
    Ok(ExitCode::SUCCESS)
}
