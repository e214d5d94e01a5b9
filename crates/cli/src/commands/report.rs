//! `alara report`: reports the results of runs as Markdown, JSON, a web page or a database.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alara_bench::record::Named;
use alara_bench::report::{self, Facts, OfSuite, RunSource};
use alara_bench::sqlite;
use alara_models::{Entry, catalog};
use serde_json::json;

use crate::ui;

/// Report the results of `alara bench tasks` runs: scores, gains, correlations, comparisons
///
/// Markdown goes to stdout.
/// Merges the runs of several machines or shards; compares conditions by a paired test.
/// Runs of several suites get one section each.
/// Published numbers are shown next to ours, marked as such.
#[derive(clap::Args)]
pub struct Args {
    /// Run files, and folders to search for them at any depth
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a web page to this folder: index.html, with the traces next to it; it needs no network
    #[arg(long, value_name = "FOLDER")]
    html: Option<PathBuf>,
    /// Write runs, tasks, attempts and messages to this SQLite database
    #[arg(long, value_name = "FILE")]
    sqlite: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let suites = read(&args.runs)?;
    if args.json {
        ui::line(&serde_json::to_string_pretty(&value(&suites)?)?);
    } else if args.html.is_none() && args.sqlite.is_none() {
        let sections: Vec<String> = suites.iter().map(|suite| report::markdown(&suite.report)).collect();
        ui::text(&sections.join("\n"));
    }
    if let Some(file) = &args.sqlite {
        database(file, &suites)?;
    }
    if let Some(folder) = &args.html {
        for problem in report::write_pages(&suites, folder)? {
            ui::note(&format!("warning: {problem}"));
        }
        ui::note(&format!("wrote {}", folder.join("index.html").display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the summary at the end of a sweep: scores and comparisons.
pub fn summary(folder: &Path, json: bool) -> anyhow::Result<()> {
    let suites = read(&[folder.to_owned()])?;
    database(&folder.join("runs.sqlite"), &suites)?;
    if json {
        ui::line(&value(&suites)?.to_string());
    } else {
        let sections = suites.iter().flat_map(|suite| &suite.report.sections);
        for section in sections.filter(|section| ["score", "ab"].contains(&section.id)) {
            ui::line(section.title);
            for table in &section.tables {
                let header: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
                let rows = table.rows.iter().map(|row| row.iter().map(|cell| cell.text.clone()).collect());
                ui::table(&header, rows);
            }
            ui::line("");
        }
    }
    ui::note(&format!("runs in {0}; more with: alara report {0}", folder.display()));
    Ok(())
}

fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<OfSuite>> {
    let sources = report::find(paths)?;
    let entries = catalog::entries()?;
    Ok(report::reports(sources, |model| facts(entries, model))?)
}

/// Returns the report as JSON; reports on several suites go into a list `reports`.
fn value(suites: &[OfSuite]) -> serde_json::Result<serde_json::Value> {
    match suites {
        [suite] => serde_json::to_value(&suite.report),
        suites => {
            let reports = suites.iter().map(|suite| serde_json::to_value(&suite.report));
            Ok(json!({"reports": reports.collect::<Result<Vec<_>, _>>()?}))
        }
    }
}

fn database(file: &Path, suites: &[OfSuite]) -> anyhow::Result<()> {
    let sources = suites.iter().flat_map(|suite| &suite.sources);
    Ok(sqlite::write(file, sources.map(|source: &RunSource| (source.file.as_path(), &source.run)))?)
}

/// Returns the catalog's data about a model.
/// Finds a model file by its hash, else by its name.
/// Finds an endpoint's model by its own name or Ollama's.
fn facts(entries: &[Entry], model: &Named) -> Facts {
    let name = model.name.rsplit_once('#').map_or(model.name.as_str(), |(_, name)| name);
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    // The file name is the same for every checkpoint.
    let file =
        |entry: &Entry| !entry.is_checkpoint() && is(entry.file.rsplit('/').next().unwrap_or_default());
    let found = entries
        .iter()
        .find(|entry| entry.sha256.as_ref().is_some_and(|hash| *hash == model.hash))
        .or_else(|| entries.iter().find(|entry| file(entry)))
        .or_else(|| entries.iter().find(|entry| is(&entry.name) || entry.ollama.as_deref().is_some_and(is)));
    found.map_or_else(Facts::default, |entry| Facts {
        title: entry.title.clone(),
        family: entry.family.clone(),
        parameters: Some(entry.parameters),
        score: entry.score.as_ref().map(|score| score.value),
        benchmark: entry.score.as_ref().map(|score| score.benchmark.clone()).unwrap_or_default(),
        study: entry.name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweep_of_the_study_has_its_models() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/sweeps/22-models.bench");
        let sweep = alara_bench::sweep::Sweep::load(&path).unwrap();
        assert_eq!(sweep.models.len(), 22);
        let study = include_str!("../../../bench/src/report/study.yaml");
        for name in sweep.models {
            assert!(catalog::find(&name).unwrap().is_some(), "{name} is not in the catalog");
            assert!(study.contains(&format!("\n  {name}: ")), "{name} is not in the study");
        }
        alara_bench::sweep::Sweep::load(&path.with_file_name("retry.bench")).unwrap();
    }

    #[test]
    fn the_catalog_knows_models_by_hash_file_and_name() {
        let entries = catalog::entries().unwrap();
        let entry = entries.iter().find(|entry| entry.name == "qwen3-8b").unwrap();
        let check = |name: &str, hash: &str, expected: &str| {
            let named = Named { name: name.into(), hash: hash.into() };
            assert_eq!(facts(entries, &named).study, expected, "{name}");
        };
        check("renamed.gguf", entry.sha256.as_deref().unwrap(), "qwen3-8b");
        check(&entry.file, "", "qwen3-8b");
        check("http://127.0.0.1:11434/v1#qwen3:8b", "", "qwen3-8b");
        check("alara-tiny.gguf", "", "");
    }
}
