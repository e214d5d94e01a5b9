//! Parses the ways in which people write the name of a file on the hub.

use std::str::FromStr;

use crate::error::{Error, Result, bail, ensure};

/// A repository, and which file of it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubName {
    /// `owner/name`.
    pub repository: String,
    /// A commit, branch or tag; `main` if absent.
    pub revision: Option<String>,
    /// The file, or how to choose one.
    pub wanted: Wanted,
}

/// Which file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The file at that path.
    /// Any part of a split model means all of them.
    File(String),
    /// The file whose name contains this quantization.
    Quantization(String),
    /// Q4_K_M, the only file, or the one nearest to it.
    Any,
}

/// Parses `owner/name`, `owner/name:Q4_K_M`, `owner/name:file.gguf` and `owner/name/file.gguf`,
/// optionally prefixed by `hf:`, `hf.co/` or `huggingface.co/`.
/// Also parses URLs of the hub's pages: `https://huggingface.co/owner/name/resolve/main/file.gguf`,
/// or `blob` instead of `resolve`.
/// As with Ollama, `:latest` is ignored.
///
/// Names become paths in the cache, so names that could leave its folder are rejected.
impl FromStr for HubName {
    type Err = Error;

    fn from_str(text: &str) -> Result<HubName> {
        let (scheme, rest) = text.split_once("://").map_or((None, text), |(s, rest)| (Some(s), rest));
        let rest = if scheme.is_none() { rest.strip_prefix("hf:").unwrap_or(rest) } else { rest };
        ensure!(
            !rest.trim().is_empty(),
            Name,
            "the name is empty: `alara models list` tells those of the catalog"
        );
        let how = "download it with another tool, and give its path to -m";
        ensure!(
            matches!(scheme, None | Some("https" | "http" | "hf")),
            Name,
            "can't download from {text}: it is no https address\nhint: {how}"
        );
        let hosts = ["huggingface.co/", "hf.co/", "www.huggingface.co/"];
        let stripped = hosts.iter().find_map(|host| rest.strip_prefix(host));
        let rest = match (scheme, stripped) {
            (Some("https" | "http"), None) => bail!(Name, "{text} is not on the hub\nhint: {how}"),
            (_, stripped) => stripped.unwrap_or(rest),
        };
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (path, after) = rest.split_once(':').map_or((rest, None), |(path, after)| (path, Some(after)));
        let mut parts = path.trim_end_matches('/').splitn(3, '/');
        let (Some(owner), Some(name)) = (parts.next(), parts.next()) else {
            bail!(
                Name,
                "{text} is no name of the catalog and no repository OWNER/NAME\nhint: `alara models list` tells the names that are known"
            );
        };
        let mut revision = None;
        let wanted = match (parts.next(), after) {
            (None, None | Some("latest")) => Wanted::Any,
            (None, Some(file)) if is_gguf(file) => Wanted::File(file.to_owned()),
            (None, Some(quantization)) => Wanted::Quantization(quantization.to_owned()),
            (Some(path), None) => match path.split('/').collect::<Vec<_>>().as_slice() {
                ["tree", of] => {
                    revision = Some((*of).to_owned());
                    Wanted::Any
                }
                ["resolve" | "blob", of, file @ ..] => {
                    revision = Some((*of).to_owned());
                    Wanted::File(file.join("/"))
                }
                _ => Wanted::File(path.to_owned()),
            },
            (Some(_), Some(_)) => bail!(Name, "{text} names a file twice"),
        };
        let whole = HubName { repository: format!("{owner}/{name}"), revision, wanted };
        let word = |word: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !word.is_empty() && word.chars().all(plain) && !word.starts_with('.')
        };
        ensure!(word(owner) && word(name), Name, "{} is no repository OWNER/NAME", whole.repository);
        ensure!(whole.revision.iter().all(|revision| word(revision)), Name, "{text} has no proper revision");
        match &whole.wanted {
            Wanted::File(file) => {
                ensure!(is_gguf(file), Name, "{file} is no GGUF file: only those can be run");
                ensure!(is_inside(file), Name, "{file} is no path inside a repository");
            }
            Wanted::Quantization(quantization) => {
                ensure!(word(quantization), Name, "{text} is no proper name");
            }
            Wanted::Any => {}
        }
        Ok(whole)
    }
}

/// Whether the name ends like that of a GGUF file.
pub fn is_gguf(path: &str) -> bool {
    path.to_ascii_lowercase().ends_with(".gguf")
}

/// Whether a path from the network or a user stays below the folder that it is joined to.
pub fn is_inside(path: &str) -> bool {
    // Reject names that could manipulate the terminal.
    let odd = |c: char| matches!(c, '\\' | ':' | '\n' | '\u{fffd}') || deceives(c);
    let proper = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(odd);
    path.split('/').all(proper)
}

/// Whether a character could manipulate a terminal, or mislead the reader: control characters
/// except newline and tab, characters that change the writing direction or act as line separators,
/// and invisible ones.
/// Characters that join letters and emoji are allowed.
pub fn deceives(c: char) -> bool {
    match c {
        '\t' | '\n' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' => true,
        '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        c => c.is_control(),
    }
}

/// Returns all files of the model that `file` is part of: `x-00001-of-00003.gguf` and so on, or the
/// file alone.
pub fn parts(file: &str) -> Vec<String> {
    match split(file) {
        Some((prefix, count)) => {
            (1..=count).map(|number| format!("{prefix}-{number:05}-of-{count:05}.gguf")).collect()
        }
        None => vec![file.to_owned()],
    }
}

/// Returns the common prefix of all parts, and their number; `None` for a model in one file.
pub fn split(file: &str) -> Option<(&str, u32)> {
    let stem = file.strip_suffix(".gguf")?;
    let (before, count) = stem.rsplit_once("-of-")?;
    let (prefix, number) = before.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (number, count): (u32, u32) = match digits(number) && digits(count) {
        true => (number.parse().ok()?, count.parse().ok()?),
        false => return None,
    };
    // No model has more parts; a name must not cause endless work.
    (1..=count.min(1000)).contains(&number).then_some((prefix, count)).filter(|(_, count)| *count <= 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        fn check(text: &str, repository: &str, revision: Option<&str>, wanted: Wanted) {
            let expected =
                HubName { repository: repository.into(), revision: revision.map(Into::into), wanted };
            assert_eq!(text.parse::<HubName>().unwrap(), expected, "{text}");
        }
        let file = |name: &str| Wanted::File(name.into());
        check("o/r", "o/r", None, Wanted::Any);
        check("hf.co/o/r", "o/r", None, Wanted::Any);
        check("https://huggingface.co/o/r/", "o/r", None, Wanted::Any);
        check("https://huggingface.co/o/r/tree/dev", "o/r", Some("dev"), Wanted::Any);
        check("o/r-GGUF:Q4_K_M", "o/r-GGUF", None, Wanted::Quantization("Q4_K_M".into()));
        check("hf://o/r:a.gguf", "o/r", None, file("a.gguf"));
        check("hf:o/r:q4_k_m", "o/r", None, Wanted::Quantization("q4_k_m".into()));
        check("hf:hf.co/o/r", "o/r", None, Wanted::Any);
        check("hf.co/o/r:latest", "o/r", None, Wanted::Any);
        check("o/r/sub/a.gguf", "o/r", None, file("sub/a.gguf"));
        check(
            "https://huggingface.co/o/r/resolve/main/Q4/a.gguf?download=true",
            "o/r",
            Some("main"),
            file("Q4/a.gguf"),
        );
        check("https://hf.co/o/r/blob/ab12/a.gguf", "o/r", Some("ab12"), file("a.gguf"));
    }

    #[test]
    fn what_is_no_name() {
        fn check(text: &str, words: &str) {
            let error = text.parse::<HubName>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        check("qwen", "no name of the catalog and no repository");
        check("https://example.org/o/r", "is not on the hub\nhint: download it with another tool");
        check("http://127.0.0.1:1/x.gguf", "is not on the hub\nhint: download it with another tool");
        check("ftp://o/r", "can't download from ftp://o/r: it is no https address\nhint: ");
        check("../r:a.gguf", "is no repository");
        check("hf:../r", "is no repository");
        check("hf:o", "no name of the catalog and no repository");
        check("hf:o/r:../../x", "is no proper name");
        check("hf:o/r:..%2f..%2fa.gguf", "is no path inside");
        check("o/..:a.gguf", "is no repository");
        check("o/r:../../a.gguf", "is no path inside");
        check("o/r/.git/a.gguf", "is no path inside");
        check("o/r:/etc/a.gguf", "is no path inside");
        check("o/r:a\u{1b}[2J.gguf", "is no path inside");
        check("o/r:a\u{202e}.gguf", "is no path inside");
        check("o/r:a\nb.gguf", "is no path inside");
        check("o/r/resolve/../a.gguf", "no proper revision");
        check("o/r/model.safetensors", "is no GGUF file");
        check("o/r/a.gguf:Q4", "twice");
    }

    #[test]
    fn parts_of_a_split_model() {
        assert_eq!(parts("d/x-00002-of-00002.gguf"), ["d/x-00001-of-00002.gguf", "d/x-00002-of-00002.gguf"]);
        for whole in ["x.gguf", "x-00003-of-00002.gguf", "x-1-of-2.gguf", "x-00000-of-00002.gguf"] {
            assert_eq!(parts(whole), [whole]);
        }
    }
}
