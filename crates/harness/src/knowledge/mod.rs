//! A library of documents, and the search for passages in it.
//!
//! `document` reads a folder, `chunk` splits texts at their headings, `bm25` and `vectors` rank the
//! chunks, `index` merges rankings, and `cache` stores indexes by the hash of their content.
//!
//! This module must not know who searches, or which models are loaded.

mod bm25;
mod cache;
mod chunk;
mod document;
mod html;
mod index;
mod vectors;

use std::path::PathBuf;

pub use alara_team::knowledge::{EMBEDDER, Knowledge, Retrieval};
pub use cache::{IndexCache, Opened};
pub use chunk::Chunk;
pub use document::{Document, Problem, documents};
pub use index::{Hit, Index, Query};
pub use vectors::Vectors;

use crate::model::ModelError;

/// Why a search fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A folder of documents is missing or unreadable.
    #[error("there is no folder {} to search", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why it can't be read.
        source: std::io::Error,
    },
    /// A requested document doesn't exist.
    #[error("there is no document `{id}`{}", near.as_ref().map(|near| format!(", did you mean `{near}`?")).unwrap_or_default())]
    NoDocument {
        /// The id.
        id: String,
        /// A similar id.
        near: Option<String>,
    },
    /// The embedding model failed.
    #[error("no vectors can be made of the documents")]
    Embedder(#[source] ModelError),
    /// An embedding model returned vectors of other lengths, or too few.
    #[error("the embedding model gave {found} for {wanted}: it can't be used for a search")]
    Shape {
        /// The expected result.
        wanted: String,
        /// The actual result.
        found: String,
    },
    /// A search by vectors has no embedding model.
    #[error("retrieval `{retrieval}` needs an embedding model: name one by `model`, or use `bm25`")]
    NoEmbedder {
        /// The retrieval method.
        retrieval: Retrieval,
    },
}

/// The texts of these documents for a prompt: retrieval `golden`.
///
/// They are in the order of their ids, each once, whatever the order of `ids`.
/// So two prompts that need the same documents are identical up to their end, and hit the prefix
/// cache; each text is a separate static segment.
///
/// # Errors
/// There is no such document.
pub fn golden(documents: &[Document], ids: &[String]) -> Result<Vec<String>, Error> {
    let mut ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    ids.sort_unstable();
    ids.dedup();
    let text = |id: &str| {
        let found = documents.iter().find(|document| document.id == id).ok_or_else(|| {
            let known = documents.iter().map(|document| document.id.as_str());
            Error::NoDocument { id: id.to_owned(), near: alara_engine::nearest(id, known).map(str::to_owned) }
        })?;
        Ok(format!("<document id=\"{id}\">\n{}\n</document>", found.text.trim()))
    };
    ids.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests;
