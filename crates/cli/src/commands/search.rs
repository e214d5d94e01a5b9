//! `alara search`: finds passages in a folder of documents, as the step `search` does.

use std::path::PathBuf;
use std::process::ExitCode;

use alara_harness::knowledge::{EMBEDDER, Query, Retrieval};
use anyhow::{Context, ensure};

use crate::progress::{count, printable};
use crate::{cache, model, ui};

/// Most characters of a passage that are shown.
const EXCERPT: usize = 200;

/// Search a folder of documents: Markdown, text, JSON, CSV and HTML
///
/// Prints the ids of the passages that fit best, with their scores.
/// Exit code 1: nothing was found.
#[derive(clap::Args)]
pub struct Args {
    /// The folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// What to look for
    #[arg(value_name = "WORDS", required = true)]
    words: Vec<String>,
    /// How: bm25 (by words), embedding (by vectors of the model -m), or hybrid (by both)
    #[arg(long, value_name = "NAME", default_value = "bm25", value_parser = retrieval)]
    retrieval: Retrieval,
    /// Most passages
    #[arg(short, value_name = "N", default_value_t = 10)]
    k: usize,
    /// Find documents as they are, not passages of them
    #[arg(long)]
    whole: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: model::Args,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let words = args.words.join(" ");
    let cache = cache::knowledge();
    let opened = cache.open(&args.folder, args.whole)?;
    opened.index.problems.iter().for_each(|problem| ui::note(&printable(&problem.to_string())));
    ensure!(
        !opened.index.chunks().is_empty(),
        "there are no documents in {}\nhint: .md, .txt, .json, .csv and .html files are read",
        args.folder.display()
    );
    let query = Query { text: &words, retrieval: args.retrieval, k: args.k, least: 0.0 };
    let hits = if args.retrieval.embeds() {
        let model = args.model.load(Some(EMBEDDER), 1)?;
        let embedder = model.embedder().with_context(|| {
            format!("{} makes no vectors\nhint: name an embedding model with -m", model.name())
        })?;
        let vectors = cache.vectors(&opened, embedder)?;
        opened.index.search(&query, Some((&vectors, embedder)))?
    } else {
        opened.index.search(&query, None)?
    };
    if args.json {
        ui::line(&serde_json::to_string_pretty(&hits)?);
    } else {
        for hit in &hits {
            let text = hit.text.split_whitespace().collect::<Vec<_>>().join(" ");
            let excerpt: String = text.chars().take(EXCERPT).collect();
            let more = if excerpt.len() < text.len() { "…" } else { "" };
            ui::line(&printable(&format!("{} ({:.4})\n    {excerpt}{more}", hit.id, hit.score)));
        }
        let chunks = count(opened.index.chunks().len(), "passage");
        ui::note(&format!("{} of {chunks}", hits.len()));
    }
    Ok(if hits.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn retrieval(text: &str) -> Result<Retrieval, String> {
    let retrieval: Retrieval = text.parse()?;
    match retrieval.searches() {
        true => Ok(retrieval),
        false => Err(format!("`{retrieval}` finds nothing; bm25, embedding and hybrid do")),
    }
}
