//! Resolves a model's name to its file, and explains files that aren't models.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use alara_engine::{Gguf, file};

use crate::catalog::{self, Entry};
use crate::error::{Error, Result, bail};
use crate::name::{HubName, is_gguf};
use crate::size::bytes;
use crate::{local, ollama, shipped};

/// Where a model's bytes are.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// In this program: the model that ships.
    Shipped,
    /// In a file; for a split model, its first part.
    File(PathBuf),
}

impl Place {
    /// Opens the model.
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn open(&self) -> Result<Gguf> {
        match self {
            Place::Shipped => shipped::open(),
            Place::File(path) => open(path),
        }
    }
}

/// Opens a model's file.
///
/// # Errors
/// The file can't be read as a model; for a file of another kind, the error names the kind, and
/// where to get a model.
pub fn open(path: &Path) -> Result<Gguf> {
    let error = match alara_engine::open(path) {
        Ok(gguf) => return Ok(gguf),
        Err(error) => error,
    };
    let folder = path.file_name().is_some_and(|name| name == alara_engine::WEIGHTS);
    match head(path).and_then(|head| Kind::of(path, &head)) {
        // The engine reports which parts of a checkpoint are missing.
        Some(Kind::Safetensors) if folder => bail!(File, "{error}\nhint: {}", Kind::Safetensors.remedy()),
        Some(kind) => {
            bail!(File, "{} is no GGUF file but {}\nhint: {}", path.display(), kind.what(), kind.remedy())
        }
        None => Err(error.into()),
    }
}

/// Whether `name` means the model that ships; false if a file has this name.
pub fn is_shipped_name(name: &str) -> bool {
    name.eq_ignore_ascii_case(shipped::NAME) || name.eq_ignore_ascii_case(catalog::SHIPPED)
}

/// Finds the file that `name` means.
/// A name is a path, a model of the catalog or of Ollama on this machine, `OWNER/NAME:FILE` in the
/// hub's cache, or `alara-tiny`, which ships.
/// The folder of a checkpoint means its file of tensors.
/// A file in the work directory takes precedence over a name, and so does such a folder.
/// `default` is the user's default model, if that is a file; `otherwise` ends a hint: which model
/// is used if the user names none.
///
/// # Errors
/// There is no model of that name: the error lists similar names, and how to get them.
pub fn place(name: &str, default: Option<&Path>, otherwise: &str) -> Result<Place> {
    if name.trim().is_empty() {
        bail!(Name, "the model's name is empty\nhint: `alara models list` tells names{otherwise}");
    }
    let path = Path::new(name);
    if path.is_file() {
        return Ok(Place::File(path.to_owned()));
    }
    let weights = path.join(alara_engine::WEIGHTS);
    if weights.is_file() {
        return Ok(Place::File(weights));
    }
    if is_shipped_name(name) {
        return Ok(Place::Shipped);
    }
    if let Some(found) = local::resolve(name, default)? {
        return Ok(Place::File(found));
    }
    if path.is_dir() {
        return in_directory(path, name);
    }
    match path.symlink_metadata() {
        Ok(_) => bail!(
            Name,
            "{name} is no file but a pipe, a device, or a link that leads to none\nhint: give -m the path of a .gguf file"
        ),
        // The file may exist, so don't blame its name.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!(
                Name,
                "can't look at {name}: {error}\nhint: its folders must be open to you, as by chmod u+x"
            )
        }
        Err(_) => {}
    }
    if let Some(entry) = catalog::find(name)?.or(catalog::meant(name)?) {
        let size = entry.size.map_or_else(String::new, |size| format!(" ({})", bytes(size)));
        bail!(Name, "{}{size} is not on this machine\nhint: alara models pull {}", entry.title, entry.name);
    }
    let is_file = path.extension().is_some_and(|ending| {
        ["gguf", "safetensors", "bin", "pt", "pth", "zip"]
            .iter()
            .any(|other| ending.eq_ignore_ascii_case(other))
    });
    match name.parse::<HubName>() {
        Ok(hub) if !is_file => {
            bail!(Name, "{} is not on this machine\nhint: alara models pull {name}", hub.repository)
        }
        _ => bail!(Name, "there is no model file {name}{}", instead(path, name, is_file, default, otherwise)),
    }
}

/// Suggests what to use instead of a name that means nothing.
fn instead(path: &Path, name: &str, is_file: bool, default: Option<&Path>, otherwise: &str) -> String {
    let known = "`alara models list` tells the names that are known";
    if is_file {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let there = models_in(folder);
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        let names = there.iter().filter_map(|path| path.file_name()?.to_str());
        let near = alara_engine::nearest(file, names);
        let near = near.and_then(|near| there.iter().find(|path| path.ends_with(near)));
        if let Some(near) = near.or(there.first()) {
            return format!("\nhint: {} is there; {known}", near.display());
        }
    }
    match local::alike(name, default).as_slice() {
        [] => format!("\nhint: {known}{otherwise}"),
        alike => format!(
            ", did you mean {}?\nhint: {known}, and `alara models pull NAME` gets one",
            alike.join(", ")
        ),
    }
}

/// Returns the catalog model that `name` means, if its file is not on this machine.
///
/// # Errors
/// The catalog can't be read.
pub fn absent(name: &str, default: Option<&Path>) -> Result<Option<&'static Entry>> {
    let other = name.trim().is_empty() || is_shipped_name(name);
    if other || Path::new(name).symlink_metadata().is_ok() || local::resolve(name, default)?.is_some() {
        return Ok(None);
    }
    Ok(catalog::find(name)?.or(catalog::meant(name)?))
}

/// Returns the GGUF files in a folder, in order.
fn models_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.to_str().is_some_and(is_gguf)).collect();
    found.sort();
    found
}

/// Suggests what to use instead of a directory.
fn in_directory(path: &Path, name: &str) -> Result<Place> {
    if ollama::is_folder(path) {
        match ollama::models(path).first() {
            Some(held) => bail!(
                File,
                "{name} is Ollama's directory of models\nhint: -m {}; `alara models list` tells all, of another directory \
                 with OLLAMA_MODELS={name}",
                held.name
            ),
            None => bail!(File, "{name} is Ollama's directory of models, but there is none in it"),
        }
    }
    std::fs::read_dir(path).map_err(Error::io(format!("can't read {name}")))?;
    if let Some(first) = models_in(path).first() {
        bail!(File, "{name} is a directory, not a model\nhint: -m {}", first.display());
    }
    let has = |ending: &str| {
        let mut inside = std::fs::read_dir(path).into_iter().flatten().flatten();
        inside.any(|entry| entry.file_name().to_str().is_some_and(|file| file.ends_with(ending)))
    };
    if [".safetensors", ".bin", ".pt", ".pth"].into_iter().any(has) {
        let remedy = Kind::Safetensors.remedy();
        bail!(
            File,
            "{name} is a checkpoint of Hugging Face's or PyTorch's, without a .gguf file\nhint: {remedy}"
        );
    }
    bail!(
        File,
        "{name} is a directory without a .gguf file, and no checkpoint with model.safetensors\n\
         hint: `alara models list` tells the names that are known, `alara models pull NAME` gets one"
    )
}

/// A kind of file that is often mistaken for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Empty,
    LfsPointer,
    WebPage,
    Json,
    Safetensors,
    PyTorch,
    Archive,
}

/// Number of bytes that identify a kind.
const HEAD: usize = 512;

/// The first bytes of each kind.
const BEGINNINGS: [(&[u8], Kind); 9] = [
    (b"version https://git-lfs", Kind::LfsPointer),
    (b"PK\x03\x04", Kind::Archive),
    (b"\x1f\x8b", Kind::Archive),
    (b"\xfd7zXZ\0", Kind::Archive),
    (b"\x28\xb5\x2f\xfd", Kind::Archive),
    (b"7z\xbc\xaf\x27\x1c", Kind::Archive),
    (b"BZh", Kind::Archive),
    // A pickle, protocol 2 or later.
    (b"\x80\x02", Kind::PyTorch),
    (b"\x80\x04", Kind::PyTorch),
];

fn head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    file::open(path).ok()?.take(HEAD as u64).read_to_end(&mut head).ok()?;
    Some(head)
}

impl Kind {
    /// Identifies a file by its first bytes; `None` if it may be a model.
    fn of(path: &Path, head: &[u8]) -> Option<Kind> {
        let named = |endings: &[&str]| {
            path.extension().is_some_and(|own| endings.iter().any(|ending| own.eq_ignore_ascii_case(ending)))
        };
        let text = String::from_utf8_lossy(head)
            .trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n'])
            .to_lowercase();
        // The length of the tensor table, followed by its JSON.
        let is_table = head.len() > 8 && head[8] == b'{' && head[5..8] == [0; 3];
        let beginning = BEGINNINGS.iter().find(|(begin, _)| head.starts_with(begin)).map(|(_, kind)| *kind);
        match beginning {
            _ if head.starts_with(b"GGUF") => None,
            _ if head.is_empty() => Some(Kind::Empty),
            // PyTorch stores its pickles in an archive.
            Some(Kind::Archive) if named(&["pt", "pth", "bin", "ckpt"]) => Some(Kind::PyTorch),
            Some(kind) => Some(kind),
            None if ["<!doctype", "<html", "<?xml", "<head"].iter().any(|tag| text.starts_with(tag)) => {
                Some(Kind::WebPage)
            }
            None if is_table || named(&["safetensors"]) => Some(Kind::Safetensors),
            None if text.starts_with('{') => Some(Kind::Json),
            None => None,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Kind::Empty => "empty",
            Kind::LfsPointer => "a Git LFS pointer, a few lines in place of a file that was not downloaded",
            Kind::WebPage => "a web page, as a browser shows it in place of the file",
            Kind::Json => "JSON, such as an answer that says why there is no file",
            Kind::Safetensors => "safetensors, the tensors of a checkpoint as Hugging Face's tools save them",
            Kind::PyTorch => "a checkpoint of PyTorch's",
            Kind::Archive => "an archive",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Kind::LfsPointer => {
                "`git lfs pull` in its folder gets the file, and so does `alara models pull hf:OWNER/NAME:FILE`"
            }
            Kind::Empty | Kind::WebPage | Kind::Json => {
                "`alara models pull hf:OWNER/NAME:FILE` gets a file of the hub; of an address, one with /resolve/ in \
                 place of /blob/ is the file"
            }
            Kind::Safetensors | Kind::PyTorch => {
                "take the GGUF file of the model, mostly in a repository whose name ends in -GGUF: `alara models pull \
                 hf:OWNER/NAME-GGUF`; or make one with llama.cpp's convert_hf_to_gguf.py. As a folder with \
                 model.safetensors only encoders of type `bert` are run"
            }
            Kind::Archive => "unpack it, and give -m the .gguf file that is in it",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_checkpoint_is_a_model() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().to_str().unwrap();
        let refused = |words: &str| {
            let error = place(name, None, "").unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refused("without a .gguf file, and no checkpoint with model.safetensors");
        std::fs::write(folder.path().join("model-00001-of-00002.safetensors"), "").unwrap();
        refused("alara models pull hf:OWNER/NAME-GGUF");
        let weights = folder.path().join(alara_engine::WEIGHTS);
        std::fs::write(&weights, "").unwrap();
        assert_eq!(place(name, None, "").unwrap(), Place::File(weights));
    }

    #[test]
    fn the_model_that_ships_has_a_name() {
        for name in ["alara-tiny", "alara-tiny.gguf", "Alara-Tiny"] {
            assert_eq!(place(name, None, "").unwrap(), Place::Shipped, "{name}");
            assert_eq!(Place::Shipped.open().unwrap().name(), shipped::NAME);
        }
        assert!(!is_shipped_name("alara-tin") && !is_shipped_name("tiny"));
    }

    #[test]
    fn what_a_file_is_that_is_no_model() {
        let folder = tempfile::tempdir().unwrap();
        let check = |file: &str, bytes: &[u8], what: &str, way: &str| {
            let path = folder.path().join(file);
            std::fs::write(&path, bytes).unwrap();
            let error = format!("{:#}", open(&path).unwrap_err());
            assert!(error.contains(what) && error.contains(way) && error.contains(file), "{file}: {error}");
            assert_eq!(error.matches("hint: ").count(), usize::from(!way.is_empty()), "{error}");
        };
        let pull = "alara models pull hf:OWNER/NAME:FILE";
        check("page.gguf", b"\n<!DOCTYPE html><html>", "but a web page", pull);
        check(
            "m.gguf",
            b"version https://git-lfs.github.com/spec/v1\noid x",
            "a Git LFS pointer",
            "`git lfs pull`",
        );
        check("none.gguf", b"", "is no GGUF file but empty", pull);
        check("error.gguf", b"{\"error\": \"gated\"}", "but JSON", pull);
        check("m.zip", b"PK\x03\x04 and so on", "but an archive", "unpack it");
        check("m.gguf.xz", b"\xfd7zXZ\0 and so on", "but an archive", "unpack it");
        check("m.pth", b"PK\x03\x04 and so on", "a checkpoint of PyTorch's", "-GGUF");
        let mut table = 60u64.to_le_bytes().to_vec();
        table.extend(b"{\"__metadata__\": {}}");
        check("m.safetensors", &table, "but safetensors", "-GGUF");
        check("model.safetensors", &table, "config.json", "-GGUF");
        check("noise.gguf", b"noise", "is not a GGUF file: it begins with", "");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_there_and_no_file_is_not_said_to_be_absent() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        for name in ["/dev/null", link.to_str().unwrap()] {
            let error = place(name, None, "").unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{name} is no file but a pipe, a device, or a link")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_name_that_means_nothing_has_names_like_it() {
        let check = |name: &str, words: &str| {
            let error = place(name, None, "").unwrap_err().to_string();
            assert!(error.contains(words), "{name}: {error}");
        };
        check("qwen3", "there is no model file qwen3, did you mean qwen3-0.6b, qwen3-1.7b,");
        check("qwen3-4", "did you mean qwen3-4b");
        check("alara-tinny", "did you mean alara-tiny?");
        check("qwen9", "there is no model file qwen9");
        check(" ", "the model's name is empty");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("other.gguf"), "").unwrap();
        std::fs::write(folder.path().join("qwen3-4b.gguf"), "").unwrap();
        let path = |file: &str| folder.path().join(file).display().to_string();
        check(&path("qwen3-4.gguf"), &format!("hint: {} is there", path("qwen3-4b.gguf")));
    }
}
