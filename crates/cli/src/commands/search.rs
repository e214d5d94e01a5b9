//! `alara search`: searches a folder of documents, like the step `search`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use alara_engine::file;
use alara_harness::ChatModel;
use alara_harness::knowledge::{EMBEDDER, Hit, IndexCache, Opened, Query, Retrieval, Vectors};
use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::json;

use crate::progress::count;
use crate::screen::printable;
use crate::{cache, model, ui};

/// Maximum length of a displayed passage, in characters.
const EXCERPT: usize = 200;
/// Numbers of passages for which recall is measured, in addition to `-k`.
const RANKS: [usize; 3] = [1, 3, 5];

/// Search a folder of documents: Markdown, text, JSON, CSV and HTML
///
/// Prints the ids of the best matching passages, with their scores.
/// Exit code 1: no match.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of documents
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Words to search for
    #[arg(value_name = "WORDS", required_unless_present = "queries")]
    words: Vec<String>,
    /// Measure recall instead: the share of the required documents among the first passages.
    /// Each line of the file is JSON: `{"query": "words", "documents": ["id"]}`
    #[arg(long, value_name = "FILE", conflicts_with = "words")]
    queries: Option<PathBuf>,
    /// Search method: bm25 (by words), embedding (by vectors of the model -m, else of
    /// all-minilm-l6-v2), or hybrid (both)
    #[arg(long, value_name = "NAME", default_value = "bm25", value_parser = retrieval)]
    retrieval: Retrieval,
    /// Maximum number of passages
    #[arg(short, value_name = "N", default_value_t = 10)]
    k: usize,
    /// Search for whole documents instead of passages
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
    let cache = cache::knowledge();
    let opened = cache.open(&args.folder, args.whole)?;
    opened.index.problems.iter().for_each(|problem| ui::note(&printable(&problem.to_string())));
    ensure!(
        !opened.index.chunks().is_empty(),
        "there are no documents in {}\nhint: .md, .txt, .json, .csv and .html files are read",
        args.folder.display()
    );
    let library = Library::new(args, &cache, opened)?;
    if let Some(file) = &args.queries {
        return recall(args, &library, file);
    }
    let hits = library.search(&args.words.join(" "))?;
    if args.json {
        ui::line(&serde_json::to_string_pretty(&hits)?);
    } else {
        for hit in &hits {
            let text = hit.text.split_whitespace().collect::<Vec<_>>().join(" ");
            let excerpt: String = text.chars().take(EXCERPT).collect();
            let more = if excerpt.len() < text.len() { "…" } else { "" };
            ui::line(&printable(&format!("{} ({:.4})\n    {excerpt}{more}", hit.id, hit.score)));
        }
        let chunks = count(library.opened.index.chunks().len(), "passage");
        ui::note(&format!("{} of {chunks}", hits.len()));
    }
    Ok(if hits.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The searched documents, and the search method.
struct Library<'a> {
    args: &'a Args,
    opened: Opened,
    /// The embedding model, and the vectors of the passages.
    vectors: Option<(Arc<dyn ChatModel>, Arc<Vectors>)>,
}

impl<'a> Library<'a> {
    fn new(args: &'a Args, cache: &IndexCache, opened: Opened) -> anyhow::Result<Self> {
        let mut library = Library { args, opened, vectors: None };
        if args.retrieval.embeds() {
            let model = args.model.load(Some(EMBEDDER), 1)?;
            let embedder = model.embedder().with_context(|| {
                format!("{} makes no vectors\nhint: name an embedding model with -m", model.name())
            })?;
            let vectors = cache.vectors(&library.opened, embedder)?;
            library.vectors = Some((model, vectors));
        }
        Ok(library)
    }

    fn search(&self, text: &str) -> anyhow::Result<Vec<Hit>> {
        let Args { retrieval, k, .. } = *self.args;
        let vectors = self.vectors.as_ref();
        let vectors = vectors.and_then(|(model, vectors)| Some((vectors.as_ref(), model.embedder()?)));
        Ok(self.opened.index.search(&Query { text, retrieval, k, least: 0.0 }, vectors)?)
    }
}

/// A line of the query file.
#[derive(Deserialize)]
struct Wanted {
    query: String,
    documents: BTreeSet<String>,
}

/// Prints the share of required documents that is found, averaged over the queries.
fn recall(args: &Args, library: &Library, path: &Path) -> anyhow::Result<ExitCode> {
    let text = file::read_given(path).with_context(|| format!("can't read {}", path.display()))?;
    let mut ranks = [&RANKS[..], &[args.k]].concat();
    ranks.retain(|rank| *rank <= args.k);
    ranks.dedup();
    let mut sums = vec![0.0; ranks.len()];
    let mut queries = 0;
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = || format!("{}, line {}", path.display(), at + 1);
        let wanted: Wanted = serde_json::from_str(line).with_context(place)?;
        ensure!(!wanted.documents.is_empty(), "{}: `documents` is empty", place());
        let hits = library.search(&wanted.query)?;
        for (sum, rank) in sums.iter_mut().zip(&ranks) {
            let found: BTreeSet<&String> = hits.iter().take(*rank).map(|hit| &hit.document).collect();
            let found = wanted.documents.iter().filter(|id| found.contains(id)).count();
            *sum += found as f64 / wanted.documents.len() as f64;
        }
        queries += 1;
    }
    ensure!(queries > 0, "there are no queries in {}", path.display());
    let means = || ranks.iter().zip(&sums).map(|(rank, sum)| (rank, sum / f64::from(queries)));
    if args.json {
        let recall: serde_json::Map<_, _> =
            means().map(|(rank, mean)| (rank.to_string(), json!(mean))).collect();
        ui::line(&json!({"queries": queries, "recall": recall}).to_string());
    } else {
        means().for_each(|(rank, mean)| ui::line(&format!("recall@{rank} {mean:.3}")));
        ui::note(&format!("of documents among passages, by {}, {queries} queries", args.retrieval));
    }
    Ok(ExitCode::SUCCESS)
}

fn retrieval(text: &str) -> Result<Retrieval, String> {
    let retrieval: Retrieval = text.parse()?;
    match retrieval.searches() {
        true => Ok(retrieval),
        false => Err(format!("`{retrieval}` finds nothing; bm25, embedding and hybrid do")),
    }
}
