//! The models of a server: those named by the user, those in a folder, and those downloaded since.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alara_harness::model::Loaded;
use alara_harness::model::endpoint::Address;
use alara_harness::{ChatModel, ModelError, ModelSource, ModelSpec};
use alara_models::name::{is_gguf, parts, split};
use alara_models::shipped;
use alara_server::{Facts, Served};
use anyhow::{Context, bail, ensure};

use crate::facts::FileFacts;
use crate::model::{self, Source};
use crate::model_file::Place;

/// Maximum depth of folders below `--models` to search for models.
const DEPTH: usize = 8;

/// Which model an NPC uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForNpcs {
    /// The model named by its team: the user named none.
    Theirs,
    /// The default model, whatever the team names: it is the only one that the user named.
    Default,
    /// The model named by its team if it is among several, else the default one.
    AmongServed,
}

/// The models of a server.
pub struct ServedModels {
    source: Source,
    for_npcs: ForNpcs,
    default: ModelSpec,
    list: Mutex<Vec<Served>>,
    facts: FileFacts,
}

impl ServedModels {
    /// Collects the models that the user `named` and those in `folder`, each loaded from `source`.
    /// The first named one is the default, else the one named by the `team`.
    /// `aliases` are additional names: `NAME` for the default model, or `NAME=MODEL`.
    ///
    /// # Errors
    /// A model doesn't exist, or two have the same name.
    pub fn new(
        source: Source,
        named: &[String],
        folder: Option<&Path>,
        team: ModelSpec,
        aliases: &[String],
        facts: FileFacts,
    ) -> anyhow::Result<Self> {
        let for_npcs = match (named, folder) {
            ([], None) => ForNpcs::Theirs,
            ([_], None) => ForNpcs::Default,
            _ => ForNpcs::AmongServed,
        };
        let mut list: Vec<Served> = Vec::new();
        for name in named {
            let served = served(name)?;
            ensure!(!list.iter().any(|other| other.spec == served.spec), "-m {name} is there twice");
            let taken = |name: &str| list.iter().any(|other| other.is_called(name));
            let own = if taken(&served.name) { with_folder(name) } else { served.name.clone() };
            ensure!(
                !taken(&own),
                "-m {name}: another model is called {own}\nhint: leave one of them out, or use --models"
            );
            list.push(Served { name: own, ..served });
        }
        if let Some(folder) = folder {
            for (name, path) in in_folder(folder)? {
                let spec = ModelSpec::named(path.display().to_string());
                let stem = name.rsplit('/').next().unwrap_or(&name);
                let taken = |name: &str| list.iter().any(|other| other.is_called(name));
                let name = if taken(stem) { name } else { stem.to_owned() };
                if !taken(&name) {
                    list.push(Served { name, aliases: Vec::new(), spec });
                }
            }
        }
        let default = named.first().map_or(team, ModelSpec::named);
        for alias in aliases {
            let Some((alias, model)) = alias.split_once('=') else { continue };
            let meant = Served::find(&list, model).cloned();
            let Some(at) = list.iter().position(|served| Some(served) == meant.as_ref()) else {
                let known: Vec<&str> = list.iter().map(|served| served.name.as_str()).collect();
                let known = match known.is_empty() {
                    true => "--alias NAME is one of the default model".to_owned(),
                    false => format!("known: {}", known.join(", ")),
                };
                bail!("--alias {alias}={model}: there is no model {model} ({known})");
            };
            list[at].aliases.push(alias.to_owned());
        }
        Ok(ServedModels { source, for_npcs, default, list: Mutex::new(list), facts })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Served>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the spec of the default model.
    pub fn default(&self) -> ModelSpec {
        self.default.clone()
    }

    /// Returns all models.
    pub fn served(&self) -> Vec<Served> {
        self.lock().clone()
    }

    /// Adds a model that has appeared on this machine, at `path`, under the requested name.
    pub fn add(&self, name: &str, path: &Path) {
        // Where models are found by name, a URL means an endpoint.
        let spec =
            ModelSpec::named(if name.contains("://") { path.display().to_string() } else { name.into() });
        let here = path.canonicalize().ok();
        let is_here = |served: &Served| {
            let file = |name| match model::place(Some(name)).ok()? {
                Place::Shipped => None,
                Place::File(path) => path.canonicalize().ok(),
            };
            let own = served.spec.model.as_deref().and_then(file);
            own.is_some() && own == here
        };
        let mut list = self.lock();
        // One file is one model, whatever its names.
        match list.iter_mut().find(|served| served.spec == spec || is_here(served)) {
            Some(served) if served.is_called(name) => {}
            Some(served) => served.aliases.push(name.to_owned()),
            None => list.push(Served { name: name.to_owned(), aliases: Vec::new(), spec }),
        }
    }

    /// Returns the data in the file of the model with this spec.
    pub fn facts(&self, spec: &ModelSpec) -> Option<Arc<Facts>> {
        if spec.api_url.is_some() || spec.model.as_deref().is_some_and(crate::model::is_elsewhere) {
            return None;
        }
        self.facts.of(spec.model.as_deref())
    }
}

impl ModelSource for ServedModels {
    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        self.source.model(&self.used(spec))
    }

    fn used(&self, spec: &ModelSpec) -> ModelSpec {
        let list = self.lock();
        if *spec == self.default || list.iter().any(|served| served.spec == *spec) {
            return spec.clone();
        }
        match self.for_npcs {
            ForNpcs::Theirs => spec.clone(),
            ForNpcs::Default => self.default.clone(),
            // An endpoint needs no file here.
            ForNpcs::AmongServed if spec.api_url.is_some() => spec.clone(),
            ForNpcs::AmongServed => {
                let meant = spec.model.as_deref().and_then(|name| Served::find(&list, name));
                meant.map_or_else(|| self.default.clone(), |served| served.spec.clone())
            }
        }
    }

    /// Returns the loaded models, each with the spec that it is served under: the model that ships
    /// has more than one.
    fn loaded(&self) -> Vec<Loaded> {
        let list = self.served();
        let served = |spec: &ModelSpec| list.iter().find(|one| self.source.used(&one.spec) == *spec);
        let mut loaded = self.source.loaded();
        for one in &mut loaded {
            one.spec = served(&one.spec).map_or_else(|| one.spec.clone(), |served| served.spec.clone());
        }
        loaded
    }

    fn unload(&self, spec: &ModelSpec) -> bool {
        self.source.unload(&self.used(spec))
    }
}

/// Describes a model that the user named.
/// Its name is that of its file or folder, without directories.
/// A file in a store that names files by hash keeps the user's name.
fn served(name: &str) -> anyhow::Result<Served> {
    let spec = ModelSpec::named(name);
    if name.starts_with("script:") {
        return Ok(Served { name: "script".into(), aliases: Vec::new(), spec });
    }
    if Address::is_meant_by(name) {
        let address: Address = name.parse()?;
        return Ok(Served { name: address.to_string(), aliases: Vec::new(), spec });
    }
    let path = match model::place(Some(name))? {
        Place::Shipped => PathBuf::from(shipped::NAME),
        Place::File(path) => path,
    };
    // A checkpoint is named after its folder; in the hub's cache the folder's name is a commit.
    let folder = Path::new(name).is_dir().then(|| Path::new(name).file_name()).flatten();
    let file = path.file_name().filter(|file| file.to_str().is_some_and(is_gguf));
    let file = file.or(folder).and_then(|file| file.to_str());
    let by_path = Path::new(name).exists();
    let own = file.unwrap_or(name).to_owned();
    let aliases = if by_path || own == name { Vec::new() } else { vec![name.to_owned()] };
    Ok(Served { name: own, aliases, spec })
}

/// Returns a file's name, preceded by that of its folder.
fn with_folder(name: &str) -> String {
    let mut parts: Vec<&str> = name.rsplit(['/', '\\']).take(2).collect();
    parts.reverse();
    parts.join("/")
}

/// Returns the models in a folder and its subfolders: their relative paths without the file
/// extension, and their files.
/// For a split model, returns the first part; omits projectors.
/// Follows links only if they lead to something in the folder.
fn in_folder(folder: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let failed = || format!("can't read --models {}", folder.display());
    let root = folder.canonicalize().with_context(failed)?;
    std::fs::read_dir(&root).with_context(failed)?;
    let mut found = Vec::new();
    look(&root, &root, "", DEPTH, &mut HashSet::new(), &mut found);
    ensure!(!found.is_empty(), "there is no .gguf file in --models {}", folder.display());
    found.sort();
    Ok(found)
}

fn look(
    root: &Path,
    folder: &Path,
    prefix: &str,
    depth: usize,
    seen: &mut HashSet<PathBuf>,
    found: &mut Vec<(String, PathBuf)>,
) {
    // Skip folders that can't be read or have been visited already.
    if depth == 0 || !seen.insert(folder.to_owned()) {
        return;
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Some(real) = entry.path().canonicalize().ok().filter(|real| real.starts_with(root)) else {
            continue;
        };
        if real.is_dir() {
            if !name.starts_with('.') {
                look(root, &real, &format!("{prefix}{name}/"), depth - 1, seen, found);
            }
        } else if is_gguf(&name) && !name.to_lowercase().contains("mmproj") && parts(&name)[0] == name {
            let stem = split(&name).map_or(&name[..name.len() - ".gguf".len()], |(stem, _)| stem);
            found.push((format!("{prefix}{stem}"), entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates an empty file and its parent folders.
    fn put(root: &Path, name: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    fn source() -> Source {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            model: model::Args,
        }
        let line = <Line as clap::Parser>::parse_from(["alara"]);
        line.model.several(Vec::new(), 1, false)
    }

    fn all(named: &[&str], folder: Option<&Path>, aliases: &[&str]) -> anyhow::Result<ServedModels> {
        let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let team = ModelSpec::named("theirs");
        ServedModels::new(source(), &owned(named), folder, team, &owned(aliases), FileFacts::new(|_| None))
    }

    fn names(models: &ServedModels) -> Vec<String> {
        models.served().into_iter().map(|served| served.name).collect()
    }

    #[test]
    fn models_of_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("models");
        for name in [
            "b.gguf",
            "a.GGUF",
            "big-00001-of-00002.gguf",
            "big-00002-of-00002.gguf",
            "mmproj-b.gguf",
            "b-mmproj-F16.gguf",
            "README.md",
            "deep/er/c.gguf",
            "deep/b.gguf",
            ".cache/d.gguf",
        ] {
            put(&root, name);
        }
        put(dir.path(), "outside.gguf");
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(dir.path().join("outside.gguf"), root.join("out.gguf")).unwrap();
            symlink(dir.path(), root.join("up")).unwrap();
            symlink(&root, root.join("deep/loop")).unwrap();
            symlink(root.join(".cache/d.gguf"), root.join("d.gguf")).unwrap();
        }
        let models = all(&[], Some(&root), &["x=c", "default"]).unwrap();
        let expected = if cfg!(unix) {
            &["a", "b", "big", "d", "deep/b", "c"][..]
        } else {
            &["a", "b", "big", "deep/b", "c"]
        };
        assert_eq!(names(&models), expected);
        assert!(models.served().last().unwrap().is_called("x"));
        let empty = dir.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        let fails = |folder: &Path, aliases: &[&str], words: &str| {
            let error = all(&[], Some(folder), aliases).err().unwrap();
            assert!(format!("{error:#}").contains(words), "{error:#}");
        };
        fails(&empty, &[], "there is no .gguf file in --models");
        fails(&dir.path().join("no-such"), &[], "can't read --models");
        fails(&root, &["x=y"], "there is no model y (known: a, b,");
    }

    #[test]
    fn models_that_the_user_named() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "a.gguf");
        put(dir.path(), "sub/a.gguf");
        let [one, other] = ["a.gguf", "sub/a.gguf"].map(|name| dir.path().join(name).display().to_string());
        let models = all(&[&one, &other, "http://127.0.0.1:1/v1#m"], None, &[]).unwrap();
        assert_eq!(names(&models), ["a.gguf", "sub/a.gguf", "http://127.0.0.1:1/v1#m"]);
        assert_eq!(models.default(), ModelSpec::named(&one));
        let shipped = all(&["alara-tiny"], None, &[]).unwrap();
        assert!(names(&shipped) == ["alara-tiny.gguf"] && shipped.served()[0].is_called("alara-tiny"));
        shipped.model(&shipped.default()).unwrap();
        assert_eq!(shipped.loaded()[0].spec, shipped.default());
        assert!(all(&[&one, &one], None, &[]).err().unwrap().to_string().contains("is there twice"));
        assert!(
            all(&["no-such"], None, &[])
                .err()
                .unwrap()
                .to_string()
                .contains("there is no model file no-such")
        );
        models.add("qwen3:8b", Path::new("/x"));
        models.add("https://huggingface.co/o/r/resolve/main/x.gguf", Path::new("/x.gguf"));
        let added: Vec<Option<String>> =
            models.served().into_iter().skip(3).map(|served| served.spec.model).collect();
        assert_eq!(added, [Some("qwen3:8b".to_owned()), Some("/x.gguf".to_owned())]);
    }

    #[test]
    fn a_checkpoint_is_called_as_its_folder_is() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "MiniLM/model.safetensors");
        let folder = dir.path().join("MiniLM").display().to_string();
        let models = all(&[&folder], None, &[]).unwrap();
        assert_eq!(names(&models), ["MiniLM"]);
        assert_eq!(models.default(), ModelSpec::named(&folder));
    }

    #[test]
    fn which_model_an_npc_works_with() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "a.gguf");
        put(dir.path(), "b.gguf");
        let [a, b] = ["a.gguf", "b.gguf"].map(|name| dir.path().join(name).display().to_string());
        let check = |models: &ServedModels, spec: ModelSpec, expected: &str| {
            let used = models.used(&spec);
            assert_eq!(used.model.as_deref(), Some(expected), "{spec:?}");
            assert_eq!(models.used(&used), used);
        };
        let none = all(&[], None, &[]).unwrap();
        check(&none, ModelSpec::named("b"), "b");
        let one = all(&[&a], None, &[]).unwrap();
        check(&one, ModelSpec::named("b"), &a);
        check(&one, ModelSpec { api_url: Some("http://127.0.0.1:1".into()), ..ModelSpec::named("m") }, &a);
        let two = all(&[&a, &b], None, &["x=b.gguf"]).unwrap();
        check(&two, ModelSpec::named("b"), &b);
        check(&two, ModelSpec::named("x"), &b);
        check(&two, ModelSpec::named("c"), &a);
        check(&two, ModelSpec::default(), &a);
        check(&two, ModelSpec { api_url: Some("http://127.0.0.1:1".into()), ..ModelSpec::named("m") }, "m");
    }
}
