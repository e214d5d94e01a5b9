//! `alara cache`: what is kept on disk of prompts.

use std::process::ExitCode;
use std::time::SystemTime;

use alara_engine::disk::{self, Entry};
use anyhow::Context;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::progress::{count, printable};
use crate::{cache, ui};

/// Look at what is kept on disk of prompts, or remove it
///
/// Static text (directives, skills, tools) that a model has computed is kept, so that the next run
/// need not compute it again.
/// It is nothing but a copy: removing it costs time, never an answer.
/// `alara warm` fills it.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List what is kept, the latest used first
    List(Which),
    /// Remove all of it; models that are running are not disturbed
    Clear(Which),
}

#[derive(clap::Args)]
struct Which {
    #[command(flatten)]
    place: cache::SizedArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (Command::List(which) | Command::Clear(which)) = &args.command;
    let off = "the prefix cache is switched off\nhint: name its folder with --cache";
    let folder = which.place.folder().context(off)?;
    let unreadable = || format!("can't read {}", folder.display());
    if let Command::Clear(_) = &args.command {
        let cleared = disk::clear(&folder).with_context(unreadable)?;
        let text = match which.json {
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
        return Ok(ExitCode::SUCCESS);
    }
    let entries = disk::list(&folder).with_context(unreadable)?;
    let (held, limit) = (entries.iter().map(|entry| entry.bytes).sum::<u64>(), which.place.limit(&folder));
    if which.json {
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
        printable(model).into_owned(),
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

/// How long ago, in the largest unit.
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
