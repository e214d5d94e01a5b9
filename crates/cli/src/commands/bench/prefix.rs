//! `alara bench prefix`: measures the savings of the prefix cache.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alara_bench::prefix::{Config, Hits, Report, measure, recorded};
use alara_engine::disk::{self, Log};
use alara_engine::{Format, KvType, Options};

use crate::{compute, device, ui};

/// Measure the prefix cache: hits of three agents that share skills, time to the first token,
/// throughput
///
/// Measures hits on a trace of 60 requests, or on the requests that agents made in a run.
/// Compares them with the ideal: the longest prefix that each prompt shares with any earlier one.
/// Measures times cold, with the static prefix in memory, and after a restart.
/// After a restart, the files are in the page cache, or on disk only.
#[derive(clap::Args)]
pub struct Args {
    /// Model file [default: the model that ships]
    #[arg(short, long, value_name = "FILE")]
    model: Option<String>,
    /// A Jinja file to use instead of the model's own chat template
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Format of tool calls, for replayed requests with tools [default: from the chat template]
    #[arg(long, value_name = "NAME", value_parser = crate::model::tool_format())]
    tool_format: Option<&'static Format>,
    /// Replay the requests of this run instead of made-up ones: a run file of `alara bench tasks`
    /// or a trace
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Length of a skill in the made-up trace, in words
    #[arg(long, default_value_t = 150, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    words: u16,
    /// Lengths of the static prefix for the time to first token, as far as they fit into the
    /// model's context
    #[arg(long, default_value = "1000,5000,15000", value_name = "N,…", value_delimiter = ',')]
    sizes: Vec<usize>,
    /// How many agents work at once, on made-up requests or on the tasks of a replay
    #[arg(long, default_value = "1,2,4,8", value_name = "N,…", value_delimiter = ',')]
    parallel: Vec<usize>,
    /// Tokens that each made-up request generates; replayed ones generate as many as were recorded
    #[arg(short, long, default_value_t = 32, value_name = "N")]
    n_gen: usize,
    /// Length of a prompt that is prefilled while another sequence decodes, for the time between
    /// tokens; 0 skips this
    #[arg(long, default_value_t = 4096, value_name = "N")]
    beside: usize,
    #[command(flatten)]
    device: device::Args,
    /// Number format of the KV cache: f32, f16 or q8_0
    #[arg(long, default_value = "f16", value_name = "TYPE")]
    kv: KvType,
    /// Maximum memory for the KV cache in GB [default: enough for these tokens and agents]
    #[arg(long, value_name = "GB", value_parser = crate::cache::gigabytes)]
    kv_size: Option<u64>,
    /// Number of compute threads [default: one per core, two if there are fewer than four cores]
    #[arg(short, long, value_name = "N", value_parser = compute::threads)]
    threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let gguf = crate::model::open(args.model.as_deref())?;
    // Use a cache folder of our own, so that cold really means cold.
    let folder = tempfile::tempdir()?;
    let disk = disk::Options {
        folder: folder.path().join("prefix"),
        limit: u64::MAX,
        patience: std::time::Duration::MAX,
        always: false,
        log: Log::new(ui::note),
        outcome: std::sync::Arc::default(),
    };
    let config = Config {
        options: Options {
            kv: args.kv,
            kv_bytes: args.kv_size,
            tool_format: args.tool_format,
            offload: args.device.offload(),
            threads: compute::threads_or_default(args.threads),
            isa: compute::isa()?,
            memory: alara_models::memory::available(),
            chat_template: args.chat_template.as_deref().map(crate::model::chat_template).transpose()?,
            parallel: 3,
            ..Options::default()
        },
        disk,
        recorded: args.replay.as_deref().map(recorded).transpose()?,
        words: usize::from(args.words),
        sizes: args.sizes.clone(),
        parallel: args.parallel.iter().copied().filter(|agents| *agents > 0).collect(),
        generate: args.n_gen.max(1),
        beside: args.beside,
    };
    let spinner = ui::spinner();
    let report = measure(&gguf, &config, &mut |what| spinner.set_message(what), &evict)?;
    spinner.finish_and_clear();
    match args.json {
        true => ui::line(&serde_json::to_string_pretty(&report)?),
        false => print(&report, args.beside),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(report: &Report, beside: usize) {
    let Hits { requests, prompt_tokens, ideal_tokens, hit_tokens, share, too_long } = report.trace;
    ui::line(&format!("{}, {} threads", report.model, report.threads));
    ui::line(&format!(
        "trace: {hit_tokens} of {ideal_tokens} ideal hit tokens, {:.2} % ({requests} requests, {prompt_tokens} tokens)\n",
        share * 100.0
    ));
    if too_long > 0 {
        ui::note(&format!("{too_long} more requests of the trace are longer than the model's context"));
    }
    if !report.too_long.is_empty() {
        ui::note(&format!("the model's context is too short for {:?} static tokens", report.too_long));
    }
    let relative = |ms: f64, cold: f64| format!("{ms:.1} ms ({:.1} %)", ms / cold * 100.0);
    let rows = report.first_token.iter().map(|row| {
        vec![
            row.prompt_tokens.to_string(),
            format!("{:.1} ms", row.cold_ms),
            relative(row.warm_ms, row.cold_ms),
            relative(row.restart_ms, row.cold_ms),
            row.uncached_ms.map_or_else(|| "-".to_owned(), |ms| relative(ms, row.cold_ms)),
            row.disk_tokens.to_string(),
            format!("{:.1} ms ({:.2} %)", row.snapshot_ms, row.snapshot_share * 100.0),
        ]
    });
    let header = [
        "first token after",
        "cold",
        "warm",
        "restarted",
        "files not in memory",
        "from disk",
        "snapshots, cold",
    ];
    ui::table(&header, rows);
    ui::line("");
    let rows = report.parallel.iter().map(|row| {
        let maybe = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.2}"));
        vec![
            row.agents.to_string(),
            row.tokens.to_string(),
            format!("{:.2}", row.tokens_per_second),
            maybe(row.decode_per_second),
            maybe(row.tasks_per_minute),
        ]
    });
    ui::table(&["agents at once", "tokens", "tokens/s", "without prompts", "tasks/min"], rows);
    if let Some(beside) = report.beside {
        ui::line(&format!(
            "\nwhile a prompt of {} tokens is read ({:.1} s), another sequence writes a token every {:.0} ms (median), {:.0} ms (95th percentile), {:.0} ms (longest)",
            beside.prompt_tokens,
            beside.prefill_ms / 1e3,
            beside.median_ms,
            beside.p95_ms,
            beside.longest_ms,
        ));
    } else if beside > 0 {
        ui::note("the model's context is too short for a prompt beside another sequence (--beside)");
    }
}

/// Evicts a file from the system's page cache.
#[cfg(target_os = "linux")]
fn evict(path: &Path) -> bool {
    use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
    let forgotten = |file| posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).is_ok();
    std::fs::File::open(path).is_ok_and(forgotten)
}

#[cfg(not(target_os = "linux"))]
fn evict(_path: &Path) -> bool {
    false
}
