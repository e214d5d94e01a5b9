//! `alara bench drafts`: measures the gain of speculative decoding by prompt lookup.

use std::path::PathBuf;
use std::process::ExitCode;

use alara_bench::drafts::{Config, Report, measure, recorded, turns_of};
use alara_engine::{KvType, Options};
use anyhow::{Context, bail};

use crate::{compute, device, ui};

/// Measure speculative decoding by prompt lookup: tokens/s with and without draft tokens, on tool
/// calls and on free text
///
/// Makes all requests with and without draft tokens (one token per step) in alternation, and
/// compares the answers.
/// Tool calls are the model turns of traces, as written by `alara run` and `alara bench tasks`.
#[derive(clap::Args)]
pub struct Args {
    /// Traces whose turns with tools are requested again [default: a built-in one, recorded with
    /// the model that ships]
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Model file [default: the model that ships]
    #[arg(short, long, value_name = "FILE")]
    model: Option<String>,
    /// How often to make all requests with and without draft tokens
    #[arg(short = 'r', long, default_value_t = 15, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,
    /// Maximum length of an answer, in tokens
    #[arg(short, long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    n_gen: u32,
    #[command(flatten)]
    device: device::Args,
    /// Number format of the KV cache: f32, f16 or q8_0
    #[arg(long, default_value = "f16", value_name = "TYPE")]
    kv: KvType,
    /// Number of compute threads [default: as many as the machine runs at once]
    #[arg(short, long, value_name = "N", value_parser = compute::threads)]
    threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut turns = Vec::new();
    for path in &args.traces {
        turns.extend(turns_of(path).with_context(|| format!("can't read the trace {}", path.display()))?);
    }
    if args.traces.is_empty() {
        turns = recorded();
    }
    if turns.is_empty() {
        bail!("no turn of the traces has tools");
    }
    let gguf = crate::model::open(args.model.as_deref())?;
    let config = Config {
        options: Options {
            kv: args.kv,
            offload: args.device.offload(),
            threads: compute::threads_or_default(args.threads),
            isa: compute::isa()?,
            memory: alara_models::memory::available(),
            ..Options::default()
        },
        pairs: usize::from(args.pairs),
        tokens: args.n_gen as usize,
    };
    let spinner = ui::spinner();
    let report = measure(&gguf, &config, turns, &mut |what| spinner.set_message(what))?;
    spinner.finish_and_clear();
    match args.json {
        true => ui::line(&serde_json::to_string_pretty(&report)?),
        false => print(&report),
    }
    match report.sets.iter().all(|set| set.same == set.requests) {
        true => Ok(ExitCode::SUCCESS),
        false => bail!("answers differ with and without drafts"),
    }
}

fn print(report: &Report) {
    ui::line(&format!("{}, {} threads", report.model, report.threads));
    let rows = report.sets.iter().map(|set| {
        vec![
            set.name.to_owned(),
            set.requests.to_string(),
            set.tokens.to_string(),
            format!("{:.1}", set.without),
            format!("{:.1}", set.with),
            format!("{:.2}x", set.speedup),
            format!("{} of {}", set.drafts.accepted, set.drafts.drafted),
            format!("{} of {}", set.same, set.requests),
        ]
    });
    let header = [
        "",
        "requests",
        "tokens",
        "tokens/s without",
        "with",
        "median of pairs",
        "drafts accepted",
        "same answers",
    ];
    ui::table(&header, rows);
}
