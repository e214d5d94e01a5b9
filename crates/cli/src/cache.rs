//! Where the prefix cache lies on disk, and how much it may hold; where indexes of documents lie.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use alara_engine::disk::{self, Log, Options, Outcome};
use alara_harness::knowledge::IndexCache;
use alara_harness::state;

use crate::catalog::pull;
use crate::ui;

/// Most of the disk that the cache takes unless the user says otherwise: a tenth of what is free,
/// and no more than this.
const MOST: u64 = 20_000_000_000;

/// How long a command that ends goes on writing.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where computed static prefixes are cached.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Where computed static prefixes are cached from run to run: a folder, or `off` [default:
    /// alara/prefix in XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "DIR|off", env = "ALARA_CACHE", hide_env_values = true)]
    cache: Option<PathBuf>,
}

impl Args {
    /// The folder; `None` if it is switched off, or there is no home.
    pub fn folder(&self) -> Option<PathBuf> {
        match self.cache.as_deref() {
            Some(off) if off == Path::new("off") || off.as_os_str().is_empty() => None,
            Some(folder) => Some(std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())),
            None => state::prefixes(),
        }
    }
}

/// Where computed static prefixes are cached, and how much of them.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub struct SizedArgs {
    #[command(flatten)]
    cache: Args,
    /// Most GB that are cached there [default: a tenth of the free disk, at most 20]
    #[arg(long, value_name = "GB", env = "ALARA_CACHE_SIZE", hide_env_values = true, value_parser = gigabytes)]
    cache_size: Option<u64>,
    /// Whether all is written before the command ends, however long that takes.
    #[arg(skip)]
    pub patient: bool,
    /// What became of it, for all clones.
    #[arg(skip)]
    pub outcome: Arc<Outcome>,
}

impl SizedArgs {
    /// The folder, as [`Args::folder`].
    pub fn folder(&self) -> Option<PathBuf> {
        self.cache.folder()
    }

    /// Most bytes that are cached in `folder`.
    pub fn limit(&self, folder: &Path) -> u64 {
        self.cache_size.unwrap_or_else(|| limit(folder))
    }

    /// For the engine.
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

/// Bytes of a number of GB.
pub fn gigabytes(text: &str) -> Result<u64, String> {
    match text.strip_suffix("GB").unwrap_or(text).trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok((number * 1e9) as u64),
        _ => Err("a number of GB is wanted".to_owned()),
    }
}

/// Where indexes of documents are kept.
pub fn knowledge() -> IndexCache {
    state::cache("knowledge").map_or_else(IndexCache::default, IndexCache::kept_in)
}

/// A tenth of what would be free without the cache, within bounds.
fn limit(folder: &Path) -> u64 {
    let held = disk::total_bytes(folder).unwrap_or(0);
    // The folder may not be there yet.
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
