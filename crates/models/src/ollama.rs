//! Finds the models that Ollama has on this machine: reads its folder, never writes to it.
//!
//! ```text
//! manifests/HOST/NAMESPACE/NAME/TAG    JSON: layers, each with a media type and the digest of a blob
//! blobs/sha256-DIGEST                  a GGUF file, among others
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use alara_engine::file;
use serde::Deserialize;

use crate::hub::is_sha256;

/// A model in Ollama's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OllamaModel {
    /// Its name in Ollama: `qwen3:0.6b`, `owner/name:tag`, `hf.co/owner/name:tag`.
    pub name: String,
    /// The GGUF file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
}

/// The media type of a model's weights.
/// Projectors and adapters have other types.
const MODEL: &str = "application/vnd.ollama.image.model";
/// The host that names omit.
const HOST: &str = "registry.ollama.ai";
const NAMESPACE: &str = "library";

/// Returns Ollama's folder of models: `OLLAMA_MODELS`, else below the home directory, else the
/// folder of its service on Linux.
pub fn folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("OLLAMA_MODELS").filter(|folder| !folder.is_empty()) {
        return Some(folder.into());
    }
    let own = std::env::home_dir().map(|home| home.join(".ollama/models"));
    let service = PathBuf::from("/usr/share/ollama/.ollama/models");
    [own, Some(service)].into_iter().flatten().find(|folder| folder.join("manifests").is_dir())
}

/// Whether `folder` is a folder of Ollama's models.
pub fn is_folder(folder: &Path) -> bool {
    folder.join("manifests").is_dir() && folder.join("blobs").is_dir()
}

/// Returns all models in `folder` whose weights are present.
pub fn models(folder: &Path) -> Vec<OllamaModel> {
    let mut held = Vec::new();
    for host in names(&folder.join("manifests")) {
        for namespace in names(&folder.join("manifests").join(&host)) {
            let under = folder.join("manifests").join(&host).join(&namespace);
            for name in names(&under) {
                for tag in names(&under.join(&name)) {
                    let whole = match (host.as_str(), namespace.as_str()) {
                        (HOST, NAMESPACE) => format!("{name}:{tag}"),
                        (HOST, _) => format!("{namespace}/{name}:{tag}"),
                        _ => format!("{host}/{namespace}/{name}:{tag}"),
                    };
                    held.extend(weights(folder, &under.join(&name).join(&tag), whole));
                }
            }
        }
    }
    held.sort_by(|a, b| a.name.cmp(&b.name));
    held
}

/// Finds the model that Ollama would run under this name; without a tag, `latest`.
pub fn find(folder: &Path, name: &str) -> Option<OllamaModel> {
    let tagged = if name.rsplit('/').next().is_some_and(|last| last.contains(':')) {
        name.to_owned()
    } else {
        format!("{name}:latest")
    };
    models(folder).into_iter().find(|held| held.name.eq_ignore_ascii_case(&tagged))
}

fn weights(folder: &Path, manifest: &Path, name: String) -> Option<OllamaModel> {
    // A manifest is a few hundred bytes long.
    let manifest: Manifest = serde_json::from_slice(&file::read(manifest, 1 << 20).ok()?).ok()?;
    let layer = manifest.layers.into_iter().find(|layer| layer.media_type == MODEL)?;
    let digest = layer.digest.strip_prefix("sha256:").filter(|digest| is_sha256(digest))?;
    let path = folder.join("blobs").join(format!("sha256-{digest}"));
    let bytes = fs::metadata(&path).ok()?.len();
    Some(OllamaModel { name, path, bytes })
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_all_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let put = |path: &str, media: &str, digest: &str| {
            let manifest = root.join("manifests").join(path);
            fs::create_dir_all(manifest.parent().unwrap()).unwrap();
            let text = format!(
                r#"{{"layers": [{{"mediaType": "application/vnd.ollama.image.license", "digest": "x", "size": 1}},
                    {{"mediaType": "{media}", "digest": "{digest}", "size": 4}}]}}"#
            );
            fs::write(manifest, text).unwrap();
        };
        let digest = "a".repeat(64);
        fs::create_dir(root.join("blobs")).unwrap();
        fs::write(root.join(format!("blobs/sha256-{digest}")), "GGUF").unwrap();
        let whole = format!("sha256:{digest}");
        put("registry.ollama.ai/library/qwen3/0.6b", MODEL, &whole);
        put("registry.ollama.ai/library/phi4/latest", MODEL, &whole);
        put("registry.ollama.ai/someone/tuned/v1", MODEL, &whole);
        put("hf.co/o/r-GGUF/Q4_K_M", MODEL, &whole);
        put("registry.ollama.ai/library/gone/latest", MODEL, &format!("sha256:{}", "b".repeat(64)));
        put("registry.ollama.ai/library/evil/latest", MODEL, "sha256:../../../etc/passwd");
        put("registry.ollama.ai/library/mlx/latest", "application/vnd.ollama.image.tensor", &whole);
        fs::write(root.join("manifests/registry.ollama.ai/library/qwen3/broken"), "{").unwrap();

        let names: Vec<String> = models(root).into_iter().map(|held| held.name).collect();
        assert_eq!(names, ["hf.co/o/r-GGUF:Q4_K_M", "phi4:latest", "qwen3:0.6b", "someone/tuned:v1"]);
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(find(root, name).map(|held| held.name).as_deref(), expected, "{name}");
        };
        check("qwen3:0.6b", Some("qwen3:0.6b"));
        check("phi4", Some("phi4:latest"));
        check("qwen3", None);
        check("hf.co/o/r-GGUF:q4_k_m", Some("hf.co/o/r-GGUF:Q4_K_M"));
        assert!(is_folder(root) && !is_folder(&root.join("blobs")));
    }
}
