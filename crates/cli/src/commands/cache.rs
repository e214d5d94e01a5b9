//! `alara cache`: the prefix cache on disk.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use alara_engine::disk::{self, Entry};
use anyhow::Context;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::progress::count;
use crate::screen::one_line;
use crate::{cache, ui};

/// Show or clear the prefix cache on disk
///
/// The cache keeps the computed static prefixes of prompts (directives, skills, tools), so that the
/// next run need not compute them again.
/// Clearing it is safe: it costs time and never changes an answer.
/// `alara warm` fills it.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

subcommands! {
    /// List the cache entries, most recently used first
    List(FolderArgs) => list,
    /// Remove all entries; running models are not affected
    Clear(FolderArgs) => clear,
}

#[derive(clap::Args)]
pub struct FolderArgs {
    #[command(flatten)]
    cache: cache::SizedArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.command.run()
}

impl FolderArgs {
    fn folder(&self) -> anyhow::Result<PathBuf> {
        self.cache.folder().context("the prefix cache is switched off\nhint: name its folder with --cache")
    }
}

fn clear(args: &FolderArgs) -> anyhow::Result<ExitCode> {
    let folder = args.folder()?;
    let cleared = disk::clear(&folder).with_context(|| format!("can't read {}", folder.display()))?;
    let text = match args.json {
        true => json!({
            "folder": folder, "files": cleared.files, "bytes": cleared.bytes, "left": cleared.left,
        })
        .to_string(),
        false => format!("{} removed, {}", count(cleared.files, "file"), ui::bytes(cleared.bytes)),
    };
    ui::line(&text);
    anyhow::ensure!(
        cleared.left == 0,
        "{} in {} can't be removed",
        count(cleared.left, "file"),
        folder.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn list(args: &FolderArgs) -> anyhow::Result<ExitCode> {
    let folder = args.folder()?;
    let entries = disk::list(&folder).with_context(|| format!("can't read {}", folder.display()))?;
    let (held, limit) = (entries.iter().map(|entry| entry.bytes).sum::<u64>(), args.cache.limit(&folder));
    if args.json {
        let entries: Vec<Value> = entries.iter().map(record).collect();
        let all = json!({"folder": folder, "bytes": held, "limit": limit, "entries": entries});
        ui::line(&serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    if !entries.is_empty() {
        ui::table(&["model", "tokens", "after", "size", "last used"], entries.iter().map(row));
        ui::line("");
    }
    let folder = folder.display();
    ui::line(&format!("{} of at most {} in {folder}", ui::bytes(held), ui::bytes(limit)));
    Ok(ExitCode::SUCCESS)
}

fn row(entry: &Entry) -> Vec<String> {
    let (start, end) = entry.tokens;
    let model = entry.model.as_deref().unwrap_or("(unreadable)");
    vec![
        one_line(model),
        (end - start).to_string(),
        start.to_string(),
        ui::bytes(entry.bytes),
        ago(entry.used),
    ]
}

fn record(entry: &Entry) -> Value {
    let used = Timestamp::try_from(entry.used).ok().map(|time| time.to_string());
    let (start, end) = entry.tokens;
    json!({
        "path": entry.path, "model": entry.model, "tokens": end - start, "after": start, "bytes": entry.bytes,
        "used": used,
    })
}

/// Formats a time as its age in the largest fitting unit.
fn ago(time: SystemTime) -> String {
    let seconds = time.elapsed().unwrap_or_default().as_secs();
    let (number, unit) = match seconds {
        0..60 => return "now".to_owned(),
        60..3600 => (seconds / 60, "minute"),
        3600..86_400 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{} ago", count(number as usize, unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_for_people() {
        let check = |seconds: u64, expected: &str| {
            assert_eq!(ago(SystemTime::now() - Duration::from_secs(seconds)), expected);
        };
        check(3, "now");
        check(60, "1 minute ago");
        check(7300, "2 hours ago");
        check(400_000, "4 days ago");
    }
}
