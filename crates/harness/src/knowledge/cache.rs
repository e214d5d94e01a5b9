//! A cache of indexes and vectors by content hash: a library's index by that of all its documents,
//! a chunk's vector by that of its text.
//!
//! So a change of a document is always noticed, and nothing unchanged is computed twice.
//! A broken cache file is rebuilt; one that can't be written is no error.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use super::document::{Content, files, listed, read};
use super::vectors::Kept;
use super::{Error, Index, Problem, Vectors};
use crate::model::Embedder;

/// Increase this when files in an older format would be misread.
const VERSION: &str = "alara knowledge 1";
/// The text whose vector identifies a model.
const PROBE: &str = "The quick brown fox jumps over the lazy dog.";

/// Caches indexes in memory, and in a folder if there is one.
#[derive(Debug, Default)]
pub struct IndexCache {
    folder: Option<PathBuf>,
    indexes: Mutex<BTreeMap<String, Arc<Index>>>,
    /// Vectors by the hashes of the index and the model.
    vectors: Mutex<BTreeMap<(String, String), Arc<Vectors>>>,
}

/// An index, by its hash.
#[derive(Clone, Debug)]
pub struct Opened {
    hash: String,
    /// The index.
    pub index: Arc<Index>,
    /// Whether it is opened for the first time: then its problems should be reported.
    pub new: bool,
}

impl IndexCache {
    /// A persistent cache, in a folder that need not exist yet.
    pub fn kept_in(folder: PathBuf) -> Self {
        IndexCache { folder: Some(folder), ..IndexCache::default() }
    }

    /// The index of a folder's documents, split into chunks or as whole documents.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn open(&self, folder: &Path, whole: bool) -> Result<Opened, Error> {
        let mut problems = Vec::new();
        let files = files(folder, &mut problems)?;
        Ok(self.opened(&files, whole, problems))
    }

    /// The index of documents in a value, `[{id, title, url, text}]`; `None` if the value has
    /// another form.
    pub fn of(&self, documents: &serde_json::Value, whole: bool) -> Option<Opened> {
        listed(documents, "document")?;
        let content = ("document.json".to_owned(), documents.to_string().into_bytes());
        let mut opened = self.opened(&[content], whole, Vec::new());
        // They don't come from files.
        opened.new = false;
        Some(opened)
    }

    fn opened(&self, files: &[Content], whole: bool, mut problems: Vec<Problem>) -> Opened {
        let mut hash = Sha256::new();
        hash.update(format!("{VERSION} {whole}\n"));
        for (file, bytes) in files {
            hash.update(format!("{} {} {file}\n", file.len(), bytes.len()));
            hash.update(bytes);
        }
        problems.iter().for_each(|problem| hash.update(format!("{problem}\n")));
        let hash = format!("{:x}", hash.finalize());
        let mut indexes = lock(&self.indexes);
        if let Some(index) = indexes.get(&hash) {
            return Opened { hash, index: index.clone(), new: false };
        }
        let name = format!("{hash}.json");
        let kept = self.load(&name).and_then(|bytes| serde_json::from_slice::<Index>(&bytes).ok());
        let index = Arc::new(kept.unwrap_or_else(|| {
            let documents = read(files, &mut problems);
            let index = Index::new(documents, whole, problems);
            self.keep(&name, &serde_json::to_vec(&index).unwrap_or_default());
            index
        }));
        indexes.insert(hash.clone(), index.clone());
        Opened { hash, index, new: true }
    }

    /// A model's vectors of an index; computed once for each model.
    ///
    /// # Errors
    /// The model can't compute them.
    pub fn vectors(&self, opened: &Opened, embedder: &dyn Embedder) -> Result<Arc<Vectors>, Error> {
        let probe = Sha256::digest(Vectors::of(&[PROBE.to_owned()], embedder)?.to_bytes());
        let model = format!("{probe:x}");
        let mut vectors = lock(&self.vectors);
        let key = (opened.hash.clone(), model.clone());
        if let Some(found) = vectors.get(&key) {
            return Ok(found.clone());
        }
        let name = format!("{}.vectors", &model[..32]);
        let kept = self.load(&name).and_then(|bytes| Kept::from_bytes(&bytes));
        let mut kept = kept.unwrap_or_default();
        let (made, new) = kept.of(&opened.index.texts(), embedder)?;
        if new {
            self.keep(&name, &kept.to_bytes());
        }
        let made = Arc::new(made);
        vectors.insert(key, made.clone());
        Ok(made)
    }

    fn load(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.folder.as_ref()?.join(name)).ok()
    }

    /// Writes a file atomically.
    /// If that fails, the work is repeated the next time, and nothing else is lost.
    fn keep(&self, name: &str, bytes: &[u8]) {
        let Some(folder) = &self.folder else { return };
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(bytes)?;
            file.persist(folder.join(name))?;
            Ok(())
        };
        drop(write());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
