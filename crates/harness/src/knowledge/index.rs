//! Search results: rankings of chunks, and their fusion.

use serde::{Deserialize, Serialize};

use super::bm25::Bm25;
use super::chunk::{self, Chunk};
use super::{Document, Error, Problem, Retrieval, Vectors};
use crate::model::Embedder;

/// The constant of reciprocal rank fusion:
/// <https://plg.uwaterloo.ca/~gvcormac/cormacksigir09-rrf.pdf>.
const FUSION: f64 = 60.0;

/// A searchable library.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// The documents, without their texts.
    documents: Vec<Document>,
    chunks: Vec<Chunk>,
    bm25: Bm25,
    /// The files that were left out.
    pub problems: Vec<Problem>,
}

/// A search.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Words, or a question.
    pub text: &'a str,
    /// The retrieval method.
    pub retrieval: Retrieval,
    /// Most hits.
    pub k: usize,
    /// The least share of the query's words that a matching text must contain, from 0 to 1.
    pub least: f64,
}

/// A passage found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hit {
    /// The chunk's id.
    pub id: String,
    /// The document's id.
    pub document: String,
    /// The chunk's title.
    pub title: String,
    /// The document's address, if it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The document's file in its folder.
    #[serde(skip)]
    pub file: String,
    /// Its text.
    pub text: String,
    /// Higher is better: a BM25 score, a cosine, or a sum of reciprocal ranks.
    pub score: f64,
}

impl Index {
    /// Indexes these documents, split into chunks or as a whole.
    pub fn new(documents: Vec<Document>, whole: bool, problems: Vec<Problem>) -> Self {
        let mut index = Index { problems, ..Index::default() };
        for (at, mut document) in documents.into_iter().enumerate() {
            let chunks = if whole { vec![chunk::whole(&document, at)] } else { chunk::chunks(&document, at) };
            for chunk in &chunks {
                index.bm25.add(&format!("{} {}", document.title, chunk.text));
            }
            index.chunks.extend(chunks);
            document.text.clear();
            index.documents.push(document);
        }
        index
    }

    /// The chunks, in the order of documents and texts.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// The texts to compute vectors of.
    pub(super) fn texts(&self) -> Vec<String> {
        let title = |chunk: &Chunk| self.documents.get(chunk.document).map_or("", |document| &document.title);
        self.chunks.iter().map(|chunk| format!("{}\n{}", title(chunk), chunk.text)).collect()
    }

    /// The best `k` chunks, the best first.
    /// A search by vectors needs those of this index, and the model that computed them.
    ///
    /// # Errors
    /// There are no vectors, or the model can't compute the query's.
    pub fn search(
        &self,
        query: &Query,
        vectors: Option<(&Vectors, &dyn Embedder)>,
    ) -> Result<Vec<Hit>, Error> {
        let by_words = || self.bm25.search(query.text, query.least);
        let by_vectors = || {
            let (vectors, embedder) = vectors.ok_or(Error::NoEmbedder { retrieval: query.retrieval })?;
            vectors.search(&Vectors::of(&[query.text.to_owned()], embedder)?)
        };
        let found = match query.retrieval {
            _ if query.text.trim().is_empty() => Vec::new(),
            Retrieval::None | Retrieval::Golden => Vec::new(),
            Retrieval::Bm25 => by_words(),
            Retrieval::Embedding => by_vectors()?,
            Retrieval::Hybrid => fused(&[by_words(), by_vectors()?]),
        };
        let hits = found.into_iter().take(query.k).filter_map(|(at, score)| {
            let chunk = self.chunks.get(at)?;
            let document = self.documents.get(chunk.document)?;
            Some(Hit {
                id: chunk.id.clone(),
                document: document.id.clone(),
                title: chunk.title.clone(),
                url: document.url.clone(),
                file: document.file.clone(),
                text: chunk.text.clone(),
                score: (score * 1e4).round() / 1e4,
            })
        });
        Ok(hits.collect())
    }
}

/// Merges several rankings: each gives 1 / (60 + rank) to its chunks, with ranks from 1.
fn fused(rankings: &[Vec<(usize, f64)>]) -> Vec<(usize, f64)> {
    let mut scores = std::collections::BTreeMap::<usize, f64>::new();
    for ranking in rankings {
        for (rank, (at, _)) in ranking.iter().enumerate() {
            *scores.entry(*at).or_default() += 1.0 / (FUSION + rank as f64 + 1.0);
        }
    }
    let mut found: Vec<(usize, f64)> = scores.into_iter().collect();
    found.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    found
}
