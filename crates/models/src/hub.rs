//! Settings for the hub, from the environment.
//! The variables are those of Hugging Face's own tools.

use std::env;
use std::path::PathBuf;

use alara_engine::file;

use crate::error::{Error, Result, ensure};

/// The hub, as configured by the environment.
pub struct Hub {
    /// `HF_ENDPOINT`, without a trailing slash.
    pub endpoint: String,
    /// `HF_TOKEN`, or the token stored by `hf auth login`.
    /// Sent only to the endpoint.
    pub token: Option<String>,
    /// `HF_HUB_OFFLINE`: makes no network requests.
    pub offline: bool,
}

impl Hub {
    /// # Errors
    /// The endpoint isn't a valid address.
    pub fn from_env() -> Result<Hub> {
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let proper = endpoint.starts_with("https://") || endpoint.starts_with("http://");
        ensure!(proper, Environment, "HF_ENDPOINT is {endpoint}, which is no http address");
        let yes = |value: String| ["1", "on", "yes", "true"].contains(&value.to_lowercase().as_str());
        Ok(Hub { endpoint, token: token(), offline: set("HF_HUB_OFFLINE").is_some_and(yes) })
    }
}

/// Returns the hub's cache folder, shared with other tools: `HF_HUB_CACHE`, else `hub` in
/// `HF_HOME`, else in `~/.cache/huggingface`.
///
/// # Errors
/// None of these is known.
pub fn cache_folder() -> Result<PathBuf> {
    let whole = set("HF_HUB_CACHE").or_else(|| set("HUGGINGFACE_HUB_CACHE")).map(PathBuf::from);
    whole.or_else(|| Some(home()?.join("hub"))).ok_or_else(|| {
        Error::Environment("there is no home folder\nhint: set HF_HOME to a folder".to_owned())
    })
}

/// `HF_HOME`, which holds the cache and the token.
fn home() -> Option<PathBuf> {
    let cache = || set("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cache")));
    set("HF_HOME").map(PathBuf::from).or_else(|| Some(cache()?.join("huggingface")))
}

fn token() -> Option<String> {
    let stored = || {
        let path = set("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home()?.join("token")))?;
        file::read_text(&path, file::TEXT).ok()
    };
    let token = set("HF_TOKEN").or_else(|| set("HUGGING_FACE_HUB_TOKEN")).or_else(stored)?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}

/// Reads an environment variable that isn't empty.
fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether `text` is a SHA-256 in hexadecimal.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether `text` is a commit hash.
pub fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
