//! `alara bench speed`: tokens per second of a bare model, and the overhead of a grammar.

use std::process::ExitCode;

use alara_bench::speed::{Config, Test, measure};
use alara_engine::{KvType, ProbeSettings};

use crate::{compute, device, ui};

/// Measure prefill and decode speed; options and JSON fields are named as in llama-bench
#[derive(clap::Args)]
pub struct Args {
    /// Model file [default: the model that ships]
    #[arg(short, long, value_name = "FILE")]
    model: Option<String>,
    /// Length of the prompt in tokens; 0 skips prefill
    #[arg(short = 'p', long, default_value_t = 512, value_name = "N")]
    n_prompt: usize,
    /// Tokens to decode; 0 skips decode
    #[arg(short, long, default_value_t = 64, value_name = "N")]
    n_gen: usize,
    /// Tokens in the cache before either begins
    #[arg(short = 'd', long, default_value_t = 0, value_name = "N")]
    n_depth: usize,
    /// Decode under the grammar of N made-up tools, and report the overhead; 0 decodes without a
    /// grammar
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u16).range(..=272))]
    tools: u16,
    /// Number of measured repetitions
    #[arg(short, long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    #[command(flatten)]
    device: device::Args,
    /// Number format of the KV cache: f32, f16 or q8_0
    #[arg(long, default_value = "f16", value_name = "TYPE")]
    kv: KvType,
    /// Number of compute threads [default: one per core, two if there are fewer than four cores]
    #[arg(short, long, value_name = "N", value_parser = compute::threads)]
    threads: Option<usize>,
    /// Print the time of each operation, compared with the machine's peak
    #[arg(long)]
    profile: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let gguf = crate::model::open(args.model.as_deref())?;
    if args.profile && args.device.record().is_some() {
        anyhow::bail!("--profile tells what the CPU does\nhint: --device cpu");
    }
    let config = Config {
        prompt: args.n_prompt,
        generate: args.n_gen,
        depth: args.n_depth,
        tools: usize::from(args.tools),
        repetitions: args.repetitions as usize,
        profile: args.profile,
        settings: ProbeSettings {
            kv: args.kv,
            offload: args.device.offload(),
            threads: compute::threads_or_default(args.threads),
            isa: compute::isa()?,
        },
    };
    let spinner = ui::spinner();
    let tests = measure(&gguf, &config, &mut |what| spinner.set_message(what))?;
    spinner.finish_and_clear();
    if args.json {
        ui::line(&serde_json::to_string_pretty(&tests)?);
        return Ok(ExitCode::SUCCESS);
    }
    let rows = tests.iter().map(|test| {
        let (what, tokens) =
            if test.n_prompt > 0 { ("prefill", test.n_prompt) } else { ("decode", test.n_gen) };
        vec![
            test.model_filename.clone(),
            format!("{:.1} MiB", test.model_size as f64 / (1 << 20) as f64),
            if test.n_gpu_layers > 0 { test.devices.clone() } else { test.n_threads.to_string() },
            format!("{what} {tokens} @ {}", test.n_depth),
            format!("{:.2} ± {:.2}", test.avg_ts, test.stddev_ts),
        ]
    });
    ui::table(&["model", "size", "threads", "test", "tokens/s"], rows);
    tests.iter().for_each(print_profile);
    for grammar in tests.iter().filter_map(|test| test.grammar) {
        let usage = grammar.usage;
        ui::line(&format!(
            "grammar of {} tools: {:.3} ms a token, {:.2} % of the steps; {} sampled, {} rejected, {} forced",
            grammar.n_tools,
            grammar.avg_token_ns as f64 / 1e6,
            grammar.share_of_steps * 100.0,
            grammar.n_steps,
            usage.rejected_tokens,
            usage.forced_tokens,
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the operations, the longest first, compared with the machine's peak.
fn print_profile(test: &Test) {
    let Some(limits) = test.limits else { return };
    ui::line(&format!(
        "\n{} at depth {}: read bandwidth {:.1} GB/s, integer peak {:.2} Tops/s",
        if test.n_prompt > 0 { "prefill" } else { "decode" },
        test.n_depth,
        limits.read_bandwidth / 1e9,
        limits.integer_peak / 1e12,
    ));
    let percent = |share: f64| if share > 0.0 { format!("{:.1} %", share * 100.0) } else { String::new() };
    let rows = test.profile.iter().map(|operation| {
        vec![
            operation.name.clone(),
            format!("{:.0}", operation.calls),
            format!("{:.2} ms", operation.avg_ns / 1e6),
            percent(operation.share),
            if operation.bytes > 0.0 { format!("{:.1} MB", operation.bytes / 1e6) } else { String::new() },
            percent(operation.share_of_bandwidth),
            percent(operation.share_of_peak),
        ]
    });
    ui::table(&["operation", "calls", "time", "share", "bytes", "of bandwidth", "of peak"], rows);
}
