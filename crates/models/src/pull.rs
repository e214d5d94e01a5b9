//! Downloads named models into the cache and checks them.
//!
//! A download appears in the cache only when it is whole and its checksum matches.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::catalog::{Entry, find, meant};
use crate::choice::choose;
use crate::error::{Error, HubError, Result, bail, ensure};
use crate::hub::Hub;
use crate::local;
use crate::name::{HubName, Wanted, parts};
use crate::size::bytes;
use crate::transfer::{Client, HubFile, Remote};

/// Receives the progress of a download.
pub trait Watcher {
    /// Reports that something other than the usual file is used.
    fn note(&mut self, text: &str);
    /// A file begins: its name and, if the hub sent them, its size and SHA-256.
    fn begin(&mut self, file: &str, size: Option<u64>, sha256: Option<&str>);
    /// Reports how many bytes of the file are present.
    /// Returns false to stop the download.
    fn at(&mut self, bytes: u64) -> bool;
    /// The file is complete, checked and published in the cache.
    fn end(&mut self);
}

/// Returns the hub file that `name` means: a catalog model, then with its entry, or a name in the
/// hub's form.
///
/// `default` is the user's default model, if that is a file; it may be named instead.
///
/// # Errors
/// The name has neither form.
pub fn wanted(name: &str, default: Option<&Path>) -> Result<(Option<&'static Entry>, HubName)> {
    if let Some(entry) = find(name)?.or(meant(name)?) {
        return Ok((Some(entry), entry.wanted()));
    }
    name.parse().map(|hub| (None, hub)).map_err(|error: Error| match local::alike(name, default).as_slice() {
        alike if !alike.is_empty() && !name.contains('/') => {
            Error::Name(format!("{error}, did you mean {}?", alike.join(", ")))
        }
        _ if !name.contains('/') && !name.trim().is_empty() => Error::Name(format!(
            "{error}\nhint: `alara models list` tells the names of the catalog; others are hf:OWNER/NAME"
        )),
        _ => error,
    })
}

/// Downloads a model into the cache unless it is there: all parts of a split model, or all files of
/// a checkpoint.
/// Returns the path of the first part.
/// `entry` is the catalog's entry, if the model is in the catalog.
///
/// # Errors
/// If anything goes wrong: then only files named `….incomplete` are left incomplete, and a later
/// attempt continues them.
pub fn pull(
    cache: &Cache,
    hub: Hub,
    name: &HubName,
    entry: Option<&Entry>,
    watcher: &mut dyn Watcher,
) -> Result<PathBuf> {
    download(cache, hub, name, entry, watcher).map_err(|error| match error {
        Error::Hub(HubError::Broken { .. }) => Error::Download(format!("{error}\n{}", by_hand(cache, name))),
        _ => error,
    })
}

/// Explains how to copy a model to a machine without network access.
fn by_hand(cache: &Cache, name: &HubName) -> String {
    let file = match &name.wanted {
        Wanted::File(file) => format!("{file} of {}", name.repository),
        _ => format!("a .gguf file of {}", name.repository),
    };
    let folder = cache.folder(&name.repository);
    format!(
        "hint: without a network: copy {file} from another machine to any folder of this one, and give its path to -m; \
         or copy there what a download left in {}, and set HF_HUB_OFFLINE=1 so that nothing is asked",
        folder.display()
    )
}

fn download(
    cache: &Cache,
    hub: Hub,
    name: &HubName,
    entry: Option<&Entry>,
    watcher: &mut dyn Watcher,
) -> Result<PathBuf> {
    let repository = name.repository.as_str();
    let expected = entry.and_then(|entry| entry.sha256.as_deref());
    if hub.offline {
        return offline(cache, name, expected);
    }
    let client = Client::new(hub);
    let revision = name.revision.as_deref().unwrap_or("main");
    let beside = entry.map(|entry| entry.beside.as_slice()).unwrap_or_default();
    let files = match &name.wanted {
        Wanted::File(file) => [parts(file), beside.to_vec()].concat(),
        wanted => {
            let choice = choose(repository, &client.list(repository, revision)?, wanted)?;
            choice.instead.iter().for_each(|note| watcher.note(note));
            choice.files
        }
    };
    let mut missing = Vec::new();
    for file in &files {
        let hub_file = HubFile { repository, revision, file };
        let checksum = expected.filter(|_| !beside.contains(file));
        let (hub_file, remote) = match client.describe(hub_file) {
            // Owners may rewrite history; the checksum shows whether the file is the same.
            Err(HubError::NoRevision { .. }) if expected.is_some() => {
                let hub_file = HubFile { revision: "main", ..hub_file };
                (hub_file, client.describe(hub_file)?)
            }
            described => (hub_file, described?),
        };
        if let (Some(expected), Some(found)) = (checksum, &remote.sha256) {
            ensure!(
                expected.eq_ignore_ascii_case(found),
                Download,
                "{file} of {repository} is not the file that the catalog means: its SHA-256 is {found}, not \
                 {expected}\nhint: `alara models pull {repository}:{file}` takes it as it is"
            );
        }
        let blob = cache.blob(repository, &remote.etag);
        if blob.metadata().is_ok_and(|about| remote.size.is_none_or(|size| size == about.len())) {
            publish(cache, hub_file, &remote)?;
        } else {
            missing.push((hub_file, remote));
        }
    }
    let blobs = cache.folder(repository).join("blobs");
    if !missing.is_empty() {
        fs::create_dir_all(&blobs)
            .map_err(Error::io(format!("can't make the folder {}", blobs.display())))?;
    }
    check_space(cache, repository, &blobs, &missing)?;
    for (hub_file, remote) in missing {
        let _lock = lock(&cache.lock(repository, &remote.etag), hub_file.file)?;
        watcher.begin(hub_file.file, remote.size, remote.sha256.as_deref());
        let partial = cache.partial(repository, &remote.etag);
        client.fetch(hub_file, &remote, &partial, &mut |at| watcher.at(at))?;
        let blob = cache.blob(repository, &remote.etag);
        fs::rename(&partial, &blob).map_err(Error::io(format!("can't write {}", blob.display())))?;
        publish(cache, hub_file, &remote)?;
        watcher.end();
    }
    let first = files.first().and_then(|file| cache.find(repository, file, expected));
    first.ok_or_else(|| Error::Download(format!("{repository} is in the cache but can't be read")))
}

fn publish(cache: &Cache, hub_file: HubFile<'_>, remote: &Remote) -> Result<PathBuf> {
    let HubFile { repository, revision, file } = hub_file;
    cache
        .publish(repository, &remote.etag, &remote.commit, revision, file)
        .map_err(Error::io(format!("can't write into {}", cache.folder(repository).display())))
}

/// Finds the model in the cache alone.
fn offline(cache: &Cache, name: &HubName, expected: Option<&str>) -> Result<PathBuf> {
    let found = local::in_cache(cache, name, expected);
    found.ok_or_else(|| {
        Error::Download(format!(
            "{} is not on this machine, and HF_HUB_OFFLINE forbids to download it\n{}",
            name.repository,
            by_hand(cache, name)
        ))
    })
}

/// Takes the lock held during a download, so that no two processes write the same file.
fn lock(path: &Path, file: &str) -> Result<File> {
    let failed = |source| Error::Io { what: format!("can't write {}", path.display()), source };
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    let lock = File::create(path).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => bail!(Download, "{file} is being downloaded by another process"),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Fails before downloading anything if the disk has too little space.
fn check_space(
    cache: &Cache,
    repository: &str,
    folder: &Path,
    missing: &[(HubFile<'_>, Remote)],
) -> Result<()> {
    let here = |remote: &Remote| {
        let partial = cache.partial(repository, &remote.etag);
        partial.metadata().map_or(0, |about| about.len())
    };
    let left = missing.iter().fold(0, |sum: u64, (_, remote)| {
        sum.saturating_add(remote.size.unwrap_or(0).saturating_sub(here(remote)))
    });
    if let Some(free) = free(folder).filter(|free| *free < left) {
        // Remove them only if they are empty.
        let _ = fs::remove_dir(folder).and_then(|()| fs::remove_dir(cache.folder(repository)));
        bail!(
            Download,
            "not enough space in {}: {} are to be downloaded, {} are free\n\
             hint: make room, or set HF_HOME to a folder on another disk",
            cache.root.display(),
            bytes(left),
            bytes(free)
        );
    }
    Ok(())
}

/// Returns the free space, in bytes, on the disk of a folder, if the system reports it.
pub fn free(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let about = nix::sys::statvfs::statvfs(folder).ok()?;
        // These types differ between systems.
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
        Some((about.blocks_available() as u64).saturating_mul(about.fragment_size() as u64))
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}
