//! Location and size limit of the prefix cache on disk, and location of the document indexes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use alara_engine::disk::{self, Log, Options, Outcome};
use alara_harness::knowledge::IndexCache;
use alara_harness::state;
use alara_models::pull;

use crate::ui;

/// Upper bound of the default size limit, in bytes; the default is a tenth of the free disk.
const MOST: u64 = 20_000_000_000;

/// How long a command that ends keeps writing to the cache.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where to cache computed static prefixes.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Folder in which to cache computed static prefixes between runs, or `off` [default:
    /// alara/prefix in XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "DIR|off", env = "ALARA_CACHE", hide_env_values = true)]
    cache: Option<PathBuf>,
}

impl Args {
    /// Returns the folder; `None` if the cache is switched off, or there is no home directory.
    pub fn folder(&self) -> Option<PathBuf> {
        match self.cache.as_deref() {
            Some(off) if off == Path::new("off") || off.as_os_str().is_empty() => None,
            Some(folder) => Some(std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())),
            None => state::prefixes(),
        }
    }
}

/// Where to cache computed static prefixes, and how many.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub struct SizedArgs {
    #[command(flatten)]
    cache: Args,
    /// Maximum size of that cache in GB [default: a tenth of the free disk, at most 20]
    #[arg(long, value_name = "GB", env = "ALARA_CACHE_SIZE", hide_env_values = true, value_parser = gigabytes)]
    cache_size: Option<u64>,
    /// Whether to write everything before the command ends, however long that takes.
    #[arg(skip)]
    pub patient: bool,
    /// Results of the cache's writes, shared by all clones.
    #[arg(skip)]
    pub outcome: Arc<Outcome>,
}

impl SizedArgs {
    /// Returns the folder, like [`Args::folder`].
    pub fn folder(&self) -> Option<PathBuf> {
        self.cache.folder()
    }

    /// Returns the size limit of the cache in `folder`, in bytes.
    pub fn limit(&self, folder: &Path) -> u64 {
        self.cache_size.unwrap_or_else(|| limit(folder))
    }

    /// Returns the cache options for the engine.
    pub fn options(&self) -> Option<Options> {
        let folder = self.folder()?;
        Some(Options {
            limit: self.limit(&folder),
            folder,
            patience: if self.patient { Duration::MAX } else { PATIENCE },
            always: false,
            log: Log::new(ui::note),
            outcome: self.outcome.clone(),
        })
    }
}

/// Parses a number of GB into bytes.
pub fn gigabytes(text: &str) -> Result<u64, String> {
    match text.strip_suffix("GB").unwrap_or(text).trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok((number * 1e9) as u64),
        _ => Err("a number of GB is wanted".to_owned()),
    }
}

/// Returns the cache for document indexes.
pub fn knowledge() -> IndexCache {
    state::cache("knowledge").map_or_else(IndexCache::default, IndexCache::kept_in)
}

/// Returns a tenth of the space that would be free without the cache, within bounds.
fn limit(folder: &Path) -> u64 {
    let held = disk::total_bytes(folder).unwrap_or(0);
    // The folder may not exist yet.
    let free = folder.ancestors().find_map(pull::free).unwrap_or(u64::MAX);
    (free.saturating_add(held) / 10).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_share_of_the_disk() {
        let folder = tempfile::tempdir().expect("there is room");
        let limit = limit(&folder.path().join("not/there/yet"));
        assert!(limit > 0 && limit <= MOST, "{limit}");
        let named = Args { cache: Some("not-there-yet".into()) }.folder().expect("it is on");
        assert!(named.is_absolute() && super::limit(&named) > 0, "{named:?}");
        assert_eq!(
            [gigabytes("0.5"), gigabytes("20"), gigabytes("20 GB")],
            [Ok(500_000_000), Ok(MOST), Ok(MOST)]
        );
        assert!(gigabytes("-1").is_err() && gigabytes("inf").is_err());
    }
}
