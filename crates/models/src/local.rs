//! The models on this machine, in the hub's cache and in Ollama's folder, and the default model.
//!
//! The caller knows the user's settings: `default` is the file of the default model in them, if it
//! is a file.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cache::{Cache, Cached};
use crate::catalog::{self, Entry, SHIPPED, entries, find, meant};
use crate::choice::choose;
use crate::error::Result;
use crate::name::{HubName, Wanted, parts, split};
use crate::{hub, ollama};

/// Where a model is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    /// The hub's cache.
    Hub,
    /// Ollama's folder.
    Ollama,
    /// A file elsewhere, which the settings name as the default model.
    File,
}

/// A model on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Local {
    /// A name that `-m` accepts.
    pub name: String,
    /// Where it is stored.
    pub source: Store,
    /// The file, or the first part of a split one.
    pub path: PathBuf,
    /// Total size of all parts on this machine.
    pub bytes: u64,
    /// Missing parts of a split model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Name of this model in the catalog.
    pub catalog: Option<String>,
}

/// Returns the hub's cache.
///
/// # Errors
/// There is no home directory.
pub fn cache() -> Result<Cache> {
    Ok(Cache { root: hub::cache_folder()? })
}

/// Returns all models on this machine, including the cache's projectors and adapters, which can
/// only be recognized by opening the file, and the default model.
pub fn models(default: Option<&Path>) -> Result<Vec<Local>> {
    let cached = cache()?.files();
    let mut models = Vec::new();
    for file in &cached {
        let parts = parts(&file.file);
        if parts.first() != Some(&file.file) && cached.iter().any(|other| is_part(other, file, &parts[0])) {
            continue;
        }
        let here: Vec<&Cached> =
            parts.iter().filter_map(|part| cached.iter().find(|other| is_part(other, file, part))).collect();
        let missing = parts.iter().filter(|part| !here.iter().any(|other| other.file == **part));
        let entry = entries()?.iter().find(|entry| is_of(entry, file));
        models.push(Local {
            name: format!("{}:{}", file.repository, file.file),
            source: Store::Hub,
            path: file.path.clone(),
            bytes: here.iter().map(|part| part.bytes).sum(),
            missing: missing.cloned().collect(),
            catalog: entry.map(|entry| entry.name.clone()),
        });
    }
    // If the first part of a split model is missing, list one part for all of them.
    models.dedup_by(|a, b| match (split_name(&a.name), split_name(&b.name)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    });
    for entry in entries()?.iter().filter(|entry| entry.is_checkpoint()) {
        let Some(path) = entry.cached(&cache()?) else { continue };
        models.push(Local {
            name: entry.name.clone(),
            source: Store::Hub,
            bytes: path.metadata().map_or(0, |about| about.len()),
            path,
            missing: Vec::new(),
            catalog: Some(entry.name.clone()),
        });
    }
    for held in ollama::folder().map(|folder| ollama::models(&folder)).unwrap_or_default() {
        let entry = entries()?.iter().find(|entry| is_same(entry, &held.name));
        models.push(Local {
            name: held.name,
            source: Store::Ollama,
            path: held.path,
            bytes: held.bytes,
            missing: Vec::new(),
            catalog: entry.map(|entry| entry.name.clone()),
        });
    }
    let is_other = |path: &&Path| {
        let real = path.canonicalize().ok();
        models.iter().all(|model| model.path.canonicalize().ok() != real)
    };
    if let Some(path) = default.filter(is_other) {
        models.push(Local {
            name: path.display().to_string(),
            source: Store::File,
            bytes: path.metadata().map_or(0, |about| about.len()),
            catalog: entries()?.iter().find(|entry| is_file_of(entry, path)).map(|entry| entry.name.clone()),
            path: path.to_owned(),
            missing: Vec::new(),
        });
    }
    Ok(models)
}

/// Finds the file of the model with this name: from the catalog, Ollama, or the hub's cache.
/// The file of a catalog model may also be the default model, wherever that is.
///
/// # Errors
/// The catalog can't be read.
pub fn resolve(name: &str, default: Option<&Path>) -> Result<Option<PathBuf>> {
    let of_ollama = |name: &str| Some(ollama::find(&ollama::folder()?, name)?.path);
    let of_entry = |entry: &Entry| {
        let cached = cache().ok().and_then(|cache| entry.cached(&cache));
        cached.or_else(|| Some(default.filter(|path| is_file_of(entry, path))?.to_owned()))
    };
    if let Some(entry) = find(name)? {
        return Ok(of_entry(entry).or_else(|| entry.ollama.as_deref().and_then(of_ollama)));
    }
    let cached = || in_cache(&cache().ok()?, &name.parse().ok()?, None);
    if let Some(found) = of_ollama(name).or_else(cached) {
        return Ok(Some(found));
    }
    // Resolve the name as `pull` does.
    Ok(meant(name)?.and_then(of_entry))
}

/// Returns names similar to `name`: from the catalog, and from models on this machine.
pub fn alike(name: &str, default: Option<&Path>) -> Vec<String> {
    let catalog = entries().unwrap_or_default().iter().map(|entry| entry.name.clone());
    let here = models(default).unwrap_or_default().into_iter().filter(|model| model.catalog.is_none());
    let known: Vec<String> =
        catalog.chain([SHIPPED.to_owned()]).chain(here.map(|model| model.name)).collect();
    catalog::alike::alike(name, &known)
}

/// Finds the file in the cache: of the repository's cached files, the one that a download would
/// choose.
pub(crate) fn in_cache(cache: &Cache, name: &HubName, sha256: Option<&str>) -> Option<PathBuf> {
    let files = match &name.wanted {
        Wanted::File(file) => parts(file),
        wanted => {
            let here = cache.files().into_iter().filter(|cached| cached.repository == name.repository);
            let files: Vec<String> = here.map(|cached| cached.file).collect();
            choose(&name.repository, &files, wanted).ok()?.files
        }
    };
    cache.find(&name.repository, files.first()?, sha256)
}

/// Returns how many bytes of a catalog model have been downloaded, if the download is incomplete.
pub fn partial(cache: &Cache, entry: &Entry) -> Option<u64> {
    let about = cache.partial(&entry.repository, entry.sha256.as_deref()?).metadata().ok()?;
    Some(about.len())
}

fn is_of(entry: &Entry, cached: &Cached) -> bool {
    let blob = std::fs::read_link(&cached.path).ok();
    let hash = blob.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    let same = match (&entry.sha256, hash.filter(|hash| hub::is_sha256(hash))) {
        (Some(expected), Some(found)) => expected.eq_ignore_ascii_case(found),
        _ => true,
    };
    same && entry.repository == cached.repository && entry.file == cached.file
}

/// Whether a file outside the stores is the catalog's: it has the same name and size.
/// Hashing a whole model would take seconds on every start.
fn is_file_of(entry: &Entry, path: &Path) -> bool {
    let named = path.file_name().and_then(|name| name.to_str()) == entry.file.rsplit('/').next();
    named && !entry.is_checkpoint() && path.metadata().is_ok_and(|about| Some(about.len()) == entry.size)
}

fn is_same(entry: &Entry, ollama: &str) -> bool {
    let named = |tag: &str| {
        let whole = if tag.contains(':') { tag.to_owned() } else { format!("{tag}:latest") };
        whole.eq_ignore_ascii_case(ollama)
    };
    entry.ollama.as_deref().is_some_and(named)
}

fn is_part(other: &Cached, of: &Cached, part: &str) -> bool {
    other.repository == of.repository && other.file == part
}

fn split_name(name: &str) -> Option<&str> {
    split(name).map(|(prefix, _)| prefix)
}
