//! Downloads requested by clients.

use std::path::PathBuf;

use alara_models::hub::Hub;
use alara_models::local;
use alara_models::pull::{self, Watcher};
use alara_server::Pull;

use crate::{config, ui};

/// Downloads the model that `name` means, as `alara models pull` does; returns its file's path.
///
/// # Errors
/// There is no such model, it can't be downloaded, or the client has left.
pub fn pull(name: &str, told: &mut dyn FnMut(Pull) -> bool) -> anyhow::Result<PathBuf> {
    let (entry, wanted) = pull::wanted(name, config::model_file())?;
    ui::note(&format!("downloading {name}, as a client asks"));
    let mut watcher = Teller { told, file: String::new(), digest: None, total: None };
    Ok(pull::pull(&local::cache()?, Hub::from_env()?, &wanted, entry, &mut watcher)?)
}

/// Reports a download's progress to a client.
struct Teller<'a> {
    told: &'a mut dyn FnMut(Pull) -> bool,
    file: String,
    digest: Option<String>,
    total: Option<u64>,
}

impl Watcher for Teller<'_> {
    fn note(&mut self, text: &str) {
        ui::note(text);
    }

    fn begin(&mut self, file: &str, size: Option<u64>, sha256: Option<&str>) {
        (self.file, self.total, self.digest) = (file.to_owned(), size, sha256.map(str::to_owned));
        self.at(0);
    }

    fn at(&mut self, bytes: u64) -> bool {
        let (name, digest) = (self.file.clone(), self.digest.clone());
        (self.told)(Pull::File { name, digest, total: self.total, completed: bytes })
    }

    fn end(&mut self) {
        ui::note(&format!("downloaded {}", self.file));
        (self.told)(Pull::Checked);
    }
}
