//! `alara tune`: measures on small tasks which way of calling tools suits a model.

use std::process::ExitCode;

use alara_bench::{run_file, stats, suite};
use alara_engine::{Format, Gguf, KvType, Offload};
use alara_harness::model::Tuning;
use alara_harness::scratch::Scratch;
use alara_models::catalog;
use anyhow::{Context, bail};

use super::bench::tasks;
use super::models::Contents;
use crate::agent::{self, INTERRUPTED};
use crate::model_file::{Place, place};
use crate::tuned::{Row, Tuned};
use crate::{model, ui};

/// How many more tasks a way must solve to replace the default: one more may be chance.
const MARGIN: u64 = 2;
/// The temperature to try in addition to 0.
const DRAWN: f32 = 0.7;

/// Measure which way of calling tools suits a model
///
/// Runs the built-in agent on twelve small tasks in each way: with the model's own format of calls,
/// with code blocks, with a format described in the prompt, and the best of these with a
/// temperature above 0.
/// From then on, agents use the way that solves the most tasks for this file; `alara models show`
/// displays it.
/// A way must solve two tasks more than the default.
#[derive(clap::Args)]
pub struct Args {
    /// The model: a file, or a name from `alara models list` [default: the one that ships]
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    name: Option<String>,
    #[command(flatten)]
    model: model::Args,
    /// Print the figures as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let name = args.name.as_deref().or_else(|| args.model.name());
    let model = args.model.named(name);
    let Some(tuned) = measure(&model)? else { return Ok(INTERRUPTED.into()) };
    if args.json {
        ui::line(&serde_json::to_string_pretty(&tuned)?);
        return Ok(ExitCode::SUCCESS);
    }
    let rows = tuned.rows.iter().enumerate().map(|(index, row)| {
        let used = if index == tuned.best { "used" } else { "" };
        let seconds = format!("{:.0} s", row.seconds);
        vec![row.name(), row.solved.to_string(), row.calls.to_string(), seconds, used.to_owned()]
    });
    ui::table(&["way", "solved", "calls", "time", ""], rows);
    ui::note(&format!("{} tasks each; from now on {}", tuned.tasks, tuned.told()));
    Ok(ExitCode::SUCCESS)
}

/// Measures the model that the user named, unless it was measured before.
/// Returns false if it was interrupted.
///
/// # Errors
/// Those of [`measure`].
pub fn first(args: &model::Args) -> anyhow::Result<bool> {
    Ok(Tuned::of(&model::open(args.model.as_deref())?).is_some() || measure(args)?.is_some())
}

/// Measures a model and stores the result; `None` if it was interrupted.
///
/// # Errors
/// The model isn't a local file, or the tasks can't run.
pub fn measure(args: &model::Args) -> anyhow::Result<Option<Tuned>> {
    let name = args.model.as_deref();
    if name.is_some_and(model::is_elsewhere) {
        bail!(
            "{} runs elsewhere, and whoever serves it decides how it calls tools",
            name.unwrap_or_default()
        );
    }
    let gguf = model::open(name)?;
    if let Place::File(path) = place(name)? {
        ui::note(&format!("tuning {}: some minutes", path.display()));
    }
    let scratch = Scratch::claim(&std::env::temp_dir())?;
    let suite = scratch.path().join("tune");
    suite::write_quick(&suite).context("can't write the tasks")?;
    let mut tuned = Tuned { version: env!("CARGO_PKG_VERSION").to_owned(), ..Tuned::default() };
    let mut left = ways(&gguf, name)?;
    left.reverse();
    let mut drawn = false;
    loop {
        let tuning = match left.pop() {
            Some(tuning) => tuning,
            // The best way so far, with a temperature above 0.
            None if !drawn => {
                drawn = true;
                Tuning { temperature: Some(DRAWN), ..tuned.tuning() }
            }
            None => break,
        };
        let out = scratch.path().join(format!("{}.jsonl", tuned.rows.len()));
        ui::note(&Row { tuning: tuning.clone(), ..Row::default() }.name());
        let Some(file) = tasks::in_one_way(args, &tuning, &suite, &out)? else { return Ok(None) };
        let total = stats::table([&run_file::read(&file)?]).total;
        tuned.tasks = total.tasks;
        let (calls, seconds) = (total.cost.tool_calls, total.seconds);
        tuned.rows.push(Row { tuning, solved: total.solved, calls, seconds });
        tuned.best = best(&tuned.rows);
    }
    tuned.keep(&gguf)?;
    Ok(Some(tuned))
}

/// Returns the ways to try, the default first.
fn ways(gguf: &Gguf, name: Option<&str>) -> anyhow::Result<Vec<Tuning>> {
    let contents = Contents::of(gguf, None, KvType::F16, false, &Offload::default())?;
    let own = contents.chat_template.tool_format;
    let team = agent::built_in()?;
    let npc = team.npc(None)?;
    let small = npc.small_models.as_ref().filter(|small| small.holds(Some(contents.parameters)));
    let usual =
        small.and_then(|small| small.tool_format.as_deref()).or(own).unwrap_or(Format::generic().name);
    if own.is_none() && small.is_none() {
        ui::note(&format!("{} has no format of calls of its own", name.unwrap_or(catalog::SHIPPED)));
    }
    let all = own.into_iter().chain([Format::generic().name, "code"]);
    let mut others: Vec<&str> = all.filter(|name| *name != usual).collect();
    others.dedup();
    let others =
        others.into_iter().map(|name| Tuning { tool_format: Some(name.to_owned()), ..Tuning::default() });
    Ok([Tuning::default()].into_iter().chain(others).collect())
}

/// Returns the row that solves the most tasks, if its lead over the first is large enough.
fn best(rows: &[Row]) -> usize {
    let most = rows.iter().enumerate().rev().max_by_key(|(_, row)| row.solved).map_or(0, |(index, _)| index);
    if rows[most].solved >= rows[0].solved + MARGIN { most } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_changes_nothing() {
        let rows = |solved: &[u64]| -> Vec<Row> {
            solved.iter().map(|solved| Row { solved: *solved, ..Row::default() }).collect()
        };
        assert_eq!(best(&rows(&[3])), 0);
        assert_eq!(best(&rows(&[3, 4, 2])), 0);
        assert_eq!(best(&rows(&[3, 4, 5, 5])), 2, "of equals the first");
        assert_eq!(best(&rows(&[5, 0])), 0);
    }
}
